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

package dra

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/utils/ptr"
)

var jobRef = resourceapi.ResourceClaimConsumerReference{APIGroup: "batch", Resource: "jobs", Name: "my-job", UID: "job-uid"}

// genWorkloadClaim generates a claim which is allocated for any pod, reserved for
// a Job, and doesn't list any pod.
func genWorkloadClaim(change ...func(*resourceapi.ResourceClaim)) *resourceapi.ResourceClaim {
	claim := genTestClaim(claimName, driverName, deviceName, "")
	claim.Spec.ReservedFor = &resourceapi.ResourceClaimWorkloadReference{APIGroup: "batch", Resource: "jobs", Name: "my-job"}
	claim.Status.Allocation.ReservedForAnyPod = ptr.To(true)
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{jobRef}
	for _, change := range change {
		change(claim)
	}
	return claim
}

func setDevice(device string) func(claim *resourceapi.ResourceClaim) {
	return func(claim *resourceapi.ResourceClaim) {
		claim.Status.Allocation.Devices.Results[0].Device = device
	}
}

func enableReservedForWorkloads(t *testing.T, enabled bool) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAReservedForWorkloads, enabled)
}

// TestPrepareResourcesReservedForWorkload covers the decision whether a new pod may
// use a claim.
func TestPrepareResourcesReservedForWorkload(t *testing.T) {
	reservedForJob := notAllowed + ": spec.reservedFor is jobs.batch my-job, but "
	listPod := func(pod *v1.Pod) func(claim *resourceapi.ResourceClaim) {
		return func(claim *resourceapi.ResourceClaim) {
			claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
		}
	}
	defaultPod := genTestPodWithClaims(claimName)
	podWithTemplate := func() *v1.Pod {
		pod := genTestPodWithClaims(claimName)
		pod.Spec.ResourceClaims[0].ResourceClaimName = nil
		pod.Spec.ResourceClaims[0].ResourceClaimTemplateName = ptr.To("template")
		pod.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: claimName, ResourceClaimName: ptr.To(claimName)}}
		return pod
	}()
	notReserved := func(claim *resourceapi.ResourceClaim) { claim.Status.ReservedFor = nil }
	deallocated := func(claim *resourceapi.ResourceClaim) { claim.Status.Allocation = nil }
	notForAnyPod := func(claim *resourceapi.ResourceClaim) { claim.Status.Allocation.ReservedForAnyPod = nil }

	for name, tc := range map[string]struct {
		pod   *v1.Pod
		claim *resourceapi.ResourceClaim
		// Empty means success.
		wantErr, wantErrDisabled string
	}{
		"unlisted": {
			claim:           genWorkloadClaim(),
			wantErrDisabled: reservedForJob + "using that without being listed in status.reservedFor depends on the DRAReservedForWorkloads feature gate, which is disabled on this node",
		},
		"listed": {
			claim: genWorkloadClaim(listPod(defaultPod)),
		},
		"listed-per-pod": {
			claim: genWorkloadClaim(notForAnyPod, notReserved, listPod(defaultPod)),
		},
		"other-pod-listed": {
			claim:           genWorkloadClaim(listPod(podWithTemplate)),
			wantErrDisabled: reservedForJob + "using that without being listed",
		},
		"per-pod": {
			claim:           genWorkloadClaim(notForAnyPod),
			wantErr:         reservedForJob + "the claim was allocated without support for that",
			wantErrDisabled: reservedForJob + "the claim was allocated without support for that",
		},
		"any-pod-false": {
			claim:           genWorkloadClaim(func(claim *resourceapi.ResourceClaim) { claim.Status.Allocation.ReservedForAnyPod = ptr.To(false) }),
			wantErr:         reservedForJob + "the claim was allocated without support for that",
			wantErrDisabled: reservedForJob + "the claim was allocated without support for that",
		},
		"released": {
			claim:           genWorkloadClaim(notReserved),
			wantErr:         reservedForJob + "the claim is currently not reserved for it",
			wantErrDisabled: reservedForJob + "the claim is currently not reserved for it",
		},
		"only-other-pod-listed": {
			claim:           genWorkloadClaim(notReserved, listPod(podWithTemplate)),
			wantErr:         reservedForJob + "the claim is currently not reserved for it",
			wantErrDisabled: reservedForJob + "the claim is currently not reserved for it",
		},
		"deallocated": {
			claim:           genWorkloadClaim(notReserved, deallocated),
			wantErr:         reservedForJob + "the claim is currently not allocated",
			wantErrDisabled: reservedForJob + "the claim is currently not allocated",
		},
		"listed-not-allocated": {
			// Cannot happen because of validation.
			claim:           genWorkloadClaim(deallocated, listPod(defaultPod)),
			wantErr:         notAllocated,
			wantErrDisabled: notAllocated,
		},
		"not-owner": {
			pod:             podWithTemplate,
			claim:           genWorkloadClaim(),
			wantErr:         "was not created for",
			wantErrDisabled: "was not created for",
		},
		"ordinary-claim": {
			claim:           genTestClaim(claimName, driverName, deviceName, "other-pod"),
			wantErr:         notAllowed,
			wantErrDisabled: notAllowed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, enabled := range []bool{true, false} {
				t.Run(fmt.Sprintf("enabled=%v", enabled), func(t *testing.T) {
					enableReservedForWorkloads(t, enabled)
					test := newManagerTest(t)
					test.setClaim(tc.claim)
					pod, wantErr := tc.pod, tc.wantErrDisabled
					if enabled {
						wantErr = tc.wantErr
					}
					if pod == nil {
						pod = defaultPod
					}
					err := test.manager.PrepareResources(test, pod)
					if wantErr == "" {
						require.NoError(t, err)
						assert.Len(t, test.cdiDevices(pod), 1)
						assert.Equal(t, uint32(1), test.driver.prepareResourceCalls.Load(), "prepare calls")
						return
					}
					require.ErrorContains(t, err, wantErr)
					assert.Equal(t, uint32(0), test.driver.prepareResourceCalls.Load(), "prepare calls")
					assert.False(t, test.manager.PodMightNeedToUnprepareResources(pod.UID), "pod known")
				})
			}
		})
	}
}

