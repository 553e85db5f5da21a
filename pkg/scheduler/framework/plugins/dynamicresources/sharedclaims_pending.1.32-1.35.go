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
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The claim tracker of these releases has one pod for each pending allocation. This file adds
// what the one of later releases does.

// pendingAllocationSharers counts the pods which use an allocation that is not stored yet, without
// the one for which it was made.
type pendingAllocationSharers struct {
	// mutex protects the counters and ensures that they match the in-flight
	// allocations.
	mutex   sync.Mutex
	sharers map[types.UID]int
}

var _ pendingAllocationTracker = sharingClaimTracker{}

// sharingClaimTracker is a claimTracker where several pods can use the same pending allocation. All
// other methods are those of the claimTracker.
type sharingClaimTracker struct {
	*claimTracker
}

func (c sharingClaimTracker) GetPendingAllocation(claimUID types.UID) *resourceapi.AllocationResult {
	claim, found := c.inFlightAllocations.Load(claimUID)
	if !found {
		return nil
	}
	return claim.(*resourceapi.ResourceClaim).Status.Allocation
}

func (c sharingClaimTracker) SignalClaimPendingAllocation(claimUID types.UID, allocatedClaim *resourceapi.ResourceClaim) error {
	c.pendingSharers.mutex.Lock()
	defer c.pendingSharers.mutex.Unlock()

	if _, found := c.inFlightAllocations.Load(claimUID); !found {
		delete(c.pendingSharers.sharers, claimUID)
		return c.claimTracker.SignalClaimPendingAllocation(claimUID, allocatedClaim)
	}
	if c.pendingSharers.sharers == nil {
		c.pendingSharers.sharers = make(map[types.UID]int)
	}
	c.pendingSharers.sharers[claimUID]++
	return nil
}

func (c sharingClaimTracker) MaybeRemoveClaimPendingAllocation(claimUID types.UID, forceRemove bool) (deleted bool) {
	c.pendingSharers.mutex.Lock()
	defer c.pendingSharers.mutex.Unlock()

	if _, found := c.inFlightAllocations.Load(claimUID); found && !forceRemove && c.pendingSharers.sharers[claimUID] > 0 {
		c.pendingSharers.sharers[claimUID]--
		return false
	}
	delete(c.pendingSharers.sharers, claimUID)
	return c.claimTracker.RemoveClaimPendingAllocation(claimUID)
}

// unsharedClaimTracker is what is needed of another claim tracker. Its interface stands in a
// package that depends on the release.
type unsharedClaimTracker interface {
	SignalClaimPendingAllocation(claimUID types.UID, allocatedClaim *resourceapi.ResourceClaim) error
	RemoveClaimPendingAllocation(claimUID types.UID) (deleted bool)
}

var _ pendingAllocationTracker = otherClaimTracker{}

// otherClaimTracker is used when something else implements the claim tracker, like in the Cluster
// Autoscaler. Then pods do not share a pending allocation.
type otherClaimTracker struct {
	unsharedClaimTracker
}

func (c otherClaimTracker) GetPendingAllocation(types.UID) *resourceapi.AllocationResult {
	return nil
}

func (c otherClaimTracker) MaybeRemoveClaimPendingAllocation(claimUID types.UID, forceRemove bool) (deleted bool) {
	return c.RemoveClaimPendingAllocation(claimUID)
}

func (pl *DynamicResources) pendingAllocations() pendingAllocationTracker {
	switch tracker := pl.draManager.ResourceClaims().(type) {
	case *claimTracker:
		return sharingClaimTracker{tracker}
	default:
		return otherClaimTracker{tracker}
	}
}
