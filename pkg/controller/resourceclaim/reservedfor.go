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
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/controller/resourceclaim/fairness"
	resourceclaimmetrics "k8s.io/kubernetes/pkg/controller/resourceclaim/metrics"
	"k8s.io/kubernetes/pkg/controller/resourceclaim/owners"
	"k8s.io/kubernetes/pkg/controller/resourceclaim/retention"
	"k8s.io/utils/clock"
)

// This file contains what the controller does for claims which are reserved for
// something other than individual pods, for example a Job (KEP-5194). The decision
// about the reservations themselves is made by a workloadReview.
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
// In two cases the first condition does not matter: a claim which is being deleted
// cannot be used by more pods, and users may ask for releasing a claim that was
// not used for some time.
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
	// reasonIdle is used when the reservation of an idle claim gets removed.
	reasonIdle = "IdleReservation"
	// reasonInvalidIdle is used when it is not known when a claim is idle.
	reasonInvalidIdle = "InvalidReleaseWhenIdle"
	// reasonUnknownOwner is used when it is not known to which workload a pod belongs.
	reasonUnknownOwner = "UnknownOwner"
	// reasonStranded is used for a pod which was assigned to a node and cannot
	// run there.
	reasonStranded = "ResourceClaimNotUsable"
)

// workloads is the part of the controller's state which is about claims that
// are reserved for something other than individual pods.
type workloads struct {
	clock          clock.PassiveClock
	releasePause   time.Duration
	endPause       time.Duration
	nominatedPause time.Duration
	pollInterval   time.Duration
	lookupInterval time.Duration
	retryInterval  time.Duration
	noticePeriod   time.Duration

	// kinds are those which can be retrieved with the normal client.
	kinds []*workloadKind

	// The following fields get set by WatchWorkloads.
	informers     map[schema.GroupResource]cache.SharedIndexInformer
	nodes         cache.SharedIndexInformer
	classes       cache.SharedIndexInformer
	restMapper    meta.RESTMapper
	dynamicClient dynamic.Interface

	// lookups contains recent results of looking up a workload.
	lookups *owners.Cache[workloadKey, *lookupResult]
	// unknownResources contains those resources that the API server recently
	// did not have for a namespace. It might not be the API server who said that.
	unknownResources *owners.Cache[schema.GroupResource, *unknownResource]
	// owners contains what controls an object which cannot be watched.
	owners *owners.Cache[ownerKey, ownerAnswer]
	// done contains those incarnations of a workload that a claim does not have
	// to be reserved for when a pod of them uses it. The value is true for one that
	// certainly starts no other pod.
	done *owners.Cache[workloadRef, bool]
	// stranded contains those pods which cannot run with a claim.
	stranded *owners.Cache[strandedKey, strandedRecord]

	// reports counts events about the same problem of the pods of a consumer.
	reports *owners.Cache[reportKey, int]

	// limiter is for looking up workloads which cannot be watched.
	limiter *fairness.Limiter
	// creations is for creating claims where others could not be created.
	creations *fairness.Limiter

	// users finds pods in the API server.
	users *userLists

	mutex sync.Mutex
	// claims contains those claims for which something needs to be remembered.
	claims map[types.NamespacedName]*claimState
	// generated contains claims which are being created for the consumers of pods, or were
	// a short while ago.
	generated map[types.NamespacedName]*generatedClaim
	// failed has when such a claim of a namespace last could not be created. Old ones get removed.
	failed map[string]time.Time
	// mapperReset is when restMapper was last reset.
	mapperReset time.Time
}

// States which get reported through a notice. They are also used in a metric.
const (
	noticeForbidden       = string(retention.Forbidden)
	noticeUnknownResource = string(retention.UnknownResource)
	noticePods            = "pods"
	noticePodsDeleted     = "pods_deleted_claim"
)

