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

// What is not in 1.32: counters and capacity that devices share.

package structured

import (
	"context"
	"fmt"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/ptr"
)

func newAdminRequest(name string, mode resourceapi.DeviceAllocationMode, count int64, adminAccess *bool) resourceapi.DeviceRequest {
	return resourceapi.DeviceRequest{Name: name, Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: "class", AllocationMode: mode, Count: count, AdminAccess: adminAccess,
	}}
}

func newAdminDevice(name string) resourceapi.Device { return resourceapi.Device{Name: name} }

func setAdminNode(spec *resourceapi.ResourceSliceSpec) { spec.NodeName = &adminNode.Name }

func allocateForAdmin(t *testing.T, slices []*resourceapi.ResourceSlice, allocated []string, claims []*resourceapi.ResourceClaim) map[string][]resourceapi.AllocationResult {
	t.Helper()
	return allocateWithFeatures(t, Features{AdminAccess: true}, slices, allocated, nil, claims)
}

// allocateWithFeatures returns the results of each implementation that has the features.
func allocateWithFeatures(t *testing.T, features Features, slices []*resourceapi.ResourceSlice, allocated []string, consumed map[string]string, claims []*resourceapi.ResourceClaim) map[string][]resourceapi.AllocationResult {
	t.Helper()
	state := AllocatedState{
		AllocatedDevices:         sets.New[DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[SharedDeviceID](),
		AggregatedCapacity:       NewConsumedCapacityCollection(),
	}
	for _, name := range allocated {
		state.AllocatedDevices.Insert(MakeDeviceID(adminDriver, adminPool, name))
	}
	for name, quantity := range consumed {
		state.AggregatedCapacity.Insert(NewDeviceConsumedCapacity(MakeDeviceID(adminDriver, adminPool, name), map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse(quantity)}))
	}
	resultsOf := map[string][]resourceapi.AllocationResult{}
	for _, implementation := range implementations {
		enable(t, implementation)
		allocator, err := NewAllocator(context.Background(), features, state, adminClasses, slices, cel.NewCache(10, cel.Features{EnableConsumableCapacity: true}))
		if err != nil {
			continue // It does not have the features.
		}
		results, err := allocator.Allocate(context.Background(), adminNode, claims)
		if err != nil {
			t.Errorf("%s: %v", implementation, err)
			continue
		}
		resultsOf[implementation] = results
	}
	if len(resultsOf) == 0 {
		t.Error("no implementation has the features")
	}
	return resultsOf
}

// isShareable returns true if the device allows multiple allocations.
func isShareable(slices []*resourceapi.ResourceSlice, name string) bool {
	for _, slice := range slices {
		for _, device := range slice.Spec.Devices {
			if device.Name == name {
				return ptr.Deref(device.AllowMultipleAllocations, false)
			}
		}
	}
	return false
}

