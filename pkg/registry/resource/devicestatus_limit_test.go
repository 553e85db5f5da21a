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

package resource

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/kubernetes/pkg/apis/resource"
)

// TestLimitStatus covers what is refused before anybody looks at each entry.
func TestLimitStatus(t *testing.T) {
	result := func(device string) resource.DeviceRequestAllocationResult {
		return resource.DeviceRequestAllocationResult{Request: "req", Driver: "driver", Pool: "pool", Device: device}
	}
	entry := func(device string) resource.AllocatedDeviceStatus {
		return resource.AllocatedDeviceStatus{Driver: "driver", Pool: "pool", Device: device}
	}
	results := func(n int) []resource.DeviceRequestAllocationResult {
		var all []resource.DeviceRequestAllocationResult
		for i := range n {
			all = append(all, result(fmt.Sprintf("device-%d", i)))
		}
		return all
	}
	entries := func(n int) []resource.AllocatedDeviceStatus {
		var all []resource.AllocatedDeviceStatus
		for i := range n {
			all = append(all, entry(fmt.Sprintf("device-%d", i)))
		}
		return all
	}
	for name, tc := range map[string]struct {
		results []resource.DeviceRequestAllocationResult
		entries []resource.AllocatedDeviceStatus
		// deallocated removes the allocation.
		deallocated bool
		expectField string
		// expectAlways is true if it is refused even if there may be no entries.
		expectAlways bool
	}{
		"empty":             {},
		"all":               {results: results(32), entries: entries(32)},
		"one":               {results: results(32), entries: entries(1)},
		"not-allocated":     {results: results(2), entries: []resource.AllocatedDeviceStatus{entry("other")}},
		"one-more":          {results: results(2), entries: entries(3), expectField: "status.devices[2]"},
		"twice":             {results: results(2), entries: append(entries(2), entry("device-0")), expectField: "status.devices[2]"},
		"many":              {results: results(1), entries: entries(30000), expectField: "status.devices[1]"},
		"deallocated":       {entries: entries(32), deallocated: true},
		"many-deallocated":  {entries: entries(33), deallocated: true, expectField: "status.devices"},
		"too-many-results":  {results: results(33), expectField: "status.allocation.devices.results", expectAlways: true},
		"many-of-all-kinds": {results: results(3000), entries: entries(3000), expectField: "status.allocation.devices.results", expectAlways: true},
	} {
		for _, enabled := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/%v", name, enabled), func(t *testing.T) {
				enableDeviceStatus(t, enabled)
				oldClaim := &resource.ResourceClaim{}
				oldClaim.Name = "claim"
				claim := oldClaim.DeepCopy()
				claim.Status.Devices = tc.entries
				if !tc.deallocated {
					claim.Status.Allocation = &resource.AllocationResult{Devices: resource.DeviceAllocationResult{Results: tc.results}}
				}
				err := LimitStatus(claim, oldClaim)
				if tc.expectField == "" || !tc.expectAlways && !enabled {
					require.NoError(t, err)
					return
				}
				require.True(t, apierrors.IsInvalid(err), "got %v", err)
				require.Contains(t, err.Error(), tc.expectField+":")
				assert.Less(t, len(err.Error()), 500)

				oldClaim.Status.Devices = entries(1)
				require.Error(t, LimitStatus(claim, oldClaim), "entries in use are not dropped")
			})
		}
	}
}
