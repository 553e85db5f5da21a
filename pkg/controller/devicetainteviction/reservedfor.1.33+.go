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

package devicetainteviction

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	apipod "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/features"
)

// podByClaimIndex is the lookup name for pods by the claims that they reference.
// The pod informer is shared with other controllers, in particular with the
// resourceclaim controller which has a similar index, so the name must be
// unique.
const podByClaimIndex = "deviceTaintEvictionPodByResourceClaim"

// reservedFor is the part of the controller's state which is about claims that
// are reserved for a workload instead of for individual pods (KEP-5194).
type reservedFor struct {
	// enabled matches the DRAReservedForWorkloads feature gate state.
	enabled bool

	// evicting contains the claims whose unlisted pods were found to need
	// eviction. Only for those there might be something to cancel.
	evicting sets.Set[types.NamespacedName]
}

func newReservedFor() reservedFor {
	return reservedFor{
		enabled:  utilfeature.DefaultFeatureGate.Enabled(features.DRAReservedForWorkloads),
		evicting: sets.New[types.NamespacedName](),
	}
}

// addReservedForIndexer adds the index which is needed to find the pods of a
// claim which is reserved for a workload. The pods are not listed in such a
// claim.
func (tc *Controller) addReservedForIndexer() error {
	if !tc.reservedFor.enabled {
		return nil
	}
	if err := tc.podInformer.Informer().AddIndexers(cache.Indexers{podByClaimIndex: podByClaimIndexFunc}); err != nil {
		return fmt.Errorf("adding %s indexer for pods: %w", podByClaimIndex, err)
	}
	return nil
}

// podByClaimIndexFunc returns the <namespace>/<name> of each claim which is
// referenced by the pod.
//
// The claim in status.extendedResourceClaimStatus is intentionally not among
// them: such a claim always gets reserved for its pod and thus lists it.
func podByClaimIndexFunc(obj any) ([]string, error) {
	pod, ok := obj.(*v1.Pod)
	if !ok {
		return nil, fmt.Errorf("unexpected type %T reached Pod informer indexer", obj)
	}
	claims := sets.New[string]()
	// When more of them are created, then the status of the pod changes and it is indexed again.
	for name := range resourceclaim.ClaimNames(pod) {
		claims.Insert(pod.Namespace + "/" + name)
	}
	return claims.UnsortedList(), nil
}

// hasUnlistedPods returns true if the claim may be used by pods which are not
// listed in it. One which is being deleted gets no reservation back, and keeps its
// devices as long as pods run.
func (tc *Controller) hasUnlistedPods(claim *resourceapi.ResourceClaim) bool {
	return tc.reservedFor.enabled && (resourceclaim.IsReservedForAnyPod(claim) ||
		claim.DeletionTimestamp != nil && resourceclaim.IsAllocatedForAnyPod(claim))
}

// mayUseWithoutReservation checks whether the pod uses the claim although it is
// not listed in it.
//
// A pod which is listed gets removed by the resourceclaim controller once it has
// terminated and then doesn't get evicted anymore. Here this needs to be checked
// explicitly. Otherwise the finished pods of a Job would get deleted.
func (tc *Controller) mayUseWithoutReservation(pod *v1.Pod, claim *resourceapi.ResourceClaim) bool {
	return tc.hasUnlistedPods(claim) && !apipod.IsPodTerminal(pod)
}

// finishedBeforeEviction returns true if the pod has terminated by itself while
// its eviction was still pending. No claim changes because of that when the claim
// is reserved for a workload, so the pod itself must be checked again to cancel
// the eviction.
func (tc *Controller) finishedBeforeEviction(oldPod, newPod *v1.Pod) bool {
	if !tc.reservedFor.enabled ||
		apipod.IsPodTerminal(oldPod) ||
		!apipod.IsPodTerminal(newPod) {
		return false
	}
	return tc.mayBeEvicting(newPod)
}

// handleUnlistedPods checks all pods which use the claim without being listed in
// it. There may be many more of them than the list could hold.
func (tc *Controller) handleUnlistedPods(claim *resourceapi.ResourceClaim) {
	name := newNamespacedName(claim)
	if _, allocated := tc.allocatedClaims[name]; !allocated {
		// Nothing will be left to cancel after this call.
		defer tc.reservedFor.evicting.Delete(name)
	}
	if !tc.hasUnlistedPods(claim) {
		return
	}
	switch mustEvict := tc.mustEvictPodsOf(name); {
	case mustEvict:
		tc.reservedFor.evicting.Insert(name)
	case tc.reservedFor.evicting.Has(name):
		tc.reservedFor.evicting.Delete(name)
	default:
		// There is no reason to evict and nothing that could be canceled.
		// This is by far the most common case and worth avoiding the work
		// below for each update of the claim.
		return
	}

	objs, err := tc.podInformer.Informer().GetIndexer().ByIndex(podByClaimIndex, name.String())
	if err != nil {
		// Should not happen.
		utilruntime.HandleErrorWithLogger(tc.logger, err, "Retrieve pods for ResourceClaim from cache", "claim", name)
		return
	}
	for _, obj := range objs {
		pod, ok := obj.(*v1.Pod)
		if !ok {
			continue
		}
		if pod.DeletionTimestamp != nil {
			// Already being deleted, possibly by us. The cache of evicted pods
			// cannot be relied upon to detect that because it is small
			// compared to the number of pods that get evicted here.
			continue
		}
		if tc.isListed(pod, claim) {
			// Listed after all, gets handled because of that.
			continue
		}
		tc.handlePod(pod)
	}
}
