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
	"fmt"
	"testing"

	resourceapi "k8s.io/api/resource/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

func fuzzQuantity(d *draws) resource.Quantity {
	return pick(d, resource.MustParse("1"), resource.MustParse("2"), resource.MustParse("3"), resource.MustParse("0"), resource.MustParse("500m"), resource.MustParse("8Ei"))
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
			sub := resourceapi.DeviceSubRequest{Name: fmt.Sprintf("s-%d", i), Tolerations: fuzzTolerations(d)}
			sub.DeviceClassName, sub.Selectors, sub.AllocationMode, sub.Count = fuzzRequirements(d)
			request.FirstAvailable = append(request.FirstAvailable, sub)
		}
		return request
	}
	request.Tolerations = fuzzTolerations(d)
	request.DeviceClassName, request.Selectors, request.AllocationMode, request.Count = fuzzRequirements(d)
	if admin {
		request.AdminAccess = &admin
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
	for d.oneIn(3) {
		device.Basic.ConsumesCounters = append(device.Basic.ConsumesCounters, resourceapi.DeviceCounterConsumption{
			CounterSet: pick(d, "set-0", "set-0", "set-1"),
			Counters:   map[string]resourceapi.Counter{pick(d, "memory", "memory", "cores"): {Value: fuzzQuantity(d)}},
		})
	}
	if d.oneIn(5) {
		device.Basic.Taints = []resourceapi.DeviceTaint{{Key: "taint", Value: pick(d, "value", "other"), Effect: pick(d, resourceapi.DeviceTaintEffectNoSchedule, resourceapi.DeviceTaintEffectNoExecute, "None", "")}}
	}
	return device
}

// fuzzPlace says from where the devices of a pool can be reached, and adds its counters.
func fuzzPlace(d *draws, pool []*resourceapi.ResourceSlice) []*resourceapi.ResourceSlice {
	if d.oneIn(2) {
		fuzzCounters(d, pool)
	}
	for _, slice := range pool {
		perDevice := d.oneIn(8)
		if perDevice {
			slice.Spec.PerDeviceNodeSelection = ptr.To(true)
			for i := range slice.Spec.Devices {
				fuzzDevicePlace(d, slice.Spec.Devices[i].Basic)
			}
			continue
		}
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

// fuzzDevicePlace says from where a device can be reached.
func fuzzDevicePlace(d *draws, device *resourceapi.BasicDevice) {
	if device == nil {
		return
	}
	switch d.below(16) {
	case 12:
		device.AllNodes = ptr.To(true)
	case 13:
		device.NodeName = ptr.To("other")
	case 14:
		device.NodeSelector = fuzzNodeSelector(d)
	case 15:
	default:
		device.NodeName = &fuzzNode.Name
	}
}

// fuzzCounters adds counters to the slices of a pool. Each slice has its own.
func fuzzCounters(d *draws, pool []*resourceapi.ResourceSlice) {
	for _, slice := range pool {
		for i := range 1 + d.below(2) {
			set := resourceapi.CounterSet{Name: fmt.Sprintf("set-%d", i), Counters: map[string]resourceapi.Counter{"memory": {Value: fuzzQuantity(d)}}}
			if d.oneIn(2) {
				set.Counters["cores"] = resourceapi.Counter{Value: fuzzQuantity(d)}
			}
			slice.Spec.SharedCounters = append(slice.Spec.SharedCounters, set)
		}
	}
}

// checkFuzzSums compares what all claims consume of the counters of a slice with what there is.
func checkFuzzSums(t *testing.T, all []*resourceapi.ResourceSlice, held []resourceapi.DeviceRequestAllocationResult) {
	t.Helper()
	consumers := map[DeviceID]bool{}
	for _, result := range held {
		if !ptr.Deref(result.AdminAccess, false) {
			consumers[MakeDeviceID(result.Driver, result.Pool, result.Device)] = true
		}
	}
	type counter struct{ set, name string }
	for _, slice := range all {
		used := map[counter]resource.Quantity{}
		for _, device := range slice.Spec.Devices {
			if device.Basic == nil || !consumers[MakeDeviceID(slice.Spec.Driver, slice.Spec.Pool.Name, device.Name)] {
				continue
			}
			for _, consumption := range device.Basic.ConsumesCounters {
				for name, c := range consumption.Counters {
					sum := used[counter{consumption.CounterSet, name}]
					sum.Add(c.Value)
					used[counter{consumption.CounterSet, name}] = sum
				}
			}
		}
		for _, set := range slice.Spec.SharedCounters {
			for name, c := range set.Counters {
				if sum := used[counter{set.Name, name}]; sum.Cmp(c.Value) > 0 {
					t.Errorf("%s of counter %s of %s in slice %s are used, there are only %s", sum.String(), name, set.Name, slice.Name, c.Value.String())
				}
			}
		}
	}
}
