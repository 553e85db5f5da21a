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
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// isNewlyAllocated returns true if an update of a claim shows an allocation that was not there before. An informer
// that had to list all claims again does not tell that a claim was deallocated in between, and what it was
// allocated then is not tainted because the devices before were.
func isNewlyAllocated(oldClaim, newClaim *resourceapi.ResourceClaim) bool {
	return newClaim.Status.Allocation != nil && !equality.Semantic.DeepEqual(oldClaim.Status.Allocation, newClaim.Status.Allocation)
}
