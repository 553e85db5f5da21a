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

package dynamicresources

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"
)

// skipsNodeOperations returns true if only nodes which declare that can use the allocation.
func skipsNodeOperations(allocation *resourceapi.AllocationResult) bool {
	return allocationResultRequiresDRAOptionalNodeOperations(allocation)
}

// mapsNodeResources returns true if a device comes with resources of the node. Only one pod may
// use such a claim. Filter finds the others in status.reservedFor and among the pods of the
// same group, therefore all other pods have to wait until the allocation is stored.
func (pl *DynamicResources) mapsNodeResources(allocation *resourceapi.AllocationResult) bool {
	if !pl.fts.EnableDRANodeAllocatableResources {
		return false
	}
	for i := range allocation.Devices.Results {
		result := &allocation.Devices.Results[i]
		if ptr.Deref(result.AdminAccess, false) {
			continue
		}
		device, err := getDeviceFromManager(pl.draManager, result)
		if err != nil {
			return true // It might.
		}
		for _, resource := range device.NodeAllocatableResources {
			if resource.Mapping != nil {
				return true
			}
		}
	}
	return false
}