// TestReservedForWorkloadLifecycle runs several pods with a claim which is
// reserved for their Job.
func TestReservedForWorkloadLifecycle(t *testing.T) {
	enableReservedForWorkloads(t, true)
	test := newManagerTest(t)
	test.setClaim(genWorkloadClaim())
	pods := []*v1.Pod{genTestPodWithClaims(claimName), genTestPodWithClaims(claimName), genTestPodWithClaims(claimName)}
	for _, pod := range pods {
		require.NoError(t, test.manager.PrepareResources(test, pod))
		assert.Len(t, test.cdiDevices(pod), 1)
	}
	assert.Equal(t, uint32(1), test.driver.prepareResourceCalls.Load(), "prepare calls")

	for i, pod := range pods {
		assert.Equal(t, uint32(0), test.driver.unprepareResourceCalls.Load(), "unprepare calls while %d pods are running", len(pods)-i)
		require.NoError(t, test.manager.UnprepareResources(test, pod))
	}
	assert.Equal(t, uint32(1), test.driver.unprepareResourceCalls.Load(), "unprepare calls")
	assert.False(t, test.manager.cache.contains(claimName, namespace), "claim still known")
}

// TestReservedForWorkloadRestart covers restarting the kubelet with and without
// the feature while a pod is running.
func TestReservedForWorkloadRestart(t *testing.T) {
	for _, enabled := range []bool{true, false} {
		t.Run(fmt.Sprintf("enabled=%v", enabled), func(t *testing.T) {
			enableReservedForWorkloads(t, true)
			test := newManagerTest(t)
			claim := genWorkloadClaim()
			test.setClaim(claim)
			running := genTestPodWithClaims(claimName)
			require.NoError(t, test.manager.PrepareResources(test, running))

			enableReservedForWorkloads(t, enabled)
			test.start()

			// Restarting a container.
			assert.Len(t, test.cdiDevices(running), 1)

			// A new pod. If it is refused, then it must not become a user.
			started := genTestPodWithClaims(claimName)
			err := test.manager.PrepareResources(test, started)
			if enabled {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, string(features.DRAReservedForWorkloads))
			}
			assert.Equal(t, enabled, test.manager.PodMightNeedToUnprepareResources(started.UID), "new pod known")

			// A new sandbox for the running pod, for example after a reboot.
			require.NoError(t, test.manager.PrepareResources(test, running))
			assert.Equal(t, uint32(1), test.driver.prepareResourceCalls.Load(), "prepare calls")

			// Only when the claim is still the same one and is still
			// reserved.
			if !enabled {
				released := genWorkloadClaim()
				released.Status.ReservedFor = nil
				test.setClaim(released)
				require.ErrorContains(t, test.manager.PrepareResources(test, running), "not reserved for it")
				replaced := genWorkloadClaim()
				replaced.UID = "another-uid"
				test.setClaim(replaced)
				require.ErrorContains(t, test.manager.PrepareResources(test, running), string(features.DRAReservedForWorkloads))
			}

			// Stopping does not depend on the claim.
			require.NoError(t, test.manager.UnprepareResources(test, running))
			require.NoError(t, test.manager.UnprepareResources(test, started))
			assert.Equal(t, uint32(1), test.driver.unprepareResourceCalls.Load(), "unprepare calls")
			assert.False(t, test.manager.cache.contains(claimName, namespace), "claim still known")
		})
	}
}

