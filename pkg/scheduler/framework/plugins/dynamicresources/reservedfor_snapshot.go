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
	resourceapi "k8s.io/api/resource/v1"
)

// isAssumed returns true if a pod that uses the claim is about to be assigned
// to a node. It must only be called in a scheduling cycle.
func (pl *DynamicResources) isAssumed(claim *resourceapi.ResourceClaim) bool {
	snapshot := pl.fh.SnapshotSharedLister()
	if snapshot == nil {
		return false
	}
	nodeInfos, err := snapshot.NodeInfos().List()
	if err != nil {
		return true
	}
	for _, nodeInfo := range nodeInfos {
		for _, podInfo := range nodeInfo.GetPods() {
			if pod := podInfo.GetPod(); pod.Namespace == claim.Namespace && usesClaim(pod, claim.Name) {
				return true
			}
		}
	}
	return false
}
