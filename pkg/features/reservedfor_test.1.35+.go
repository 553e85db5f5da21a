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
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// TestReservedForNeedsSharedClaims ensures that no component starts with feature gates
// that do not go together. In releases without dependencies of feature gates, that is
// checked by the scheduler.
func TestReservedForNeedsSharedClaims(t *testing.T) {
	gates := func() interface{ SetFromMap(map[string]bool) error } {
		return utilfeature.DefaultMutableFeatureGate.DeepCopy()
	}
	require.True(t, utilfeature.DefaultFeatureGate.Enabled(DRASharedClaims), "on by default")
	require.NoError(t, gates().SetFromMap(map[string]bool{"DRASharedClaims": false}))
	require.NoError(t, gates().SetFromMap(map[string]bool{"DRAReservedForWorkloads": true}))
	require.NoError(t, gates().SetFromMap(map[string]bool{"AllBeta": false, "DRASharedClaims": true, "DRAReservedForWorkloads": true, "DynamicResourceAllocation": true}))
	for name, set := range map[string]map[string]bool{
		"off":         {"DRASharedClaims": false, "DRAReservedForWorkloads": true},
		"no-beta":     {"AllBeta": false, "DRAReservedForWorkloads": true},
		"off-for-all": {"AllAlpha": true, "DRASharedClaims": false},
	} {
		assert.ErrorContains(t, gates().SetFromMap(set), "DRAReservedForWorkloads is enabled, but depends on features that are disabled: [DRASharedClaims]", name)
	}
}
