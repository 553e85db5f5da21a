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
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	resourceclaimmetrics "k8s.io/kubernetes/pkg/controller/resourceclaim/metrics"
	"k8s.io/utils/clock"
)

// This file contains what the controller does for claims which are reserved for
// something other than individual pods, for example a Job (KEP-5194).
//
// Such a workload does not need the claim anymore when both are true:
//   - It will not start more pods.
//   - None of the pods which reference the claim might be running.
//
// Both get checked in the API server before acting on them. This is sufficient
// for removing the reservation, but not for deallocating: while that gets decided,
// some pod may get bound to a node by a scheduler which still sees the
// reservation. Therefore removing the last reservation leaves the claim
// allocated. From then on no kubelet starts a pod for it anymore. If some
// pod got through before that, then it must be known to the API server already
// and will be found when looking again, after a pause. In that case the claim gets
// reserved again, otherwise it gets deallocated.
//
// The second step only depends on what is stored in the claim. It does not
// matter who removed the last reservation.
//
// Disabling the feature affects what gets stored, not what was stored before:
// claims which were allocated for any pod still get released, otherwise their
// devices would be lost and the claims could not be removed. Nothing is watched
// for that, so it may take a few seconds longer.

// Reasons for events about claims.
const (
	// reasonReleased is used when a claim is found to be not reserved anymore.
	reasonReleased = "ReservationReleased"
	// reasonDeallocated is used when such a claim was deallocated.
	reasonDeallocated = "Deallocated"
	// reasonRestored is used when such a claim turned out to be in use.
	reasonRestored = "ReservationRestored"
	// reasonForbidden and reasonUnknownResource are used when it is not possible
	// to find out whether a workload still exists.
	reasonForbidden       = "WorkloadForbidden"
	reasonUnknownResource = "UnknownWorkload"
	// reasonWaitingForPods is used when a workload is done, but not its pods.
	reasonWaitingForPods = "WaitingForPods"
)

// workloads is the part of the controller's state which is about claims that
// are reserved for something other than individual pods.
type workloads struct {
	clock          clock.PassiveClock
	releasePause   time.Duration
	pollInterval   time.Duration
	lookupInterval time.Duration
	retryInterval  time.Duration
	noticePeriod   time.Duration

	// kinds are those which can be retrieved with the normal client.
	kinds []*workloadKind

	// The following fields get set by WatchWorkloads.
	informers      map[schema.GroupResource]cache.SharedIndexInformer
	restMapper     meta.RESTMapper
	metadataClient metadata.Interface

	// lookups contains recent results of looking up a workload
	// (key is a workloadRef, value a *workloadStatus).
	lookups *utilcache.Expiring

	// unknownResources contains those resources that the API server recently
	// did not have (key is a schema.GroupResource, value an error).
	unknownResources *utilcache.Expiring

	// limiter is for looking up workloads which cannot be watched.
	limiter flowcontrol.PassiveRateLimiter

	mutex sync.Mutex
	// claims contains those claims for which something needs to be remembered.
	// The key is the UID of the claim.
	claims map[types.UID]*claimState
}

// claimState is what the controller remembers about one claim. Nothing gets
// lost when it is gone, it merely may take longer.
type claimState struct {
	// unreservedSince is when the allocated claim was first seen to be not
	// reserved. Zero if it is reserved.
	unreservedSince time.Time

	// released are those workloads which were found to not need the claim
	// anymore the last time that the claim was reserved.
	released []resourceapi.ResourceClaimConsumerReference

	// lastUser is the name of the pod which was last found to use the claim.
	lastUser string

	// notices contains what users may need to know about some workload.
	notices map[types.UID]*notice
}

// notice describes why the reservation for a workload is kept although the
// workload might not need it anymore.
type notice struct {
	state    string
	since    time.Time
	reported bool
}

// States which get reported through a notice. They are also used in a metric.
const (
	noticeForbidden       = string(workloadForbidden)
	noticeUnknownResource = string(workloadUnknownResource)
	noticePods            = "pods"
	noticePodsDeleted     = "pods_deleted_claim"
)

func newWorkloads(features Features) *workloads {
	w := &workloads{
		releasePause:   defaultReleasePause,
		pollInterval:   defaultPollInterval,
		lookupInterval: defaultLookupInterval,
		retryInterval:  defaultRetryInterval,
		noticePeriod:   defaultNoticePeriod,
		kinds:          builtinWorkloadKinds(features),
		informers:      make(map[schema.GroupResource]cache.SharedIndexInformer),
		claims:         make(map[types.UID]*claimState),
	}
	w.setClock(clock.RealClock{})
	if features.ReservedForWorkloads {
		resourceclaimmetrics.RegisterWorkloadMetrics()
	}
	return w
}

