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
	"testing"
	"time"

	"k8s.io/kubernetes/pkg/controller/tainteviction"
	ktesting "k8s.io/kubernetes/test/utils/client-go/ktesting"
)

// What the tests need to know about the controller and what differs between
// Kubernetes releases is in this file.

// runEvictionTest calls the function with a controller whose handle* methods can
// be called.
func runEvictionTest(t *testing.T, cb func(tContext *testContext)) {
	t.Helper()
	ktesting.Init(t).SyncTest("", func(tCtx ktesting.TContext) { cb(setupEviction(tCtx)) })
}

func (tContext *testContext) apply(event any) {
	tContext.Helper()
	applyEventPair(tContext, event)
}

// onEvict registers a callback for each time that a pod is found to need eviction.
func (tContext *testContext) onEvict(cb func(pod tainteviction.NamespacedObject)) {
	tContext.evictPodHook = func(pod tainteviction.NamespacedObject, _ evictionAndReason) { cb(pod) }
}

// pendingEvictions returns the pods which need to be evicted and when.
func (tContext *testContext) pendingEvictions() map[tainteviction.NamespacedObject]time.Time {
	pending := make(map[tainteviction.NamespacedObject]time.Time)
	for pod, eviction := range tContext.deletePodAt {
		pending[pod] = eviction.when.Time
	}
	return pending
}

// processEvictions does what has to be done now and after some time.
func (tContext *testContext) processEvictions(advance time.Duration) {
	time.Sleep(advance)
	for _, item := range tContext.mockQueue.State().Later {
		tContext.mockQueue.CancelAfter(item.Item)
		tContext.mockQueue.AddAfter(item.Item, item.Duration-advance)
	}
	tContext.worker(tContext)
}
