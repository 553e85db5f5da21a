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
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
)

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
			info := framework.NewNodeInfo()
			info.SetNode(node)
			snapshot = append(snapshot, info)
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
