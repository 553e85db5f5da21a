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
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
)

// This file contains how the changes of a claim that several pods need are
// written: who writes (claimReserver), what has to be written
// (planReservations), writing it (writeReservations), and making the result
// known (publishReservations).

const (
	// claimWriteTimeout limits how long pods wait for the answer to one
	// request that changes a claim.
	claimWriteTimeout = 30 * time.Second

	// maxClaimWriteAttempts limits how often one combined change gets sent to
	// the API server when it keeps getting rejected because of changes made
	// by someone else.
	maxClaimWriteAttempts = 10
)

// claimReserver combines the changes of a claim which are needed by different pods.
//
// There is at most one goroutine per claim. While it is busy with one combined
// change, other pods wait. The next change then includes all of them.
type claimReserver struct {
	// ctx ends when the scheduler stops. What is done for several pods must
	// neither be canceled with one of them nor log in the context of that one.
	ctx context.Context

	// store sets result or err for all requests, which are for the same claim.
	store func(ctx context.Context, requests []*claimReservation)

	inFlight inFlight

	// wakingUp is true while pods are about to be woken up.
	wakingUp atomic.Bool

	// looks limits how many uncertain claims are being looked at at the same time.
	looks chan struct{}

	mutex sync.Mutex

	// queues has the claims for which a pod waits or a goroutine is running.
	queues map[types.UID]*claimQueue
}

// claimQueue has the pods which wait for the next combined change of a claim.
type claimQueue struct {
	waiting []*claimReservation

	// running is true while a goroutine is taking care of the claim.
	running bool
}

func newClaimReserver(ctx context.Context, store func(ctx context.Context, requests []*claimReservation)) *claimReserver {
	return &claimReserver{
		ctx:    ctx,
		store:  store,
		looks:  make(chan struct{}, maxClaimLooks),
		queues: make(map[types.UID]*claimQueue),
	}
}

// reserve blocks until the request is done. If it gets canceled before its turn,
// then nothing has been changed. Otherwise the result is returned
// because the caller needs to know what to undo.
func (r *claimReserver) reserve(ctx context.Context, request *claimReservation) (*resourceapi.ResourceClaim, error) {
	r.add(request, true)
	return r.wait(ctx, request)
}

// add returns true if there is a goroutine which is going to take care of the request.
func (r *claimReserver) add(request *claimReservation, start bool) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()

	claimUID := request.claim.UID
	queue := r.queues[claimUID]
	if queue == nil {
		queue = &claimQueue{}
		r.queues[claimUID] = queue
	}
	queue.waiting = append(queue.waiting, request)
	if start && !queue.running {
		queue.running = true
		go r.run(claimUID, queue)
	}
	return queue.running
}

func (r *claimReserver) wait(ctx context.Context, request *claimReservation) (*resourceapi.ResourceClaim, error) {
	select {
	case <-request.done:
	case <-ctx.Done():
		if r.remove(request) {
			return nil, context.Cause(ctx)
		}
		<-request.done
	}
	return request.result, request.err
}

// remove returns true if the request was still waiting.
func (r *claimReserver) remove(request *claimReservation) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()

	claimUID := request.claim.UID
	queue := r.queues[claimUID]
	if queue == nil {
		return false
	}
	index := slices.Index(queue.waiting, request)
	if index < 0 {
		return false
	}
	queue.waiting = slices.Delete(queue.waiting, index, index+1)
	if len(queue.waiting) == 0 && !queue.running {
		delete(r.queues, claimUID)
	}
	return true
}

func (r *claimReserver) run(claimUID types.UID, queue *claimQueue) {
	for {
		r.mutex.Lock()
		requests := queue.waiting
		if len(requests) == 0 {
			delete(r.queues, claimUID)
			r.mutex.Unlock()
			return
		}
		queue.waiting = nil
		r.mutex.Unlock()

		r.store(r.ctx, requests)

		for _, request := range requests {
			close(request.done)
		}
	}
}

// reservationDecision is what a revision of the claim means for one request.
type reservationDecision int

const (
	// reservationRejected means that the pod cannot use the claim anymore.
	reservationRejected reservationDecision = iota

	// reservationUsable means that the claim can be used as it is.
	reservationUsable

	// reservationAdded means that an entry has to be written for this request.
	reservationAdded

	// reservationCovered means that the pod needs what gets written, but
	// nothing in addition to what other requests need.
	reservationCovered
)

