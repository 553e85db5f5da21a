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
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// hintAfter returns whether a pod tries again after another one failed.
func (t *sharedClaimsTest) hintAfter(failed, pod *v1.Pod) fwk.QueueingHint {
	t.tCtx.Helper()
	hint, err := t.p.isSchedulableAfterWithdrawal(t.tCtx.Logger(), pod, failed, nil)
	t.tCtx.ExpectNoError(err)
	return hint
}

// TestFullOfSharers covers more pods than a claim has room for, none of which is in its list yet. All
// pods of a gang get through Reserve before the first one is bound: then some of
// them would be bound, and the others never.
func TestFullOfSharers(t *testing.T) {
	const free = 3
	schedule := func(tc *sharedClaimsTest) (cycles []*podCycle) {
		for i := range free {
			cycles = append(cycles, tc.schedule(newSharingPod(fmt.Sprintf("pod-%d", i))))
		}
		return cycles
	}
	allocated := func() []*resourceapi.ResourceClaim {
		return []*resourceapi.ResourceClaim{newAllocatedSharedClaim(podReferences(resourceapi.ResourceClaimReservedForMaxSize - free)...)}
	}
	waiting := newSharingPod("waiting")

	syncTest(t, "bound", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), allocated())
		cycles := schedule(tc)
		_, status := tc.preFilter(waiting)
		require.Equal(tCtx, fwk.UnschedulableAndUnresolvable, status.Code())
		assert.Contains(tCtx, status.Message(), "already reserved for 256 consumers or about to be")
		// Once more, as pods of a group are.
		require.Nil(tCtx, tc.p.Reserve(tCtx, cycles[0].state, cycles[0].pod, nodeName))
		requireAllBound(tCtx, tc.bindAll(cycles))
		assert.Len(tCtx, tc.claim().Status.ReservedFor, resourceapi.ResourceClaimReservedForMaxSize)
		assert.Empty(tCtx, tc.p.claimReserver.inFlight.sharers)
		assert.Equal(tCtx, fwk.QueueSkip, tc.hintAfter(cycles[0].pod, waiting), "a pod that was bound gave nothing back")
	})

	syncTest(t, "unreserved", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), allocated())
		cycles := schedule(tc)
		_, status := tc.preFilter(waiting)
		require.False(tCtx, status.IsSuccess())
		cycles[1].unreserve()
		assert.Equal(tCtx, fwk.Queue, tc.hintAfter(cycles[1].pod, waiting))
		require.Nil(tCtx, tc.schedule(waiting).bind(tCtx))
		cycles[1].unreserve()
		requireAllBound(tCtx, tc.bindAll([]*podCycle{cycles[0], cycles[2]}))
		assert.Empty(tCtx, tc.p.claimReserver.inFlight.sharers)
	})

	syncTest(t, "gate-off", func(tCtx ktesting.TContext) {
		feats := sharedClaimsFeatures()
		feats.EnableDRASharedClaims = false
		tc := newSharedClaimsTest(tCtx, feats, allocated())
		schedule(tc)
		_, status := tc.preFilter(waiting)
		assert.True(tCtx, status.IsSuccess())
	})
}

// TestWithdrawnDevice covers a pod that waits for a device which was allocated to another pod, but never
// stored: no claim changes when that fails.
func TestWithdrawnDevice(t *testing.T) {
	for name, claim := range map[string]*resourceapi.ResourceClaim{"shared": newSharedClaim(), "of-one-pod": pendingClaim} {
		syncTest(t, name, func(tCtx ktesting.TContext) {
			tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{claim})
			pod := newSharingPod("pod-1")
			if claim == pendingClaim {
				pod = podWithClaimName
			}
			waiting := newSharingPod("waiting")
			cycle := tc.schedule(pod)
			assert.Equal(tCtx, fwk.QueueSkip, tc.hintAfter(pod, waiting))
			tc.api.before = func(string, *resourceapi.ResourceClaim) error { return errors.New("fake API failure") }
			require.NotNil(tCtx, cycle.bind(tCtx))
			cycle.unreserve()
			require.Empty(tCtx, tc.listInFlightClaims())
			assert.Equal(tCtx, fwk.Queue, tc.hintAfter(pod, waiting))
			assert.Equal(tCtx, fwk.QueueSkip, tc.hintAfter(waiting, pod), "some other pod")

			events, err := tc.p.EventsToRegister(tCtx)
			require.NoError(tCtx, err)
			assert.True(tCtx, slices.ContainsFunc(events, func(event fwk.ClusterEventWithHint) bool {
				return event.Event == fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Delete} && event.QueueingHintFn != nil
			}), "the event is registered")

			tc.api.before = nil
			require.Nil(tCtx, tc.schedule(pod).bind(tCtx))
		})
	}
}

// TestWithdrawnIsForgotten ensures that pods which failed do not take memory for ever.
func TestWithdrawnIsForgotten(t *testing.T) {
	var f inFlight
	now := time.Now()
	for i := range 1000 {
		f.withdraw(types.UID(fmt.Sprint(i)), now)
	}
	f.withdraw("last", now.Add(withdrawnTTL+time.Second))
	assert.Len(t, f.withdrawn, 1)
}
