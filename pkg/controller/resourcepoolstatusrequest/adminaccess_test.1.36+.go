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

package resourcepoolstatusrequest

import (
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/ptr"
)

// TestAdminAccessIsNotAllocation covers that a device which is held only through admin access
// is shown as available.
func TestAdminAccessIsNotAllocation(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	client := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(client, 0)
	controller, err := newAdminAccessTestController(ctx, client, factory)
	if err != nil {
		t.Fatal(err)
	}
	const driver, pool = "driver.example.com", "pool"
	monitor := makeAllocatedClaim("monitor", "admin", driver, pool, "device-0")
	monitor.Status.Allocation.Devices.Results[0].AdminAccess = ptr.To(true)
	monitor.Status.Allocation.Devices.Results = append(monitor.Status.Allocation.Devices.Results, resourcev1.DeviceRequestAllocationResult{Driver: driver, Pool: pool, Device: "device-1", AdminAccess: ptr.To(true)})
	user := makeAllocatedClaim("user", "default", driver, pool, "device-1")
	user.Status.Allocation.Devices.Results[0].AdminAccess = ptr.To(false)
	for _, claim := range []*resourcev1.ResourceClaim{monitor, user} {
		if err := factory.Resource().V1().ResourceClaims().Informer().GetStore().Add(claim); err != nil {
			t.Fatal(err)
		}
	}
	if err := factory.Resource().V1().ResourceSlices().Informer().GetStore().Add(makeSlice("slice", driver, pool, "node", 2)); err != nil {
		t.Fatal(err)
	}

	status := controller.calculatePoolStatus(ctx, &resourcev1alpha3.ResourcePoolStatusRequest{Spec: resourcev1alpha3.ResourcePoolStatusRequestSpec{Driver: driver}})
	if len(status.Pools) != 1 {
		t.Fatalf("want one pool, got %+v", status.Pools)
	}
	got := status.Pools[0]
	if allocated, available := ptr.Deref(got.AllocatedDevices, -1), ptr.Deref(got.AvailableDevices, -1); allocated != 1 || available != 1 {
		t.Errorf("want 1 device allocated and 1 available, got %d and %d", allocated, available)
	}
}
