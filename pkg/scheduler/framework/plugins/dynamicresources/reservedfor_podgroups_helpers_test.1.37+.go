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
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// postFilterInGroup is what gets called when the group of the pod does not fit.
func (c *podCycle) postFilterInGroup(groupState fwk.PodGroupCycleState) *fwk.Status {
	_, status := c.p.PodGroupPostFilter(c.tCtx, groupState, &framework.PodGroupInfo{
		Name:            podGroupName,
		Namespace:       namespace,
		UnscheduledPods: []*v1.Pod{c.pod},
		PodGroup:        newSharingPodGroup(),
	}, nil)
	return status
}
