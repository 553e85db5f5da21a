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
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
)

// maxFollow limits how long a pod waits before PreBind for what is written for other pods.
// After that PreBind waits or writes, once the nominated node of the pod is known.
const maxFollow = time.Second

// errNothingToFollow is returned if no write of a claim is going on.
var errNothingToFollow = errors.New("nothing is being written for other pods")

// preBindNotNeeded returns true if PreBind would not do anything because
// all claims can be used as they are, if necessary after waiting for a write that another
// pod starts in PreBind. Otherwise each of many pods that get scheduled at the same time
// would cause one more write, for its nominated node. Pods which neither had to wait nor have
// a claim for a workload are not affected.
func (pl *DynamicResources) preBindNotNeeded(ctx context.Context, state *stateData, pod *v1.Pod) bool {
	if !pl.fts.EnableDRASharedClaims ||
		state.claims.extendedResourceClaim() != nil {
		return false
	}
	latestClaims, follow := pl.lookBeforePreBind(state, pod)
	if latestClaims == nil ||
		len(follow) == 0 && !slices.ContainsFunc(state.informationsForClaim, func(info informationForClaim) bool { return info.workload != nil }) {
		return false
	}
	if pl.fh.GetWaitingPod(pod.UID) != nil {
		// Much can happen while the pod waits in Permit. PreBind looks again.
		return false
	}

	ctx, cancel := context.WithTimeoutCause(ctx, maxFollow, fmt.Errorf("nothing was written for other pods within %s", maxFollow))
	defer cancel()
	for _, index := range follow {
		request := newClaimReservation(state, index, pod)
		claim, err := pl.claimReserver.follow(ctx, request, func() (*resourceapi.ResourceClaim, error) {
			return pl.draManager.ResourceClaims().Get(request.claim.Namespace, request.claim.Name)
		})
		if err != nil {
			return false
		}
		latestClaims[index] = claim
		// Unreserve has to find the entry for the pod, whatever happens to other claims.
		state.claims.set(index, claim)
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

// lookBeforePreBind returns the latest revision of all claims, and the indices of those which the
// pod cannot use yet, but perhaps soon. It returns nil if the pod needs PreBind.
func (pl *DynamicResources) lookBeforePreBind(state *stateData, pod *v1.Pod) (latestClaims []*resourceapi.ResourceClaim, follow []int) {
	var inFlight []int
	for index, claim := range state.claims.all() {
		latest, err := pl.draManager.ResourceClaims().Get(claim.Namespace, claim.Name)
		if err != nil {
			return nil, nil
		}
		latestClaims = append(latestClaims, latest)
		info := &state.informationsForClaim[index]
		request := newClaimReservation(state, index, pod)
		switch {
		case request.check(latest) == nil:
		case !info.shared, info.allocation != nil && info.pending == nil, hasAnyBindingCondition(request.expectedAllocation()):
			// PreBind has to write for this pod, or to wait for the device.
			return nil, nil
		case info.allocation == nil:
			follow = append(follow, index)
		default:
			inFlight = append(inFlight, index)
		}
	}
	// Those first for which it may turn out that there is nothing to wait for.
	return latestClaims, append(follow, inFlight...)
}

// follow does the same as reserve, but leaves it to some other pod to start the next change. If none
// is going to do that, then it returns errNothingToFollow at once. latest returns what is in the
// cache. It is needed because the last change may have been made just now.
func (r *claimReserver) follow(ctx context.Context, request *claimReservation, latest func() (*resourceapi.ResourceClaim, error)) (*resourceapi.ResourceClaim, error) {
	running := r.add(request, false)
	if claim, err := latest(); err == nil && request.check(claim) == nil && r.remove(request) {
		return claim, nil
	}
	// While the allocation is in flight, the pod for which it was made has to store it.
	if !running && request.allocation == nil && r.remove(request) {
		return nil, errNothingToFollow
	}
	return r.wait(ctx, request)
}

// hasAnyBindingCondition returns true if a pod may have to wait for the devices.
func hasAnyBindingCondition(allocation *resourceapi.AllocationResult) bool {
	return slices.ContainsFunc(allocation.Devices.Results, func(result resourceapi.DeviceRequestAllocationResult) bool {
		return len(result.BindingConditions) > 0
	})
}