// setClock must be called before using the instance.
func (w *workloads) setClock(c clock.Clock) {
	w.clock = c
	w.lookups = utilcache.NewExpiringWithClock(c)
	w.unknownResources = utilcache.NewExpiringWithClock(c)
	w.limiter = flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(lookupsPerSecond, lookupsBurst, c)
}

// keepWorkloadReference decides whether an entry in status.reservedFor is still
// needed. That is only known if checked is true. It gets called often (for
// each pod of the workload which ends), so the checks are sorted by how much they
// cost.
//
// While the feature is disabled, only claims are checked where it was used for
// the allocation. Other claims may have entries with a different purpose.
func (ec *Controller) keepWorkloadReference(ctx context.Context, claim *resourceapi.ResourceClaim, consumer resourceapi.ResourceClaimConsumerReference) (keep, checked bool, err error) {
	if resourceclaim.IsPodReference(consumer) ||
		!ec.features.ReservedForWorkloads && !resourceclaim.IsAllocatedForAnyPod(claim) ||
		ec.isPodGroupReservation(claim, consumer) {
		return false, false, nil
	}

	ref := workloadRef{namespace: claim.Namespace, ResourceClaimConsumerReference: consumer}
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "workload", ref)
	ctx = klog.NewContext(ctx, logger)

	// What the informer says is sufficient for keeping the reservation
	// because the controller will be told when that changes.
	cached, err := ec.workloads.fromInformer(ref)
	if err != nil {
		return true, true, fmt.Errorf("get %s from cache: %w", ref, err)
	}
	if cached != nil && cached.state == workloadActive {
		logger.V(6).Info("Keeping reservation, workload might start more pods")
		ec.clearNotice(claim, ref)
		return true, true, nil
	}

	// The same is true for pods.
	pod, err := ec.findUserInCache(claim)
	if err != nil {
		return true, true, err
	}
	if pod != nil {
		logger.V(6).Info("Keeping reservation, pod uses the claim", "pod", klog.KObj(pod))
		if cached != nil {
			ec.noticePodsUseClaim(ctx, claim, ref, cached.explanation, pod)
		} else {
			// Looking up the workload would be too early.
			ec.clearNotice(claim, ref)
		}
		return true, true, nil
	}

	// From here on, no event which is certain to come triggers the next
	// check. It must be scheduled if the reservation is kept.
	recheck := func(after time.Duration) {
		ec.queue.AddAfter(claimKeyPrefix+claim.Namespace+"/"+claim.Name, after)
	}
	defer func() {
		if err != nil {
			// Besides the usual retry with exponential backoff, which
			// may take long.
			recheck(ec.workloads.retryInterval)
		}
	}()
	status := ec.workloads.fromRecentLookup(ref)
	pause := ec.workloads.lookupInterval
	if status == nil {
		pause = ec.workloads.pollInterval
		newStatus, err := ec.lookUpWorkload(ctx, ref)
		if errors.Is(err, errTooManyLookups) {
			logger.V(5).Info("Keeping reservation, workload will be looked up later", "reason", err)
			recheck(ec.workloads.lookupInterval)
			return true, true, nil
		}
		if err != nil {
			return true, true, err
		}
		status = &newStatus
	}
	switch status.state {
	case workloadActive:
		logger.V(5).Info("Keeping reservation, workload might start more pods", "recheckAfter", pause)
		ec.clearNotice(claim, ref)
		recheck(pause)
		return true, true, nil
	case workloadForbidden, workloadUnknownResource:
		logger.V(4).Info("Keeping reservation, workload cannot be checked", "explanation", status.explanation, "recheckAfter", ec.workloads.retryInterval)
		ec.noticeWorkloadUnknown(ctx, claim, ref, *status)
		recheck(ec.workloads.retryInterval)
		return true, true, nil
	}

	pod, err = ec.findUser(ctx, claim)
	if err != nil {
		return true, true, err
	}
	if pod != nil {
		// The cache will catch up and then there will be an event for the end
		// of the pod.
		logger.V(4).Info("Keeping reservation, pod uses the claim which is not in the cache yet", "pod", klog.KObj(pod))
		ec.noticePodsUseClaim(ctx, claim, ref, status.explanation, pod)
		recheck(ec.workloads.pollInterval)
		return true, true, nil
	}

	logger.V(2).Info("Removing reservation", "explanation", "workload "+status.explanation+" and no pod uses the claim")
	ec.clearNotice(claim, ref)
	ec.workloads.addReleased(claim.UID, consumer)
	return false, true, nil
}

