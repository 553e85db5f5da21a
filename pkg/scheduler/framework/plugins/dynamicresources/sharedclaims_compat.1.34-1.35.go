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
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"
)

// These releases have no PodGroups and no node-allocatable resources. Their claim tracker is in
// sharedclaims_pending.go.

type (
	cycleState   = fwk.CycleState
	snapshotNode = fwk.NodeInfo
)

func (pl *DynamicResources) claimClient(namespace string) resourceclient.ResourceClaimInterface {
	return pl.clientset.ResourceV1().ResourceClaims(namespace)
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

// setAllocationTimestamp must be called before a new allocation gets stored.
func (pl *DynamicResources) setAllocationTimestamp(allocation *resourceapi.AllocationResult) {
	if pl.fts.EnableDRADeviceBindingConditions && pl.fts.EnableDRAResourceClaimDeviceStatus && allocation.AllocationTimestamp == nil {
		allocation.AllocationTimestamp = &metav1.Time{Time: time.Now()}
	}
}

// hasExtendedResourceClaim returns true if Filter has to count extended resources.
func hasExtendedResourceClaim(s *stateData) bool {
	return s.claims.extendedResourceClaim() != nil
}

// dependsOnNode returns true if Filter checks more than the node selector of the allocation.
func (pl *DynamicResources) dependsOnNode(allocation *resourceapi.AllocationResult) bool {
	return hasAnyBindingCondition(allocation)
}

// sameShare returns true if both results are for the same share of a device, provided
// that they are for the same device.
func sameShare(a, b *resourceapi.DeviceRequestAllocationResult) bool {
	return ptr.Equal(a.ShareID, b.ShareID)
}
