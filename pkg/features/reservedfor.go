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

// DRAReservedForWorkloads enables reserving a ResourceClaim for the workload in
// spec.reservedFor, for example a Job, instead of for each pod which references the
// claim. See http://kep.k8s.io/5194.
const DRAReservedForWorkloads featuregate.Feature = "DRAReservedForWorkloads"

var reservedForFeatureGates = map[featuregate.Feature]featuregate.VersionedSpecs{
	DRAReservedForWorkloads: {
		{Version: version.MustParse("1.32"), Default: false, PreRelease: featuregate.Alpha},
	},
}

// Upstream's init registers what is in its map. Variables are initialized before that.
var _ = func() (none struct{}) {
	maps.Copy(defaultVersionedKubernetesFeatureGates, reservedForFeatureGates)
	return none
}()
