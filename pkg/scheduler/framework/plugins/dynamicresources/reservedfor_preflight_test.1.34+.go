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
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/ptr"
)

// TestReservedForPreFlight covers pods which wait before PreBind for the pod that stores the allocation.
// If PreBind has nothing to do for them, then the scheduler does not write their nominated node.
func TestReservedForPreFlight(t *testing.T) {
	setUp := func(tCtx ktesting.TContext) (tc *sharedClaimsTest, leader *podCycle, followers []*podCycle) {
		tc = newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{withReservedFor(newSharedClaim(), workloadRef)})
		leader = tc.schedule(newJobPod("pod-1"))
		for _, pod := range []*v1.Pod{newJobPod("pod-2"), newJobPod("pod-3"), newJobPod("pod-4")} {
			followers = append(followers, tc.schedule(pod))
		}
		return tc, leader, followers
	}

	syncTest(t, "stored", func(tCtx ktesting.TContext) {
		tc, leader, followers := setUp(tCtx)
		assert.False(tCtx, leader.preBindPreFlight(tCtx).IsSkip(), "somebody must store it")
		result := startPreFlight(tCtx, followers)
		assert.Equal(tCtx, 1, tc.p.claimReserver.numClaims(), "claims with waiting pods")
		assert.Empty(tCtx, tc.api.takeWrites())
		require.Nil(tCtx, tc.p.PreBind(tCtx, leader.state, leader.pod, nodeName))
		assert.Equal(tCtx, []bool{true, true, true}, result())
		assert.Equal(tCtx, []string{"update", "update/status"}, tc.api.takeWrites())
		assert.Equal(tCtx, []string{jobName}, tc.reservedFor())
		assert.Empty(tCtx, tc.listInFlightClaims())
		synctest.Wait()
		assert.Zero(tCtx, tc.p.claimReserver.numClaims())
		// None of them may undo what all use.
		for _, cycle := range append(followers, leader) {
			cycle.unreserve()
		}
		assert.Equal(tCtx, []string{jobName}, tc.reservedFor())
		assert.Empty(tCtx, tc.api.takeWrites())
	})

	// The write that the pod wants to wait for ends before it does so.
	syncTest(t, "just-stored", func(tCtx ktesting.TContext) {
		tc, leader, followers := setUp(tCtx)
		state, err := getStateData(followers[0].state)
		require.NoError(tCtx, err)
		request := newClaimReservation(state, 0, followers[0].pod)
		require.Nil(tCtx, leader.bind(tCtx))
		ctx, cancel := context.WithTimeout(tCtx, time.Minute)
		defer cancel()
		claim, err := tc.p.claimReserver.follow(ctx, request, func() (*resourceapi.ResourceClaim, error) {
			return tc.p.draManager.ResourceClaims().Get(namespace, sharedClaimName)
		})
		require.NoError(tCtx, err)
		assert.Equal(tCtx, tc.claim(), claim)
		synctest.Wait()
		assert.Zero(tCtx, tc.p.claimReserver.numClaims())
	})

	// Nobody waits for a pod that never gets to PreBind.
	syncTest(t, "not-stored", func(tCtx ktesting.TContext) {
		tc, leader, followers := setUp(tCtx)
		start := time.Now()
		result := startPreFlight(tCtx, followers)
		leader.unreserve()
		assert.Equal(tCtx, []bool{false, false, false}, result())
		assert.Equal(tCtx, maxFollow, time.Since(start))
		assert.Zero(tCtx, tc.p.claimReserver.numClaims())
		requireAllBound(tCtx, tc.bindAll(followers))
		assert.Equal(tCtx, []string{"update", "update/status"}, tc.api.takeWrites())
		assert.Equal(tCtx, []string{jobName}, tc.reservedFor())
	})

	syncTest(t, "store-fails", func(tCtx ktesting.TContext) {
		tc, leader, followers := setUp(tCtx)
		tc.api.before = func(string, *resourceapi.ResourceClaim) error { return errors.New("fake API failure") }
		result := startPreFlight(tCtx, followers)
		require.ErrorContains(tCtx, leader.p.PreBind(tCtx, leader.state, leader.pod, nodeName).AsError(), "fake API failure")
		assert.Equal(tCtx, []bool{false, false, false}, result())
		leader.unreserve()
		tc.api.before = nil
		requireAllBound(tCtx, tc.bindAll(followers))
		assert.Equal(tCtx, []string{jobName}, tc.reservedFor())
	})

	syncTest(t, "canceled", func(tCtx ktesting.TContext) {
		tc, leader, followers := setUp(tCtx)
		ctx, cancel := context.WithCancel(tCtx)
		start := time.Now()
		result := startPreFlight(ctx, followers)
		cancel()
		assert.Equal(tCtx, []bool{false, false, false}, result())
		assert.Zero(tCtx, time.Since(start), "seconds that the pods waited")
		assert.Zero(tCtx, tc.p.claimReserver.numClaims())
		for _, cycle := range followers {
			cycle.unreserve()
		}
		require.Nil(tCtx, leader.bind(tCtx))
	})

	// The pod writes itself, so it does not wait for others.
	syncTest(t, "other-claims", func(tCtx ktesting.TContext) {
		second := newAllocatedSharedClaim()
		second.Name = "second"
		second.Status.Allocation.Devices.Results[0].Device = "instance-2"
		tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{withReservedFor(newSharedClaim(), workloadRef), second})
		leader := tc.schedule(newJobPod("pod-1"))
		pod := newJobPod("pod-2")
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, v1.PodResourceClaim{Name: "second", ResourceClaimName: &second.Name})
		cycle, status := tc.preFilter(pod)
		require.Nil(tCtx, status)
		require.Contains(tCtx, cycle.filter(), nodeName)
		require.Nil(tCtx, tc.p.Reserve(tCtx, cycle.state, pod, nodeName))
		start := time.Now()
		assert.False(tCtx, cycle.preBindPreFlight(tCtx).IsSkip())
		assert.Zero(tCtx, time.Since(start), "seconds that the pod waited")
		require.Nil(tCtx, cycle.bind(tCtx))
		require.Nil(tCtx, leader.bind(tCtx))
	})
}

func TestReservedForBindingConditions(t *testing.T) {
	syncTest(t, "", func(tCtx ktesting.TContext) {
		claim := newWorkloadClaim(workloadRefWithUID)
		claim.Status.Allocation.AllocationTimestamp = ptr.To(metav1.Now())
		claim.Status.Allocation.Devices.Results[0].BindingConditions = []string{"ready"}
		claim.Status.Devices = []resourceapi.AllocatedDeviceStatus{{
			Driver: driver, Pool: nodeName, Device: "instance-1",
			Conditions: []metav1.Condition{{Type: "ready", Status: metav1.ConditionTrue}},
		}}
		tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{claim})
		// There is nothing to write, but PreBind has to check the conditions.
		cycle := tc.schedule(newJobPod("pod-1"))
		assert.Nil(tCtx, cycle.preBindPreFlight(tCtx))
		require.Nil(tCtx, cycle.bind(tCtx))
		assert.Empty(tCtx, tc.api.takeWrites())
	})
}
