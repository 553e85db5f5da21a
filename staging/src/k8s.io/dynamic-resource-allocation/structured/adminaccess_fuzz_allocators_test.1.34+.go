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
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/ptr"
)

// FuzzAllocateStable and the others are those of the allocator that their names have.
func FuzzAllocateStable(f *testing.F)       { fuzzImplementation(f, 0) }
func FuzzAllocateIncubating(f *testing.F)   { fuzzImplementation(f, 1) }
func FuzzAllocateExperimental(f *testing.F) { fuzzImplementation(f, 2) }

// fuzzImplementation runs the fuzzer for an allocator, the most stable one being the first.
func fuzzImplementation(f *testing.F, index int) {
	implementation := availableAllocators[index]
	addFuzzSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		fuzzAllocate(t, func(d *draws) fuzzAllocator {
			features := implementation.supportedFeatures
			// Mostly everything is on.
			for _, feature := range []*bool{&features.AdminAccess, &features.ConsumableCapacity, &features.DeviceTaints, &features.PartitionableDevices, &features.PrioritizedList} {
				*feature = *feature && !d.oneIn(8)
			}
			return newFuzzAllocator(index, features)
		}, orderedPools && index > 0, data)
	})
}

var fuzzCELCache = cel.NewCache(100, cel.Features{EnableConsumableCapacity: true})

// newFuzzAllocator returns one of the implementations.
func newFuzzAllocator(index int, features Features) fuzzAllocator {
	return func(ctx context.Context, held []resourceapi.DeviceRequestAllocationResult, slices []*resourceapi.ResourceSlice, claims []*resourceapi.ResourceClaim) ([]resourceapi.AllocationResult, error) {
		allocator, err := availableAllocators[index].newAllocator(ctx, features, fuzzState(held, features.ConsumableCapacity), fuzzClasses{}, slices, fuzzCELCache)
		if err != nil {
			return nil, err
		}
		return allocator.Allocate(ctx, fuzzNode, claims)
	}
}

// fuzzAllocators are all of them, with everything that they can do.
func fuzzAllocators() map[string]fuzzAllocator {
	all := map[string]fuzzAllocator{}
	for i, name := range []string{"stable", "incubating", "experimental"} {
		all[name] = newFuzzAllocator(i, availableAllocators[i].supportedFeatures)
	}
	return all
}

type fuzzAllocator func(context.Context, []resourceapi.DeviceRequestAllocationResult, []*resourceapi.ResourceSlice, []*resourceapi.ResourceClaim) ([]resourceapi.AllocationResult, error)

// fuzzState is what the scheduler knows about allocated devices.
func fuzzState(held []resourceapi.DeviceRequestAllocationResult, consumableCapacity bool) AllocatedState {
	state := AllocatedState{
		AllocatedDevices:         sets.New[DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[SharedDeviceID](),
		AggregatedCapacity:       NewConsumedCapacityCollection(),
	}
	for _, result := range held {
		if ptr.Deref(result.AdminAccess, false) {
			continue
		}
		id := MakeDeviceID(result.Driver, result.Pool, result.Device)
		if !consumableCapacity || result.ShareID == nil {
			state.AllocatedDevices.Insert(id)
			continue
		}
		state.AllocatedSharedDeviceIDs.Insert(MakeSharedDeviceID(id, result.ShareID))
		if result.ConsumedCapacity != nil {
			state.AggregatedCapacity.Insert(NewDeviceConsumedCapacity(id, result.ConsumedCapacity))
		}
	}
	return state
}

func isFuzzShare(result resourceapi.DeviceRequestAllocationResult) bool { return result.ShareID != nil }

func fuzzQuantity(d *draws) resource.Quantity {
	return pick(d, resource.MustParse("1"), resource.MustParse("2"), resource.MustParse("3"), resource.MustParse("0"), resource.MustParse("500m"), resource.MustParse("8Ei"))
}

func fuzzCapacityRequirements(d *draws) *resourceapi.CapacityRequirements {
	if d.below(4) < 3 {
		return nil
	}
	requirements := &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{}}
	requirements.Requests[pick[resourceapi.QualifiedName](d, "memory", "memory", "memory", "other")] = fuzzQuantity(d)
	return requirements
}

func fuzzTolerations(d *draws) []resourceapi.DeviceToleration {
	switch d.below(4) {
	case 2:
		return []resourceapi.DeviceToleration{{Operator: resourceapi.DeviceTolerationOpExists}}
	case 3:
		return []resourceapi.DeviceToleration{{Key: "taint", Operator: pick(d, resourceapi.DeviceTolerationOpEqual, resourceapi.DeviceTolerationOpExists, "Unknown"), Value: "value", Effect: resourceapi.DeviceTaintEffectNoSchedule}}
	}
	return nil
}

