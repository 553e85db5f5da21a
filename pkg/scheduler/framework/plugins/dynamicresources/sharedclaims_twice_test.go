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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/ptr"
)

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
