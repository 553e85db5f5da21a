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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/fake"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/test/utils/client-go/ktesting"
)

// TestReservedForDryRun checks that a DeviceTaintRule without effect says how many pods of a
// workload would be evicted, and that none is.
func TestReservedForDryRun(t *testing.T) {
	const numPods = 300
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAReservedForWorkloads, true)
	ktesting.Init(t).SyncTest("", func(tCtx ktesting.TContext) {
		objs := []runtime.Object{workloadClaim.DeepCopy(), ruleNone.DeepCopy()}
		for i := range numPods {
			pod := podWithClaimName.DeepCopy()
			pod.Name = fmt.Sprintf("pod-%d", i)
			pod.UID = types.UID(pod.Name)
			objs = append(objs, pod)
		}
		tCtx = tCtx.WithClients(nil, nil, fake.NewClientset(objs...), nil, nil)
		controller := newTestController(tCtx)
		var wg sync.WaitGroup
		defer wg.Wait()
		defer tCtx.Cancel("time to stop")
		wg.Go(func() { tCtx.AssertNoError(controller.Run(tCtx, 1)) })
		tCtx.Wait()

		rule, err := tCtx.Client().ResourceV1().DeviceTaintRules().Get(tCtx, ruleNone.Name, metav1.GetOptions{})
		tCtx.ExpectNoError(err, "get rule")
		if assert.Len(tCtx, rule.Status.Conditions, 1) {
			assert.Contains(tCtx, rule.Status.Conditions[0].Message, fmt.Sprintf("1 allocated device selected. %d pods would be evicted in 1 namespace ", numPods))
		}
		pods, err := tCtx.Client().CoreV1().Pods("").List(tCtx, metav1.ListOptions{})
		tCtx.ExpectNoError(err, "list pods")
		assert.Len(tCtx, pods.Items, numPods)
		assert.Empty(tCtx, controller.reservedFor.evicting)
	})
}
