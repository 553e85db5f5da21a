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
	"bytes"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/apis/resource"
	"k8s.io/kubernetes/pkg/features"
)

// KeepFormat replaces what an update does not change by what is stored, in the format that it
// has there, if DRAResourceClaimDeviceStatus is enabled. The update would be refused otherwise: an
// allocation cannot be changed, and entries only by their driver.
func KeepFormat(status, oldStatus *resource.ResourceClaimStatus) {
	if !utilfeature.DefaultFeatureGate.Enabled(features.DRAResourceClaimDeviceStatus) {
		return
	}
	if sameStatus.DeepEqual(status.Allocation, oldStatus.Allocation) {
		status.Allocation = oldStatus.Allocation.DeepCopy()
	}
	for i := range status.Devices {
		j := slices.IndexFunc(oldStatus.Devices, func(old resource.AllocatedDeviceStatus) bool { return sameStatus.DeepEqual(status.Devices[i], old) })
		if j >= 0 {
			status.Devices[i] = *oldStatus.Devices[j].DeepCopy()
		}
	}
}

// sameStatus compares what drivers and users stored as JSON by its meaning. The server itself
// writes it differently when it applies a patch: without spaces, with sorted keys, 1.0 as 1, and integers
// of more than 64 bits rounded. Clients that get and update a claim do the same. That must not count as
// if the user had changed what belongs to somebody else.
var sameStatus = func() conversion.Equalities {
	equalities := equality.Semantic.Copy()
	if err := equalities.AddFunc(sameJSON); err != nil {
		panic(err)
	}
	return equalities
}()

func sameJSON(a, b runtime.RawExtension) bool {
	if equality.Semantic.DeepEqual(a, b) {
		return true
	}
	formattedA, errA := formatJSON(a.Raw)
	formattedB, errB := formatJSON(b.Raw)
	return errA == nil && errB == nil && bytes.Equal(formattedA, formattedB)
}

// formatJSON does what the server does when it applies a patch, until nothing changes any more.
// That takes two steps: -0.0 becomes -0, which is an integer, and that becomes 0.
func formatJSON(raw []byte) ([]byte, error) {
	for range 2 {
		var value any
		if err := json.Unmarshal(raw, &value); err != nil {
			return nil, err
		}
		var err error
		if raw, err = json.Marshal(value); err != nil {
			return nil, err
		}
	}
	return raw, nil
}
