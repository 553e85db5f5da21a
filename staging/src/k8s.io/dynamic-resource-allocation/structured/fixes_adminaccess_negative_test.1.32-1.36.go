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
	"math"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
)

// TestNegativeCount covers what the API does not accept. 1.37 relies on that.
func TestNegativeCount(t *testing.T) {
	claim := &resourceapi.ResourceClaim{}
	claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{newAdminRequest("r", resourceapi.DeviceAllocationModeExactCount, math.MinInt64, nil)}
	for implementation, allocate := range fuzzAllocators() {
		results, err := allocate(context.Background(), nil, []*resourceapi.ResourceSlice{adminSlice("a", "b")}, []*resourceapi.ResourceClaim{claim})
		if err == nil {
			t.Errorf("%s: want an error, got %v", implementation, results)
		}
	}
}
