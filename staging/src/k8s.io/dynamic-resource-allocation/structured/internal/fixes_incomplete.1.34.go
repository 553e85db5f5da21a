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
	resourceapi "k8s.io/api/resource/v1"
)

// MissesSlices returns true if a slice of the pool is missing, on whichever node its devices are. The
// pool of a driver may have slices for several nodes: those for other nodes are of no use for this
// one, but not missing.
func MissesSlices(slices []*resourceapi.ResourceSlice, driver, pool string, generation, count int64) bool {
	for _, slice := range slices {
		if slice.Spec.Driver != driver || slice.Spec.Pool.Name != pool {
			continue
		}
		if slice.Spec.Pool.Generation > generation {
			// The driver is about to replace what is known about this node.
			return true
		}
		if slice.Spec.Pool.Generation == generation {
			count--
		}
	}
	return count != 0
}
