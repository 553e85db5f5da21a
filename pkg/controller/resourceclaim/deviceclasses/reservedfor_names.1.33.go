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

// Package deviceclasses knows where releases have the DeviceClasses in a claim. The ResourceClaim
// controller and the scheduler use it.
package deviceclasses

import resourceapi "k8s.io/api/resource/v1"

// Names returns the names of the DeviceClasses that a claim asks for, perhaps some of
// them twice.
func Names(claim *resourceapi.ResourceClaim) []string {
	var names []string
	for i := range claim.Spec.Devices.Requests {
		request := &claim.Spec.Devices.Requests[i]
		if request.DeviceClassName != "" {
			names = append(names, request.DeviceClassName)
		}
		for _, alternative := range request.FirstAvailable {
			names = append(names, alternative.DeviceClassName)
		}
	}
	return names
}