// reservationPlan is what has to be done about one revision of a claim.
type reservationPlan struct {
	// decisions has one entry per request.
	decisions []reservationDecision

	// errs has one entry per request, which is only set for rejected ones.
	errs []error

	// allocation has to be stored, nil if there is one already.
	allocation *resourceapi.AllocationResult

	// missing are the entries which have to be added to status.reservedFor.
	missing []resourceapi.ResourceClaimConsumerReference

	// undo lists pods which were added to status.reservedFor although, as it turned
	// out, they cannot use the claim.
	undo []types.UID
}

// planReservations decides what has to be written for the requests, all of
// which are for the given claim. It changes nothing.
func planReservations(claim *resourceapi.ResourceClaim, requests []*claimReservation) *reservationPlan {
	plan := &reservationPlan{
		decisions: make([]reservationDecision, len(requests)),
		errs:      make([]error, len(requests)),
	}
	for i, request := range requests {
		plan.decisions[i], plan.errs[i] = plan.decide(claim, request)
	}
	return plan
}

func (plan *reservationPlan) decide(claim *resourceapi.ResourceClaim, request *claimReservation) (reservationDecision, error) {
	ref, err := request.evaluate(claim)
	if err != nil {
		if request.added && isListed(claim, request.pod.UID) {
			plan.undo = append(plan.undo, request.pod.UID)
		}
		return reservationRejected, err
	}

	stored := claim.Status.Allocation != nil
	if !stored && plan.allocation != nil && !sameDevices(plan.allocation, request.allocation) {
		// Cannot happen, there is only one pending allocation.
		return reservationRejected, fmt.Errorf("claim %s is about to be allocated differently", klog.KObj(claim))
	}

	decision := reservationCovered
	switch {
	case ref == nil && stored:
		return reservationUsable, nil
	case ref == nil, slices.ContainsFunc(plan.missing, func(other resourceapi.ResourceClaimConsumerReference) bool { return other.UID == ref.UID }):
	case len(claim.Status.ReservedFor)+len(plan.missing) >= resourceapi.ResourceClaimReservedForMaxSize:
		return reservationRejected, fmt.Errorf("%s: %w", claimFullMessage(claim), errClaimFull)
	default:
		if err := request.consumer.admit(claim, *ref, plan.missing); err != nil {
			return reservationRejected, err
		}
		plan.missing = append(plan.missing, *ref)
		decision = reservationAdded
	}
	if !stored {
		plan.allocation = request.allocation
	}
	return decision, nil
}

// apply records in the requests what was decided. It returns those for which
// something has to be written.
func (plan *reservationPlan) apply(claim *resourceapi.ResourceClaim, requests []*claimReservation) []*claimReservation {
	var open []*claimReservation
	added := 0
	for i, request := range requests {
		switch plan.decisions[i] {
		case reservationRejected:
			request.err = plan.errs[i]
		case reservationUsable:
			request.result = claim
		case reservationAdded:
			request.added = plan.missing[added].UID == request.pod.UID
			added++
			open = append(open, request)
		case reservationCovered:
			open = append(open, request)
		}
	}
	return open
}

// claimWrites is the outcome of all writes for one set of requests.
type claimWrites struct {
	// claim is the latest known revision, nil if there is none.
	claim *resourceapi.ResourceClaim

	// modified is true if the claim is not from the cache.
	modified bool

	// uncertain is an allocation which was sent to the API server with unknown result.
	uncertain *resourceapi.AllocationResult
}

// storeReservations makes all changes of a claim which are needed by the given pods.
func (pl *DynamicResources) storeReservations(ctx context.Context, requests []*claimReservation) {
	writes := &claimWrites{}
	open, err := pl.writeReservations(ctx, requests, writes)
	for _, request := range open {
		request.err = err
	}
	pl.publishReservations(klog.FromContext(ctx), requests, writes)
}

// writeReservations writes until there is nothing left to do for any of the requests. The
// result of each write is checked like any other new revision of the claim.
// It returns the requests which could not be completed and why.
func (pl *DynamicResources) writeReservations(ctx context.Context, requests []*claimReservation, writes *claimWrites) ([]*claimReservation, error) {
	logger := klog.FromContext(ctx)
	claim, err := pl.draManager.ResourceClaims().Get(requests[0].claim.Namespace, requests[0].claim.Name)
	if err != nil {
		return requests, err
	}
	writes.claim = claim
	open := requests
	var lastErr error
	backoff := retry.DefaultRetry
	for attempt := 0; ; attempt++ {
		claim := writes.claim
		plan := planReservations(claim, open)
		open = plan.apply(claim, open)
		if len(plan.undo) > 0 {
			pl.removeReservations(ctx, claim, plan.undo)
		}
		if len(open) == 0 {
			return nil, nil
		}
		if isUncertain(lastErr) {
			// It was looked at after the write. What is not there is
			// not known to be stored.
			return open, lastErr
		}
		if attempt >= maxClaimWriteAttempts {
			return open, fmt.Errorf("giving up on claim %s after %d attempts: %w", klog.KObj(claim), attempt, lastErr)
		}

		logger.V(5).Info("updating claim", "claim", klog.KObj(claim), "resourceVersion", claim.ResourceVersion, "numPods", len(open), "reservations", plan.missing, "allocation", klog.Format(plan.allocation))
		var updatedClaim *resourceapi.ResourceClaim
		updatedClaim, lastErr = pl.writePlan(ctx, claim, plan)
		if lastErr != nil {
			if isUncertain(lastErr) {
				writes.uncertain = plan.allocation
			}
			updatedClaim, err = pl.claimAfterError(ctx, claim, lastErr, backoff.Step())
			if err != nil {
				return open, err
			}
		}
		writes.claim = updatedClaim
		writes.modified = true
	}
}

