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
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The functions in this file fix problems which occur when several pods on a node
// share a claim.

// checkUsable returns an error if a pod that starts cannot use what is known of the claim.
//
// The cache is not locked while a driver unprepares a claim. A pod which
// starts in the meantime must not rely on the claim being prepared. It has to
// wait until the driver is done and then the claim gets prepared again.
//
// If unpreparing failed, then it is unknown whether the claim is still prepared, so
// it also has to wait until unpreparing was tried again and succeeded.
//
// A deleted claim with the same name is something else: the caller has an error
// of its own for that.
func (cache *claimInfoCache) checkUsable(claim *resourceapi.ResourceClaim) error {
	if info, exists := cache.get(claim.Name, claim.Namespace); exists && info.unpreparing && info.ClaimUID == claim.UID {
		return fmt.Errorf("ResourceClaim %s is still being unprepared for a previous pod", claim.Name)
	}
	return cache.checkSameDrivers(claim)
}

// isUsedOnlyByOthers returns true if the claim is used by some pods, but not by
// the given one.
//
// This happens when unpreparing has to be repeated for the pod because
// of some other claim: then the pod was already removed from this one and the
// last remaining reference is for a pod which still needs it.
func (info *ClaimInfo) isUsedOnlyByOthers(podUID types.UID) bool {
	return len(info.PodUIDs) > 0 && !info.hasPodReference(podUID)
}

// claimNamesOf returns the names of all claims that were prepared for a pod, or may have been.
//
// The status of the pod has the names of generated claims, but whoever may write it can
// remove them. Then a pod could not be stopped any more. What is not in the cache was not
// prepared, so it need not be unprepared either.
func (cache *claimInfoCache) claimNamesOf(podUID types.UID) []string {
	cache.RLock()
	defer cache.RUnlock()
	var names []string
	for _, info := range cache.claimInfo {
		if info.hasPodReference(podUID) {
			names = append(names, info.ClaimName)
		}
	}
	return names
}
