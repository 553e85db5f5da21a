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
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	v1helper "k8s.io/kubernetes/pkg/apis/core/v1/helper"
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
//     the claimReserver in sharedclaims_store.go. It combines the changes for
//     all pods which are waiting, so those pods neither compete for the same
//     ResourceVersion nor cause one API call each.
//   - An allocation remains in flight as long as it might have been stored without
//     the scheduler knowing it, see sharedclaims_uncertain.go.
//   - A claim which cannot be reserved for more pods makes a pod unschedulable.
//   - Between Reserve and the end of PreBind, nothing of a pod is stored. What other pods
//     must know of it is in inFlight.
//
// What differs between Kubernetes releases is in sharedclaims_compat.go.
//
// All of this depends on the DRASharedClaims feature gate. While it is off, no claim is
// marked as shared, and the plugin does for each claim what it does upstream.

// errClaimFull is wrapped by errors about a claim which cannot be reserved for
// more consumers.
var errClaimFull = errors.New("claim cannot be reserved for more consumers")

// claimConsumer is for whom a claim gets reserved when a pod needs it: the pod or its group
// (podConsumer), or a workload (workloadConsumer in reservedfor.go).
type claimConsumer interface {
	// reservation returns the entry that has to be in status.reservedFor before the pod
	// may be bound, nil if none is needed. It gets called each time that a new
	// revision of the claim is known. The claim is always allocated. If the
	// allocation is not stored yet, then it is the one which is about to be stored.
	reservation(claim *resourceapi.ResourceClaim) (*resourceapi.ResourceClaimConsumerReference, error)

	// admit returns why one more entry must not be added to status.reservedFor of
	// the claim together with those which are about to be added, nil if it may be. That
	// there is room was checked before.
	admit(claim *resourceapi.ResourceClaim, ref resourceapi.ResourceClaimConsumerReference, missing []resourceapi.ResourceClaimConsumerReference) error

	// inUse returns true if PostFilter must not give up the allocation of the claim for
	// the pod, because others use it.
	inUse(claim *resourceapi.ResourceClaim) bool
}

// podConsumer is the consumer of a claim that gets reserved for each pod or for its group.
type podConsumer struct {
	podUID  types.UID
	binding resourceapi.ResourceClaimConsumerReference
}

var _ claimConsumer = &podConsumer{}

func (c *podConsumer) reservation(*resourceapi.ResourceClaim) (*resourceapi.ResourceClaimConsumerReference, error) {
	return &c.binding, nil
}

func (c *podConsumer) admit(*resourceapi.ResourceClaim, resourceapi.ResourceClaimConsumerReference, []resourceapi.ResourceClaimConsumerReference) error {
	return nil
}

func (c *podConsumer) inUse(claim *resourceapi.ResourceClaim) bool {
	refs := claim.Status.ReservedFor
	return len(refs) > 1 || len(refs) == 1 && refs[0].UID != c.podUID
}

// sharedClaim is what PreFilter finds out about a claim that might be used by several
// pods.
type sharedClaim struct {
	// podUID is set for all claims of users, and listsPod if it is the pod that gets added to
	// status.reservedFor, unless the claim gets reserved for a workload.
	podUID   types.UID
	listsPod bool

	// shared is true if other pods might also use the claim.
	shared bool

	// pending is set if the claim was not allocated yet and the pod uses the
	// allocation which was in flight.
	pending *resourceapi.AllocationResult

	// workload is set if the claim may have to be reserved for something else than
	// the pod or its group.
	workload claimConsumer
}

// consumer returns for whom one of the claims gets reserved when the pod needs it.
func (d *stateData) consumer(index int, pod *v1.Pod) claimConsumer {
	if workload := d.informationsForClaim[index].workload; workload != nil {
		return workload
	}
	return &podConsumer{podUID: pod.UID, binding: d.claims.getBinding(index, pod)}
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

// withDistinctClaims returns the pod, or a copy of it without those references that are to a claim
// which an earlier one refers to. Each claim has one allocation, which gets stored, shared and
// released once, whatever the names are that the pod has for it.
func (pl *DynamicResources) withDistinctClaims(pod *v1.Pod) *v1.Pod {
	if !pl.fts.EnableDRASharedClaims || len(pod.Spec.ResourceClaims) < 2 {
		return pod
	}
	seen := sets.New[string]()
	distinct := make([]v1.PodResourceClaim, 0, len(pod.Spec.ResourceClaims))
	for i := range pod.Spec.ResourceClaims {
		// Errors are for the caller.
		if name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i]); err == nil && name != nil {
			if seen.Has(*name) {
				continue
			}
			seen.Insert(*name)
		}
		distinct = append(distinct, pod.Spec.ResourceClaims[i])
	}
	if len(distinct) == len(pod.Spec.ResourceClaims) {
		return pod
	}
	copied := *pod
	copied.Spec.ResourceClaims = distinct
	return &copied
}

