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
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"
	resourceclaimmetrics "k8s.io/kubernetes/pkg/controller/resourceclaim/metrics"
	"k8s.io/kubernetes/pkg/controller/resourceclaim/owners"
	"k8s.io/kubernetes/pkg/controller/resourceclaim/retention"
)

// This file is about pods which were assigned to a node and use a claim that is
// meant for a workload: for what it must be reserved, and what if it can't be.

const (
	// ownerInterval is how long it is remembered what controls an object that
	// is not watched.
	ownerInterval = time.Minute
	// doneInterval is how long it is remembered that some incarnation of a
	// workload does not need a reservation.
	doneInterval = 10 * time.Minute
	// strandedGracePeriod is how long a pod may be without an allocated
	// claim before the user is told. It covers delays of informers.
	strandedGracePeriod = 30 * time.Second
	// strandedInterval is how often the user is told. Events do not exist for
	// longer than that.
	strandedInterval = time.Hour
)

// errLookupNeeded is returned if it takes a request to find the answer.
var errLookupNeeded = errors.New("workload must be looked up")

// lookupDeferredError is returned if that request has to be done later.
type lookupDeferredError struct {
	after time.Duration
}

func (e lookupDeferredError) Error() string {
	return fmt.Sprintf("too many workloads get looked up at the moment, must be done again in %s", e.after)
}

// isWorkloadClaim returns true if a claim that is needed by a pod is meant for a
// workload and that is supported.
func (ec *Controller) isWorkloadClaim(claim *resourceapi.ResourceClaim) bool {
	return ec.features.ReservedForWorkloads && claim.Spec.ReservedFor != nil
}

// mightHaveToReserve checks whether an allocated claim which does not list the
// pod or its PodGroup might need an additional reservation because the pod was
// already assigned to a node. It gets called for each event about such a
// pod, so it does not send requests. If mustReserve might have to do
// that, then the result is true.
func (ec *Controller) mightHaveToReserve(pod *v1.Pod, claim *resourceapi.ResourceClaim) bool {
	must, err := ec.checkReservation(context.TODO(), pod, claim, false)
	return must || err != nil
}

// mustReserve is the same, but certain. If that is not possible at the moment, then
// the pod will be processed again.
func (ec *Controller) mustReserve(ctx context.Context, pod *v1.Pod, claim *resourceapi.ResourceClaim) bool {
	must, err := ec.checkReservation(ctx, pod, claim, true)
	if err != nil {
		after := ec.workloads.retryInterval
		var deferred lookupDeferredError
		if errors.As(err, &deferred) {
			after = deferred.after
		}
		klog.FromContext(ctx).V(4).Info("Cannot determine for which workload to reserve", "claim", klog.KObj(claim), "err", err, "recheckAfter", after)
		ec.queue.AddAfter(podKeyPrefix+pod.Namespace+"/"+pod.Name, after)
		return false
	}
	return must
}

// checkReservation implements mustReserve. Without permission to send requests,
// the error may be errLookupNeeded.
//
// The first checks do not depend on the feature gate: otherwise, disabling it
// while thousands of pods share a claim would lead to trying to add all of them.
func (ec *Controller) checkReservation(ctx context.Context, pod *v1.Pod, claim *resourceapi.ResourceClaim, mayLookUp bool) (bool, error) {
	if ec.isWorkloadClaim(claim) && !ec.fitsNode(claim, pod.Spec.NodeName) {
		// Allocated for some other node. Reserving it would not help the pod.
		return false, nil
	}
	if !resourceclaim.IsAllocatedForAnyPod(claim) {
		return resourceclaim.CanBeReserved(claim), nil
	}
	if isPodDone(pod) || claim.DeletionTimestamp != nil {
		// The pod doesn't need it, or new reservations will be rejected.
		return false, nil
	}
	if !resourceclaim.HasWorkloadReference(claim) {
		return resourceclaim.CanBeReserved(claim), nil
	}

	// The pod may use the claim as it is. But the claim must not get released
	// when some other incarnation of the workload is gone.
	if !ec.isWorkloadClaim(claim) || !resourceclaim.CanBeReserved(claim) {
		return false, nil
	}
	uid, err := ec.workloadUIDOf(ctx, pod, claim, mayLookUp)
	if err != nil || uid == "" {
		return false, err
	}
	consumer := resourceclaim.WorkloadConsumer(claim.Spec.ReservedFor, uid)
	if slices.ContainsFunc(claim.Status.ReservedFor, func(ref resourceapi.ResourceClaimConsumerReference) bool { return ref.UID == uid }) {
		return false, nil
	}
	return ec.mightStartPods(ctx, workloadRef{namespace: claim.Namespace, ResourceClaimConsumerReference: consumer}, mayLookUp)
}

