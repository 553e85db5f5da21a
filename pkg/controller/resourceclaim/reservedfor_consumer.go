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
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/controller/resourceclaim/owners"
	"k8s.io/kubernetes/pkg/controller/resourceclaim/retention"
	"k8s.io/utils/ptr"
)

// This file finds the consumer of a claim which gets generated from a template with
// spec.spec.reservedFor: the nearest controller of a pod that has the kind in the template.

// podsResource is the kind for which a consumer is a pod: the nearest one among the
// controllers of a pod, or else the pod itself. That is the leader of a group
// whose other pods are controlled by something that it owns.
var podsResource = schema.GroupResource{Resource: "pods"}

// consumer is the object for whose pods a claim gets generated.
type consumer struct {
	workloadRef
	// gvk is that of the object. The version is one that is served: the garbage collector
	// cannot resolve any other.
	gvk schema.GroupVersionKind
	// reservedFor is what the claim gets reserved for. It is nil if the claim gets reserved
	// for each pod.
	reservedFor *resourceapi.ResourceClaimWorkloadReference
}

// generatedFor returns the mark of a claim.
func (c *consumer) generatedFor(template string) resourceclaim.GeneratedFor {
	return resourceclaim.GeneratedFor{GroupResource: c.groupResource(), Name: c.Name, UID: c.UID, Template: template}
}

// ownerReference does not block the deletion of the owner: the claim goes when its devices
// are not used anymore, which may be long after that. A claim which is controlled by a
// pod is one for that pod alone, unless it has spec.reservedFor.
func (c *consumer) ownerReference() metav1.OwnerReference {
	apiVersion, kind := c.gvk.ToAPIVersionAndKind()
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: c.Name, UID: c.UID, Controller: ptr.To(c.reservedFor != nil)}
}

// errNoConsumer is returned if no controller of a pod has the kind in the template.
var errNoConsumer = errors.New("no controller of the pod")

// findConsumer walks along the controllers of a pod. The error is an *owners.UnresolvedError if
// the walk ends early, errNoConsumer if there is no such controller, or a
// lookupDeferredError.
func (ec *Controller) findConsumer(ctx context.Context, pod *v1.Pod, ref *resourceapi.ResourceClaimWorkloadReference) (*consumer, error) {
	want := schema.GroupResource{Group: ref.APIGroup, Resource: ref.Resource}
	for owner, err := range ec.controllersOf(ctx, pod) {
		if err != nil {
			return nil, err
		}
		if want == podsResource {
			if isPodOwner(owner) {
				return ec.podConsumer(ctx, pod.Namespace, owner)
			}
			continue
		}
		gvk := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind)
		gr, err := ec.workloads.resourceFor(gvk)
		if meta.IsNoMatchError(err) || err == nil && !isSameResource(want, gr, owner.Kind) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("determine resource of %s %q: %w", owner.Kind, owner.Name, err)
		}
		return ec.newConsumer(gr, gvk, pod.Namespace, owner)
	}
	if want == podsResource {
		return ec.newPodConsumer(pod)
	}
	return nil, errNoConsumer
}

// isSameResource also accepts the singular.
func isSameResource(want, have schema.GroupResource, kind string) bool {
	return want.Group == have.Group && (want.Resource == have.Resource || want.Resource == strings.ToLower(kind))
}

func isPodOwner(owner metav1.OwnerReference) bool {
	return owner.APIVersion == "v1" && owner.Kind == "Pod"
}

// controllersOf iterates over the controllers of a pod, nearest first. After an error there are
// no more of them.
func (ec *Controller) controllersOf(ctx context.Context, pod *v1.Pod) func(yield func(metav1.OwnerReference, error) bool) {
	return func(yield func(metav1.OwnerReference, error) bool) {
		owner := metav1.GetControllerOfNoCopy(pod)
		for range resourceclaim.MaxOwnerDepth {
			if owner == nil {
				return
			}
			if err := owners.Check(*owner); err != nil {
				yield(*owner, err)
				return
			}
			if !yield(*owner, nil) {
				return
			}
			controller, err := ec.controllerOfOwner(ctx, pod.Namespace, *owner)
			if err != nil {
				yield(*owner, err)
				return
			}
			owner = controller
		}
	}
}

// controllerOfOwner is the same as controllerOf, except that pods do not get looked up if the
// informer has them.
func (ec *Controller) controllerOfOwner(ctx context.Context, namespace string, owner metav1.OwnerReference) (*metav1.OwnerReference, error) {
	if !isPodOwner(owner) {
		return ec.controllerOf(ctx, namespace, owner, true)
	}
	pod, err := ec.getPod(ctx, namespace, owner)
	if err != nil {
		return nil, err
	}
	return metav1.GetControllerOf(pod), nil
}

// getPod returns the pod in an owner reference.
func (ec *Controller) getPod(ctx context.Context, namespace string, owner metav1.OwnerReference) (*v1.Pod, error) {
	pod, err := ec.podLister.Pods(namespace).Get(owner.Name)
	if err == nil && pod.UID == owner.UID {
		return pod, nil
	}
	if wait := ec.workloads.limiter.TryAccept(namespace); wait > 0 {
		return nil, lookupDeferredError{wait}
	}
	pod, err = ec.kubeClient.CoreV1().Pods(namespace).Get(ctx, owner.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, owners.Unresolved(owners.NotFound, owner, err)
	case err != nil:
		return nil, fmt.Errorf("get Pod %s: %w", owner.Name, err)
	case pod.UID != owner.UID:
		return nil, owners.Unresolved(owners.Replaced, owner, nil)
	default:
		return pod, nil
	}
}

