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
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/kubernetes/pkg/apis/resource"
	"k8s.io/utils/ptr"
)

// managed returns the entry of a field manager.
func managed(manager string, operation metav1.ManagedFieldsOperationType, subresource string, minute int, fields string) metav1.ManagedFieldsEntry {
	entry := metav1.ManagedFieldsEntry{
		Manager: manager, Operation: operation, Subresource: subresource,
		APIVersion: "resource.k8s.io/v1", FieldsType: "FieldsV1",
		Time: ptr.To(metav1.NewTime(time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC))),
	}
	if fields != "" {
		entry.FieldsV1 = &metav1.FieldsV1{Raw: []byte(fields)}
	}
	return entry
}

// TestReservedForFieldManagers covers what a client leaves behind which does not know the
// fields: whoever managed them still does.
func TestReservedForFieldManagers(t *testing.T) {
	const (
		spec   = `{"f:spec":{"f:reservedFor":{".":{},"f:apiGroup":{},"f:name":{},"f:resource":{}}}}`
		labels = `{"f:metadata":{"f:labels":{".":{},"f:a":{}}}}`
		both   = `{"f:metadata":{"f:labels":{".":{},"f:a":{}}},"f:spec":{"f:reservedFor":{".":{},"f:apiGroup":{},"f:name":{},"f:resource":{}}}}`
		status = `{"f:status":{"f:allocation":{".":{},"f:reservedForAnyPod":{}}}}`
		rest   = `{"f:status":{"f:allocation":{".":{}}}}`
	)
	for name, tc := range map[string]struct {
		old, updated, expect []metav1.ManagedFieldsEntry
	}{
		"not-tracked": {old: []metav1.ManagedFieldsEntry{managed("creator", "Update", "", 1, both)}},
		"kept": {
			old:     []metav1.ManagedFieldsEntry{managed("creator", "Update", "", 1, both)},
			updated: []metav1.ManagedFieldsEntry{managed("creator", "Update", "", 1, labels)},
			expect:  []metav1.ManagedFieldsEntry{managed("creator", "Update", "", 1, both)},
		},
		"gone": {
			old:     []metav1.ManagedFieldsEntry{managed("creator", "Apply", "", 1, spec)},
			updated: []metav1.ManagedFieldsEntry{managed("typed", "Update", "", 2, labels)},
			expect:  []metav1.ManagedFieldsEntry{managed("typed", "Update", "", 2, labels), managed("creator", "Apply", "", 1, spec)},
		},
		"same-manager": {
			old:     []metav1.ManagedFieldsEntry{managed("typed", "Update", "", 1, spec)},
			updated: []metav1.ManagedFieldsEntry{managed("typed", "Update", "", 2, labels)},
			expect:  []metav1.ManagedFieldsEntry{managed("typed", "Update", "", 2, both)},
		},
		"several": {
			old:     []metav1.ManagedFieldsEntry{managed("a", "Apply", "", 1, spec), managed("b", "Update", "", 1, spec), managed("c", "Update", "", 1, labels)},
			updated: []metav1.ManagedFieldsEntry{managed("c", "Update", "", 2, labels)},
			expect:  []metav1.ManagedFieldsEntry{managed("c", "Update", "", 2, labels), managed("a", "Apply", "", 1, spec), managed("b", "Update", "", 1, spec)},
		},
		"status": {
			old:     []metav1.ManagedFieldsEntry{managed("scheduler", "Update", "status", 1, status)},
			updated: []metav1.ManagedFieldsEntry{managed("scheduler", "Update", "status", 1, rest), managed("driver", "Update", "status", 2, labels)},
			expect:  []metav1.ManagedFieldsEntry{managed("scheduler", "Update", "status", 1, status), managed("driver", "Update", "status", 2, labels)},
		},
		"damaged": {
			old:     []metav1.ManagedFieldsEntry{managed("a", "Update", "", 1, "{"), managed("b", "Update", "", 1, ""), managed("c", "Update", "", 1, spec)},
			updated: []metav1.ManagedFieldsEntry{managed("a", "Update", "", 1, "{")},
			expect:  []metav1.ManagedFieldsEntry{managed("a", "Update", "", 1, "{"), managed("c", "Update", "", 1, spec)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			oldClaim := claimForWorkload()
			oldClaim.Status.Allocation = &resource.AllocationResult{ReservedForAnyPod: ptr.To(true)}
			oldClaim.ManagedFields = tc.old
			newClaim := oldClaim.DeepCopy()
			newClaim.Spec.ReservedFor = nil
			newClaim.Status.Allocation.ReservedForAnyPod = nil
			newClaim.ManagedFields = tc.updated
			keepReservedForWorkload(newClaim, oldClaim)
			assert.Equal(t, oldClaim.Spec, newClaim.Spec)
			assert.Equal(t, oldClaim.Status, newClaim.Status)
			assert.Equal(t, tc.expect, newClaim.ManagedFields)
		})
	}
}

