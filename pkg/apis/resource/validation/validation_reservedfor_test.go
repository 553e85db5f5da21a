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

var (
	jobReference = resource.ResourceClaimConsumerReference{APIGroup: "batch", Resource: "jobs", Name: goodName}
	jobWorkload  = resource.ResourceClaimWorkloadReference(jobReference)
)

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
	tooLong := string(field.ErrorTypeTooLong)

	scenarios := map[string]struct {
		ref          *resource.ResourceClaimWorkloadReference
		wantFailures []string
	}{
		"unset":         {},
		"without-uid":   {ref: &jobWorkload},
		"with-uid":      {ref: &resource.ResourceClaimWorkloadReference{APIGroup: "batch", Resource: "jobs", Name: goodName, UID: goodUID}},
		"custom":        {ref: &resource.ResourceClaimWorkloadReference{APIGroup: "jobset.x-k8s.io", Resource: "jobsets", Name: goodName}},
		"core-group":    {ref: &resource.ResourceClaimWorkloadReference{Resource: "replicationcontrollers", Name: goodName}},
		"other-pods":    {ref: &resource.ResourceClaimWorkloadReference{APIGroup: "example.com", Resource: "pods", Name: goodName}},
		"rbac-ish-name": {ref: &resource.ResourceClaimWorkloadReference{APIGroup: "example.com", Resource: "things", Name: "a:B"}},
		"empty": {
			ref:          &resource.ResourceClaimWorkloadReference{},
			wantFailures: []string{required + " spec.reservedFor.resource", required + " spec.reservedFor.name"},
		},
		"no-resource": {
			ref:          &resource.ResourceClaimWorkloadReference{APIGroup: "batch", Name: goodName},
			wantFailures: []string{required + " spec.reservedFor.resource"},
		},
		"no-name": {
			ref:          &resource.ResourceClaimWorkloadReference{APIGroup: "batch", Resource: "jobs"},
			wantFailures: []string{required + " spec.reservedFor.name"},
		},
		"group-with-version": {
			ref:          &resource.ResourceClaimWorkloadReference{APIGroup: "batch/v1", Resource: "jobs", Name: goodName},
			wantFailures: []string{invalid + " spec.reservedFor.apiGroup"},
		},
		"group-upper-case": {
			ref:          &resource.ResourceClaimWorkloadReference{APIGroup: "Batch", Resource: "jobs", Name: goodName},
			wantFailures: []string{invalid + " spec.reservedFor.apiGroup"},
		},
		"subresource": {
			ref:          &resource.ResourceClaimWorkloadReference{APIGroup: "batch", Resource: "jobs/status", Name: goodName},
			wantFailures: []string{invalid + " spec.reservedFor.resource"},
		},
		"kind-instead-of-resource": {
			ref:          &resource.ResourceClaimWorkloadReference{APIGroup: "batch", Resource: "Job", Name: goodName},
			wantFailures: []string{invalid + " spec.reservedFor.resource"},
		},
		"name-with-slash": {
			ref:          &resource.ResourceClaimWorkloadReference{APIGroup: "batch", Resource: "jobs", Name: "ns/name"},
			wantFailures: []string{invalid + " spec.reservedFor.name"},
		},
		"longest": {
			ref: &resource.ResourceClaimWorkloadReference{APIGroup: "batch", Resource: strings.Repeat("j", 63), Name: strings.Repeat("n", 253), UID: types.UID(strings.Repeat("u", 128))},
		},
		"too-long": {
			ref:          &resource.ResourceClaimWorkloadReference{APIGroup: "batch", Resource: "jobs", Name: strings.Repeat("n", 254), UID: types.UID(strings.Repeat("u", 129))},
			wantFailures: []string{tooLong + " spec.reservedFor.name", tooLong + " spec.reservedFor.uid"},
		},
		"pods": {
			ref:          &resource.ResourceClaimWorkloadReference{Resource: "pods", Name: goodName, UID: goodUID},
			wantFailures: []string{invalid + " spec.reservedFor.resource"},
		},
		"pod": {
			ref:          &resource.ResourceClaimWorkloadReference{Resource: "pod", Name: goodName},
			wantFailures: []string{invalid + " spec.reservedFor.resource"},
		},
	}

	for name, scenario := range scenarios {
		t.Run(name, func(t *testing.T) {
			claim := testClaim(goodName, goodNS, validClaimSpec)
			claim.Spec.ReservedFor = scenario.ref
			assert.Equal(t, scenario.wantFailures, failureKeys(ValidateResourceClaim(claim)))

			// A template names no object.
			template := testClaimTemplate(goodName, goodNS, claim.Spec)
			templateFailures := failureKeys(ValidateResourceClaimTemplate(template))
			var want []string
			if scenario.ref != nil {
				if scenario.ref.Name != "" {
					want = append(want, string(field.ErrorTypeForbidden)+" spec.spec.reservedFor.name")
				}
				if scenario.ref.UID != "" {
					want = append(want, string(field.ErrorTypeForbidden)+" spec.spec.reservedFor.uid")
				}
				for _, path := range []string{"resource", "apiGroup"} {
					for _, failure := range scenario.wantFailures {
						if strings.HasSuffix(failure, " spec.reservedFor."+path) && name != "pods" {
							want = append(want, strings.Replace(failure, " spec.", " spec.spec.", 1))
						}
					}
				}
			}
			assert.ElementsMatch(t, want, templateFailures)
		})
	}
}

