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
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// This file contains the code for claims which are used by several pods, often
// created at the same time:
//
//   - Pods which meet an allocation that is still in flight use it instead of
//     being rejected, see prepareSharedClaim and sharePendingAllocations.
//     Whichever pod gets to PreBind first stores the allocation. The devices
//     remain in use in memory until the allocation is stored or the last of
//     these pods is unreserved.
//   - All changes of one claim which are needed by pods in PreBind go through
//     the claimReserver. It combines the changes for all pods which are waiting,
//     so those pods neither compete for the same ResourceVersion nor cause one
//     API call each.
//   - A claim which cannot be reserved for more pods makes a pod unschedulable.
//
// What differs between Kubernetes releases is in sharedclaims_release.go.

const (
	// claimWriteTimeout limits how long pods wait for one combined
	// change of a claim.
	claimWriteTimeout = 30 * time.Second

	// maxClaimWriteAttempts limits how often one combined change gets sent to
	// the API server when it keeps getting rejected because of changes made
	// by someone else.
	maxClaimWriteAttempts = 10
)

// errClaimFull is wrapped by errors about a claim which cannot be reserved for
// more consumers.
var errClaimFull = errors.New("claim cannot be reserved for more consumers")

// reservationFunc returns the entry that has to be in status.reservedFor before a pod
// may be bound, nil if none is needed. It gets called each time that a new
// revision of the claim is known. The claim is always allocated. If the
// allocation is not stored yet, then it is the one which is about to be stored.
type reservationFunc func(claim *resourceapi.ResourceClaim) (*resourceapi.ResourceClaimConsumerReference, error)

// sharedClaim is what PreFilter finds out about a claim that might be used by several
// pods.
type sharedClaim struct {
	// shared is true if other pods might also use the claim.
	shared bool

	// pending is set if the claim was not allocated yet and the pod uses the
	// allocation which was in flight.
	pending *resourceapi.AllocationResult

	// reservation is set if something other than the default binding may have
	// to be added to status.reservedFor.
	reservation reservationFunc
}

// pendingAllocationTracker is the part of the claim tracker which knows the allocations that
// are not stored yet. Several pods can use the same one.
type pendingAllocationTracker interface {
	// GetPendingAllocation returns the allocation, nil if there is none.
	GetPendingAllocation(claimUID types.UID) *resourceapi.AllocationResult

	// SignalClaimPendingAllocation adds the allocation of the claim or, if there
	// is one already, one more pod which uses that.
	SignalClaimPendingAllocation(claimUID types.UID, allocatedClaim *resourceapi.ResourceClaim) error

	// MaybeRemoveClaimPendingAllocation returns true if the allocation was removed, either because
	// this was the last pod which used it or because that was enforced.
	MaybeRemoveClaimPendingAllocation(claimUID types.UID, forceRemove bool) (deleted bool)
}

// mayBeShared returns false for claims which were created for one pod.
func mayBeShared(claim *resourceapi.ResourceClaim) bool {
	controller := metav1.GetControllerOfNoCopy(claim)
	return controller == nil || controller.APIVersion != "v1" || controller.Kind != "Pod"
}

// prepareSharedClaims gets called by PreFilter.
func (pl *DynamicResources) prepareSharedClaims(logger klog.Logger, pod *v1.Pod, s *stateData, claims *claimStore) {
	for index, claim := range claims.allUserClaims() {
		if mayBeShared(claim) {
			pl.prepareSharedClaim(logger, pod, s, claims, index)
		}
	}
}

// prepareSharedClaim marks a claim as shared. If it is not allocated yet, but has an
// allocation in flight, then it gets replaced with one that has that
// allocation. The rest of the plugin then handles it like an allocated claim,
// so the pod may only go where the devices are available.
func (pl *DynamicResources) prepareSharedClaim(logger klog.Logger, pod *v1.Pod, s *stateData, claims *claimStore, index int) {
	info := &s.informationsForClaim[index]
	info.shared = true

	claim := claims.get(index)
	if claim.Status.Allocation != nil {
		return
	}
	if pending := pl.pendingAllocations().GetPendingAllocation(claim.UID); pending != nil {
		if !pl.mayUsePendingAllocation(pod) {
			return
		}
		allocatedClaim := *claim
		allocatedClaim.Status.Allocation = pending
		claims.set(index, &allocatedClaim)
		info.pending = pending
		logger.V(5).Info("Using allocation which is not stored yet", "pod", klog.KObj(pod), "resourceclaim", klog.KObj(claim), "uid", claim.UID, "allocation", klog.Format(pending))
		return
	}
	// An allocation gets added to the cache before it gets removed from
	// the in-flight allocations. Therefore we have to look again to
	// not miss one that was stored since the claim was retrieved.
	if latest, err := pl.draManager.ResourceClaims().Get(claim.Namespace, claim.Name); err == nil && latest.UID == claim.UID && latest.Status.Allocation != nil {
		claims.set(index, latest)
	}
}

