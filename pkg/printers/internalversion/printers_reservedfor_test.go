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

package internalversion

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/apis/resource"
	"k8s.io/kubernetes/pkg/printers"
	"k8s.io/utils/ptr"
)

// TestPrintResourceClaimReservedFor covers the states of a claim which gets
// reserved for a workload instead of its pods.
func TestPrintResourceClaimReservedFor(t *testing.T) {
	job := resource.ResourceClaimConsumerReference{APIGroup: "batch", Resource: "jobs", Name: "my-job", UID: "job-uid"}
	allocation := &resource.AllocationResult{ReservedForAnyPod: ptr.To(true)}
	for name, tc := range map[string]struct {
		status resource.ResourceClaimStatus
		want   string
	}{
		"initial": {
			want: "pending",
		},
		"reserved": {
			status: resource.ResourceClaimStatus{
				Allocation:  allocation,
				ReservedFor: []resource.ResourceClaimConsumerReference{job},
			},
			want: "allocated,reserved",
		},
		"released": {
			status: resource.ResourceClaimStatus{
				Allocation: allocation,
			},
			want: "allocated",
		},
	} {
		t.Run(name, func(t *testing.T) {
			claim := &resource.ResourceClaim{
				ObjectMeta: metav1.ObjectMeta{Name: "my-claim"},
				Spec:       resource.ResourceClaimSpec{ReservedFor: (*resource.ResourceClaimWorkloadReference)(&job)},
				Status:     tc.status,
			}
			rows, err := printResourceClaim(claim, printers.GenerateOptions{})
			if err != nil {
				t.Fatalf("unexpected error: %v", err)
			}
			if len(rows) != 1 {
				t.Fatalf("expected one row, got %d", len(rows))
			}
			if diff := cmp.Diff([]any{"my-claim", tc.want, "<unknown>"}, rows[0].Cells); diff != "" {
				t.Errorf("unexpected cells (-want, +got):\n%s", diff)
			}
		})
	}
}
