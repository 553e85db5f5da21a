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

package dra

import (
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
)

// uniqueClaims leaves out claims that a pod names more than once. A driver gives one answer for each claim, and the
// kubelet expects as many as it has asked for: it would ask again for ever. All claims are in the namespace of the pod.
func uniqueClaims[T interface{ GetName() string }](claims []T) []T {
	seen := make(map[string]bool, len(claims))
	return slices.DeleteFunc(claims, func(claim T) bool {
		again := seen[claim.GetName()]
		seen[claim.GetName()] = true
		return again
	})
}

// checkSameDrivers refuses a claim that was allocated again while pods on this node were still using what it had
// before: there is no plugin for a driver that is not among those of the allocation. A deleted claim with
// the same name is something else.
func (cache *claimInfoCache) checkSameDrivers(claim *resourceapi.ResourceClaim) error {
	info, exists := cache.get(claim.Name, claim.Namespace)
	if !exists || info.ClaimUID != claim.UID || claim.Status.Allocation == nil {
		return nil
	}
	for driverName := range info.DriverState {
		if !slices.ContainsFunc(claim.Status.Allocation.Devices.Results, func(result resourceapi.DeviceRequestAllocationResult) bool {
			return result.Driver == driverName
		}) {
			return fmt.Errorf("ResourceClaim %s was allocated again while its previous devices are still in use on the node, one of them of driver %s: delete the pods which use those", claim.Name, driverName)
		}
	}
	return nil
}
