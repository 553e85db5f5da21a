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

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingapi "k8s.io/api/scheduling/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/utils/ptr"
)

// This file contains the scheduler's part of claims which get reserved for a
// workload instead of for individual pods (KEP-5194).
//
// The first pod that gets scheduled stores, in one write, an allocation which
// is for any pod together with a reference to the workload. Pods after that
// only need to check that both are there. Everything depends on what is
// stored: an allocation which is not for any pod, because it was made
// while the feature was disabled, gets reserved for each pod until it is removed.
//
// To which workload a pod belongs is found out in reservedfor_owners.go. What happens with an
// allocation that does not fit anymore is in reservedfor_unfit.go. What
// differs between Kubernetes releases is in reservedfor_compat.go, reservedfor_podgroups.go and
// sharedclaims_compat.go.

// maxIncarnations limits for how many incarnations of its workload a claim is
// reserved at the same time. One lives, and few can have pods which still
// terminate. More come from forged owner references, with which the
// list must not be filled before the resourceclaim controller cleans up.
const maxIncarnations = 8

// pluginHandle is what is needed from the scheduler framework, whose type
// is in another package in other Kubernetes releases.
type pluginHandle interface {
	SharedInformerFactory() informers.SharedInformerFactory
	KubeConfig() *restclient.Config
	Activate(logger klog.Logger, pods map[string]*v1.Pod)
}

// initReservedFor gets called when the plugin is created.
func (pl *DynamicResources) initReservedFor(ctx context.Context) error {
	if !pl.fts.EnableDRAReservedForWorkloads {
		return nil
	}
	if !pl.fts.EnableDRASharedClaims {
		// Claims which are used by thousands of pods need it.
		return errors.New("the DRAReservedForWorkloads feature gate of kube-scheduler depends on the DRASharedClaims feature gate, which is off: turn that on, or DRAReservedForWorkloads off")
	}
	metrics.RegisterReservedFor()
	if err := pl.watchResourceSlices(&pl.slicesByPool); err != nil {
		return fmt.Errorf("watch ResourceSlices: %w", err)
	}
	claimUsers, err := newClaimUsers(pl.fh, pl.cachedClaim)
	if err != nil {
		return err
	}
	pl.claimUsers = claimUsers
	owners, err := newOwnerResolver(ctx, pl.fh)
	if err != nil {
		return err
	}
	pl.owners = owners
	_, err = pl.fh.SharedInformerFactory().Core().V1().Pods().Informer().AddEventHandler(pl.reservedForPodHandler())
	return err
}

// prepareReservedFor gets called by PreFilter. For each claim with spec.reservedFor it
// determines what has to be stored before the pod may be bound. The pod
// has to wait if that cannot be determined.
func (pl *DynamicResources) prepareReservedFor(ctx context.Context, pod *v1.Pod, s *stateData, claims *claimStore) *fwk.Status {
	if !pl.fts.EnableDRAReservedForWorkloads {
		return nil
	}

	logger := klog.FromContext(ctx)
	// Claims for extended resources never have spec.reservedFor. They
	// are always reserved for the pod.
	for index := range claims.allUserClaims() {
		if claims.get(index).Spec.ReservedFor == nil {
			continue
		}
		if !s.informationsForClaim[index].shared {
			// It is meant for more than the pod that owns it.
			pl.prepareSharedClaim(logger, pod, s, claims, index)
		}

		claim := claims.get(index)
		if claim.Status.Allocation != nil && !resourceclaim.IsAllocatedForAnyPod(claim) {
			if pl.isFull(pod, claim) {
				return statusUnschedulable(logger, fmt.Sprintf("resourceclaim in use: %s has spec.reservedFor, but was allocated while the DRAReservedForWorkloads feature was disabled and therefore can be used by at most %d pods until it gets deallocated", klog.KObj(claim), resourceapi.ResourceClaimReservedForMaxSize), "pod", klog.KObj(pod), "resourceclaim", klog.KObj(claim))
			}
			continue
		}

		workload, err := pl.workloadReference(pod, claim)
		if status := pl.waitForWorkload(logger, pod, claim, workload, err); status != nil {
			return status
		}
		consumer := &workloadConsumer{pl: pl, claim: nameOf(claim), binding: claims.getBinding(index, pod), workload: workload}
		s.informationsForClaim[index].workload = consumer
		if claim.Status.Allocation != nil && s.informationsForClaim[index].pending == nil {
			if status := pl.checkDevices(logger, pod, claim, consumer); status != nil {
				return status
			}
			if status := checkIncarnations(logger, pod, claim, workload); status != nil {
				return status
			}
		}
	}
	return nil
}

