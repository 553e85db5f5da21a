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
)

// TestExclusiveDeviceWithShares covers a device that can no longer be shared while shares of it are in use. In each
// mode, nobody else gets it but with admin access.
func TestExclusiveDeviceWithShares(t *testing.T) {
	for name, tc := range map[string]struct {
		claims []*resourceapi.ResourceClaim
		expect string
	}{
		"another one":      {adminClaims("1"), "b"},
		"more than free":   {adminClaims("2"), ""},
		"all":              {adminClaims("0"), ""},
		"two claims":       {adminClaims("1", "1"), ""},
		"admin access":     {adminClaims("2!"), "a!,b!"},
		"all, as an admin": {adminClaims("0!"), "a!,b!"},
	} {
		t.Run(name, func(t *testing.T) {
			slices := []*resourceapi.ResourceSlice{adminSlice("a", "b")}
			for implementation, results := range allocateWithFeatures(t, Features{AdminAccess: true, ConsumableCapacity: true}, slices, nil, map[string]string{"a": "0"}, tc.claims) {
				if got := describeResults(results); got != tc.expect {
					t.Errorf("%s: want %q, got %q", implementation, tc.expect, got)
				}
			}
		})
	}
}
