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
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/ptr"
)

func TestSharedClaims(t *testing.T) {
	// All pods which are waiting for the same claim are handled together.
	syncTest(t, "many-pods", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newSharedClaim()})
		const numPods = 100
		var cycles []*podCycle
		var names []string
		for i := range numPods {
			pod := newSharingPod(fmt.Sprintf("pod-%03d", i))
			names = append(names, pod.Name)
			cycles = append(cycles, tc.schedule(pod))
		}
		require.Len(tCtx, tc.listInFlightClaims(), 1)

		requireAllBound(tCtx, tc.bindAll(cycles))
		assert.Equal(tCtx, []string{"update", "update/status", "patch/status"}, tc.api.takeWrites())
		assert.Equal(tCtx, names, tc.reservedFor())
		claim := tc.claim()
		assert.Contains(tCtx, claim.Finalizers, resourceapi.Finalizer)
		checkAllocationTimestamp(tCtx, claim, true)
		assert.Empty(tCtx, tc.listInFlightClaims())
		synctest.Wait()
		assert.Zero(tCtx, tc.p.claimReserver.numClaims())

		// One more, with the claim in the assume cache.
		requireAllBound(tCtx, []*fwk.Status{tc.schedule(newSharingPod("one-more")).bind(tCtx)})
		assert.Equal(tCtx, []string{"patch/status"}, tc.api.takeWrites())
		assert.Contains(tCtx, tc.reservedFor(), "one-more")

		// Removing a pod only affects the pod.
		cycles[7].unreserve()
		assert.NotContains(tCtx, tc.reservedFor(), names[7])
		assert.Len(tCtx, tc.reservedFor(), numPods)
	})

	// Pods may only go where the device is which is about to be allocated.
	syncTest(t, "pending-topology", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newSharedClaim()})
		cycle, status := tc.preFilter(newSharingPod("pod-1"))
		require.Nil(tCtx, status)
		assert.Equal(tCtx, []string{nodeName, node2Name}, cycle.filter())
		require.Nil(tCtx, tc.p.Reserve(tCtx, cycle.state, cycle.pod, nodeName))

		cycle, status = tc.preFilter(newSharingPod("pod-2"))
		require.Nil(tCtx, status)
		assert.Equal(tCtx, []string{nodeName}, cycle.filter())

		// Nothing is stored which could be deallocated.
		_, status = tc.p.PostFilter(tCtx, cycle.state, cycle.pod, nil)
		assert.Equal(tCtx, fwk.Unschedulable, status.Code())
		assert.Empty(tCtx, tc.api.takeWrites())
	})

	// Others finish what the first pod started.
	syncTest(t, "first-pod-fails", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newSharedClaim()})
		first := tc.schedule(newSharingPod("pod-1"))
		second := tc.schedule(newSharingPod("pod-2"))
		third := tc.schedule(newSharingPod("pod-3"))

		tc.api.before = func(string, *resourceapi.ResourceClaim) error { return errors.New("fake API failure") }
		status := first.bind(tCtx)
		require.ErrorContains(tCtx, status.AsError(), "fake API failure")
		tc.api.before = nil
		// The devices must not be given to some other claim.
		require.Len(tCtx, tc.listInFlightClaims(), 1)
		first.unreserve() // Extra calls don't matter.
		require.Len(tCtx, tc.listInFlightClaims(), 1)

		third.unreserve()
		require.Len(tCtx, tc.listInFlightClaims(), 1)
		require.Nil(tCtx, second.bind(tCtx))
		assert.Equal(tCtx, []string{"pod-2"}, tc.reservedFor())
		assert.Empty(tCtx, tc.listInFlightClaims())

		// The failed one gets a second chance.
		require.Nil(tCtx, tc.schedule(newSharingPod("pod-1")).bind(tCtx))
		assert.Equal(tCtx, []string{"pod-1", "pod-2"}, tc.reservedFor())
	})

	syncTest(t, "first-pod-fails-after-storing", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newSharedClaim()})
		first := tc.schedule(newSharingPod("pod-1"))
		second := tc.schedule(newSharingPod("pod-2"))
		require.Nil(tCtx, first.bind(tCtx))
		first.unreserve()
		require.Nil(tCtx, second.bind(tCtx))
		assert.Equal(tCtx, []string{"pod-2"}, tc.reservedFor())
	})

	syncTest(t, "all-pods-fail", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newSharedClaim()})
		cycles := []*podCycle{tc.schedule(newSharingPod("pod-1")), tc.schedule(newSharingPod("pod-2"))}
		for _, cycle := range cycles {
			require.Len(tCtx, tc.listInFlightClaims(), 1)
			cycle.unreserve()
		}
		require.Empty(tCtx, tc.listInFlightClaims())
		assert.Empty(tCtx, tc.api.takeWrites())

		// Late cleanup of some other pod must not affect a new allocation.
		third := tc.schedule(newSharingPod("pod-3"))
		cycles[1].unreserve()
		require.Len(tCtx, tc.listInFlightClaims(), 1)
		require.Nil(tCtx, third.bind(tCtx))
	})

	// The claim gets used for something else while a pod is still being bound.
	syncTest(t, "late-unreserve", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newSharedClaim()})
		first := tc.schedule(newSharingPod("pod-1"))
		second := tc.schedule(newSharingPod("pod-2"))
		require.Nil(tCtx, first.bind(tCtx))
		require.Empty(tCtx, tc.listInFlightClaims())
		tc.change(func(claim *resourceapi.ResourceClaim) { claim.Status = resourceapi.ResourceClaimStatus{} })
		third := tc.schedule(newSharingPod("pod-3"))
		second.unreserve()
		require.Len(tCtx, tc.listInFlightClaims(), 1)
		require.Nil(tCtx, third.bind(tCtx))
		assert.Equal(tCtx, []string{"pod-3"}, tc.reservedFor())
	})

	// This is what happens for pods in a group: all of them get reserved and unreserved,
	// then reserved again before they get bound.
	syncTest(t, "reserve-again", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newSharedClaim()})
		cycles := []*podCycle{tc.schedule(newSharingPod("pod-1")), tc.schedule(newSharingPod("pod-2"))}
		for _, cycle := range slices.Backward(cycles) {
			cycle.unreserve()
		}
		require.Empty(tCtx, tc.listInFlightClaims())
		for _, cycle := range cycles {
			require.Nil(tCtx, tc.p.Reserve(tCtx, cycle.state, cycle.pod, nodeName))
			require.Len(tCtx, tc.listInFlightClaims(), 1)
		}
		requireAllBound(tCtx, tc.bindAll(cycles))
		assert.Equal(tCtx, []string{"pod-1", "pod-2"}, tc.reservedFor())
		assert.Empty(tCtx, tc.listInFlightClaims())
	})

	syncTest(t, "stored-between-prefilter-and-reserve", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newSharedClaim()})
		first := tc.schedule(newSharingPod("pod-1"))
		second, status := tc.preFilter(newSharingPod("pod-2"))
		require.Nil(tCtx, status)
		require.Equal(tCtx, []string{nodeName}, second.filter())
		require.Nil(tCtx, first.bind(tCtx))
		require.Nil(tCtx, tc.p.Reserve(tCtx, second.state, second.pod, nodeName))
		assert.Empty(tCtx, tc.listInFlightClaims())
		require.Nil(tCtx, second.bind(tCtx))
		assert.Equal(tCtx, []string{"pod-1", "pod-2"}, tc.reservedFor())
	})

	// A claim for one pod is handled as before.
	syncTest(t, "claim-of-a-pod", func(tCtx ktesting.TContext) {
		claim := st.FromResourceClaim(newSharedClaim()).OwnerReference("pod-1", "pod-1", podKind).Obj()
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{claim})
		first := tc.schedule(newSharingPod("pod-1"))
		_, status := tc.preFilter(newSharingPod("pod-2"))
		assert.Equal(tCtx, fwk.UnschedulableAndUnresolvable, status.Code())
		assert.Contains(tCtx, status.Message(), "in the process of being allocated")
		require.Nil(tCtx, first.bind(tCtx))
		assert.Equal(tCtx, []string{"update", "update/status"}, tc.api.takeWrites())
	})

	syncTest(t, "canceled", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newSharedClaim()})
		first, second, third := tc.schedule(newSharingPod("pod-1")), tc.schedule(newSharingPod("pod-2")), tc.schedule(newSharingPod("pod-3"))
		release := make(chan struct{})
		var once sync.Once
		tc.api.before = func(string, *resourceapi.ResourceClaim) error {
			once.Do(func() { <-release })
			return nil
		}
		cause := errors.New("pod got preempted")
		ctx, cancel := context.WithCancelCause(tCtx)
		var wg sync.WaitGroup
		var statuses [3]*fwk.Status
		for i, cycle := range []*podCycle{first, second, third} {
			podCtx := ctx
			if i == 2 {
				podCtx = tCtx
			}
			wg.Go(func() { statuses[i] = cycle.p.PreBind(podCtx, cycle.state, cycle.pod, nodeName) })
			synctest.Wait()
		}
		cancel(cause)
		synctest.Wait()
		// The second one was still waiting. The first one needs to know
		// what needs to be undone.
		require.ErrorIs(tCtx, statuses[1].AsError(), cause)
		close(release)
		wg.Wait()
		require.Nil(tCtx, statuses[0])
		require.Nil(tCtx, statuses[2])
		second.unreserve()
		assert.Equal(tCtx, []string{"pod-1", "pod-3"}, tc.reservedFor())
		first.unreserve()
		assert.Equal(tCtx, []string{"pod-3"}, tc.reservedFor())
	})
}

