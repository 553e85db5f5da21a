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

// In 1.34, only the work queue knows which pods get evicted.

func (tc *Controller) mustEvictPodsOf(claim types.NamespacedName) bool {
	return tc.allocatedClaims[claim].evictionTime != nil
}

// mayBeEvicting always returns true for a pod with claims. Canceling an eviction
// which is not pending does nothing.
func (tc *Controller) mayBeEvicting(pod *v1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0
}
