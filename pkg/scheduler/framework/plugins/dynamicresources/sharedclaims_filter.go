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
	"maps"
	"sync"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	fwk "k8s.io/kube-scheduler/framework"
)

// This file keeps Filter from being called for nodes where its answer is known. With
// thousands of nodes, asking once for each of them is most of what an allocated claim costs.

// limitFilter gets called at the end of PreFilter. It returns Skip if Filter would accept
// each node and have nothing to remember for Reserve. Otherwise it returns the names of
// the nodes for which Filter has to be called, nil for all of them.
func (pl *DynamicResources) limitFilter(pod *v1.Pod, nodes []snapshotNode, s *stateData) (sets.Set[string], *fwk.Status) {
	if !pl.fts.EnableDRASharedClaims || s.allocator != nil || hasExtendedResourceClaim(s) {
		return nil, nil
	}
	skip := true
	var names sets.Set[string]
	for index, claim := range s.claims.allUserClaims() {
		if s.informationsForClaim[index].availableOnNodes == nil {
			skip = skip && !pl.dependsOnNode(claim.Status.Allocation) && !skipsNodeOperations(claim.Status.Allocation)
			continue
		}
		skip = false
		if !pl.staysAllocated(pod, s, index) {
			continue
		}
		available := pl.availableNodes(claim, s.informationsForClaim[index].availableOnNodes, nodes)
		if available == nil {
			continue
		}
		if names == nil {
			names = available
		} else {
			names = names.Intersection(available)
		}
		// As if Filter had been called for some other node: PostFilter may have to
		// wait for the end of the pods that use the claim.
		if s.unavailableClaims == nil {
			s.unavailableClaims = sets.New[int]()
		}
		s.unavailableClaims.Insert(index)
	}
	if skip {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	return names, nil
}

// staysAllocated returns true if PostFilter cannot deallocate the claim for the pod. If it can,
// then it must only do so if the allocation is what keeps the pod from some node. Filter
// finds that out, but only for nodes which other plugins accept.
func (pl *DynamicResources) staysAllocated(pod *v1.Pod, s *stateData, index int) bool {
	if isInGroup(pod) {
		// The pods of the group may be the only ones.
		return false
	}
	return s.informationsForClaim[index].pending != nil || s.consumer(index, pod).inUse(s.claims.get(index))
}

// availableNodes returns the names of the nodes where the allocation of the claim is available. It returns
// nil if these are most of the nodes: the scheduler looks at each of the names, but stops calling
// Filter when it has found enough nodes.
func (pl *DynamicResources) availableNodes(claim *resourceapi.ResourceClaim, selector *nodeaffinity.NodeSelector, nodes []snapshotNode) sets.Set[string] {
	if names := nodeNames(claim.Status.Allocation.NodeSelector); names != nil {
		return names
	}
	if names := pl.claimNodes.get(claim, selector.Match, nodes); 2*names.Len() <= len(nodes) && len(nodes) > 0 {
		return names
	}
	return nil
}

// nodeNames returns the names of all nodes which the selector can match, nil if it does not select
// by name.
func nodeNames(selector *v1.NodeSelector) sets.Set[string] {
	names := sets.New[string]()
	for _, term := range selector.NodeSelectorTerms {
		byName := false
		for _, field := range term.MatchFields {
			if field.Key == metav1.ObjectNameField && field.Operator == v1.NodeSelectorOpIn {
				names.Insert(field.Values...)
				byName = true
			}
		}
		if !byName {
			return nil
		}
	}
	return names
}

// maxClaimNodes limits for how many claims the names of nodes are kept in memory.
const maxClaimNodes = 100

// claimNodes knows on which nodes allocations are available. A node selector gets evaluated
// once for a node, not again for each pod that shares the claim. The zero value is ready for use.
type claimNodes struct {
	mutex sync.Mutex

	// nodes are those of the last snapshot, in its order.
	nodes []*v1.Node

	// available is about those nodes. It is indexed by the UID of the claim.
	available map[types.UID]availableNodes
}

// availableNodes has the names of all nodes that the selector matches. It must not be modified.
type availableNodes struct {
	selector *v1.NodeSelector
	names    sets.Set[string]
}

// get returns the names of the nodes where the allocation of the claim is available. match is
// the node selector of the allocation. The result must not be modified.
func (c *claimNodes) get(claim *resourceapi.ResourceClaim, match func(node *v1.Node) bool, nodes []snapshotNode) sets.Set[string] {
	c.mutex.Lock()
	defer c.mutex.Unlock()

	if c.update(nodes) {
		c.available = nil
	}
	selector := claim.Status.Allocation.NodeSelector
	entry, found := c.available[claim.UID]
	if found && apiequality.Semantic.DeepEqual(entry.selector, selector) {
		return entry.names
	}

	entry = availableNodes{selector: selector, names: sets.New[string]()}
	for _, node := range c.nodes {
		if node != nil && match(node) {
			entry.names.Insert(node.Name)
		}
	}
	if c.available == nil || len(c.available) >= maxClaimNodes {
		c.available = make(map[types.UID]availableNodes)
	}
	c.available[claim.UID] = entry
	return entry.names
}

// update returns true if a node selector may match other nodes than before. That depends
// on their names and labels. The other changes are the frequent ones.
func (c *claimNodes) update(nodes []snapshotNode) bool {
	changed := len(nodes) != len(c.nodes)
	if changed {
		c.nodes = make([]*v1.Node, len(nodes))
	}
	for i, info := range nodes {
		before, now := c.nodes[i], info.Node()
		if before == now {
			continue
		}
		c.nodes[i] = now
		changed = changed || before == nil || now == nil ||
			before.Name != now.Name || !maps.Equal(before.Labels, now.Labels)
	}
	return changed
}