// TestSharedClaimsChanged covers changes of the claim between scheduling and binding.
func TestSharedClaimsChanged(t *testing.T) {
	otherAllocation := allocationResult.DeepCopy()
	otherAllocation.Devices.Results[0].Device = "some-other-device"
	now := metav1.Now()

	testcases := map[string]struct {
		claim *resourceapi.ResourceClaim
		// change gets applied immediately before the first write.
		change      func(claim *resourceapi.ResourceClaim)
		expectErr   string
		expectRefs  []string
		expectWrite []string
	}{
		"pending-labels": {
			claim:       newSharedClaim(),
			change:      func(claim *resourceapi.ResourceClaim) { claim.Labels = map[string]string{"a": "b"} },
			expectRefs:  []string{"pod-1"},
			expectWrite: []string{"update", "update", "update/status"},
		},
		"pending-allocated-elsewhere": {
			claim: newSharedClaim(),
			change: func(claim *resourceapi.ResourceClaim) {
				claim.Status.Allocation = otherAllocation
				claim.Status.ReservedFor = podReferences(1)
			},
			expectErr:   "got allocated elsewhere",
			expectRefs:  []string{"other-pod-0"},
			expectWrite: []string{"update"},
		},
		"pending-deleted": {
			claim: newSharedClaim(),
			change: func(claim *resourceapi.ResourceClaim) {
				claim.DeletionTimestamp = &now
				claim.Finalizers = append(claim.Finalizers, "example.com/wait")
			},
			expectErr:   "got deleted",
			expectRefs:  []string{},
			expectWrite: []string{"update"},
		},
		"pending-replaced": {
			claim:       newSharedClaim(),
			change:      func(claim *resourceapi.ResourceClaim) { claim.UID = "some-other-uid" },
			expectErr:   "got replaced",
			expectRefs:  []string{},
			expectWrite: []string{"update"},
		},
		"allocated-labels": {
			claim:       newAllocatedSharedClaim(podReferences(2)...),
			change:      func(claim *resourceapi.ResourceClaim) { claim.Labels = map[string]string{"a": "b"} },
			expectRefs:  []string{"other-pod-0", "other-pod-1", "pod-1"},
			expectWrite: []string{"patch/status"},
		},
		"allocated-other-pod": {
			claim:       newAllocatedSharedClaim(),
			change:      func(claim *resourceapi.ResourceClaim) { claim.Status.ReservedFor = podReferences(2) },
			expectRefs:  []string{"other-pod-0", "other-pod-1", "pod-1"},
			expectWrite: []string{"patch/status"},
		},
		"allocated-already-listed": {
			claim: newAllocatedSharedClaim(),
			change: func(claim *resourceapi.ResourceClaim) {
				claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "pod-1", UID: "pod-1"}}
			},
			expectRefs:  []string{"pod-1"},
			expectWrite: []string{"patch/status"},
		},
		"allocated-differently": {
			claim: newAllocatedSharedClaim(podReferences(1)...),
			change: func(claim *resourceapi.ResourceClaim) {
				claim.Status.Allocation = otherAllocation
			},
			expectErr:  "got allocated elsewhere",
			expectRefs: []string{"other-pod-0"},
			// The pod gets removed again.
			expectWrite: []string{"patch/status", "patch/status"},
		},
		"allocated-deallocated": {
			claim: newAllocatedSharedClaim(podReferences(1)...),
			change: func(claim *resourceapi.ResourceClaim) {
				claim.Status = resourceapi.ResourceClaimStatus{}
			},
			expectErr:   "got deallocated",
			expectRefs:  []string{},
			expectWrite: []string{"patch/status"},
		},
		"allocated-deleted": {
			claim:       newAllocatedSharedClaim(podReferences(1)...),
			change:      func(claim *resourceapi.ResourceClaim) { claim.DeletionTimestamp = &now },
			expectErr:   "got deleted",
			expectRefs:  []string{"other-pod-0"},
			expectWrite: []string{"patch/status"},
		},
		"allocated-replaced": {
			claim:       newAllocatedSharedClaim(podReferences(1)...),
			change:      func(claim *resourceapi.ResourceClaim) { claim.UID = "some-other-uid" },
			expectErr:   "got replaced",
			expectRefs:  []string{"other-pod-0"},
			expectWrite: []string{"patch/status"},
		},
		"allocated-full": {
			claim: newAllocatedSharedClaim(),
			change: func(claim *resourceapi.ResourceClaim) {
				claim.Status.ReservedFor = podReferences(resourceapi.ResourceClaimReservedForMaxSize)
			},
			expectErr:   "spec.reservedFor",
			expectWrite: []string{"patch/status"},
		},
	}
	for name, tc := range testcases {
		syncTest(t, name, func(tCtx ktesting.TContext) {
			test := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{tc.claim})
			cycle := test.schedule(newSharingPod("pod-1"))
			var once sync.Once
			test.api.before = func(_ string, claim *resourceapi.ResourceClaim) error {
				once.Do(func() { tc.change(claim) })
				return nil
			}
			status := cycle.bind(tCtx)
			if tc.expectErr == "" {
				require.Nil(tCtx, status)
			} else {
				require.ErrorContains(tCtx, status.AsError(), tc.expectErr)
			}
			if tc.expectRefs != nil {
				assert.Equal(tCtx, tc.expectRefs, test.reservedFor())
			}
			assert.Equal(tCtx, tc.expectWrite, test.api.takeWrites())
			assert.Empty(tCtx, test.listInFlightClaims())

			// Nothing wrong in the cache.
			synctest.Wait()
			cached, err := test.draManager.ResourceClaims().Get(namespace, sharedClaimName)
			tCtx.ExpectNoError(err)
			assert.Equal(tCtx, test.claim().ResourceVersion, cached.ResourceVersion)
		})
	}
}

