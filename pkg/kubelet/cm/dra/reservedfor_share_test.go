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

package dra

import (
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// TestReservedForWorkloadReallocatedShare does the same as TestReservedForWorkloadReallocated
// for fields which do not exist in all releases.
func TestReservedForWorkloadReallocatedShare(t *testing.T) {
	for name, tc := range map[string]reallocatedTest{
		"other-share": {
			claim: genWorkloadClaim(func(claim *resourceapi.ResourceClaim) {
				claim.Status.Allocation.Devices.Results[0].ShareID = ptr.To(types.UID("share-1"))
			}),
			newClaim: genWorkloadClaim(func(claim *resourceapi.ResourceClaim) {
				claim.Status.Allocation.Devices.Results[0].ShareID = ptr.To(types.UID("share-2"))
			}),
			wantConflict: true,
		},
		"other-timestamp": {
			claim: genWorkloadClaim(),
			newClaim: genWorkloadClaim(func(claim *resourceapi.ResourceClaim) {
				claim.Status.Allocation.AllocationTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
			}),
		},
	} {
		t.Run(name, tc.run)
	}
}
