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

// These releases have one allocator, and no capacity that devices share.

package structured

import (
	"context"
	"testing"

	resourceapi "k8s.io/api/resource/v1beta1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
)

func newAdminRequest(name string, mode resourceapi.DeviceAllocationMode, count int64, adminAccess *bool) resourceapi.DeviceRequest {
	return resourceapi.DeviceRequest{Name: name, DeviceClassName: "class", AllocationMode: mode, Count: count, AdminAccess: adminAccess}
}

func newAdminDevice(name string) resourceapi.Device {
	return resourceapi.Device{Name: name, Basic: &resourceapi.BasicDevice{}}
}

func setAdminNode(spec *resourceapi.ResourceSliceSpec) { spec.NodeName = adminNode.Name }

func newAdminAllocator(t *testing.T, features testFeatures, slices []*resourceapi.ResourceSlice, allocated []string, claims []*resourceapi.ResourceClaim) *Allocator {
	t.Helper()
	devices := sets.New[DeviceID]()
	for _, name := range allocated {
		devices.Insert(MakeDeviceID(adminDriver, adminPool, name))
	}
	allocator, err := NewAllocator(context.Background(), features, claims, devices, adminClasses, slices, cel.NewCache(1))
	if err != nil {
		t.Fatal(err)
	}
	return allocator
}

func allocateForAdmin(t *testing.T, slices []*resourceapi.ResourceSlice, allocated []string, claims []*resourceapi.ResourceClaim) map[string][]resourceapi.AllocationResult {
	t.Helper()
	return allocateWithFeatures(t, adminFeatures(true), slices, allocated, nil, claims)
}

// allocateWithFeatures has the signature of later releases, where devices can share what
// they consume.
func allocateWithFeatures(t *testing.T, features testFeatures, slices []*resourceapi.ResourceSlice, allocated []string, _ map[string]string, claims []*resourceapi.ResourceClaim) map[string][]resourceapi.AllocationResult {
	t.Helper()
	results, err := newAdminAllocator(t, features, slices, allocated, claims).Allocate(context.Background(), adminNode)
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]resourceapi.AllocationResult{"the only one": results}
}

// TestAdminAccessOff checks that nobody gets devices of others without the feature.
func TestAdminAccessOff(t *testing.T) {
	allocator := newAdminAllocator(t, adminFeatures(false), []*resourceapi.ResourceSlice{adminSlice("a")}, nil, adminClaims("1!"))
	_, err := allocator.Allocate(context.Background(), adminNode)
	if want := "claim claim-0, request r-0: admin access is requested, but the feature is disabled"; err == nil || err.Error() != want {
		t.Errorf("want error %q, got %v", want, err)
	}
}