func TestSharedClaimsRejected(t *testing.T) {
	// Something that the plugin doesn't know about: don't keep trying.
	syncTest(t, "", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newAllocatedSharedClaim()})
		cycle := tc.schedule(newSharingPod("pod-1"))
		tc.api.before = func(string, *resourceapi.ResourceClaim) error {
			return apierrors.NewInvalid(resourceapi.SchemeGroupVersion.WithKind("ResourceClaim").GroupKind(), sharedClaimName, field.ErrorList{field.Forbidden(field.NewPath("status"), "by policy")})
		}
		require.ErrorContains(tCtx, cycle.bind(tCtx).AsError(), "by policy")
		assert.Equal(tCtx, []string{"patch/status"}, tc.api.takeWrites())
	})

	// Conflicts without end.
	syncTest(t, "conflicts", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newSharedClaim()})
		cycle := tc.schedule(newSharingPod("pod-1"))
		counter := 0
		tc.api.before = func(_ string, claim *resourceapi.ResourceClaim) error {
			counter++
			claim.Labels = map[string]string{"counter": fmt.Sprintf("%d", counter)}
			return nil
		}
		require.ErrorContains(tCtx, cycle.bind(tCtx).AsError(), "giving up")
		assert.Len(tCtx, tc.api.takeWrites(), maxClaimWriteAttempts)
		assert.Empty(tCtx, tc.listInFlightClaims())
	})
}

