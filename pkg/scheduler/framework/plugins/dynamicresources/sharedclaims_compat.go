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
	"k8s.io/apimachinery/pkg/types"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"
)

// This file contains what the code for shared claims needs from the plugin and from
// the API, as it is since 1.36: with PodGroups, and with a claim tracker that lets pods share an
// allocation in flight. 1.37 has more in sharedclaims_mapped.go.

type (
	cycleState   = fwk.CycleState
	snapshotNode = fwk.NodeInfo
)

func (pl *DynamicResources) claimClient(namespace string) resourceclient.ResourceClaimInterface {
	return pl.clientset.ResourceV1().ResourceClaims(namespace)
}

// mayUsePendingAllocation returns false if the pod has to wait until
// the allocation is stored.
func (pl *DynamicResources) mayUsePendingAllocation(pod *v1.Pod) bool {
	// Filter has to detect when several pods share node-allocatable
	// resources. It cannot do that before the allocation is stored.
	return !pl.fts.EnableDRANodeAllocatableResources || pod.Spec.SchedulingGroup != nil
}

// isInGroup returns true if the pod gets scheduled together with other pods.
func isInGroup(pod *v1.Pod) bool {
	return pod.Spec.SchedulingGroup != nil
}

// isReservedForPod returns true if the pod or its group is listed in status.reservedFor.
func (pl *DynamicResources) isReservedForPod(pod *v1.Pod, claim *resourceapi.ResourceClaim) bool {
	return resourceclaim.IsReservedForPod(pod, claim, pl.fts.EnableDRAWorkloadResourceClaims)
}

// removePendingAllocation gets called when an allocation is not in flight
// anymore. It may be called for a pod without a group.
func (d *podGroupStateData) removePendingAllocation(claimUID types.UID) {
	if d != nil {
		delete(d.pendingAllocations, claimUID)
	}
}

// setAllocationTimestamp must be called before a new allocation gets stored.
func (pl *DynamicResources) setAllocationTimestamp(allocation *resourceapi.AllocationResult) {
	if pl.fts.EnableDRADeviceBindingConditions &&
		pl.fts.EnableDRAResourceClaimDeviceStatus &&
		allocation.AllocationTimestamp == nil {
		allocation.AllocationTimestamp = &metav1.Time{Time: time.Now()}
	}
}

// hasExtendedResourceClaim returns true if Filter has to count extended resources.
func hasExtendedResourceClaim(s *stateData) bool {
	return s.claims.extendedResourceClaim() != nil
}

// dependsOnNode returns true if Filter checks more than the node selector of the allocation.
func (pl *DynamicResources) dependsOnNode(allocation *resourceapi.AllocationResult) bool {
	return pl.fts.EnableDRANodeAllocatableResources || hasAnyBindingCondition(allocation)
}

// sameShare returns true if both results are for the same share of a device, provided
// that they are for the same device.
func sameShare(a, b *resourceapi.DeviceRequestAllocationResult) bool {
	return ptr.Equal(a.ShareID, b.ShareID)
}

func (pl *DynamicResources) pendingAllocations() pendingAllocationTracker {
	return pl.draManager.ResourceClaims()
}
