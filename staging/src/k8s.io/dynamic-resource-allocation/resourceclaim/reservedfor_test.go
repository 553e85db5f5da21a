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
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

var (
	podRef = resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: "train", UID: "uid-1"}
	jobRef = resourceapi.ResourceClaimConsumerReference{APIGroup: "batch", Resource: "jobs", Name: "train", UID: "uid-2"}
	// Looks like a pod, but is not one.
	otherPodsRef = resourceapi.ResourceClaimConsumerReference{APIGroup: "example.com", Resource: "pods", Name: "train", UID: "uid-3"}
)

func TestIsPodReference(t *testing.T) {
	assert.True(t, IsPodReference(podRef))
	assert.False(t, IsPodReference(jobRef))
	assert.False(t, IsPodReference(otherPodsRef))
	assert.False(t, IsPodReference(resourceapi.ResourceClaimConsumerReference{}))
}

func TestReservation(t *testing.T) {
	allocated := func(anyPod *bool) *resourceapi.AllocationResult {
		return &resourceapi.AllocationResult{ReservedForAnyPod: anyPod}
	}
	testcases := map[string]struct {
		allocation  *resourceapi.AllocationResult
		reservedFor []resourceapi.ResourceClaimConsumerReference

		expectWorkload        bool
		expectAllocatedForAny bool
		expectReservedForAny  bool
	}{
		"empty": {},
		"ordinary": {
			allocation:  allocated(nil),
			reservedFor: []resourceapi.ResourceClaimConsumerReference{podRef},
		},
		"not-for-any-pod": {
			allocation:     allocated(ptr.To(false)),
			reservedFor:    []resourceapi.ResourceClaimConsumerReference{jobRef},
			expectWorkload: true,
		},
		"workload-without-allocation": {
			reservedFor:    []resourceapi.ResourceClaimConsumerReference{jobRef},
			expectWorkload: true,
		},
		"workload-and-per-pod-allocation": {
			allocation:     allocated(nil),
			reservedFor:    []resourceapi.ResourceClaimConsumerReference{jobRef},
			expectWorkload: true,
		},
		"released": {
			allocation:            allocated(ptr.To(true)),
			expectAllocatedForAny: true,
		},
		"only-pods": {
			allocation:            allocated(ptr.To(true)),
			reservedFor:           []resourceapi.ResourceClaimConsumerReference{podRef},
			expectAllocatedForAny: true,
		},
		"reserved": {
			allocation:            allocated(ptr.To(true)),
			reservedFor:           []resourceapi.ResourceClaimConsumerReference{jobRef},
			expectWorkload:        true,
			expectAllocatedForAny: true,
			expectReservedForAny:  true,
		},
		"mixed": {
			allocation:            allocated(ptr.To(true)),
			reservedFor:           []resourceapi.ResourceClaimConsumerReference{podRef, otherPodsRef},
			expectWorkload:        true,
			expectAllocatedForAny: true,
			expectReservedForAny:  true,
		},
	}
	for name, tc := range testcases {
		t.Run(name, func(t *testing.T) {
			claim := &resourceapi.ResourceClaim{Status: resourceapi.ResourceClaimStatus{Allocation: tc.allocation, ReservedFor: tc.reservedFor}}
			assert.Equal(t, tc.expectWorkload, HasWorkloadReference(claim), "HasWorkloadReference")
			assert.Equal(t, tc.expectAllocatedForAny, IsAllocatedForAnyPod(claim), "IsAllocatedForAnyPod")
			assert.Equal(t, tc.expectReservedForAny, IsReservedForAnyPod(claim), "IsReservedForAnyPod")
		})
	}
}

func TestWorkloadReservation(t *testing.T) {
	withoutUID := jobRef
	withoutUID.UID = ""
	newJobRef := jobRef
	newJobRef.UID = "uid-4"
	otherJobRef := jobRef
	otherJobRef.Name = "eval"
	otherGroupRef := jobRef
	otherGroupRef.APIGroup = "example.com"

	testcases := map[string]struct {
		spec        *resourceapi.ResourceClaimConsumerReference
		reservedFor []resourceapi.ResourceClaimConsumerReference
		expected    *resourceapi.ResourceClaimConsumerReference
	}{
		"unset": {
			reservedFor: []resourceapi.ResourceClaimConsumerReference{jobRef},
		},
		"empty": {
			spec: &withoutUID,
		},
		"listed": {
			spec:        &withoutUID,
			reservedFor: []resourceapi.ResourceClaimConsumerReference{podRef, jobRef},
			expected:    &jobRef,
		},
		"with-uid": {
			spec:        &newJobRef,
			reservedFor: []resourceapi.ResourceClaimConsumerReference{jobRef, newJobRef},
			expected:    &newJobRef,
		},
		"other-incarnation": {
			spec:        &newJobRef,
			reservedFor: []resourceapi.ResourceClaimConsumerReference{jobRef},
		},
		"others": {
			spec:        &withoutUID,
			reservedFor: []resourceapi.ResourceClaimConsumerReference{podRef, otherJobRef, otherGroupRef, otherPodsRef},
		},
	}
	for name, tc := range testcases {
		t.Run(name, func(t *testing.T) {
			claim := &resourceapi.ResourceClaim{
				Spec:   resourceapi.ResourceClaimSpec{ReservedFor: (*resourceapi.ResourceClaimWorkloadReference)(tc.spec)},
				Status: resourceapi.ResourceClaimStatus{ReservedFor: tc.reservedFor},
			}
			assert.Equal(t, tc.expected, WorkloadReservation(claim))
		})
	}
}

