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
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/ptr"
)

const mappedDriver = "mapped.example.com"

// newMappedSlice returns a slice with one device which comes with CPUs of the node.
func newMappedSlice() *resourceapi.ResourceSlice {
	slice := st.MakeResourceSlice(nodeName, mappedDriver).Device("mapped").Obj()
	slice.Name += "-" + mappedDriver
	slice.Spec.Devices[0].NodeAllocatableResources = map[v1.ResourceName]resourceapi.NodeAllocatableResource{
		v1.ResourceCPU: {Mapping: &resourceapi.NodeAllocatableMapping{DeviceMultiplier: ptr.To(resource.MustParse("2"))}},
	}
	return slice
}

// useMapped changes the allocation of a claim to one with that device.
func useMapped(claim *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	slice := newMappedSlice()
	result := &claim.Status.Allocation.Devices.Results[0]
	result.Driver, result.Pool, result.Device = slice.Spec.Driver, slice.Spec.Pool.Name, slice.Spec.Devices[0].Name
	return claim
}

// TestSharedClaimsMapped covers a pending allocation that only one pod may use. A pod of
// another group has to wait, because nothing else would tell its Filter.
func TestSharedClaimsMapped(t *testing.T) {
	for _, mapped := range []bool{false, true} {
		syncTest(t, fmt.Sprintf("mapped=%v", mapped), func(tCtx ktesting.TContext) {
			feats := sharedClaimsFeatures()
			feats.EnableDRANodeAllocatableResources = true
			feats.EnableDRAWorkloadResourceClaims = true
			enablePodGroups(tCtx)
			tc := newSharedClaimsTest(tCtx, feats, []*resourceapi.ResourceClaim{newSharedClaim()}, newSharingPodGroup(), newMappedSlice())
			allocated := newAllocatedSharedClaim()
			if mapped {
				useMapped(allocated)
			}
			allocated.UID = tc.claim().UID
			require.NoError(tCtx, tc.p.pendingAllocations().SignalClaimPendingAllocation(allocated.UID, allocated))
			pod := newSharingPod("pod-1")
			pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: ptr.To(podGroupName)}
			cycle, status := tc.preFilter(pod)
			if !mapped {
				require.Nil(tCtx, status)
				assert.Contains(tCtx, cycle.filter(), nodeName)
				return
			}
			assert.Equal(tCtx, fwk.UnschedulableAndUnresolvable, status.Code())
			assert.Contains(tCtx, status.Message(), "in the process of being allocated")
		})
	}
}

// TestMappedDeviceVanishes covers a group that shares a pending allocation whose device cannot be looked up
// because its slice is gone. Nothing says then that only one pod may use it, and upstream gives each
// pod a copy. Whatever happens to the pods, nothing remains in flight.
func TestMappedDeviceVanishes(t *testing.T) {
	for name, again := range map[string]bool{"once": false, "again": true} {
		syncTest(t, name, func(tCtx ktesting.TContext) {
			feats := sharedClaimsFeatures()
			feats.EnableDRANodeAllocatableResources = true
			feats.EnableDRAWorkloadResourceClaims = true
			enablePodGroups(tCtx)
			tc := newSharedClaimsTest(tCtx, feats, []*resourceapi.ResourceClaim{newSharedClaim()}, newSharingPodGroup())
			groupState := framework.NewCycleState()
			var cycles []*podCycle
			for i := range 3 {
				pod := newSharingPod(fmt.Sprintf("pod-%d", i))
				pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: ptr.To(podGroupName)}
				cycle := &podCycle{sharedClaimsTest: tc, pod: pod, state: newCycleState()}
				cycle.state.(*framework.CycleState).SetPodGroupSchedulingCycle(groupState)
				require.Nil(tCtx, cycle.callPreFilter())
				require.Contains(tCtx, cycle.filter(), nodeName)
				require.Nil(tCtx, tc.p.Reserve(tCtx, cycle.state, pod, nodeName))
				if i == 0 {
					require.NoError(tCtx, tc.client.ResourceV1().ResourceSlices().Delete(tCtx, workerNodeSlice.Name, metav1.DeleteOptions{}))
					synctest.Wait()
				}
				cycles = append(cycles, cycle)
			}
			require.Len(tCtx, tc.listInFlightClaims(), 1)
			if again {
				for _, cycle := range cycles {
					cycle.unreserve()
				}
				require.Empty(tCtx, tc.listInFlightClaims())
				// Another pod is the first one now.
				for i := range cycles {
					cycle := cycles[len(cycles)-1-i]
					require.Nil(tCtx, tc.p.Reserve(tCtx, cycle.state, cycle.pod, nodeName))
				}
				require.Len(tCtx, tc.listInFlightClaims(), 1)
			}
			for _, cycle := range cycles {
				cycle.unreserve()
			}
			assert.Empty(tCtx, tc.listInFlightClaims())
		})
	}
}

// reusedAllocation is the allocation in flight which a pod uses after PreFilter. With the
// DRASharedClaims feature, it stands in the pod's copy of the claim until Reserve.
func reusedAllocation(s *stateData, index int) *resourceapi.AllocationResult {
	if pending := s.informationsForClaim[index].pending; pending != nil {
		return pending
	}
	return s.informationsForClaim[index].allocation
}
