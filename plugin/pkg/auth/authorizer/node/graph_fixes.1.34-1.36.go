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

package node

import (
	corev1 "k8s.io/api/core/v1"
)

// sameExtendedResourceClaim returns true if both pods have the same claim for extended resources. The scheduler
// makes it, and adds it to the status before or after the node gets assigned.
func sameExtendedResourceClaim(oldPod, pod *corev1.Pod) bool {
	return extendedResourceClaim(oldPod) == extendedResourceClaim(pod)
}

func extendedResourceClaim(pod *corev1.Pod) string {
	if pod.Status.ExtendedResourceClaimStatus == nil {
		return ""
	}
	return pod.Status.ExtendedResourceClaimStatus.ResourceClaimName
}
