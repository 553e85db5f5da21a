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

package validation

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/kubernetes/pkg/apis/resource"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/utils/ptr"
)

const goodUID = types.UID("8c9e4f0e-7f7d-4a3c-8d0c-111111111111")

var jobReference = resource.ResourceClaimConsumerReference{APIGroup: "batch", Resource: "jobs", Name: goodName}

// failureKeys reduces errors to what an API user sees first: what kind of
// problem there is and where.
func failureKeys(errs field.ErrorList) []string {
	var keys []string
	for _, err := range errs {
		keys = append(keys, string(err.Type)+" "+err.Field)
	}
	return keys
}

func TestValidateReservedForWorkload(t *testing.T) {
	invalid := string(field.ErrorTypeInvalid)
	required := string(field.ErrorTypeRequired)

	scenarios := map[string]struct {
		ref          *resource.ResourceClaimConsumerReference
		wantFailures []string
	}{
		"unset":         {},
		"without-uid":   {ref: &jobReference},
		"with-uid":      {ref: &resource.ResourceClaimConsumerReference{APIGroup: "batch", Resource: "jobs", Name: goodName, UID: goodUID}},
		"custom":        {ref: &resource.ResourceClaimConsumerReference{APIGroup: "jobset.x-k8s.io", Resource: "jobsets", Name: goodName}},
		"core-group":    {ref: &resource.ResourceClaimConsumerReference{Resource: "replicationcontrollers", Name: goodName}},
		"other-pods":    {ref: &resource.ResourceClaimConsumerReference{APIGroup: "example.com", Resource: "pods", Name: goodName}},
		"rbac-ish-name": {ref: &resource.ResourceClaimConsumerReference{APIGroup: "example.com", Resource: "things", Name: "a:B"}},
		"empty": {
			ref:          &resource.ResourceClaimConsumerReference{},
			wantFailures: []string{required + " spec.reservedFor.resource", required + " spec.reservedFor.name"},
		},
		"no-resource": {
			ref:          &resource.ResourceClaimConsumerReference{APIGroup: "batch", Name: goodName},
			wantFailures: []string{required + " spec.reservedFor.resource"},
		},
		"no-name": {
			ref:          &resource.ResourceClaimConsumerReference{APIGroup: "batch", Resource: "jobs"},
			wantFailures: []string{required + " spec.reservedFor.name"},
		},
		"group-with-version": {
			ref:          &resource.ResourceClaimConsumerReference{APIGroup: "batch/v1", Resource: "jobs", Name: goodName},
			wantFailures: []string{invalid + " spec.reservedFor.apiGroup"},
		},
		"group-upper-case": {
			ref:          &resource.ResourceClaimConsumerReference{APIGroup: "Batch", Resource: "jobs", Name: goodName},
			wantFailures: []string{invalid + " spec.reservedFor.apiGroup"},
		},
		"subresource": {
			ref:          &resource.ResourceClaimConsumerReference{APIGroup: "batch", Resource: "jobs/status", Name: goodName},
			wantFailures: []string{invalid + " spec.reservedFor.resource"},
		},
		"kind-instead-of-resource": {
			ref:          &resource.ResourceClaimConsumerReference{APIGroup: "batch", Resource: "Job", Name: goodName},
			wantFailures: []string{invalid + " spec.reservedFor.resource"},
		},
		"name-with-slash": {
			ref:          &resource.ResourceClaimConsumerReference{APIGroup: "batch", Resource: "jobs", Name: "ns/name"},
			wantFailures: []string{invalid + " spec.reservedFor.name"},
		},
		"pods": {
			ref:          &resource.ResourceClaimConsumerReference{Resource: "pods", Name: goodName, UID: goodUID},
			wantFailures: []string{invalid + " spec.reservedFor.resource"},
		},
		"pod": {
			ref:          &resource.ResourceClaimConsumerReference{Resource: "pod", Name: goodName},
			wantFailures: []string{invalid + " spec.reservedFor.resource"},
		},
	}

	for name, scenario := range scenarios {
		t.Run(name, func(t *testing.T) {
			claim := testClaim(goodName, goodNS, validClaimSpec)
			claim.Spec.ReservedFor = scenario.ref
			assert.Equal(t, scenario.wantFailures, failureKeys(ValidateResourceClaim(claim)))

			// Not for templates, and for the same reference that always is
			// among the errors.
			template := testClaimTemplate(goodName, goodNS, claim.Spec)
			templateFailures := failureKeys(ValidateResourceClaimTemplate(template))
			forbidden := string(field.ErrorTypeForbidden) + " spec.spec.reservedFor"
			if scenario.ref == nil {
				assert.Empty(t, templateFailures)
			} else {
				assert.Contains(t, templateFailures, forbidden)
				assert.Len(t, templateFailures, len(scenario.wantFailures)+1)
			}
		})
	}
}

