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

	"github.com/stretchr/testify/assert"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// TestEnqueueClaim checks that a claim gets processed when it was created or
// updated, because pods in its list may be gone already. Processing one that
// is gone would be pointless.
func TestEnqueueClaim(t *testing.T) {
	tCtx := ktesting.Init(t)
	claim := reserveClaim(structuredParameters(testClaimAllocated), testPodWithResource)
	for name, test := range map[string]struct {
		oldObj, newObj interface{}
		expect         []string
	}{
		"added":   {newObj: claim, expect: []string{claimKey(claim)}},
		"updated": {oldObj: testClaim, newObj: claim, expect: []string{claimKey(claim)}},
		"deleted": {oldObj: claim},
	} {
		t.Run(name, func(t *testing.T) {
			ec := startFixesTest(ktesting.Init(t), createTestClient())
			ec.enqueueResourceClaim(tCtx.Logger(), test.oldObj, test.newObj)
			var keys []string
			for ec.queue.Len() > 0 {
				key, _ := ec.queue.Get()
				keys = append(keys, key)
				ec.queue.Done(key)
			}
			assert.Equal(t, test.expect, keys)
		})
	}
}

// TestOtherConsumers checks that a claim can list something other than pods. The
// controller cannot know whether such a consumer still needs the claim, so it
// keeps it. That must not keep it from removing pods which are done, and is no
// reason to try again and again.
func TestOtherConsumers(t *testing.T) {
	other := resourceapi.ResourceClaimConsumerReference{APIGroup: "example.com", Resource: "trainings", Name: "training", UID: "training-uid"}
	donePod := otherTestPod.DeepCopy()
	donePod.Status.Phase = v1.PodSucceeded

	for name, pod := range map[string]*v1.Pod{"without-pod": nil, "with-pod": donePod} {
		for _, otherFirst := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				tCtx := ktesting.Init(t)
				claim := structuredParameters(allocateClaim(newUnownedClaim("shared")))
				if otherFirst {
					claim.Status.ReservedFor = append(claim.Status.ReservedFor, other)
				}
				client := createTestClient()
				if pod != nil {
					claim = reserveClaim(claim, pod)
					tCtx.ExpectNoError(client.Tracker().Add(pod), "add pod")
				}
				if !otherFirst {
					claim.Status.ReservedFor = append(claim.Status.ReservedFor, other)
				}
				tCtx.ExpectNoError(client.Tracker().Add(claim), "add claim")
				ec := startFixesTest(tCtx, client)

				assert.NoError(t, ec.syncHandler(tCtx, claimKey(claim)), "sync claim")
				obj, err := client.Tracker().Get(claimResource, testNamespace, claim.Name)
				tCtx.ExpectNoError(err, "get claim")
				claim = obj.(*resourceapi.ResourceClaim)
				assert.Equal(t, []resourceapi.ResourceClaimConsumerReference{other}, claim.Status.ReservedFor)
				assert.NotNil(t, claim.Status.Allocation, "allocation")
			})
		}
	}
}
