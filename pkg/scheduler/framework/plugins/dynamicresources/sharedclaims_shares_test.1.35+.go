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
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/ptr"
)

// TestSharedDeviceBecomesExclusive covers a driver that no longer lets a device be shared while somebody still
// has a share of it. Nobody gets the whole device until that share is gone.
func TestSharedDeviceBecomesExclusive(t *testing.T) {
	for name, tcase := range map[string]struct {
		shareID  *types.UID
		consumed map[resourceapi.QualifiedName]resource.Quantity
		fits     bool
	}{
		"free":                {fits: true},
		"share":               {shareID: ptr.To(types.UID("5f9b5c6d-6a4e-4c9b-8f0a-2f6f1f1c7b1a")), fits: !knowsStoredShares},
		"share-with-capacity": {shareID: ptr.To(types.UID("5f9b5c6d-6a4e-4c9b-8f0a-2f6f1f1c7b1a")), consumed: map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse("1Gi")}},
	} {
		syncTest(t, name, func(tCtx ktesting.TContext) {
			featuregatetesting.SetFeatureGateDuringTest(tCtx, utilfeature.DefaultFeatureGate, features.DRAConsumableCapacity, true)
			feats := sharedClaimsFeatures()
			feats.EnableDRAConsumableCapacity = true
			claims := []*resourceapi.ResourceClaim{newSharedClaim()}
			if tcase.shareID != nil {
				user := newAllocatedSharedClaim()
				user.Name = "user"
				result := &user.Status.Allocation.Devices.Results[0]
				result.ShareID, result.ConsumedCapacity = tcase.shareID, tcase.consumed
				claims = append(claims, user)
			}
			tc := newSharedClaimsTest(tCtx, feats, claims)
			cycle, status := tc.preFilter(newSharingPod("pod-1"))
			require.Nil(tCtx, status)
			assert.Equal(tCtx, tcase.fits, slices.Contains(cycle.filter(), nodeName), "the device is free")
		})
	}
}
