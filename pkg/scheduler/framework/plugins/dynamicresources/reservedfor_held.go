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
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/controller/resourceclaim/deviceclasses"
)

// This file tells a pod that waits for devices about claims which hold such devices although no
// pod uses them: a workload that is suspended, or was preempted, keeps its claim as long as it exists.
//
// Who may read the pod may read its condition and its events. So they only name claims of the pod's
// namespace. Of those in others they say how many there are, and who may list them can find them.

const (
	// maxHeldNames limits how many claims a pod is told about by name, maxHeldChecked
	// how many are checked for that.
	maxHeldNames   = 3
	maxHeldChecked = 100

	// heldInterval limits how often all claims are looked at because of pods that wait.
	heldInterval = 10 * time.Second
)

// heldClaims knows the claims which hold devices that no pod uses. The zero value is ready for use.
type heldClaims struct {
	mutex sync.Mutex

	// checked is when all claims were looked at. Claims which were deallocated or removed
	// since then are still here.
	checked time.Time

	// unused has since when the claims in byClass are not used.
	unused map[types.UID]time.Time

	// maxUnused is the number of entries at which all claims are looked at again.
	maxUnused int

	// suspects has since when claims are not used that are not in byClass yet: the pod that uses one may have
	// been bound to a node right now and not be in the cache yet.
	suspects map[types.UID]time.Time

	// byClass has the claims by the name of a DeviceClass.
	byClass map[string]*heldOfClass
}

// heldOfClass has the claims that hold devices of one DeviceClass.
type heldOfClass struct {
	total int
	// byNamespace has those of each namespace, the one that was not used for the longest time first.
	byNamespace map[string][]*resourceapi.ResourceClaim
}

// describeHeld returns something like `claim for jobs.batch "train", not used since 2026-11-27T10:15:00Z`.
func describeHeld(claim *resourceapi.ResourceClaim, since time.Time) string {
	description := fmt.Sprintf("%s for %s, not used since %s", claim.Name, describeConsumer(claim.Spec.ReservedFor), since.UTC().Format(time.RFC3339))
	if duration, err := resourceclaim.ParseReleaseWhenIdle(claim.Annotations[resourceclaim.ReleaseWhenIdleAnnotation]); err == nil {
		description += fmt.Sprintf(" and free after %s", duration)
	}
	return description
}

// explainHeld gets called at the end of PostFilter. If claims of the pod could not be allocated, then it
// adds to the status which claims hold such devices without a pod that uses them.
func (pl *DynamicResources) explainHeld(pod *v1.Pod, state *stateData, status *fwk.Status) *fwk.Status {
	if !pl.fts.EnableDRAReservedForWorkloads || state.allocator == nil || len(state.nodeAllocations) > 0 {
		// Not the devices are what is missing.
		return status
	}
	for index, claim := range state.claims.allUserClaims() {
		if claim.Status.Allocation != nil || state.informationsForClaim[index].pending != nil {
			continue
		}
		for _, class := range deviceclasses.Names(claim) {
			if reason := pl.heldClaims.explain(pl, class, pod.Namespace); reason != "" {
				status.AppendReason(reason)
				return status
			}
		}
	}
	return status
}

// explain returns which claims hold devices of a class that no pod uses, empty if there are none.
func (h *heldClaims) explain(pl *DynamicResources, class, namespace string) string {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if now := time.Now(); now.Sub(h.checked) >= heldInterval {
		h.update(pl, now)
	}
	held := h.byClass[class]
	if held == nil {
		return ""
	}
	own := held.byNamespace[namespace]
	var parts []string
	gone := 0
	for _, claim := range own[:min(len(own), maxHeldChecked)] {
		if len(parts) == maxHeldNames {
			break
		}
		if cached := pl.cachedClaim(nameOf(claim)); cached != nil && cached.UID == claim.UID && pl.isHeld(cached) {
			parts = append(parts, describeHeld(cached, h.unused[claim.UID]))
		} else {
			gone++
		}
	}
	total := held.total - gone
	if more := len(own) - gone - len(parts); more > 0 {
		parts = append(parts, fmt.Sprintf("%d more in this namespace", more))
	}
	if others := held.total - len(own); others > 0 {
		parts = append(parts, fmt.Sprintf("%d in other namespaces", others))
	}
	if total == 0 {
		return ""
	}
	return fmt.Sprintf("devices of DeviceClass %s are held by %d resourceclaim(s) that no pod uses (%s): the end of the workload frees them, or the annotation %s of such a claim or of the DeviceClass", class, total, strings.Join(parts, "; "), resourceclaim.ReleaseWhenIdleAnnotation)
}

