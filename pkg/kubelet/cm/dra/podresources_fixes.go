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
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/kubernetes/pkg/kubelet/cm/dra/state"
)

// OnlyRequested reduces the claims of a container to the devices that it asks for, as
// GetResources does when the container starts. Each claim is listed once. The claims get
// modified, they must be copies.
func OnlyRequested(pod *v1.Pod, container *v1.Container, claimInfos []*ClaimInfo) []*ClaimInfo {
	requests := requestsOfExtendedResources(pod, container)
	for i := range pod.Spec.ResourceClaims {
		podClaim := &pod.Spec.ResourceClaims[i]
		claimName, _, err := resourceclaim.Name(pod, podClaim)
		if err != nil || claimName == nil {
			continue
		}
		for _, claim := range container.Resources.Claims {
			if claim.Name == podClaim.Name {
				requests[*claimName] = append(requests[*claimName], claim.Request)
			}
		}
	}

	var result []*ClaimInfo
	for _, info := range claimInfos {
		wanted, ok := requests[info.ClaimName]
		if !ok {
			continue
		}
		// Not listed again if the container has several requests of the claim.
		delete(requests, info.ClaimName)
		for driverName, driverState := range info.DriverState {
			driverState.Devices = slices.DeleteFunc(driverState.Devices, func(device state.Device) bool {
				// A container without a request gets all devices, and a device without one is for all.
				return !slices.Contains(wanted, "") && len(device.RequestNames) > 0 &&
					!slices.ContainsFunc(device.RequestNames, func(request string) bool { return slices.Contains(wanted, request) })
			})
			info.DriverState[driverName] = driverState
		}
		result = append(result, info)
	}
	return result
}
