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
	"errors"
	"fmt"
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

// enablePodGroups must be called before newSharedClaimsTest because the DRA manager
// checks the actual feature gates.
func enablePodGroups(tCtx ktesting.TContext) {
	featuregatetesting.SetFeatureGatesDuringTest(tCtx, utilfeature.DefaultFeatureGate, featuregatetesting.FeatureOverrides{
		features.DRAWorkloadResourceClaims: true,
		features.GenericWorkload:           true, // dependency of DRAWorkloadResourceClaims
	})
}

// newSharingPodGroup returns a group which uses the shared claim.
func newSharingPodGroup() *schedulingapi.PodGroup {
	return st.MakePodGroup().Name(podGroupName).Namespace(namespace).UID(types.UID(podGroupUID)).
		ResourceClaims(schedulingapi.PodGroupResourceClaim{Name: resourceName, ResourceClaimName: ptr.To(sharedClaimName)}).Obj()
}

// splitPodGroups returns the objects which the scheduler has to know as groups, and the others.
func splitPodGroups(objs []apiruntime.Object) (podGroups []*schedulingapi.PodGroup, others []apiruntime.Object) {
	for _, obj := range objs {
		if podGroup, ok := obj.(*schedulingapi.PodGroup); ok {
			podGroups = append(podGroups, podGroup)
		} else {
			others = append(others, obj)
		}
	}
	return podGroups, others
}

// TestManyGroups ensures that the limit for incarnations of a workload does not affect groups of
// pods: those have entries of their own.
func TestManyGroups(t *testing.T) {
	syncTest(t, "", func(tCtx ktesting.TContext) {
		feats := sharedClaimsFeatures()
		feats.EnableDRAWorkloadResourceClaims = true
		claim := newAllocatedSharedClaim()
		const numGroups = 20
		for i := range numGroups {
			ref := podGroupReservation
			ref.Name = fmt.Sprintf("group-%d", i)
			ref.UID = types.UID(ref.Name)
			claim.Status.ReservedFor = append(claim.Status.ReservedFor, ref)
		}
		enablePodGroups(tCtx)
		tc := newSharedClaimsTest(tCtx, feats, []*resourceapi.ResourceClaim{claim}, newSharingPodGroup())
		pod := newSharingPod("pod-1")
		pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: ptr.To(podGroupName)}
		require.Nil(tCtx, tc.schedule(pod).bind(tCtx))
		assert.Len(tCtx, tc.claim().Status.ReservedFor, numGroups+1)
	})
}

// TestSharedClaimsGroup covers several pods of a group which share a pending
// allocation and the reservation for the group.
func TestSharedClaimsGroup(t *testing.T) {
	syncTest(t, "", func(tCtx ktesting.TContext) {
		feats := sharedClaimsFeatures()
		feats.EnableDRAWorkloadResourceClaims = true
		enablePodGroups(tCtx)
		tc := newSharedClaimsTest(tCtx, feats, []*resourceapi.ResourceClaim{newSharedClaim()}, newSharingPodGroup())
		var cycles []*podCycle
		for i := range 5 {
			pod := newSharingPod(fmt.Sprintf("pod-%d", i))
			pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: ptr.To(podGroupName)}
			cycles = append(cycles, tc.schedule(pod))
		}
		requireAllBound(tCtx, tc.bindAll(cycles))
		assert.Equal(tCtx, []string{"update", "update/status"}, tc.api.takeWrites())
		assert.Equal(tCtx, []resourceapi.ResourceClaimConsumerReference{podGroupReservation}, tc.claim().Status.ReservedFor)
		assert.Empty(tCtx, tc.listInFlightClaims())
	})
}