func TestFullClaim(t *testing.T) {
	const maxSize = resourceapi.ResourceClaimReservedForMaxSize

	syncTest(t, "prefilter", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newAllocatedSharedClaim(podReferences(maxSize)...)})
		_, status := tc.preFilter(newSharingPod("pod-1"))
		assert.Equal(tCtx, fwk.UnschedulableAndUnresolvable, status.Code())
		assert.Contains(tCtx, status.Message(), "resourceclaim in use")
		assert.Contains(tCtx, status.Message(), "256")
		assert.Contains(tCtx, status.Message(), "spec.reservedFor")
		assert.Empty(tCtx, tc.api.takeWrites())

		// One which is listed already is not affected.
		require.Nil(tCtx, tc.schedule(newSharingPod("other-pod-3")).bind(tCtx))
	})

	// Some other scheduler takes places for which pods are on their way already.
	syncTest(t, "prebind", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newAllocatedSharedClaim(podReferences(maxSize - 5)...)})
		var cycles []*podCycle
		for i := range 5 {
			cycles = append(cycles, tc.schedule(newSharingPod(fmt.Sprintf("pod-%d", i))))
		}
		tc.change(func(claim *resourceapi.ResourceClaim) { claim.Status.ReservedFor = podReferences(maxSize - 3) })
		statuses := tc.bindAll(cycles)
		requireAllBound(tCtx, statuses[0:3])
		for _, status := range statuses[3:] {
			assert.Equal(tCtx, fwk.UnschedulableAndUnresolvable, status.Code())
			assert.Contains(tCtx, status.Message(), "spec.reservedFor")
		}
		assert.Equal(tCtx, []string{"patch/status", "patch/status"}, tc.api.takeWrites())
		assert.Len(tCtx, tc.reservedFor(), maxSize)
	})

	syncTest(t, "queueing-hint", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newAllocatedSharedClaim(podReferences(maxSize)...)})
		pod := newSharingPod("pod-1")
		full := tc.claim()
		hint := func(cb func(claim *resourceapi.ResourceClaim)) fwk.QueueingHint {
			tCtx.Helper()
			claim := full.DeepCopy()
			cb(claim)
			hint, err := tc.p.isSchedulableAfterClaimChange(tCtx.Logger(), pod, full, claim)
			tCtx.ExpectNoError(err)
			return hint
		}
		assert.Equal(tCtx, fwk.QueueSkip, hint(func(claim *resourceapi.ResourceClaim) {
			claim.Status.Devices = []resourceapi.AllocatedDeviceStatus{{Driver: driver, Pool: nodeName, Device: "instance-1"}}
		}), "still full")
		assert.Equal(tCtx, fwk.QueueSkip, hint(func(claim *resourceapi.ResourceClaim) {
			claim.Status.ReservedFor[0].UID = "yet-another-pod"
		}), "still full with some other pod")
		assert.Equal(tCtx, fwk.Queue, hint(func(claim *resourceapi.ResourceClaim) {
			claim.Status.ReservedFor = claim.Status.ReservedFor[1:]
		}), "room for one pod")
		assert.Equal(tCtx, fwk.Queue, hint(func(claim *resourceapi.ResourceClaim) {
			claim.Status.ReservedFor[0].UID = pod.UID
		}), "room for this pod")
		assert.Equal(tCtx, fwk.Queue, hint(func(claim *resourceapi.ResourceClaim) {
			claim.Status = resourceapi.ResourceClaimStatus{}
		}), "deallocated")
	})
}

