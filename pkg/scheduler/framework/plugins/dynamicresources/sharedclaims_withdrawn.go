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
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// This file contains what other pods must know about a pod between Reserve and the end of PreBind,
// when nothing of it is stored yet: the places that it will take in lists of claims, and, if it
// fails, that there is room again. No object changes then, so no event of a claim tells those
// who wait.

// withdrawnTTL is for how long it is remembered that a pod gave something back. The scheduler offers
// the event for that immediately to all pods which wait.
const withdrawnTTL = time.Minute

// inFlight is about pods which got through Reserve.
type inFlight struct {
	mutex sync.Mutex

	// sharers are the pods which will be added to the list of a claim, by the UID of the claim.
	sharers map[types.UID]sets.Set[types.UID]

	// withdrawn says when a pod gave something back.
	withdrawn map[types.UID]time.Time
	swept     time.Time
}

// addSharer is for a pod which will be added to the list of a claim.
func (f *inFlight) addSharer(claimUID, podUID types.UID) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if f.sharers == nil {
		f.sharers = make(map[types.UID]sets.Set[types.UID])
	}
	if f.sharers[claimUID] == nil {
		f.sharers[claimUID] = sets.New[types.UID]()
	}
	f.sharers[claimUID].Insert(podUID)
}

// removeSharer is for a pod which was added or will not be. It returns false if that was known already.
func (f *inFlight) removeSharer(claimUID, podUID types.UID) bool {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if !f.sharers[claimUID].Has(podUID) {
		return false
	}
	f.sharers[claimUID].Delete(podUID)
	if len(f.sharers[claimUID]) == 0 {
		delete(f.sharers, claimUID)
	}
	return true
}

// isFull returns true if the list of the claim has no place for the pod once all others are in it
// which got through Reserve before.
func (f *inFlight) isFull(claim *resourceapi.ResourceClaim, podUID types.UID) bool {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	sharers := f.sharers[claim.UID]
	if len(sharers) == 0 || sharers.Has(podUID) || len(claim.Status.ReservedFor)+len(sharers) < resourceapi.ResourceClaimReservedForMaxSize {
		return false
	}
	total := len(claim.Status.ReservedFor)
	for uid := range sharers {
		if !isListed(claim, uid) {
			total++
		}
	}
	return total >= resourceapi.ResourceClaimReservedForMaxSize
}

// withdraw remembers that a pod gave something back.
func (f *inFlight) withdraw(podUID types.UID, now time.Time) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if now.Sub(f.swept) > withdrawnTTL {
		f.swept = now
		for uid, at := range f.withdrawn {
			if now.Sub(at) > withdrawnTTL {
				delete(f.withdrawn, uid)
			}
		}
	}
	if f.withdrawn == nil {
		f.withdrawn = make(map[types.UID]time.Time)
	}
	f.withdrawn[podUID] = now
}

func (f *inFlight) hasWithdrawn(podUID types.UID) bool {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	_, ok := f.withdrawn[podUID]
	return ok
}

// trackSharer gets called by Reserve for each claim.
func (pl *DynamicResources) trackSharer(state *stateData, index int) {
	info, claim := &state.informationsForClaim[index], state.claims.get(index)
	if info.listsPod && info.reservation == nil && !isListed(claim, info.podUID) {
		pl.claimReserver.inFlight.addSharer(claim.UID, info.podUID)
	}
}

// untrackSharer gets called when PreBind is done with a claim, or when the pod is unreserved.
func (pl *DynamicResources) untrackSharer(state *stateData, index int) {
	info, claim := &state.informationsForClaim[index], state.claims.get(index)
	if !pl.claimReserver.inFlight.removeSharer(claim.UID, info.podUID) {
		return
	}
	if latest, err := pl.draManager.ResourceClaims().Get(claim.Namespace, claim.Name); err != nil || !isListed(latest, info.podUID) {
		pl.claimReserver.inFlight.withdraw(info.podUID, time.Now())
	}
}

// withWithdrawn adds to the events of the plugin that a pod failed which had got through Reserve. The
// scheduler treats that as if an assigned pod were deleted.
func (pl *DynamicResources) withWithdrawn(events []fwk.ClusterEventWithHint) []fwk.ClusterEventWithHint {
	if !pl.fts.EnableDRASharedClaims {
		return events
	}
	return append(events, fwk.ClusterEventWithHint{
		Event:          fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Delete},
		QueueingHintFn: pl.isSchedulableAfterWithdrawal,
	})
}

// isSchedulableAfterWithdrawal lets a pod try again if another one gave something back of which no
// object tells: devices which were allocated in memory only, or a place in a list.
func (pl *DynamicResources) isSchedulableAfterWithdrawal(logger klog.Logger, pod *v1.Pod, oldObj, _ any) (fwk.QueueingHint, error) {
	withdrawn, ok := oldObj.(*v1.Pod)
	if !ok || !pl.claimReserver.inFlight.hasWithdrawn(withdrawn.UID) {
		return fwk.QueueSkip, nil
	}
	logger.V(5).Info("another pod gave back what it would have used of claims", "pod", klog.KObj(pod), "otherPod", klog.KObj(withdrawn))
	return fwk.Queue, nil
}