// workloadConsumer is the consumer of a claim with spec.reservedFor.
type workloadConsumer struct {
	pl    *DynamicResources
	claim types.NamespacedName

	// binding is the entry for the pod or its group.
	binding resourceapi.ResourceClaimConsumerReference

	// workload is the entry for the workload, nil if the pod does not belong to it.
	workload *resourceapi.ResourceClaimConsumerReference
}

var _ claimConsumer = &workloadConsumer{}

func (c *workloadConsumer) reservation(claim *resourceapi.ResourceClaim) (*resourceapi.ResourceClaimConsumerReference, error) {
	switch {
	case !resourceclaim.IsAllocatedForAnyPod(claim):
		// Might have been dropped by an API server where the
		// feature is disabled.
		return &c.binding, nil
	case c.workload != nil:
		return c.workload, nil
	case isReservedForWorkload(claim):
		return nil, nil
	default:
		return nil, fmt.Errorf("claim %s is not reserved for %s anymore", klog.KObj(claim), describeConsumer(claim.Spec.ReservedFor))
	}
}

func (c *workloadConsumer) admit(claim *resourceapi.ResourceClaim, ref resourceapi.ResourceClaimConsumerReference, missing []resourceapi.ResourceClaimConsumerReference) error {
	return admitIncarnation(claim, ref, missing)
}

// inUse is about pods, which are not listed: PostFilter has the claim released as soon as none uses it.
func (c *workloadConsumer) inUse(claim *resourceapi.ResourceClaim) bool {
	return c.pl.claimUsers.inUse(claim)
}

// latest returns what is in the cache.
func (c *workloadConsumer) latest() (*resourceapi.ResourceClaim, error) {
	return c.pl.draManager.ResourceClaims().Get(c.claim.Namespace, c.claim.Name)
}

// admitIncarnation returns an error if the claim is reserved for as many incarnations of
// its workload as it may be.
func admitIncarnation(claim *resourceapi.ResourceClaim, ref resourceapi.ResourceClaimConsumerReference, missing []resourceapi.ResourceClaimConsumerReference) error {
	if resourceclaim.IsPodReference(ref) || countWorkloads(claim.Status.ReservedFor)+countWorkloads(missing) < maxIncarnations {
		return nil
	}
	return fmt.Errorf("resourceclaim in use: %s is already reserved for %d incarnations of %s, the pod has to wait until those which are gone have been removed: %w", klog.KObj(claim), maxIncarnations, ref.Resource, errClaimFull)
}

// checkIncarnations returns why the pod has to wait if the claim cannot be reserved for its
// workload in addition to all the others. PreBind would find out, too, again and again.
func checkIncarnations(logger klog.Logger, pod *v1.Pod, claim *resourceapi.ResourceClaim, workload *resourceapi.ResourceClaimConsumerReference) *fwk.Status {
	if workload == nil || isListed(claim, workload.UID) {
		return nil
	}
	if err := admitIncarnation(claim, *workload, nil); err != nil {
		return statusUnschedulable(logger, err.Error(), "pod", klog.KObj(pod), "resourceclaim", klog.KObj(claim))
	}
	return nil
}

// countWorkloads returns the number of entries for something other than a pod.
func countWorkloads(refs []resourceapi.ResourceClaimConsumerReference) int {
	n := 0
	for _, ref := range refs {
		if !resourceclaim.IsPodReference(ref) {
			n++
		}
	}
	return n
}

// isReservedForWorkload returns true if any pod may use the claim
// because it is reserved for the object in spec.reservedFor.
func isReservedForWorkload(claim *resourceapi.ResourceClaim) bool {
	return resourceclaim.IsAllocatedForAnyPod(claim) && resourceclaim.WorkloadReservation(claim) != nil
}

// usableByAnyPod returns true if the number of consumers in status.reservedFor is irrelevant.
func (pl *DynamicResources) usableByAnyPod(claim *resourceapi.ResourceClaim) bool {
	return pl.fts.EnableDRAReservedForWorkloads && isReservedForWorkload(claim)
}

// setReservedForAnyPod gets called by Reserve for a new allocation before it gets shared
// with other pods.
func (pl *DynamicResources) setReservedForAnyPod(claim *resourceapi.ResourceClaim, allocation *resourceapi.AllocationResult) {
	if pl.fts.EnableDRAReservedForWorkloads && claim.Spec.ReservedFor != nil && allocation.ReservedForAnyPod == nil {
		allocation.ReservedForAnyPod = ptr.To(true)
	}
}

