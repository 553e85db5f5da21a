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

package scheduler

import (
	"context"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/profile"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/ptr"
)

// TestBindReleasedClaim ensures that a scheduler with the default configuration does not bind a
// pod when the claim was released since the pod was scheduled.
func TestBindReleasedClaim(t *testing.T) {
	for _, released := range []bool{false, true} {
		t.Run(map[bool]string{false: "reserved", true: "released"}[released], func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DynamicResourceAllocation, true)
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAReservedForWorkloads, true)
			tCtx := ktesting.Init(t)

			ref := resourceapi.ResourceClaimConsumerReference{APIGroup: "batch", Resource: "jobs", Name: "train", UID: "train-uid"}
			claim := st.MakeResourceClaim().Name("shared").Namespace("default").UID("claim-uid").Request("class").Obj()
			claim.ResourceVersion = "1"
			claim.Spec.ReservedFor = (*resourceapi.ResourceClaimWorkloadReference)(&ref)
			claim.Status.Allocation = &resourceapi.AllocationResult{ReservedForAnyPod: ptr.To(true)}
			claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{ref}
			pod := st.MakePod().Name("pod").Namespace("default").UID("pod-uid").SchedulerName(v1.DefaultSchedulerName).
				PodResourceClaims(v1.PodResourceClaim{Name: "shared", ResourceClaimName: ptr.To("shared")}).Obj()
			node := st.MakeNode().Name("node").Obj()
			client := fake.NewSimpleClientset(claim, pod, node)
			informerFactory := informers.NewSharedInformerFactory(client, 0)
			broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
			sched, err := New(tCtx, client, informerFactory, nil, profile.NewRecorderFactory(broadcaster))
			tCtx.ExpectNoError(err, "create scheduler")
			informerFactory.Start(tCtx.Done())
			informerFactory.WaitForCacheSync(tCtx.Done())
			tCtx.ExpectNoError(sched.WaitForHandlersSync(tCtx))
			tCtx.ExpectNoError(sched.Cache.UpdateSnapshot(tCtx.Logger(), sched.nodeInfoSnapshot))

			fw := sched.Profiles[v1.DefaultSchedulerName]
			state := framework.NewCycleState()
			if _, status, _ := fw.RunPreFilterPlugins(tCtx, state, pod); !status.IsSuccess() {
				t.Fatalf("unexpected result of PreFilter: %v", status)
			}
			if released {
				changed := claim.DeepCopy()
				changed.ResourceVersion = "2"
				changed.Status.ReservedFor = nil
				tCtx.ExpectNoError(client.Tracker().Update(resourceapi.SchemeGroupVersion.WithResource("resourceclaims"), changed, changed.Namespace))
				tracker := fw.SharedDRAManager().ResourceClaims()
				tCtx.ExpectNoError(wait.PollUntilContextTimeout(tCtx, time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
					claim, err := tracker.Get(claim.Namespace, claim.Name)
					return err == nil && len(claim.Status.ReservedFor) == 0, err
				}), "wait for the change of the claim")
			}

			tCtx.ExpectNoError(sched.Cache.AssumePod(tCtx.Logger(), pod))
			status := sched.bind(tCtx, fw, pod, node.Name, state)
			bound := false
			for _, action := range client.Actions() {
				if action.Matches("create", "pods") && action.GetSubresource() == "binding" {
					bound = true
				}
			}
			if bound == released {
				t.Errorf("expected the pod to be bound %v, got %v", !released, bound)
			}
			if status.IsSuccess() == released {
				t.Errorf("unexpected status %v", status)
			}
			if released && !strings.Contains(status.Message(), `is not reserved for jobs "train"`) {
				t.Errorf("unexpected message %q", status.Message())
			}
		})
	}
}
