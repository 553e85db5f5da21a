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
	"context"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/ptr"
)

// FuzzAllocate is that of the only allocator.
func FuzzAllocate(f *testing.F) {
	addFuzzSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		fuzzAllocate(t, func(d *draws) fuzzAllocator { return newFuzzAllocator(!d.oneIn(8)) }, false, data)
	})
}

var fuzzCELCache = cel.NewCache(100)

func newFuzzAllocator(adminAccess bool) fuzzAllocator {
	return func(ctx context.Context, held []resourceapi.DeviceRequestAllocationResult, slices []*resourceapi.ResourceSlice, claims []*resourceapi.ResourceClaim) ([]resourceapi.AllocationResult, error) {
		if fuzzTakesTooLong(slices, claims) {
			return nil, errBudget
		}
		allocated := sets.New[DeviceID]()
		for _, result := range held {
			if !ptr.Deref(result.AdminAccess, false) {
				allocated.Insert(MakeDeviceID(result.Driver, result.Pool, result.Device))
			}
		}
		allocator, err := NewAllocator(ctx, adminAccess, claims, allocated, fuzzClasses{}, slices, fuzzCELCache)
		if err != nil {
			return nil, err
		}
		return allocator.Allocate(ctx, fuzzNode)
	}
}

// fuzzTakesTooLong returns true if the allocator might try more combinations than there is
// time for. In this release, it does not look at the context.
func fuzzTakesTooLong(slices []*resourceapi.ResourceSlice, claims []*resourceapi.ResourceClaim) bool {
	devices := 1
	for _, slice := range slices {
		devices += len(slice.Spec.Devices)
	}
	combinations := 1
	for _, claim := range claims {
		for _, request := range claim.Spec.Devices.Requests {
			if request.Count > resourceapi.AllocationResultsMaxSize {
				continue // That is an error at once.
			}
			for range request.Count {
				if combinations *= devices; combinations > 100000 {
					return true
				}
			}
		}
	}
	return false
}

// fuzzAllocators are all of them.
func fuzzAllocators() map[string]fuzzAllocator {
	return map[string]fuzzAllocator{"the only one": newFuzzAllocator(true)}
}

type fuzzAllocator func(context.Context, []resourceapi.DeviceRequestAllocationResult, []*resourceapi.ResourceSlice, []*resourceapi.ResourceClaim) ([]resourceapi.AllocationResult, error)

func isFuzzShare(resourceapi.DeviceRequestAllocationResult) bool { return false }

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
