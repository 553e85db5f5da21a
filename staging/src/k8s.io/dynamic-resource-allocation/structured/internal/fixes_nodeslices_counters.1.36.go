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

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
)

// WithCounters returns the slices of the node and those that are shared, as upstream does. Slices with shared
// counters are among the latter, even if they are for one other node only: then For has less.
func (s *NodeSlices) WithCounters(ofNode, shared, all []*resourceapi.ResourceSlice, node *v1.Node) []*resourceapi.ResourceSlice {
	if !slices.ContainsFunc(shared, func(slice *resourceapi.ResourceSlice) bool { return nodeOf(slice) != "" }) {
		return slices.Concat(ofNode, shared)
	}
	return s.For(all, node)
}
