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
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
)

func allocatorsForNode(t *testing.T, slices []*resourceapi.ResourceSlice, node *v1.Node) map[string]any {
	allocators := map[string]any{}
	for i, name := range []string{"stable", "incubating", "experimental"} {
		if gatherers()[name] == nil {
			continue
		}
		implementation := availableAllocators[i]
		allocator, err := implementation.newAllocator(context.Background(), implementation.supportedFeatures, fuzzState(nil, false), fuzzClasses{}, slices, fuzzCELCache)
		if err == nil {
			_, err = allocator.Allocate(context.Background(), node, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		allocators[name] = allocator
	}
	return allocators
}
