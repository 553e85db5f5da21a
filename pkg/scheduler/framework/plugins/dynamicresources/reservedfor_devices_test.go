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
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/test/utils/ktesting"
)

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
