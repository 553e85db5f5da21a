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

// Package drivers shows how a DRA driver finds the pods that use a claim without a look at
// status.reservedFor.
package drivers

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
)

// PodsOf returns those of the pods that use the claim on the node and have not ended. The
// pods may come from an informer for this node, which is one for spec.nodeName.
//
// The answer changes: pods come and go while a claim is prepared, and the kubelet does not
// tell the driver about each of them.
func PodsOf(claim *resourceapi.ResourceClaim, node string, pods []*v1.Pod) ([]*v1.Pod, error) {
	var users []*v1.Pod
	for _, pod := range pods {
		if pod.Spec.NodeName != node || pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
			continue
		}
		uses, err := Uses(pod, claim)
		if err != nil {
			return nil, err
		}
		if uses {
			users = append(users, pod)
		}
	}
	return users, nil
}

// Uses returns whether the pod refers to the claim: by its name, through a template, or
// because of an extended resource.
func Uses(pod *v1.Pod, claim *resourceapi.ResourceClaim) (bool, error) {
	if pod.Namespace != claim.Namespace {
		return false, nil
	}
	for i := range pod.Spec.ResourceClaims {
		name, generated, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		switch {
		case errors.Is(err, resourceclaim.ErrClaimNotFound):
			// There is no claim for this template yet.
			continue
		case err != nil:
			return false, fmt.Errorf("claims of a pod: %w", err)
		case name == nil || *name != claim.Name:
			continue
		}
		// A claim of that name which was not made for the pod is none of its claims.
		if !generated || madeFor(pod, claim) {
			return true, nil
		}
	}
	if extended := pod.Status.ExtendedResourceClaimStatus; extended != nil && extended.ResourceClaimName == claim.Name {
		return madeFor(pod, claim), nil
	}
	return false, nil
}

// madeFor returns whether the pod or its PodGroup owns the claim.
func madeFor(pod *v1.Pod, claim *resourceapi.ResourceClaim) bool {
	group := pod.Spec.SchedulingGroup
	return resourceclaim.IsForPod(pod, claim, group != nil && group.PodGroupName != nil) == nil
}
