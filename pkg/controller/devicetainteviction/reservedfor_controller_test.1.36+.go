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
	"time"

	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/test/utils/client-go/ktesting"
)

// newReservedForController returns a controller for that client.
func newReservedForController(tCtx ktesting.TContext, client *fake.Clientset) (ktesting.TContext, *Controller) {
	tCtx = tCtx.WithClients(nil, nil, client, nil, nil)
	return tCtx, newTestController(tCtx)
}

// checkImmediateEvictions checks what the metrics say: how many pods were evicted
// without a delay.
func checkImmediateEvictions(controller *Controller, count int) error {
	return testPodDeletionsMetrics(controller, make([]time.Duration, count)...)
}

// waitUntilSynced waits until the controller handles events.
func waitUntilSynced(tCtx ktesting.TContext, _ *Controller) { tCtx.Wait() }
