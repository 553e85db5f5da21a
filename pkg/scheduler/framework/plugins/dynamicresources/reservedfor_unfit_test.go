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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics/testutil"
	fwk "k8s.io/kube-scheduler/framework"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
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
		time.Sleep(tryAgainInterval) // fake time
		synctest.Wait()
		require.True(tCtx, tc.takeActivated(newJobPod("pod-1")), "no event for a new label")
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

// snapshotHandle has a snapshot of the scheduler's cache.
type snapshotHandle struct {
	orderHandle
	snapshot sharedLister
}

func (h snapshotHandle) SnapshotSharedLister() sharedLister { return h.snapshot }

// TestReservedForAssumed covers a pod that needs an allocation to be given up while another pod which fits it is
// on its way to a node. The API server does not know that yet. When that pod runs and ends, or never gets
// there, the waiting pod must get another chance, without any event.
func TestReservedForAssumed(t *testing.T) {
	syncTest(t, "", func(tCtx ktesting.TContext) {
		tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{newWorkloadClaim(workloadRefWithUID)})
		handle := tc.p.fh
		tc.p.fh = snapshotHandle{handle, internalcache.NewSnapshot([]*v1.Pod{assigned(newJobPod("assumed"), nodeName)}, []*v1.Node{workerNode})}
		pod := newJobPod("pod-1")
		for range 3 {
			require.Equal(tCtx, fwk.Unschedulable, tc.cannotFit(pod).Code())
			time.Sleep(tryAgainInterval - time.Millisecond) // fake time
			synctest.Wait()
			assert.Equal(tCtx, []string{jobName}, tc.reservedFor(), "the assumed pod may use the claim")
			assert.False(tCtx, tc.takeActivated(pod))
			time.Sleep(time.Millisecond)
			synctest.Wait()
			assert.True(tCtx, tc.takeActivated(pod), "it looks again")
		}
		tc.p.fh = snapshotHandle{handle, internalcache.NewSnapshot(nil, []*v1.Node{workerNode})}
		require.Equal(tCtx, fwk.Unschedulable, tc.cannotFit(pod).Code())
		synctest.Wait()
		assert.Empty(tCtx, tc.reservedFor(), "nobody uses the claim")
	})
}

// changeSlice modifies the slice with the allocated device and waits for the cache.
func (t *sharedClaimsTest) changeSlice(change func(slice *resourceapi.ResourceSlice)) {
	t.tCtx.Helper()
	slice := workerNodeSlice.DeepCopy()
	change(slice)
	t.tCtx.ExpectNoError(t.client.Tracker().Update(resourceapi.SchemeGroupVersion.WithResource("resourceslices"), slice, ""))
	synctest.Wait()
}