// TestReservedForAnyPodKept covers updates of the status by a client which does not know the field.
func TestReservedForAnyPodKept(t *testing.T) {
	ctx := genericapirequest.NewDefaultContext()
	ctx = genericapirequest.WithUser(ctx, &user.DefaultInfo{Name: "some-user"})
	_, strategy := newStrategies()
	oldClaim := claimForWorkload()
	oldClaim.Status.Allocation = &resource.AllocationResult{ReservedForAnyPod: ptr.To(true)}
	stored := oldClaim.DeepCopy()

	typed := oldClaim.DeepCopy()
	typed.Spec.ReservedFor = nil
	typed.Status.Allocation = &resource.AllocationResult{}
	shared := typed.Status.Allocation
	strategy.PrepareForUpdate(ctx, typed, oldClaim)
	assert.Equal(t, stored.Status, typed.Status)
	assert.Equal(t, stored.Spec, typed.Spec)
	assert.Equal(t, stored, oldClaim, "stored claim must not be modified")
	assert.Nil(t, shared.ReservedForAnyPod, "an allocation that may be shared must not be modified")

	deallocated := oldClaim.DeepCopy()
	deallocated.Status = resource.ResourceClaimStatus{}
	strategy.PrepareForUpdate(ctx, deallocated, oldClaim)
	require.Nil(t, deallocated.Status.Allocation)

	changed := oldClaim.DeepCopy()
	changed.Status.Allocation.ReservedForAnyPod = ptr.To(false)
	strategy.PrepareForUpdate(ctx, changed, oldClaim)
	assert.Equal(t, ptr.To(false), changed.Status.Allocation.ReservedForAnyPod, "validation refuses it")

	// An allocation which is not for any pod does not become one.
	oldClaim.Status.Allocation.ReservedForAnyPod = nil
	same := oldClaim.DeepCopy()
	strategy.PrepareForUpdate(ctx, same, oldClaim)
	assert.Nil(t, same.Status.Allocation.ReservedForAnyPod)
}

// TestReservedForSpecFormat covers updates of labels by a client which formats JSON as Go does. Upstream's
// types may have cost it the field, too.
func TestReservedForSpecFormat(t *testing.T) {
	ctx := genericapirequest.WithUser(genericapirequest.NewDefaultContext(), &user.DefaultInfo{Name: "some-user"})
	strategy, _ := newStrategies()
	withParameters := func(parameters string) *resource.ResourceClaim {
		claim := claimForWorkload()
		claim.ResourceVersion = "1"
		claim.Spec.Devices.Config = []resource.DeviceClaimConfiguration{{
			DeviceConfiguration: resource.DeviceConfiguration{Opaque: &resource.OpaqueDeviceConfiguration{
				Driver: "driver.example.com", Parameters: runtime.RawExtension{Raw: []byte(parameters)},
			}},
		}}
		return claim
	}
	for name, tc := range map[string]struct {
		stored, updated string
		refused         bool
	}{
		"same":       {stored: `{"mode": "<fast>"}`, updated: `{"mode": "<fast>"}`},
		"format":     {stored: `{"mode": "<fast>"}`, updated: `{"mode":"\u003cfast\u003e"}`},
		"rounded":    {stored: `{"id": 12345678901234567890}`, updated: `{"id":12345678901234567000}`},
		"other":      {stored: `{"mode": "<fast>"}`, updated: `{"mode":"slow"}`, refused: true},
		"other-type": {stored: `{"id": 1}`, updated: `{"id":"1"}`, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			oldClaim := withParameters(tc.stored)
			stored := oldClaim.DeepCopy()
			newClaim := withParameters(tc.updated)
			newClaim.Labels = map[string]string{"a": "b"}
			newClaim.Spec.ReservedFor = nil
			strategy.PrepareForUpdate(ctx, newClaim, oldClaim)
			assert.Equal(t, tc.refused, len(strategy.ValidateUpdate(ctx, newClaim, oldClaim)) > 0)
			assert.Equal(t, map[string]string{"a": "b"}, newClaim.Labels)
			if !tc.refused {
				assert.Equal(t, stored.Spec, newClaim.Spec)
				newClaim.Spec.Devices.Config[0].Opaque.Parameters.Raw[0] = 'x'
			}
			assert.Equal(t, stored, oldClaim, "stored claim must not be modified")
		})
	}
}
