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

package structured

import (
	"testing"

	resourceapi "k8s.io/api/resource/v1"
)

// withSharedCounters returns the pool of a slice whose devices consume shared counters.
func withSharedCounters(slice *resourceapi.ResourceSlice, counters []resourceapi.CounterSet) []*resourceapi.ResourceSlice {
	slice.Spec.Pool.ResourceSliceCount = 2
	shared := slice.DeepCopy()
	shared.Name += "-counters"
	shared.Spec.Devices = nil
	shared.Spec.SharedCounters = counters
	return []*resourceapi.ResourceSlice{slice, shared}
}

// countersInOwnSlices is true: shared counters stand in other slices than devices.
const countersInOwnSlices = true

// implementations are those of the allocator.
var implementations = []string{"stable", "incubating", "experimental"}

// enable makes NewAllocator use only that implementation until the end of the test.
func enable(t *testing.T, implementation string) {
	EnableAllocators(implementation)
	t.Cleanup(func() { EnableAllocators() })
}

// fuzzCounterOf identifies a counter. They belong to a pool.
func fuzzCounterOf(slice *resourceapi.ResourceSlice, set, name string) fuzzCounter {
	return fuzzCounter{slice.Spec.Driver + "/" + slice.Spec.Pool.Name, set, name}
}
