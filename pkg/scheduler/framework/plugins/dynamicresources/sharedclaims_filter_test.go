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
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// callPreFilter does not return Skip. All tests of claims still call Filter, see callFilter.
func (c *podCycle) callPreFilter() *fwk.Status {
	names, status := c.preFilterNodes()
	c.skipped, c.names = status.IsSkip(), names
	if c.skipped {
		return nil
	}
	return status
}

// callFilter returns true if the pod can run on a node. It always calls Filter, and
// checks that PreFilter knew the answer if it said so.
func (c *podCycle) callFilter(index int) bool {
	c.tCtx.Helper()
	nodeInfo := c.nodeInfos[index]
	name := nodeInfo.Node().Name
	status := c.p.Filter(c.tCtx, c.state, c.pod, nodeInfo)
	state, err := getStateData(c.state)
	require.NoError(c.tCtx, err)
	if c.skipped {
		require.Nil(c.tCtx, status, "Filter of %s on %s was skipped", c.pod.Name, name)
		require.Empty(c.tCtx, state.nodeAllocations, "Reserve uses what Filter was not called for")
	}
	if c.names != nil && !c.names.Has(name) {
		require.Equal(c.tCtx, fwk.UnschedulableAndUnresolvable, status.Code(), "Filter of %s on %s was not wanted", c.pod.Name, name)
	}
	return status.IsSuccess()
}

// selectNodes makes the allocation available where one of the terms matches, on all nodes without any.
func selectNodes(terms ...v1.NodeSelectorTerm) func(claim *resourceapi.ResourceClaim) {
	return func(claim *resourceapi.ResourceClaim) {
		claim.Status.Allocation.NodeSelector = nil
		if len(terms) > 0 {
			claim.Status.Allocation.NodeSelector = &v1.NodeSelector{NodeSelectorTerms: terms}
		}
	}
}

func namedNode(name string) v1.NodeSelectorTerm {
	return v1.NodeSelectorTerm{MatchFields: []v1.NodeSelectorRequirement{{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{name}}}}
}

var labelledNodes = v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "zone", Operator: v1.NodeSelectorOpIn, Values: []string{"a"}}}}

func changed(claim *resourceapi.ResourceClaim, changes ...func(claim *resourceapi.ResourceClaim)) *resourceapi.ResourceClaim {
	claim = claim.DeepCopy()
	for _, change := range changes {
		change(claim)
	}
	return claim
}

// limitFilterTest is a claim whose allocation allows some nodes.
type limitFilterTest struct {
	features func(feats *feature.Features)
	claim    *resourceapi.ResourceClaim
	// inFlight is an allocation that is not stored yet.
	inFlight  *resourceapi.ResourceClaim
	wantSkip  bool
	wantNames []string
	// wantNodes are those which Filter accepts.
	wantNodes []string
}

func (tc limitFilterTest) run(tCtx ktesting.TContext) {
	feats := sharedClaimsFeatures()
	if tc.features != nil {
		tc.features(&feats)
	}
	test := newSharedClaimsTest(tCtx, feats, []*resourceapi.ResourceClaim{tc.claim})
	if tc.inFlight != nil {
		require.NoError(tCtx, test.p.pendingAllocations().SignalClaimPendingAllocation(test.claim().UID, tc.inFlight))
	}
	cycle, status := test.preFilter(newSharingPod("pod-1"))
	require.Nil(tCtx, status)
	assert.Equal(tCtx, tc.wantSkip, cycle.skipped, "Skip")
	if tc.wantNames == nil {
		assert.Nil(tCtx, cycle.names)
	} else {
		assert.Equal(tCtx, tc.wantNames, sets.List(cycle.names))
	}
	assert.Equal(tCtx, tc.wantNodes, cycle.filter())
}

