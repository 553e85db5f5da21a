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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
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

// TestReservedForStoredAnnotations covers annotations that cannot be set, and are stored: the gate was off, or an API
// server of upstream has written them. Everything else can be changed, for instance finalizers.
func TestReservedForStoredAnnotations(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAReservedForWorkloads, true)
	ctx := genericapirequest.NewDefaultContext()
	strategy, _ := newStrategies()
	for key, value := range map[string]string{resourceclaim.ReleaseWhenIdleAnnotation: "soon", resourceclaim.GeneratedForAnnotation: ""} {
		oldClaim := claimForWorkload()
		oldClaim.ResourceVersion = "1"
		oldClaim.Annotations = map[string]string{key: value}
		newClaim := oldClaim.DeepCopy()
		newClaim.Finalizers = []string{"resource.kubernetes.io/delete-protection"}
		strategy.PrepareForUpdate(ctx, newClaim, oldClaim)
		assert.Empty(t, strategy.ValidateUpdate(ctx, newClaim, oldClaim), key)

		newClaim.Annotations = map[string]string{key: value + "er"}
		assert.NotEmpty(t, strategy.ValidateUpdate(ctx, newClaim, oldClaim), "changed %s", key)
		newClaim.ResourceVersion = ""
		newClaim.Annotations = map[string]string{key: value}
		assert.NotEmpty(t, strategy.Validate(ctx, newClaim), "new %s", key)
	}
}

// TestGeneratedForStrategy covers the mark of claims which were generated for several pods: only the
// controller can set it, and only in the claim that it means.
func TestGeneratedForStrategy(t *testing.T) {
	controller := &user.DefaultInfo{Name: "system:serviceaccount:kube-system:resource-claim-controller"}
	generatedFor := resourceclaim.GeneratedFor{GroupResource: schema.GroupResource{Group: "batch", Resource: "jobs"}, Name: "some-job", UID: "1", Template: "template"}
	marked := claimForWorkload()
	marked.Name = generatedFor.ClaimName("entry")
	marked.Annotations = map[string]string{resourceclaim.PodClaimNameAnnotation: "entry", resourceclaim.GeneratedForAnnotation: generatedFor.String()}
	path := "metadata.annotations[" + resourceclaim.GeneratedForAnnotation + "]"

	for name, tc := range map[string]struct {
		user   user.Info
		change func(claim *resource.ResourceClaim)
		expect string
	}{
		"controller":         {user: controller},
		"controller-manager": {user: &user.DefaultInfo{Name: "system:kube-controller-manager"}},
		"privileged":         {user: &user.DefaultInfo{Name: "admin", Groups: []string{"system:masters"}}},
		"tenant":             {user: &user.DefaultInfo{Name: "tenant"}, expect: "may only be set by the ResourceClaim controller"},
		"nobody":             {expect: "may only be set by the ResourceClaim controller"},
		"other-namespace":    {user: &user.DefaultInfo{Name: "system:serviceaccount:tenant:resource-claim-controller"}, expect: "may only be set"},
		"without": {user: &user.DefaultInfo{Name: "tenant"}, change: func(claim *resource.ResourceClaim) {
			delete(claim.Annotations, resourceclaim.GeneratedForAnnotation)
		}},
		"empty": {user: &user.DefaultInfo{Name: "tenant"}, change: func(claim *resource.ResourceClaim) {
			claim.Annotations[resourceclaim.GeneratedForAnnotation] = ""
		}, expect: "may only be set"},
		"invalid": {user: controller, change: func(claim *resource.ResourceClaim) {
			claim.Annotations[resourceclaim.GeneratedForAnnotation] = "jobs"
		}, expect: "in a claim with the name that it computes"},
		// A template has the annotation, and a claim gets generated from it for one pod.
		"copied": {user: controller, change: func(claim *resource.ResourceClaim) { claim.Name = "pod-entry-x7k2p" }, expect: "in a claim with the name that it computes"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := genericapirequest.NewDefaultContext()
			if tc.user != nil {
				ctx = genericapirequest.WithUser(ctx, tc.user)
			}
			strategy, _ := newStrategies()
			claim := marked.DeepCopy()
			claim.ResourceVersion = ""
			if tc.change != nil {
				tc.change(claim)
			}
			strategy.PrepareForCreate(ctx, claim)
			errs := strategy.Validate(ctx, claim)
			if tc.expect == "" {
				require.Empty(t, errs)
				return
			}
			require.NotEmpty(t, errs)
			assert.Equal(t, path, errs[0].Field)
			assert.Contains(t, errs[0].Error(), tc.expect)
		})
	}

	for name, change := range map[string]func(claim *resource.ResourceClaim){
		"removed": func(claim *resource.ResourceClaim) { claim.Annotations = nil },
		"changed": func(claim *resource.ResourceClaim) {
			claim.Annotations[resourceclaim.GeneratedForAnnotation] = "jobs.batch/a/b/c"
		},
	} {
		t.Run(name, func(t *testing.T) {
			// Also by those who could create it.
			ctx := genericapirequest.WithUser(genericapirequest.NewDefaultContext(), controller)
			strategy, _ := newStrategies()
			claim := marked.DeepCopy()
			change(claim)
			strategy.PrepareForUpdate(ctx, claim, marked)
			errs := strategy.ValidateUpdate(ctx, claim, marked)
			require.Len(t, errs, 1)
			assert.Equal(t, path, errs[0].Field)
		})
	}
	ctx := genericapirequest.NewDefaultContext()
	strategy, _ := newStrategies()
	claim := claimForWorkload()
	updated := claim.DeepCopy()
	updated.Annotations = map[string]string{resourceclaim.GeneratedForAnnotation: generatedFor.String()}
	assert.Len(t, strategy.ValidateUpdate(ctx, updated, claim), 1, "added")
	updated = marked.DeepCopy()
	updated.Labels = map[string]string{"some": "label"}
	assert.Empty(t, strategy.ValidateUpdate(ctx, updated, marked))
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
