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
	"k8s.io/utils/ptr"
)

// TestDistinctAttribute covers that each device of a request is compared with all before it.
func TestDistinctAttribute(t *testing.T) {
	const color resourceapi.FullyQualifiedName = adminDriver + "/color"
	for name, tc := range map[string]struct {
		colors   []string // of devices a, b, ...
		requests string
		expect   string
	}{
		"too few in a request":    {[]string{"red", "blue", "red"}, "3", ""},
		"enough in a request":     {[]string{"red", "blue", "red", "green"}, "3", "a,b,d"},
		"too few in two requests": {[]string{"red", "blue", "red"}, "2 1", ""},
		"enough in two requests":  {[]string{"red", "blue", "red", "green"}, "2 1", "a,b,d"},
	} {
		t.Run(name, func(t *testing.T) {
			slice := adminSlice()
			for i, value := range tc.colors {
				device := newAdminDevice(string(rune('a' + i)))
				device.Attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"color": {StringValue: ptr.To(value)}}
				slice.Spec.Devices = append(slice.Spec.Devices, device)
			}
			claims := adminClaims(tc.requests)
			claims[0].Spec.Devices.Constraints = []resourceapi.DeviceConstraint{{DistinctAttribute: ptr.To(color)}}
			for implementation, results := range allocateWithFeatures(t, Features{ConsumableCapacity: true}, []*resourceapi.ResourceSlice{slice}, nil, nil, claims) {
				if got := describeResults(results); got != tc.expect {
					t.Errorf("%s: want %q, got %q", implementation, tc.expect, got)
				}
			}
		})
	}
}