// pluginTestGates are the values of the feature gates in testPlugin.
var pluginTestGates feature.Carried

// TestPluginSharedClaims runs upstream's test of the plugin with the feature gate on. Everywhere
// else that test runs with the gate off.
func TestPluginSharedClaims(t *testing.T) {
	pluginTestGates.EnableDRASharedClaims = true
	defer func() { pluginTestGates.EnableDRASharedClaims = false }()
	// In a sub-test because that ends when everything that runs in parallel has ended.
	t.Run("plugin", TestPlugin)
}

// TestSharedClaimsWrites counts the writes for pods which share a claim. All of them were
// scheduled when the first one gets bound.
func TestSharedClaimsWrites(t *testing.T) {
	const numPods = 50
	repeat := func(num int, write string) []string {
		var writes []string
		for range num {
			writes = append(writes, write)
		}
		return writes
	}

	// One for the first pod, one for all others which are waiting then.
	syncTest(t, "enabled", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newAllocatedSharedClaim()})
		requireAllBound(tCtx, tc.bindAll(tc.scheduleAll(numPods)))
		assert.Equal(tCtx, repeat(2, "patch/status"), tc.api.takeWrites())
		assert.Len(tCtx, tc.reservedFor(), numPods)
	})

	// Without waiting for each other, one for each.
	syncTest(t, "enabled-one-by-one", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newAllocatedSharedClaim()})
		for _, cycle := range tc.scheduleAll(numPods) {
			require.Nil(tCtx, cycle.bind(tCtx))
		}
		assert.Equal(tCtx, repeat(numPods, "patch/status"), tc.api.takeWrites())
		assert.Len(tCtx, tc.reservedFor(), numPods)
	})

	// As upstream: each pod updates the claim that it was scheduled with, and
	// all but the first one do so again after a conflict.
	syncTest(t, "disabled", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, withoutSharedClaims(), []*resourceapi.ResourceClaim{newAllocatedSharedClaim()})
		for _, cycle := range tc.scheduleAll(numPods) {
			require.Nil(tCtx, cycle.bind(tCtx))
		}
		assert.Equal(tCtx, repeat(2*numPods-1, "update/status"), tc.api.takeWrites())
		assert.Len(tCtx, tc.reservedFor(), numPods)
		assert.Zero(tCtx, tc.p.claimReserver.numClaims())
	})
}

