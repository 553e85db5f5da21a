/*
Copyright The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package resource

import (
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/apis/resource"
	"k8s.io/kubernetes/pkg/features"
)

// LimitStatus refuses an update of the status of a ResourceClaim with more entries than any
// valid one has. It is called before anything else is done with the update: validation compares
// each entry, and each error, with all others. One node's driver could
// keep an API server busy for half a minute with a request of 150 kB.
func LimitStatus(claim, oldClaim *resource.ResourceClaim) error {
	status := claim.Status
	if !utilfeature.DefaultFeatureGate.Enabled(features.DRAResourceClaimDeviceStatus) && len(oldClaim.Status.Devices) == 0 {
		// They are dropped while they are disabled.
		status.Devices = nil
	}
	if status.Allocation != nil && len(status.Allocation.Devices.Results) <= resource.AllocationResultsMaxSize && len(status.Devices) <= len(status.Allocation.Devices.Results) {
		// What else may be wrong is for those who may write.
		return nil
	}
	if err := refuseTooMany(&status, field.NewPath("status")); err != nil {
		return apierrors.NewInvalid(resource.Kind("ResourceClaim"), claim.Name, field.ErrorList{err})
	}
	return nil
}

// refuseTooMany refuses a claim with more devices than can be allocated, and an entry for a device that
// is not allocated or has one already, as validation does. No more entries than that are looked at, as
// one of them must be such an entry.
func refuseTooMany(status *resource.ResourceClaimStatus, path *field.Path) *field.Error {
	if status.Allocation == nil {
		// Entries for devices that were allocated go with the allocation.
		if len(status.Devices) > resource.AllocationResultsMaxSize {
			return field.TooMany(path.Child("devices"), len(status.Devices), resource.AllocationResultsMaxSize)
		}
		return nil
	}
	results := status.Allocation.Devices.Results
	if len(results) > resource.AllocationResultsMaxSize {
		return field.TooMany(path.Child("allocation", "devices", "results"), len(results), resource.AllocationResultsMaxSize)
	}
	type deviceID struct{ driver, pool, device string }
	// A device that is shared can be there several times.
	allocated, entries := map[deviceID]int{}, map[deviceID]int{}
	for _, result := range results {
		allocated[deviceID{result.Driver, result.Pool, result.Device}]++
	}
	for i, device := range status.Devices {
		id := deviceID{device.Driver, device.Pool, device.Device}
		value := strings.Join([]string{id.driver, id.pool, id.device}, "/")
		if allocated[id] == 0 {
			return field.Invalid(path.Child("devices").Index(i), value, "must be an allocated device in the claim")
		}
		if entries[id]++; entries[id] > allocated[id] {
			return field.Duplicate(path.Child("devices").Index(i), value)
		}
	}
	return nil
}