// TestReservedForDevices covers an allocation with a device that no new pod should use.
func TestReservedForDevices(t *testing.T) {
	newPool := func(slice *resourceapi.ResourceSlice, generation, count int64) {
		slice.Spec.Pool.Generation = generation
		slice.Spec.Pool.ResourceSliceCount = count
	}
	rename := func(slice *resourceapi.ResourceSlice) {
		for i := range slice.Spec.Devices {
			slice.Spec.Devices[i].Name = "new-" + slice.Spec.Devices[i].Name
		}
	}
	for name, tcase := range map[string]struct {
		change func(slice *resourceapi.ResourceSlice)
		// expect is why no new pod may use the device, empty if it may.
		expect string
	}{
		"unchanged": {change: func(*resourceapi.ResourceSlice) {}},
		"device-gone": {
			change: func(slice *resourceapi.ResourceSlice) { newPool(slice, 2, 1); rename(slice) },
			expect: "device some-driver/worker/instance-1 does not exist anymore",
		},
		"pool-gone": {
			change: func(slice *resourceapi.ResourceSlice) { slice.Spec.Pool.Name = "other" },
			expect: "device some-driver/worker/instance-1 does not exist anymore",
		},
		"driver-gone": {
			change: func(slice *resourceapi.ResourceSlice) { slice.Spec.Driver = "other" },
			expect: "device some-driver/worker/instance-1 does not exist anymore",
		},
		// The slice with the device may be about to be created.
		"pool-incomplete": {change: func(slice *resourceapi.ResourceSlice) { newPool(slice, 2, 2); rename(slice) }},
	} {
		syncTest(t, name, func(tCtx ktesting.TContext) {
			tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{newWorkloadClaim(workloadRefWithUID)})
			tc.changeSlice(tcase.change)
			tc.requireDevicesFit(newJobPod("pod-1"), tcase.expect)
		})
	}

	// The pod has to wait for the last one which uses the claim.
	syncTest(t, "in-use", func(tCtx ktesting.TContext) {
		running := assigned(newJobPod("running"), nodeName)
		tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{newWorkloadClaim(workloadRefWithUID)}, apiruntime.Object(running))
		tc.changeSlice(rename)
		pod := newJobPod("pod-1")
		_, status := tc.preFilter(pod)
		require.Equal(tCtx, fwk.UnschedulableAndUnresolvable, status.Code())
		require.Contains(tCtx, status.Message(), "waiting until no pod uses the claim anymore")
		synctest.Wait()
		require.Equal(tCtx, []string{jobName}, tc.reservedFor())

		tCtx.ExpectNoError(tc.client.Tracker().Update(v1.SchemeGroupVersion.WithResource("pods"), withPhase(running, v1.PodFailed), namespace))
		synctest.Wait()
		require.True(tCtx, tc.takeActivated(pod))
		tc.requireDevicesFit(pod, "device some-driver/worker/instance-1 does not exist anymore")

		// The device comes back before the resourceclaim controller was there.
		tc.changeSlice(func(*resourceapi.ResourceSlice) {})
		require.Nil(tCtx, tc.schedule(pod).bind(tCtx))
		require.Equal(tCtx, []string{jobName}, tc.reservedFor())
	})

	// A stranger must not decide that the workload has to move.
	syncTest(t, "other-pod", func(tCtx ktesting.TContext) {
		tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{newWorkloadClaim(workloadRefWithUID)})
		tc.changeSlice(rename)
		_, status := tc.preFilter(newSharingPod("pod-1"))
		require.Equal(tCtx, fwk.UnschedulableAndUnresolvable, status.Code())
		synctest.Wait()
		require.Empty(tCtx, tc.api.takeWrites())
	})

	// Claims which are reserved for each pod are handled as upstream does it.
	syncTest(t, "per-pod", func(tCtx ktesting.TContext) {
		tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{newAllocatedSharedClaim(podReference("other-pod"))})
		tc.changeSlice(rename)
		_, status := tc.preFilter(newSharingPod("pod-1"))
		require.Nil(tCtx, status)
	})
}

// requireDevicesFit checks that the pod may use the allocation or, if there is a reason why it
// may not, that the release of the claim gets requested.
func (t *sharedClaimsTest) requireDevicesFit(pod *v1.Pod, reason string) {
	t.tCtx.Helper()
	_, status := t.preFilter(pod)
	synctest.Wait()
	if reason == "" {
		require.Nil(t.tCtx, status)
		require.Empty(t.tCtx, t.api.takeWrites())
		return
	}
	require.Equal(t.tCtx, fwk.UnschedulableAndUnresolvable, status.Code())
	require.Contains(t.tCtx, status.Message(), reason)
	require.Contains(t.tCtx, status.Message(), "waiting until the claim is allocated elsewhere")
	require.Equal(t.tCtx, []string{"patch/status"}, t.api.takeWrites())
	require.Empty(t.tCtx, t.reservedFor())
	require.NotNil(t.tCtx, t.claim().Status.Allocation, "must not be deallocated by the scheduler")
}

func sliceOfPool(name, pool string) *resourceapi.ResourceSlice {
	slice := workerNodeSlice.DeepCopy()
	slice.Name, slice.Spec.Pool.Name = name, pool
	return slice
}