// TestSharedClaimsDisabled covers that the plugin does what it does upstream, in particular
// where it does something else when the feature is enabled.
func TestSharedClaimsDisabled(t *testing.T) {
	// A pod waits until the allocation is stored.
	syncTest(t, "pending", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, withoutSharedClaims(), []*resourceapi.ResourceClaim{newSharedClaim()})
		first := tc.schedule(newSharingPod("pod-1"))
		require.Len(tCtx, tc.listInFlightClaims(), 1)
		_, status := tc.preFilter(newSharingPod("pod-2"))
		require.Equal(tCtx, fwk.UnschedulableAndUnresolvable, status.Code())
		assert.Contains(tCtx, status.Message(), "in the process of being allocated")
		require.Nil(tCtx, first.bind(tCtx))
		assert.Equal(tCtx, []string{"update", "update/status"}, tc.api.takeWrites())
		assert.Empty(tCtx, tc.listInFlightClaims())

		synctest.Wait()
		require.Nil(tCtx, tc.schedule(newSharingPod("pod-2")).bind(tCtx))
		assert.Equal(tCtx, []string{"update/status"}, tc.api.takeWrites())
		assert.Equal(tCtx, []string{"pod-1", "pod-2"}, tc.reservedFor())
	})

	// Nothing remains in flight when a pod gives up.
	syncTest(t, "unreserve", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, withoutSharedClaims(), []*resourceapi.ResourceClaim{newSharedClaim()})
		cycle := tc.schedule(newSharingPod("pod-1"))
		require.Len(tCtx, tc.listInFlightClaims(), 1)
		cycle.unreserve()
		assert.Empty(tCtx, tc.listInFlightClaims())
		assert.Empty(tCtx, tc.api.takeWrites())
	})

	// Also if it is not known whether the allocation was stored.
	syncTest(t, "uncertain", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, withoutSharedClaims(), []*resourceapi.ResourceClaim{newSharedClaim()})
		cycle := tc.schedule(newSharingPod("pod-1"))
		tc.api.before = func(write string, _ *resourceapi.ResourceClaim) error {
			return onlyStatus(write, errors.New("connection lost"))
		}
		require.ErrorContains(tCtx, cycle.bind(tCtx).AsError(), "connection lost")
		assert.Empty(tCtx, tc.listInFlightClaims())
		tc.api.before = nil
		require.Nil(tCtx, tc.schedule(newSharingPod("pod-1")).bind(tCtx))
	})

	syncTest(t, "full", func(tCtx ktesting.TContext) {
		claim := newAllocatedSharedClaim(podReferences(resourceapi.ResourceClaimReservedForMaxSize)...)
		tc := newSharedClaimsTest(tCtx, withoutSharedClaims(), []*resourceapi.ResourceClaim{claim})
		pod := newSharingPod("pod-1")
		_, status := tc.preFilter(pod)
		require.Equal(tCtx, fwk.UnschedulableAndUnresolvable, status.Code())
		assert.Equal(tCtx, "resourceclaim in use", status.Message())
		stored := tc.claim()
		changed := stored.DeepCopy()
		changed.Status.ReservedFor[0].UID = "yet-another-pod"
		hint, err := tc.p.isSchedulableAfterClaimChange(tCtx.Logger(), pod, stored, changed)
		tCtx.ExpectNoError(err)
		assert.Equal(tCtx, fwk.Queue, hint)
	})
}

// hintAfter returns whether a pod tries again after another one failed.
func (t *sharedClaimsTest) hintAfter(failed, pod *v1.Pod) fwk.QueueingHint {
	t.tCtx.Helper()
	hint, err := t.p.isSchedulableAfterWithdrawal(t.tCtx.Logger(), pod, failed, nil)
	t.tCtx.ExpectNoError(err)
	return hint
}

