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

package api_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	resourceapi "k8s.io/api/resource/v1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	draapiv1beta1 "k8s.io/dynamic-resource-allocation/api/v1beta1"
	draapiv1beta2 "k8s.io/dynamic-resource-allocation/api/v1beta2"
	"k8s.io/utils/ptr"
)

// TestReservedForConversion checks that components which use the v1 API
// through the conversion of this module do not lose the new fields when the
// API server only has an older version.
func TestReservedForConversion(t *testing.T) {
	reference := resourceapi.ResourceClaimConsumerReference{APIGroup: "batch", Resource: "jobs", Name: "training", UID: "1234"}
	for name, claim := range map[string]*resourceapi.ResourceClaim{
		"unset": {
			Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{}},
		},
		"set": {
			Spec: resourceapi.ResourceClaimSpec{ReservedFor: (*resourceapi.ResourceClaimWorkloadReference)(&reference)},
			Status: resourceapi.ResourceClaimStatus{
				Allocation:  &resourceapi.AllocationResult{ReservedForAnyPod: ptr.To(true)},
				ReservedFor: []resourceapi.ResourceClaimConsumerReference{reference},
			},
		},
	} {
		t.Run(name+"/v1beta1", func(t *testing.T) {
			var old resourcev1beta1.ResourceClaim
			if err := draapiv1beta1.Convert_v1_ResourceClaim_To_v1beta1_ResourceClaim(claim.DeepCopy(), &old, nil); err != nil {
				t.Fatalf("unexpected error: %v", err)
			}
			var got resourceapi.ResourceClaim
			if err := draapiv1beta1.Convert_v1beta1_ResourceClaim_To_v1_ResourceClaim(&old, &got, nil); err != nil {
				t.Fatalf("unexpected error: %v", err)
			}
			if diff := cmp.Diff(claim, &got); diff != "" {
				t.Errorf("claim changed (- before, + after):\n%s", diff)
			}
		})
		t.Run(name+"/v1beta2", func(t *testing.T) {
			var old resourcev1beta2.ResourceClaim
			if err := draapiv1beta2.Convert_v1_ResourceClaim_To_v1beta2_ResourceClaim(claim.DeepCopy(), &old, nil); err != nil {
				t.Fatalf("unexpected error: %v", err)
			}
			var got resourceapi.ResourceClaim
			if err := draapiv1beta2.Convert_v1beta2_ResourceClaim_To_v1_ResourceClaim(&old, &got, nil); err != nil {
				t.Fatalf("unexpected error: %v", err)
			}
			if diff := cmp.Diff(claim, &got); diff != "" {
				t.Errorf("claim changed (- before, + after):\n%s", diff)
			}
		})
	}
}
