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
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/fake"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// In these releases, upstream's helpers do not add indices, and need real time.

func runReservedForTest(t *testing.T, cb func(tContext *testContext)) {
	t.Helper()
	runEvictionTest(t, func(tContext *testContext) {
		tContext.ExpectNoError(tContext.addReservedForIndexer(), "add index")
		cb(tContext)
	})
}

// TestReservedForWorkloadsRun runs the controller with real informers.
func TestReservedForWorkloadsRun(t *testing.T) {
	for _, enabled := range []bool{true, false} {
		t.Run(fmt.Sprintf("enabled=%v", enabled), func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAReservedForWorkloads, enabled)
			client := fake.NewClientset(slice, workloadClaim, workloadPod1, workloadPod2)
			tCtx := ktesting.WithClients(ktesting.Init(t), nil, nil, client, nil, nil)
			controller := newTestController(tCtx, client)

			var wg sync.WaitGroup
			defer func() {
				tCtx.Cancel("time to stop")
				wg.Wait()
			}()
			wg.Add(1)
			go func() {
				defer wg.Done()
				assert.NoError(t, controller.Run(tCtx), "eviction controller failed")
			}()
			require.Eventually(t, func() bool { return controller.hasSynced.Load() > 0 }, 30*time.Second, 10*time.Millisecond, "controller synced")

			tCtx.ExpectNoError(client.Tracker().Update(resourceapi.SchemeGroupVersion.WithResource("resourceslices"), sliceTainted, ""))
			countPods := func() int {
				pods, err := client.CoreV1().Pods(namespace).List(tCtx, metav1.ListOptions{})
				tCtx.ExpectNoError(err)
				return len(pods.Items)
			}
			if enabled {
				require.Eventually(t, func() bool { return countPods() == 0 && testPodDeletionsMetrics(controller, 2) == nil }, 30*time.Second, 10*time.Millisecond, "pods get evicted")
			} else {
				require.Never(t, func() bool { return countPods() < 2 }, 2*time.Second, 100*time.Millisecond, "pods with disabled feature")
				tCtx.ExpectNoError(testPodDeletionsMetrics(controller, 0), "no pod eviction")
			}
		})
	}
}
