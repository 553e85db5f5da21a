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
	schedulingapi "k8s.io/api/scheduling/v1beta1"
)

// currentPodGroup returns the PodGroup that the pod belongs to, nil if it does not belong to one.
// It gets called in PreEnqueue and while a pod is bound. The snapshot, which getPodGroupSnapshot
// looks at, is only valid in a scheduling cycle.
func (pl *DynamicResources) currentPodGroup(pod *v1.Pod) (*schedulingapi.PodGroup, error) {
	if !pl.fts.EnableDRAWorkloadResourceClaims || pod.Spec.SchedulingGroup == nil || pod.Spec.SchedulingGroup.PodGroupName == nil {
		return nil, nil
	}
	return pl.fh.PodGroupManager().PodGroups().Get(pod.Namespace, *pod.Spec.SchedulingGroup.PodGroupName)
}
