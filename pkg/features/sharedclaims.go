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

package features

import (
	"maps"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-base/featuregate"
)

// DRASharedClaims enables scheduling pods which share a ResourceClaim together: they use
// the same allocation while it is in flight, and the scheduler reserves the claim for
// all of them in few writes.
const DRASharedClaims featuregate.Feature = "DRASharedClaims"

var sharedClaimsFeatureGates = map[featuregate.Feature]featuregate.VersionedSpecs{
	DRASharedClaims: {
		{Version: version.MustParse("1.32"), Default: true, PreRelease: featuregate.Beta},
	},
}

// Upstream's init registers what is in its map. Variables are initialized before that.
var _ = func() (none struct{}) {
	maps.Copy(defaultVersionedKubernetesFeatureGates, sharedClaimsFeatureGates)
	return none
}()
