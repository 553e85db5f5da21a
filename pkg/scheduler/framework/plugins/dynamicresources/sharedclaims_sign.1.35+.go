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
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	fwk "k8s.io/kube-scheduler/framework"
)

// claimsSignature is what pods must have in common to be alike for this plugin.
type claimsSignature struct {
	Namespace string
	Claims    []string
}

// signClaims returns the signature of a pod, nil if it has none. For pods with the same
// signature, the scheduler tries first what was the second best node for the pod before. Without
// that, it calls Filter and Score for many nodes, which with thousands of nodes is most of
// what such a pod costs beside one without a claim.
//
// Upstream signs no pod with claims: in general, they get allocated for one pod and not for the
// next. Pods that share all claims are alike. Filter checks the node in any case.
func (pl *DynamicResources) signClaims(pod *v1.Pod) []fwk.SignFragment {
	if !pl.fts.EnableDRASharedClaims || isInGroup(pod) || !pl.mayUsePendingAllocation(pod) {
		return nil
	}
	signature := claimsSignature{Namespace: pod.Namespace}
	for i := range pod.Spec.ResourceClaims {
		name := pl.sharedClaimName(pod, &pod.Spec.ResourceClaims[i])
		if name == "" {
			return nil
		}
		signature.Claims = append(signature.Claims, name)
	}
	return []fwk.SignFragment{{Key: fwk.DynamicResourcesSignerName, Value: signature}}
}

// sharedClaimName returns the name of the claim which a pod refers to, empty if it was generated for this
// pod or does not exist.
func (pl *DynamicResources) sharedClaimName(pod *v1.Pod, podClaim *v1.PodResourceClaim) string {
	if podClaim.ResourceClaimName != nil {
		return *podClaim.ResourceClaimName
	}
	name, _, err := resourceclaim.Name(pod, podClaim)
	if err != nil || name == nil {
		return ""
	}
	claim, err := pl.draManager.ResourceClaims().Get(pod.Namespace, *name)
	if err != nil || !mayBeShared(claim) {
		return ""
	}
	return *name
}
