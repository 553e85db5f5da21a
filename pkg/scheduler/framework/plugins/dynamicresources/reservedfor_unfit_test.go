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

package dynamicresources

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-base/metrics/testutil"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/ptr"
)

func assigned(pod *v1.Pod, nodeName string) *v1.Pod {
	pod = pod.DeepCopy()
	pod.Spec.NodeName = nodeName
	return pod
}

func withPhase(pod *v1.Pod, phase v1.PodPhase) *v1.Pod {
	pod = pod.DeepCopy()
	pod.Status.Phase = phase
	return pod
}

// cannotFit tries to schedule a pod without success because only a node fits where the allocation
// is not available.
func (t *sharedClaimsTest) cannotFit(pod *v1.Pod) *fwk.Status {
	t.tCtx.Helper()
	cycle, status := t.preFilter(pod)
	require.Nil(t.tCtx, status)
	if cycle.names == nil {
		require.False(t.tCtx, t.p.Filter(t.tCtx, cycle.state, cycle.pod, t.nodeInfos[1]).IsSuccess())
	} else {
		require.NotContains(t.tCtx, cycle.names, node2Name)
	}
	_, status = t.p.PostFilter(t.tCtx, cycle.state, cycle.pod, nil)
	return status
}

// TestReservedForUnfit covers the release of a claim whose allocation does not fit anymore.
func TestReservedForUnfit(t *testing.T) {
	otherNamespace := assigned(newJobPod("running"), nodeName)
	otherNamespace.Namespace = "other"
	otherClaim := assigned(newJobPod("running"), nodeName)
	otherClaim.Spec.ResourceClaims[0].ResourceClaimName = ptr.To("other")

	for name, tcase := range map[string]struct {
		claim *resourceapi.ResourceClaim
		pod   *v1.Pod
		pods  []apiruntime.Object
		keep  bool
	}{
		"unused":          {},
		"running-no-name": {claim: changed(newWorkloadClaim(workloadRefWithUID), selectNodes(labelledNodes)), pods: []apiruntime.Object{withPhase(assigned(newJobPod("running"), nodeName), v1.PodRunning)}, keep: true},
		"pending":         {pods: []apiruntime.Object{newJobPod("pending")}},
		"running":         {pods: []apiruntime.Object{assigned(newJobPod("running"), nodeName)}, keep: true},
		// The claim is allocated for the other node.
		"stranded":        {claim: changed(newWorkloadClaim(workloadRefWithUID), selectNodes(labelledNodes)), pods: []apiruntime.Object{withPhase(assigned(newJobPod("stranded"), node2Name), v1.PodPending), workerNode2}},
		"ran-elsewhere":   {claim: changed(newWorkloadClaim(workloadRefWithUID), selectNodes(labelledNodes)), pods: []apiruntime.Object{withPhase(assigned(newJobPod("running"), node2Name), v1.PodRunning), workerNode2}, keep: true},
		"node-gone":       {pods: []apiruntime.Object{assigned(newJobPod("running"), "no-such-node")}, keep: true},
		"foreign-running": {pods: []apiruntime.Object{assigned(newSharingPod("running"), nodeName)}, keep: true},
		"succeeded":       {pods: []apiruntime.Object{withPhase(assigned(newJobPod("done"), nodeName), v1.PodSucceeded)}},
		"failed":          {pods: []apiruntime.Object{withPhase(assigned(newJobPod("done"), nodeName), v1.PodFailed)}},
		"other-namespace": {pods: []apiruntime.Object{otherNamespace}},
		"other-claim":     {pods: []apiruntime.Object{otherClaim}},
		"foreign-pod":     {pod: newSharingPod("pod-1"), keep: true},
		"with-uid":        {claim: withReservedFor(newWorkloadClaim(workloadRefWithUID), workloadRefWithUID), pod: newSharingPod("pod-1")},
		"mixed":           {claim: newWorkloadClaim(podReference("other-pod"), workloadRefWithUID)},
	} {
		syncTest(t, name, func(tCtx ktesting.TContext) {
			claim, pod := tcase.claim, tcase.pod
			if claim == nil {
				claim = newWorkloadClaim(workloadRefWithUID)
			}
			if pod == nil {
				pod = newJobPod("pod-1")
			}
			tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{claim}, tcase.pods...)
			before, err := testutil.GetCounterMetricValue(metrics.ResourceClaimReleaseRequests)
			tCtx.ExpectNoError(err)
			require.Equal(tCtx, fwk.Unschedulable, tc.cannotFit(pod).Code())
			synctest.Wait()
			after, err := testutil.GetCounterMetricValue(metrics.ResourceClaimReleaseRequests)
			tCtx.ExpectNoError(err)
			require.NotNil(tCtx, tc.claim().Status.Allocation, "must not be deallocated by the scheduler")
			if tcase.keep {
				require.Len(tCtx, tc.reservedFor(), len(claim.Status.ReservedFor))
				require.Empty(tCtx, tc.api.takeWrites())
				require.Equal(tCtx, before, after)
				return
			}
			require.Empty(tCtx, tc.reservedFor())
			require.Equal(tCtx, []string{"patch/status"}, tc.api.takeWrites())
			require.Equal(tCtx, before+1, after)

			// Nothing to do until the resourceclaim controller is done.
			require.Equal(tCtx, fwk.Unschedulable, tc.cannotFit(pod).Code())
			synctest.Wait()
			require.Empty(tCtx, tc.api.takeWrites())
		})
	}

	syncTest(t, "disabled", func(tCtx ktesting.TContext) {
		tc := newReservedForTest(tCtx, reservedForFeatures(false), []*resourceapi.ResourceClaim{newWorkloadClaim(workloadRefWithUID)})
		require.Equal(tCtx, fwk.Unschedulable, tc.cannotFit(newJobPod("pod-1")).Code())
		synctest.Wait()
		require.Empty(tCtx, tc.api.takeWrites())
	})

	syncTest(t, "many-pods", func(tCtx ktesting.TContext) {
		tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{newWorkloadClaim(workloadRefWithUID)})
		release := make(chan struct{})
		tc.api.before = func(string, *resourceapi.ResourceClaim) error {
			<-release
			return nil
		}
		for i := range 1000 {
			require.Equal(tCtx, fwk.Unschedulable, tc.cannotFit(newJobPod(fmt.Sprintf("pod-%d", i))).Code())
		}
		close(release)
		synctest.Wait()
		require.Equal(tCtx, []string{"patch/status"}, tc.api.takeWrites())
	})

	syncTest(t, "changed", func(tCtx ktesting.TContext) {
		tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{newWorkloadClaim(workloadRefWithUID)})
		changed := false
		tc.api.before = func(_ string, claim *resourceapi.ResourceClaim) error {
			if !changed {
				changed = true
				claim.Labels = map[string]string{"a": "b"}
			}
			return nil
		}
		require.Equal(tCtx, fwk.Unschedulable, tc.cannotFit(newJobPod("pod-1")).Code())
		synctest.Wait()
		require.Equal(tCtx, []string{jobName}, tc.reservedFor(), "the concurrent change wins")
		// Looked at again.
		require.Equal(tCtx, fwk.Unschedulable, tc.cannotFit(newJobPod("pod-1")).Code())
		synctest.Wait()
		require.Empty(tCtx, tc.reservedFor())
	})

	syncTest(t, "failure", func(tCtx ktesting.TContext) {
		tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{newWorkloadClaim(workloadRefWithUID)})
		failures := 0
		tc.api.before = func(string, *resourceapi.ResourceClaim) error {
			if failures++; failures <= 6 {
				return errors.New("fake API failure")
			}
			return nil
		}
		pod := newJobPod("pod-1")
		require.Equal(tCtx, fwk.Unschedulable, tc.cannotFit(pod).Code())
		time.Sleep(time.Minute) // fake time
		synctest.Wait()
		require.Equal(tCtx, releaseRequestBackoff.Steps, failures)
		require.True(tCtx, tc.takeActivated(pod))
		require.Equal(tCtx, fwk.Unschedulable, tc.cannotFit(pod).Code())
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Empty(tCtx, tc.reservedFor())
	})

	// Pods get another chance when the last pod is gone which used the claim.
	syncTest(t, "users-go-away", func(tCtx ktesting.TContext) {
		running := []*v1.Pod{assigned(newJobPod("running-1"), nodeName), assigned(newJobPod("running-2"), nodeName)}
		tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{newWorkloadClaim(workloadRefWithUID)}, running[0], running[1])
		pod := newJobPod("pod-1")
		podGVR := v1.SchemeGroupVersion.WithResource("pods")
		require.Equal(tCtx, fwk.Unschedulable, tc.cannotFit(pod).Code())
		tCtx.ExpectNoError(tc.client.Tracker().Delete(podGVR, namespace, running[0].Name))
		synctest.Wait()
		require.False(tCtx, tc.takeActivated(pod))
		tCtx.ExpectNoError(tc.client.Tracker().Update(podGVR, withPhase(running[1], v1.PodFailed), namespace))
		synctest.Wait()
		require.True(tCtx, tc.takeActivated(pod))
		require.Equal(tCtx, fwk.Unschedulable, tc.cannotFit(pod).Code())
		synctest.Wait()
		require.Empty(tCtx, tc.reservedFor())
	})
}

