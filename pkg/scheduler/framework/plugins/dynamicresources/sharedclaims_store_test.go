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

	"github.com/stretchr/testify/assert"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestPlanReservations covers what is decided about one revision of a claim.
func TestPlanReservations(t *testing.T) {
	pending := allocationResult.DeepCopy()
	otherAllocation := allocationResult.DeepCopy()
	otherAllocation.Devices.Results[0].Device = "some-other-device"
	workload := resourceapi.ResourceClaimConsumerReference{APIGroup: "batch", Resource: "jobs", Name: "train", UID: "train-uid"}
	podRef := func(name string) resourceapi.ResourceClaimConsumerReference {
		return resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: name, UID: types.UID(name)}
	}
	unallocated := newSharedClaim()
	always := func(ref *resourceapi.ResourceClaimConsumerReference, err error) reservationFunc {
		return func(*resourceapi.ResourceClaim) (*resourceapi.ResourceClaimConsumerReference, error) { return ref, err }
	}
	// forPod is a request of a pod which was scheduled for the given claim.
	forPod := func(name string, claim *resourceapi.ResourceClaim, allocation *resourceapi.AllocationResult) *claimReservation {
		ref := podRef(name)
		return &claimReservation{pod: newSharingPod(name), claim: claim, allocation: allocation, reservation: always(&ref, nil)}
	}
	// withAdmission is one whose entry may only be added as the first one of its kind.
	withAdmission := func(request *claimReservation) *claimReservation {
		request.admit = func(claim *resourceapi.ResourceClaim, ref resourceapi.ResourceClaimConsumerReference, missing []resourceapi.ResourceClaimConsumerReference) error {
			for _, other := range slices.Concat(claim.Status.ReservedFor, missing) {
				if other.Resource == ref.Resource {
					return fmt.Errorf("%s already", ref.Resource)
				}
			}
			return nil
		}
		return request
	}
	withReservation := func(request *claimReservation, reservation reservationFunc) *claimReservation {
		request.reservation = reservation
		return request
	}
	addedBefore := func(request *claimReservation) *claimReservation {
		request.added = true
		return request
	}
	change := func(claim *resourceapi.ResourceClaim, cb func(claim *resourceapi.ResourceClaim)) *resourceapi.ResourceClaim {
		claim = claim.DeepCopy()
		cb(claim)
		return claim
	}
	allocated := newAllocatedSharedClaim(podRef("listed"))
	otherWorkload := workload
	otherWorkload.UID = "other-uid"
	full := newAllocatedSharedClaim(podReferences(resourceapi.ResourceClaimReservedForMaxSize - 1)...)
	now := metav1.Now()

	for name, tc := range map[string]struct {
		claim      *resourceapi.ResourceClaim
		requests   []*claimReservation
		decisions  []reservationDecision
		errs       []string
		allocation *resourceapi.AllocationResult
		missing    []resourceapi.ResourceClaimConsumerReference
		undo       []types.UID
	}{
		"listed": {
			claim:     allocated,
			requests:  []*claimReservation{forPod("listed", allocated, nil)},
			decisions: []reservationDecision{reservationUsable},
		},
		"not-listed": {
			claim:     allocated,
			requests:  []*claimReservation{forPod("a", allocated, nil), forPod("listed", allocated, nil), forPod("b", allocated, nil)},
			decisions: []reservationDecision{reservationAdded, reservationUsable, reservationAdded},
			missing:   []resourceapi.ResourceClaimConsumerReference{podRef("a"), podRef("b")},
		},
		"no-entry-needed": {
			claim:     allocated,
			requests:  []*claimReservation{withReservation(forPod("a", allocated, nil), always(nil, nil))},
			decisions: []reservationDecision{reservationUsable},
		},
		"same-entry": {
			claim: allocated,
			requests: []*claimReservation{
				withReservation(forPod("a", allocated, nil), always(&workload, nil)),
				withReservation(forPod("b", allocated, nil), always(&workload, nil)),
			},
			decisions: []reservationDecision{reservationAdded, reservationCovered},
			missing:   []resourceapi.ResourceClaimConsumerReference{workload},
		},
		"not-admitted": {
			claim: allocated,
			requests: []*claimReservation{
				withAdmission(forPod("a", allocated, nil)),
				withAdmission(withReservation(forPod("b", allocated, nil), always(&workload, nil))),
				withAdmission(withReservation(forPod("c", allocated, nil), always(&otherWorkload, nil))),
				withAdmission(withReservation(forPod("d", allocated, nil), always(&workload, nil))),
				withAdmission(forPod("listed", allocated, nil)),
				forPod("e", allocated, nil),
			},
			decisions: []reservationDecision{reservationRejected, reservationAdded, reservationRejected, reservationCovered, reservationUsable, reservationAdded},
			errs:      []string{"pods already", "", "jobs already", "", "", ""},
			missing:   []resourceapi.ResourceClaimConsumerReference{workload, podRef("e")},
		},
		"pending": {
			claim: unallocated,
			requests: []*claimReservation{
				forPod("a", unallocated, pending),
				withReservation(forPod("b", unallocated, pending), always(nil, nil)),
			},
			decisions:  []reservationDecision{reservationAdded, reservationCovered},
			allocation: pending,
			missing:    []resourceapi.ResourceClaimConsumerReference{podRef("a")},
		},
		"pending-differs": {
			claim:      unallocated,
			requests:   []*claimReservation{forPod("a", unallocated, pending), forPod("b", unallocated, otherAllocation)},
			decisions:  []reservationDecision{reservationAdded, reservationRejected},
			errs:       []string{"", "about to be allocated differently"},
			allocation: pending,
			missing:    []resourceapi.ResourceClaimConsumerReference{podRef("a")},
		},
		"stored-by-someone": {
			claim:     allocated,
			requests:  []*claimReservation{forPod("listed", unallocated, pending), forPod("a", unallocated, otherAllocation)},
			decisions: []reservationDecision{reservationUsable, reservationRejected},
			errs:      []string{"", "got allocated elsewhere"},
		},
		"deallocated": {
			claim:     unallocated,
			requests:  []*claimReservation{forPod("a", allocated, nil)},
			decisions: []reservationDecision{reservationRejected},
			errs:      []string{"got deallocated"},
		},
		"deallocated-for-some": {
			claim:      unallocated,
			requests:   []*claimReservation{forPod("a", allocated, nil), forPod("b", unallocated, pending)},
			decisions:  []reservationDecision{reservationRejected, reservationAdded},
			errs:       []string{"got deallocated", ""},
			allocation: pending,
			missing:    []resourceapi.ResourceClaimConsumerReference{podRef("b")},
		},
		"replaced": {
			claim:     change(allocated, func(claim *resourceapi.ResourceClaim) { claim.UID = "other" }),
			requests:  []*claimReservation{forPod("a", allocated, nil)},
			decisions: []reservationDecision{reservationRejected},
			errs:      []string{"got replaced"},
		},
		"deleted": {
			claim:     change(allocated, func(claim *resourceapi.ResourceClaim) { claim.DeletionTimestamp = &now }),
			requests:  []*claimReservation{forPod("listed", allocated, nil)},
			decisions: []reservationDecision{reservationRejected},
			errs:      []string{"got deleted"},
		},
		"no-reservation": {
			claim:     allocated,
			requests:  []*claimReservation{withReservation(forPod("a", allocated, nil), always(nil, errors.New("not reserved anymore"))), forPod("b", allocated, nil)},
			decisions: []reservationDecision{reservationRejected, reservationAdded},
			errs:      []string{"not reserved anymore", ""},
			missing:   []resourceapi.ResourceClaimConsumerReference{podRef("b")},
		},
		"full": {
			claim:     full,
			requests:  []*claimReservation{forPod("a", full, nil), forPod("b", full, nil), forPod("other-pod-1", full, nil)},
			decisions: []reservationDecision{reservationAdded, reservationRejected, reservationUsable},
			errs:      []string{"", "already reserved for 256 consumers", ""},
			missing:   []resourceapi.ResourceClaimConsumerReference{podRef("a")},
		},
		"undo": {
			claim: change(allocated, func(claim *resourceapi.ResourceClaim) { claim.Status.Allocation = otherAllocation }),
			requests: []*claimReservation{
				addedBefore(forPod("listed", allocated, nil)),
				addedBefore(forPod("not-listed", allocated, nil)),
				forPod("not-added", allocated, nil),
			},
			decisions: []reservationDecision{reservationRejected, reservationRejected, reservationRejected},
			errs:      []string{"got allocated elsewhere", "got allocated elsewhere", "got allocated elsewhere"},
			undo:      []types.UID{"listed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.claim.DeepCopy()
			plan := planReservations(tc.claim, tc.requests)
			assert.Equal(t, before, tc.claim, "must not be modified")
			assert.Equal(t, tc.decisions, plan.decisions)
			for i, err := range plan.errs {
				if tc.decisions[i] != reservationRejected {
					assert.NoError(t, err)
					continue
				}
				assert.ErrorContains(t, err, tc.errs[i])
			}
			assert.Same(t, tc.allocation, plan.allocation)
			assert.Equal(t, tc.missing, plan.missing)
			assert.Equal(t, tc.undo, plan.undo)

			var open []*claimReservation
			for i, decision := range tc.decisions {
				if decision == reservationAdded || decision == reservationCovered {
					open = append(open, tc.requests[i])
				}
			}
			assert.Equal(t, open, plan.apply(tc.claim, tc.requests))
			for i, request := range tc.requests {
				assert.Equal(t, tc.decisions[i] == reservationUsable, request.result == tc.claim)
				assert.Equal(t, tc.decisions[i] == reservationRejected, request.err != nil)
			}
		})
	}
}