func TestValidateReservedForWorkloadUpdate(t *testing.T) {
	withReservedFor := testClaim(goodName, goodNS, validClaimSpec)
	withReservedFor.ResourceVersion = "1"
	withReservedFor.Spec.ReservedFor = ptr.To(jobReference)
	without := withReservedFor.DeepCopy()
	without.Spec.ReservedFor = nil
	other := withReservedFor.DeepCopy()
	other.Spec.ReservedFor.Name = goodName + "-2"
	withUID := withReservedFor.DeepCopy()
	withUID.Spec.ReservedFor.UID = goodUID
	immutable := []string{string(field.ErrorTypeInvalid) + " spec"}

	scenarios := map[string]struct {
		oldClaim, claim *resource.ResourceClaim
		wantFailures    []string
	}{
		"same":    {oldClaim: withReservedFor, claim: withReservedFor},
		"removed": {oldClaim: withReservedFor, claim: without, wantFailures: immutable},
		"added":   {oldClaim: without, claim: withReservedFor, wantFailures: immutable},
		"changed": {oldClaim: withReservedFor, claim: other, wantFailures: immutable},
		"uid-set": {oldClaim: withReservedFor, claim: withUID, wantFailures: immutable},
	}

	for name, scenario := range scenarios {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, scenario.wantFailures, failureKeys(ValidateResourceClaimUpdate(scenario.claim.DeepCopy(), scenario.oldClaim.DeepCopy())))
		})
	}
}

