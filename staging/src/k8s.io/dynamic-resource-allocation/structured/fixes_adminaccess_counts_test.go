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
	"math"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
)

// TestHugeCounts covers that the sum of what the requests of a claim ask for may exceed
// all numbers. The API has no limit for one request, but does not accept negative ones.
func TestHugeCounts(t *testing.T) {
	for name, counts := range map[string][]int64{
		"sum is negative":  {math.MaxInt64, math.MaxInt64},
		"sum is small":     {math.MaxInt64, math.MaxInt64, 3},
		"both are too big": {1 << 40, 1 << 40},
		"sum is zero":      {1 << 62, 1 << 62, 1 << 62, 1 << 62},
		"halves":           {math.MaxInt64/2 + 1, math.MaxInt64/2 + 1},
	} {
		t.Run(name, func(t *testing.T) {
			claim := &resourceapi.ResourceClaim{}
			for _, count := range counts {
				claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, newAdminRequest("r", resourceapi.DeviceAllocationModeExactCount, count, nil))
			}
			for implementation, allocate := range fuzzAllocators() {
				results, err := allocate(context.Background(), nil, []*resourceapi.ResourceSlice{adminSlice("a", "b")}, []*resourceapi.ResourceClaim{claim})
				if err == nil {
					t.Errorf("%s: want an error, got %v", implementation, results)
				}
			}
		})
	}
}

// TestCountLimit covers that a claim can have as many devices as the API allows.
func TestCountLimit(t *testing.T) {
	var names []string
	for i := range resourceapi.AllocationResultsMaxSize {
		names = append(names, fmt.Sprintf("device-%d", i))
	}
	claim := &resourceapi.ResourceClaim{}
	claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{newAdminRequest("r", resourceapi.DeviceAllocationModeExactCount, resourceapi.AllocationResultsMaxSize, nil)}
	for implementation, results := range allocateForAdmin(t, []*resourceapi.ResourceSlice{adminSlice(names...)}, nil, []*resourceapi.ResourceClaim{claim}) {
		if len(results) != 1 || len(results[0].Devices.Results) != resourceapi.AllocationResultsMaxSize {
			t.Errorf("%s: want %d devices, got %v", implementation, resourceapi.AllocationResultsMaxSize, results)
		}
	}
}
