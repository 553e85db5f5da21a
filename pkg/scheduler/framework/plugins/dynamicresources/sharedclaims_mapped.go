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
	"context"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"
)

// This file contains what 1.37 added: pods that share a claim whose device comes with resources of the node, devices
// for which the driver is not called, another way to bind a claim, and events by the kind of pod.

// withdrawnPod is what the scheduler reports as deleted when a pod failed which had got through Reserve.
const withdrawnPod = fwk.AssignedPod

// skipsNodeOperations returns true if only nodes which declare that can use the allocation.
func skipsNodeOperations(allocation *resourceapi.AllocationResult) bool {
	return allocationResultRequiresDRAOptionalNodeOperations(allocation)
}

// mapsNodeResources returns true if a device comes with resources of the node. Only one pod may
// use such a claim. Filter finds the others in status.reservedFor and among the pods of the
// same group, therefore all other pods have to wait until the allocation is stored.
func (pl *DynamicResources) mapsNodeResources(allocation *resourceapi.AllocationResult) bool {
	if !pl.fts.EnableDRANodeAllocatableResources {
		return false
	}
	for i := range allocation.Devices.Results {
		result := &allocation.Devices.Results[i]
		if ptr.Deref(result.AdminAccess, false) {
			continue
		}
		device, err := getDeviceFromManager(pl.draManager, result)
		if err != nil {
			return true // It might.
		}
		for _, resource := range device.NodeAllocatableResources {
			if resource.Mapping != nil {
				return true
			}
		}
	}
	return false
}

// keepPendingAllocation gets called by Reserve after the allocation of a claim is in flight. A pod in
// a group may have a copy of what another pod of the group put there, which
// releasePendingAllocation would take for an allocation that was replaced.
func (pl *DynamicResources) keepPendingAllocation(state *stateData, index int, claimUID types.UID) {
	if !pl.fts.EnableDRASharedClaims {
		return
	}
	if current := pl.pendingAllocations().GetPendingAllocation(claimUID); current != nil {
		state.informationsForClaim[index].allocation = current
	}
}

// bindShared is bindSharedClaim for bindClaim of this release. There is nothing to
// clean up after PreBind: once the claim is stored, the pod gave up its share of the
// pending allocation, and it does that only once.
func (pl *DynamicResources) bindShared(ctx context.Context, state *stateData, podGroupState *podGroupStateData, index int, pod *v1.Pod, nodeName string) (*resourceapi.ResourceClaim, func(), error) {
	claim, err := pl.bindSharedClaim(ctx, state, index, pod, nodeName, podGroupState.removePendingAllocation)
	return claim, nil, err
}

// isPending returns true if PreFilter gave the pod an allocation of the claim that was not
// stored yet. It returns false if PreFilter did not get that far.
func (d *stateData) isPending(index int) bool {
	return index < len(d.informationsForClaim) && d.informationsForClaim[index].pending != nil
}
