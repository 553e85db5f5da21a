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
	fwk "k8s.io/kube-scheduler/framework"
)

// maxSignedSpec limits the bytes of a claim's spec in a signature. A signature is made whenever a
// pod enters the scheduling queue, and compared for each pod.
const maxSignedSpec = 4096

// claimsSignature is what pods must have in common to be alike for this plugin.
type claimsSignature struct {
	Namespace string
	Claims    []claimSignature
}

// claimSignature is about one claim of a pod. One of the fields is set.
type claimSignature struct {
	// Name is for a claim that several pods share.
	Name string `json:",omitempty"`
	// Spec is for a claim that was generated for one pod and is not allocated. Another pod of
	// the same template has another claim which asks for the same.
	Spec *resourceapi.ResourceClaimSpec `json:",omitempty"`
}

// signClaims returns the signature of a pod, nil if it has none. For pods with the same
// signature, the scheduler tries first what was the second best node for the pod before. Without
// that, it calls Filter and Score for many nodes. With thousands of nodes that is most of
// what a pod of an allocated claim costs beside one without a claim. With a claim that needs to be
// allocated, it also calls the allocator for each of them.
//
// Upstream signs no pod with claims (https://github.com/kubernetes/kubernetes/issues/134986): what
// fits a node may change with devices of other nodes. Filter checks the node in any case, so such
// a pod may get a node which is not the best anymore, but never a wrong one.
func (pl *DynamicResources) signClaims(pod *v1.Pod) []fwk.SignFragment {
	if !pl.fts.EnableDRASharedClaims || isInGroup(pod) || !pl.mayUsePendingAllocation(pod) {
		return nil
	}
	signature := claimsSignature{Namespace: pod.Namespace}
	for i := range pod.Spec.ResourceClaims {
		claim, ok := pl.signClaim(pod, &pod.Spec.ResourceClaims[i])
		if !ok {
			return nil
		}
		signature.Claims = append(signature.Claims, claim)
	}
	return []fwk.SignFragment{{Key: fwk.DynamicResourcesSignerName, Value: signature}}
}

// signClaim returns false for a claim which does not exist, and for one of this pod alone that
// makes the pod different from all others.
func (pl *DynamicResources) signClaim(pod *v1.Pod, podClaim *v1.PodResourceClaim) (claimSignature, bool) {
	if podClaim.ResourceClaimName != nil {
		return claimSignature{Name: *podClaim.ResourceClaimName}, true
	}
	name, _, err := resourceclaim.Name(pod, podClaim)
	if err != nil || name == nil {
		return claimSignature{}, false
	}
	claim, err := pl.draManager.ResourceClaims().Get(pod.Namespace, *name)
	switch {
	case err != nil:
		return claimSignature{}, false
	case mayBeShared(claim):
		return claimSignature{Name: *name}, true
	case claim.Status.Allocation != nil, hasAlternatives(claim), claim.Spec.Size() > maxSignedSpec:
		return claimSignature{}, false
	default:
		return claimSignature{Spec: &claim.Spec}, true
	}
}

// hasAlternatives returns true for a claim with a prioritized list. Which of the alternatives a node
// can offer decides how good it is, and changes with each pod.
func hasAlternatives(claim *resourceapi.ResourceClaim) bool {
	for i := range claim.Spec.Devices.Requests {
		if len(claim.Spec.Devices.Requests[i].FirstAvailable) > 0 {
			return true
		}
	}
	return false
}