// mustNotDeallocate returns true if deallocating the claim would affect pods which are
// not listed in status.reservedFor. This does not depend on the feature
// gate because such pods may be running also when it is disabled.
func mustNotDeallocate(claim *resourceapi.ResourceClaim) bool {
	return resourceclaim.IsAllocatedForAnyPod(claim) || resourceclaim.HasWorkloadReference(claim)
}

// waitForWorkload returns why the pod has to wait, nil if it does not have to.
func (pl *DynamicResources) waitForWorkload(logger klog.Logger, pod *v1.Pod, claim *resourceapi.ResourceClaim, workload *resourceapi.ResourceClaimConsumerReference, err error) *fwk.Status {
	consumer := describeConsumer(claim.Spec.ReservedFor)
	var reason string
	switch {
	case (err == nil || noController(err) != "") && (workload != nil || isReservedForWorkload(claim)):
		return nil
	case err == nil, noController(err) != "":
		// The update of the claim when it gets reserved makes the pod schedulable.
		reason = fmt.Sprintf(" and the pod does not belong to it (%s%s): waiting until a pod of %s has been scheduled", pl.describeMembership(pod, claim.Spec.ReservedFor), noController(err), consumer)
	case (apierrors.IsForbidden(err) || errors.Is(err, errNoOwnerAccess)) && isReservedForWorkload(claim):
		// Good enough: any pod may use the claim.
		return nil
	case apierrors.IsForbidden(err):
		reason = fmt.Sprintf(", but the scheduler is not allowed to check whether the pod belongs to it: %v", err)
	case errors.Is(err, errOwnerPending):
		reason = " and the scheduler is checking whether the pod belongs to it"
	default:
		reason = fmt.Sprintf(", but the scheduler could not check yet whether the pod belongs to it: %v", err)
	}
	return statusUnschedulable(logger, fmt.Sprintf("resourceclaim %s is reserved for %s%s", klog.KObj(claim), consumer, reason), "pod", klog.KObj(pod), "resourceclaim", klog.KObj(claim))
}

// preEnqueueReservedFor gets called by PreEnqueue. While an owner of the pod is being looked up,
// there is no point in trying to schedule the pod. Everything else that
// may keep it from being scheduled is reported by PreFilter.
func (pl *DynamicResources) preEnqueueReservedFor(ctx context.Context, pod *v1.Pod) *fwk.Status {
	if !pl.fts.EnableDRAReservedForWorkloads {
		return nil
	}
	pending := false
	if err := pl.foreachPodResourceClaim(pod, func(_ string, claim *resourceapi.ResourceClaim) {
		if claim.Spec.ReservedFor == nil || claim.Status.Allocation != nil && !resourceclaim.IsAllocatedForAnyPod(claim) {
			return
		}
		if _, err := pl.workloadReference(pod, claim); errors.Is(err, errOwnerPending) {
			pending = true
		}
	}); err != nil {
		return statusUnschedulable(klog.FromContext(ctx), err.Error())
	}
	if pending {
		return statusUnschedulable(klog.FromContext(ctx), "the owners of the pod are being looked up", "pod", klog.KObj(pod))
	}
	return nil
}

// CheckBeforeBind has to be called immediately before a pod gets bound. A claim may have been released
// since PreBind because other plugins were slow. Then the pod must not
// be bound, but scheduled again.
func CheckBeforeBind(logger klog.Logger, cs cycleState, pod *v1.Pod) *fwk.Status {
	if cs == nil {
		// Only in tests, nothing was scheduled.
		return nil
	}
	state, err := getStateData(cs)
	if err != nil {
		// The plugin is not enabled.
		return nil
	}
	for index := range state.informationsForClaim {
		workload, ok := state.informationsForClaim[index].workload.(*workloadConsumer)
		if !ok {
			continue
		}
		claim, err := workload.latest()
		if err == nil {
			err = newClaimReservation(state, index, pod).check(claim)
		}
		if err != nil {
			return statusError(logger, fmt.Errorf("claim cannot be used anymore, has to be reserved again: %w", err), "pod", klog.KObj(pod))
		}
	}
	return nil
}

// workloadReference returns the entry for the object in spec.reservedFor, with the
// UID of the incarnation that the pod belongs to, whether some other one is listed
// already or not. It returns nil if the pod does not belong to it.
//
// It is not necessary to check whether the object exists: for how long the
// claim remains reserved for it is not decided here.
func (pl *DynamicResources) workloadReference(pod *v1.Pod, claim *resourceapi.ResourceClaim) (*resourceapi.ResourceClaimConsumerReference, error) {
	workload := claim.Spec.ReservedFor
	if workload.UID != "" {
		if resourceclaim.GeneratedForOf(claim) != nil && !isGeneratedForPod(pod, claim) {
			// The nodes are chosen for those pods for which it was generated.
			return nil, nil
		}
		return ptr.To(resourceclaim.WorkloadConsumer(workload, workload.UID)), nil
	}
	var uid types.UID
	var err error
	if refersToPodGroup(workload) && nameOfPodGroup(pod) == workload.Name {
		uid, err = pl.currentPodGroupUID(pod)
	}
	if err == nil && uid == "" {
		uid, err = pl.owners.workloadUID(pod, *workload)
	}
	if err != nil || uid == "" {
		return nil, err
	}
	return ptr.To(resourceclaim.WorkloadConsumer(workload, uid)), nil
}