// sharePendingAllocations gets called by Reserve. From then on until
// releasePendingAllocation the pod keeps the devices in use, whatever happens
// to the pod for which they were allocated.
//
// It may get called more than once for the same state because pods in a group
// get unreserved and reserved again before they get bound.
func (pl *DynamicResources) sharePendingAllocations(logger klog.Logger, state *stateData) *fwk.Status {
	for index, claim := range state.claims.allUserClaims() {
		info := &state.informationsForClaim[index]
		if info.pending == nil || info.allocation != nil {
			continue
		}

		// This cannot happen as long as pods get scheduled one after the other.
		if current := pl.pendingAllocations().GetPendingAllocation(claim.UID); current != nil && current != info.pending {
			return statusError(logger, fmt.Errorf("allocation of claim %s was replaced in the meantime", klog.KObj(claim)))
		}
		if err := pl.pendingAllocations().SignalClaimPendingAllocation(claim.UID, claim); err != nil {
			return statusError(logger, fmt.Errorf("share pending allocation of claim %s: %w", klog.KObj(claim), err))
		}
		info.allocation = info.pending

		if pl.isAllocatedInCache(claim) {
			// Stored since PreFilter. The cache is authoritative.
			pl.releasePendingAllocation(state, index)
		}
	}
	return nil
}

// releasePendingAllocation must be called when the pod does not need a pending
// allocation anymore. Calling it more than once is okay, only the first
// call has an effect. It returns true if the allocation is not in flight anymore
// because this was the last pod.
func (pl *DynamicResources) releasePendingAllocation(state *stateData, index int) bool {
	info := &state.informationsForClaim[index]
	allocation := info.allocation
	if allocation == nil {
		return false
	}
	info.allocation = nil

	// The allocation might have been stored and the claim might even have
	// been deallocated again since then. Then the pending allocation,
	// if there is one, belongs to some other pod.
	claimUID := state.claims.get(index).UID
	if current := pl.pendingAllocations().GetPendingAllocation(claimUID); current != nil && current != allocation {
		return false
	}
	return pl.pendingAllocations().MaybeRemoveClaimPendingAllocation(claimUID, false)
}

// isAllocatedInCache returns true if the given incarnation of the claim is known to be allocated.
func (pl *DynamicResources) isAllocatedInCache(claim *resourceapi.ResourceClaim) bool {
	latest, err := pl.draManager.ResourceClaims().Get(claim.Namespace, claim.Name)
	return err == nil && latest.UID == claim.UID && latest.Status.Allocation != nil
}

// isFull returns true if the claim is allocated, but not reserved for the pod and
// cannot be reserved for it.
func (pl *DynamicResources) isFull(pod *v1.Pod, claim *resourceapi.ResourceClaim) bool {
	return claim.Status.Allocation != nil &&
		!resourceclaim.CanBeReserved(claim) &&
		!pl.isReservedForPod(pod, claim)
}

// checkCanBeReserved gets called by PreFilter. The pod has to wait for a change of the
// claim if the claim is in use by as many consumers as it can be reserved for.
func (pl *DynamicResources) checkCanBeReserved(logger klog.Logger, pod *v1.Pod, s *stateData, index int, claim *resourceapi.ResourceClaim) *fwk.Status {
	if !pl.isFull(pod, claim) {
		return nil
	}
	if reservation := s.informationsForClaim[index].reservation; reservation != nil {
		if ref, err := reservation(claim); err == nil && (ref == nil || isListed(claim, ref.UID)) {
			return nil
		}
	}
	return statusUnschedulable(logger, claimFullMessage(claim), "pod", klog.KObj(pod), "resourceclaim", klog.KObj(claim))
}