// TestLimitFilter covers for which nodes Filter gets called.
func TestLimitFilter(t *testing.T) {
	anywhere := selectNodes()
	allNodes := []string{nodeName, node2Name}
	inUse := newAllocatedSharedClaim(podReferences(1)...)
	ownReference := resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: "pod-1", UID: "pod-1"}
	off := func(feats *feature.Features) { feats.EnableDRASharedClaims = false }
	hostname := v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{node2Name}}}}
	// byLabel returns the names if PreFilter knows the nodes.
	byLabel := func(names ...string) []string {
		if !hasSnapshot {
			return nil
		}
		return append([]string{}, names...)
	}
	for name, tc := range map[string]limitFilterTest{
		"any-node":            {claim: changed(inUse, anywhere), wantSkip: true, wantNodes: allNodes},
		"any-node-unused":     {claim: changed(newAllocatedSharedClaim(), anywhere), wantSkip: true, wantNodes: allNodes},
		"any-node-gate-off":   {features: off, claim: changed(inUse, anywhere), wantNodes: allNodes},
		"any-node-in-flight":  {claim: newSharedClaim(), inFlight: changed(newAllocatedSharedClaim(), anywhere), wantSkip: true, wantNodes: allNodes},
		"not-allocated":       {claim: newSharedClaim(), wantNodes: allNodes},
		"one-node":            {claim: changed(inUse, selectNodes(namedNode(nodeName))), wantNames: []string{nodeName}, wantNodes: []string{nodeName}},
		"one-node-in-flight":  {claim: newSharedClaim(), inFlight: changed(newAllocatedSharedClaim(), selectNodes(namedNode(node2Name))), wantNames: []string{node2Name}, wantNodes: []string{node2Name}},
		"one-node-gate-off":   {features: off, claim: changed(inUse, selectNodes(namedNode(nodeName))), wantNodes: []string{nodeName}},
		"several-nodes":       {claim: changed(inUse, selectNodes(namedNode("gone"), namedNode(nodeName), namedNode(node2Name))), wantNames: []string{"gone", nodeName, node2Name}, wantNodes: allNodes},
		"gone-node":           {claim: changed(inUse, selectNodes(namedNode("gone"))), wantNames: []string{"gone"}},
		"name-or-label":       {claim: changed(inUse, selectNodes(namedNode(nodeName), labelledNodes)), wantNames: byLabel(nodeName), wantNodes: []string{nodeName}},
		"label":               {claim: changed(inUse, selectNodes(labelledNodes)), wantNames: byLabel()},
		"label-unused":        {claim: changed(newAllocatedSharedClaim(), selectNodes(labelledNodes))},
		"label-in-flight":     {claim: newSharedClaim(), inFlight: changed(newAllocatedSharedClaim(), selectNodes(hostname)), wantNames: byLabel(node2Name), wantNodes: []string{node2Name}},
		"label-gate-off":      {features: off, claim: changed(inUse, selectNodes(hostname)), wantNodes: []string{node2Name}},
		"label-most":          {claim: changed(inUse, selectNodes(namedNode(nodeName), hostname)), wantNodes: allNodes},
		"one-node-unused":     {claim: changed(newAllocatedSharedClaim(), selectNodes(namedNode(nodeName))), wantNodes: []string{nodeName}},
		"one-node-for-itself": {claim: changed(newAllocatedSharedClaim(ownReference), selectNodes(namedNode(nodeName))), wantNodes: []string{nodeName}},
		"no-node":             {claim: changed(inUse, func(claim *resourceapi.ResourceClaim) { claim.Status.Allocation.NodeSelector = &v1.NodeSelector{} }), wantNames: []string{}},
	} {
		syncTest(t, name, tc.run)
	}

	// The pod needs what the claims have in common.
	syncTest(t, "several-claims", func(tCtx ktesting.TContext) {
		claims := []*resourceapi.ResourceClaim{
			changed(inUse, anywhere),
			changed(inUse, selectNodes(namedNode(nodeName), namedNode(node2Name)), func(claim *resourceapi.ResourceClaim) { claim.Name = "second" }),
			changed(inUse, selectNodes(namedNode(node2Name), namedNode("gone")), func(claim *resourceapi.ResourceClaim) { claim.Name = "third" }),
		}
		test := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), claims)
		pod := newSharingPod("pod-1")
		for _, claim := range claims[1:] {
			pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, v1.PodResourceClaim{Name: claim.Name, ResourceClaimName: &claim.Name})
		}
		cycle, status := test.preFilter(pod)
		require.Nil(tCtx, status)
		assert.False(tCtx, cycle.skipped)
		assert.Equal(tCtx, []string{node2Name}, sets.List(cycle.names))
		assert.Equal(tCtx, []string{node2Name}, cycle.filter())

		// One more must be allocated.
		test.change(func(claim *resourceapi.ResourceClaim) { claim.Status = resourceapi.ResourceClaimStatus{} })
		cycle, status = test.preFilter(pod)
		require.Nil(tCtx, status)
		assert.False(tCtx, cycle.skipped)
		assert.Nil(tCtx, cycle.names)
	})

	// Pods without a claim had nothing to do with Filter before.
	syncTest(t, "no-claim", func(tCtx ktesting.TContext) {
		test := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), nil)
		cycle := &podCycle{sharedClaimsTest: test, pod: st.MakePod().Name("pod-1").Namespace(namespace).Obj(), state: newCycleState()}
		names, status := cycle.preFilterNodes()
		assert.Nil(tCtx, names)
		assert.True(tCtx, status.IsSkip())
	})
}