// mustLookBeforeDeallocation returns true for a claim which is or was reserved
// for something that isn't just one pod. Then not being reserved anymore does
// not imply that there are no pods which use it.
//
// What is stored counts even if the feature is disabled now. Only claims
// which were allocated per pod although they should not have been get treated as
// before in that case.
func (ec *Controller) mustLookBeforeDeallocation(claim *resourceapi.ResourceClaim) bool {
	return resourceclaim.IsAllocatedForAnyPod(claim) ||
		claim.Status.Allocation != nil && claim.Spec.ReservedFor != nil && ec.features.ReservedForWorkloads
}

// syncUnreserved gets called for a claim for which mustLookBeforeDeallocation is
// true and which is not reserved.
func (ec *Controller) syncUnreserved(ctx context.Context, claim *resourceapi.ResourceClaim) error {
	logger := klog.FromContext(ctx)
	if !slices.Contains(claim.Finalizers, resourceapi.Finalizer) {
		// Same sanity check as for other claims: not allocated by the scheduler.
		logger.V(5).Info("Not deallocating claim without finalizer")
		return nil
	}
	recheck := func(after time.Duration) {
		ec.queue.AddAfter(claimKeyPrefix+claim.Namespace+"/"+claim.Name, after)
	}

	// Pause.
	unreservedFor, firstTime, released := ec.workloads.unreserved(claim.UID)
	if firstTime {
		logger.V(2).Info("Claim is not reserved anymore and will be deallocated unless it gets used again", "released", released, "pause", ec.workloads.releasePause)
		ec.event(claim, v1.EventTypeNormal, reasonReleased, fmt.Sprintf("not reserved anymore%s, will be deallocated in %s unless a pod uses it", releasedSuffix(claim.Namespace, released), ec.workloads.releasePause))
	}
	if pause := ec.workloads.releasePause - unreservedFor; pause > 0 {
		recheck(pause)
		return nil
	}

	// Look again, now with the certainty that no kubelet starts further pods.
	pod, err := ec.findUserInCache(claim)
	if err == nil && pod == nil {
		pod, err = ec.findUser(ctx, claim)
	}
	if err != nil {
		recheck(ec.workloads.retryInterval)
		return err
	}
	if pod != nil {
		return ec.restoreReservation(ctx, claim, pod, recheck)
	}

	// This is not using a patch because we want the update to fail if anything
	// changed in the meantime.
	claim = claim.DeepCopy()
	claim.Status.Allocation = nil
	claims := claimClient(ec.kubeClient, claim.Namespace)
	claim, err = claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("deallocate claim: %w", err)
	}
	ec.workloads.forget(claim.UID)
	resourceclaimmetrics.WorkloadReleases.WithLabelValues("deallocated").Inc()
	logger.V(2).Info("Deallocated claim because nothing uses it anymore", "released", released)
	ec.event(claim, v1.EventTypeNormal, reasonDeallocated, "deallocated because it is not reserved and no pod uses it")

	if index := slices.Index(claim.Finalizers, resourceapi.Finalizer); index >= 0 {
		claim.Finalizers = slices.Delete(claim.Finalizers, index, index+1)
		if _, err := claims.Update(ctx, claim, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("remove finalizer of deallocated claim: %w", err)
		}
		logger.V(5).Info("Removed finalizer of deallocated claim")
	}
	return nil
}

// releasedSuffix explains what the claim was reserved for if that is known.
func releasedSuffix(namespace string, released []resourceapi.ResourceClaimConsumerReference) string {
	if len(released) == 0 {
		return ""
	}
	names := make([]string, 0, len(released))
	for _, ref := range released {
		names = append(names, workloadRef{namespace: namespace, ResourceClaimConsumerReference: ref}.String())
	}
	return " for " + strings.Join(names, ", ")
}

