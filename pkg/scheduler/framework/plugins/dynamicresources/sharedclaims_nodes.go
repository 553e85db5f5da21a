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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

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