func fuzzRequest(d *draws, name string, admin bool) resourceapi.DeviceRequest {
	request := resourceapi.DeviceRequest{Name: name}
	if !admin && d.oneIn(4) {
		for i := range 1 + d.below(3) {
			sub := resourceapi.DeviceSubRequest{Name: fmt.Sprintf("s-%d", i), Tolerations: fuzzTolerations(d), Capacity: fuzzCapacityRequirements(d)}
			sub.DeviceClassName, sub.Selectors, sub.AllocationMode, sub.Count = fuzzRequirements(d)
			request.FirstAvailable = append(request.FirstAvailable, sub)
		}
		return request
	}
	request.Exactly = &resourceapi.ExactDeviceRequest{Tolerations: fuzzTolerations(d), Capacity: fuzzCapacityRequirements(d)}
	request.Exactly.DeviceClassName, request.Exactly.Selectors, request.Exactly.AllocationMode, request.Exactly.Count = fuzzRequirements(d)
	if admin {
		request.Exactly.AdminAccess = &admin
	}
	return request
}

// fuzzRequestNames are those by which constraints can refer to it.
func fuzzRequestNames(request resourceapi.DeviceRequest) []string {
	names := []string{request.Name}
	for _, sub := range request.FirstAvailable {
		names = append(names, request.Name+"/"+sub.Name)
	}
	return names
}

func fuzzConstraint(d *draws, requests []string) resourceapi.DeviceConstraint {
	constraint := resourceapi.DeviceConstraint{Requests: requests}
	switch d.below(20) {
	default:
		constraint.MatchAttribute = fuzzAttributeName(d)
	case 10, 11, 12, 13, 14, 15, 16, 17, 18:
		constraint.DistinctAttribute = fuzzAttributeName(d)
	case 19:
	}
	return constraint
}

func fuzzDevice(d *draws, name string) resourceapi.Device {
	device := resourceapi.Device{Name: name, Attributes: fuzzAttributes(d)}
	if d.oneIn(2) {
		device.Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {Value: resource.MustParse("3"), RequestPolicy: fuzzPolicy(d)}}
		if d.oneIn(3) {
			device.Capacity["other"] = resourceapi.DeviceCapacity{Value: fuzzQuantity(d)}
		}
	}
	if d.oneIn(3) {
		device.AllowMultipleAllocations = ptr.To(!d.oneIn(8))
	}
	for d.oneIn(3) {
		device.ConsumesCounters = append(device.ConsumesCounters, resourceapi.DeviceCounterConsumption{
			CounterSet: pick(d, "set-0", "set-0", "set-1"),
			Counters:   map[string]resourceapi.Counter{pick(d, "memory", "memory", "cores"): {Value: fuzzQuantity(d)}},
		})
	}
	if d.oneIn(5) {
		device.Taints = []resourceapi.DeviceTaint{{Key: "taint", Value: pick(d, "value", "other"), Effect: pick(d, resourceapi.DeviceTaintEffectNoSchedule, resourceapi.DeviceTaintEffectNoExecute, "None", "")}}
	}
	if d.oneIn(10) {
		device.BindingConditions = []string{"ready"}
		device.BindingFailureConditions = []string{"failed"}
	}
	if d.oneIn(10) {
		device.BindsToNode = ptr.To(true)
	}
	return device
}

// fuzzPolicy draws none, or one that the API server accepts: the default value is valid.
func fuzzPolicy(d *draws) *resourceapi.CapacityRequestPolicy {
	policy := &resourceapi.CapacityRequestPolicy{Default: ptr.To(resource.MustParse("1"))}
	switch d.below(6) {
	case 2:
		return policy
	case 3:
		policy.ValidValues = []resource.Quantity{resource.MustParse("1"), resource.MustParse("3")}
		return policy
	case 4:
		policy.ValidRange = &resourceapi.CapacityRequestPolicyRange{Min: ptr.To(resource.MustParse("1")), Max: ptr.To(resource.MustParse("3")), Step: ptr.To(pick(d, resource.MustParse("2"), resource.MustParse("1"), resource.MustParse("500m")))}
		return policy
	case 5:
		policy.ValidRange = &resourceapi.CapacityRequestPolicyRange{Min: ptr.To(resource.MustParse("500m"))}
		return policy
	}
	return nil
}

// fuzzPlace says from where the devices of a pool can be reached, and adds its counters.
func fuzzPlace(d *draws, pool []*resourceapi.ResourceSlice) []*resourceapi.ResourceSlice {
	if d.oneIn(2) {
		pool = fuzzCounters(d, pool)
	}
	for _, slice := range pool {
		where := func(name **string, all **bool) {
			switch d.below(16) {
			case 12:
				*all = ptr.To(true)
			case 13:
				*name = ptr.To("other")
			case 14:
				*name = ptr.To("")
			case 15:
			default:
				*name = &fuzzNode.Name
			}
		}
		if d.oneIn(8) {
			slice.Spec.PerDeviceNodeSelection = ptr.To(true)
			for i := range slice.Spec.Devices {
				where(&slice.Spec.Devices[i].NodeName, &slice.Spec.Devices[i].AllNodes)
			}
			continue
		}
		where(&slice.Spec.NodeName, &slice.Spec.AllNodes)
		if d.oneIn(10) {
			slice.Spec.NodeName, slice.Spec.AllNodes = nil, nil
			slice.Spec.NodeSelector = fuzzNodeSelector(d)
		}
	}
	return pool
}

