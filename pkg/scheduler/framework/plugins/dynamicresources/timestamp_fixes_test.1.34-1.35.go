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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
)

// TestAllocationWithoutTimestamp covers a claim which was allocated by an older
// release. The allocation cannot be changed.
func TestAllocationWithoutTimestamp(t *testing.T) {
	feats := feature.Features{
		EnableDynamicResourceAllocation:    true,
		EnableDRADeviceBindingConditions:   true,
		EnableDRAResourceClaimDeviceStatus: true,
		EnableDRASchedulerFilterTimeout:    true,
	}
	tc := setupTimestamp(t, feats, allocatedClaim)
	state := framework.NewCycleState()
	_, status := tc.p.PreFilter(tc.ctx, state, podWithClaimName, nil)
	require.Nil(t, status)
	require.Nil(t, tc.p.Filter(tc.ctx, state, podWithClaimName, tc.nodeInfos[0]))
	require.Nil(t, tc.p.Reserve(tc.ctx, state, podWithClaimName, nodeName))
	require.Nil(t, tc.p.PreBind(tc.ctx, state, podWithClaimName, nodeName))
	claim, err := tc.client.ResourceV1().ResourceClaims(namespace).Get(tc.ctx, claimName, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Len(t, claim.Status.ReservedFor, 1)
	assert.Nil(t, claim.Status.Allocation.AllocationTimestamp)
}
