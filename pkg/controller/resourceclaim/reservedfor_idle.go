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

package resourceclaim

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
)

// This file is about releasing a claim which no pod uses although its workload
// still exists. Users have to ask for that with an annotation. After a restart of
// the controller, the time starts anew.

// maxIdleRecheck limits for how long a claim is in the queue because it will be idle. It stays
// there when the claim is removed, and users may want any duration.
const maxIdleRecheck = time.Hour

// idleness is what is known about how long a claim was not used.
type idleness struct {
	// wanted is for how long the claim must not be used before it gets released.
	// Zero if it does not get released.
	wanted time.Duration
	// expired is true if that time has passed.
	expired bool
}

// checkAnnotation determines whether the user wants the claim to be released
// when idle.
func (ec *Controller) checkAnnotation(claim *resourceapi.ResourceClaim) idleness {
	value, ok := claim.Annotations[resourceclaim.ReleaseWhenIdleAnnotation]
	if !ok && resourceclaim.GeneratedForOf(claim) != nil {
		value, ok = resourceclaim.DefaultGeneratedReleaseWhenIdle.String(), true
	}
	if !ok || !ec.isWorkloadClaim(claim) {
		return idleness{}
	}
	wanted, err := resourceclaim.ParseReleaseWhenIdle(value)
	w := ec.workloads
	w.mutex.Lock()
	state := w.state(claim)
	report := err != nil && (state.invalidIdle == nil || *state.invalidIdle != value)
	state.invalidIdle = nil
	if err != nil {
		state.invalidIdle = &value
	}
	w.mutex.Unlock()
	if report {
		ec.event(claim, v1.EventTypeWarning, reasonInvalidIdle, fmt.Sprintf("annotation %s is ignored, the claim does not get released when idle: %q %v", resourceclaim.ReleaseWhenIdleAnnotation, value, err))
	}
	return idleness{wanted: wanted}
}

// checkIdle determines whether the time for releasing an idle claim has come. It
// must be called when no pod uses the claim. If not, then the claim will
// be checked again at that time.
//
// A claim is not idle while a pod of its workload waits to be bound: it would lose
// its devices right before it gets them.
func (ec *Controller) checkIdle(claim *resourceapi.ResourceClaim, idle *idleness) {
	if idle.wanted == 0 {
		return
	}
	w := ec.workloads
	if pod, err := ec.findPodInCache(claim, ec.awaitsClaim); pod != nil || err != nil {
		w.setUsed(claim)
		ec.recheckClaim(claim, min(idle.wanted, maxIdleRecheck))
		return
	}
	w.mutex.Lock()
	state := w.state(claim)
	if state.idleSince.IsZero() {
		state.idleSince = w.clock.Now()
	}
	left := idle.wanted - w.clock.Since(state.idleSince)
	w.mutex.Unlock()
	if left <= 0 {
		idle.expired = true
		return
	}
	ec.recheckClaim(claim, min(left, maxIdleRecheck))
}

// setUsed is called when a pod uses the claim.
func (w *workloads) setUsed(claim *resourceapi.ResourceClaim) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if state := w.existingState(claim); state != nil {
		state.idleSince = time.Time{}
	}
}
