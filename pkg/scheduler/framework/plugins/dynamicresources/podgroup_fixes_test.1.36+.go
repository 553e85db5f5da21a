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
	schedulingapi "k8s.io/api/scheduling/v1beta1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/ptr"
)

// makeMap makes a map whose type depends on the release.
func makeMap[M ~map[K]V, K comparable, V any](m *M) {
	*m = make(M)
}

// TestPendingAndNewAllocation covers a pod of a group with one claim that was allocated for another pod of
// the group a moment ago, and one that is allocated for this pod. Each keeps its own device.
func TestPendingAndNewAllocation(t *testing.T) {
	tCtx := ktesting.Init(t)
	featuregatetesting.SetFeatureGatesDuringTest(tCtx, utilfeature.DefaultFeatureGate, featuregatetesting.FeatureOverrides{
		features.DRAWorkloadResourceClaims: true,
		features.GenericWorkload:           true, // dependency of DRAWorkloadResourceClaims
	})
	newClaim := func(name string) *resourceapi.ResourceClaim {
		claim := pendingClaim.DeepCopy()
		claim.Name, claim.UID, claim.OwnerReferences = name, "", nil
		return claim
	}
	newPod := func(name string, claims ...string) *v1.Pod {
		pod := podWithClaimName.DeepCopy()
		pod.Name, pod.UID = name, types.UID(name)
		pod.Spec.ResourceClaims = nil
		for _, claim := range claims {
			pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, v1.PodResourceClaim{Name: claim, ResourceClaimName: &claim})
		}
		pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: ptr.To(podGroupName)}
		return pod
	}
	podGroup := st.MakePodGroup().Name(podGroupName).Namespace(namespace).UID(types.UID(podGroupUID)).Obj()
	feats := feature.Features{
		EnableDynamicResourceAllocation:    true,
		EnableDRAWorkloadResourceClaims:    true,
		EnableDRADeviceBindingConditions:   true,
		EnableDRAResourceClaimDeviceStatus: true,
		EnableDRASchedulerFilterTimeout:    true,
	}
	tc := setup(tCtx, nil, []*v1.Node{workerNode}, []*resourceapi.ResourceClaim{newClaim("shared"), newClaim("own")},
		[]*resourceapi.DeviceClass{deviceClass}, []*schedulingapi.PodGroup{podGroup}, []apiruntime.Object{largeWorkerNodeSlice}, feats, false, nil)
	groupState := framework.NewCycleState()
	podGroupState := &podGroupStateData{}
	makeMap(&podGroupState.pendingAllocations)
	groupState.Write(stateKey, podGroupState)
	nodeInfo := framework.NewNodeInfo()
	nodeInfo.SetNode(workerNode)

	// The claim whose allocation is pending comes first in the second pod.
	pods := []*v1.Pod{newPod("first", "shared"), newPod("second", "shared", "own")}
	var states []*framework.CycleState
	for _, pod := range pods {
		state := framework.NewCycleState()
		state.SetPodGroupSchedulingCycle(groupState)
		states = append(states, state)
		_, status := tc.p.PreFilter(tCtx, state, pod, []fwk.NodeInfo{nodeInfo})
		require.True(t, status.IsSuccess(), "PreFilter: %v", status)
		status = tc.p.Filter(tCtx, state, pod, nodeInfo)
		require.True(t, status.IsSuccess(), "Filter: %v", status)
		status = tc.p.Reserve(tCtx, state, pod, workerNode.Name)
		require.True(t, status.IsSuccess(), "Reserve: %v", status)
	}
	device := func(name string) string {
		claim, err := tc.draManager.ResourceClaims().Get(namespace, name)
		require.NoError(t, err)
		allocation := tc.draManager.ResourceClaims().GetPendingAllocation(claim.UID)
		require.NotNil(t, allocation)
		return allocation.Devices.Results[0].Device
	}
	assert.Equal(t, []string{"instance-1", "instance-2"}, []string{device("shared"), device("own")})

	// All of them fit, so each goes through Reserve again to be bound.
	for i := len(pods) - 1; i >= 0; i-- {
		tc.p.Unreserve(tCtx, states[i], pods[i], workerNode.Name)
	}
	for i, pod := range pods {
		states[i].SetPodGroupSchedulingCycle(nil)
		status := tc.p.Reserve(tCtx, states[i], pod, workerNode.Name)
		require.True(t, status.IsSuccess(), "Reserve: %v", status)
	}
	assert.Equal(t, []string{"instance-1", "instance-2"}, []string{device("shared"), device("own")}, "the second time")
}

// TestBindingsWithoutClaim covers a pod where nothing had to be created for one of the
// entries in spec.resourceClaims.
func TestBindingsWithoutClaim(t *testing.T) {
	tCtx := ktesting.Init(t)
	featuregatetesting.SetFeatureGatesDuringTest(tCtx, utilfeature.DefaultFeatureGate, featuregatetesting.FeatureOverrides{
		features.DRAWorkloadResourceClaims: true,
		features.GenericWorkload:           true, // dependency of DRAWorkloadResourceClaims
	})
	pod := podWithClaimName.DeepCopy()
	pod.Spec.ResourceClaims = append([]v1.PodResourceClaim{{Name: "unused", ResourceClaimTemplateName: ptr.To("template")}}, pod.Spec.ResourceClaims...)
	pod.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "unused"}}
	pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: ptr.To(podGroupName)}
	podGroup := st.MakePodGroup().Name(podGroupName).Namespace(namespace).UID(types.UID(podGroupUID)).Obj()
	feats := feature.Features{
		EnableDynamicResourceAllocation:    true,
		EnableDRAWorkloadResourceClaims:    true,
		EnableDRADeviceBindingConditions:   true,
		EnableDRAResourceClaimDeviceStatus: true,
		EnableDRASchedulerFilterTimeout:    true,
	}
	tc := setup(tCtx, nil, nil, []*resourceapi.ResourceClaim{allocatedClaim}, nil, []*schedulingapi.PodGroup{podGroup}, nil, feats, false, nil)
	claims, err := tc.p.podResourceClaims(pod)
	require.NoError(t, err)
	bindings, err := tc.p.podResourceClaimBindings(pod)
	require.NoError(t, err)
	require.Len(t, claims, 1)
	assert.Len(t, bindings, len(claims), "both lists have the same index")
}
