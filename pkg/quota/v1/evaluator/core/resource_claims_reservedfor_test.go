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

package core

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	api "k8s.io/kubernetes/pkg/apis/resource"
	"k8s.io/utils/ptr"
)

// TestResourceClaimEvaluatorReservedFor checks that the quota usage of a claim is
// determined by its requests: it doesn't matter whether it is going to be shared
// by all pods of a workload and whether that workload currently uses it.
func TestResourceClaimEvaluatorReservedFor(t *testing.T) {
	job := api.ResourceClaimConsumerReference{APIGroup: "batch", Resource: "jobs", Name: "my-job", UID: "job-uid"}
	claim := &api.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "foo"},
		Spec: api.ResourceClaimSpec{
			Devices:     api.DeviceClaim{Requests: []api.DeviceRequest{deviceRequest("tpu", 4)}},
			ReservedFor: (*api.ResourceClaimWorkloadReference)(&job),
		},
	}
	allocatedClaim := claim.DeepCopy()
	allocatedClaim.Status.Allocation = &api.AllocationResult{ReservedForAnyPod: ptr.To(true)}
	allocatedClaim.Status.ReservedFor = []api.ResourceClaimConsumerReference{job}

	ordinaryClaim := claim.DeepCopy()
	ordinaryClaim.Spec.ReservedFor = nil
	evaluator := newClaimEvaluator()
	want, err := evaluator.Usage(ordinaryClaim)
	if err != nil {
		t.Fatalf("unexpected error: %v", err)
	}
	if count := want[V1ResourceByDeviceClass("tpu")]; count.Value() != 4 {
		t.Fatalf("expected four devices, got usage %v", want)
	}
	for name, claim := range map[string]*api.ResourceClaim{"initial": claim, "allocated": allocatedClaim} {
		t.Run(name, func(t *testing.T) {
			got, err := evaluator.Usage(claim)
			if err != nil {
				t.Fatalf("unexpected error: %v", err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("unexpected usage (-want, +got):\n%s", diff)
			}
		})
	}
}