// fuzzCounters adds the counters of a pool.
func fuzzCounters(d *draws, pool []*resourceapi.ResourceSlice) []*resourceapi.ResourceSlice {
	var sets []resourceapi.CounterSet
	for i := range 1 + d.below(2) {
		set := resourceapi.CounterSet{Name: fmt.Sprintf("set-%d", i), Counters: map[string]resourceapi.Counter{"memory": {Value: fuzzQuantity(d)}}}
		if d.oneIn(2) {
			set.Counters["cores"] = resourceapi.Counter{Value: fuzzQuantity(d)}
		}
		sets = append(sets, set)
	}
	if !countersInOwnSlices {
		for _, slice := range pool {
			slice.Spec.SharedCounters = sets
		}
		return pool
	}
	counters := pool[len(pool)-1].DeepCopy()
	counters.Name += "-counters"
	counters.Spec.Devices, counters.Spec.SharedCounters = nil, sets
	for _, slice := range append(pool, counters) {
		slice.Spec.Pool.ResourceSliceCount++
	}
	return append(pool, counters)
}

// fuzzCounter identifies a shared counter.
type fuzzCounter struct{ owner, set, name string }

// fuzzConsistent leaves out pools that are being changed, or in which a device is
// described twice: what there is in them depends on how one looks at them.
func fuzzConsistent(all []*resourceapi.ResourceSlice) []*resourceapi.ResourceSlice {
	type pool struct{ driver, name string }
	generations, bad := map[pool]int64{}, map[pool]bool{}
	devices := map[DeviceID]bool{}
	poolOf := func(slice *resourceapi.ResourceSlice) pool { return pool{slice.Spec.Driver, slice.Spec.Pool.Name} }
	for _, slice := range all {
		p := poolOf(slice)
		if generation, found := generations[p]; found && generation != slice.Spec.Pool.Generation {
			bad[p] = true
		}
		generations[p] = slice.Spec.Pool.Generation
		for _, device := range slice.Spec.Devices {
			id := MakeDeviceID(p.driver, p.name, device.Name)
			bad[p] = bad[p] || devices[id]
			devices[id] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(slice *resourceapi.ResourceSlice) bool { return bad[poolOf(slice)] })
}

// checkFuzzSums compares what all claims consume with what there is.
func checkFuzzSums(t *testing.T, all []*resourceapi.ResourceSlice, held []resourceapi.DeviceRequestAllocationResult) {
	t.Helper()
	consumed := map[DeviceID]map[resourceapi.QualifiedName]resource.Quantity{}
	dedicated := map[DeviceID]bool{}
	for _, result := range held {
		if ptr.Deref(result.AdminAccess, false) {
			if len(result.ConsumedCapacity) > 0 {
				t.Errorf("admin access consumes %v", result.ConsumedCapacity)
			}
			continue
		}
		id := MakeDeviceID(result.Driver, result.Pool, result.Device)
		dedicated[id] = dedicated[id] || result.ShareID == nil
		if consumed[id] == nil {
			consumed[id] = map[resourceapi.QualifiedName]resource.Quantity{}
		} else if dedicated[id] {
			t.Errorf("device %s belongs to one claim, and others have shares of it", id)
		}
		for name, quantity := range result.ConsumedCapacity {
			sum := consumed[id][name]
			sum.Add(quantity)
			consumed[id][name] = sum
		}
	}
	used, available := map[fuzzCounter]resource.Quantity{}, map[fuzzCounter]resource.Quantity{}
	for _, slice := range fuzzConsistent(all) {
		for _, set := range slice.Spec.SharedCounters {
			for name, c := range set.Counters {
				available[fuzzCounterOf(slice, set.Name, name)] = c.Value
			}
		}
		for _, device := range slice.Spec.Devices {
			sums, isHeld := consumed[MakeDeviceID(slice.Spec.Driver, slice.Spec.Pool.Name, device.Name)]
			if !isHeld {
				continue
			}
			for name, sum := range sums {
				if capacity := device.Capacity[name].Value; sum.Cmp(capacity) > 0 {
					t.Errorf("%s of %s of device %s is consumed, there is only %s", sum.String(), name, device.Name, capacity.String())
				}
			}
			for _, consumption := range device.ConsumesCounters {
				for name, c := range consumption.Counters {
					key := fuzzCounterOf(slice, consumption.CounterSet, name)
					sum := used[key]
					sum.Add(c.Value)
					used[key] = sum
				}
			}
		}
	}
	for key, sum := range used {
		if quantity, found := available[key]; found && sum.Cmp(quantity) > 0 {
			t.Errorf("%s of counter %v are used, there are only %s", sum.String(), key, quantity.String())
		}
	}
}