// newConsumer is for an owner with the kind in the template.
func (ec *Controller) newConsumer(gr schema.GroupResource, gvk schema.GroupVersionKind, namespace string, owner metav1.OwnerReference) (*consumer, error) {
	c := &consumer{
		workloadRef: workloadRef{namespace: namespace, ResourceClaimConsumerReference: resourceapi.ResourceClaimConsumerReference{
			APIGroup: gr.Group, Resource: gr.Resource, Name: owner.Name, UID: owner.UID,
		}},
		gvk: gvk,
	}
	c.reservedFor = ptr.To(resourceapi.ResourceClaimWorkloadReference(c.ResourceClaimConsumerReference))
	if gr.Group == appsv1.GroupName || gr.Group == batchv1.GroupName {
		c.gvk.Version = "v1"
		return c, nil
	}
	mapping, err := ec.workloads.restMapper.RESTMapping(gvk.GroupKind())
	if err != nil {
		return nil, fmt.Errorf("determine API version of %s %q: %w", owner.Kind, owner.Name, err)
	}
	c.gvk = mapping.GroupVersionKind
	return c, nil
}

// podConsumer is for an owner that is a pod.
func (ec *Controller) podConsumer(ctx context.Context, namespace string, owner metav1.OwnerReference) (*consumer, error) {
	leader, err := ec.getPod(ctx, namespace, owner)
	if err != nil {
		return nil, err
	}
	return ec.newPodConsumer(leader)
}

// newPodConsumer returns a pod as consumer. No claim can be reserved for one pod and be used by
// others: it is reserved for what controls that pod, but nevertheless ends with
// that pod, which owns it.
func (ec *Controller) newPodConsumer(leader *v1.Pod) (*consumer, error) {
	c := &consumer{
		workloadRef: workloadRef{namespace: leader.Namespace, ResourceClaimConsumerReference: resourceapi.ResourceClaimConsumerReference{
			Resource: podsResource.Resource, Name: leader.Name, UID: leader.UID,
		}},
		gvk: v1.SchemeGroupVersion.WithKind("Pod"),
	}
	controller := metav1.GetControllerOfNoCopy(leader)
	if controller == nil || isPodOwner(*controller) {
		return c, nil
	}
	gr, err := ec.workloads.resourceFor(schema.FromAPIVersionAndKind(controller.APIVersion, controller.Kind))
	if meta.IsNoMatchError(err) {
		// Perhaps discovery failed for its group. A claim without spec.reservedFor would remain like that.
		return nil, owners.Unresolved(owners.UnknownKind, *controller, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("determine resource of %s %q: %w", controller.Kind, controller.Name, err)
	}
	c.reservedFor = &resourceapi.ResourceClaimWorkloadReference{APIGroup: gr.Group, Resource: gr.Resource, Name: controller.Name, UID: controller.UID}
	return c, nil
}

// consumerStatus returns the status of a consumer. It asks the API server before saying that one is
// done.
func (ec *Controller) consumerStatus(ctx context.Context, ref workloadRef) (workloadStatus, error) {
	if ref.groupResource() == podsResource {
		pod, err := ec.getPod(ctx, ref.namespace, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: ref.Name, UID: ref.UID})
		switch {
		case owners.ReasonFor(err) != "":
			return workloadStatus{state: retention.Done, explanation: "does not exist anymore"}, nil
		case err != nil:
			return workloadStatus{}, err
		case podutil.IsPodTerminal(pod):
			return workloadStatus{state: retention.Done, explanation: "has terminated"}, nil
		default:
			return workloadStatusOf(pod), nil
		}
	}

	cached, err := ec.workloads.fromInformer(ref)
	if err != nil {
		return workloadStatus{}, fmt.Errorf("get %s from cache: %w", ref, err)
	}
	if cached != nil && cached.state == retention.Active {
		return *cached, nil
	}
	status, err := ec.currentStatus(ctx, ref)
	if err == nil && status.state == retention.Deferred {
		err = lookupDeferredError{status.checkAfter}
	}
	return status, err
}

// currentStatus asks the API server unless that was done a short while ago.
func (ec *Controller) currentStatus(ctx context.Context, ref workloadRef) (workloadStatus, error) {
	w := ec.workloads
	if status := w.recentStatus(ref, w.pollInterval); status != nil {
		return *status, nil
	}
	// In contrast to other lookups, this one is for a UID which was chosen by
	// whoever created the pod. Therefore it's always limited.
	if w.informers[ref.groupResource()] != nil {
		if wait := w.limiter.TryAccept(ref.namespace); wait > 0 {
			return workloadStatus{}, lookupDeferredError{wait}
		}
	}
	result, err := ec.lookUpWorkload(ctx, ref)
	if err != nil {
		return workloadStatus{}, err
	}
	return result.statusOf(ref.UID), nil
}
