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

package dynamicresources

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
)

// setupTimestamp makes the plugin for a claim. Upstream's function for that has other parameters
// in each release.
func setupTimestamp(t *testing.T, feats feature.Features, claim *resourceapi.ResourceClaim) *testContext {
	t.Helper()
	return setup(t, getDefaultDynamicResourcesArgs(), []*v1.Node{workerNode}, []*resourceapi.ResourceClaim{claim},
		[]*resourceapi.DeviceClass{deviceClass}, []apiruntime.Object{workerNodeSlice}, feats)
}