func claimFullMessage(claim *resourceapi.ResourceClaim) string {
	return fmt.Sprintf("resourceclaim in use: %s is already reserved for %d consumers, more are not possible; only a claim with spec.reservedFor which was created and allocated while the DRAReservedForWorkloads feature gate was enabled in kube-apiserver and kube-scheduler can be shared by more pods", klog.KObj(claim), resourceapi.ResourceClaimReservedForMaxSize)
}

// statusBindError returns the result of PreBind for an error from bindClaim.
func statusBindError(logger klog.Logger, err error) *fwk.Status {
	if errors.Is(err, errClaimFull) {
		// Not a problem of the scheduler. PreFilter makes the pod wait for a
		// change of the claim in the next attempt.
		return statusUnschedulable(logger, err.Error())
	}
	return statusError(logger, err)
}

// bindSharedClaim does the same as bindClaim for a claim that might also get
// used by other pods. The optional callback is invoked when the allocation is not in
// flight anymore because this was the last pod that needed it.
func (pl *DynamicResources) bindSharedClaim(ctx context.Context, state *stateData, index int, pod *v1.Pod, nodeName string, released func(claimUID types.UID)) (*resourceapi.ResourceClaim, error) {
	logger := klog.FromContext(ctx)
	claim := state.claims.get(index)
	claimUID := claim.UID
	info := &state.informationsForClaim[index]

	defer func() {
		if pl.releasePendingAllocation(state, index) && released != nil {
			released(claimUID)
		}
	}()

	request := &claimReservation{
		pod:         pod,
		claim:       claim,
		allocation:  info.allocation,
		reservation: info.reservation,
		done:        make(chan struct{}),
	}
	if request.reservation == nil {
		binding := state.claims.getBinding(index, pod)
		request.reservation = func(*resourceapi.ResourceClaim) (*resourceapi.ResourceClaimConsumerReference, error) {
			return &binding, nil
		}
	}

	// Quite likely there is nothing left to do because of what was done for other pods.
	if latest, err := pl.draManager.ResourceClaims().Get(claim.Namespace, claim.Name); err == nil && request.isSatisfied(latest) {
		logger.V(5).Info("claim can be used as it is", "pod", klog.KObj(pod), "node", nodeName, "resourceclaim", klog.KObj(latest), "resourceVersion", latest.ResourceVersion)
		return latest, nil
	}

	logger.V(5).Info("preparing claim status update", "pod", klog.KObj(pod), "claim", klog.KObj(claim), "allocation", klog.Format(request.allocation))
	claim, err := pl.claimReserver.reserve(ctx, request)
	if err != nil {
		return nil, err
	}
	logger.V(5).Info("reserved", "pod", klog.KObj(pod), "node", nodeName, "resourceclaim", klog.Format(claim))
	return claim, nil
}

// claimReservation is what one pod in PreBind needs from one claim.
type claimReservation struct {
	pod *v1.Pod

	// claim is the one for which the pod was scheduled.
	claim *resourceapi.ResourceClaim

	// allocation is what must be stored if the claim is not allocated yet.
	// It is nil if the claim is known to be allocated.
	allocation *resourceapi.AllocationResult

	// reservation determines which entry must be in status.reservedFor.
	reservation reservationFunc

	// done gets closed once result and err are set.
	done   chan struct{}
	result *resourceapi.ResourceClaim
	err    error

	// added is true if the entry for the pod was added.
	added bool
}

func (r *claimReservation) isDone() bool {
	return r.result != nil || r.err != nil
}

// expectedAllocation returns the allocation for which the pod was scheduled.
func (r *claimReservation) expectedAllocation() *resourceapi.AllocationResult {
	if r.claim.Status.Allocation != nil {
		return r.claim.Status.Allocation
	}
	return r.allocation
}

