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

	resourceapi "k8s.io/api/resource/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// TestHugeCounters covers that counters beyond 64 bits stay as they are. A copy of such a
// quantity has the same memory as the original, which belongs to the cache of an informer.
func TestHugeCounters(t *testing.T) {
	slices := []*resourceapi.ResourceSlice{counterSlice("8Ei", "8Ei", "a", "b")}
	before := copies(slices)
	for range 2 {
		if got := allocateWithCounters(t, slices[0], []string{"a"}, adminClaims("1")); got != "" {
			t.Errorf("got %q, which consumes more than there is", got)
		}
		if !equality.Semantic.DeepEqual(before, slices) {
			t.Fatal("the allocator changed a slice")
		}
	}
	if got, want := allocateWithCounters(t, slices[0], nil, adminClaims("1")), "a"; got != want {
		t.Errorf("want %q, got %q", want, got)
	}
}
