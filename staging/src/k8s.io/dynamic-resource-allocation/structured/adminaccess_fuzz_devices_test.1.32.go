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

package structured

import (
	"testing"

	resourceapi "k8s.io/api/resource/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func fuzzRequest(d *draws, name string, admin bool) resourceapi.DeviceRequest {
	request := resourceapi.DeviceRequest{Name: name}
	request.DeviceClassName, request.Selectors, request.AllocationMode, request.Count = fuzzRequirements(d)
	if admin {
		request.AdminAccess = &admin
	}
	return request
}

// fuzzRequestNames are those by which constraints can refer to it.
func fuzzRequestNames(request resourceapi.DeviceRequest) []string { return []string{request.Name} }

func fuzzConstraint(d *draws, requests []string) resourceapi.DeviceConstraint {
	constraint := resourceapi.DeviceConstraint{Requests: requests}
	if !d.oneIn(20) {
		constraint.MatchAttribute = fuzzAttributeName(d)
	}
	return constraint
}

func fuzzDevice(d *draws, name string) resourceapi.Device {
	if d.oneIn(50) {
		return resourceapi.Device{Name: name} // Of a kind that is not known.
	}
	device := resourceapi.Device{Name: name, Basic: &resourceapi.BasicDevice{Attributes: fuzzAttributes(d)}}
	if d.oneIn(2) {
		device.Basic.Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {Value: resource.MustParse("3")}}
	}
	return device
}

// fuzzPlace says from where the devices of a pool can be reached.
func fuzzPlace(d *draws, pool []*resourceapi.ResourceSlice) []*resourceapi.ResourceSlice {
	for _, slice := range pool {
		switch d.below(16) {
		case 12:
			slice.Spec.AllNodes = true
		case 13:
			slice.Spec.NodeName = "other"
		case 14:
			slice.Spec.NodeSelector = fuzzNodeSelector(d)
		case 15:
		default:
			slice.Spec.NodeName = fuzzNode.Name
		}
	}
	return pool
}

// checkFuzzSums has nothing to do: devices have nothing that is shared.
func checkFuzzSums(*testing.T, []*resourceapi.ResourceSlice, []resourceapi.DeviceRequestAllocationResult) {
}