func newWorkloads(features Features) *workloads {
	w := &workloads{
		releasePause:   defaultReleasePause,
		endPause:       defaultEndPause,
		nominatedPause: defaultNominatedPause,
		pollInterval:   defaultPollInterval,
		lookupInterval: defaultLookupInterval,
		retryInterval:  defaultRetryInterval,
		noticePeriod:   defaultNoticePeriod,
		kinds:          builtinWorkloadKinds(features),
		informers:      make(map[schema.GroupResource]cache.SharedIndexInformer),
		claims:         make(map[types.NamespacedName]*claimState),
		generated:      make(map[types.NamespacedName]*generatedClaim),
		failed:         make(map[string]time.Time),
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
	w.lookups = owners.NewCache(c, maxLookupBytes, 2*maxCacheBytes, func(key workloadKey, result *lookupResult) int {
		return len(key.Group) + len(key.Resource) + len(key.Name) + result.size()
	})
	w.unknownResources = newCache(c, func(key schema.GroupResource, unknown *unknownResource) int {
		return len(key.Group) + len(key.Resource) + len(unknown.err.Error())
	})
	w.owners = newCache(c, ownerKey.size)
	w.done = newCache(c, func(key workloadRef, _ bool) int {
		return len(key.APIGroup) + len(key.Resource) + len(key.Name) + len(key.UID)
	})
	w.stranded = owners.NewCache(c, maxStrandedBytes, 2*maxStrandedBytes, func(key strandedKey, _ strandedRecord) int {
		return len(key.pod) + len(key.claim)
	})
	w.reports = newCache(c, reportKey.size)
	w.limiter = fairness.NewLimiter(c, lookupsPerSecond)
	w.creations = fairness.NewLimiter(c, failuresPerSecond)
	w.users = newUserLists(c)
}

func newCache[K comparable, V any](c clock.PassiveClock, size func(K, V) int) *owners.Cache[K, V] {
	return owners.NewCache(c, maxNamespaceBytes, maxCacheBytes, size)
}

// checksWorkloads returns true if entries for something other than a pod in
// status.reservedFor of the claim get checked. Other claims may have such
// entries for a different purpose. It is up to whoever added them to remove
// them.
//
// While the feature is disabled, only claims are checked where it was used for
// the allocation.
func (ec *Controller) checksWorkloads(claim *resourceapi.ResourceClaim) bool {
	return resourceclaim.IsAllocatedForAnyPod(claim) || ec.isWorkloadClaim(claim)
}

// mustLookBeforeDeallocation returns true for a claim which is or was reserved
// for something that isn't just one pod. Then not being reserved anymore does
// not imply that there are no pods which use it.
//
// What is stored counts even if the feature is disabled now. Only claims
// which were allocated per pod although they should not have been get treated as
// before in that case.
func (ec *Controller) mustLookBeforeDeallocation(claim *resourceapi.ResourceClaim) bool {
	return claim.Status.Allocation != nil && ec.checksWorkloads(claim)
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

	// Pause.
	w := ec.workloads
	since, firstTime, released := w.unreserved(claim)
	pause, err := ec.pauseBeforeDeallocation(claim, released)
	if err != nil {
		return err
	}
	if firstTime {
		logger.V(2).Info("Claim is not reserved anymore and will be deallocated unless it gets used again", "released", released, "pause", pause)
		ec.event(claim, v1.EventTypeNormal, reasonReleased, fmt.Sprintf("not reserved anymore%s, will be deallocated in %s unless a pod uses it", releasedSuffix(claim.Namespace, released), pause))
	}
	if wait := pause - w.clock.Since(since); wait > 0 {
		ec.recheckClaim(claim, wait)
		return nil
	}

	// Look again, now with the certainty that no kubelet starts further pods.
	pod, found, err := ec.lookAgain(ctx, claim, since)
	switch {
	case err != nil:
		ec.recheckClaim(claim, w.retryInterval)
		return err
	case found == retention.UsageFound:
		err = ec.restoreReservation(ctx, claim, pod)
	case found == retention.UsageNone:
		err = ec.deallocate(ctx, claim, released)
	}
	if err != nil {
		// Besides the usual retry, for which failures of others are waited for.
		ec.recheckClaim(claim, w.retryInterval)
	}
	return err
}

// pauseBeforeDeallocation returns for how long the claim must not have been reserved before
// its devices may be free.
//
// The pause is not what keeps devices from being freed while they are used: that's the list of pods
// after it. It spares a pod the fate of being assigned to a node where it cannot run, by a scheduler that
// has not seen the end of the reservation yet. A few informer updates are enough if there
// is no such pod, and the workload was found to start no other one when its reservation was removed.
func (ec *Controller) pauseBeforeDeallocation(claim *resourceapi.ResourceClaim, released []resourceapi.ResourceClaimConsumerReference) (time.Duration, error) {
	w := ec.workloads
	mayStartPods := func(consumer resourceapi.ResourceClaimConsumerReference) bool {
		done, _ := w.done.Get(claim.Namespace, workloadRef{namespace: claim.Namespace, ResourceClaimConsumerReference: consumer})
		return !done
	}
	if claim.DeletionTimestamp == nil && (len(released) == 0 || slices.ContainsFunc(released, mayStartPods)) {
		return w.releasePause, nil
	}
	pod, err := ec.findPodInCache(claim, func(pod *v1.Pod, _ *resourceapi.ResourceClaim) bool { return !podutil.IsPodTerminal(pod) })
	if err != nil || pod != nil {
		return w.releasePause, err
	}
	return w.endPause, nil
}

// lookAgain returns a pod which uses a claim that is not reserved since the given
// time. If the result is pending, then the claim will be processed again.
func (ec *Controller) lookAgain(ctx context.Context, claim *resourceapi.ResourceClaim, since time.Time) (*v1.Pod, retention.Usage, error) {
	w := ec.workloads
	pod, err := ec.findUserInCache(claim)
	if err != nil {
		return nil, retention.UsageFailed, err
	}
	if pod != nil {
		w.users.cancel(claimName(claim))
		return pod, retention.UsageFound, nil
	}

	// A pod might be on its way to some node, based on the reservation that
	// existed when the scheduler looked. That can take minutes.
	if left := w.nominatedPause - w.clock.Since(since); left > 0 && claim.DeletionTimestamp == nil {
		pod, err := ec.findPodInCache(claim, ec.isNominated)
		if err != nil {
			return nil, retention.UsageFailed, err
		}
		if pod != nil {
			after := min(left, w.pollInterval)
			klog.FromContext(ctx).V(4).Info("Not deallocating claim yet, pod is about to use it", "pod", klog.KObj(pod), "node", pod.Status.NominatedNodeName, "recheckAfter", after)
			ec.recheckClaim(claim, after)
			return nil, retention.UsagePending, nil
		}
	}
	return ec.findStoredUser(ctx, claim, "deallocate "+since.String())
}

// deallocate frees the devices of a claim which is not reserved and not in use.
func (ec *Controller) deallocate(ctx context.Context, claim *resourceapi.ResourceClaim, released []resourceapi.ResourceClaimConsumerReference) error {
	logger := klog.FromContext(ctx)
	// This is not using a patch because we want the update to fail if anything
	// changed in the meantime.
	claim = claim.DeepCopy()
	claim.Status.Allocation = nil
	claims := claimClient(ec.kubeClient, claim.Namespace)
	claim, err := claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("deallocate claim: %w", err)
	}
	ec.workloads.forget(claimName(claim))
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
func (ec *Controller) restoreReservation(ctx context.Context, claim *resourceapi.ResourceClaim, pod *v1.Pod) error {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "pod", klog.KObj(pod))
	if claim.DeletionTimestamp != nil {
		// Nothing can be added anymore. The claim simply must not be
		// deallocated.
		logger.V(4).Info("Not deallocating claim, pod uses it", "recheckAfter", ec.workloads.pollInterval)
		ec.notice(ctx, claim, "", noticePodsDeleted, v1.EventTypeNormal, reasonWaitingForPods,
			fmt.Sprintf("cannot be deallocated and removed because pods still use it, for example %q on node %q", pod.Name, pod.Spec.NodeName), ec.workloads.noticePeriod)
		ec.recheckClaim(claim, ec.workloads.pollInterval)
		return nil
	}

	// Also when the feature is disabled: removing the reservation is what gets
	// undone here, there may be many such pods, and none of them is listed.
	consumer, err := ec.consumerForPod(ctx, claim, pod)
	if err != nil {
		ec.recheckClaim(claim, ec.workloads.retryInterval)
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
	if status.state == retention.Forbidden {
		reason = reasonForbidden
		hint = `allow that through a ClusterRole with label "rbac.authorization.k8s.io/aggregate-to-resourceclaim-controller: true" or ` + hint
	}
	ec.notice(ctx, claim, ref.UID, string(status.state), v1.EventTypeWarning, reason,
		fmt.Sprintf("remains reserved for %s, which %s; %s", ref, status.explanation, hint), 0)
}

// notice reports a certain state through an event if it continues to exist for
// some time. Only a warning gets repeated before the state has changed: somebody has
// to do something, and events are not kept for long.
func (ec *Controller) notice(ctx context.Context, claim *resourceapi.ResourceClaim, consumerUID types.UID, state, eventType, reason, message string, after time.Duration) {
	w := ec.workloads
	report, wait := func() (bool, time.Duration) {
		w.mutex.Lock()
		defer w.mutex.Unlock()
		claimState := w.state(claim)
		now := w.clock.Now()
		n := claimState.notices[consumerUID]
		if n == nil || n.state != state {
			if n != nil {
				n.drop()
			}
			n = &notice{state: state, due: now.Add(after)}
			claimState.notices[consumerUID] = n
			resourceclaimmetrics.WaitingWorkloadReservations.WithLabelValues(state).Inc()
		}
		if n.due.IsZero() {
			return false, 0
		}
		if wait := n.due.Sub(now); wait > 0 {
			return false, wait
		}
		if eventType != v1.EventTypeWarning {
			n.due = time.Time{}
			return true, 0
		}
		n.due = now.Add(warningPeriod)
		return true, 0
	}()
	if wait > 0 {
		// Usually something else causes the claim to be checked sooner.
		ec.recheckClaim(claim, wait)
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
	if state := w.existingState(claim); state != nil && state.notices[ref.UID] != nil {
		state.notices[ref.UID].drop()
		delete(state.notices, ref.UID)
	}
}

func (ec *Controller) event(claim *resourceapi.ResourceClaim, eventType, reason, message string) {
	if ec.recorder != nil {
		ec.recorder.Event(claim, eventType, reason, message)
	}
}
