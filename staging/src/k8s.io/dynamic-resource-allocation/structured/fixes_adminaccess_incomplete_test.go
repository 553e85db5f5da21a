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
	"fmt"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
)

// TestAllOfPoolOnSeveralNodes covers a claim for all devices of a pool that has a slice for each of its nodes.
func TestAllOfPoolOnSeveralNodes(t *testing.T) {
	slice := func(node string, generation, count int) *resourceapi.ResourceSlice {
		var slice resourceapi.ResourceSlice
		data := fmt.Sprintf(`{"metadata": {"name": %q}, "spec": {"driver": "driver", "nodeName": %q,
			"pool": {"name": "pool", "generation": %d, "resourceSliceCount": %d}, "devices": [{"name": "on-%s", "basic": {}}]}}`, node, node, generation, count, node)
		if err := json.Unmarshal([]byte(data), &slice); err != nil {
			t.Fatal(err)
		}
		return &slice
	}
	here := fuzzNode.Name
	claim := &resourceapi.ResourceClaim{}
	claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{newAdminRequest("r", resourceapi.DeviceAllocationModeAll, 0, nil)}
	for name, test := range map[string]struct {
		slices []*resourceapi.ResourceSlice
		ok     bool
	}{
		"complete":         {[]*resourceapi.ResourceSlice{slice(here, 1, 3), slice("x", 1, 3), slice("y", 1, 3)}, true},
		"slice-missing":    {[]*resourceapi.ResourceSlice{slice(here, 1, 3), slice("x", 1, 3)}, false},
		"old-slice":        {[]*resourceapi.ResourceSlice{slice(here, 2, 2), slice("x", 2, 2), slice("y", 1, 3)}, true},
		"being-replaced":   {[]*resourceapi.ResourceSlice{slice(here, 1, 2), slice("x", 2, 2)}, false},
		"one-of-old-slice": {[]*resourceapi.ResourceSlice{slice(here, 2, 2), slice("x", 1, 2)}, false},
	} {
		for implementation, allocate := range fuzzAllocators() {
			results, err := allocate(context.Background(), nil, test.slices, []*resourceapi.ResourceClaim{claim})
			got := err == nil && len(results) == 1 && len(results[0].Devices.Results) == 1 && results[0].Devices.Results[0].Device == "on-"+here
			if got != test.ok {
				t.Errorf("%s, %s: want the device of this node: %t, got %v, %v", name, implementation, test.ok, results, err)
			}
		}
	}
}