// restoreReservation reserves a claim again which is used by the given pod.
func (ec *Controller) restoreReservation(ctx context.Context, claim *resourceapi.ResourceClaim, pod *v1.Pod, recheck func(time.Duration)) error {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "pod", klog.KObj(pod))
	if claim.DeletionTimestamp != nil {
		// Nothing can be added anymore. The claim simply must not be
		// deallocated.
		logger.V(4).Info("Not deallocating claim, pod uses it", "recheckAfter", ec.workloads.pollInterval)
		ec.notice(ctx, claim, "", noticePodsDeleted, v1.EventTypeNormal, reasonWaitingForPods,
			fmt.Sprintf("cannot be deallocated and removed because pods still use it, for example %q on node %q", pod.Name, pod.Spec.NodeName), ec.workloads.noticePeriod)
		recheck(ec.workloads.pollInterval)
		return nil
	}

	// Also when the feature is disabled: removing the reservation is what gets
	// undone here, there may be many such pods, and none of them is listed.
	consumer, err := ec.consumerForPod(ctx, claim, pod)
	if err != nil {
		return err
	}
	if err := ec.reserveFor(ctx, consumer, claim); err != nil {
		return fmt.Errorf("reserve claim again because pod %s uses it: %w", pod.Name, err)
	}
	resourceclaimmetrics.WorkloadReleases.WithLabelValues("restored").Inc()
	ref := workloadRef{namespace: claim.Namespace, ResourceClaimConsumerReference: consumer}
	logger.V(2).Info("Reserved claim again because it is in use", "consumer", ref)
	ec.event(claim, v1.EventTypeNormal, reasonRestored, fmt.Sprintf("reserved again for %s because pod %q uses it on node %q", ref, pod.Name, pod.Spec.NodeName))
	return nil
}

// mustReserve checks whether an allocated claim which does not list the pod or its
// PodGroup needs an additional reservation because the pod was already
// assigned to a node.
//
// This does not depend on the feature gate: otherwise, disabling it while
// thousands of pods share a claim would lead to trying to add all of them.
func (ec *Controller) mustReserve(pod *v1.Pod, claim *resourceapi.ResourceClaim) bool {
	if resourceclaim.IsAllocatedForAnyPod(claim) &&
		(resourceclaim.HasWorkloadReference(claim) || isPodDone(pod) || claim.DeletionTimestamp != nil) {
		// The pod may use the claim as it is, doesn't need it,
		// or new reservations will be rejected.
		return false
	}
	return resourceclaim.CanBeReserved(claim)
}

// consumerForPod determines for what a claim must be reserved that
// was allocated for any pod and gets used by the given pod. If
// the workload is unknown, then it's the pod: this also
// protects the claim and allows that pod to run.
func (ec *Controller) consumerForPod(ctx context.Context, claim *resourceapi.ResourceClaim, pod *v1.Pod) (resourceapi.ResourceClaimConsumerReference, error) {
	released := ec.workloads.getReleased(claim.UID)
	if want := claim.Spec.ReservedFor; want != nil {
		if want.UID != "" {
			return *want, nil
		}

		// Either the pod is controlled directly by the workload or, for example
		// for a Deployment, by something that is controlled by it.
		owner := metav1.GetControllerOf(pod)
		for range 2 {
			if owner == nil {
				break
			}
			if resourceclaim.IsOwnerReferenceTo(*owner, *want) {
				consumer := *want
				consumer.UID = owner.UID
				return consumer, nil
			}
			var err error
			owner, err = ec.controllerOf(ctx, pod.Namespace, owner)
			if err != nil {
				return resourceapi.ResourceClaimConsumerReference{}, fmt.Errorf("determine workload of pod: %w", err)
			}
		}
	}
	if len(released) > 0 {
		return released[len(released)-1], nil
	}
	return resourceapi.ResourceClaimConsumerReference{
		APIGroup: v1.GroupName,
		Resource: "pods",
		Name:     pod.Name,
		UID:      pod.UID,
	}, nil
}

// usesClaim returns true if containers of the pod might run with devices of the
// claim: it was assigned to a node and is not known to have terminated.
func usesClaim(pod *v1.Pod, claim *resourceapi.ResourceClaim) bool {
	if pod.Namespace != claim.Namespace || pod.Spec.NodeName == "" || podutil.IsPodTerminal(pod) {
		return false
	}
	if extendedResourceClaimName(pod) == claim.Name {
		return true
	}
	return slices.ContainsFunc(pod.Spec.ResourceClaims, func(podClaim v1.PodResourceClaim) bool {
		name, _, err := resourceclaim.Name(pod, &podClaim)
		return err == nil && name != nil && *name == claim.Name
	})
}

