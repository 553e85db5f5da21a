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
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/controller/tainteviction"
)

// In 1.34, the controller hands pods over to a queue, which upstream's tests
// replace with a list.

func runEvictionTest(t *testing.T, cb func(tContext *testContext)) {
	t.Helper()
	cb(setup(t))
}

// apply also updates the pods in the fake API server.
func (tContext *testContext) apply(event any) {
	tContext.Helper()
	if pair, ok := event.([2]*v1.Pod); ok {
		tracker := tContext.client.Tracker()
		pods := v1.SchemeGroupVersion.WithResource("pods")
		switch {
		case pair[0] == nil:
			tContext.ExpectNoError(tracker.Add(pair[1].DeepCopy()), "add pod")
		case pair[1] == nil:
			tContext.ExpectNoError(tracker.Delete(pods, pair[0].Namespace, pair[0].Name), "delete pod")
		default:
			tContext.ExpectNoError(tracker.Update(pods, pair[1].DeepCopy(), pair[1].Namespace), "update pod")
		}
	}
	applyEventPair(tContext, event)
}

func (tContext *testContext) onEvict(cb func(pod tainteviction.NamespacedObject)) {
	evictPod := tContext.evictPod
	tContext.evictPod = func(pod tainteviction.NamespacedObject, fireAt time.Time) {
		evictPod(pod, fireAt)
		cb(pod)
	}
}

func (tContext *testContext) pendingEvictions() map[tainteviction.NamespacedObject]time.Time {
	pending := make(map[tainteviction.NamespacedObject]time.Time)
	for _, e := range tContext.evicting {
		pending[e.podRef] = e.fireAt
	}
	return pending
}

// processEvictions does what the queue would do. The time is not real: what
// happens later happens when the test says so.
func (tContext *testContext) processEvictions(advance time.Duration) {
	tContext.Helper()
	deletePod := tContext.deletePodHandler(tContext.client, tContext.emitPodDeletionEvent)
	for _, e := range slices.Clone(tContext.evicting) {
		if e.fireAt.After(taintedSince.Add(advance)) {
			continue
		}
		tContext.ExpectNoError(deletePod(tContext, e.fireAt, &tainteviction.WorkArgs{Object: e.podRef}), "delete pod")
		tContext.evicting = slices.DeleteFunc(tContext.evicting, func(other evictAt) bool { return other == e })
	}
}