// TestAdminAccessShared covers that admin access takes nothing of what devices share.
func TestAdminAccessShared(t *testing.T) {
	device := func(name string, edit ...func(*resourceapi.Device)) resourceapi.Device {
		d := newAdminDevice(name)
		for _, edit := range edit {
			edit(&d)
		}
		return d
	}
	consumesCounters := func(quantity string) func(*resourceapi.Device) {
		return func(d *resourceapi.Device) {
			d.ConsumesCounters = []resourceapi.DeviceCounterConsumption{{CounterSet: "set", Counters: map[string]resourceapi.Counter{"memory": {Value: resource.MustParse(quantity)}}}}
		}
	}
	shareable := func(quantity string) func(*resourceapi.Device) {
		return func(d *resourceapi.Device) {
			d.AllowMultipleAllocations = ptr.To(true)
			d.Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {Value: resource.MustParse(quantity)}}
		}
	}
	slice := func(devices ...resourceapi.Device) *resourceapi.ResourceSlice {
		s := adminSlice()
		s.Spec.Devices = devices
		return s
	}
	counterSet := func(quantity string) []resourceapi.CounterSet {
		return []resourceapi.CounterSet{{Name: "set", Counters: map[string]resourceapi.Counter{"memory": {Value: resource.MustParse(quantity)}}}}
	}
	request := func(name string, admin bool, edit ...func(*resourceapi.ExactDeviceRequest)) resourceapi.DeviceRequest {
		r := newAdminRequest(name, resourceapi.DeviceAllocationModeExactCount, 1, nil)
		if admin {
			r.Exactly.AdminAccess = &admin
		}
		for _, edit := range edit {
			edit(r.Exactly)
		}
		return r
	}
	all := func(r *resourceapi.ExactDeviceRequest) {
		r.AllocationMode, r.Count = resourceapi.DeviceAllocationModeAll, 0
	}
	count := func(n int64) func(*resourceapi.ExactDeviceRequest) {
		return func(r *resourceapi.ExactDeviceRequest) { r.Count = n }
	}
	memory := func(quantity string) func(*resourceapi.ExactDeviceRequest) {
		return func(r *resourceapi.ExactDeviceRequest) {
			r.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse(quantity)}}
		}
	}
	claim := func(requests ...resourceapi.DeviceRequest) *resourceapi.ResourceClaim {
		return &resourceapi.ResourceClaim{Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: requests}}}
	}
	claims := func(claims ...*resourceapi.ResourceClaim) []*resourceapi.ResourceClaim {
		for i, claim := range claims {
			claim.Name = fmt.Sprintf("claim-%d", i)
		}
		return claims
	}
	counters := Features{AdminAccess: true, PartitionableDevices: true}
	capacity := Features{AdminAccess: true, ConsumableCapacity: true}
	both := Features{AdminAccess: true, ConsumableCapacity: true, PartitionableDevices: true}

	for name, tc := range map[string]struct {
		features  Features
		slices    []*resourceapi.ResourceSlice
		allocated []string          // devices
		consumed  map[string]string // memory of devices
		claims    []*resourceapi.ResourceClaim
		// expect is a result as in describeResults.
		expect string
	}{
		"counters are used up by another claim": {
			features: counters, slices: withSharedCounters(slice(device("a", consumesCounters("4Gi"))), counterSet("4Gi")), allocated: []string{"a"},
			claims: claims(claim(request("r", true))), expect: "a!",
		},
		"counters are used up by another device": {
			features: counters, slices: withSharedCounters(slice(device("a", consumesCounters("4Gi")), device("b", consumesCounters("4Gi"))), counterSet("4Gi")), allocated: []string{"a"},
			claims: claims(claim(request("r", true, all))), expect: "a!,b!",
		},
		"counters are free for another claim of the pod": {
			features: counters, slices: withSharedCounters(slice(device("a", consumesCounters("4Gi"))), counterSet("4Gi")),
			claims: claims(claim(request("r", true)), claim(request("r", false))), expect: "a! a",
		},
		"counters are free for another request of the claim": {
			features: counters, slices: withSharedCounters(slice(device("a", consumesCounters("4Gi")), device("b", consumesCounters("4Gi"))), counterSet("4Gi")),
			claims: claims(claim(request("admin", true), request("normal", false))), expect: "a!,b",
		},
		"counters still count without admin access": {
			features: counters, slices: withSharedCounters(slice(device("a", consumesCounters("4Gi")), device("b", consumesCounters("4Gi"))), counterSet("4Gi")), allocated: []string{"a"},
			claims: claims(claim(request("r", false))),
		},

		"capacity is used up by others": {
			features: capacity, slices: []*resourceapi.ResourceSlice{slice(device("a", shareable("8Gi")))}, consumed: map[string]string{"a": "8Gi"},
			claims: claims(claim(request("r", true))), expect: "a!",
		},
		"all devices, capacity of some is used up": {
			features: capacity, slices: []*resourceapi.ResourceSlice{slice(device("a", shareable("8Gi")), device("b", shareable("8Gi")))}, consumed: map[string]string{"b": "8Gi"},
			claims: claims(claim(request("r", true, all))), expect: "a!,b!",
		},
		"capacity is free for another claim of the pod": {
			features: capacity, slices: []*resourceapi.ResourceSlice{slice(device("a", shareable("8Gi")))},
			claims: claims(claim(request("r", true)), claim(request("r", false, memory("8Gi")))), expect: "a! a",
		},
		"capacity as a condition for admin access": {
			features: capacity, slices: []*resourceapi.ResourceSlice{slice(device("a", shareable("8Gi")), device("b", shareable("16Gi")))}, consumed: map[string]string{"b": "16Gi"},
			claims: claims(claim(request("r", true, memory("12Gi")))), expect: "b!",
		},
		"capacity still counts without admin access": {
			features: capacity, slices: []*resourceapi.ResourceSlice{slice(device("a", shareable("8Gi")))}, consumed: map[string]string{"a": "8Gi"},
			claims: claims(claim(request("r", false, memory("1Gi")))),
		},
		"as many as there are": {
			features: capacity, slices: []*resourceapi.ResourceSlice{slice(device("a", shareable("8Gi")), device("b", shareable("8Gi")))},
			claims: claims(claim(request("r", true, count(2)))), expect: "a!,b!",
		},
		// Each request gets a share of its own, as those without admin access do. What only one
		// claim can have is in TestAdminAccess.
		"a shared device twice in a claim, admin access first": {
			features: capacity, slices: []*resourceapi.ResourceSlice{slice(device("a", shareable("8Gi")))},
			claims: claims(claim(request("admin", true), request("normal", false))), expect: "a,a!",
		},
		"a shared device twice in a claim, admin access last": {
			features: capacity, slices: []*resourceapi.ResourceSlice{slice(device("a", shareable("8Gi")))},
			claims: claims(claim(request("normal", false), request("admin", true))), expect: "a,a!",
		},
		"a shared device twice in a claim, admin access to all": {
			features: capacity, slices: []*resourceapi.ResourceSlice{slice(device("a", shareable("8Gi")))},
			claims: claims(claim(request("admin", true, all), request("normal", false, all))), expect: "a,a!",
		},
		"a shared device twice in a claim, both with admin access": {
			features: capacity, slices: []*resourceapi.ResourceSlice{slice(device("a", shareable("8Gi")))},
			claims: claims(claim(request("admin", true), request("other", true))), expect: "a!,a!",
		},
		"a shared device once in a request with admin access": {
			features: capacity, slices: []*resourceapi.ResourceSlice{slice(device("a", shareable("8Gi")))},
			claims: claims(claim(request("admin", true, count(2)))),
		},
		"counters of a shared device are taken by the first that consumes": {
			features: both, slices: withSharedCounters(slice(device("a", shareable("8Gi"), consumesCounters("4Gi")), device("b", consumesCounters("4Gi"))), counterSet("4Gi")), allocated: []string{"b"},
			claims: claims(claim(request("r", true, func(r *resourceapi.ExactDeviceRequest) {
				r.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `"memory" in device.capacity["` + adminDriver + `"]`}}}
			})), claim(request("r", false, memory("1Gi")))),
		},
	} {
		t.Run(name, func(t *testing.T) {
			for implementation, results := range allocateWithFeatures(t, tc.features, tc.slices, tc.allocated, tc.consumed, tc.claims) {
				if got := describeResults(results); got != tc.expect {
					t.Errorf("%s: want %q, got %q", implementation, tc.expect, got)
				}
				for _, result := range results {
					for _, device := range result.Devices.Results {
						if !ptr.Deref(device.AdminAccess, false) {
							continue
						}
						if len(device.ConsumedCapacity) > 0 {
							t.Errorf("%s: device %s with admin access consumes %v", implementation, device.Device, device.ConsumedCapacity)
						}
						// All that several claims may have need one, to tell them apart.
						if shared := tc.features.ConsumableCapacity && isShareable(tc.slices, device.Device); shared != (device.ShareID != nil) {
							t.Errorf("%s: device %s with admin access has share ID %v", implementation, device.Device, device.ShareID)
						}
					}
				}
			}
		})
	}
}
