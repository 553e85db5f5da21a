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
	"k8s.io/utils/ptr"
)

// This release gets PodGroups from the DRA manager, and Filter knows who uses a device that comes with
// resources of the node.

// nameOfPodGroup returns the name of the PodGroup that the pod belongs to, empty if it does not belong to one.
func nameOfPodGroup(pod *v1.Pod) string {
	if pod.Spec.SchedulingGroup == nil {
		return ""
	}
	return ptr.Deref(pod.Spec.SchedulingGroup.PodGroupName, "")
}

// podGroupsUnknown returns why the scheduler does not know the PodGroups of pods, empty if it does.
func (pl *DynamicResources) podGroupsUnknown() string {
	if !pl.fts.EnableDRAWorkloadResourceClaims {
		return "the scheduler knows the PodGroups of pods only with the DRAWorkloadResourceClaims feature gate, which is off"
	}
	return ""
}

// currentPodGroupUID returns the UID of the PodGroup that the pod belongs to, empty if it does not
// belong to one.
func (pl *DynamicResources) currentPodGroupUID(pod *v1.Pod) (types.UID, error) {
	podGroup, err := pl.getPodGroup(pod)
	if err != nil || podGroup == nil {
		return "", err
	}
	return podGroup.UID, nil
}

// recordReleaseRequest tells users why the claim gets released.
func (pl *DynamicResources) recordReleaseRequest(logger klog.Logger, pod *v1.Pod, claim *resourceapi.ResourceClaim) {
	pl.fh.EventRecorder().WithLogger(logger).Eventf(claim, pod, v1.EventTypeNormal, releaseRequestedReason, "Scheduling", releaseRequestedMessage, pod.Name)
}
