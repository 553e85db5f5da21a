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

package dynamicresources

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/client-go/tools/cache"
)

func sliceOfPool(name, pool string) *resourceapi.ResourceSlice {
	slice := workerNodeSlice.DeepCopy()
	slice.Name, slice.Spec.Pool.Name = name, pool
	return slice
}

func TestSlicesByPool(t *testing.T) {
	var slices slicesByPool
	expect := func(pool string, names ...string) {
		t.Helper()
		var actual []string
		for _, slice := range slices.get(poolID{driver, pool}) {
			actual = append(actual, slice.Name)
		}
		assert.ElementsMatch(t, names, actual, "slices of pool %s", pool)
	}
	expect("a")
	slices.OnAdd(sliceOfPool("one", "a"), true)
	slices.OnAdd(sliceOfPool("two", "a"), false)
	slices.OnAdd(sliceOfPool("three", "b"), false)
	expect("a", "one", "two")
	slices.OnUpdate(sliceOfPool("two", "a"), sliceOfPool("two", "b"))
	expect("a", "one")
	expect("b", "two", "three")
	slices.OnDelete(cache.DeletedFinalStateUnknown{Key: "one", Obj: sliceOfPool("one", "a")})
	slices.OnDelete(sliceOfPool("three", "b"))
	slices.OnDelete("something else")
	expect("a")
	expect("b", "two")
	assert.Len(t, slices.pools, 1, "pools without slices are forgotten")
}

// BenchmarkUnfitDevice compares looking at the slices of the allocated device's pool with looking at all.
func BenchmarkUnfitDevice(b *testing.B) {
	const count = 10000
	var byPool slicesByPool
	var all []*resourceapi.ResourceSlice
	for i := range count {
		slice := sliceOfPool(fmt.Sprint(i), fmt.Sprintf("pool-%d", i))
		byPool.OnAdd(slice, true)
		all = append(all, slice)
	}
	claim := newAllocatedSharedClaim()
	claim.Status.Allocation.Devices.Results[0].Pool = fmt.Sprintf("pool-%d", count/2)
	for name, slicesOf := range map[string]func(poolID) []*resourceapi.ResourceSlice{
		"all":  func(poolID) []*resourceapi.ResourceSlice { return append([]*resourceapi.ResourceSlice{}, all...) },
		"pool": byPool.get,
	} {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				if reason, found := new(DynamicResources).unfitDeviceIn(claim, slicesOf); reason != "" || !found {
					b.Fatal(reason)
				}
			}
		})
	}
}
