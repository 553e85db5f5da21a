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

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured/internal/experimental"
	"k8s.io/dynamic-resource-allocation/structured/internal/incubating"
)

// gatherers has those which look at shared counters. In 1.36, the stable one leaves out slices itself.
func gatherers() map[string]gatherer {
	return map[string]gatherer{
		"incubating":   newGatherer(ofAll(incubating.GatherPools), incubating.SupportedFeatures),
		"experimental": newGatherer(ofAll(experimental.GatherPools), experimental.SupportedFeatures),
	}
}

// ofAll gives the slices of the node for all slices, too: whether a pool is complete has to be known from them.
func ofAll[P, F any](gather func(context.Context, []*resourceapi.ResourceSlice, *v1.Node, F, []*resourceapi.ResourceSlice) ([]P, error)) func(context.Context, []*resourceapi.ResourceSlice, *v1.Node, F) ([]P, error) {
	return func(ctx context.Context, slices []*resourceapi.ResourceSlice, node *v1.Node, features F) ([]P, error) {
		return gather(ctx, slices, node, features, slices)
	}
}