func (pl *DynamicResources) writePlan(ctx context.Context, claim *resourceapi.ResourceClaim, plan *reservationPlan) (*resourceapi.ResourceClaim, error) {
	if plan.allocation != nil {
		return pl.storeAllocation(ctx, claim, plan.allocation, plan.missing)
	}
	return pl.addReservations(ctx, claim, plan.missing)
}

// claimAfterError returns the latest claim if that one may tell how to go on
// after a failed write. Otherwise it returns why that is not possible.
func (pl *DynamicResources) claimAfterError(ctx context.Context, claim *resourceapi.ResourceClaim, writeErr error, delay time.Duration) (*resourceapi.ResourceClaim, error) {
	logger := klog.FromContext(ctx)
	conflict := apierrors.IsConflict(writeErr) || apierrors.IsInvalid(writeErr)
	switch {
	case conflict:
		// Probably the claim is not what it was anymore.
		logger.V(5).Info("retrying update with latest claim", "claim", klog.KObj(claim), "err", writeErr)
		select {
		case <-time.After(delay):
		case <-ctx.Done():
		}
	case isUncertain(writeErr):
		logger.V(2).Info("Unknown whether the claim was updated, looking at it", "claim", klog.KObj(claim), "err", writeErr)
	default:
		return nil, writeErr
	}

	latest, err := pl.getClaim(ctx, claim)
	switch {
	case err != nil && conflict:
		return nil, fmt.Errorf("get updated claim %s after conflict: %w", klog.KObj(claim), err)
	case err != nil:
		return nil, fmt.Errorf("%w; looking at the claim: %w", writeErr, err)
	case apierrors.IsInvalid(writeErr) && latest.ResourceVersion == claim.ResourceVersion:
		// Would get rejected again.
		return nil, writeErr
	}
	return latest, nil
}

// publishReservations makes the outcome known to the rest of the scheduler.
func (pl *DynamicResources) publishReservations(logger klog.Logger, requests []*claimReservation, writes *claimWrites) {
	claim := writes.claim
	if claim == nil {
		return
	}

	// If no pod was scheduled for the current allocation, then the informer has to
	// deliver what happened in the meantime.
	ours := slices.ContainsFunc(requests, func(request *claimReservation) bool {
		return request.result == claim ||
			request.claim.UID == claim.UID && request.allocation != nil && sameDevices(claim.Status.Allocation, request.allocation)
	})
	if writes.modified && ours {
		pl.assumeClaim(logger, claim)
	}

	// Once the allocation is in the cache, it is not needed in flight anymore, even if it
	// is still shared with other pods.
	for _, request := range requests {
		if request.allocation != nil && pl.isAllocatedInCache(request.claim) {
			pl.removePendingAllocation(logger, request.claim, request.allocation)
		}
	}

	if writes.uncertain != nil {
		pl.settleLater(logger, claim, writes.uncertain)
	}
}

func (pl *DynamicResources) assumeClaim(logger klog.Logger, claim *resourceapi.ResourceClaim) {
	// This can fail, but only for reasons that are okay (concurrent delete or update).
	if err := pl.draManager.ResourceClaims().AssumeClaimAfterAPICall(claim); err != nil {
		logger.V(5).Info("Claim not stored in assume cache", "err", err, "claim", klog.KObj(claim), "uid", claim.UID, "resourceVersion", claim.ResourceVersion)
		return
	}
	logger.V(5).Info("Claim stored in assume cache", "claim", klog.KObj(claim), "uid", claim.UID, "resourceVersion", claim.ResourceVersion)
}