// isGeneratedForPod returns true if the pod refers to the claim through a template. That
// the claim was generated for the pod was checked before.
func isGeneratedForPod(pod *v1.Pod, claim *resourceapi.ResourceClaim) bool {
	for i := range pod.Spec.ResourceClaims {
		name, generated, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err == nil && generated && ptr.Deref(name, "") == claim.Name {
			return true
		}
	}
	return false
}

// describeConsumer returns a description of the object like `jobs.batch "train"`.
func describeConsumer(ref *resourceapi.ResourceClaimWorkloadReference) string {
	description := fmt.Sprintf("%s %q", schema.GroupResource{Group: ref.APIGroup, Resource: ref.Resource}, ref.Name)
	if ref.UID != types.UID("") {
		description += fmt.Sprintf(" (UID %s)", ref.UID)
	}
	return description
}

// refersToPodGroup returns true if the claim is reserved for a PodGroup.
func refersToPodGroup(workload *resourceapi.ResourceClaimWorkloadReference) bool {
	return workload.APIGroup == schedulingapi.GroupName && workload.Resource == "podgroups"
}

// describeMembership says what is known about what the pod belongs to.
func (pl *DynamicResources) describeMembership(pod *v1.Pod, workload *resourceapi.ResourceClaimWorkloadReference) string {
	if !refersToPodGroup(workload) {
		return describeController(pod)
	}
	if reason := pl.podGroupsUnknown(); reason != "" {
		return reason
	}
	if name := nameOfPodGroup(pod); name != "" {
		return fmt.Sprintf("PodGroup is %q", name)
	}
	return "no PodGroup"
}

func describeController(pod *v1.Pod) string {
	controller := metav1.GetControllerOfNoCopy(pod)
	if controller == nil {
		return "no controller"
	}
	return fmt.Sprintf("controller is %s %q", controller.Kind, controller.Name)
}

// reservedForPodHandler returns the handler for all pods.
//
// The scheduling queue offers each event that a plugin registers to all pods which
// this plugin rejected. Here only few pods are affected by a few of the very many
// updates and deletions of pods. Those get activated directly.
func (pl *DynamicResources) reservedForPodHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(oldObj, newObj any) {
			oldPod, ok := oldObj.(*v1.Pod)
			if !ok {
				return
			}
			if newPod, ok := newObj.(*v1.Pod); ok {
				pl.podUpdated(oldPod, newPod)
			}
		},
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			if pod, ok := obj.(*v1.Pod); ok {
				pl.podGone(pod, pod)
			}
		},
	}
}

// podUpdated activates a pod which might belong to a different workload now, and notices that it uses
// its claims or does so no more.
func (pl *DynamicResources) podUpdated(oldPod, newPod *v1.Pod) {
	if len(newPod.Spec.ResourceClaims) == 0 {
		return
	}
	if isDone(newPod) {
		pl.podGone(oldPod, newPod)
		return
	}
	if oldPod.Spec.NodeName == "" && newPod.Spec.NodeName != "" {
		for name := range resourceclaim.ClaimNames(newPod) {
			pl.heldClaims.used(pl, newPod.Namespace, name)
		}
	}
	if newPod.Spec.NodeName == "" && !apiequality.Semantic.DeepEqual(metav1.GetControllerOfNoCopy(oldPod), metav1.GetControllerOfNoCopy(newPod)) {
		pl.owners.activate(map[string]*v1.Pod{string(newPod.UID): newPod})
	}
}

// podGone activates pods which were waiting for the pod to not use an allocation
// anymore which does not fit them, and remembers since when a claim is not used.
func (pl *DynamicResources) podGone(before, pod *v1.Pod) {
	for name := range resourceclaim.ClaimNames(pod) {
		if pods := pl.claimUsers.gone(pod, name); len(pods) > 0 {
			pl.owners.activate(pods)
		}
		if before.Spec.NodeName != "" && !isDone(before) {
			pl.heldClaims.ended(pl, pod.Namespace, name)
		}
	}
}