// mightStartPods checks whether a workload which is not listed yet needs to be
// listed in addition to some other one. If it cannot be checked, then it does
// not: the claim will not be released anyway as long as the other one, which is
// of the same kind, cannot be checked either.
func (ec *Controller) mightStartPods(ctx context.Context, ref workloadRef, mayLookUp bool) (bool, error) {
	w := ec.workloads
	cached, err := w.fromInformer(ref)
	if err != nil {
		return false, fmt.Errorf("get %s from cache: %w", ref, err)
	}
	if cached != nil && cached.state == retention.Active {
		return true, nil
	}
	if _, done := w.done.Get(ref.namespace, ref); done {
		return false, nil
	}
	if !mayLookUp {
		return false, errLookupNeeded
	}

	status, err := ec.currentStatus(ctx, ref)
	if err != nil {
		return false, err
	}
	switch status.state {
	case retention.Active:
		return true, nil
	case retention.Deferred:
		return false, lookupDeferredError{status.checkAfter}
	case retention.Done:
		w.done.Add(ref.namespace, ref, !status.mayResume, doneInterval)
	default:
		w.done.Add(ref.namespace, ref, false, status.checkAfter)
	}
	return false, nil
}

// workloadUIDOf returns the UID of the object that the claim must be reserved for
// when the pod uses it. It is empty if the pod does not belong to the object
// which is named in the claim.
func (ec *Controller) workloadUIDOf(ctx context.Context, pod *v1.Pod, claim *resourceapi.ResourceClaim, mayLookUp bool) (types.UID, error) {
	workload := claim.Spec.ReservedFor
	if uid := workload.UID; uid != "" {
		return uid, nil
	}
	if uid, err := ec.podGroupUID(pod, workload); err != nil || uid != "" {
		return uid, err
	}
	uid, err := owners.FindWorkloadUID(pod, *workload, func(owner metav1.OwnerReference) (*metav1.OwnerReference, error) {
		return ec.controllerOf(ctx, pod.Namespace, owner, mayLookUp)
	})
	if reason := owners.ReasonFor(err); reason != "" {
		// The claim remains reserved for what is listed already, and the pod may use it.
		if mayLookUp {
			ec.reportOwner(claim, pod, reason, err)
		}
		return "", nil
	}
	return uid, err
}

// reportOwner tells users why it is not known to which workload a pod belongs. Without that,
// the claim gets released when the workload that is listed is gone, even if the pod
// belongs to another incarnation.
func (ec *Controller) reportOwner(claim *resourceapi.ResourceClaim, pod *v1.Pod, reason owners.Reason, err error) {
	w := ec.workloads
	w.mutex.Lock()
	state := w.state(claim)
	report := state.ownerReason != reason
	state.ownerReason = reason
	w.mutex.Unlock()
	if report {
		ec.event(claim, v1.EventTypeWarning, reasonUnknownOwner, fmt.Sprintf("cannot tell whether pod %q belongs to %s %q: %v", pod.Name,
			schema.GroupResource{Group: claim.Spec.ReservedFor.APIGroup, Resource: claim.Spec.ReservedFor.Resource}, claim.Spec.ReservedFor.Name, err))
	}
}

