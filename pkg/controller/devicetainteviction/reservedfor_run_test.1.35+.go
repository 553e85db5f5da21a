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
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/fake"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"
	ktesting "k8s.io/kubernetes/test/utils/client-go/ktesting"
)

// runReservedForTest calls the function with a controller whose handle* methods
// can be called.
func runReservedForTest(t *testing.T, cb func(tContext *testContext)) {
	t.Helper()
	runEvictionTest(t, func(tContext *testContext) {
		// Run adds it.
		tContext.ExpectNoError(tContext.addReservedForIndexer(), "add index")
		cb(tContext)
	})
}

// TestReservedForWorkloadsRule checks that the status of a rule includes pods which
// are not listed. Rules have had a status since 1.35.
func TestReservedForWorkloadsRule(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAReservedForWorkloads, true)
	eviction := *newEvictionTime(taintTime, ruleEvict)
	runReservedForTest(t, func(tContext *testContext) {
		testHandlers(tContext, testCase{
			initialState: state{
				pods:            l(workloadPod1, workloadPod2),
				slices:          l(simpleSlice),
				allocatedClaims: l(ac(workloadClaim)),
			},
			events: []any{add(ruleEvict)},
			finalState: state{
				slices:          l(simpleSlice),
				allocatedClaims: l(ac(workloadClaim, &eviction)),
				deletePodAt:     evictMap{newObject(workloadPod1): eviction, newObject(workloadPod2): eviction},
				queued: MockState[workItem]{
					Ready: newWorkItems(ruleEvict, workloadPod1, workloadPod2),
					Later: newDelayedWorkItems(ruleEvict, ruleStatusPeriod),
				},
			},
			process: []step{{
				rules:           l(inProgress(ruleEvict, true, "PodsPendingEviction", "2 pods need to be evicted in 1 namespace.", taintTime)),
				ruleStats:       map[types.UID]taintRuleStats{ruleEvict.UID: {numEvictedPods: 2}},
				queuedProcessed: MockState[workItem]{Later: newDelayedWorkItems(ruleEvict, ruleStatusPeriod)},
				queuedShifted:   MockState[workItem]{Later: newDelayedWorkItems(ruleEvict, ruleStatusPeriod)},
			}},
			wantEvents: l(makePodEvent("Marking for deletion", workloadPod1), makePodEvent("Marking for deletion", workloadPod2)),
		})
	})
}

// TestReservedForWorkloadsRun runs the controller with real informers.
func TestReservedForWorkloadsRun(t *testing.T) {
	for _, enabled := range []bool{true, false} {
		t.Run(fmt.Sprintf("enabled=%v", enabled), func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAReservedForWorkloads, enabled)
			ktesting.Init(t).SyncTest("", func(tCtx ktesting.TContext) {
				client := fake.NewClientset(slice, workloadClaim, workloadPod1, workloadPod2)
				tCtx, controller := newReservedForController(tCtx, client)

				var wg sync.WaitGroup
				defer func() {
					tCtx.Cancel("time to stop")
					wg.Wait()
				}()
				wg.Go(func() {
					assert.NoError(tCtx, controller.Run(tCtx, 10 /* workers */), "eviction controller failed")
				})
				waitUntilSynced(tCtx, controller)

				_, err := client.ResourceV1().ResourceSlices().Update(tCtx, sliceTainted, metav1.UpdateOptions{})
				tCtx.ExpectNoError(err)
				tCtx.Wait()

				pods, err := client.CoreV1().Pods(namespace).List(tCtx, metav1.ListOptions{})
				tCtx.ExpectNoError(err)
				if enabled {
					assertEqual(tCtx, 0, len(pods.Items), "pods after eviction")
					tCtx.ExpectNoError(checkImmediateEvictions(controller, 2), "pod eviction done")
				} else {
					assertEqual(tCtx, 2, len(pods.Items), "pods with disabled feature")
					tCtx.ExpectNoError(checkImmediateEvictions(controller, 0), "no pod eviction")
				}
			})
		})
	}
}
