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
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/ptr"
)

// FuzzAllocate is that of the only allocator.
func FuzzAllocate(f *testing.F) {
	addFuzzSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		fuzzAllocate(t, func(d *draws) fuzzAllocator { return newFuzzAllocator(fuzzFeatures(d)) }, false, data)
	})
}

var fuzzCELCache = cel.NewCache(100)

func newFuzzAllocator(features testFeatures) fuzzAllocator {
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
		allocator, err := NewAllocator(ctx, features, claims, allocated, fuzzClasses{}, slices, fuzzCELCache)
		if err != nil {
			return nil, err
		}
		return allocator.Allocate(ctx, fuzzNode)
	}
}

// fuzzTakesTooLong returns true if the allocator might try more combinations than there is
// time for. In these releases, it does not look at the context.
func fuzzTakesTooLong(slices []*resourceapi.ResourceSlice, claims []*resourceapi.ResourceClaim) bool {
	devices := 1
	for _, slice := range slices {
		devices += len(slice.Spec.Devices)
	}
	combinations := 1
	for _, claim := range claims {
		for _, request := range claim.Spec.Devices.Requests {
			alternatives := 0
			for _, count := range requestedCounts(request) {
				alternatives += fuzzPower(devices, count)
			}
			if combinations *= alternatives; combinations > maxFuzzCombinations {
				return true
			}
		}
	}
	return false
}

const maxFuzzCombinations = 100000

// fuzzPower returns in how many ways a number of devices can be chosen. More than that would
// take too long is as good as all that.
func fuzzPower(devices int, count int64) int {
	power := 1
	if count > resourceapi.AllocationResultsMaxSize {
		return power // That is an error at once.
	}
	for range count {
		if power *= devices; power > maxFuzzCombinations {
			break
		}
	}
	return power
}

// fuzzAllocators are all of them.
func fuzzAllocators() map[string]fuzzAllocator {
	return map[string]fuzzAllocator{"the only one": newFuzzAllocator(allFuzzFeatures)}
}

type fuzzAllocator func(context.Context, []resourceapi.DeviceRequestAllocationResult, []*resourceapi.ResourceSlice, []*resourceapi.ResourceClaim) ([]resourceapi.AllocationResult, error)

func isFuzzShare(resourceapi.DeviceRequestAllocationResult) bool { return false }
