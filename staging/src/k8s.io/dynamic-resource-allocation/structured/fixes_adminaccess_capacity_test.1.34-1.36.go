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
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// TestCapacityBeyond64Bits covers requests whose capacity cannot be calculated, or is negative. All who may create
// claims can ask for that.
func TestCapacityBeyond64Bits(t *testing.T) {
	for name, tc := range map[string]struct {
		step, request string
		expect        string
	}{
		"next step fits":            {"100", "150", "a"},
		"next step exceeds 64 bits": {"100", "9223372036854775807", ""},
		"request exceeds 64 bits":   {"1", "20E", ""},
		"step exceeds 64 bits":      {"100E", "150", ""},
		"step is zero":              {"0", "150", ""},
		"negative":                  {"", "-5", ""},
		"negative with steps":       {"100", "-5", "a"}, // It gets the minimum.
		"positive":                  {"", "5", "a"},
	} {
		t.Run(name, func(t *testing.T) {
			slice := adminSlice("a")
			capacity := resourceapi.DeviceCapacity{Value: resource.MustParse("1000")}
			if tc.step != "" {
				capacity.RequestPolicy = &resourceapi.CapacityRequestPolicy{
					Default:    ptr.To(resource.MustParse("100")),
					ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: ptr.To(resource.MustParse("100")), Step: ptr.To(resource.MustParse(tc.step))},
				}
			}
			slice.Spec.Devices[0].AllowMultipleAllocations = ptr.To(true)
			slice.Spec.Devices[0].Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": capacity}
			claims := adminClaims("1")
			claims[0].Spec.Devices.Requests[0].Exactly.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse(tc.request)}}
			for implementation, results := range allocateWithFeatures(t, Features{ConsumableCapacity: true}, []*resourceapi.ResourceSlice{slice}, nil, nil, claims) {
				if got := describeResults(results); got != tc.expect {
					t.Errorf("%s: want %q, got %q", implementation, tc.expect, got)
				}
				for _, result := range results {
					for name, consumed := range result.Devices.Results[0].ConsumedCapacity {
						if consumed.Sign() < 0 {
							t.Errorf("%s: consumes %s of %s", implementation, consumed.String(), name)
						}
					}
				}
			}
		})
	}
}
