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

import "k8s.io/apimachinery/pkg/util/sets"

// AllocatingIndex identifies a claim in the set of those that a device is about to
// be allocated for. It tells admin access apart because a claim with admin access
// must not keep the device from other claims of the same pod.
func AllocatingIndex(claimIndex int, adminAccess bool) int {
	if adminAccess {
		return -1 - claimIndex
	}
	return claimIndex
}

// AllocatingDedicated returns true if the set contains a claim without admin access.
func AllocatingDedicated(indices sets.Set[int]) bool {
	for index := range indices {
		if index >= 0 {
			return true
		}
	}
	return false
}