// ownerKey identifies an owner of an object in some namespace.
type ownerKey struct {
	apiVersion, kind, name string
	uid                    types.UID
}

// ownerAnswer is what was found out about an owner: its controller, nil if it has none, or why
// that is not known.
type ownerAnswer struct {
	controller *metav1.OwnerReference
	err        error
}

// size returns the number of bytes of the strings in both.
func (k ownerKey) size(answer ownerAnswer) int {
	n := len(k.apiVersion) + len(k.kind) + len(k.name) + len(k.uid)
	if c := answer.controller; c != nil {
		n += len(c.APIVersion) + len(c.Kind) + len(c.Name) + len(c.UID)
	}
	if answer.err != nil {
		n += len(answer.err.Error())
	}
	return n
}

// controllerOf determines what controls the object in the owner reference. The
// result is nil if there is no such controller. The error is an
// *owners.UnresolvedError if it was found out that it cannot be determined.
func (ec *Controller) controllerOf(ctx context.Context, namespace string, owner metav1.OwnerReference, mayLookUp bool) (*metav1.OwnerReference, error) {
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return nil, owners.Unresolved(owners.UnknownKind, owner, nil)
	}
	w := ec.workloads
	gvk := gv.WithKind(owner.Kind)
	obj, err := w.ownerFromInformer(namespace, gvk, owner)
	if err != nil {
		return nil, fmt.Errorf("get %s %s from cache: %w", owner.Kind, owner.Name, err)
	}
	if obj != nil {
		return owners.Controller(obj.GetUID(), metav1.GetControllerOf(obj), owner)
	}
	key := ownerKey{apiVersion: owner.APIVersion, kind: owner.Kind, name: owner.Name, uid: owner.UID}
	if answer, ok := w.owners.Get(namespace, key); ok {
		return answer.controller, answer.err
	}
	if !mayLookUp {
		return nil, errLookupNeeded
	}
	if wait := w.limiter.TryAccept(namespace); wait > 0 {
		return nil, lookupDeferredError{wait}
	}
	controller, err := ec.retrieveControllerOf(ctx, namespace, gvk, owner)
	if err != nil && owners.ReasonFor(err) == "" {
		return nil, fmt.Errorf("determine controller of %s %s: %w", owner.Kind, owner.Name, err)
	}
	w.owners.Add(namespace, key, ownerAnswer{controller, err}, ownerInterval)
	return controller, err
}

// ownerFromInformer returns nil for an object which is not watched, does not
// exist, or is a different incarnation.
func (w *workloads) ownerFromInformer(namespace string, gvk schema.GroupVersionKind, owner metav1.OwnerReference) (metav1.Object, error) {
	for _, kind := range w.kinds {
		if kind.resource.Group != gvk.Group || kind.kind != gvk.Kind {
			continue
		}
		informer := w.informers[kind.resource]
		if informer == nil {
			return nil, nil
		}
		obj, err := getFromInformer(informer, namespace, owner.Name)
		if err != nil || obj == nil || obj.GetUID() != owner.UID {
			return nil, err
		}
		return obj, nil
	}
	return nil, nil
}

func (ec *Controller) retrieveControllerOf(ctx context.Context, namespace string, gvk schema.GroupVersionKind, owner metav1.OwnerReference) (*metav1.OwnerReference, error) {
	resource, err := ec.workloads.resourceFor(gvk)
	if err != nil {
		if meta.IsNoMatchError(err) {
			return nil, owners.Unresolved(owners.UnknownKind, owner, nil)
		}
		return nil, err
	}
	obj, err := ec.getWorkload(ctx, resource, namespace, owner.Name)
	if err != nil {
		reason := owners.ReasonForGet(err)
		if isUnknownResource(err) {
			reason = owners.UnknownKind
		}
		if reason == "" {
			return nil, err
		}
		return nil, owners.Unresolved(reason, owner, err)
	}
	return owners.Controller(obj.uid, obj.controller, owner)
}

