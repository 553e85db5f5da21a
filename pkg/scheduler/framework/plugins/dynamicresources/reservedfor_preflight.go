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
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
)

// maxFollow limits how long a pod waits before PreBind for another pod to store the allocation
// which both use. After that PreBind waits or stores it, once the nominated node of the pod is known.
const maxFollow = time.Second

// preBindNotNeeded returns true if PreBind would not do anything because
// all claims can be used as they are, if necessary after waiting for the pod which
// stores their allocation. Otherwise each pod of a workload that starts would cause one
// more write, for its nominated node. Pods without a claim for a workload are not affected.
func (pl *DynamicResources) preBindNotNeeded(ctx context.Context, state *stateData, pod *v1.Pod) bool {
	if !pl.fts.EnableDRAReservedForWorkloads ||
		state.claims.extendedResourceClaim() != nil {
		return false
	}

	forWorkload := false
	latestClaims := make([]*resourceapi.ResourceClaim, state.claims.len())
	follow := make(map[int]*claimReservation)
	for index, claim := range state.claims.all() {
		latest, err := pl.draManager.ResourceClaims().Get(claim.Namespace, claim.Name)
		if err != nil {
			return false
		}
		info := &state.informationsForClaim[index]
		forWorkload = forWorkload || info.reservation != nil
		request := newClaimReservation(state, index, pod)
		switch {
		case request.check(latest) == nil:
			latestClaims[index] = latest
		case info.reservation != nil && info.allocation != nil && info.pending != nil && !hasAnyBindingCondition(info.pending):
			// The pod for which the claim was allocated is about to store it.
			follow[index] = request
		default:
			return false
		}
	}
	if !forWorkload {
		return false
	}
	if pl.fh.GetWaitingPod(pod.UID) != nil {
		// Much can happen while the pod waits in Permit. PreBind looks again.
		return false
	}

	ctx, cancel := context.WithTimeoutCause(ctx, maxFollow, fmt.Errorf("the allocation was not stored within %s", maxFollow))
	defer cancel()
	for index, request := range follow {
		stored, err := pl.claimReserver.follow(ctx, request, state.informationsForClaim[index].latest)
		if err != nil {
			return false
		}
		latestClaims[index] = stored
	}
	for _, claim := range latestClaims {
		if hasAnyBindingCondition(claim.Status.Allocation) {
			return false
		}
	}
	for index, claim := range latestClaims {
		pl.releasePendingAllocation(state, index)
		state.claims.set(index, claim)
	}
	return true
}
