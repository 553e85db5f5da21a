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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// checkAllocationTimestamp ensures that the time of the allocation was recorded.
func checkAllocationTimestamp(tCtx ktesting.TContext, claim *resourceapi.ResourceClaim) {
	tCtx.Helper()
	assert.NotNil(tCtx, claim.Status.Allocation.AllocationTimestamp, "time of the allocation")
}

// TestSharedClaimWithoutTimestamp covers a claim which was allocated by an older
// release. The allocation cannot be changed.
func TestSharedClaimWithoutTimestamp(t *testing.T) {
	syncTest(t, "", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newAllocatedSharedClaim()})
		require.Nil(tCtx, tc.schedule(newSharingPod("pod-1")).bind(tCtx))
		assert.Equal(tCtx, []string{"pod-1"}, tc.reservedFor())
		assert.Nil(tCtx, tc.claim().Status.Allocation.AllocationTimestamp)
	})
}
