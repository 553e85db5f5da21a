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
	"k8s.io/component-helpers/nodedeclaredfeatures/features/draoptionalnodeoperations"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// skipsOperations makes the allocation of the claim one for which the driver is not called, on any node.
func skipsOperations(claim *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	claim.Status.Allocation.NodeSelector = nil
	for i := range claim.Status.Allocation.Devices.Results {
		claim.Status.Allocation.Devices.Results[i].SkipNodeOperations = []resourceapi.SkipNodeOperation{resourceapi.SkipNodeOperationAll}
	}
	return claim
}

// declareSkipping tells the plugin that the kubelets of some nodes can skip operations.
func (t *sharedClaimsTest) declareSkipping(nodes ...*v1.Node) {
	for i, nodeInfo := range t.nodeInfos {
		for _, node := range nodes {
			if nodeInfo.Node().Name != node.Name {
				continue
			}
			capable := node.DeepCopy()
			capable.Status.DeclaredFeatures = []string{draoptionalnodeoperations.DRAOptionalNodeOperationsFeatureGate}
			info := framework.NewNodeInfo()
			info.SetNode(capable)
			t.nodeInfos[i] = info
		}
	}
}

// TestReservedForSkipNodeOperations covers that pods of a workload only get to nodes which can do what the allocation
// of their claim says, whether they are listed in the claim or not.
func TestReservedForSkipNodeOperations(t *testing.T) {
	for name, claim := range map[string]*resourceapi.ResourceClaim{
		"stored":      newWorkloadClaim(workloadRefWithUID),
		"listed-pods": newAllocatedSharedClaim(podReferences(2)...),
	} {
		syncTest(t, name, func(tCtx ktesting.TContext) {
			feats := reservedForFeatures(true)
			feats.EnableDRAOptionalNodeOperations = true
			tc := newReservedForTest(tCtx, feats, []*resourceapi.ResourceClaim{skipsOperations(claim)})
			tc.declareSkipping(workerNode)
			cycle, status := tc.preFilter(newJobPod("pod-1"))
			require.Nil(tCtx, status)
			assert.Equal(tCtx, []string{nodeName}, cycle.filter())
		})
	}

	// No node fits. The scheduler must not deallocate the claim: another pod uses it.
	syncTest(t, "no-node", func(tCtx ktesting.TContext) {
		feats := reservedForFeatures(true)
		feats.EnableDRAOptionalNodeOperations = true
		user := newJobPod("pod-0")
		user.Spec.NodeName = "elsewhere"
		tc := newReservedForTest(tCtx, feats, []*resourceapi.ResourceClaim{skipsOperations(newWorkloadClaim(workloadRefWithUID))}, user)
		cycle, status := tc.preFilter(newJobPod("pod-1"))
		require.Nil(tCtx, status)
		assert.Empty(tCtx, cycle.filter())
		_, status = tc.p.PostFilter(tCtx, cycle.state, cycle.pod, nil)
		assert.Equal(tCtx, fwk.Unschedulable, status.Code(), status.Message())
		synctest.Wait() // for what must not happen
		assert.NotNil(tCtx, tc.claim().Status.Allocation)
		assert.Len(tCtx, tc.claim().Status.ReservedFor, 1)
	})

	// The same for an allocation that is not stored yet.
	syncTest(t, "in-flight", func(tCtx ktesting.TContext) {
		feats := reservedForFeatures(true)
		feats.EnableDRAOptionalNodeOperations = true
		tc := newReservedForTest(tCtx, feats, []*resourceapi.ResourceClaim{withReservedFor(newSharedClaim(), workloadRef)})
		allocated := skipsOperations(newWorkloadClaim())
		allocated.UID = tc.claim().UID
		require.NoError(tCtx, tc.p.pendingAllocations().SignalClaimPendingAllocation(allocated.UID, allocated))
		tc.declareSkipping(workerNode2)
		cycle, status := tc.preFilter(newJobPod("pod-1"))
		require.Nil(tCtx, status)
		assert.Equal(tCtx, []string{node2Name}, cycle.filter())
		_, status = tc.p.PostFilter(tCtx, cycle.state, cycle.pod, nil)
		assert.Equal(tCtx, fwk.Unschedulable, status.Code(), status.Message())
		assert.NotNil(tCtx, tc.p.pendingAllocations().GetPendingAllocation(allocated.UID), "still in flight")
	})
}
