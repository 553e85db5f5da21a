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

package devicetainteviction

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// What differs between Kubernetes releases, but has nothing to do with the
// feature itself, is in this file.

// mustEvictPodsOf returns true if pods which use the claim need to be evicted.
func (tc *Controller) mustEvictPodsOf(claim types.NamespacedName) bool {
	return tc.allocatedClaims[claim].eviction != nil
}

// mayBeEvicting returns false if it is certain that the pod is not about to be
// evicted.
func (tc *Controller) mayBeEvicting(pod *v1.Pod) bool {
	_, pending := tc.deletePodAt[newObject(pod)]
	return pending
}