// consumerForPod determines for what a claim must be reserved that
// was allocated for any pod and gets used by the given pod. If
// the workload is unknown, then it's the pod: this also
// protects the claim and allows that pod to run.
func (ec *Controller) consumerForPod(ctx context.Context, claim *resourceapi.ResourceClaim, pod *v1.Pod) (resourceapi.ResourceClaimConsumerReference, error) {
	if claim.Spec.ReservedFor != nil {
		uid, err := ec.workloadUIDOf(ctx, pod, claim, true)
		if err != nil {
			return resourceapi.ResourceClaimConsumerReference{}, fmt.Errorf("determine workload of pod %s: %w", pod.Name, err)
		}
		if uid != "" {
			return resourceclaim.WorkloadConsumer(claim.Spec.ReservedFor, uid), nil
		}
	}
	if released := ec.workloads.getReleased(claim); len(released) > 0 {
		return released[len(released)-1], nil
	}
	return resourceapi.ResourceClaimConsumerReference{
		APIGroup: v1.GroupName,
		Resource: "pods",
		Name:     pod.Name,
		UID:      pod.UID,
	}, nil
}

// fitsNode returns false if the claim was certainly allocated for other
// nodes than the given one.
func (ec *Controller) fitsNode(claim *resourceapi.ResourceClaim, nodeName string) bool {
	nodes := ec.workloads.nodes
	if nodes == nil || claim.Status.Allocation == nil || claim.Status.Allocation.NodeSelector == nil {
		return true
	}
	obj, exists, err := nodes.GetIndexer().GetByKey(nodeName)
	if err != nil || !exists {
		return true
	}
	node, ok := obj.(*v1.Node)
	if !ok {
		return true
	}
	selector, err := nodeaffinity.NewNodeSelector(claim.Status.Allocation.NodeSelector)
	return err != nil || selector.Match(node)
}

// strandedState says why a pod cannot run although it was assigned to a node.
type strandedState string

const (
	notStranded strandedState = ""
	// strandedUnallocated is for a claim which is not allocated.
	strandedUnallocated strandedState = "unallocated"
	// strandedElsewhere is for a claim which is allocated for some other node.
	strandedElsewhere strandedState = "other_node"
)

// strandedRecord is when a pod was first seen in some state.
type strandedRecord struct {
	state    strandedState
	since    time.Time
	reported bool
}

// strandedKey identifies a pod and one of its claims.
type strandedKey struct {
	pod, claim types.UID
}

// strandedState checks for something that should not happen, but cannot be
// excluded: the claim was released while the pod was on its way to
// the node, or somebody assigned the pod without a scheduler.
func (ec *Controller) strandedState(pod *v1.Pod, claim *resourceapi.ResourceClaim) strandedState {
	switch {
	case !ec.isWorkloadClaim(claim) || !mightRun(pod) || pod.DeletionTimestamp != nil:
		return notStranded
	case claim.Status.Allocation == nil:
		return strandedUnallocated
	case !wasStarted(pod) && !ec.fitsNode(claim, pod.Spec.NodeName):
		// A pod which runs got started before the node has changed.
		return strandedElsewhere
	default:
		return notStranded
	}
}

// wasStarted returns true if the kubelet has prepared the devices of the pod: it does that
// before anything else.
func wasStarted(pod *v1.Pod) bool {
	if pod.Status.Phase == v1.PodRunning {
		return true
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == v1.PodReadyToStartContainers && condition.Status == v1.ConditionTrue {
			return true
		}
	}
	started := func(status v1.ContainerStatus) bool {
		return status.ContainerID != "" || status.State.Running != nil || status.State.Terminated != nil || status.LastTerminationState.Terminated != nil
	}
	return slices.ContainsFunc(pod.Status.InitContainerStatuses, started) || slices.ContainsFunc(pod.Status.ContainerStatuses, started)
}

