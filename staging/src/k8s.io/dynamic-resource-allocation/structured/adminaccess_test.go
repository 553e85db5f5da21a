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
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const (
	adminDriver = "driver.example.com"
	adminPool   = "pool"
)

var adminNode = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}

// oneClass is a lister that knows one class.
type oneClass struct{ class *resourceapi.DeviceClass }

var adminClasses = oneClass{&resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "class"}}}

func (o oneClass) List() ([]*resourceapi.DeviceClass, error) {
	return []*resourceapi.DeviceClass{o.class}, nil
}

func (o oneClass) Get(name string) (*resourceapi.DeviceClass, error) {
	if name != o.class.Name {
		return nil, fmt.Errorf("class %q not found", name)
	}
	return o.class, nil
}

// adminClaims returns one claim for each text. A word in it is a request: its number of
// devices, 0 for all, and "!" behind it for admin access.
func adminClaims(texts ...string) []*resourceapi.ResourceClaim {
	var claims []*resourceapi.ResourceClaim
	for i, words := range texts {
		claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("claim-%d", i)}}
		for j, word := range strings.Fields(words) {
			mode, count := resourceapi.DeviceAllocationModeExactCount, int64(word[0]-'0')
			if count == 0 {
				mode = resourceapi.DeviceAllocationModeAll
			}
			var adminAccess *bool
			if strings.HasSuffix(word, "!") {
				adminAccess = ptr.To(true)
			}
			claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, newAdminRequest(fmt.Sprintf("r-%d", j), mode, count, adminAccess))
		}
		claims = append(claims, claim)
	}
	return claims
}

// adminSlice is all that there is on the node.
func adminSlice(names ...string) *resourceapi.ResourceSlice {
	slice := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "slice"},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: adminDriver,
			Pool:   resourceapi.ResourcePool{Name: adminPool, ResourceSliceCount: 1},
		},
	}
	setAdminNode(&slice.Spec)
	for _, name := range names {
		slice.Spec.Devices = append(slice.Spec.Devices, newAdminDevice(name))
	}
	return slice
}

// describeResults returns one word for each claim, with the devices separated by commas and
// "!" behind those with admin access. It is empty if there are no results.
func describeResults(results []resourceapi.AllocationResult) string {
	var words []string
	for _, result := range results {
		var devices []string
		for _, device := range result.Devices.Results {
			name := device.Device
			if ptr.Deref(device.AdminAccess, false) {
				name += "!"
			}
			devices = append(devices, name)
		}
		slices.Sort(devices) // The order does not matter.
		words = append(words, strings.Join(devices, ","))
	}
	return strings.Join(words, " ")
}

// TestAdminAccess covers that admin access takes nothing from others, and gets what others have.
func TestAdminAccess(t *testing.T) {
	for name, tc := range map[string]struct {
		devices, allocated string
		claims             []*resourceapi.ResourceClaim
		// expect is a result as in describeResults.
		expect string
	}{
		"device in use":                                        {devices: "a", allocated: "a", claims: adminClaims("1!"), expect: "a!"},
		"device in use, no admin access":                       {devices: "a", allocated: "a", claims: adminClaims("1")},
		"all devices, some in use":                             {devices: "a b c", allocated: "b", claims: adminClaims("0!"), expect: "a!,b!,c!"},
		"several devices are different ones":                   {devices: "a b", claims: adminClaims("2!"), expect: "a!,b!"},
		"more than there are":                                  {devices: "a", claims: adminClaims("2!")},
		"admin access after another claim of the pod":          {devices: "a", claims: adminClaims("1", "1!"), expect: "a a!"},
		"admin access before another claim of the pod":         {devices: "a", claims: adminClaims("1!", "1"), expect: "a! a"},
		"all with admin access, all devices for another claim": {devices: "a b", claims: adminClaims("0!", "0"), expect: "a!,b! a,b"},
		"two claims without admin access":                      {devices: "a", claims: adminClaims("1!", "1", "1")},
		"one device once in a claim":                           {devices: "a", claims: adminClaims("1! 1")},
		"one device once in a claim, other order":              {devices: "a", claims: adminClaims("1 1!")},
		"one device once in a claim, all of them":              {devices: "a", claims: adminClaims("1! 0")},
		// The first choice leaves nothing for the second request.
		"backtracking forgets admin access": {devices: "a b", allocated: "b", claims: adminClaims("1! 1"), expect: "a,b!"},
	} {
		t.Run(name, func(t *testing.T) {
			resourceSlices := []*resourceapi.ResourceSlice{adminSlice(strings.Fields(tc.devices)...)}
			for implementation, results := range allocateForAdmin(t, resourceSlices, strings.Fields(tc.allocated), tc.claims) {
				if got := describeResults(results); got != tc.expect {
					t.Errorf("%s: want %q, got %q", implementation, tc.expect, got)
				}
			}
		})
	}
}
