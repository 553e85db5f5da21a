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
	"github.com/stretchr/testify/require"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/warning"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/kubernetes/pkg/apis/resource"
	"k8s.io/kubernetes/pkg/features"
)

func templateForWorkload() *resource.ResourceClaimTemplate {
	template := obj.DeepCopy()
	template.ResourceVersion = "1"
	template.Spec.Spec.ReservedFor = &resource.ResourceClaimWorkloadReference{APIGroup: "batch", Resource: "jobs"}
	return template
}

// warnings records what the user gets to read.
type warnings []string

func (w *warnings) AddWarning(agent, text string) { *w = append(*w, text) }

// TestReservedForStrategyCreate checks what may be set in spec.spec.reservedFor, and that users are
// told if it is dropped: the template then means something else.
func TestReservedForStrategyCreate(t *testing.T) {
	for name, tc := range map[string]struct {
		gateOff        bool
		change         func(*resource.ResourceClaimTemplate)
		expectErrors   []string
		expectWarnings []string
	}{
		"jobs":             {},
		"gate-off":         {gateOff: true, expectWarnings: []string{"spec.spec.reservedFor was dropped"}},
		"gate-off-without": {gateOff: true, change: func(template *resource.ResourceClaimTemplate) { template.Spec.Spec.ReservedFor = nil }},
		"pods": {change: func(template *resource.ResourceClaimTemplate) {
			template.Spec.Spec.ReservedFor = &resource.ResourceClaimWorkloadReference{Resource: "pods"}
		}},
		"name":     {change: func(template *resource.ResourceClaimTemplate) { template.Spec.Spec.ReservedFor.Name = "job" }, expectErrors: []string{"spec.spec.reservedFor.name"}},
		"uid":      {change: func(template *resource.ResourceClaimTemplate) { template.Spec.Spec.ReservedFor.UID = "1" }, expectErrors: []string{"spec.spec.reservedFor.uid"}},
		"resource": {change: func(template *resource.ResourceClaimTemplate) { template.Spec.Spec.ReservedFor.Resource = "" }, expectErrors: []string{"spec.spec.reservedFor.resource"}},
		"kind": {change: func(template *resource.ResourceClaimTemplate) { template.Spec.Spec.ReservedFor.Resource = "Job" },
			expectErrors: []string{"spec.spec.reservedFor.resource"}, expectWarnings: []string{`did you mean apiGroup: "batch", resource: "jobs"`}},
		"group": {change: func(template *resource.ResourceClaimTemplate) { template.Spec.Spec.ReservedFor.APIGroup = "batch/v1" },
			expectErrors: []string{"spec.spec.reservedFor.apiGroup"}, expectWarnings: []string{`did you mean apiGroup: "batch", resource: "jobs"`}},
		"singular": {change: func(template *resource.ResourceClaimTemplate) { template.Spec.Spec.ReservedFor.Resource = "job" },
			expectWarnings: []string{"The spec of a ResourceClaimTemplate cannot be changed: delete the template"}},
		"custom": {change: func(template *resource.ResourceClaimTemplate) {
			template.Spec.Spec.ReservedFor = &resource.ResourceClaimWorkloadReference{APIGroup: "jobset.x-k8s.io", Resource: "jobsets"}
		}, expectWarnings: []string{"or no claim will be generated"}},
		"idle": {change: func(template *resource.ResourceClaimTemplate) {
			template.Spec.Annotations = map[string]string{resourceclaim.ReleaseWhenIdleAnnotation: "1h"}
		}},
		"invalid-idle": {change: func(template *resource.ResourceClaimTemplate) {
			template.Spec.Annotations = map[string]string{resourceclaim.ReleaseWhenIdleAnnotation: "1d"}
		}, expectErrors: []string{"spec.metadata.annotations[" + resourceclaim.ReleaseWhenIdleAnnotation + "]"}},
		"invalid-idle-without": {change: func(template *resource.ResourceClaimTemplate) {
			template.Spec.Spec.ReservedFor = nil
			template.Spec.Annotations = map[string]string{resourceclaim.ReleaseWhenIdleAnnotation: "1d"}
		}},
		"mark": {change: func(template *resource.ResourceClaimTemplate) {
			template.Spec.Spec.ReservedFor = nil
			template.Spec.Annotations = map[string]string{resourceclaim.GeneratedForAnnotation: "jobs.batch/a/b/c"}
		}, expectErrors: []string{"spec.metadata.annotations[" + resourceclaim.GeneratedForAnnotation + "]"}},
	} {
		t.Run(name, func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAReservedForWorkloads, !tc.gateOff)
			var recorded warnings
			ctx := warning.WithWarningRecorder(genericapirequest.NewDefaultContext(), &recorded)
			strategy := newStrategy()
			template := templateForWorkload()
			template.ResourceVersion = ""
			if tc.change != nil {
				tc.change(template)
			}
			had := template.Spec.Spec.ReservedFor != nil
			strategy.PrepareForCreate(ctx, template)
			assert.Equal(t, had && !tc.gateOff, template.Spec.Spec.ReservedFor != nil)
			var errorFields []string
			for _, err := range strategy.Validate(ctx, template) {
				errorFields = append(errorFields, err.Field)
			}
			assert.Equal(t, tc.expectErrors, errorFields)
			require.Len(t, recorded, len(tc.expectWarnings))
			for i, expect := range tc.expectWarnings {
				assert.Contains(t, recorded[i], expect)
			}
		})
	}
}