// evaluate compares the claim against what the pod needs. It returns
// the missing entry in status.reservedFor, nil if there is nothing to add. A
// claim which is not allocated yet gets treated as if the allocation had
// been stored already.
func (r *claimReservation) evaluate(claim *resourceapi.ResourceClaim) (*resourceapi.ResourceClaimConsumerReference, error) {
	if claim.UID != r.claim.UID {
		return nil, fmt.Errorf("claim %s got replaced in the meantime", klog.KObj(claim))
	}
	if claim.DeletionTimestamp != nil {
		return nil, fmt.Errorf("claim %s got deleted in the meantime", klog.KObj(claim))
	}
	switch {
	case claim.Status.Allocation == nil:
		if r.allocation == nil {
			return nil, fmt.Errorf("claim %s got deallocated elsewhere in the meantime", klog.KObj(claim))
		}
		allocatedClaim := *claim
		allocatedClaim.Status.Allocation = r.allocation
		claim = &allocatedClaim
	case !sameDevices(claim.Status.Allocation, r.expectedAllocation()):
		return nil, fmt.Errorf("claim %s got allocated elsewhere in the meantime", klog.KObj(claim))
	}

	ref, err := r.reservation(claim)
	if err != nil {
		return nil, err
	}
	if ref == nil || isListed(claim, ref.UID) {
		return nil, nil
	}
	return ref, nil
}

// isSatisfied returns true if the claim can be used by the pod as it is.
func (r *claimReservation) isSatisfied(claim *resourceapi.ResourceClaim) bool {
	if claim.Status.Allocation == nil {
		return false
	}
	ref, err := r.evaluate(claim)
	return err == nil && ref == nil
}

// sameDevices compares only which devices were allocated for which request. That
// is what a pod got scheduled for. Other fields might not have been stored
// if the API server does not support them.
func sameDevices(a, b *resourceapi.AllocationResult) bool {
	if a == b {
		return true
	}
	if a == nil || b == nil {
		return false
	}
	return slices.EqualFunc(a.Devices.Results, b.Devices.Results, func(a, b resourceapi.DeviceRequestAllocationResult) bool {
		return a.Request == b.Request &&
			a.Driver == b.Driver &&
			a.Pool == b.Pool &&
			a.Device == b.Device &&
			sameShare(&a, &b)
	})
}

func isListed(claim *resourceapi.ResourceClaim, uid types.UID) bool {
	return slices.ContainsFunc(claim.Status.ReservedFor, func(ref resourceapi.ResourceClaimConsumerReference) bool {
		return ref.UID == uid
	})
}

// claimReserver combines the changes of a claim which are needed by different pods.
//
// There is at most one goroutine per claim. While it is busy with one combined
// change, other pods wait. The next change then includes all of them.
type claimReserver struct {
	logger klog.Logger

	// store sets result or err for all requests, which are for the same claim.
	store func(ctx context.Context, requests []*claimReservation)

	mutex sync.Mutex

	// waiting has an entry, which might be empty, while a goroutine is
	// taking care of the claim.
	waiting map[types.UID][]*claimReservation
}

func newClaimReserver(logger klog.Logger, store func(ctx context.Context, requests []*claimReservation)) *claimReserver {
	return &claimReserver{
		logger:  logger,
		store:   store,
		waiting: make(map[types.UID][]*claimReservation),
	}
}

// reserve blocks until the request is done. If it gets canceled before its turn,
// then nothing has been changed. Otherwise the result is returned
// because the caller needs to know what to undo.
func (r *claimReserver) reserve(ctx context.Context, request *claimReservation) (*resourceapi.ResourceClaim, error) {
	claimUID := request.claim.UID
	r.mutex.Lock()
	waiting, running := r.waiting[claimUID]
	r.waiting[claimUID] = append(waiting, request)
	r.mutex.Unlock()

	if !running {
		// The goroutine works for all pods, so it must neither be canceled with
		// the first one nor log in the context of that one.
		go r.run(klog.NewContext(context.WithoutCancel(ctx), r.logger), claimUID)
	}

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
	index := slices.Index(r.waiting[claimUID], request)
	if index < 0 {
		return false
	}
	r.waiting[claimUID] = slices.Delete(r.waiting[claimUID], index, index+1)
	return true
}

func (r *claimReserver) run(ctx context.Context, claimUID types.UID) {
	for {
		r.mutex.Lock()
		requests := r.waiting[claimUID]
		if len(requests) == 0 {
			delete(r.waiting, claimUID)
			r.mutex.Unlock()
			return
		}
		r.waiting[claimUID] = nil
		r.mutex.Unlock()

		storeCtx, cancel := context.WithTimeoutCause(ctx, claimWriteTimeout, fmt.Errorf("changing the claim took longer than %s", claimWriteTimeout))
		r.store(storeCtx, requests)
		cancel()

		for _, request := range requests {
			close(request.done)
		}
	}
}

