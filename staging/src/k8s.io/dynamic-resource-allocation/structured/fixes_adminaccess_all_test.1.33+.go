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
	"math"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
)

// TestAllAsAlternative covers alternatives which ask for all devices.
func TestAllAsAlternative(t *testing.T) {
	for name, tc := range map[string]struct {
		allocated []string
		counts    []int64 // 0 for all
		expect    string
	}{
		"what it got is given back when one is in use": {[]string{"b"}, []int64{0, 1}, "a"},
		"it is given back for another one, too":        {[]string{"c"}, []int64{0, 2}, "a,b"},
		"it gets all after one that cannot be had":     {nil, []int64{4, 0}, "a,b,c"},
		"it is the first one":                          {nil, []int64{0, 1}, "a,b,c"},
		"nothing can be had":                           {[]string{"a", "b", "c"}, []int64{0, 1}, ""},
		"the first one is for too many":                {nil, []int64{math.MaxInt64, 1}, "a"},
		"the first one is for more than fit":           {nil, []int64{resourceapi.AllocationResultsMaxSize + 1, 2}, "a,b"},
	} {
		t.Run(name, func(t *testing.T) {
			request := resourceapi.DeviceRequest{Name: "r"}
			for i, count := range tc.counts {
				sub := resourceapi.DeviceSubRequest{Name: fmt.Sprintf("s-%d", i), DeviceClassName: "class", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count}
				if count == 0 {
					sub.AllocationMode = resourceapi.DeviceAllocationModeAll
				}
				request.FirstAvailable = append(request.FirstAvailable, sub)
			}
			claim := &resourceapi.ResourceClaim{}
			claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{request}
			slices := []*resourceapi.ResourceSlice{adminSlice("a", "b", "c")}
			for implementation, results := range allocateWithFeatures(t, Features{PrioritizedList: true}, slices, tc.allocated, nil, []*resourceapi.ResourceClaim{claim}) {
				if got := describeResults(results); got != tc.expect {
					t.Errorf("%s: want %q, got %q", implementation, tc.expect, got)
				}
			}
		})
	}
}
