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

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestSeveralSlices covers that each device is compared with its own capacity, not with that
// of a device of another slice, nor with that of none.
func TestSeveralSlices(t *testing.T) {
	small, large := adminSlice("a"), adminSlice("b", "c")
	for i, slice := range []*resourceapi.ResourceSlice{small, large} {
		slice.Name = []string{"slice-0", "slice-1"}[i]
		slice.Spec.Pool.ResourceSliceCount = 2
		for j := range slice.Spec.Devices {
			slice.Spec.Devices[j].Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {Value: resource.MustParse([]string{"1", "2", "3"}[i+j])}}
		}
	}
	sliceList := []*resourceapi.ResourceSlice{small, large}
	demanding := adminClaims("1")
	demanding[0].Spec.Devices.Requests[0].Exactly.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse("3")}}
	for name, tc := range map[string]struct {
		claims []*resourceapi.ResourceClaim
		expect string
	}{
		"all":                         {adminClaims("0"), "a,b,c"},
		"several":                     {adminClaims("3"), "a,b,c"},
		"all with admin access":       {adminClaims("0!"), "a!,b!,c!"},
		"the only one that fits":      {demanding, "c"},
		"two claims, one after other": {adminClaims("2", "1"), "a,b c"},
	} {
		t.Run(name, func(t *testing.T) {
			for implementation, results := range allocateWithFeatures(t, Features{AdminAccess: true, ConsumableCapacity: true}, sliceList, nil, nil, tc.claims) {
				if got := describeResults(results); got != tc.expect {
					t.Errorf("%s: want %q, got %q", implementation, tc.expect, got)
				}
			}
		})
	}
}

// consumerSlices are those of a device which consumes some memory of a pool.
func consumerSlices(driver, pool, device, consumes, available string) []*resourceapi.ResourceSlice {
	slice := adminSlice(device)
	slice.Name, slice.Spec.Driver, slice.Spec.Pool.Name = driver+"-"+pool, driver, pool
	slice.Spec.Devices[0].ConsumesCounters = []resourceapi.DeviceCounterConsumption{{CounterSet: "set", Counters: map[string]resourceapi.Counter{"memory": {Value: resource.MustParse(consumes)}}}}
	return withSharedCounters(slice, []resourceapi.CounterSet{{Name: "set", Counters: map[string]resourceapi.Counter{"memory": {Value: resource.MustParse(available)}}}})
}

// TestCountersOfDrivers covers that the counters of a pool are not those of another driver's pool of
// that name.
func TestCountersOfDrivers(t *testing.T) {
	const pool = "node"
	for name, tc := range map[string]struct {
		available, otherAvailable string
		expect                    string
	}{
		"enough for both":       {"4", "4", "a,b"},
		"too little of the one": {"3", "8", ""},
		"too little of another": {"8", "3", ""},
	} {
		t.Run(name, func(t *testing.T) {
			slices := append(consumerSlices("a.example.com", pool, "a", "4", tc.available), consumerSlices("b.example.com", pool, "b", "4", tc.otherAvailable)...)
			for implementation, results := range allocateWithFeatures(t, Features{PartitionableDevices: true}, slices, nil, nil, adminClaims("2")) {
				if got := describeResults(results); got != tc.expect {
					t.Errorf("%s: want %q, got %q", implementation, tc.expect, got)
				}
			}
		})
	}
}

// TestHugeCounters covers that counters beyond 64 bits stay as they are. A copy of such a
// quantity has the same memory as the original, which belongs to the cache of an informer.
func TestHugeCounters(t *testing.T) {
	slices := consumerSlices(adminDriver, adminPool, "a", "8Ei", "1")
	before := copies(slices)
	for range 2 {
		for implementation, results := range allocateWithFeatures(t, Features{PartitionableDevices: true}, slices, nil, nil, adminClaims("1")) {
			if got := describeResults(results); got != "" {
				t.Errorf("%s: got %q, which consumes more than there is", implementation, got)
			}
			if !equality.Semantic.DeepEqual(before, slices) {
				t.Fatalf("%s changed slices", implementation)
			}
		}
	}
}