func TestValidateReservedForWorkloadStatusUpdate(t *testing.T) {
	now := metav1.Now()
	forbidden := string(field.ErrorTypeForbidden)
	invalid := string(field.ErrorTypeInvalid)

	allocation := &resource.AllocationResult{
		Devices: resource.DeviceAllocationResult{
			Results: []resource.DeviceRequestAllocationResult{{Request: goodName, Driver: goodName, Pool: goodName, Device: goodName}},
		},
	}
	forAnyPod := allocation.DeepCopy()
	forAnyPod.ReservedForAnyPod = ptr.To(true)
	notForAnyPod := allocation.DeepCopy()
	notForAnyPod.ReservedForAnyPod = ptr.To(false)

	job := jobReference
	job.UID = goodUID
	pod := resource.ResourceClaimConsumerReference{Resource: "pods", Name: goodName, UID: "1"}
	badGroup := resource.ResourceClaimConsumerReference{APIGroup: "No/Group", Resource: "jobs", Name: goodName, UID: "2"}
	badResource := resource.ResourceClaimConsumerReference{APIGroup: "batch", Resource: "jobs/status", Name: goodName, UID: "3"}
	noUID := jobReference

	type status struct {
		allocation  *resource.AllocationResult
		reservedFor []resource.ResourceClaimConsumerReference
	}
	refs := func(refs ...resource.ResourceClaimConsumerReference) []resource.ResourceClaimConsumerReference {
		return refs
	}

	scenarios := map[string]struct {
		ref          *resource.ResourceClaimConsumerReference
		deleted      bool
		old, new     status
		wantFailures []string
	}{
		"allocate-for-workload": {
			ref: &jobReference,
			new: status{forAnyPod, refs(job)},
		},
		"allocate-for-pod": {
			// An older scheduler ignores spec.reservedFor.
			ref: &jobReference,
			new: status{allocation, refs(pod)},
		},
		"release-workload": {
			ref: &jobReference,
			old: status{forAnyPod, refs(job)},
			new: status{forAnyPod, nil},
		},
		"deallocate": {
			ref: &jobReference,
			old: status{forAnyPod, nil},
		},
		"add-workload-again": {
			ref: &jobReference,
			old: status{forAnyPod, nil},
			new: status{forAnyPod, refs(job)},
		},
		"add-workload-while-deleting": {
			ref:          &jobReference,
			deleted:      true,
			old:          status{forAnyPod, nil},
			new:          status{forAnyPod, refs(job)},
			wantFailures: []string{forbidden + " status.reservedFor"},
		},
		"mixed-list": {
			ref: &jobReference,
			old: status{allocation, refs(pod)},
			new: status{allocation, refs(pod, job)},
		},
		"switch-to-any-pod": {
			ref:          &jobReference,
			old:          status{allocation, refs(pod)},
			new:          status{forAnyPod, refs(pod)},
			wantFailures: []string{invalid + " status.allocation"},
		},
		"any-pod-without-spec": {
			new:          status{forAnyPod, refs(job)},
			wantFailures: []string{forbidden + " status.allocation.reservedForAnyPod"},
		},
		"not-any-pod-without-spec": {
			new:          status{notForAnyPod, refs(job)},
			wantFailures: []string{forbidden + " status.allocation.reservedForAnyPod"},
		},
		"no-uid": {
			ref:          &jobReference,
			old:          status{forAnyPod, nil},
			new:          status{forAnyPod, refs(noUID)},
			wantFailures: []string{string(field.ErrorTypeRequired) + " status.reservedFor[0].uid"},
		},
		"bad-group": {
			ref:          &jobReference,
			old:          status{forAnyPod, refs(job)},
			new:          status{forAnyPod, refs(job, badGroup)},
			wantFailures: []string{invalid + " status.reservedFor[1].apiGroup"},
		},
		"bad-resource": {
			ref:          &jobReference,
			old:          status{forAnyPod, refs(job)},
			new:          status{forAnyPod, refs(job, badResource)},
			wantFailures: []string{invalid + " status.reservedFor[1].resource"},
		},
		"bad-entry-stored": {
			// Must not get in the way of removing the other one.
			ref: &jobReference,
			old: status{forAnyPod, refs(job, badResource)},
			new: status{forAnyPod, refs(badResource)},
		},
		"bad-entry-without-spec": {
			// No new rules for claims which do not use the feature.
			old: status{allocation, nil},
			new: status{allocation, refs(badGroup, badResource)},
		},
	}

	for name, scenario := range scenarios {
		t.Run(name, func(t *testing.T) {
			oldClaim := testClaim(goodName, goodNS, validClaimSpec)
			oldClaim.ResourceVersion = "1"
			oldClaim.Spec.ReservedFor = scenario.ref.DeepCopy()
			if scenario.deleted {
				oldClaim.DeletionTimestamp = &now
			}
			claim := oldClaim.DeepCopy()
			oldClaim.Status = resource.ResourceClaimStatus{Allocation: scenario.old.allocation.DeepCopy(), ReservedFor: scenario.old.reservedFor}
			claim.Status = resource.ResourceClaimStatus{Allocation: scenario.new.allocation.DeepCopy(), ReservedFor: scenario.new.reservedFor}
			assert.Equal(t, scenario.wantFailures, failureKeys(ValidateResourceClaimStatusUpdate(claim, oldClaim)))
		})
	}
}

