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
	"iter"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1beta1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// These releases have the API v1beta1, only claims of users, neither timestamps of allocations nor
// shares of devices, and no PreBindPreFlight. The types of the scheduler are in another package,
// and PreFilter gets no nodes. The claim tracker is in sharedclaims_pending.go.

type (
	cycleState   = *framework.CycleState
	snapshotNode = *framework.NodeInfo
)

func (pl *DynamicResources) claimClient(namespace string) resourceclient.ResourceClaimInterface {
	return pl.clientset.ResourceV1beta1().ResourceClaims(namespace)
}

// claimStore has all claims of a pod.
type claimStore []*resourceapi.ResourceClaim

func (cs claimStore) allUserClaims() iter.Seq2[int, *resourceapi.ResourceClaim] {
	return slices.All(cs)
}

func (cs claimStore) get(index int) *resourceapi.ResourceClaim {
	return cs[index]
}

func (cs claimStore) set(index int, claim *resourceapi.ResourceClaim) {
	cs[index] = claim
}

// getBinding returns what has to be added to status.reservedFor for the pod.
func (cs claimStore) getBinding(_ int, pod *v1.Pod) resourceapi.ResourceClaimConsumerReference {
	return resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID}
}

// mayUsePendingAllocation returns true because nothing speaks against it.
func (pl *DynamicResources) mayUsePendingAllocation(*v1.Pod) bool {
	return true
}

// isInGroup returns false because there are no groups.
func isInGroup(*v1.Pod) bool {
	return false
}

func (pl *DynamicResources) isReservedForPod(pod *v1.Pod, claim *resourceapi.ResourceClaim) bool {
	return resourceclaim.IsReservedForPod(pod, claim)
}

// setAllocationTimestamp does nothing because there is no such field.
func (pl *DynamicResources) setAllocationTimestamp(*resourceapi.AllocationResult) {}

// listedNodes returns the nodes of the snapshot, nil if that is not available.
func (pl *DynamicResources) listedNodes() []snapshotNode {
	lister := pl.fh.SnapshotSharedLister()
	if lister == nil {
		return nil
	}
	nodes, err := lister.NodeInfos().List()
	if err != nil {
		return nil
	}
	return nodes
}

// hasExtendedResourceClaim returns false because there is no such claim.
func hasExtendedResourceClaim(*stateData) bool {
	return false
}

// dependsOnNode returns false because Filter checks nothing but the node selector.
func (pl *DynamicResources) dependsOnNode(*resourceapi.AllocationResult) bool {
	return false
}

// sameShare returns true because devices are not shared.
func sameShare(*resourceapi.DeviceRequestAllocationResult, *resourceapi.DeviceRequestAllocationResult) bool {
	return true
}
