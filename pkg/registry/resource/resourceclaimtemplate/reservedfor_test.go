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

package resourceclaimtemplate

import (
	"testing"

	"github.com/stretchr/testify/assert"

	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/apis/resource"
	"k8s.io/kubernetes/pkg/features"
)

func templateForWorkload() *resource.ResourceClaimTemplate {
	template := obj.DeepCopy()
	template.ResourceVersion = "1"
	template.Spec.Spec.ReservedFor = &resource.ResourceClaimWorkloadReference{APIGroup: "batch", Resource: "jobs", Name: "some-job"}
	return template
}

// TestReservedForStrategyCreate checks that spec.spec.reservedFor, which no
// template may have, is refused, or is dropped like any other field that the API
// server does not know when the feature is disabled.
func TestReservedForStrategyCreate(t *testing.T) {
	for name, tc := range map[string]struct {
		gate         bool
		expectErrors []string
	}{
		"gate-on":  {gate: true, expectErrors: []string{"spec.spec.reservedFor"}},
		"gate-off": {},
	} {
		t.Run(name, func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAReservedForWorkloads, tc.gate)
			ctx := genericapirequest.NewDefaultContext()
			strategy := newStrategy()
			template := templateForWorkload()
			strategy.PrepareForCreate(ctx, template)
			assert.Equal(t, tc.gate, template.Spec.Spec.ReservedFor != nil)
			var errorFields []string
			for _, err := range strategy.Validate(ctx, template) {
				errorFields = append(errorFields, err.Field)
			}
			assert.Equal(t, tc.expectErrors, errorFields)
		})
	}
}

// TestReservedForStrategyUpdate checks that an update neither adds the field nor
// takes it away: the spec is immutable.
func TestReservedForStrategyUpdate(t *testing.T) {
	for name, gate := range map[string]bool{"gate-on": true, "gate-off": false} {
		t.Run(name, func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAReservedForWorkloads, gate)
			ctx := genericapirequest.NewDefaultContext()
			strategy := newStrategy()

			with, without := templateForWorkload(), templateForWorkload()
			without.Spec.Spec.ReservedFor = nil
			updated := with.DeepCopy()
			strategy.PrepareForUpdate(ctx, updated, without)
			assert.Equal(t, gate, updated.Spec.Spec.ReservedFor != nil, "set by the update")
			assert.Equal(t, gate, len(strategy.ValidateUpdate(ctx, updated, without)) > 0)

			updated = with.DeepCopy()
			strategy.PrepareForUpdate(ctx, updated, with)
			assert.NotNil(t, updated.Spec.Spec.ReservedFor, "in the stored object")
		})
	}
}
