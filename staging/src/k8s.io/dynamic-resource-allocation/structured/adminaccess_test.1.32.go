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

// 1.32 has one allocator, and neither counters nor capacity that devices share.

package structured

import (
	"context"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/ptr"
)

// oneClass is a lister that knows one class.
type oneClass struct{ class *resourceapi.DeviceClass }

func (o oneClass) List() ([]*resourceapi.DeviceClass, error) {
	return []*resourceapi.DeviceClass{o.class}, nil
}

func (o oneClass) Get(name string) (*resourceapi.DeviceClass, error) {
	if name != o.class.Name {
		return nil, fmt.Errorf("class %q not found", name)
	}
	return o.class, nil
}

// TestAdminAccess covers that admin access takes nothing from others, and gets what others have.
func TestAdminAccess(t *testing.T) {
	const driver, pool = "driver.example.com", "pool"
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	classes := oneClass{&resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "class"}}}
	// A request is its number of devices, 0 for all, and "!" behind it for admin access.
	claims := func(requests ...string) []*resourceapi.ResourceClaim {
		var claims []*resourceapi.ResourceClaim
		for i, words := range requests {
			claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("claim-%d", i)}}
			for j, word := range strings.Fields(words) {
				r := resourceapi.DeviceRequest{Name: fmt.Sprintf("r-%d", j), DeviceClassName: "class", AllocationMode: resourceapi.DeviceAllocationModeExactCount}
				if strings.HasSuffix(word, "!") {
					r.AdminAccess = ptr.To(true)
				}
				if r.Count = int64(word[0] - '0'); r.Count == 0 {
					r.AllocationMode = resourceapi.DeviceAllocationModeAll
				}
				claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, r)
			}
			claims = append(claims, claim)
		}
		return claims
	}

	for name, tc := range map[string]struct {
		off       bool
		devices   string
		allocated string
		claims    []*resourceapi.ResourceClaim
		// expect has one word for each claim, with the devices separated by commas and "!" behind
		// those with admin access. Empty if there is no solution.
		expect string
		err    string
	}{
		"device in use":                                        {devices: "a", allocated: "a", claims: claims("1!"), expect: "a!"},
		"feature is off":                                       {off: true, devices: "a", claims: claims("1!"), err: "claim claim-0, request r-0: admin access is requested, but the feature is disabled"},
		"device in use, no admin access":                       {devices: "a", allocated: "a", claims: claims("1")},
		"all devices, some in use":                             {devices: "a b c", allocated: "b", claims: claims("0!"), expect: "a!,b!,c!"},
		"several devices are different ones":                   {devices: "a b", claims: claims("2!"), expect: "a!,b!"},
		"more than there are":                                  {devices: "a", claims: claims("2!")},
		"admin access after another claim of the pod":          {devices: "a", claims: claims("1", "1!"), expect: "a a!"},
		"admin access before another claim of the pod":         {devices: "a", claims: claims("1!", "1"), expect: "a! a"},
		"all with admin access, all devices for another claim": {devices: "a b", claims: claims("0!", "0"), expect: "a!,b! a,b"},
		"one device once in a claim":                           {devices: "a", claims: claims("1! 1")},
		"one device once in a claim, other order":              {devices: "a", claims: claims("1 1!")},
		"backtracking forgets admin access":                    {devices: "a b", allocated: "b", claims: claims("1! 1"), expect: "b!,a"},
	} {
		t.Run(name, func(t *testing.T) {
			slice := &resourceapi.ResourceSlice{
				ObjectMeta: metav1.ObjectMeta{Name: "slice"},
				Spec: resourceapi.ResourceSliceSpec{
					Driver: driver, NodeName: node.Name,
					Pool: resourceapi.ResourcePool{Name: pool, ResourceSliceCount: 1},
				},
			}
			for _, name := range strings.Fields(tc.devices) {
				slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{Name: name, Basic: &resourceapi.BasicDevice{}})
			}
			allocated := sets.New[DeviceID]()
			for _, name := range strings.Fields(tc.allocated) {
				allocated.Insert(MakeDeviceID(driver, pool, name))
			}
			allocator, err := NewAllocator(context.Background(), !tc.off, tc.claims, allocated, classes, []*resourceapi.ResourceSlice{slice}, cel.NewCache(1))
			if err != nil {
				t.Fatal(err)
			}
			results, err := allocator.Allocate(context.Background(), node)
			if tc.err != "" {
				if err == nil || err.Error() != tc.err {
					t.Errorf("want error %q, got %v", tc.err, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, result := range results {
				var devices []string
				for _, device := range result.Devices.Results {
					name := device.Device
					if ptr.Deref(device.AdminAccess, false) {
						name += "!"
					}
					devices = append(devices, name)
				}
				got = append(got, strings.Join(devices, ","))
			}
			if got := strings.Join(got, " "); got != tc.expect {
				t.Errorf("want %q, got %q", tc.expect, got)
			}
		})
	}
}
