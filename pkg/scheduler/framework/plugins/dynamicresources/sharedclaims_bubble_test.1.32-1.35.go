//go:build go1.25

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

// In these releases, upstream's own setup of the plugin cannot be used in a bubble.

package dynamicresources

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	cgotesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// bubbleTB hides the methods of a testing.T which must not be called in a bubble.
type bubbleTB struct {
	testing.TB
}

var initKtesting sync.Once

// syncTest runs a test in a bubble. It is a sub-test if it has a name.
func syncTest(t *testing.T, name string, cb func(tCtx ktesting.TContext)) {
	run := func(t *testing.T) {
		// All contexts are made from a global one, whose channel is made by the first who needs
		// it. If that was somebody in the bubble, then a goroutine of ktesting which
		// waits for it as well would end the process.
		initKtesting.Do(func() { ktesting.Init(t) })
		synctest.Test(t, func(t *testing.T) { cb(ktesting.Init(bubbleTB{t})) })
	}
	if name == "" {
		run(t)
		return
	}
	t.Run(name, run)
}

func newCycleState() cycleState {
	return framework.NewCycleState()
}

// newSnapshotNode returns the node without pods.
func newSnapshotNode(node *v1.Node) snapshotNode {
	info := framework.NewNodeInfo()
	info.SetNode(node)
	return info
}

func setupSharedClaims(tCtx ktesting.TContext, nodes []*v1.Node, claims []*resourceapi.ResourceClaim, objs []apiruntime.Object, feats feature.Features, apiReactors []cgotesting.Reactor) *testContext {
	tCtx.Helper()
	tc := &testContext{
		ctx:    tCtx,
		client: fake.NewSimpleClientset(append([]apiruntime.Object{deviceClass.DeepCopy()}, objs...)...),
	}
	tc.client.PrependReactor("*", "*", newTestReactor(tc.client.Tracker()))
	tc.client.ReactionChain = append(apiReactors, tc.client.ReactionChain...)
	// Without resync, all reflectors would wait for a global channel, and then the bubble never
	// gets idle.
	tc.informerFactory = informers.NewSharedInformerFactory(tc.client, 24*time.Hour)
	var hasSynced cache.InformerSynced
	tc.draManager, hasSynced = newTestDRAManager(tCtx, tc)
	fh, err := runtime.NewFramework(tCtx, nil, nil,
		runtime.WithClientSet(tc.client),
		runtime.WithInformerFactory(tc.informerFactory),
		runtime.WithEventRecorder(&events.FakeRecorder{}),
		runtime.WithSharedDRAManager(tc.draManager),
		runtime.WithWaitingPods(runtime.NewWaitingPodsMap()),
	)
	tCtx.ExpectNoError(err, "create framework")
	pl, err := New(tCtx, testArgs(), fh, feats)
	tCtx.ExpectNoError(err, "create plugin")
	tc.p = pl.(*DynamicResources)

	for _, claim := range claims {
		_, err := tc.p.claimClient(claim.Namespace).Create(tCtx, claim, metav1.CreateOptions{})
		tCtx.ExpectNoError(err, "create claim")
	}
	tc.informerFactory.Start(tCtx.Done())
	tCtx.Cleanup(func() {
		tCtx.Cancel("test is done")
		tc.informerFactory.Shutdown()
		// The recorder of metrics looks once a second whether it has to stop.
		time.Sleep(2 * time.Second) // fake time
	})
	tc.informerFactory.WaitForCacheSync(tCtx.Done())
	cache.WaitForCacheSync(tCtx.Done(), hasSynced)

	for _, node := range nodes {
		tc.nodeInfos = append(tc.nodeInfos, newSnapshotNode(node))
	}
	return tc
}
