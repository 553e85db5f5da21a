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
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/ptr"
)

// oneClass is a lister that knows one class.
type oneClass struct{ class *resourceapi.DeviceClass }

func (o oneClass) List() ([]*resourceapi.DeviceClass, error) {
	return []*resourceapi.DeviceClass{o.class}, nil
}

func (o oneClass) Get(name string) (*resourceapi.DeviceClass, error) {
	if name != o.class.Name {
		return nil, fmt.Errorf("class %q not found", name)
	}
	return o.class, nil
}

// TestAdminAccess covers that admin access takes nothing from others, and gets what others have,
// with each implementation of the allocator that has the features.
func TestAdminAccess(t *testing.T) {
	const driver, pool = "driver.example.com", "pool"
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	classes := oneClass{&resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "class"}}}

	device := func(name string, edit ...func(*resourceapi.Device)) resourceapi.Device {
		d := resourceapi.Device{Name: name}
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
		return &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: "slice"},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: driver, NodeName: &node.Name, Devices: devices,
				Pool: resourceapi.ResourcePool{Name: pool, ResourceSliceCount: 1},
			},
		}
	}
	counterSet := func(quantity string) []resourceapi.CounterSet {
		return []resourceapi.CounterSet{{Name: "set", Counters: map[string]resourceapi.Counter{"memory": {Value: resource.MustParse(quantity)}}}}
	}
	request := func(name string, admin bool, edit ...func(*resourceapi.ExactDeviceRequest)) resourceapi.DeviceRequest {
		r := resourceapi.DeviceRequest{Name: name, Exactly: &resourceapi.ExactDeviceRequest{
			DeviceClassName: "class", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
		}}
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
	basic := Features{AdminAccess: true}
	counters := Features{AdminAccess: true, PartitionableDevices: true}
	capacity := Features{AdminAccess: true, ConsumableCapacity: true}
	both := Features{AdminAccess: true, ConsumableCapacity: true, PartitionableDevices: true}

	for name, tc := range map[string]struct {
		features  Features
		slices    []*resourceapi.ResourceSlice
		allocated []string          // devices
		consumed  map[string]string // memory of devices
		claims    []*resourceapi.ResourceClaim
		// expect has one word for each claim, with the devices separated by commas and "!" behind
		// those with admin access. Empty if there is no solution.
		expect string
	}{
		"device in use": {
			features: basic, slices: []*resourceapi.ResourceSlice{slice(device("a"))}, allocated: []string{"a"},
			claims: claims(claim(request("r", true))), expect: "a!",
		},
		"all devices, some in use": {
			features: basic, slices: []*resourceapi.ResourceSlice{slice(device("a"), device("b"), device("c"))}, allocated: []string{"b"},
			claims: claims(claim(request("r", true, all))), expect: "a!,b!,c!",
		},
		"admin access after another claim of the pod": {
			features: basic, slices: []*resourceapi.ResourceSlice{slice(device("a"))},
			claims: claims(claim(request("r", false)), claim(request("r", true))), expect: "a a!",
		},
		"admin access before another claim of the pod": {
			features: basic, slices: []*resourceapi.ResourceSlice{slice(device("a"))},
			claims: claims(claim(request("r", true)), claim(request("r", false))), expect: "a! a",
		},
		"all with admin access, all devices for another claim": {
			features: basic, slices: []*resourceapi.ResourceSlice{slice(device("a"), device("b"))},
			claims: claims(claim(request("r", true, all)), claim(request("r", false, all))), expect: "a!,b! a,b",
		},
		"two claims without admin access": {
			features: basic, slices: []*resourceapi.ResourceSlice{slice(device("a"))},
			claims: claims(claim(request("r", true)), claim(request("r", false)), claim(request("r", false))),
		},
		"one device once in a claim": {
			features: basic, slices: []*resourceapi.ResourceSlice{slice(device("a"))},
			claims: claims(claim(request("admin", true), request("normal", false))),
		},
		"one device once in a claim, other order": {
			features: basic, slices: []*resourceapi.ResourceSlice{slice(device("a"))},
			claims: claims(claim(request("normal", false), request("admin", true))),
		},
		"backtracking forgets admin access": {
			// The first choice leaves nothing for the second request.
			features: basic, slices: []*resourceapi.ResourceSlice{slice(device("a"), device("b"))}, allocated: []string{"b"},
			claims: claims(claim(request("admin", true), request("normal", false))), expect: "b!,a",
		},

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
		"counters of a shared device are taken by the first that consumes": {
			features: both, slices: withSharedCounters(slice(device("a", shareable("8Gi"), consumesCounters("4Gi")), device("b", consumesCounters("4Gi"))), counterSet("4Gi")), allocated: []string{"b"},
			claims: claims(claim(request("r", true, func(r *resourceapi.ExactDeviceRequest) {
				r.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `"memory" in device.capacity["` + driver + `"]`}}}
			})), claim(request("r", false, memory("1Gi")))),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if reason := broken[name]; reason != "" {
				t.Skip(reason)
			}
			state := AllocatedState{
				AllocatedDevices:         sets.New[DeviceID](),
				AllocatedSharedDeviceIDs: sets.New[SharedDeviceID](),
				AggregatedCapacity:       NewConsumedCapacityCollection(),
			}
			for _, name := range tc.allocated {
				state.AllocatedDevices.Insert(MakeDeviceID(driver, pool, name))
			}
			for name, quantity := range tc.consumed {
				state.AggregatedCapacity.Insert(NewDeviceConsumedCapacity(MakeDeviceID(driver, pool, name), map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse(quantity)}))
			}
			tested := 0
			for _, implementation := range implementations {
				enable(t, implementation)
				allocator, err := NewAllocator(context.Background(), tc.features, state, classes, tc.slices, cel.NewCache(10, cel.Features{EnableConsumableCapacity: true}))
				if err != nil {
					continue // It does not have the features.
				}
				tested++
				results, err := allocator.Allocate(context.Background(), node, tc.claims)
				if err != nil {
					t.Errorf("%s: %v", implementation, err)
					continue
				}
				var got []string
				for _, result := range results {
					var devices []string
					for _, device := range result.Devices.Results {
						name := device.Device
						if ptr.Deref(device.AdminAccess, false) {
							name += "!"
							if len(device.ConsumedCapacity) > 0 {
								t.Errorf("%s: device %s with admin access consumes %v", implementation, name, device.ConsumedCapacity)
							}
						}
						devices = append(devices, name)
					}
					if len(result.Devices.Results) > 1 && strings.HasPrefix(tc.expect, "a!,b!") {
						slices.Sort(devices) // The order does not matter.
					}
					got = append(got, strings.Join(devices, ","))
				}
				if got := strings.Join(got, " "); got != tc.expect {
					t.Errorf("%s: want %q, got %q", implementation, tc.expect, got)
				}
			}
			if tested == 0 {
				t.Error("no implementation has the features")
			}
		})
	}
}
