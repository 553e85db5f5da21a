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
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"
)

// This file contains what the code for workloads needs to know about PodGroups, and what 1.37 added:
// a claim with a device that comes with resources of the node, for pods of a workload one after the other.

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
// belong to one. It gets called in PreEnqueue and while a pod is bound. The snapshot, which
// getPodGroupSnapshot looks at, is only valid in a scheduling cycle.
func (pl *DynamicResources) currentPodGroupUID(pod *v1.Pod) (types.UID, error) {
	if !pl.fts.EnableDRAWorkloadResourceClaims || pod.Spec.SchedulingGroup == nil || pod.Spec.SchedulingGroup.PodGroupName == nil {
		return "", nil
	}
	podGroup, err := pl.fh.PodGroupManager().PodGroups().Get(pod.Namespace, *pod.Spec.SchedulingGroup.PodGroupName)
	if err != nil || podGroup == nil {
		return "", err
	}
	return podGroup.UID, nil
}

// recordReleaseRequest tells users why the claim gets released.
func (pl *DynamicResources) recordReleaseRequest(logger klog.Logger, pod *v1.Pod, claim *resourceapi.ResourceClaim) {
	pl.fh.EventRecorder().WithLogger(logger).Eventf(claim, pod, v1.EventTypeNormal, releaseRequestedReason, "Scheduling", releaseRequestedMessage, pod.Name)
}

// explainHeldFromGroup is explainHeld for a PodGroup: it explains what the first of its pods lacks. The
// condition of the PodGroup has what the status says.
func (pl *DynamicResources) explainHeldFromGroup(podGroup fwk.PodGroupInfo, state *podGroupStateData, status *fwk.Status) *fwk.Status {
	if state == nil {
		return status
	}
	for _, pod := range podGroup.GetUnscheduledPods() {
		podState := state.podsStateData[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}]
		if podState == nil {
			continue
		}
		before := len(status.Reasons())
		if status = pl.explainHeld(pod, podState, status); len(status.Reasons()) > before {
			break
		}
	}
	return status
}

// isUsedByOthers gets called for a claim with a device that comes with resources of the node, which
// only one pod can use at a time. A claim that is reserved for a workload may be used by its pods one after the
// other. For any other claim, the list says who uses it.
func (pl *DynamicResources) isUsedByOthers(pod *v1.Pod, claim *resourceapi.ResourceClaim) bool {
	if !pl.fts.EnableDRAReservedForWorkloads || !resourceclaim.IsAllocatedForAnyPod(claim) {
		return true
	}
	if pl.claimUsers.waitForUsers(pod, claim) {
		return true
	}
	if pl.isAssumed(claim) {
		pl.tryAgainSoon(pod)
		return true
	}
	return false
}