func TestValidateReservedForWorkloadUpdate(t *testing.T) {
	withReservedFor := testClaim(goodName, goodNS, validClaimSpec)
	withReservedFor.ResourceVersion = "1"
	withReservedFor.Spec.ReservedFor = ptr.To(jobWorkload)
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
		ref          *resource.ResourceClaimWorkloadReference
		deleted      bool
		old, new     status
		wantFailures []string
	}{
		"allocate-for-workload": {
			ref: &jobWorkload,
			new: status{forAnyPod, refs(job)},
		},
		"allocate-for-pod": {
			// An older scheduler ignores spec.reservedFor.
			ref: &jobWorkload,
			new: status{allocation, refs(pod)},
		},
		"release-workload": {
			ref: &jobWorkload,
			old: status{forAnyPod, refs(job)},
			new: status{forAnyPod, nil},
		},
		"deallocate": {
			ref: &jobWorkload,
			old: status{forAnyPod, nil},
		},
		"add-workload-again": {
			ref: &jobWorkload,
			old: status{forAnyPod, nil},
			new: status{forAnyPod, refs(job)},
		},
		"add-workload-while-deleting": {
			ref:          &jobWorkload,
			deleted:      true,
			old:          status{forAnyPod, nil},
			new:          status{forAnyPod, refs(job)},
			wantFailures: []string{forbidden + " status.reservedFor"},
		},
		"mixed-list": {
			ref: &jobWorkload,
			old: status{allocation, refs(pod)},
			new: status{allocation, refs(pod, job)},
		},
		"switch-to-any-pod": {
			ref:          &jobWorkload,
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
			ref:          &jobWorkload,
			old:          status{forAnyPod, nil},
			new:          status{forAnyPod, refs(noUID)},
			wantFailures: []string{string(field.ErrorTypeRequired) + " status.reservedFor[0].uid"},
		},
		"bad-group": {
			ref:          &jobWorkload,
			old:          status{forAnyPod, refs(job)},
			new:          status{forAnyPod, refs(job, badGroup)},
			wantFailures: []string{invalid + " status.reservedFor[1].apiGroup"},
		},
		"bad-resource": {
			ref:          &jobWorkload,
			old:          status{forAnyPod, refs(job)},
			new:          status{forAnyPod, refs(job, badResource)},
			wantFailures: []string{invalid + " status.reservedFor[1].resource"},
		},
		"bad-entry-stored": {
			// Must not get in the way of removing the other one.
			ref: &jobWorkload,
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
	claim.Spec.ReservedFor = &resource.ResourceClaimWorkloadReference{Resource: "pods", Name: goodName}
	for substring, errs := range map[string]field.ErrorList{
		"name the object which controls the pods":          ValidateResourceClaim(claim),
		"create a ResourceClaim and name that in the pods": ValidateResourceClaimTemplate(testClaimTemplate(goodName, goodNS, claim.Spec)),
		"may only be set if `spec.reservedFor` is set":     validateReservedForWorkloadStatus(&resource.ResourceClaim{Status: resource.ResourceClaimStatus{Allocation: &resource.AllocationResult{ReservedForAnyPod: ptr.To(true)}}}, &resource.ResourceClaim{}, field.NewPath("status")),
	} {
		if err := errs.ToAggregate(); err == nil || !strings.Contains(err.Error(), substring) {
			t.Errorf("expected %q, got error: %v", substring, err)
		}
	}
}

// TestReservedForHints checks that somebody who wrote something similar to what was meant is
// told the right words, in the error or, if it is valid, in a warning.
func TestReservedForHints(t *testing.T) {
	for name, scenario := range map[string]struct {
		group, resource string
		wantHint        string
		wantNoWarning   bool
	}{
		"job":          {group: "batch", resource: "jobs", wantNoWarning: true},
		"podgroup":     {group: "scheduling.k8s.io", resource: "podgroups", wantNoWarning: true},
		"singular":     {group: "batch", resource: "job", wantHint: `apiGroup: "batch", resource: "jobs"`},
		"kind":         {group: "batch", resource: "Job", wantHint: `apiGroup: "batch", resource: "jobs"`},
		"version":      {group: "apps/v1", resource: "deployments", wantHint: `apiGroup: "apps", resource: "deployments"`},
		"version-only": {group: "v1", resource: "replicationcontrollers", wantHint: `apiGroup: "", resource: "replicationcontrollers"`},
		"no-group":     {resource: "jobs", wantHint: `apiGroup: "batch", resource: "jobs"`},
		"other-group":  {group: "apps", resource: "jobs", wantHint: `apiGroup: "batch", resource: "jobs"`},
		"qualified":    {resource: "jobs.batch", wantHint: `apiGroup: "batch", resource: "jobs"`},
		"subresource":  {group: "apps", resource: "deployments/scale", wantHint: `apiGroup: "apps", resource: "deployments"`},
		"short-name":   {group: "apps", resource: "sts", wantHint: `apiGroup: "apps", resource: "statefulsets"`},
		"custom":       {group: "jobset.x-k8s.io", resource: "jobsets", wantHint: `"jobsets.jobset.x-k8s.io" is not built into Kubernetes`},
		// Volcano has such a kind.
		"same-name": {group: "batch.volcano.sh", resource: "jobs", wantHint: `"jobs.batch.volcano.sh" is not built into Kubernetes`},
	} {
		t.Run(name, func(t *testing.T) {
			claim := testClaim(goodName, goodNS, validClaimSpec)
			claim.Spec.ReservedFor = &resource.ResourceClaimWorkloadReference{APIGroup: scenario.group, Resource: scenario.resource, Name: goodName}
			var messages []string
			for _, err := range ValidateResourceClaim(claim) {
				messages = append(messages, err.Error())
			}
			if len(messages) == 0 {
				messages = WarningsForReservedFor(claim.Spec.ReservedFor, field.NewPath("spec", "reservedFor"))
			}
			if scenario.wantNoWarning {
				assert.Empty(t, messages)
				return
			}
			if assert.NotEmpty(t, messages) {
				assert.Contains(t, messages[0], scenario.wantHint)
				assert.Contains(t, messages[0], "spec.reservedFor")
			}
		})
	}
	assert.Empty(t, WarningsForReservedFor(nil, nil))
}

func TestValidateReleaseWhenIdle(t *testing.T) {
	const path = "metadata.annotations[resource.kubernetes.io/release-when-idle]"
	invalid := string(field.ErrorTypeInvalid) + " " + path
	claim := func(ref *resource.ResourceClaimWorkloadReference, value *string) *resource.ResourceClaim {
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
		"none":                    {claim: claim(&jobWorkload, nil)},
		"valid":                   {claim: claim(&jobWorkload, ptr.To("10m"))},
		"minimum":                 {claim: claim(&jobWorkload, ptr.To("10s"))},
		"too-short":               {claim: claim(&jobWorkload, ptr.To("9s")), wantFailures: []string{invalid}},
		"negative":                {claim: claim(&jobWorkload, ptr.To("-1h")), wantFailures: []string{invalid}},
		"empty":                   {claim: claim(&jobWorkload, ptr.To("")), wantFailures: []string{invalid}},
		"no-unit":                 {claim: claim(&jobWorkload, ptr.To("600")), wantFailures: []string{invalid}},
		"not-for-workload":        {claim: claim(nil, ptr.To("soon"))},
		"disabled":                {disabled: true, claim: claim(&jobWorkload, ptr.To("soon"))},
		"update-add-valid":        {old: claim(&jobWorkload, nil), claim: claim(&jobWorkload, ptr.To("10m"))},
		"update-add-invalid":      {old: claim(&jobWorkload, nil), claim: claim(&jobWorkload, ptr.To("soon")), wantFailures: []string{invalid}},
		"update-change-invalid":   {old: claim(&jobWorkload, ptr.To("soon")), claim: claim(&jobWorkload, ptr.To("later")), wantFailures: []string{invalid}},
		"update-keep-invalid":     {old: claim(&jobWorkload, ptr.To("soon")), claim: claim(&jobWorkload, ptr.To("soon"))},
		"update-repair":           {old: claim(&jobWorkload, ptr.To("soon")), claim: claim(&jobWorkload, ptr.To("1h"))},
		"update-remove":           {old: claim(&jobWorkload, ptr.To("soon")), claim: claim(&jobWorkload, nil)},
		"update-not-for-workload": {old: claim(nil, nil), claim: claim(nil, ptr.To("soon"))},
		"update-disabled":         {disabled: true, old: claim(&jobWorkload, nil), claim: claim(&jobWorkload, ptr.To("soon"))},
	} {
		t.Run(name, func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DynamicResourceAllocation, true)
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAReservedForWorkloads, !scenario.disabled)
			if scenario.old == nil {
				scenario.claim.ResourceVersion = ""
				assert.Equal(t, scenario.wantFailures, failureKeys(ValidateResourceClaim(scenario.claim)))
				return
			}
			assert.Equal(t, scenario.wantFailures, failureKeys(ValidateResourceClaimUpdate(scenario.claim, scenario.old)))
			// The status can always be updated.
			assert.Empty(t, ValidateResourceClaimStatusUpdate(scenario.claim, scenario.old))
		})
	}
}

