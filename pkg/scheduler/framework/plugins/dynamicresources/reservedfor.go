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
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
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
// What differs between Kubernetes releases is in reservedfor_release.go.

const (
	// controllerLookupTimeout limits how long scheduling is held up by
	// retrieving the controller of a pod.
	controllerLookupTimeout = 5 * time.Second

	// A controller of a pod almost never gets another controller itself. It is
	// more likely that it has none yet and gets adopted.
	controllerLookupTTL         = 10 * time.Minute
	controllerLookupNegativeTTL = 10 * time.Second
	controllerLookupCacheSize   = 4096
)

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

		workload, err := pl.workloadReference(ctx, pod, claim)
		switch {
		case apierrors.IsForbidden(err):
			return statusUnschedulable(logger, fmt.Sprintf("resourceclaim %s is reserved for %s, but the scheduler is not allowed to check whether the pod belongs to it: %v", klog.KObj(claim), describeConsumer(claim.Spec.ReservedFor), err), "pod", klog.KObj(pod), "resourceclaim", klog.KObj(claim))
		case err != nil:
			return statusError(logger, fmt.Errorf("checking whether the pod belongs to %s, for which resourceclaim %s is reserved: %w", describeConsumer(claim.Spec.ReservedFor), klog.KObj(claim), err), "pod", klog.KObj(pod), "resourceclaim", klog.KObj(claim))
		case workload == nil && !isReservedForWorkload(claim):
			// The update of the claim when it gets reserved makes the pod schedulable.
			return statusUnschedulable(logger, fmt.Sprintf("resourceclaim %s is reserved for %s and the pod does not belong to it (%s): waiting until a pod of %s has been scheduled", klog.KObj(claim), describeConsumer(claim.Spec.ReservedFor), describeController(pod), describeConsumer(claim.Spec.ReservedFor)), "pod", klog.KObj(pod), "resourceclaim", klog.KObj(claim))
		}
		binding := claims.getBinding(index, pod)
		s.informationsForClaim[index].reservation = func(claim *resourceapi.ResourceClaim) (*resourceapi.ResourceClaimConsumerReference, error) {
			switch {
			case !resourceclaim.IsAllocatedForAnyPod(claim):
				// Might have been dropped by an API server where the
				// feature is disabled.
				return &binding, nil
			case workload != nil:
				return workload, nil
			case isReservedForWorkload(claim):
				return nil, nil
			default:
				return nil, fmt.Errorf("claim %s is not reserved for %s anymore", klog.KObj(claim), describeConsumer(claim.Spec.ReservedFor))
			}
		}
	}
	return nil
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

// workloadReference returns the entry for the object in spec.reservedFor, with the
// UID of the incarnation that the pod belongs to. It returns nil if the pod does not
// belong to it or if that does not matter because the claim is already reserved.
func (pl *DynamicResources) workloadReference(ctx context.Context, pod *v1.Pod, claim *resourceapi.ResourceClaim) (*resourceapi.ResourceClaimConsumerReference, error) {
	workload := *claim.Spec.ReservedFor
	if workload.UID != "" {
		return &workload, nil
	}

	if uid, err := pl.podGroupUID(pod, &workload); err != nil {
		return nil, err
	} else if uid != "" {
		workload.UID = uid
		return &workload, nil
	}

	controller := metav1.GetControllerOfNoCopy(pod)
	if controller == nil {
		return nil, nil
	}
	if resourceclaim.IsOwnerReferenceTo(*controller, workload) {
		workload.UID = controller.UID
		return &workload, nil
	}

	if isReservedForWorkload(claim) {
		// Good enough, no need to ask the API server.
		return nil, nil
	}
	controller, err := pl.controllers.controllerOf(ctx, pod.Namespace, controller)
	if err != nil {
		return nil, err
	}
	if controller != nil && resourceclaim.IsOwnerReferenceTo(*controller, workload) {
		workload.UID = controller.UID
		return &workload, nil
	}
	return nil, nil
}

// controllerLookup finds the controller of a controller of pods. There is no informer for
// them because very few objects are needed: one for all pods of a
// ReplicaSet or Job.
type controllerLookup struct {
	clientset kubernetes.Interface

	// cache maps from the UID of an object to the reference to its controller,
	// which may be nil.
	cache *utilcache.LRUExpireCache
}

func newControllerLookup(clientset kubernetes.Interface) *controllerLookup {
	return &controllerLookup{
		clientset: clientset,
		cache:     utilcache.NewLRUExpireCache(controllerLookupCacheSize),
	}
}

// controllerOf returns the controller of the given owner, nil if there is none. Only
// ReplicaSets (controlled by a Deployment) and Jobs (controlled by a CronJob, JobSet, ...)
// are supported because only those are known to be controlled
// and accessible.
func (c *controllerLookup) controllerOf(ctx context.Context, namespace string, owner *metav1.OwnerReference) (*metav1.OwnerReference, error) {
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		// Such an owner does not exist.
		return nil, nil
	}

	get := func(ctx context.Context) (metav1.Object, error) {
		return c.clientset.AppsV1().ReplicaSets(namespace).Get(ctx, owner.Name, metav1.GetOptions{})
	}
	switch (schema.GroupKind{Group: gv.Group, Kind: owner.Kind}) {
	case schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}:
	case schema.GroupKind{Group: "batch", Kind: "Job"}:
		get = func(ctx context.Context) (metav1.Object, error) {
			return c.clientset.BatchV1().Jobs(namespace).Get(ctx, owner.Name, metav1.GetOptions{})
		}
	default:
		return nil, nil
	}

	if controller, ok := c.cache.Get(owner.UID); ok {
		return controller.(*metav1.OwnerReference), nil
	}
	ctx, cancel := context.WithTimeout(ctx, controllerLookupTimeout)
	defer cancel()
	obj, err := get(ctx)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("get controller %s %s of the pod: %w", owner.Kind, klog.KRef(namespace, owner.Name), err)
	}
	var controller *metav1.OwnerReference
	if err == nil && obj.GetUID() == owner.UID {
		controller = metav1.GetControllerOf(obj)
	}
	ttl := controllerLookupTTL
	if controller == nil {
		ttl = controllerLookupNegativeTTL
	}
	c.cache.Add(owner.UID, controller, ttl)
	klog.FromContext(ctx).V(5).Info("Retrieved controller of pods", "kind", owner.Kind, "controller", klog.KRef(namespace, owner.Name), "uid", owner.UID, "controlledBy", controller)
	return controller, nil
}

// describeConsumer returns a description of the object like `jobs.batch "train"`.
func describeConsumer(ref *resourceapi.ResourceClaimConsumerReference) string {
	description := fmt.Sprintf("%s %q", schema.GroupResource{Group: ref.APIGroup, Resource: ref.Resource}, ref.Name)
	if ref.UID != types.UID("") {
		description += fmt.Sprintf(" (UID %s)", ref.UID)
	}
	return description
}

func describeController(pod *v1.Pod) string {
	controller := metav1.GetControllerOfNoCopy(pod)
	if controller == nil {
		return "no controller"
	}
	return fmt.Sprintf("controller is %s %q", controller.Kind, controller.Name)
}
