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

package feature

import (
	"testing"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"
)

func TestSharedClaims(t *testing.T) {
	testGate(t, features.DRASharedClaims, func(c Carried) bool { return c.EnableDRASharedClaims })
}

// testGate ensures that the value of a gate gets copied.
func testGate(t *testing.T, gate featuregate.Feature, value func(c Carried) bool) {
	t.Helper()
	for _, enabled := range []bool{false, true} {
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, gate, enabled)
		if got := value(NewCarried(utilfeature.DefaultFeatureGate)); got != enabled {
			t.Errorf("feature gate is %v, got %v", enabled, got)
		}
	}
}
