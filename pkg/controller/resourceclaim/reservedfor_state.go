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

package resourceclaim

import (
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	resourceclaimmetrics "k8s.io/kubernetes/pkg/controller/resourceclaim/metrics"
	"k8s.io/kubernetes/pkg/controller/resourceclaim/owners"
)

// maxReleased limits how many former consumers of a claim get remembered.
const maxReleased = 4

// claimState is what the controller remembers about one claim. Nothing gets
// lost when it is gone, it merely may take longer.
type claimState struct {
	uid types.UID

	// unreservedSince is when the allocated claim was first seen to be not
	// reserved. Zero if it is reserved.
	unreservedSince time.Time

	// idleSince is when the claim was first seen to be not used by any pod.
	// Zero if it is used or that was not checked.
	idleSince time.Time

	// invalidIdle is the value of the annotation that the user was
	// told about because it is invalid, nil if none.
	invalidIdle *string

	// ownerReason is why it is not known to which workload some pod belongs, as
	// the user was told.
	ownerReason owners.Reason

	// released are those workloads for which the claim was reserved most
	// recently. Empty while it is reserved.
	released []resourceapi.ResourceClaimConsumerReference

	// lastUser is the name of the pod which was last found to use the claim.
	lastUser string

	// notices contains what users may need to know about some workload.
	notices map[types.UID]*notice
}

// notice describes why the reservation for a workload is kept although the
// workload might not need it anymore.
type notice struct {
	state string
	// due is when users get told. Zero if they were and need not be told again.
	due time.Time
}

func (n *notice) drop() {
	resourceclaimmetrics.WaitingWorkloadReservations.WithLabelValues(n.state).Dec()
}

func (s *claimState) drop() {
	for _, n := range s.notices {
		n.drop()
	}
}

func claimName(claim *resourceapi.ResourceClaim) types.NamespacedName {
	return types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}
}

// state returns what is remembered about the claim, perhaps nothing yet. It must
// be called with the mutex locked.
func (w *workloads) state(claim *resourceapi.ResourceClaim) *claimState {
	state := w.existingState(claim)
	if state == nil {
		state = &claimState{uid: claim.UID, notices: make(map[types.UID]*notice)}
		w.claims[claimName(claim)] = state
	}
	return state
}

// existingState is the same as state, except that it may return nil.
func (w *workloads) existingState(claim *resourceapi.ResourceClaim) *claimState {
	state := w.claims[claimName(claim)]
	if state != nil && state.uid != claim.UID {
		w.dropState(claimName(claim))
		return nil
	}
	return state
}

// dropState must be called with the mutex locked.
func (w *workloads) dropState(name types.NamespacedName) {
	if state := w.claims[name]; state != nil {
		state.drop()
		delete(w.claims, name)
	}
}

func (w *workloads) forget(name types.NamespacedName) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.dropState(name)
}

// forgetRemovedClaim must be called after processing a claim. While that was
// done, the claim may have been removed and its state together with it. What
// was remembered after that would be remembered for ever.
func (ec *Controller) forgetRemovedClaim(namespace, name string) {
	w := ec.workloads
	key := types.NamespacedName{Namespace: namespace, Name: name}
	w.mutex.Lock()
	state, generated := w.claims[key], w.generated[key]
	w.mutex.Unlock()
	if state == nil && generated == nil {
		return
	}
	claim, err := ec.claimLister.ResourceClaims(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		ec.retryGenerated(key)
	} else if err == nil {
		ec.observeGenerated(nil, claim)
	}
	if state == nil {
		return
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if apierrors.IsNotFound(err) || err == nil && claim.UID != state.uid {
		w.dropState(key)
	}
}

// reserved must be called when the claim is in use again.
func (s *claimState) reserved() {
	s.unreservedSince = time.Time{}
	s.released = nil
}

// observeClaim gets called for each claim event before the claim gets enqueued.
func (ec *Controller) observeClaim(oldClaim, newClaim *resourceapi.ResourceClaim) {
	ec.observeGenerated(oldClaim, newClaim)
	w := ec.workloads
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if newClaim == nil {
		w.dropState(claimName(oldClaim))
		return
	}
	if newClaim.Status.Allocation == nil {
		w.dropState(claimName(newClaim))
		return
	}
	if oldClaim != nil && oldClaim.UID == newClaim.UID {
		ec.observeReservations(oldClaim, newClaim)
	}
	state := w.existingState(newClaim)
	if state == nil {
		return
	}
	if len(newClaim.Status.ReservedFor) > 0 {
		state.reserved()
	}
	for uid, n := range state.notices {
		reserved := slices.ContainsFunc(newClaim.Status.ReservedFor, func(ref resourceapi.ResourceClaimConsumerReference) bool { return ref.UID == uid })
		if uid != "" && !reserved {
			n.drop()
			delete(state.notices, uid)
		}
	}
}

// observeReservations remembers what a claim was reserved for, whoever changed
// that. It is called with the mutex locked.
func (ec *Controller) observeReservations(oldClaim, newClaim *resourceapi.ResourceClaim) {
	w := ec.workloads
	if len(newClaim.Status.ReservedFor) == 0 {
		var released []resourceapi.ResourceClaimConsumerReference
		for _, ref := range oldClaim.Status.ReservedFor {
			if !resourceclaim.IsPodReference(ref) {
				released = append(released, ref)
			}
		}
		if len(released) > 0 && ec.checksWorkloads(newClaim) {
			w.state(newClaim).released = released[max(0, len(released)-maxReleased):]
		}
		return
	}
	added := slices.ContainsFunc(newClaim.Status.ReservedFor, func(ref resourceapi.ResourceClaimConsumerReference) bool {
		return !slices.Contains(oldClaim.Status.ReservedFor, ref)
	})
	if !added {
		return
	}
	// A pod is about to use the claim.
	w.users.cancel(claimName(newClaim))
	if state := w.existingState(newClaim); state != nil {
		state.idleSince = time.Time{}
	}
}

// unreserved returns for how long the claim was not reserved and for what it was
// reserved before that. The time starts when this gets called for the first time
// after the claim was reserved.
func (w *workloads) unreserved(claim *resourceapi.ResourceClaim) (since time.Time, firstTime bool, released []resourceapi.ResourceClaimConsumerReference) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	state := w.state(claim)
	if state.unreservedSince.IsZero() {
		state.unreservedSince = w.clock.Now()
		firstTime = true
	}
	return state.unreservedSince, firstTime, slices.Clone(state.released)
}

// reserved undoes what unreserved may have remembered in the meantime because of an older revision of the claim.
func (w *workloads) reserved(claim *resourceapi.ResourceClaim) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if state := w.existingState(claim); state != nil {
		state.reserved()
	}
}

func (w *workloads) getReleased(claim *resourceapi.ResourceClaim) []resourceapi.ResourceClaimConsumerReference {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if state := w.existingState(claim); state != nil {
		return slices.Clone(state.released)
	}
	return nil
}

func (w *workloads) setLastUser(claim *resourceapi.ResourceClaim, podName string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.state(claim).lastUser = podName
}

func (w *workloads) getLastUser(claim *resourceapi.ResourceClaim) string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if state := w.existingState(claim); state != nil {
		return state.lastUser
	}
	return ""
}
