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
	"maps"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// copyAnnotations returns the annotations that a claim gets from its template. The
// template is in the cache of the informer, where several workers use it at the same
// time, and the claim gets one more annotation.
func copyAnnotations(template *resourceapi.ResourceClaimTemplate) map[string]string {
	annotations := make(map[string]string, len(template.Spec.Annotations)+1)
	maps.Copy(annotations, template.Spec.Annotations)
	return annotations
}

// keepClaimStatuses adds the claims that the pod has already to those that were found or
// created just now. All of them get applied together: the server removes what is
// missing in that list, and the next sync of the pod would bring it back.
func keepClaimStatuses(pod *v1.Pod, newPodClaims map[string]string) {
	for _, status := range pod.Status.ResourceClaimStatuses {
		if status.ResourceClaimName == nil {
			// Not from this controller, and nothing to apply.
			continue
		}
		if _, replaced := newPodClaims[status.Name]; !replaced {
			newPodClaims[status.Name] = *status.ResourceClaimName
		}
	}
}

// findGeneratedClaim returns the claim that was created for an entry in a pod's spec, nil if
// there is none.
//
// The informer may not have the claim yet although the pod's status names it, and the cache
// of what was created has room for few of them. Only the server knows then: another claim
// would take the place of the one with which the pod may be scheduled already.
func (ec *Controller) findGeneratedClaim(ctx context.Context, pod *v1.Pod, podClaim v1.PodResourceClaim) (*resourceapi.ResourceClaim, error) {
	claim, err := ec.findPodResourceClaim(pod, podClaim)
	if claim != nil || err != nil {
		return claim, err
	}
	for _, status := range pod.Status.ResourceClaimStatuses {
		if status.Name != podClaim.Name || status.ResourceClaimName == nil {
			continue
		}
		claim, err := claimClient(ec.kubeClient, pod.Namespace).Get(ctx, *status.ResourceClaimName, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("check whether claim %s exists: %w", *status.ResourceClaimName, err)
		case !metav1.IsControlledBy(claim, pod):
			return nil, nil
		}
		return claim, nil
	}
	return nil, nil
}
