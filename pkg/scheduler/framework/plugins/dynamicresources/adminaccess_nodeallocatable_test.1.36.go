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

package dynamicresources

import (
	"testing"

	"github.com/stretchr/testify/assert"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/ptr"
)

// TestAdminAccessNodeAllocatable covers that a pod with admin access to a device does not pay for the
// resources of the node which come with the device.
func TestAdminAccessNodeAllocatable(t *testing.T) {
	slice := &resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{
		Driver: "driver", NodeName: ptr.To("node"), Pool: resourceapi.ResourcePool{Name: "pool"},
		Devices: []resourceapi.Device{
			{Name: "mapped", NodeAllocatableResourceMappings: map[v1.ResourceName]resourceapi.NodeAllocatableResourceMapping{
				v1.ResourceCPU: {AllocationMultiplier: ptr.To(resource.MustParse("2"))},
			}},
			// With admin access there is no consumed capacity: that must not be an error.
			{Name: "capacity", NodeAllocatableResourceMappings: map[v1.ResourceName]resourceapi.NodeAllocatableResourceMapping{
				v1.ResourceMemory: {CapacityKey: ptr.To(resourceapi.QualifiedName("memory"))},
			}},
		},
	}}
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim", Namespace: "ns", UID: "claim-uid"}}
	pod := st.MakePod().Name("pod").Namespace("ns").UID("pod-uid").Containers([]v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Claims: []v1.ResourceClaim{{Name: "claim"}}}}}).Obj()
	pl := &DynamicResources{draManager: &mockDRAManager{claims: []*resourceapi.ResourceClaim{claim}, resourceSlices: []*resourceapi.ResourceSlice{slice}}}

	for name, tc := range map[string]struct {
		adminAccess *bool
		devices     []string
		expect      []v1.NodeAllocatableResourceClaimStatus
	}{
		"admin access": {adminAccess: ptr.To(true), devices: []string{"mapped", "capacity"}},
		"no admin access": {adminAccess: ptr.To(false), devices: []string{"mapped"}, expect: []v1.NodeAllocatableResourceClaimStatus{{
			ResourceClaimName: "claim", Containers: []string{"c"}, Resources: map[v1.ResourceName]resource.Quantity{v1.ResourceCPU: resource.MustParse("2")},
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			allocation := &resourceapi.AllocationResult{}
			for _, device := range tc.devices {
				allocation.Devices.Results = append(allocation.Devices.Results, resourceapi.DeviceRequestAllocationResult{Driver: "driver", Pool: "pool", Device: device, AdminAccess: tc.adminAccess})
			}
			got, err := pl.buildNodeAllocatableDRAInfo(pod, map[v1.ObjectReference]*resourceapi.AllocationResult{{Namespace: "ns", Name: "claim", UID: "claim-uid"}: allocation}, map[string]types.UID{"claim": "claim-uid"})
			if assert.NoError(t, err) && assert.Len(t, got, len(tc.expect)) {
				for i := range got {
					assert.Equal(t, tc.expect[i].ResourceClaimName, got[i].ResourceClaimName)
					for name, quantity := range tc.expect[i].Resources {
						actual := got[i].Resources[name]
						assert.Zero(t, quantity.Cmp(actual), "%s: want %s, got %s", name, quantity.String(), actual.String())
					}
				}
			}
		})
	}
}