func TestIsOwnerReferenceTo(t *testing.T) {
	ref := func(group, resource, name, uid string) resourceapi.ResourceClaimWorkloadReference {
		return resourceapi.ResourceClaimWorkloadReference{APIGroup: group, Resource: resource, Name: name, UID: types.UID(uid)}
	}
	job := metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "uid-1"}
	testcases := map[string]struct {
		owner    metav1.OwnerReference
		ref      resourceapi.ResourceClaimWorkloadReference
		expected bool
	}{
		"job":            {owner: job, ref: ref("batch", "jobs", "train", "uid-1"), expected: true},
		"job-no-uid":     {owner: job, ref: ref("batch", "jobs", "train", ""), expected: true},
		"other-uid":      {owner: metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "uid-2"}, ref: ref("batch", "jobs", "train", "uid-1")},
		"other-name":     {owner: job, ref: ref("batch", "jobs", "eval", "uid-1")},
		"other-group":    {owner: job, ref: ref("example.com", "jobs", "train", "uid-1")},
		"core-group":     {owner: job, ref: ref("", "jobs", "train", "uid-1")},
		"other-resource": {owner: job, ref: ref("batch", "cronjobs", "train", "")},
		"odd-plural":     {owner: metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Ox", Name: "train", UID: "uid-1"}, ref: ref("example.com", "oxen", "train", "uid-1"), expected: true},
		"odd-no-uid":     {owner: metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Ox", Name: "train", UID: "uid-1"}, ref: ref("example.com", "oxen", "train", "")},
		"other-version":  {owner: metav1.OwnerReference{APIVersion: "batch/v2beta1", Kind: "Job", Name: "train", UID: "uid-1"}, ref: ref("batch", "jobs", "train", "uid-1"), expected: true},
		"stateful-set":   {owner: metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "uid-1"}, ref: ref("apps", "statefulsets", "db", "uid-1"), expected: true},
		"core":           {owner: metav1.OwnerReference{APIVersion: "v1", Kind: "ReplicationController", Name: "web", UID: "uid-1"}, ref: ref("", "replicationcontrollers", "web", "uid-1"), expected: true},
		"irregular":      {owner: metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Policy", Name: "p", UID: "uid-1"}, ref: ref("example.com", "policies", "p", "uid-1"), expected: true},
		"bad-version":    {owner: metav1.OwnerReference{APIVersion: "a/b/c", Kind: "Job", Name: "train", UID: "uid-1"}, ref: ref("batch", "jobs", "train", "uid-1")},
		"empty":          {},
	}
	for name, tc := range testcases {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.expected, IsOwnerReferenceTo(tc.owner, tc.ref))
		})
	}
}

func TestFindWorkloadUID(t *testing.T) {
	owner := func(apiVersion, kind, name string) *metav1.OwnerReference {
		return &metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(name + "-uid"), Controller: ptr.To(true)}
	}
	errLookup := errors.New("lookup failed")
	controllers := map[string]*metav1.OwnerReference{
		"cluster": owner("ray.io/v1", "RayJob", "train"),
		"circle":  owner("example.com/v1", "Circle", "circle"),
		"job":     nil,
	}
	controllerOf := func(owner metav1.OwnerReference) (*metav1.OwnerReference, error) {
		controller, ok := controllers[owner.Name]
		if !ok {
			return nil, errLookup
		}
		return controller, nil
	}
	rayJob := resourceapi.ResourceClaimWorkloadReference{APIGroup: "ray.io", Resource: "rayjobs", Name: "train"}
	otherRayJob := rayJob
	otherRayJob.UID = "other"

	testcases := map[string]struct {
		owners  []metav1.OwnerReference
		ref     resourceapi.ResourceClaimWorkloadReference
		wantUID types.UID
		wantErr string
	}{
		"no-owner":         {ref: rayJob},
		"not-a-controller": {owners: []metav1.OwnerReference{{APIVersion: "ray.io/v1", Kind: "RayJob", Name: "train", UID: "train-uid"}}, ref: rayJob},
		"direct":           {owners: []metav1.OwnerReference{*owner("ray.io/v1", "RayJob", "train")}, ref: rayJob, wantUID: "train-uid"},
		"indirect":         {owners: []metav1.OwnerReference{*owner("ray.io/v1", "RayCluster", "cluster")}, ref: rayJob, wantUID: "train-uid"},
		"other-uid":        {owners: []metav1.OwnerReference{*owner("batch/v1", "Job", "job")}, ref: otherRayJob},
		"end-of-chain":     {owners: []metav1.OwnerReference{*owner("batch/v1", "Job", "job")}, ref: rayJob},
		"lookup-fails":     {owners: []metav1.OwnerReference{*owner("batch/v1", "Job", "unknown")}, ref: rayJob, wantErr: errLookup.Error()},
		"circle":           {owners: []metav1.OwnerReference{*owner("example.com/v1", "Circle", "circle")}, ref: rayJob},
	}
	for name, tc := range testcases {
		t.Run(name, func(t *testing.T) {
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod", OwnerReferences: tc.owners}}
			uid, err := FindWorkloadUID(pod, tc.ref, controllerOf)
			if (err != nil || tc.wantErr != "") && (err == nil || err.Error() != tc.wantErr) {
				t.Fatalf("expected error %q, got: %v", tc.wantErr, err)
			}
			if uid != tc.wantUID {
				t.Errorf("expected UID %q, got %q", tc.wantUID, uid)
			}
		})
	}
}
