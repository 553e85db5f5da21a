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

package devicetainteviction

import (
	resourceapi "k8s.io/api/resource/v1"
)

// allocationWithTolerations returns the allocation of the claim. These releases do not copy the
// tolerations of a request to what gets allocated for it, so they are taken from the spec, which
// cannot change.
func allocationWithTolerations(claim *resourceapi.ResourceClaim) *resourceapi.AllocationResult {
	allocation := claim.Status.Allocation.DeepCopy()
	for i := range allocation.Devices.Results {
		if result := &allocation.Devices.Results[i]; len(result.Tolerations) == 0 {
			result.Tolerations = tolerationsInSpec(claim, result.Request)
		}
	}
	return allocation
}

// tolerationsInSpec returns the tolerations of a request, or of an alternative (request/alternative).
func tolerationsInSpec(claim *resourceapi.ResourceClaim, name string) []resourceapi.DeviceToleration {
	for i := range claim.Spec.Devices.Requests {
		request := &claim.Spec.Devices.Requests[i]
		if request.Name == name {
			return tolerationsOfRequest(request)
		}
		for _, alternative := range request.FirstAvailable {
			if request.Name+"/"+alternative.Name == name {
				return alternative.Tolerations
			}
		}
	}
	return nil
}
