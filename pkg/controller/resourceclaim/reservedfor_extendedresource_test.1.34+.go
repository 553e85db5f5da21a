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

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestDeallocateUnreservedExtendedResource(t *testing.T) {
	type refs = []resourceapi.ResourceClaimConsumerReference

	for name, test := range map[string]deallocateTest{
		"extended-resource-claim": {
			features: workloadsEnabled,
			claim:    anyPodClaim(jobRef),
			created: []runtime.Object{func() *v1.Pod {
				pod := boundPod.DeepCopy()
				pod.Spec.ResourceClaims = nil
				pod.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{ResourceClaimName: sharedClaim}
				return pod
			}()},
			expect:       refs{podReference(boundPod)},
			expectEvents: []string{"Normal ReservationReleased", "Normal ReservationRestored"},
		},
	} {
		t.Run(name, test.run)
	}
}