// reallocatedTest is for one way of how a claim can get allocated again.
type reallocatedTest struct {
	disabled     bool
	restart      bool
	claim        *resourceapi.ResourceClaim
	newClaim     *resourceapi.ResourceClaim
	wantConflict bool
}

func (tc reallocatedTest) run(t *testing.T) {
	enableReservedForWorkloads(t, !tc.disabled)
	test := newManagerTest(t)
	first, second := genTestPodWithClaims(claimName), genTestPodWithClaims(claimName)
	for _, claim := range []*resourceapi.ResourceClaim{tc.claim, tc.newClaim} {
		for _, pod := range []*v1.Pod{first, second} {
			claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
		}
	}
	test.setClaim(tc.claim)
	require.NoError(t, test.manager.PrepareResources(test, first))

	if tc.restart {
		test.start()
	}
	test.setClaim(tc.newClaim)
	err := test.manager.PrepareResources(test, second)
	if !tc.wantConflict {
		require.NoError(t, err)
		return
	}
	require.ErrorContains(t, err, "was allocated again while its previous devices are still in use on the node")
	assert.False(t, test.manager.PodMightNeedToUnprepareResources(second.UID), "new pod known")

	// Works once the other pod is gone.
	require.NoError(t, test.manager.UnprepareResources(test, first))
	calls := test.driver.prepareResourceCalls.Load()
	require.NoError(t, test.manager.PrepareResources(test, second))
	assert.Equal(t, calls+1, test.driver.prepareResourceCalls.Load(), "prepare calls")
}

// TestReservedForWorkloadReallocated covers a claim which gets deallocated
// and allocated again with some other device while a pod still uses the old one.
func TestReservedForWorkloadReallocated(t *testing.T) {
	for name, tc := range map[string]reallocatedTest{
		"other-device": {
			claim:        genWorkloadClaim(),
			newClaim:     genWorkloadClaim(setDevice("other-device")),
			wantConflict: true,
		},
		"other-device-after-restart": {
			restart:      true,
			claim:        genWorkloadClaim(),
			newClaim:     genWorkloadClaim(setDevice("other-device")),
			wantConflict: true,
		},
		"additional-device": {
			claim: genWorkloadClaim(),
			newClaim: genWorkloadClaim(func(claim *resourceapi.ResourceClaim) {
				results := &claim.Status.Allocation.Devices.Results
				*results = append(*results, (*results)[0])
				(*results)[1].Device = "other-device"
			}),
			wantConflict: true,
		},
		"fewer-drivers-after-restart": {
			// Without the check, the kubelet would crash: it would try to
			// prepare the claim with a driver which is only known for
			// the old allocation.
			restart: true,
			claim: genWorkloadClaim(func(claim *resourceapi.ResourceClaim) {
				results := &claim.Status.Allocation.Devices.Results
				*results = append(*results, (*results)[0])
				(*results)[1].Driver = otherDriverName
			}),
			newClaim:     genWorkloadClaim(),
			wantConflict: true,
		},
		"same-device": {
			claim: genWorkloadClaim(),
			newClaim: genWorkloadClaim(func(claim *resourceapi.ResourceClaim) {
				// This does not matter.
				claim.Status.Allocation.Devices.Config = []resourceapi.DeviceAllocationConfiguration{{Source: resourceapi.AllocationConfigSourceClass}}
			}),
		},
		"disabled": {
			// As before. The claim is listing pods.
			disabled: true,
			claim:    genTestClaim(claimName, driverName, deviceName, ""),
			newClaim: genTestClaim(claimName, driverName, "other-device", ""),
		},
		"ordinary-claim": {
			claim:    genTestClaim(claimName, driverName, deviceName, ""),
			newClaim: genTestClaim(claimName, driverName, "other-device", ""),
		},
	} {
		t.Run(name, tc.run)
	}

	t.Run("enabled-later", func(t *testing.T) {
		// Existing information is adopted.
		enableReservedForWorkloads(t, false)
		test := newManagerTest(t)
		first, second, third := genTestPodWithClaims(claimName), genTestPodWithClaims(claimName), genTestPodWithClaims(claimName)
		claim := genWorkloadClaim()
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: first.Name, UID: first.UID})
		test.setClaim(claim)
		require.NoError(t, test.manager.PrepareResources(test, first))
		info, _ := test.manager.cache.get(claimName, namespace)
		assert.Empty(t, info.AllocatedDevices, "allocated devices while disabled")

		enableReservedForWorkloads(t, true)
		test.start()
		require.NoError(t, test.manager.PrepareResources(test, second))
		test.setClaim(genWorkloadClaim(setDevice("other-device")))
		require.ErrorContains(t, test.manager.PrepareResources(test, third), "was allocated again")
	})
}
