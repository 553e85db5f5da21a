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
	"k8s.io/kubernetes/test/utils/ktesting"
)

// TestTerminatedPodReservation covers a pod which has terminated, but still
// exists, and whose claim got allocated again for some other pod: reserving the
// claim also for the terminated pod is pointless because that reservation gets
// removed right away. That change of the claim then triggers the next
// reservation, and so on.
func TestTerminatedPodReservation(t *testing.T) {
	for _, phase := range []v1.PodPhase{v1.PodRunning, v1.PodSucceeded, v1.PodFailed} {
		t.Run(string(phase), func(t *testing.T) {
			tCtx := ktesting.Init(t)

			claim := newUnownedClaim("shared")
			claim = structuredParameters(reserveClaim(allocateClaim(claim), otherTestPod))
			pod := makePod(testPodName, testNamespace, testPodUID, v1.PodResourceClaim{Name: podResourceClaimName, ResourceClaimName: &claim.Name})
			pod.Spec.NodeName = nodeName
			pod.Status.Phase = phase

			client := createTestClient(pod, otherTestPod, claim)
			ec := startFixesTest(tCtx, client)

			expectWork := phase == v1.PodRunning
			if needsWork, reason := ec.podNeedsWork(pod); needsWork != expectWork {
				t.Errorf("expected podNeedsWork to return %v, got %v: %s", expectWork, needsWork, reason)
			}

			tCtx.ExpectNoError(ec.syncHandler(tCtx, podKey(pod)), "sync pod")
			obj, err := client.Tracker().Get(claimResource, testNamespace, claim.Name)
			tCtx.ExpectNoError(err, "get claim")
			claim = obj.(*resourceapi.ResourceClaim)
			reserved := false
			for _, ref := range claim.Status.ReservedFor {
				if ref == (resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID}) {
					reserved = true
				}
			}
			if reserved != expectWork {
				t.Errorf("expected claim to be reserved for pod: %v, got: %v", expectWork, claim.Status.ReservedFor)
			}
		})
	}
}

// TestTerminatedPodClaimCreation covers a pod which has terminated, but still
// exists, after its generated claim got removed because of that: creating
// another one leads to that one getting removed, and so on.
func TestTerminatedPodClaimCreation(t *testing.T) {
	for _, phase := range []v1.PodPhase{v1.PodPending, v1.PodSucceeded, v1.PodFailed} {
		t.Run(string(phase), func(t *testing.T) {
			tCtx := ktesting.Init(t)

			pod := testPodWithNodeName.DeepCopy()
			pod.Status.Phase = phase

			client := createTestClient(pod, template)
			ec := startFixesTest(tCtx, client)

			expectWork := phase == v1.PodPending
			if needsWork, reason := ec.podNeedsWork(pod); needsWork != expectWork {
				t.Errorf("expected podNeedsWork to return %v, got %v: %s", expectWork, needsWork, reason)
			}

			tCtx.ExpectNoError(ec.syncHandler(tCtx, podKey(pod)), "sync pod")
			obj, err := client.Tracker().List(claimResource, resourceapi.SchemeGroupVersion.WithKind("ResourceClaim"), testNamespace)
			tCtx.ExpectNoError(err, "list claims")
			claims := obj.(*resourceapi.ResourceClaimList)
			if created := len(claims.Items) > 0; created != expectWork {
				t.Errorf("expected claim to be created: %v, got: %v", expectWork, claims.Items)
			}
		})
	}
}
