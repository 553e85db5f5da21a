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

// These releases have no PodGroups.

package dynamicresources

import (
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// podGroupUID returns an empty UID because pods do not belong to a PodGroup.
func (pl *DynamicResources) podGroupUID(*v1.Pod, *resourceapi.ResourceClaimWorkloadReference) (types.UID, error) {
	return "", nil
}

// describeMembership says what is known about what the pod belongs to.
func (pl *DynamicResources) describeMembership(pod *v1.Pod, workload *resourceapi.ResourceClaimWorkloadReference) string {
	if workload.APIGroup == "scheduling.k8s.io" && workload.Resource == "podgroups" {
		return "this Kubernetes release has no PodGroups"
	}
	return describeController(pod)
}

// recordReleaseRequest tells users why the claim gets released.
func (pl *DynamicResources) recordReleaseRequest(_ klog.Logger, pod *v1.Pod, claim *resourceapi.ResourceClaim) {
	pl.fh.EventRecorder().Eventf(claim, pod, v1.EventTypeNormal, releaseRequestedReason, "Scheduling", releaseRequestedMessage, pod.Name)
}