// TestValidateReservedForWorkloadMessages checks that messages tell what to do.
func TestValidateReservedForWorkloadMessages(t *testing.T) {
	claim := testClaim(goodName, goodNS, validClaimSpec)
	claim.Spec.ReservedFor = &resource.ResourceClaimConsumerReference{Resource: "pods", Name: goodName}
	for substring, errs := range map[string]field.ErrorList{
		"name the object which controls the pods":           ValidateResourceClaim(claim),
		"create one ResourceClaim and reference it by name": ValidateResourceClaimTemplate(testClaimTemplate(goodName, goodNS, claim.Spec)),
		"may only be set if `spec.reservedFor` is set":      validateReservedForWorkloadStatus(&resource.ResourceClaim{Status: resource.ResourceClaimStatus{Allocation: &resource.AllocationResult{ReservedForAnyPod: ptr.To(true)}}}, &resource.ResourceClaim{}, field.NewPath("status")),
	} {
		if err := errs.ToAggregate(); err == nil || !strings.Contains(err.Error(), substring) {
			t.Errorf("expected %q, got error: %v", substring, err)
		}
	}
}

func TestValidateReleaseWhenIdle(t *testing.T) {
	const path = "metadata.annotations[resource.kubernetes.io/release-when-idle]"
	invalid := string(field.ErrorTypeInvalid) + " " + path
	claim := func(ref *resource.ResourceClaimConsumerReference, value *string) *resource.ResourceClaim {
		claim := testClaim(goodName, goodNS, validClaimSpec)
		claim.ResourceVersion = "1"
		claim.Spec.ReservedFor = ref
		claim.Annotations = map[string]string{"example.com/other": "value"}
		if value != nil {
			claim.Annotations[resourceclaim.ReleaseWhenIdleAnnotation] = *value
		}
		return claim
	}

	for name, scenario := range map[string]struct {
		disabled     bool
		old          *resource.ResourceClaim
		claim        *resource.ResourceClaim
		wantFailures []string
	}{
		"none":                    {claim: claim(&jobReference, nil)},
		"valid":                   {claim: claim(&jobReference, ptr.To("10m"))},
		"minimum":                 {claim: claim(&jobReference, ptr.To("10s"))},
		"too-short":               {claim: claim(&jobReference, ptr.To("9s")), wantFailures: []string{invalid}},
		"negative":                {claim: claim(&jobReference, ptr.To("-1h")), wantFailures: []string{invalid}},
		"empty":                   {claim: claim(&jobReference, ptr.To("")), wantFailures: []string{invalid}},
		"no-unit":                 {claim: claim(&jobReference, ptr.To("600")), wantFailures: []string{invalid}},
		"not-for-workload":        {claim: claim(nil, ptr.To("soon"))},
		"disabled":                {disabled: true, claim: claim(&jobReference, ptr.To("soon"))},
		"update-add-valid":        {old: claim(&jobReference, nil), claim: claim(&jobReference, ptr.To("10m"))},
		"update-add-invalid":      {old: claim(&jobReference, nil), claim: claim(&jobReference, ptr.To("soon")), wantFailures: []string{invalid}},
		"update-change-invalid":   {old: claim(&jobReference, ptr.To("soon")), claim: claim(&jobReference, ptr.To("later")), wantFailures: []string{invalid}},
		"update-keep-invalid":     {old: claim(&jobReference, ptr.To("soon")), claim: claim(&jobReference, ptr.To("soon"))},
		"update-repair":           {old: claim(&jobReference, ptr.To("soon")), claim: claim(&jobReference, ptr.To("1h"))},
		"update-remove":           {old: claim(&jobReference, ptr.To("soon")), claim: claim(&jobReference, nil)},
		"update-not-for-workload": {old: claim(nil, nil), claim: claim(nil, ptr.To("soon"))},
		"update-disabled":         {disabled: true, old: claim(&jobReference, nil), claim: claim(&jobReference, ptr.To("soon"))},
	} {
		t.Run(name, func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DynamicResourceAllocation, true)
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAReservedForWorkloads, !scenario.disabled)
			if scenario.old == nil {
				assert.Equal(t, scenario.wantFailures, failureKeys(ValidateResourceClaim(scenario.claim)))
				return
			}
			assert.Equal(t, scenario.wantFailures, failureKeys(ValidateResourceClaimUpdate(scenario.claim, scenario.old)))
			// The status can always be updated.
			assert.Empty(t, ValidateResourceClaimStatusUpdate(scenario.claim, scenario.old))
		})
	}
}
