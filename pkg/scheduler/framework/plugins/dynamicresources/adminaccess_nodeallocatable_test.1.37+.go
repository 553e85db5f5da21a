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
	"github.com/stretchr/testify/require"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/ptr"
)

// TestAdminAccessNodeAllocatable covers that a pod with admin access to a device does not pay for the
// resources of the node which come with the device.
func TestAdminAccessNodeAllocatable(t *testing.T) {
	slice := &resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{
		Driver: "driver", NodeName: ptr.To("node"), Pool: resourceapi.ResourcePool{Name: "pool"},
		Devices: []resourceapi.Device{
			{Name: "mapped", NodeAllocatableResources: map[v1.ResourceName]resourceapi.NodeAllocatableResource{
				v1.ResourceCPU: {Mapping: &resourceapi.NodeAllocatableMapping{DeviceMultiplier: ptr.To(resource.MustParse("2"))}},
			}},
			// With admin access there is no consumed capacity: that must not be an error.
			{Name: "capacity", NodeAllocatableResources: map[v1.ResourceName]resourceapi.NodeAllocatableResource{
				v1.ResourceMemory: {Mapping: &resourceapi.NodeAllocatableMapping{CapacityKey: ptr.To(resourceapi.QualifiedName("memory"))}},
			}},
		},
	}}
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim", Namespace: "ns", UID: "claim-uid"}}
	pod := st.MakePod().Name("pod").Namespace("ns").UID("pod-uid").Containers([]v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Claims: []v1.ResourceClaim{{Name: "claim"}}}}}).Obj()
	slices := []*resourceapi.ResourceSlice{slice}
	pl := &DynamicResources{draManager: &mockDRAManager{claims: []*resourceapi.ResourceClaim{claim}, resourceSlices: slices}}

	for name, tc := range map[string]struct {
		adminAccess *bool
		devices     []string
		expect      []v1.NodeAllocatableResourceClaimStatus
	}{
		"admin access": {adminAccess: ptr.To(true), devices: []string{"mapped", "capacity"}},
		"no admin access": {adminAccess: ptr.To(false), devices: []string{"mapped"}, expect: []v1.NodeAllocatableResourceClaimStatus{{
			ResourceClaimName: "claim", Containers: []string{"c"}, Mapping: []v1.NodeAllocatableMappedResources{{Name: v1.ResourceCPU, Quantity: ptr.To(resource.MustParse("2"))}},
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			allocation := &resourceapi.AllocationResult{}
			for _, device := range tc.devices {
				allocation.Devices.Results = append(allocation.Devices.Results, resourceapi.DeviceRequestAllocationResult{Driver: "driver", Pool: "pool", Device: device, AdminAccess: tc.adminAccess})
			}
			got, err := pl.buildNodeAllocatableDRAInfo(pod, map[v1.ObjectReference]*resourceapi.AllocationResult{{Namespace: "ns", Name: "claim", UID: "claim-uid"}: allocation}, map[string]types.UID{"claim": "claim-uid"}, slices, nil)
			if assert.NoError(t, err) && assert.Len(t, got, len(tc.expect)) {
				for i := range got {
					assert.Equal(t, tc.expect[i].ResourceClaimName, got[i].ResourceClaimName)
					assert.True(t, apiequality.Semantic.DeepEqual(tc.expect[i].Mapping, got[i].Mapping), "want %v, got %v", tc.expect[i].Mapping, got[i].Mapping)
				}
			}
		})
	}
}

// TestAdminAccessMappedShared covers that any number of pods may share a claim with admin access to a
// device which comes with resources of the node: none of them pays for these.
func TestAdminAccessMappedShared(t *testing.T) {
	for name, tc := range map[string]struct {
		adminAccess *bool
		expect      bool
	}{
		"admin access":    {adminAccess: ptr.To(true), expect: true},
		"no admin access": {adminAccess: nil},
	} {
		t.Run(name, func(t *testing.T) {
			tCtx := ktesting.Init(t)
			slice := st.MakeResourceSlice(nodeName, driver).Device("mapped").Obj()
			slice.Spec.Devices[0].NodeAllocatableResources = map[v1.ResourceName]resourceapi.NodeAllocatableResource{
				v1.ResourceCPU: {Mapping: &resourceapi.NodeAllocatableMapping{DeviceMultiplier: ptr.To(resource.MustParse("2"))}},
			}
			claim := allocatedClaim.DeepCopy()
			result := &claim.Status.Allocation.Devices.Results[0]
			result.Driver, result.Pool, result.Device, result.AdminAccess = driver, slice.Spec.Pool.Name, "mapped", tc.adminAccess
			claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "other", UID: "other-uid"}}
			feats := feature.Features{
				EnableDynamicResourceAllocation:    true,
				EnableDRAAdminAccess:               true,
				EnableDRANodeAllocatableResources:  true,
				EnableDRADeviceBindingConditions:   true,
				EnableDRAResourceClaimDeviceStatus: true,
				EnableDRASchedulerFilterTimeout:    true,
			}
			testCtx := setup(tCtx, nil, []*v1.Node{workerNode}, []*resourceapi.ResourceClaim{claim}, nil, nil, []apiruntime.Object{slice}, feats, false, nil)
			state := framework.NewCycleState()
			_, status := testCtx.p.PreFilter(tCtx, state, podWithClaimName, testCtx.nodeInfos)
			require.Nil(t, status)
			status = testCtx.p.Filter(tCtx, state, podWithClaimName, testCtx.nodeInfos[0])
			assert.Equal(t, tc.expect, status.IsSuccess(), status.Message())
		})
	}
}
