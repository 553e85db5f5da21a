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

package resourceclaim

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/apis/resource"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/utils/ptr"
)

func claimForWorkload() *resource.ResourceClaim {
	claim := obj.DeepCopy()
	claim.ResourceVersion = "1"
	claim.Spec.ReservedFor = &resource.ResourceClaimWorkloadReference{APIGroup: "batch", Resource: "jobs", Name: "some-job"}
	return claim
}

func TestReservedForStrategyCreate(t *testing.T) {
	for name, tc := range map[string]struct {
		gate   bool
		expect func() *resource.ResourceClaimWorkloadReference
	}{
		"gate-on":  {gate: true, expect: func() *resource.ResourceClaimWorkloadReference { return claimForWorkload().Spec.ReservedFor }},
		"gate-off": {expect: func() *resource.ResourceClaimWorkloadReference { return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAReservedForWorkloads, tc.gate)
			ctx := genericapirequest.NewDefaultContext()
			strategy, _ := newStrategies()
			claim := claimForWorkload()
			strategy.PrepareForCreate(ctx, claim)
			assert.Equal(t, tc.expect(), claim.Spec.ReservedFor)
			require.Empty(t, strategy.Validate(ctx, claim))
		})
	}
}

// TestReservedForStrategyUpdate covers updates of the main resource: what is
// stored stays, whether the feature is enabled or not.
func TestReservedForStrategyUpdate(t *testing.T) {
	for name, gate := range map[string]bool{"gate-on": true, "gate-off": false} {
		t.Run(name, func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAReservedForWorkloads, gate)
			ctx := genericapirequest.NewDefaultContext()
			strategy, _ := newStrategies()
			oldClaim := claimForWorkload()
			oldClaim.Status.Allocation = &resource.AllocationResult{ReservedForAnyPod: ptr.To(true)}
			stored := oldClaim.DeepCopy()
			newClaim := oldClaim.DeepCopy()
			newClaim.Labels = map[string]string{"some": "label"}
			strategy.PrepareForUpdate(ctx, newClaim, oldClaim)
			require.Empty(t, strategy.ValidateUpdate(ctx, newClaim, oldClaim))
			assert.Equal(t, stored, oldClaim, "stored claim must not be modified")
			assert.Equal(t, stored.Spec, newClaim.Spec)
			assert.Equal(t, stored.Status, newClaim.Status)

			newClaim.Spec.ReservedFor = nil
			strategy.PrepareForUpdate(ctx, newClaim, oldClaim)
			require.Empty(t, strategy.ValidateUpdate(ctx, newClaim, oldClaim), "not removed by who does not know it")
			assert.Equal(t, stored.Spec, newClaim.Spec)

			newClaim.Spec.ReservedFor = &resource.ResourceClaimWorkloadReference{APIGroup: "batch", Resource: "jobs", Name: "other-job"}
			strategy.PrepareForUpdate(ctx, newClaim, oldClaim)
			assert.NotEmpty(t, strategy.ValidateUpdate(ctx, newClaim, oldClaim), "changing the field")
		})
	}
}

func TestReservedForStatusStrategyUpdate(t *testing.T) {
	ctx := genericapirequest.NewDefaultContext()
	ctx = genericapirequest.WithUser(ctx, &user.DefaultInfo{Name: "some-user"})
	ctx = genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
		IsResourceRequest: true,
		Verb:              "update",
		APIGroup:          "resource.k8s.io",
		APIVersion:        "v1",
		Resource:          "resourceclaims",
		Subresource:       "status",
		Namespace:         metav1.NamespaceDefault,
	})

	allocation := &resource.AllocationResult{ReservedForAnyPod: ptr.To(true)}

	for name, tc := range map[string]struct {
		gate         bool
		withoutSpec  bool
		old          *resource.AllocationResult
		expect       *bool
		expectErrors []string
	}{
		"on":                      {gate: true, expect: ptr.To(true)},
		"on-stored":               {gate: true, old: allocation, expect: ptr.To(true)},
		"on-without-reservedfor":  {gate: true, withoutSpec: true, expect: ptr.To(true), expectErrors: []string{"status.allocation.reservedForAnyPod"}},
		"off-without-reservedfor": {withoutSpec: true},
		"off-with-reservedfor":    {expect: ptr.To(true)},
		"off-stored":              {old: allocation, expect: ptr.To(true)},
		"off-stored-without-spec": {withoutSpec: true, old: allocation, expect: ptr.To(true)},
	} {
		t.Run(name, func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAReservedForWorkloads, tc.gate)
			_, strategy := newStrategies()
			oldClaim := claimForWorkload()
			if tc.withoutSpec {
				oldClaim.Spec.ReservedFor = nil
			}
			newClaim := oldClaim.DeepCopy()
			oldClaim.Status.Allocation = tc.old
			stored := oldClaim.DeepCopy()

			// Sharing a pointer must do no harm.
			newClaim.Status.Allocation = allocation
			strategy.PrepareForUpdate(ctx, newClaim, oldClaim)
			assert.Equal(t, tc.expect, newClaim.Status.Allocation.ReservedForAnyPod)
			assert.Equal(t, stored, oldClaim, "stored claim must not be modified")
			assert.NotNil(t, allocation.ReservedForAnyPod, "shared allocation must not be modified")

			var errorFields []string
			for _, err := range strategy.ValidateUpdate(ctx, newClaim, oldClaim) {
				errorFields = append(errorFields, err.Field)
			}
			assert.Equal(t, tc.expectErrors, errorFields)
		})
	}
}
