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

// In 1.33, counters that devices share stand in the same slice as the devices.

package structured

import (
	"context"
	"testing"

	resourceapi "k8s.io/api/resource/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// counterSlice has devices of which each consumes the given amount of a shared counter.
func counterSlice(available, consumes string, names ...string) *resourceapi.ResourceSlice {
	slice := adminSlice(names...)
	slice.Spec.SharedCounters = []resourceapi.CounterSet{{Name: "set", Counters: map[string]resourceapi.Counter{"memory": {Value: resource.MustParse(available)}}}}
	for _, device := range slice.Spec.Devices {
		device.Basic.ConsumesCounters = []resourceapi.DeviceCounterConsumption{{CounterSet: "set", Counters: map[string]resourceapi.Counter{"memory": {Value: resource.MustParse(consumes)}}}}
	}
	return slice
}

func allocateWithCounters(t *testing.T, slice *resourceapi.ResourceSlice, allocated []string, claims []*resourceapi.ResourceClaim) string {
	t.Helper()
	features := Features{AdminAccess: true, PartitionableDevices: true}
	results, err := newAdminAllocator(t, features, []*resourceapi.ResourceSlice{slice}, allocated, claims).Allocate(context.Background(), adminNode)
	if err != nil {
		t.Fatal(err)
	}
	return describeResults(results)
}

// TestAdminAccessShared covers that admin access takes nothing of what devices share.
func TestAdminAccessShared(t *testing.T) {
	one, two := counterSlice("4Gi", "4Gi", "a"), counterSlice("4Gi", "4Gi", "a", "b")
	for name, tc := range map[string]struct {
		slice     *resourceapi.ResourceSlice
		allocated []string
		claims    []*resourceapi.ResourceClaim
		expect    string
	}{
		"counters are used up by another claim":              {one, []string{"a"}, adminClaims("1!"), "a!"},
		"counters are used up by another device":             {two, []string{"a"}, adminClaims("0!"), "a!,b!"},
		"counters are free for another claim of the pod":     {one, nil, adminClaims("1!", "1"), "a! a"},
		"counters are free for another request of the claim": {two, nil, adminClaims("1! 1"), "a!,b"},
		"counters still count without admin access":          {two, []string{"a"}, adminClaims("1"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := allocateWithCounters(t, tc.slice, tc.allocated, tc.claims); got != tc.expect {
				t.Errorf("want %q, got %q", tc.expect, got)
			}
		})
	}
}
