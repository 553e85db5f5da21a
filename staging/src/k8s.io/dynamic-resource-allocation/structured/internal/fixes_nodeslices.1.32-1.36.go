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

package internal

import (
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
)

// NodeSlices finds the ResourceSlices that matter for a node without a look at those of all other
// nodes. With thousands of nodes, each of which gets tried for a pod, that would be most of the work.
// The zero value is ready for use, by several goroutines.
type NodeSlices struct {
	once sync.Once
	// last has the last slice of those on each node, previous the one before each slice. All are indices.
	last     map[string]int
	previous []int
	// shared has the slices which are not on one node only.
	shared []int
}

// For returns, in the same order, all slices of those pools which may have a device for the node. What is
// missing belongs to pools that are on one other node as a whole: to leave them out with their counters is what
// 1.37 does. It must always be called with the same slices.
func (s *NodeSlices) For(all []*resourceapi.ResourceSlice, node *v1.Node) []*resourceapi.ResourceSlice {
	s.once.Do(func() { s.index(all) })
	indices := slices.Clone(s.shared)
	if node != nil {
		if i, exists := s.last[node.Name]; exists {
			for ; i >= 0; i = s.previous[i] {
				indices = append(indices, i)
			}
			slices.Sort(indices)
		}
	}
	result := make([]*resourceapi.ResourceSlice, 0, len(indices))
	for _, i := range indices {
		result = append(result, all[i])
	}
	return result
}

func (s *NodeSlices) index(all []*resourceapi.ResourceSlice) {
	// Whether a pool is complete depends on all of its slices, so they stay together.
	type poolID struct{ driver, pool string }
	pools := make(map[poolID]int, len(all))
	poolOf := make([]int, len(all))
	var nodes []string
	for i, slice := range all {
		id, node := poolID{slice.Spec.Driver, slice.Spec.Pool.Name}, nodeOf(slice)
		pool, exists := pools[id]
		if !exists {
			pool = len(nodes)
			pools[id] = pool
			nodes = append(nodes, node)
		} else if nodes[pool] != node {
			nodes[pool] = ""
		}
		poolOf[i] = pool
	}
	s.last = make(map[string]int, len(nodes))
	s.previous = poolOf
	for i, pool := range poolOf {
		node := nodes[pool]
		if node == "" {
			s.shared = append(s.shared, i)
			continue
		}
		previous, exists := s.last[node]
		if !exists {
			previous = -1
		}
		s.last[node], s.previous[i] = i, previous
	}
}