// removePendingAllocation removes the allocation of the claim for all pods which use
// it, if it is still the pending one.
func (pl *DynamicResources) removePendingAllocation(logger klog.Logger, claim *resourceapi.ResourceClaim, allocation *resourceapi.AllocationResult) {
	if pl.pendingAllocations().GetPendingAllocation(claim.UID) == allocation {
		pl.pendingAllocations().MaybeRemoveClaimPendingAllocation(claim.UID, true)
		logger.V(5).Info("Removed claim from in-flight claims", "claim", klog.KObj(claim), "uid", claim.UID, "allocation", klog.Format(allocation))
	}
}

// storeAllocation stores the allocation together with the first reservations.
func (pl *DynamicResources) storeAllocation(ctx context.Context, claim *resourceapi.ResourceClaim, allocation *resourceapi.AllocationResult, reservations []resourceapi.ResourceClaimConsumerReference) (*resourceapi.ResourceClaim, error) {
	claim = claim.DeepCopy()

	// The finalizer needs to be added in a normal update.
	// If we were interrupted in the past, it might already be set and we simply continue.
	if !slices.Contains(claim.Finalizers, resourceapi.Finalizer) {
		claim.Finalizers = append(claim.Finalizers, resourceapi.Finalizer)
		updatedClaim, _, err := callAPI(ctx, claimWriteTimeout, func(ctx context.Context) (*resourceapi.ResourceClaim, error) {
			return pl.claimClient(claim.Namespace).Update(ctx, claim, metav1.UpdateOptions{})
		})
		if err != nil {
			return nil, fmt.Errorf("add finalizer to claim %s: %w", klog.KObj(claim), err)
		}
		claim = updatedClaim
	}

	// The pending allocation is shared with readers and must not be modified.
	claim.Status.Allocation = allocation.DeepCopy()
	pl.setAllocationTimestamp(claim.Status.Allocation)
	claim.Status.ReservedFor = append(claim.Status.ReservedFor, reservations...)
	updatedClaim, err := writeClaim(ctx, func(ctx context.Context) (*resourceapi.ResourceClaim, error) {
		return pl.claimClient(claim.Namespace).UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	})
	if err != nil {
		return nil, fmt.Errorf("add allocation and reservation to claim %s: %w", klog.KObj(claim), err)
	}
	return updatedClaim, nil
}

// addReservations adds entries to status.reservedFor.
//
// The API server rejects the patch if the claim was replaced, is being deleted,
// is not allocated anymore or cannot be reserved for that many consumers. Whether it
// still has the same allocation has to be checked by the caller.
func (pl *DynamicResources) addReservations(ctx context.Context, claim *resourceapi.ResourceClaim, reservations []resourceapi.ResourceClaimConsumerReference) (*resourceapi.ResourceClaim, error) {
	updatedClaim, err := pl.patchReservations(ctx, claim, "", reservations)
	if err != nil {
		return nil, fmt.Errorf("add reservation to claim %s: %w", klog.KObj(claim), err)
	}
	return updatedClaim, nil
}

// removeReservations removes entries which turned out to be useless. If that fails, then
// the entries remain until their pods get scheduled or removed.
func (pl *DynamicResources) removeReservations(ctx context.Context, claim *resourceapi.ResourceClaim, uids []types.UID) {
	logger := klog.FromContext(ctx)
	_, err := pl.patchReservations(ctx, claim, "", withoutEntries(uids))
	if err != nil {
		logger.Error(err, "Removing reservations failed", "resourceclaim", klog.KObj(claim), "numReservations", len(uids))
		return
	}
	logger.V(5).Info("Removed reservations for pods which were scheduled for a different allocation", "resourceclaim", klog.KObj(claim), "numReservations", len(uids))
}

// patchReservations changes status.reservedFor. It uses a strategic-merge-patch
// because then the API server merges by UID into the latest claim, whatever
// else was changed in it, unless that is limited to one ResourceVersion.
func (pl *DynamicResources) patchReservations(ctx context.Context, claim *resourceapi.ResourceClaim, resourceVersion string, entries any) (*resourceapi.ResourceClaim, error) {
	metadata := map[string]any{"uid": claim.UID}
	if resourceVersion != "" {
		metadata["resourceVersion"] = resourceVersion
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": metadata,
		"status":   map[string]any{"reservedFor": entries},
	})
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	return writeClaim(ctx, func(ctx context.Context) (*resourceapi.ResourceClaim, error) {
		return pl.claimClient(claim.Namespace).Patch(ctx, claim.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	})
}

// withoutEntries returns what removes the entries with the given UIDs in patchReservations.
func withoutEntries(uids []types.UID) []map[string]any {
	entries := make([]map[string]any, 0, len(uids))
	for _, uid := range uids {
		entries = append(entries, map[string]any{"$patch": "delete", "uid": uid})
	}
	return entries
}