// isHeld returns true if the claim keeps its devices for a workload, and no pod on a node uses it.
func (pl *DynamicResources) isHeld(claim *resourceapi.ResourceClaim) bool {
	return claim.Spec.ReservedFor != nil && isReservedForWorkload(claim) && claim.DeletionTimestamp == nil &&
		len(claim.Status.Allocation.Devices.Results) > 0 && !pl.claimUsers.inUse(claim)
}

// update looks at all claims.
func (h *heldClaims) update(pl *DynamicResources, now time.Time) {
	h.checked = now
	all, err := pl.draManager.ResourceClaims().List()
	if err != nil {
		// Cannot happen with a cache. Later pods try again.
		return
	}
	var claims []*resourceapi.ResourceClaim
	for _, claim := range all {
		if pl.isHeld(claim) {
			claims = append(claims, claim)
		}
	}
	unused, suspects := h.unused, h.suspects
	h.unused, h.suspects, h.byClass = make(map[types.UID]time.Time), make(map[types.UID]time.Time), make(map[string]*heldOfClass)
	since := func(claim *resourceapi.ResourceClaim) time.Time {
		if since, known := unused[claim.UID]; known {
			return since
		}
		return suspects[claim.UID]
	}
	slices.SortFunc(claims, func(a, b *resourceapi.ResourceClaim) int {
		return cmp.Or(since(a).Compare(since(b)), strings.Compare(a.Name, b.Name))
	})
	for _, claim := range claims {
		if since := since(claim); since.IsZero() {
			h.suspects[claim.UID] = now
		} else {
			h.add(claim, since)
		}
	}
	h.maxUnused = max(minUnfitClaims, 2*len(h.unused))
}

// add is called for a claim which is not used, and not known yet.
func (h *heldClaims) add(claim *resourceapi.ResourceClaim, since time.Time) {
	h.unused[claim.UID] = since
	for class := range sets.New(deviceclasses.Names(claim)...) {
		held := h.byClass[class]
		if held == nil {
			held = &heldOfClass{byNamespace: make(map[string][]*resourceapi.ResourceClaim)}
			h.byClass[class] = held
		}
		held.total++
		held.byNamespace[claim.Namespace] = append(held.byNamespace[claim.Namespace], claim)
	}
}

// remove is called for a claim which is used.
func (h *heldClaims) remove(claim *resourceapi.ResourceClaim) {
	delete(h.suspects, claim.UID)
	if _, known := h.unused[claim.UID]; !known {
		return
	}
	delete(h.unused, claim.UID)
	for class := range sets.New(deviceclasses.Names(claim)...) {
		if held := h.byClass[class]; held != nil {
			held.total--
			held.byNamespace[claim.Namespace] = slices.DeleteFunc(held.byNamespace[claim.Namespace], func(other *resourceapi.ResourceClaim) bool { return other.UID == claim.UID })
		}
	}
}

// used gets called when a pod that uses the claim has been bound to a node.
func (h *heldClaims) used(pl *DynamicResources, namespace, claimName string) {
	if claim := pl.cachedClaim(types.NamespacedName{Namespace: namespace, Name: claimName}); claim != nil {
		h.mutex.Lock()
		defer h.mutex.Unlock()
		h.remove(claim)
	}
}

// ended gets called when a pod has stopped using the claim.
func (h *heldClaims) ended(pl *DynamicResources, namespace, claimName string) {
	claim := pl.cachedClaim(types.NamespacedName{Namespace: namespace, Name: claimName})
	if claim == nil || !pl.isHeld(claim) {
		return
	}
	h.mutex.Lock()
	defer h.mutex.Unlock()
	now := time.Now()
	if len(h.unused) >= h.maxUnused {
		h.update(pl, now)
	}
	if h.byClass != nil {
		h.remove(claim)
		h.add(claim, now)
	}
}