func TestSlicesByPool(t *testing.T) {
	var slices slicesByPool
	expect := func(pool string, names ...string) {
		t.Helper()
		var actual []string
		for _, slice := range slices.get(poolID{driver, pool}) {
			actual = append(actual, slice.Name)
		}
		assert.ElementsMatch(t, names, actual, "slices of pool %s", pool)
	}
	expect("a")
	slices.OnAdd(sliceOfPool("one", "a"), true)
	slices.OnAdd(sliceOfPool("two", "a"), false)
	slices.OnAdd(sliceOfPool("three", "b"), false)
	expect("a", "one", "two")
	slices.OnUpdate(sliceOfPool("two", "a"), sliceOfPool("two", "b"))
	expect("a", "one")
	expect("b", "two", "three")
	slices.OnDelete(cache.DeletedFinalStateUnknown{Key: "one", Obj: sliceOfPool("one", "a")})
	slices.OnDelete(sliceOfPool("three", "b"))
	slices.OnDelete("something else")
	expect("a")
	expect("b", "two")
	assert.Len(t, slices.pools, 1, "pools without slices are forgotten")
}

// BenchmarkUnfitDevice compares looking at the slices of the allocated device's pool with looking at all.
func BenchmarkUnfitDevice(b *testing.B) {
	const count = 10000
	var byPool slicesByPool
	var all []*resourceapi.ResourceSlice
	for i := range count {
		slice := sliceOfPool(fmt.Sprint(i), fmt.Sprintf("pool-%d", i))
		byPool.OnAdd(slice, true)
		all = append(all, slice)
	}
	claim := newAllocatedSharedClaim()
	claim.Status.Allocation.Devices.Results[0].Pool = fmt.Sprintf("pool-%d", count/2)
	for name, slicesOf := range map[string]func(poolID) []*resourceapi.ResourceSlice{
		"all":  func(poolID) []*resourceapi.ResourceSlice { return append([]*resourceapi.ResourceSlice{}, all...) },
		"pool": byPool.get,
	} {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				if reason, found := new(DynamicResources).unfitDeviceIn(claim, slicesOf); reason != "" || !found {
					b.Fatal(reason)
				}
			}
		})
	}
}

// TestReservedForLimitFilter covers for which nodes Filter gets called for a pod of a workload.
// As long as no pod uses the claim, PostFilter may have it released, but only if
// some node fits the pod and not the allocation.
func TestReservedForLimitFilter(t *testing.T) {
	byName := selectNodes(namedNode(nodeName))
	for name, tc := range map[string]struct {
		claim     *resourceapi.ResourceClaim
		pods      []apiruntime.Object
		wantSkip  bool
		wantNames sets.Set[string]
	}{
		"any-node":        {claim: changed(newWorkloadClaim(workloadRefWithUID), selectNodes()), wantSkip: true},
		"one-node-unused": {claim: changed(newWorkloadClaim(workloadRefWithUID), byName)},
		"one-node-used":   {claim: changed(newWorkloadClaim(workloadRefWithUID), byName), pods: []apiruntime.Object{assigned(newJobPod("running"), nodeName)}, wantNames: sets.New(nodeName)},
		// Allocated while the feature was off.
		"one-node-pods": {claim: changed(withReservedFor(newAllocatedSharedClaim(podReferences(1)...), workloadRef), byName), wantNames: sets.New(nodeName)},
	} {
		syncTest(t, name, func(tCtx ktesting.TContext) {
			test := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{tc.claim}, tc.pods...)
			cycle, status := test.preFilter(newJobPod("pod-1"))
			require.Nil(tCtx, status)
			assert.Equal(tCtx, tc.wantSkip, cycle.skipped, "Skip")
			assert.Equal(tCtx, tc.wantNames, cycle.names)
			assert.Contains(tCtx, cycle.filter(), nodeName)
		})
	}
}
