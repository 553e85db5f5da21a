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

package dra

import (
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	kubefeatures "k8s.io/kubernetes/pkg/features"
)

func reservedForWorkloadsEnabled() bool {
	return utilfeature.DefaultFeatureGate.Enabled(kubefeatures.DRAReservedForWorkloads)
}

// mayUseWithoutReservation checks whether a pod which is not listed in
// status.reservedFor may use the claim anyway because the claim is reserved for
// the workload in spec.reservedFor (KEP-5194).
//
// While the feature is disabled, this is limited to pods for which it was true
// before, because the kubelet was restarted without the feature while they were
// running. Such pods get here when they need a new sandbox, for example after a
// reboot of the node. Refusing them would be the same as killing them. They are
// known through the checkpoint.
func mayUseWithoutReservation(cache *claimInfoCache, pod *v1.Pod, claim *resourceapi.ResourceClaim) bool {
	if !resourceclaim.IsReservedForAnyPod(claim) {
		return false
	}
	if reservedForWorkloadsEnabled() {
		return true
	}
	return usedBefore(cache, pod, claim)
}

// usedBefore returns true if the pod got as far as preparing the claim, perhaps before a
// restart of the kubelet.
func usedBefore(cache *claimInfoCache, pod *v1.Pod, claim *resourceapi.ResourceClaim) bool {
	known := false
	_ = cache.withRLock(func() error {
		claimInfo, exists := cache.get(claim.Name, claim.Namespace)
		known = exists && claimInfo.ClaimUID == claim.UID && claimInfo.hasPodReference(pod.UID)
		return nil
	})
	return known
}

// checkNodeOfAllocation protects pods against devices of other nodes.
//
// A pod that is listed in status.reservedFor keeps the claim from being deallocated. Where
// the workload is listed instead, the claim could be deallocated, and allocated for
// another node, after the scheduler looked at it for the pod and before the pod was
// bound. The same goes for a pod whose node somebody else has chosen.
//
// A pod that was checked before is not checked again: labels of the node may have changed
// since then, and the pod needs a new sandbox after a reboot. checkSameAllocation
// ensures that its devices are still the same.
func checkNodeOfAllocation(ctx context.Context, cache *claimInfoCache, getNode GetNodeFunc, pod *v1.Pod, claim *resourceapi.ResourceClaim) error {
	allocation := claim.Status.Allocation
	if !reservedForWorkloadsEnabled() || allocation == nil || allocation.NodeSelector == nil || !resourceclaim.IsAllocatedForAnyPod(claim) ||
		usedBefore(cache, pod, claim) {
		return nil
	}
	selector, err := nodeaffinity.NewNodeSelector(allocation.NodeSelector)
	if err != nil {
		return fmt.Errorf("parse the node selector in the allocation of ResourceClaim %s: %w", claim.Name, err)
	}
	// The kubelet only has pods which are assigned to its node.
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: pod.Spec.NodeName}}
	if !needsOnlyNodeName(allocation.NodeSelector) {
		if getNode == nil {
			return fmt.Errorf("cannot check whether ResourceClaim %s is allocated for node %s, the kubelet does not know its node yet: trying again later", claim.Name, pod.Spec.NodeName)
		}
		if node, err = readNode(ctx, getNode); err != nil {
			return fmt.Errorf("check whether ResourceClaim %s is allocated for node %s: get the node: %w", claim.Name, pod.Spec.NodeName, err)
		}
	}
	if !selector.Match(node) {
		return fmt.Errorf("ResourceClaim %s is allocated for other nodes than %s, where pod %s is: it was probably allocated again while the pod was bound; delete the pod, so that another one can be scheduled to where the devices are", claim.Name, node.Name, pod.Name)
	}
	return nil
}

// needsOnlyNodeName returns true if nothing but the name of a node is compared.
func needsOnlyNodeName(selector *v1.NodeSelector) bool {
	for _, term := range selector.NodeSelectorTerms {
		// No other fields are supported, but one never knows.
		if len(term.MatchExpressions) > 0 || slices.ContainsFunc(term.MatchFields, func(r v1.NodeSelectorRequirement) bool { return r.Key != metav1.ObjectNameField }) {
			return false
		}
	}
	return true
}

// explainNotReserved returns what needs to be appended to the error message for
// a pod that may not use a claim when spec.reservedFor is relevant for that. It
// is empty if not.
func explainNotReserved(claim *resourceapi.ResourceClaim) string {
	workload := claim.Spec.ReservedFor
	if workload == nil {
		return ""
	}
	resource := workload.Resource
	if workload.APIGroup != "" {
		resource += "." + workload.APIGroup
	}
	var reason string
	switch {
	case claim.Status.Allocation == nil:
		reason = "the claim is currently not allocated"
	case !resourceclaim.IsAllocatedForAnyPod(claim):
		reason = "the claim was allocated without support for that, therefore each pod must be listed in status.reservedFor"
	case !resourceclaim.HasWorkloadReference(claim):
		reason = "the claim is currently not reserved for it"
	default:
		reason = fmt.Sprintf("using that without being listed in status.reservedFor depends on the %s feature gate, which is disabled on this node", kubefeatures.DRAReservedForWorkloads)
	}
	return fmt.Sprintf(": spec.reservedFor is %s %s, but %s", resource, workload.Name, reason)
}

// checkSameAllocation protects pods against using devices which are no longer
// allocated for their claim.
//
// The UID of a claim remains the same when it gets deallocated and then
// allocated again. Claims with spec.reservedFor are meant to be used like that:
// they get allocated for one workload after the other. Normally all pods
// are gone before that happens, but then a pod that was force-deleted may still
// be terminating on the node. As long as it does, the claim info is about its
// devices. Those must not be given to pods of the next workload and their
// devices must not get prepared under the same UID either.
//
// Claim info which was created without this information, for example because the
// feature was disabled at the time, is assumed to be for the current allocation.
//
// Must be called while the cache is locked. An error is returned if the pod has
// to wait.
func (info *ClaimInfo) checkSameAllocation(claim *resourceapi.ResourceClaim) error {
	if claim.Spec.ReservedFor == nil || !reservedForWorkloadsEnabled() {
		return nil
	}

	allocated := describeAllocatedDevices(claim)
	switch info.AllocatedDevices {
	case "":
		info.AllocatedDevices = allocated
		return nil
	case allocated:
		return nil
	default:
		return fmt.Errorf("ResourceClaim %s was allocated again while its previous devices are still in use on the node (previous pod force-deleted?!): in use %s, allocated %s",
			claim.Name, info.AllocatedDevices, allocated)
	}
}

// describeAllocatedDevices returns a string which is the same if and only if the
// allocated devices are the same. Nothing else of the allocation is included
// because a different API server may return more or fewer fields for the same
// allocation.
func describeAllocatedDevices(claim *resourceapi.ResourceClaim) string {
	if claim.Status.Allocation == nil {
		return "none"
	}
	devices := make([]string, 0, len(claim.Status.Allocation.Devices.Results))
	for _, result := range claim.Status.Allocation.Devices.Results {
		devices = append(devices, result.Request+"="+result.Driver+"/"+result.Pool+"/"+result.Device+describeShare(&result))
	}
	if len(devices) == 0 {
		return "none"
	}
	slices.Sort(devices)
	return strings.Join(devices, ",")
}
