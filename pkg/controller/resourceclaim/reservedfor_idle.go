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
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/resourceclaim/deviceclasses"
)

// This file is about releasing a claim which no pod uses although its workload
// still exists. Users have to ask for that with an annotation of the claim, or administrators
// with one of the DeviceClass. After a restart of the controller, the time starts anew.

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

// idleTime is a value of the annotation.
type idleTime struct {
	value string
	// class is the DeviceClass that has it, empty for the claim.
	class string
}

// idleTimes returns what was said about when the claim is idle. What the claim says itself counts
// alone. Else it is for those who own the devices: all classes of its requests.
func (ec *Controller) idleTimes(claim *resourceapi.ResourceClaim) []idleTime {
	if value, ok := claim.Annotations[resourceclaim.ReleaseWhenIdleAnnotation]; ok {
		return []idleTime{{value: value}}
	}
	var times []idleTime
	for _, name := range deviceclasses.Names(claim) {
		if value, ok := ec.workloads.idleTimeOfClass(name); ok {
			times = append(times, idleTime{value: value, class: name})
		}
	}
	if len(times) == 0 && resourceclaim.GeneratedForOf(claim) != nil {
		times = append(times, idleTime{value: resourceclaim.DefaultGeneratedReleaseWhenIdle.String()})
	}
	return times
}

// checkAnnotation determines whether the claim gets released when idle. The shortest of
// several times counts.
func (ec *Controller) checkAnnotation(claim *resourceapi.ResourceClaim) idleness {
	if !ec.isWorkloadClaim(claim) {
		return idleness{}
	}
	times := ec.idleTimes(claim)
	if len(times) == 0 {
		return idleness{}
	}
	var idle idleness
	var invalid *string
	var explanation string
	for _, t := range times {
		wanted, err := resourceclaim.ParseReleaseWhenIdle(t.value)
		switch {
		case err != nil && t.class == "":
			invalid = &t.value
			explanation = fmt.Sprintf("annotation %s is ignored, the claim does not get released when idle: %q %v", resourceclaim.ReleaseWhenIdleAnnotation, t.value, err)
		case err != nil:
			invalid = &t.value
			explanation = fmt.Sprintf("annotation %s of DeviceClass %s is ignored: %q %v", resourceclaim.ReleaseWhenIdleAnnotation, t.class, t.value, err)
		case idle.wanted == 0 || wanted < idle.wanted:
			idle.wanted = wanted
		}
	}
	w := ec.workloads
	w.mutex.Lock()
	state := w.state(claim)
	report := invalid != nil && (state.invalidIdle == nil || *state.invalidIdle != *invalid)
	state.invalidIdle = invalid
	w.mutex.Unlock()
	if report {
		ec.event(claim, v1.EventTypeWarning, reasonInvalidIdle, explanation)
	}
	return idle
}

// watchClasses lets an administrator decide about claims that say nothing: the annotation of a
// DeviceClass is the default for the claims that use it.
//
// Nobody waits for this informer. If the controller may not list DeviceClasses, there is no
// such default.
func (ec *Controller) watchClasses(logger klog.Logger, factory informers.SharedInformerFactory) error {
	classes, err := factory.ForResource(resourceapi.SchemeGroupVersion.WithResource("deviceclasses"))
	if err != nil {
		return fmt.Errorf("get informer for DeviceClasses: %w", err)
	}
	ec.workloads.classes = classes.Informer()
	if err := addEventHandler(logger, ec.workloads.classes, cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { ec.classChanged(logger, nil, obj) },
		UpdateFunc: func(oldObj, newObj any) { ec.classChanged(logger, oldObj, newObj) },
		DeleteFunc: func(obj any) { ec.classChanged(logger, obj, nil) },
	}); err != nil {
		return fmt.Errorf("add event handler for DeviceClasses: %w", err)
	}
	return nil
}

// classChanged causes the claims of a DeviceClass to be checked when its annotation is another. One
// of the objects may be nil.
func (ec *Controller) classChanged(logger klog.Logger, oldObj, newObj any) {
	oldValue, hadValue, name := idleTimeIn(oldObj)
	newValue, hasValue, newName := idleTimeIn(newObj)
	if hadValue == hasValue && oldValue == newValue {
		return
	}
	if newName != "" {
		name = newName
	}
	claims, err := ec.claimLister.List(labels.Everything())
	if err != nil {
		logger.Error(err, "Unable to list claims for DeviceClass", "class", name)
		return
	}
	for _, claim := range claims {
		if claim.Status.Allocation != nil && ec.isWorkloadClaim(claim) && slices.Contains(deviceclasses.Names(claim), name) {
			ec.queue.Add(claimKeyPrefix + claim.Namespace + "/" + claim.Name)
		}
	}
}

// idleTimeIn returns the value of the annotation of a DeviceClass, and its name.
func idleTimeIn(obj any) (value string, ok bool, name string) {
	if d, deleted := obj.(cache.DeletedFinalStateUnknown); deleted {
		obj = d.Obj
	}
	class, _ := obj.(*resourceapi.DeviceClass)
	if class == nil {
		return "", false, ""
	}
	value, ok = class.Annotations[resourceclaim.ReleaseWhenIdleAnnotation]
	return value, ok, class.Name
}

// idleTimeOfClass returns false if there is no such DeviceClass, or it has no annotation.
func (w *workloads) idleTimeOfClass(name string) (string, bool) {
	if w.classes == nil {
		return "", false
	}
	obj, exists, err := w.classes.GetIndexer().GetByKey(name)
	if err != nil || !exists {
		return "", false
	}
	value, ok, _ := idleTimeIn(obj)
	return value, ok
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