// storeReservations makes all changes of a claim which are needed by the given pods.
// The result of each write is checked like any other new revision
// of the claim.
func (pl *DynamicResources) storeReservations(ctx context.Context, requests []*claimReservation) {
	logger := klog.FromContext(ctx)
	open := slices.Clone(requests)

	claim, err := pl.draManager.ResourceClaims().Get(requests[0].claim.Namespace, requests[0].claim.Name)
	modified := false
	var lastErr error
	backoff := retry.DefaultRetry
	for attempt := 0; err == nil; attempt++ {
		// Which requests still need a change and what is it?
		var missing []resourceapi.ResourceClaimConsumerReference
		var allocation *resourceapi.AllocationResult
		var undo []types.UID
		open = slices.DeleteFunc(open, func(request *claimReservation) bool {
			ref, err := request.evaluate(claim)
			switch {
			case err != nil:
				request.err = err
				if request.added && isListed(claim, request.pod.UID) {
					undo = append(undo, request.pod.UID)
				}
			case claim.Status.Allocation == nil && allocation != nil && !sameDevices(allocation, request.allocation):
				// Cannot happen, there is only one pending allocation.
				request.err = fmt.Errorf("claim %s is about to be allocated differently", klog.KObj(claim))
			case ref == nil && claim.Status.Allocation != nil:
				request.result = claim
			case ref != nil && !slices.ContainsFunc(missing, func(other resourceapi.ResourceClaimConsumerReference) bool { return other.UID == ref.UID }):
				if len(claim.Status.ReservedFor)+len(missing) >= resourceapi.ResourceClaimReservedForMaxSize {
					request.err = fmt.Errorf("%s: %w", claimFullMessage(claim), errClaimFull)
					break
				}
				missing = append(missing, *ref)
				request.added = ref.UID == request.pod.UID
				fallthrough
			default:
				if claim.Status.Allocation == nil {
					allocation = request.allocation
				}
			}
			return request.isDone()
		})
		if len(undo) > 0 {
			pl.removeReservations(ctx, claim, undo)
		}
		if len(open) == 0 {
			break
		}
		if attempt >= maxClaimWriteAttempts {
			err = fmt.Errorf("giving up on claim %s after %d attempts: %w", klog.KObj(claim), attempt, lastErr)
			break
		}

		logger.V(5).Info("updating claim", "claim", klog.KObj(claim), "resourceVersion", claim.ResourceVersion, "numPods", len(open), "reservations", missing, "allocation", klog.Format(allocation))
		var updatedClaim *resourceapi.ResourceClaim
		if allocation != nil {
			updatedClaim, lastErr = pl.storeAllocation(ctx, claim, allocation, missing)
		} else {
			updatedClaim, lastErr = pl.addReservations(ctx, claim, missing)
		}
		switch {
		case lastErr == nil:
			claim = updatedClaim
			modified = true
		case apierrors.IsConflict(lastErr), apierrors.IsInvalid(lastErr):
			// Probably the claim is not what it was anymore. The latest
			// one tells whether it is worth trying again.
			logger.V(5).Info("retrying update with latest claim", "claim", klog.KObj(claim), "err", lastErr)
			select {
			case <-time.After(backoff.Step()):
			case <-ctx.Done():
			}
			updatedClaim, err = pl.claimClient(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
			if err != nil {
				err = fmt.Errorf("get updated claim %s after conflict: %w", klog.KObj(claim), err)
				break
			}
			if apierrors.IsInvalid(lastErr) && updatedClaim.ResourceVersion == claim.ResourceVersion {
				// Would get rejected again.
				err = lastErr
				break
			}
			claim = updatedClaim
			modified = true
		default:
			err = lastErr
		}
	}
	for _, request := range open {
		request.err = err
	}
	if claim == nil {
		return
	}

	// If no pod was scheduled for the current allocation, then the informer has to
	// deliver what happened in the meantime.
	usable := slices.ContainsFunc(requests, func(request *claimReservation) bool { return request.result == claim })
	if modified && usable {
		// This can fail, but only for reasons that are okay (concurrent delete or update).
		if err := pl.draManager.ResourceClaims().AssumeClaimAfterAPICall(claim); err != nil {
			logger.V(5).Info("Claim not stored in assume cache", "err", err, "claim", klog.KObj(claim), "uid", claim.UID, "resourceVersion", claim.ResourceVersion)
		} else {
			logger.V(5).Info("Claim stored in assume cache", "claim", klog.KObj(claim), "uid", claim.UID, "resourceVersion", claim.ResourceVersion)
		}
	}

	// Once the allocation is in the cache, it is not needed in flight anymore, even if it
	// is still shared with other pods.
	for _, request := range requests {
		if request.allocation != nil && pl.isAllocatedInCache(request.claim) &&
			pl.pendingAllocations().GetPendingAllocation(request.claim.UID) == request.allocation {
			pl.pendingAllocations().MaybeRemoveClaimPendingAllocation(request.claim.UID, true)
			logger.V(5).Info("Removed claim from in-flight claims", "claim", klog.KObj(request.claim), "uid", request.claim.UID, "resourceVersion", claim.ResourceVersion, "allocation", klog.Format(request.allocation))
		}
	}
}

// storeAllocation stores the allocation together with the first reservations.
func (pl *DynamicResources) storeAllocation(ctx context.Context, claim *resourceapi.ResourceClaim, allocation *resourceapi.AllocationResult, reservations []resourceapi.ResourceClaimConsumerReference) (*resourceapi.ResourceClaim, error) {
	claim = claim.DeepCopy()

	// The finalizer needs to be added in a normal update.
	// If we were interrupted in the past, it might already be set and we simply continue.
	if !slices.Contains(claim.Finalizers, resourceapi.Finalizer) {
		claim.Finalizers = append(claim.Finalizers, resourceapi.Finalizer)
		updatedClaim, err := pl.claimClient(claim.Namespace).Update(ctx, claim, metav1.UpdateOptions{})
		if err != nil {
			return nil, fmt.Errorf("add finalizer to claim %s: %w", klog.KObj(claim), err)
		}
		claim = updatedClaim
	}

	// The pending allocation is shared with readers and must not be modified.
	claim.Status.Allocation = allocation.DeepCopy()
	pl.setAllocationTimestamp(claim.Status.Allocation)
	claim.Status.ReservedFor = append(claim.Status.ReservedFor, reservations...)
	updatedClaim, err := pl.claimClient(claim.Namespace).UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("add allocation and reservation to claim %s: %w", klog.KObj(claim), err)
	}
	return updatedClaim, nil
}