// TestGroupReleasesClaimOfPod covers pods of a group which share a claim that was created for
// one of them. Whatever happens to them, nothing remains in flight.
func TestGroupReleasesClaimOfPod(t *testing.T) {
	const numPods = 3
	for name, bind := range map[string]int{"none-bound": 0, "one-bound": 1, "all-bound": numPods} {
		for _, inCycle := range []bool{false, true} {
			syncTest(t, fmt.Sprintf("%s/group-cycle=%v", name, inCycle), func(tCtx ktesting.TContext) {
				feats := sharedClaimsFeatures()
				feats.EnableDRAWorkloadResourceClaims = true
				enablePodGroups(tCtx)
				claim := st.FromResourceClaim(newSharedClaim()).OwnerReference("pod-0", "pod-0", podKind).Obj()
				tc := newSharedClaimsTest(tCtx, feats, []*resourceapi.ResourceClaim{claim}, newSharingPodGroup())
				groupState := framework.NewCycleState()
				var cycles []*podCycle
				for i := range numPods {
					pod := newSharingPod(fmt.Sprintf("pod-%d", i))
					pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: ptr.To(podGroupName)}
					cycle := &podCycle{sharedClaimsTest: tc, pod: pod, state: newCycleState()}
					if inCycle {
						cycle.state.(*framework.CycleState).SetPodGroupSchedulingCycle(groupState)
					}
					require.Nil(tCtx, cycle.callPreFilter())
					require.Contains(tCtx, cycle.filter(), nodeName)
					require.Nil(tCtx, tc.p.Reserve(tCtx, cycle.state, pod, nodeName))
					cycles = append(cycles, cycle)
				}
				require.Len(tCtx, tc.listInFlightClaims(), 1)
				for _, cycle := range cycles[:bind] {
					require.Nil(tCtx, cycle.bind(tCtx))
				}
				for _, cycle := range cycles {
					cycle.unreserve()
				}
				assert.Empty(tCtx, tc.listInFlightClaims())
			})
		}
	}

	// One member fails twice, which must not take the devices from the others.
	syncTest(t, "one-fails", func(tCtx ktesting.TContext) {
		feats := sharedClaimsFeatures()
		feats.EnableDRAWorkloadResourceClaims = true
		enablePodGroups(tCtx)
		claim := st.FromResourceClaim(newSharedClaim()).OwnerReference("pod-0", "pod-0", podKind).Obj()
		tc := newSharedClaimsTest(tCtx, feats, []*resourceapi.ResourceClaim{claim}, newSharingPodGroup())
		var cycles []*podCycle
		for i := range numPods {
			pod := newSharingPod(fmt.Sprintf("pod-%d", i))
			pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: ptr.To(podGroupName)}
			cycles = append(cycles, tc.schedule(pod))
		}
		tc.api.before = func(string, *resourceapi.ResourceClaim) error { return errors.New("fake API failure") }
		require.NotNil(tCtx, cycles[0].bind(tCtx))
		cycles[0].unreserve()
		cycles[1].unreserve()
		require.Len(tCtx, tc.listInFlightClaims(), 1)
		tc.api.before = nil
		require.Nil(tCtx, cycles[2].bind(tCtx))
		assert.Empty(tCtx, tc.listInFlightClaims())
	})
}

// TestSharedClaimsNodeAllocatable covers pods which have to wait until the allocation is stored.
func TestSharedClaimsNodeAllocatable(t *testing.T) {
	syncTest(t, "", func(tCtx ktesting.TContext) {
		feats := sharedClaimsFeatures()
		feats.EnableDRANodeAllocatableResources = true
		tc := newSharedClaimsTest(tCtx, feats, []*resourceapi.ResourceClaim{newSharedClaim()})
		first := tc.schedule(newSharingPod("pod-1"))
		_, status := tc.preFilter(newSharingPod("pod-2"))
		assert.Equal(tCtx, fwk.UnschedulableAndUnresolvable, status.Code())
		assert.Contains(tCtx, status.Message(), "in the process of being allocated")
		require.Nil(tCtx, first.bind(tCtx))
	})
}

// TestSharedClaimsSignPodGroup covers pods which are not alike although they share their claims.
func TestSharedClaimsSignPodGroup(t *testing.T) {
	grouped := newSharingPod("pod-1")
	grouped.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: ptr.To(podGroupName)}
	mapped := sharedClaimsFeatures()
	// Filter has to count what they use of the node.
	mapped.EnableDRANodeAllocatableResources = true
	for name, tc := range map[string]struct {
		features feature.Features
		pod      *v1.Pod
	}{
		"in-a-group":                 {features: sharedClaimsFeatures(), pod: grouped},
		"node-allocatable-resources": {features: mapped, pod: newSharingPod("pod-1")},
	} {
		syncTest(t, name, func(tCtx ktesting.TContext) {
			_, status := newSharedClaimsTest(tCtx, tc.features, nil).p.SignPod(tCtx, tc.pod)
			assert.Equal(tCtx, fwk.Unschedulable, status.Code())
		})
	}
}
