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
	"maps"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
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