// findUserInCache returns some pod in the informer cache which uses the claim, nil
// if there is none.
func (ec *Controller) findUserInCache(claim *resourceapi.ResourceClaim) (*v1.Pod, error) {
	// When thousands of pods share a claim, then it's usually still the
	// same one as last time.
	if name := ec.workloads.getLastUser(claim.UID); name != "" {
		if pod, err := ec.podLister.Pods(claim.Namespace).Get(name); err == nil && usesClaim(pod, claim) {
			return pod, nil
		}
	}

	objs, err := ec.podIndexer.ByIndex(podResourceClaimIndex, claim.Namespace+"/"+claim.Name)
	if err != nil {
		return nil, fmt.Errorf("find pods for claim in cache: %w", err)
	}
	for _, obj := range objs {
		if pod, ok := obj.(*v1.Pod); ok && usesClaim(pod, claim) {
			ec.workloads.setLastUser(claim.UID, pod.Name)
			return pod, nil
		}
	}
	return nil, nil
}

// userFieldSelector limits a list of pods to those which usesClaim may accept.
var userFieldSelector = fields.AndSelectors(
	fields.OneTermNotEqualSelector("spec.nodeName", ""),
	fields.OneTermNotEqualSelector("status.phase", string(v1.PodSucceeded)),
	fields.OneTermNotEqualSelector("status.phase", string(v1.PodFailed)),
).String()

// findUser does the same as findUserInCache with a consistent read from the API
// server. The claims of a pod are not available as selector, so this considers all
// pods in the namespace which might run.
func (ec *Controller) findUser(ctx context.Context, claim *resourceapi.ResourceClaim) (*v1.Pod, error) {
	var found *v1.Pod
	errFound := errors.New("found")
	pods := ec.kubeClient.CoreV1().Pods(claim.Namespace)
	// No resource version: that is what makes it a consistent read.
	err := pager.New(pager.SimplePageFunc(func(opts metav1.ListOptions) (runtime.Object, error) {
		return pods.List(ctx, opts)
	})).EachListItem(ctx, metav1.ListOptions{FieldSelector: userFieldSelector}, func(obj runtime.Object) error {
		if pod, ok := obj.(*v1.Pod); ok && usesClaim(pod, claim) {
			found = pod
			return errFound
		}
		return nil
	})
	if err != nil && !errors.Is(err, errFound) {
		return nil, fmt.Errorf("list pods which might use the claim: %w", err)
	}
	return found, nil
}

// observeClaim gets called for each claim event before the claim gets enqueued.
func (ec *Controller) observeClaim(oldClaim, newClaim *resourceapi.ResourceClaim) {
	w := ec.workloads
	if newClaim == nil {
		w.forget(oldClaim.UID)
		return
	}
	if oldClaim != nil && oldClaim.UID != newClaim.UID {
		w.forget(oldClaim.UID)
	}
	if newClaim.Status.Allocation == nil {
		w.forget(newClaim.UID)
		return
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	state := w.claims[newClaim.UID]
	if state == nil {
		return
	}
	if len(newClaim.Status.ReservedFor) > 0 && !state.unreservedSince.IsZero() {
		// In use again.
		state.unreservedSince = time.Time{}
		state.released = nil
	}
	for uid, n := range state.notices {
		reserved := slices.ContainsFunc(newClaim.Status.ReservedFor, func(ref resourceapi.ResourceClaimConsumerReference) bool { return ref.UID == uid })
		if uid != "" && !reserved {
			n.drop()
			delete(state.notices, uid)
		}
	}
}

// state must be called with the mutex locked.
func (w *workloads) state(claimUID types.UID) *claimState {
	state := w.claims[claimUID]
	if state == nil {
		state = &claimState{notices: make(map[types.UID]*notice)}
		w.claims[claimUID] = state
	}
	return state
}

func (w *workloads) forget(claimUID types.UID) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if state := w.claims[claimUID]; state != nil {
		for _, n := range state.notices {
			n.drop()
		}
		delete(w.claims, claimUID)
	}
}

// unreserved returns for how long the claim was not reserved and for what it was
// reserved before that. The time starts when this gets called for the first time
// after the claim was reserved.
func (w *workloads) unreserved(claimUID types.UID) (duration time.Duration, firstTime bool, released []resourceapi.ResourceClaimConsumerReference) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	state := w.state(claimUID)
	now := w.clock.Now()
	if state.unreservedSince.IsZero() {
		state.unreservedSince = now
		firstTime = true
	}
	return now.Sub(state.unreservedSince), firstTime, slices.Clone(state.released)
}

