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
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/ptr"
)

// fakeConsumer is a consumer for which always the same entry is needed.
type fakeConsumer struct {
	ref *resourceapi.ResourceClaimConsumerReference
	err error

	// only is true if the entry may only be added as the first one of its kind.
	only bool
}

func (c fakeConsumer) reservation(*resourceapi.ResourceClaim) (*resourceapi.ResourceClaimConsumerReference, error) {
	return c.ref, c.err
}

func (c fakeConsumer) admit(claim *resourceapi.ResourceClaim, ref resourceapi.ResourceClaimConsumerReference, missing []resourceapi.ResourceClaimConsumerReference) error {
	for _, other := range slices.Concat(claim.Status.ReservedFor, missing) {
		if c.only && other.Resource == ref.Resource {
			return fmt.Errorf("%s already", ref.Resource)
		}
	}
	return nil
}

func (c fakeConsumer) inUse(*resourceapi.ResourceClaim) bool {
	return false
}

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
	always := func(ref *resourceapi.ResourceClaimConsumerReference, err error) fakeConsumer {
		return fakeConsumer{ref: ref, err: err}
	}
	// forPod is a request of a pod which was scheduled for the given claim.
	forPod := func(name string, claim *resourceapi.ResourceClaim, allocation *resourceapi.AllocationResult) *claimReservation {
		return &claimReservation{pod: newSharingPod(name), claim: claim, allocation: allocation, consumer: &podConsumer{podUID: types.UID(name), binding: podRef(name)}}
	}
	// withAdmission is one whose entry may only be added as the first one of its kind.
	withAdmission := func(request *claimReservation) *claimReservation {
		ref, err := request.consumer.reservation(request.claim)
		request.consumer = fakeConsumer{ref: ref, err: err, only: true}
		return request
	}
	withReservation := func(request *claimReservation, consumer fakeConsumer) *claimReservation {
		request.consumer = consumer
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

// numClaims returns for how many claims there is a goroutine or a pod that waits.
func (r *claimReserver) numClaims() int {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return len(r.queues)
}

// TestClaimReserver ensures that no request gets lost, whatever the timing is.
func TestClaimReserver(t *testing.T) {
	tCtx := ktesting.Init(t)
	var mutex sync.Mutex
	stored := sets.New[string]()
	active := sets.New[types.UID]()
	reserver := newClaimReserver(tCtx, func(_ context.Context, requests []*claimReservation) {
		mutex.Lock()
		claimUID := requests[0].claim.UID
		if active.Has(claimUID) {
			tCtx.Errorf("claim %s is already being changed", claimUID)
		}
		active.Insert(claimUID)
		mutex.Unlock()
		defer func() {
			mutex.Lock()
			defer mutex.Unlock()
			active.Delete(claimUID)
		}()

		for _, request := range requests {
			if request.claim.UID != claimUID {
				tCtx.Errorf("got a request for claim %s among those for %s", request.claim.UID, claimUID)
			}
			if strings.HasSuffix(request.pod.Name, "7") {
				request.err = errors.New("fake failure for " + request.pod.Name)
				continue
			}
			request.result = request.claim
			mutex.Lock()
			stored.Insert(request.pod.Name)
			mutex.Unlock()
		}
	})

	var wg sync.WaitGroup
	for c := range 3 {
		claim := newSharedClaim()
		claim.UID = types.UID(fmt.Sprintf("claim-%d", c))
		for p := range 200 {
			wg.Go(func() {
				request := &claimReservation{
					pod:   newSharingPod(fmt.Sprintf("pod-%d-%d", c, p)),
					claim: claim,
					done:  make(chan struct{}),
				}
				ctx := context.Context(tCtx)
				canceled := p%10 == 3
				if canceled {
					c, cancel := context.WithCancel(ctx)
					cancel()
					ctx = c
				}
				result, err := reserver.reserve(ctx, request)
				mutex.Lock()
				done := stored.Has(request.pod.Name)
				mutex.Unlock()
				switch {
				case p%10 == 7:
					assert.ErrorContains(tCtx, err, request.pod.Name)
				case canceled:
					assert.Equal(tCtx, done, err == nil, "%s: the result must match what was stored", request.pod.Name)
				default:
					assert.NoError(tCtx, err)
					assert.Equal(tCtx, claim, result)
					assert.True(tCtx, done)
				}
			})
		}
	}
	wg.Wait()
	// The goroutines check once more for work before they stop.
	require.Eventually(tCtx, func() bool { return reserver.numClaims() == 0 }, time.Minute, time.Millisecond)
}

// TestSharedClaimsOneDevice schedules a pod again and again while another one is being bound, whose
// claim got the only device of the node. The device may not be given to a second claim.
func TestSharedClaimsOneDevice(t *testing.T) {
	const rounds = 250
	test := func(tCtx ktesting.TContext, tc *sharedClaimsTest) {
		// The claim tracker logs between steps which have to fit together.
		yield := funcr.New(func(string, string) { runtime.Gosched() }, funcr.Options{Verbosity: 10})
		tc.draManager.resourceClaimTracker.logger = yield
		tc.draManager.resourceClaimTracker.allocatedDevices.logger = yield
		first, second := newPodOfClaim("first"), newPodOfClaim("second")
		for range rounds {
			tc.bindBeside(first, second)
			claim, err := tc.p.claimClient(namespace).Get(tCtx, first.Name, metav1.GetOptions{})
			tCtx.ExpectNoError(err, "get claim")
			require.NotNil(tCtx, claim.Status.Allocation)
			claim.Status = resourceapi.ResourceClaimStatus{}
			_, err = tc.api.store(claim)
			tCtx.ExpectNoError(err, "deallocate claim")
			synctest.Wait()
		}
	}
	claims := []*resourceapi.ResourceClaim{
		st.MakeResourceClaim().Name("first").Namespace(namespace).Request(className).Obj(),
		st.MakeResourceClaim().Name("second").Namespace(namespace).Request(className).Obj(),
	}
	syncTest(t, "enabled", func(tCtx ktesting.TContext) {
		test(tCtx, newSharedClaimsTest(tCtx, sharedClaimsFeatures(), claims))
	})
	syncTest(t, "disabled", func(tCtx ktesting.TContext) {
		test(tCtx, newSharedClaimsTest(tCtx, withoutSharedClaims(), claims))
	})
}

// newPodOfClaim returns a pod with a claim of the same name.
func newPodOfClaim(name string) *v1.Pod {
	return st.MakePod().Name(name).Namespace(namespace).UID(name).
		PodResourceClaims(v1.PodResourceClaim{Name: resourceName, ResourceClaimName: ptr.To(name)}).
		Obj()
}

// bindBeside schedules and binds the first pod. The second pod may not get its node.
func (t *sharedClaimsTest) bindBeside(first, second *v1.Pod) {
	t.tCtx.Helper()
	cycle := t.schedule(first)
	var bound atomic.Bool
	var status *fwk.Status
	var binding sync.WaitGroup
	defer binding.Wait()
	binding.Go(func() {
		defer bound.Store(true)
		status = cycle.bind(t.tCtx)
	})
	for last := false; !last; {
		last = bound.Load()
		other, status := t.preFilter(second)
		require.Nil(t.tCtx, status, "PreFilter of %s", second.Name)
		require.NotContains(t.tCtx, other.filter(), nodeName, "nodes for %s", second.Name)
	}
	binding.Wait()
	require.Nil(t.tCtx, status, "PreBind of %s", first.Name)
}