// TestValidateReleaseWhenIdleOfClass covers the annotation of a DeviceClass.
func TestValidateReleaseWhenIdleOfClass(t *testing.T) {
	const path = "metadata.annotations[resource.kubernetes.io/release-when-idle]"
	invalid := string(field.ErrorTypeInvalid) + " " + path
	class := func(value string) *resource.DeviceClass {
		class := &resource.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: goodName, ResourceVersion: "1"}}
		if value != "" {
			class.Annotations = map[string]string{resourceclaim.ReleaseWhenIdleAnnotation: value}
		}
		return class
	}
	for name, scenario := range map[string]struct {
		disabled     bool
		old, class   *resource.DeviceClass
		wantFailures []string
	}{
		"none":           {class: class("")},
		"valid":          {class: class("10m")},
		"year":           {class: class("8760h")},
		"no-duration":    {class: class("soon"), wantFailures: []string{invalid}},
		"negative":       {class: class("-1h"), wantFailures: []string{invalid}},
		"too-short":      {class: class("9s"), wantFailures: []string{invalid}},
		"disabled":       {disabled: true, class: class("soon")},
		"update-invalid": {old: class("10m"), class: class("soon"), wantFailures: []string{invalid}},
		"update-keep":    {old: class("soon"), class: class("soon")},
		"update-remove":  {old: class("soon"), class: class("")},
	} {
		t.Run(name, func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DynamicResourceAllocation, true)
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAReservedForWorkloads, !scenario.disabled)
			if scenario.old == nil {
				assert.Equal(t, scenario.wantFailures, failureKeys(ValidateDeviceClass(scenario.class)))
				return
			}
			assert.Equal(t, scenario.wantFailures, failureKeys(ValidateDeviceClassUpdate(scenario.class, scenario.old)))
		})
	}
}
