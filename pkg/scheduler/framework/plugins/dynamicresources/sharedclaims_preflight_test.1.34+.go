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
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// startPreFlight starts PreBindPreFlight for all pods. The function returned by it waits for
// the results: whether PreBind gets skipped.
func startPreFlight(ctx context.Context, cycles []*podCycle) func() []bool {
	skipped := make([]bool, len(cycles))
	var wg sync.WaitGroup
	for i, cycle := range cycles {
		wg.Go(func() { skipped[i] = cycle.preBindPreFlight(ctx).IsSkip() })
	}
	synctest.Wait()
	return func() []bool {
		wg.Wait()
		return skipped
	}
}

// TestSharedClaimsPreFlight covers pods which have to be listed in status.reservedFor: before PreBind, they wait
// for a write that some other pod has started, and become part of the next one.
func TestSharedClaimsPreFlight(t *testing.T) {
	setUp := func(tCtx ktesting.TContext, claim *resourceapi.ResourceClaim) (tc *sharedClaimsTest, first *podCycle, others []*podCycle) {
		tc = newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{claim})
		first = tc.schedule(newSharingPod("pod-1"))
		for i := range 2 {
			others = append(others, tc.schedule(newSharingPod(fmt.Sprintf("pod-%d", i+2))))
		}
		return tc, first, others
	}
	// startPreBind lets the pod start its first write. The function returned by it lets the write go on.
	startPreBind := func(tc *sharedClaimsTest, cycle *podCycle) func() {
		release := make(chan struct{})
		var once sync.Once
		tc.api.before = func(string, *resourceapi.ResourceClaim) error {
			once.Do(func() { <-release })
			return nil
		}
		var wg sync.WaitGroup
		wg.Go(func() { assert.Nil(tc.tCtx, cycle.bind(tc.tCtx)) })
		synctest.Wait()
		return func() {
			close(release)
			wg.Wait()
		}
	}

	syncTest(t, "in-flight", func(tCtx ktesting.TContext) {
		tc, first, others := setUp(tCtx, newSharedClaim())
		result := startPreFlight(tCtx, others)
		assert.Empty(tCtx, tc.api.takeWrites(), "PreBindPreFlight must not write")
		require.Nil(tCtx, first.bind(tCtx))
		assert.Equal(tCtx, []bool{true, true}, result())
		// All of them were waiting when the first pod started.
		assert.Equal(tCtx, []string{"update", "update/status"}, tc.api.takeWrites())
		assert.Equal(tCtx, []string{"pod-1", "pod-2", "pod-3"}, tc.reservedFor())
		assert.Empty(tCtx, tc.listInFlightClaims())
		others[0].unreserve()
		assert.Equal(tCtx, []string{"pod-1", "pod-3"}, tc.reservedFor())
	})

	syncTest(t, "written", func(tCtx ktesting.TContext) {
		tc, first, others := setUp(tCtx, newAllocatedSharedClaim())
		release := startPreBind(tc, first)
		result := startPreFlight(tCtx, others)
		release()
		assert.Equal(tCtx, []bool{true, true}, result())
		assert.Equal(tCtx, []string{"patch/status", "patch/status"}, tc.api.takeWrites())
		assert.Equal(tCtx, []string{"pod-1", "pod-2", "pod-3"}, tc.reservedFor())
		others[1].unreserve()
		assert.Equal(tCtx, []string{"pod-1", "pod-2"}, tc.reservedFor())
	})

	syncTest(t, "not-written", func(tCtx ktesting.TContext) {
		tc, first, others := setUp(tCtx, newAllocatedSharedClaim())
		start := time.Now()
		assert.Equal(tCtx, []bool{false, false}, startPreFlight(tCtx, others)())
		assert.Zero(tCtx, time.Since(start), "seconds that the pods waited")
		assert.Zero(tCtx, tc.p.claimReserver.numClaims())
		requireAllBound(tCtx, tc.bindAll(append(others, first)))
	})

	syncTest(t, "full", func(tCtx ktesting.TContext) {
		tc, first, others := setUp(tCtx, newAllocatedSharedClaim(podReferences(resourceapi.ResourceClaimReservedForMaxSize-3)...))
		tc.change(func(claim *resourceapi.ResourceClaim) {
			claim.Status.ReservedFor = podReferences(resourceapi.ResourceClaimReservedForMaxSize - 1)
		})
		release := startPreBind(tc, first)
		result := startPreFlight(tCtx, others)
		release()
		assert.Equal(tCtx, []bool{false, false}, result())
		assert.True(tCtx, others[0].bind(tCtx).IsRejected(), "the pod has to wait until the claim is free")
		assert.Len(tCtx, tc.claim().Status.ReservedFor, resourceapi.ResourceClaimReservedForMaxSize)
	})

	// The pod got into the list of one claim together with others, and not into that of the other claim. Then
	// the PreBind of another plugin fails.
	syncTest(t, "partly", func(tCtx ktesting.TContext) {
		another := newAllocatedSharedClaim()
		another.Name = "another"
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newAllocatedSharedClaim(), another})
		first, pod := tc.schedule(newSharingPod("pod-1")), newSharingPod("pod-2")
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, v1.PodResourceClaim{Name: "another", ResourceClaimName: &another.Name})
		second := tc.schedule(pod)
		release := startPreBind(tc, first)
		result := startPreFlight(tCtx, []*podCycle{second})
		release()
		require.Equal(tCtx, []bool{false}, result())
		require.Equal(tCtx, []string{"pod-1", "pod-2"}, tc.reservedFor())
		second.unreserve()
		assert.Equal(tCtx, []string{"pod-1"}, tc.reservedFor())
	})

	// PreBind has to wait for the device.
	syncTest(t, "binding-conditions", func(tCtx ktesting.TContext) {
		claim := newAllocatedSharedClaim()
		claim.Status.Allocation.Devices.Results[0].BindingConditions = []string{"ready"}
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newSharedClaim()})
		require.NoError(tCtx, tc.p.pendingAllocations().SignalClaimPendingAllocation(tc.claim().UID, claim))
		cycle := tc.schedule(newSharingPod("pod-1"))
		start := time.Now()
		assert.Equal(tCtx, []bool{false}, startPreFlight(tCtx, []*podCycle{cycle})())
		assert.Zero(tCtx, time.Since(start), "seconds that the pod waited")
		cycle.unreserve()
	})

	syncTest(t, "gate-off", func(tCtx ktesting.TContext) {
		feats := sharedClaimsFeatures()
		feats.EnableDRASharedClaims = false
		tc := newSharedClaimsTest(tCtx, feats, []*resourceapi.ResourceClaim{newAllocatedSharedClaim()})
		first, second := tc.schedule(newSharingPod("pod-1")), tc.schedule(newSharingPod("pod-2"))
		release := startPreBind(tc, first)
		start := time.Now()
		assert.Equal(tCtx, []bool{false}, startPreFlight(tCtx, []*podCycle{second})())
		assert.Zero(tCtx, time.Since(start), "seconds that the pod waited")
		release()
	})
}
