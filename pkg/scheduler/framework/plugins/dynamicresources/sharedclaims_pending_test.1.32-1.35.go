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

// The claim tracker of these releases has one pod for each pending allocation.

package dynamicresources

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// TestSharingClaimTracker covers how the pods get counted.
func TestSharingClaimTracker(t *testing.T) {
	syncTest(t, "", func(tCtx ktesting.TContext) {
		test := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), nil)
		tracker := test.p.pendingAllocations()
		first, second := newAllocatedSharedClaim(), newAllocatedSharedClaim()
		first.UID, second.UID = "claim", "claim"

		assert.Nil(tCtx, tracker.GetPendingAllocation("claim"))
		assert.False(tCtx, tracker.MaybeRemoveClaimPendingAllocation("claim", false), "nothing to remove")

		require.NoError(tCtx, tracker.SignalClaimPendingAllocation("claim", first))
		for range 2 {
			require.NoError(tCtx, tracker.SignalClaimPendingAllocation("claim", second))
		}
		assert.Same(tCtx, first.Status.Allocation, tracker.GetPendingAllocation("claim"))
		for range 2 {
			assert.False(tCtx, tracker.MaybeRemoveClaimPendingAllocation("claim", false), "still in use")
		}
		assert.True(tCtx, tracker.MaybeRemoveClaimPendingAllocation("claim", false), "last pod")
		assert.Nil(tCtx, tracker.GetPendingAllocation("claim"))

		// Not counted anymore once the allocation is gone, no matter how.
		for name, remove := range map[string]func() bool{
			"force": func() bool { return tracker.MaybeRemoveClaimPendingAllocation("claim", true) },
			"other": func() bool { return test.draManager.ResourceClaims().RemoveClaimPendingAllocation("claim") },
		} {
			require.NoError(tCtx, tracker.SignalClaimPendingAllocation("claim", first))
			require.NoError(tCtx, tracker.SignalClaimPendingAllocation("claim", first))
			assert.True(tCtx, remove(), name)
			assert.False(tCtx, tracker.MaybeRemoveClaimPendingAllocation("claim", false), name)
			require.NoError(tCtx, tracker.SignalClaimPendingAllocation("claim", second))
			assert.Same(tCtx, second.Status.Allocation, tracker.GetPendingAllocation("claim"), name)
			assert.True(tCtx, tracker.MaybeRemoveClaimPendingAllocation("claim", false), name)
		}
	})
}

// otherDRAManager hides the type of the claim tracker.
type otherDRAManager struct {
	sharedDRAManager
}

func (m otherDRAManager) ResourceClaims() resourceClaimTracker {
	return struct{ resourceClaimTracker }{m.sharedDRAManager.ResourceClaims()}
}

// TestOtherClaimTracker covers a claim tracker where pods have to wait for
// a pending allocation.
func TestOtherClaimTracker(t *testing.T) {
	syncTest(t, "", func(tCtx ktesting.TContext) {
		test := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newSharedClaim()})
		test.p.draManager = otherDRAManager{test.draManager}

		first := test.schedule(newSharingPod("pod-1"))
		_, status := test.preFilter(newSharingPod("pod-2"))
		assert.Contains(tCtx, status.Message(), "in the process of being allocated")
		first.unreserve()
		assert.Empty(tCtx, test.listInFlightClaims())

		require.Nil(tCtx, test.schedule(newSharingPod("pod-3")).bind(tCtx))
		assert.Empty(tCtx, test.listInFlightClaims())
		require.Nil(tCtx, test.schedule(newSharingPod("pod-2")).bind(tCtx))
		assert.Equal(tCtx, []string{"pod-2", "pod-3"}, test.reservedFor())
	})
}
