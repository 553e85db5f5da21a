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
	"fmt"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingapi "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// This file contains what the code for workloads needs from the plugin and what is
// different in other Kubernetes releases.

// podGroupUID returns the UID of the PodGroup that the pod belongs to. It is empty if the
// pod does not belong to one or the reference is to something else.
func (pl *DynamicResources) podGroupUID(pod *v1.Pod, workload *resourceapi.ResourceClaimWorkloadReference) (types.UID, error) {
	if workload.APIGroup != schedulingapi.GroupName || workload.Resource != "podgroups" ||
		pod.Spec.SchedulingGroup == nil || ptr.Deref(pod.Spec.SchedulingGroup.PodGroupName, "") != workload.Name {
		return "", nil
	}
	podGroup, err := pl.currentPodGroup(pod)
	if err != nil || podGroup == nil {
		return "", err
	}
	return podGroup.UID, nil
}

// describeMembership says what is known about what the pod belongs to.
func (pl *DynamicResources) describeMembership(pod *v1.Pod, workload *resourceapi.ResourceClaimWorkloadReference) string {
	if workload.APIGroup != schedulingapi.GroupName || workload.Resource != "podgroups" {
		return describeController(pod)
	}
	if !pl.fts.EnableDRAWorkloadResourceClaims {
		return "the scheduler knows the PodGroups of pods only with the DRAWorkloadResourceClaims feature gate, which is off"
	}
	if pod.Spec.SchedulingGroup == nil || pod.Spec.SchedulingGroup.PodGroupName == nil {
		return "no PodGroup"
	}
	return fmt.Sprintf("PodGroup is %q", *pod.Spec.SchedulingGroup.PodGroupName)
}

// recordReleaseRequest tells users why the claim gets released.
func (pl *DynamicResources) recordReleaseRequest(logger klog.Logger, pod *v1.Pod, claim *resourceapi.ResourceClaim) {
	pl.fh.EventRecorder().WithLogger(logger).Eventf(claim, pod, v1.EventTypeNormal, releaseRequestedReason, "Scheduling", releaseRequestedMessage, pod.Name)
}