// TestClaimUsersForgets ensures that claims which are gone do not take up memory.
func TestClaimUsersForgets(t *testing.T) {
	syncTest(t, "", func(tCtx ktesting.TContext) {
		claim := newWorkloadClaim(workloadRefWithUID)
		running := assigned(newJobPod("running"), nodeName)
		tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{claim}, running)
		pod := newJobPod("pod-1")
		require.True(tCtx, tc.p.claimUsers.waitForUsers(pod, claim))
		for i := range 100 * minUnfitClaims {
			gone := claim.DeepCopy()
			gone.Name = fmt.Sprintf("gone-%d", i)
			require.False(tCtx, tc.p.claimUsers.waitForUsers(newJobPod("pod-2"), gone))
		}
		require.LessOrEqual(tCtx, len(tc.p.claimUsers.claims), minUnfitClaims)
		tCtx.ExpectNoError(tc.client.Tracker().Delete(v1.SchemeGroupVersion.WithResource("pods"), namespace, running.Name))
		synctest.Wait()
		require.True(tCtx, tc.takeActivated(pod), "still waiting")
	})
}

// TestClaimUsersRequestFailed ensures that pods still get activated after a failed request.
func TestClaimUsersRequestFailed(t *testing.T) {
	syncTest(t, "", func(tCtx ktesting.TContext) {
		claim, pod, running := newWorkloadClaim(workloadRefWithUID), newJobPod("pod-1"), assigned(newJobPod("running"), nodeName)
		tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{claim}, running)
		claim.ResourceVersion = "1"
		require.True(tCtx, tc.p.claimUsers.waitForUsers(pod, claim))
		require.True(tCtx, tc.p.claimUsers.start(claim))
		require.False(tCtx, tc.p.claimUsers.start(claim), "in progress")
		tc.p.claimUsers.requestFailed(claim)
		require.True(tCtx, tc.p.claimUsers.start(claim))
		tCtx.ExpectNoError(tc.client.Tracker().Delete(v1.SchemeGroupVersion.WithResource("pods"), namespace, running.Name))
		synctest.Wait()
		require.True(tCtx, tc.takeActivated(pod))
	})
}