// addReservations adds entries to status.reservedFor. It uses a strategic-merge-patch
// because then the API server merges by UID into the latest claim, whatever
// else was changed in it.
//
// The API server rejects the patch if the claim was replaced, is being deleted,
// is not allocated anymore or cannot be reserved for that many consumers. Whether it
// still has the same allocation has to be checked by the caller.
func (pl *DynamicResources) addReservations(ctx context.Context, claim *resourceapi.ResourceClaim, reservations []resourceapi.ResourceClaimConsumerReference) (*resourceapi.ResourceClaim, error) {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": claim.UID},
		"status":   map[string]any{"reservedFor": reservations},
	})
	if err != nil {
		return nil, fmt.Errorf("encode reservations for claim %s: %w", klog.KObj(claim), err)
	}
	updatedClaim, err := pl.claimClient(claim.Namespace).Patch(ctx, claim.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return nil, fmt.Errorf("add reservation to claim %s: %w", klog.KObj(claim), err)
	}
	return updatedClaim, nil
}

// removeReservations removes entries which turned out to be useless. If that fails, then
// the entries remain until their pods get scheduled or removed.
func (pl *DynamicResources) removeReservations(ctx context.Context, claim *resourceapi.ResourceClaim, uids []types.UID) {
	logger := klog.FromContext(ctx)
	entries := make([]map[string]any, 0, len(uids))
	for _, uid := range uids {
		entries = append(entries, map[string]any{"$patch": "delete", "uid": uid})
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": claim.UID},
		"status":   map[string]any{"reservedFor": entries},
	})
	if err == nil {
		_, err = pl.claimClient(claim.Namespace).Patch(ctx, claim.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	if err != nil {
		logger.Error(err, "Removing reservations failed", "resourceclaim", klog.KObj(claim), "numReservations", len(uids))
		return
	}
	logger.V(5).Info("Removed reservations for pods which were scheduled for a different allocation", "resourceclaim", klog.KObj(claim), "numReservations", len(uids))
}