// TestFullOfSharers covers more pods than a claim has room for, none of which is in its list yet. All
// pods of a gang get through Reserve before the first one is bound: then some of
// them would be bound, and the others never.
func TestFullOfSharers(t *testing.T) {
	const free = 3
	schedule := func(tc *sharedClaimsTest) (cycles []*podCycle) {
		for i := range free {
			cycles = append(cycles, tc.schedule(newSharingPod(fmt.Sprintf("pod-%d", i))))
		}
		return cycles
	}
	allocated := func() []*resourceapi.ResourceClaim {
		return []*resourceapi.ResourceClaim{newAllocatedSharedClaim(podReferences(resourceapi.ResourceClaimReservedForMaxSize - free)...)}
	}
	waiting := newSharingPod("waiting")

	syncTest(t, "bound", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), allocated())
		cycles := schedule(tc)
		_, status := tc.preFilter(waiting)
		require.Equal(tCtx, fwk.UnschedulableAndUnresolvable, status.Code())
		assert.Contains(tCtx, status.Message(), "already reserved for 256 consumers or about to be")
		// Once more, as pods of a group are.
		require.Nil(tCtx, tc.p.Reserve(tCtx, cycles[0].state, cycles[0].pod, nodeName))
		requireAllBound(tCtx, tc.bindAll(cycles))
		assert.Len(tCtx, tc.claim().Status.ReservedFor, resourceapi.ResourceClaimReservedForMaxSize)
		assert.Empty(tCtx, tc.p.claimReserver.inFlight.sharers)
		assert.Equal(tCtx, fwk.QueueSkip, tc.hintAfter(cycles[0].pod, waiting), "a pod that was bound gave nothing back")
	})

	syncTest(t, "unreserved", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), allocated())
		cycles := schedule(tc)
		_, status := tc.preFilter(waiting)
		require.False(tCtx, status.IsSuccess())
		cycles[1].unreserve()
		assert.Equal(tCtx, fwk.Queue, tc.hintAfter(cycles[1].pod, waiting))
		require.Nil(tCtx, tc.schedule(waiting).bind(tCtx))
		cycles[1].unreserve()
		requireAllBound(tCtx, tc.bindAll([]*podCycle{cycles[0], cycles[2]}))
		assert.Empty(tCtx, tc.p.claimReserver.inFlight.sharers)
	})

	syncTest(t, "gate-off", func(tCtx ktesting.TContext) {
		feats := sharedClaimsFeatures()
		feats.EnableDRASharedClaims = false
		tc := newSharedClaimsTest(tCtx, feats, allocated())
		schedule(tc)
		_, status := tc.preFilter(waiting)
		assert.True(tCtx, status.IsSuccess())
	})
}

// TestWithdrawnDevice covers a pod that waits for a device which was allocated to another pod, but never
// stored: no claim changes when that fails.
func TestWithdrawnDevice(t *testing.T) {
	for name, claim := range map[string]*resourceapi.ResourceClaim{"shared": newSharedClaim(), "of-one-pod": pendingClaim} {
		syncTest(t, name, func(tCtx ktesting.TContext) {
			tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{claim})
			pod := newSharingPod("pod-1")
			if claim == pendingClaim {
				pod = podWithClaimName
			}
			waiting := newSharingPod("waiting")
			cycle := tc.schedule(pod)
			assert.Equal(tCtx, fwk.QueueSkip, tc.hintAfter(pod, waiting))
			tc.api.before = func(string, *resourceapi.ResourceClaim) error { return errors.New("fake API failure") }
			require.NotNil(tCtx, cycle.bind(tCtx))
			cycle.unreserve()
			require.Empty(tCtx, tc.listInFlightClaims())
			assert.Equal(tCtx, fwk.Queue, tc.hintAfter(pod, waiting))
			assert.Equal(tCtx, fwk.QueueSkip, tc.hintAfter(waiting, pod), "some other pod")
			for name, change := range map[string]func(other *v1.Pod){
				"claims":             func(other *v1.Pod) {},
				"extended-resources": func(other *v1.Pod) { requestOnly(other, "example.com/gpu") },
			} {
				other := newSharingPod("other")
				other.Spec.SchedulerName = "other-profile"
				change(other)
				assert.Equal(tCtx, fwk.Queue, tc.hintAfter(other, waiting), "only another plugin knows what it had: %s", name)
			}
			other := newSharingPod("other")
			other.Spec.SchedulerName = "other-profile"
			requestOnly(other, v1.ResourceCPU)
			assert.Equal(tCtx, fwk.QueueSkip, tc.hintAfter(other, waiting), "no devices")

			events, err := tc.p.EventsToRegister(tCtx)
			require.NoError(tCtx, err)
			assert.True(tCtx, slices.ContainsFunc(events, func(event fwk.ClusterEventWithHint) bool {
				return event.Event == fwk.ClusterEvent{Resource: withdrawnPod, ActionType: fwk.Delete} && event.QueueingHintFn != nil
			}), "the event is registered")

			tc.api.before = nil
			require.Nil(tCtx, tc.schedule(pod).bind(tCtx))
		})
	}
}