// mayBeShared returns false for claims which were created for one pod.
func mayBeShared(claim *resourceapi.ResourceClaim) bool {
	controller := metav1.GetControllerOfNoCopy(claim)
	return controller == nil || controller.APIVersion != "v1" || controller.Kind != "Pod"
}

// prepareSharedClaims gets called by PreFilter. Pods in a group may share any claim, also
// one that was created for one of them.
func (pl *DynamicResources) prepareSharedClaims(logger klog.Logger, pod *v1.Pod, s *stateData, claims *claimStore) {
	if !pl.fts.EnableDRASharedClaims {
		return
	}
	for index, claim := range claims.allUserClaims() {
		s.informationsForClaim[index].podUID = pod.UID
		if mayBeShared(claim) || isInGroup(pod) {
			s.informationsForClaim[index].listsPod = claims.getBinding(index, pod).UID == pod.UID
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
		if !pl.mayUsePendingAllocation(pod) || pl.mapsNodeResources(pending) {
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
	for index := range state.claims.allUserClaims() {
		pl.trackSharer(state, index)
	}
	return nil
}

// releasePendingAllocation must be called when the pod does not need a pending
// allocation anymore. Calling it more than once is okay, only the first
// call has an effect. It returns true if the allocation is not in flight anymore
// because this was the last pod.
func (pl *DynamicResources) releasePendingAllocation(state *stateData, index int) (deleted bool) {
	if !pl.fts.EnableDRASharedClaims {
		return pl.pendingAllocations().MaybeRemoveClaimPendingAllocation(state.claims.get(index).UID, false)
	}

	pl.untrackSharer(state, index)
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
	current := pl.pendingAllocations().GetPendingAllocation(claimUID)
	if current != nil && current != allocation {
		return false
	}
	deleted = pl.pendingAllocations().MaybeRemoveClaimPendingAllocation(claimUID, false)
	// In 1.32, upstream's bindClaim has removed it already when it failed.
	if (deleted || current == nil) && !pl.isAllocatedInCache(state.claims.get(index)) {
		pl.claimReserver.inFlight.withdraw(info.podUID, time.Now())
	}
	return deleted
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
		(!resourceclaim.CanBeReserved(claim) || pl.claimReserver.inFlight.isFull(claim, pod.UID)) &&
		!pl.isReservedForPod(pod, claim)
}

// checkCanBeReserved gets called by PreFilter. The pod has to wait for a change of the
// claim if the claim is in use by as many consumers as it can be reserved for.
func (pl *DynamicResources) checkCanBeReserved(logger klog.Logger, pod *v1.Pod, s *stateData, index int, claim *resourceapi.ResourceClaim) *fwk.Status {
	if !pl.isFull(pod, claim) {
		return nil
	}
	if !pl.fts.EnableDRASharedClaims {
		return statusUnschedulable(logger, "resourceclaim in use", "pod", klog.KObj(pod), "resourceclaim", klog.KObj(claim))
	}
	if workload := s.informationsForClaim[index].workload; workload != nil {
		if ref, err := workload.reservation(claim); err == nil && (ref == nil || isListed(claim, ref.UID)) {
			return nil
		}
	}
	return statusUnschedulable(logger, claimFullMessage(claim), "pod", klog.KObj(pod), "resourceclaim", klog.KObj(claim))
}

func claimFullMessage(claim *resourceapi.ResourceClaim) string {
	return fmt.Sprintf("resourceclaim in use: %s is already reserved for %d consumers or about to be, more are not possible; only a claim with spec.reservedFor which was created and allocated while the DRAReservedForWorkloads feature gate was enabled in kube-apiserver and kube-scheduler can be shared by more pods", klog.KObj(claim), resourceapi.ResourceClaimReservedForMaxSize)
}

// statusClaimFull returns the result of PreBind for an error from bindClaim which is
// not a problem of the scheduler: the claim cannot be reserved for the pod. PreFilter makes
// the pod wait for a change of the claim in the next attempt. It is nil for other errors.
func statusClaimFull(logger klog.Logger, err error) *fwk.Status {
	if !errors.Is(err, errClaimFull) {
		return nil
	}
	return statusUnschedulable(logger, err.Error())
}

// bindSharedClaim does the same as bindClaim for a claim that might also get
// used by other pods. The optional callback is invoked when the allocation is not in
// flight anymore because this was the last pod that needed it.
func (pl *DynamicResources) bindSharedClaim(ctx context.Context, state *stateData, index int, pod *v1.Pod, nodeName string, released func(claimUID types.UID)) (*resourceapi.ResourceClaim, error) {
	logger := klog.FromContext(ctx)
	claim := state.claims.get(index)
	claimUID := claim.UID

	defer func() {
		if pl.releasePendingAllocation(state, index) && released != nil {
			released(claimUID)
		}
	}()

	request := newClaimReservation(state, index, pod)

	// Quite likely there is nothing left to do because of what was done for other pods.
	if latest, err := pl.draManager.ResourceClaims().Get(claim.Namespace, claim.Name); err == nil && request.check(latest) == nil {
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

	// consumer determines which entry must be in status.reservedFor.
	consumer claimConsumer

	// done gets closed once result and err are set.
	done   chan struct{}
	result *resourceapi.ResourceClaim
	err    error

	// added is true if the entry for the pod was added.
	added bool
}

// newClaimReservation returns what the pod needs from one of its claims.
func newClaimReservation(state *stateData, index int, pod *v1.Pod) *claimReservation {
	return &claimReservation{
		pod:        pod,
		claim:      state.claims.get(index),
		allocation: state.informationsForClaim[index].allocation,
		consumer:   state.consumer(index, pod),
		done:       make(chan struct{}),
	}
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

	ref, err := r.consumer.reservation(claim)
	if err != nil {
		return nil, err
	}
	if ref == nil || isListed(claim, ref.UID) {
		return nil, nil
	}
	return ref, nil
}

// check returns why the claim cannot be used by the pod as it is.
func (r *claimReservation) check(claim *resourceapi.ResourceClaim) error {
	ref, err := r.evaluate(claim)
	switch {
	case err != nil:
		return err
	case claim.Status.Allocation == nil:
		return fmt.Errorf("claim %s is not allocated", klog.KObj(claim))
	case ref != nil:
		return fmt.Errorf("claim %s is not reserved for %s %q with UID %s", klog.KObj(claim), ref.Resource, ref.Name, ref.UID)
	default:
		return nil
	}
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

// withdrawnTTL is for how long it is remembered that a pod gave something back. The scheduler offers
// the event for that immediately to all pods which wait.
const withdrawnTTL = time.Minute

// inFlight is what other pods must know about pods which got through Reserve, until the end of PreBind,
// when nothing of them is stored yet: the places that they will take in lists of claims, and, if one
// fails, that there is room again. No object changes then, so no event of a claim tells those
// who wait.
type inFlight struct {
	mutex sync.Mutex

	// sharers are the pods which will be added to the list of a claim, by the UID of the claim.
	sharers map[types.UID]sets.Set[types.UID]

	// withdrawn says when a pod gave something back.
	withdrawn map[types.UID]time.Time
	swept     time.Time
}

// addSharer is for a pod which will be added to the list of a claim.
func (f *inFlight) addSharer(claimUID, podUID types.UID) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if f.sharers == nil {
		f.sharers = make(map[types.UID]sets.Set[types.UID])
	}
	if f.sharers[claimUID] == nil {
		f.sharers[claimUID] = sets.New[types.UID]()
	}
	f.sharers[claimUID].Insert(podUID)
}

// removeSharer is for a pod which was added or will not be. It returns false if that was known already.
func (f *inFlight) removeSharer(claimUID, podUID types.UID) bool {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if !f.sharers[claimUID].Has(podUID) {
		return false
	}
	f.sharers[claimUID].Delete(podUID)
	if len(f.sharers[claimUID]) == 0 {
		delete(f.sharers, claimUID)
	}
	return true
}

// isFull returns true if the list of the claim has no place for the pod once all others are in it
// which got through Reserve before.
func (f *inFlight) isFull(claim *resourceapi.ResourceClaim, podUID types.UID) bool {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	sharers := f.sharers[claim.UID]
	if len(sharers) == 0 || sharers.Has(podUID) || len(claim.Status.ReservedFor)+len(sharers) < resourceapi.ResourceClaimReservedForMaxSize {
		return false
	}
	total := len(claim.Status.ReservedFor)
	for uid := range sharers {
		if !isListed(claim, uid) {
			total++
		}
	}
	return total >= resourceapi.ResourceClaimReservedForMaxSize
}

// withdraw remembers that a pod gave something back.
func (f *inFlight) withdraw(podUID types.UID, now time.Time) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if now.Sub(f.swept) > withdrawnTTL {
		f.swept = now
		for uid, at := range f.withdrawn {
			if now.Sub(at) > withdrawnTTL {
				delete(f.withdrawn, uid)
			}
		}
	}
	if f.withdrawn == nil {
		f.withdrawn = make(map[types.UID]time.Time)
	}
	f.withdrawn[podUID] = now
}

func (f *inFlight) hasWithdrawn(podUID types.UID) bool {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	_, ok := f.withdrawn[podUID]
	return ok
}

// trackSharer gets called by Reserve for each claim.
func (pl *DynamicResources) trackSharer(state *stateData, index int) {
	info, claim := &state.informationsForClaim[index], state.claims.get(index)
	if info.listsPod && info.workload == nil && !isListed(claim, info.podUID) {
		pl.claimReserver.inFlight.addSharer(claim.UID, info.podUID)
	}
}

// untrackSharer gets called when PreBind is done with a claim, or when the pod is unreserved.
func (pl *DynamicResources) untrackSharer(state *stateData, index int) {
	info, claim := &state.informationsForClaim[index], state.claims.get(index)
	if !pl.claimReserver.inFlight.removeSharer(claim.UID, info.podUID) {
		return
	}
	if latest, err := pl.draManager.ResourceClaims().Get(claim.Namespace, claim.Name); err != nil || !isListed(latest, info.podUID) {
		pl.claimReserver.inFlight.withdraw(info.podUID, time.Now())
	}
}

// mayUseDevices returns true if the pod has claims, or asks for extended resources, which can be backed
// by devices.
func mayUseDevices(pod *v1.Pod) bool {
	if len(pod.Spec.ResourceClaims) > 0 {
		return true
	}
	extended := func(container v1.Container) bool {
		for name := range container.Resources.Requests {
			if v1helper.IsExtendedResourceName(name) {
				return true
			}
		}
		return false
	}
	return slices.ContainsFunc(pod.Spec.Containers, extended) || slices.ContainsFunc(pod.Spec.InitContainers, extended)
}

// withWithdrawn adds to the events of the plugin that a pod failed which had got through Reserve. The
// scheduler treats that as if an assigned pod were deleted.
func (pl *DynamicResources) withWithdrawn(events []fwk.ClusterEventWithHint) []fwk.ClusterEventWithHint {
	if !pl.fts.EnableDRASharedClaims {
		return events
	}
	return append(events, fwk.ClusterEventWithHint{
		Event:          fwk.ClusterEvent{Resource: withdrawnPod, ActionType: fwk.Delete},
		QueueingHintFn: pl.isSchedulableAfterWithdrawal,
	})
}

// isSchedulableAfterWithdrawal lets a pod try again if another one gave something back of which no
// object tells: devices which were allocated in memory only, or a place in a list.
func (pl *DynamicResources) isSchedulableAfterWithdrawal(logger klog.Logger, pod *v1.Pod, oldObj, _ any) (fwk.QueueingHint, error) {
	withdrawn, ok := oldObj.(*v1.Pod)
	if !ok {
		return fwk.QueueSkip, nil
	}
	// What the plugin of another profile gave back is known to that one alone.
	ofOtherProfile := withdrawn.Spec.SchedulerName != pod.Spec.SchedulerName && mayUseDevices(withdrawn)
	if !ofOtherProfile && !pl.claimReserver.inFlight.hasWithdrawn(withdrawn.UID) {
		return fwk.QueueSkip, nil
	}
	logger.V(5).Info("another pod gave back what it would have used of claims", "pod", klog.KObj(pod), "otherPod", klog.KObj(withdrawn))
	return fwk.Queue, nil
}