// isStranded returns true for a pod which was assigned to a node for which the claim is not
// allocated, and which was not started there for some time. No kubelet starts it, so it
// does not use the claim.
//
// The time is for informers which are not up-to-date: labels of the node, the allocation, or
// what the kubelet reports about the pod. A kubelet which nevertheless gets to start the
// pod later looks at the claim first, and the claim is not reserved anymore
// some time before its devices are free.
func (ec *Controller) isStranded(pod *v1.Pod, claim *resourceapi.ResourceClaim) bool {
	record, ok := ec.workloads.stranded.Get(pod.Namespace, strandedKey{pod.UID, claim.UID})
	return ok && record.state == strandedElsewhere && record.reported &&
		ec.strandedState(pod, claim) == strandedElsewhere
}

// mustReportStranded returns true if reportStranded has something to do.
func (ec *Controller) mustReportStranded(pod *v1.Pod, claim *resourceapi.ResourceClaim) bool {
	state := ec.strandedState(pod, claim)
	record, ok := ec.workloads.stranded.Get(pod.Namespace, strandedKey{pod.UID, claim.UID})
	if !ok {
		return state != notStranded
	}
	return record.state != state || !record.reported
}

// reportStranded tells users what is wrong with a pod that cannot run. There is
// nothing else that can be done here: it is the scheduler which allocates, and
// not for a pod which already has a node. If the claim gets allocated
// again for that node, then the pod can run after all.
func (ec *Controller) reportStranded(ctx context.Context, pod *v1.Pod, claim *resourceapi.ResourceClaim) {
	w := ec.workloads
	key := strandedKey{pod.UID, claim.UID}
	state := ec.strandedState(pod, claim)
	if state == notStranded {
		w.stranded.Remove(pod.Namespace, key)
		return
	}
	record := strandedRecord{state: state, since: w.clock.Now()}
	if old, ok := w.stranded.Get(pod.Namespace, key); ok && old.state == state {
		record = old
	}
	if record.reported {
		return
	}
	if wait := strandedGracePeriod - w.clock.Since(record.since); wait > 0 {
		w.stranded.Add(pod.Namespace, key, record, strandedInterval)
		ec.queue.AddAfter(podKeyPrefix+pod.Namespace+"/"+pod.Name, wait)
		return
	}
	record.reported = true
	w.stranded.Add(pod.Namespace, key, record, strandedInterval)
	// It does not count as a user of the claim anymore.
	ec.recheckClaim(claim, 0)

	problem := "is not allocated"
	if state == strandedElsewhere {
		problem = "is allocated for other nodes"
	}
	klog.FromContext(ctx).V(2).Info("Pod cannot run because of its claim", "pod", klog.KObj(pod), "node", pod.Spec.NodeName, "claim", klog.KObj(claim), "state", state)
	resourceclaimmetrics.StrandedPods.WithLabelValues(string(state)).Inc()
	if ec.recorder != nil {
		ec.recorder.Eventf(pod, v1.EventTypeWarning, reasonStranded,
			"assigned to node %q, but ResourceClaim %q %s, so the pod cannot run; delete the pod so that its controller replaces it and the scheduler allocates the claim for the new one", pod.Spec.NodeName, claim.Name, problem)
	}
}

// observePod gets called for each pod event. It notices that a claim was used,
// even if it is not used anymore when the claim gets checked.
func (ec *Controller) observePod(pod *v1.Pod) {
	if !mightRun(pod) || !ec.features.ReservedForWorkloads {
		return
	}
	w := ec.workloads
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for _, name := range claimNames(pod) {
		if state := w.claims[types.NamespacedName{Namespace: pod.Namespace, Name: name}]; state != nil {
			state.idleSince = time.Time{}
		}
	}
}