// callFilterAnyway lets upstream's test of the plugin call Filter for all nodes, also where
// PreFilter knew the answer. That must be what Filter says.
func callFilterAnyway(ctx context.Context, t assert.TestingT, tc *testContext, pod *v1.Pod, result *preFilterResult, status *fwk.Status) (*preFilterResult, *fwk.Status) {
	state, err := getStateData(tc.state)
	if err != nil || !tc.p.fts.EnableDRASharedClaims || len(state.informationsForClaim) == 0 {
		return result, status
	}
	for _, nodeInfo := range tc.nodeInfos {
		node := nodeInfo.Node().Name
		switch filtered := tc.p.Filter(ctx, tc.state, pod, nodeInfo); {
		case status.IsSkip():
			assert.Nil(t, filtered, "Filter on %s was skipped", node)
		case !result.AllNodes() && !result.NodeNames.Has(node):
			assert.Equal(t, fwk.UnschedulableAndUnresolvable, filtered.Code(), "Filter on %s was not wanted", node)
		}
	}
	if status.IsSkip() {
		return nil, nil
	}
	return nil, status
}

// TestClaimNodes covers when node selectors get evaluated again.
func TestClaimNodes(t *testing.T) {
	inZone := func(name, zone string) *v1.Node { return st.MakeNode().Name(name).Label("zone", zone).Obj() }
	nodes := []*v1.Node{inZone("node-1", "a"), inZone("node-2", "b"), inZone("node-3", "a"), inZone("node-4", "b")}
	claim := changed(newAllocatedSharedClaim(), selectNodes(labelledNodes))
	claim.UID = "first"

	var nodesOfClaims claimNodes
	get := func(when string, claim *resourceapi.ResourceClaim, wantEvaluated int, wantNames ...string) {
		t.Helper()
		var snapshot []snapshotNode
		for _, node := range nodes {
			snapshot = append(snapshot, newSnapshotNode(node))
		}
		zones := claim.Status.Allocation.NodeSelector.NodeSelectorTerms[0].MatchExpressions[0].Values
		evaluated := 0
		names := nodesOfClaims.get(claim, func(node *v1.Node) bool {
			evaluated++
			return slices.Contains(zones, node.Labels["zone"])
		}, snapshot)
		assert.Equal(t, wantNames, sets.List(names), when)
		assert.Equal(t, wantEvaluated, evaluated, "evaluated for nodes: %s", when)
	}

	get("first pod", claim, 4, "node-1", "node-3")
	get("next pod", claim, 0, "node-1", "node-3")
	get("next pod, and the claim is another object", claim.DeepCopy(), 0, "node-1", "node-3")

	second := claim.DeepCopy()
	second.UID = "second"
	get("other claim", second, 4, "node-1", "node-3")
	get("first claim again", claim, 0, "node-1", "node-3")

	nodes[0] = nodes[0].DeepCopy()
	nodes[0].Status.Phase = v1.NodeRunning
	get("status of a node changed", claim, 0, "node-1", "node-3")
	nodes[1] = inZone("node-2", "a")
	get("label of a node changed", claim, 4, "node-1", "node-2", "node-3")
	get("label of a node changed, other claim", second, 4, "node-1", "node-2", "node-3")
	nodes = append(nodes, inZone("node-5", "a"))
	get("node added", claim, 5, "node-1", "node-2", "node-3", "node-5")
	nodes = nodes[1:]
	get("node removed", claim, 4, "node-2", "node-3", "node-5")
	nodes[0] = inZone("node-6", "a")
	get("node replaced", claim, 4, "node-3", "node-5", "node-6")

	reallocated := claim.DeepCopy()
	reallocated.Status.Allocation.NodeSelector.NodeSelectorTerms[0].MatchExpressions[0].Values = []string{"b"}
	get("allocated elsewhere", reallocated, 4, "node-4")
	get("allocated elsewhere, next pod", reallocated, 0, "node-4")

	for i := range 2 * maxClaimNodes {
		other := claim.DeepCopy()
		other.UID = types.UID(fmt.Sprintf("other-%d", i))
		get("many claims", other, 4, "node-3", "node-5", "node-6")
		assert.LessOrEqual(t, len(nodesOfClaims.available), maxClaimNodes, "claims in memory")
	}
}
