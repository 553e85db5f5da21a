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
	"encoding/json"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
)

// TestTwoTermsOfDevice covers a device whose node selector has two terms. The API allows exactly one, but the
// API server does not check that for devices. Nobody gets that device, and everybody gets the others.
func TestTwoTermsOfDevice(t *testing.T) {
	decode := func(data string) *resourceapi.ResourceSlice {
		// In v1beta1, which stands in for v1 in 1.33, devices are "basic".
		var slice resourceapi.ResourceSlice
		if err := json.Unmarshal([]byte(data), &slice); err != nil {
			t.Fatal(err)
		}
		return &slice
	}
	const selector = `"nodeSelector": {"nodeSelectorTerms": [
		{"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]},
		{"matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]}
	]}`
	odd := `{"metadata": {"name": "odd"}, "spec": {"driver": "driver", "pool": {"name": "POOL", "resourceSliceCount": 1},
		"perDeviceNodeSelection": true, "devices": [{"name": "odd", "basic": {` + selector + `}, ` + selector + `}]}}`
	sound := decode(`{"metadata": {"name": "sound"}, "spec": {"driver": "driver", "pool": {"name": "m", "resourceSliceCount": 1},
		"allNodes": true, "devices": [{"name": "a", "basic": {}}, {"name": "b", "basic": {}}, {"name": "c", "basic": {}}]}}`)
	claim := &resourceapi.ResourceClaim{}
	claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{newAdminRequest("r", resourceapi.DeviceAllocationModeExactCount, 3, nil)}
	for implementation, allocate := range fuzzAllocators() {
		// It may come before the others, or after them.
		for _, pool := range []string{"a", "z"} {
			slices := []*resourceapi.ResourceSlice{decode(strings.ReplaceAll(odd, "POOL", pool)), sound}
			results, err := allocate(context.Background(), nil, slices, []*resourceapi.ResourceClaim{claim})
			if err != nil {
				t.Errorf("%s: %v", implementation, err)
				continue
			}
			if len(results) != 1 || len(results[0].Devices.Results) != 3 {
				t.Errorf("%s: want three devices, got %v", implementation, results)
				continue
			}
			for _, result := range results[0].Devices.Results {
				if result.Device == "odd" {
					t.Errorf("%s: got the device with two terms", implementation)
				}
			}
		}
	}
}
