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
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
)

// preBindNotNeeded returns true if PreBind would not do anything because
// all claims can be used as they are. Pods without a claim for a workload are
// not affected.
func (pl *DynamicResources) preBindNotNeeded(state *stateData, pod *v1.Pod) bool {
	if !pl.fts.EnableDRAReservedForWorkloads ||
		state.claims.extendedResourceClaim() != nil {
		return false
	}

	forWorkload := false
	latestClaims := make([]*resourceapi.ResourceClaim, state.claims.len())
	for index, claim := range state.claims.all() {
		latest, err := pl.draManager.ResourceClaims().Get(claim.Namespace, claim.Name)
		if err != nil {
			return false
		}
		if state.informationsForClaim[index].reservation != nil {
			forWorkload = true
		}
		if newClaimReservation(state, index, pod).check(latest) != nil || hasAnyBindingCondition(latest.Status.Allocation) {
			return false
		}
		latestClaims[index] = latest
	}

	if !forWorkload {
		return false
	}
	if pl.fh.GetWaitingPod(pod.UID) != nil {
		// Much can happen while the pod waits in Permit. PreBind looks again.
		return false
	}
	for index, claim := range latestClaims {
		pl.releasePendingAllocation(state, index)
		state.claims.set(index, claim)
	}
	return true
}
