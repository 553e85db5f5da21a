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
	"k8s.io/dynamic-resource-allocation/resourceclaim"
)

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
		pl.recheckAssumed(pod)
		return true
	}
	return false
}