func (w *workloads) addReleased(claimUID types.UID, ref resourceapi.ResourceClaimConsumerReference) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	state := w.state(claimUID)
	if !slices.Contains(state.released, ref) {
		state.released = append(state.released, ref)
	}
}

func (w *workloads) getReleased(claimUID types.UID) []resourceapi.ResourceClaimConsumerReference {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if state := w.claims[claimUID]; state != nil {
		return slices.Clone(state.released)
	}
	return nil
}

func (w *workloads) setLastUser(claimUID types.UID, podName string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.state(claimUID).lastUser = podName
}

func (w *workloads) getLastUser(claimUID types.UID) string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if state := w.claims[claimUID]; state != nil {
		return state.lastUser
	}
	return ""
}

// noticePodsUseClaim explains why a claim remains reserved after the workload is
// done.
func (ec *Controller) noticePodsUseClaim(ctx context.Context, claim *resourceapi.ResourceClaim, ref workloadRef, explanation string, pod *v1.Pod) {
	ec.notice(ctx, claim, ref.UID, noticePods, v1.EventTypeNormal, reasonWaitingForPods,
		fmt.Sprintf("remains reserved for %s, which %s, because pods still use it, for example %q on node %q", ref, explanation, pod.Name, pod.Spec.NodeName), ec.workloads.noticePeriod)
}

// noticeWorkloadUnknown explains that and why a claim might remain reserved for
// ever.
func (ec *Controller) noticeWorkloadUnknown(ctx context.Context, claim *resourceapi.ResourceClaim, ref workloadRef, status workloadStatus) {
	reason, hint := reasonUnknownResource, "remove it from status.reservedFor if it is known to be gone"
	if status.state == workloadForbidden {
		reason = reasonForbidden
		hint = `allow that through a ClusterRole with label "rbac.authorization.k8s.io/aggregate-to-resourceclaim-controller: true" or ` + hint
	}
	ec.notice(ctx, claim, ref.UID, string(status.state), v1.EventTypeWarning, reason,
		fmt.Sprintf("remains reserved for %s, which %s; %s", ref, status.explanation, hint), 0)
}

// notice reports a certain state through an event if it continues to exist for
// some time. The event does not get repeated before the state has changed.
func (ec *Controller) notice(ctx context.Context, claim *resourceapi.ResourceClaim, consumerUID types.UID, state, eventType, reason, message string, after time.Duration) {
	w := ec.workloads
	report, wait := func() (bool, time.Duration) {
		w.mutex.Lock()
		defer w.mutex.Unlock()
		claimState := w.state(claim.UID)
		now := w.clock.Now()
		n := claimState.notices[consumerUID]
		if n == nil || n.state != state {
			if n != nil {
				n.drop()
			}
			n = &notice{state: state, since: now}
			claimState.notices[consumerUID] = n
			resourceclaimmetrics.WaitingWorkloadReservations.WithLabelValues(state).Inc()
		}
		if n.reported {
			return false, 0
		}
		if wait := after - now.Sub(n.since); wait > 0 {
			return false, wait
		}
		n.reported = true
		return true, 0
	}()
	if wait > 0 {
		// Usually something else causes the claim to be checked sooner.
		ec.queue.AddAfter(claimKeyPrefix+claim.Namespace+"/"+claim.Name, wait)
	}
	if report {
		klog.FromContext(ctx).V(2).Info("Claim remains allocated", "reason", reason, "message", message)
		ec.event(claim, eventType, reason, message)
	}
}

func (ec *Controller) clearNotice(claim *resourceapi.ResourceClaim, ref workloadRef) {
	w := ec.workloads
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if state := w.claims[claim.UID]; state != nil && state.notices[ref.UID] != nil {
		state.notices[ref.UID].drop()
		delete(state.notices, ref.UID)
	}
}

func (n *notice) drop() {
	resourceclaimmetrics.WaitingWorkloadReservations.WithLabelValues(n.state).Dec()
}

func (ec *Controller) event(claim *resourceapi.ResourceClaim, eventType, reason, message string) {
	if ec.recorder != nil {
		ec.recorder.Event(claim, eventType, reason, message)
	}
}
