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

// resultOrder returns for each claim that is to be allocated, in their order, where its result is
// among those for a node. There, new allocations come first, followed by those that are
// pending because of other pods of the group.
//
// It must be called first before any of the results gets assigned to its claim. Pods of a group go through
// Reserve twice, with the same results: once to find out whether all of them fit, and again when
// they are bound.
func (s *stateData) resultOrder() []int {
	if s.order != nil {
		return s.order
	}
	allocated := 0
	for index := range s.claims.toAllocate() {
		if s.informationsForClaim[index].allocation == nil {
			allocated++
		}
	}
	next, pending := 0, allocated
	for index := range s.claims.toAllocate() {
		if s.informationsForClaim[index].allocation == nil {
			s.order = append(s.order, next)
			next++
		} else {
			s.order = append(s.order, pending)
			pending++
		}
	}
	return s.order
}
