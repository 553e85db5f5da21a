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
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// These releases have no PodGroups, and events are recorded without a logger.

// nameOfPodGroup returns an empty name because pods do not belong to a PodGroup.
func nameOfPodGroup(*v1.Pod) string {
	return ""
}

// podGroupsUnknown returns why the scheduler does not know the PodGroups of pods.
func (pl *DynamicResources) podGroupsUnknown() string {
	return "this Kubernetes release has no PodGroups"
}

// currentPodGroupUID returns an empty UID.
func (pl *DynamicResources) currentPodGroupUID(*v1.Pod) (types.UID, error) {
	return "", nil
}

// recordReleaseRequest tells users why the claim gets released.
func (pl *DynamicResources) recordReleaseRequest(_ klog.Logger, pod *v1.Pod, claim *resourceapi.ResourceClaim) {
	pl.fh.EventRecorder().Eventf(claim, pod, v1.EventTypeNormal, releaseRequestedReason, "Scheduling", releaseRequestedMessage, pod.Name)
}
