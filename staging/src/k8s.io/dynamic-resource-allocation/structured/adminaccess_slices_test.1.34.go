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

// In 1.34, the counters stand in the same slice as the devices, and the implementation cannot be chosen.

package structured

import (
	"testing"

	resourceapi "k8s.io/api/resource/v1"
)

// withSharedCounters returns the pool of a slice whose devices consume shared counters.
func withSharedCounters(slice *resourceapi.ResourceSlice, counters []resourceapi.CounterSet) []*resourceapi.ResourceSlice {
	slice.Spec.SharedCounters = counters
	return []*resourceapi.ResourceSlice{slice}
}

// countersInOwnSlices is false: shared counters stand beside devices.
const countersInOwnSlices = false

// implementations are those of the allocator.
var implementations = []string{"the one for the features"}

// enable has nothing to do.
func enable(*testing.T, string) {}

// fuzzCounterOf identifies a counter. They belong to a slice.
func fuzzCounterOf(slice *resourceapi.ResourceSlice, set, name string) fuzzCounter {
	return fuzzCounter{slice.Name, set, name}
}