// requestOnly replaces the pod's claims by a resource.
func requestOnly(pod *v1.Pod, name v1.ResourceName) {
	pod.Spec.ResourceClaims = nil
	pod.Spec.Containers = []v1.Container{{Name: "container", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{name: resource.MustParse("1")}}}}
}

// TestWithdrawnIsForgotten ensures that pods which failed do not take memory for ever.
func TestWithdrawnIsForgotten(t *testing.T) {
	var f inFlight
	now := time.Now()
	for i := range 1000 {
		f.withdraw(types.UID(fmt.Sprint(i)), now)
	}
	f.withdraw("last", now.Add(withdrawnTTL+time.Second))
	assert.Len(t, f.withdrawn, 1)
}

// TestSharedClaimTwice covers a pod which has two names for the same claim.
func TestSharedClaimTwice(t *testing.T) {
	newPod := func(name string) *v1.Pod {
		pod := newSharingPod(name)
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, v1.PodResourceClaim{Name: "again", ResourceClaimName: ptr.To(sharedClaimName)})
		return pod
	}
	run := func(name string, cb func(tCtx ktesting.TContext, tc *sharedClaimsTest)) {
		syncTest(t, name, func(tCtx ktesting.TContext) {
			cb(tCtx, newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newSharedClaim()}))
		})
	}
	run("bound", func(tCtx ktesting.TContext, tc *sharedClaimsTest) {
		require.Nil(tCtx, tc.schedule(newPod("pod-1")).bind(tCtx))
		assert.Equal(tCtx, []string{"update", "update/status"}, tc.api.takeWrites())
		assert.Equal(tCtx, []string{"pod-1"}, tc.reservedFor())
		assert.Empty(tCtx, tc.listInFlightClaims())
	})
	// What containers use of a claim is looked up by its name in the pod.
	run("names", func(tCtx ktesting.TContext, tc *sharedClaimsTest) {
		var names []string
		require.NoError(tCtx, tc.p.foreachPodResourceClaim(newPod("pod-1"), func(name string, _ *resourceapi.ResourceClaim) { names = append(names, name) }))
		assert.Equal(tCtx, []string{resourceName, "again"}, names)
		claims, err := tc.p.podResourceClaims(newPod("pod-1"))
		require.NoError(tCtx, err)
		assert.Len(tCtx, claims, 1)
	})
	run("unreserved", func(tCtx ktesting.TContext, tc *sharedClaimsTest) {
		tc.schedule(newPod("pod-1")).unreserve()
		assert.Empty(tCtx, tc.listInFlightClaims())
	})
	run("shared", func(tCtx ktesting.TContext, tc *sharedClaimsTest) {
		first, second := tc.schedule(newPod("pod-1")), tc.schedule(newPod("pod-2"))
		first.unreserve()
		assert.Len(tCtx, tc.listInFlightClaims(), 1, "the other pod needs it")
		second.unreserve()
		assert.Empty(tCtx, tc.listInFlightClaims())
	})
	run("deleted", func(tCtx ktesting.TContext, tc *sharedClaimsTest) {
		cycle := tc.schedule(newPod("pod-1"))
		require.NoError(tCtx, tc.client.Tracker().Delete(claimGVR, namespace, sharedClaimName))
		synctest.Wait()
		require.NotNil(tCtx, cycle.bind(tCtx))
		assert.Empty(tCtx, tc.listInFlightClaims())
	})
}

// TestSharedClaimWithoutTimestamp covers a claim which was allocated by an older
// release. The allocation cannot be changed.
func TestSharedClaimWithoutTimestamp(t *testing.T) {
	syncTest(t, "", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newAllocatedSharedClaim()})
		require.Nil(tCtx, tc.schedule(newSharingPod("pod-1")).bind(tCtx))
		assert.Equal(tCtx, []string{"pod-1"}, tc.reservedFor())
		checkAllocationTimestamp(tCtx, tc.claim(), false)
	})
}
