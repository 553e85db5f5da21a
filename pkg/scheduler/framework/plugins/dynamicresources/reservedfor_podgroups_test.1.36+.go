//go:build go1.25

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
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingapi "k8s.io/api/scheduling/v1beta1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/ptr"
)

// TestReservedForPodGroup covers how the UID gets determined for pods in a group.
func TestReservedForPodGroup(t *testing.T) {
	podGroup := resourceapi.ResourceClaimConsumerReference{APIGroup: schedulingapi.GroupName, Resource: "podgroups", Name: podGroupName}
	groupedPod := newSharingPod("pod-1")
	groupedPod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: ptr.To(podGroupName)}
	enable := func(tCtx ktesting.TContext, feats *feature.Features) []apiruntime.Object {
		enablePodGroups(tCtx)
		feats.EnableDRAWorkloadResourceClaims = true
		// The claim is also one for the group. What is in the claim wins.
		return []apiruntime.Object{newSharingPodGroup()}
	}

	for name, tcase := range map[string]ownerTest{
		"podgroup": {
			workload:  podGroup,
			pod:       groupedPod,
			enable:    enable,
			expectUID: types.UID(podGroupUID),
		},
		"job-in-podgroup": {
			workload: workloadRef,
			pod: func() *v1.Pod {
				pod := newJobPod("pod-1")
				pod.Spec.SchedulingGroup = groupedPod.Spec.SchedulingGroup
				return pod
			}(),
			enable:    enable,
			expectUID: jobUID,
		},
		"podgroup-disabled": {
			workload:      podGroup,
			pod:           groupedPod,
			expectStatus:  fwk.UnschedulableAndUnresolvable,
			expectMessage: "only with the DRAWorkloadResourceClaims feature gate, which is off",
		},
		"other-podgroup": {
			workload:      podGroup,
			pod:           newSharingPod("pod-1"),
			enable:        enable,
			expectStatus:  fwk.UnschedulableAndUnresolvable,
			expectMessage: "podgroups.scheduling.k8s.io",
		},
	} {
		syncTest(t, name, tcase.run)
	}
}

// TestReservedForPostFilterPodGroup ensures that a group which cannot be scheduled gives up the reservation,
// but does not deallocate a claim for any pod: only the resourceclaim controller knows all of its users.
func TestReservedForPostFilterPodGroup(t *testing.T) {
	for _, anyPod := range []bool{true, false} {
		syncTest(t, fmt.Sprintf("any-pod=%v", anyPod), func(tCtx ktesting.TContext) {
			feats := reservedForFeatures(true)
			feats.EnableDRAWorkloadResourceClaims = true
			enablePodGroups(tCtx)
			pod := newSharingPod("pod-1")
			pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: ptr.To(podGroupName)}
			claim := newWorkloadClaim(podGroupReservation)
			claim.Spec.ReservedFor = &resourceapi.ResourceClaimWorkloadReference{APIGroup: schedulingapi.GroupName, Resource: "podgroups", Name: podGroupName}
			if !anyPod {
				claim.Status.Allocation.ReservedForAnyPod = nil
			}
			tc := newReservedForTest(tCtx, feats, []*resourceapi.ResourceClaim{claim}, newSharingPodGroup(), pod)
			groupState := framework.NewCycleState()
			cycle := &podCycle{sharedClaimsTest: tc, pod: pod, state: newCycleState()}
			cycle.state.(*framework.CycleState).SetPodGroupSchedulingCycle(groupState)
			require.Nil(tCtx, cycle.callPreFilter())
			require.Equal(tCtx, fwk.UnschedulableAndUnresolvable, tc.p.Filter(tCtx, cycle.state, cycle.pod, tc.nodeInfos[1]).Code())
			status := cycle.postFilterInGroup(groupState)
			assert.NotEqual(tCtx, fwk.Error, status.Code(), status.Message())
			synctest.Wait() // for the release that was requested
			assert.Empty(tCtx, tc.claim().Status.ReservedFor)
			if anyPod {
				assert.NotNil(tCtx, tc.claim().Status.Allocation)
			}
		})
	}
}

// TestReservedForPostFilterPodGroupInUse ensures that such a group does not take away devices which a pod
// uses that is not listed.
func TestReservedForPostFilterPodGroupInUse(t *testing.T) {
	syncTest(t, "", func(tCtx ktesting.TContext) {
		feats := reservedForFeatures(true)
		feats.EnableDRAWorkloadResourceClaims = true
		enablePodGroups(tCtx)
		group := &v1.PodSchedulingGroup{PodGroupName: ptr.To(podGroupName)}
		pod, user := newSharingPod("pod-1"), newSharingPod("user")
		pod.Spec.SchedulingGroup = group
		user.Spec.NodeName = "elsewhere"
		claim := newWorkloadClaim(podGroupReservation)
		claim.Spec.ReservedFor = &resourceapi.ResourceClaimWorkloadReference{APIGroup: schedulingapi.GroupName, Resource: "podgroups", Name: podGroupName}
		tc := newReservedForTest(tCtx, feats, []*resourceapi.ResourceClaim{claim}, newSharingPodGroup(), pod, user)
		groupState := framework.NewCycleState()
		cycle := &podCycle{sharedClaimsTest: tc, pod: pod, state: newCycleState()}
		cycle.state.(*framework.CycleState).SetPodGroupSchedulingCycle(groupState)
		require.Nil(tCtx, cycle.callPreFilter())
		require.Equal(tCtx, fwk.UnschedulableAndUnresolvable, tc.p.Filter(tCtx, cycle.state, cycle.pod, tc.nodeInfos[1]).Code())
		status := cycle.postFilterInGroup(groupState)
		assert.NotEqual(tCtx, fwk.Error, status.Code(), status.Message())
		synctest.Wait() // for what must not happen
		assert.NotNil(tCtx, tc.claim().Status.Allocation)
		assert.Len(tCtx, tc.claim().Status.ReservedFor, 1)
	})
}