// TestReservedForStrategyUpdate checks that an update neither adds the field nor
// takes it away: the spec is immutable, and clients with upstream's types drop it.
func TestReservedForStrategyUpdate(t *testing.T) {
	for name, gate := range map[string]bool{"gate-on": true, "gate-off": false} {
		t.Run(name, func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAReservedForWorkloads, gate)
			ctx := genericapirequest.NewDefaultContext()
			strategy := newStrategy()

			with, without := templateForWorkload(), templateForWorkload()
			with.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: "Update", APIVersion: "resource.k8s.io/v1", FieldsType: "FieldsV1",
				FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:spec":{"f:spec":{"f:reservedFor":{"f:resource":{}}}}}`)}}}
			without.Spec.Spec.ReservedFor = nil
			updated := with.DeepCopy()
			strategy.PrepareForUpdate(ctx, updated, without)
			assert.Equal(t, gate, updated.Spec.Spec.ReservedFor != nil, "set by the update")
			assert.Equal(t, gate, len(strategy.ValidateUpdate(ctx, updated, without)) > 0)

			updated = with.DeepCopy()
			strategy.PrepareForUpdate(ctx, updated, with)
			assert.NotNil(t, updated.Spec.Spec.ReservedFor, "in the stored object")

			updated = without.DeepCopy()
			updated.Labels = map[string]string{"a": "b"}
			updated.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "other", Operation: "Update", APIVersion: "resource.k8s.io/v1", FieldsType: "FieldsV1",
				FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:metadata":{"f:labels":{"f:a":{}}}}`)}}}
			strategy.PrepareForUpdate(ctx, updated, with)
			assert.Equal(t, with.Spec.Spec.ReservedFor, updated.Spec.Spec.ReservedFor, "dropped by a client")
			assert.Empty(t, strategy.ValidateUpdate(ctx, updated, with))
			assert.Equal(t, with.ManagedFields[0], updated.ManagedFields[1])

			// An API server of upstream may have stored the annotation.
			marked := without.DeepCopy()
			marked.Spec.Annotations = map[string]string{resourceclaim.GeneratedForAnnotation: "jobs.batch/a/b/c"}
			updated = marked.DeepCopy()
			updated.Labels = map[string]string{"a": "b"}
			strategy.PrepareForUpdate(ctx, updated, marked)
			assert.Empty(t, strategy.ValidateUpdate(ctx, updated, marked))
			strategy.PrepareForUpdate(ctx, updated, without)
			assert.NotEmpty(t, strategy.ValidateUpdate(ctx, updated, without), "added")
		})
	}
}

// TestReservedForSpecFormat covers updates of labels by a client which formats JSON as Go does.
func TestReservedForSpecFormat(t *testing.T) {
	ctx := genericapirequest.NewDefaultContext()
	strategy := newStrategy()
	withParameters := func(parameters string) *resource.ResourceClaimTemplate {
		template := templateForWorkload()
		template.Spec.Spec.Devices.Config = []resource.DeviceClaimConfiguration{{
			DeviceConfiguration: resource.DeviceConfiguration{Opaque: &resource.OpaqueDeviceConfiguration{
				Driver: "driver.example.com", Parameters: runtime.RawExtension{Raw: []byte(parameters)},
			}},
		}}
		return template
	}
	stored, updated := withParameters(`{"mode": "<fast>"}`), withParameters(`{"mode":"\u003cfast\u003e"}`)
	updated.Labels = map[string]string{"a": "b"}
	strategy.PrepareForUpdate(ctx, updated, stored)
	assert.Empty(t, strategy.ValidateUpdate(ctx, updated, stored))
	assert.Equal(t, stored.Spec, updated.Spec)

	updated = withParameters(`{"mode":"slow"}`)
	strategy.PrepareForUpdate(ctx, updated, stored)
	assert.NotEmpty(t, strategy.ValidateUpdate(ctx, updated, stored))
}
