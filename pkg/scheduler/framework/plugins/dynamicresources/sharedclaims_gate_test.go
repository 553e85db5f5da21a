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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// pluginTestSharedClaims is the value of the feature gate in testPlugin.
var pluginTestSharedClaims bool

// TestPluginSharedClaims runs upstream's test of the plugin with the feature gate on. Everywhere
// else that test runs with the gate off.
func TestPluginSharedClaims(t *testing.T) {
	pluginTestSharedClaims = true
	defer func() { pluginTestSharedClaims = false }()
	// In a sub-test because that ends when everything that runs in parallel has ended.
	t.Run("plugin", TestPlugin)
}

func withoutSharedClaims() feature.Features {
	feats := sharedClaimsFeatures()
	feats.EnableDRASharedClaims = false
	return feats
}

// scheduleAll does everything up to and including Reserve for several pods.
func (t *sharedClaimsTest) scheduleAll(numPods int) []*podCycle {
	t.tCtx.Helper()
	var cycles []*podCycle
	for i := range numPods {
		cycles = append(cycles, t.schedule(newSharingPod(fmt.Sprintf("pod-%03d", i))))
	}
	return cycles
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
