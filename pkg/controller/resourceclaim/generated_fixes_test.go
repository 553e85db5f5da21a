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
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/ptr"
)

// newGeneratedClaim returns the claim that was created for an entry in a pod's spec.
func newGeneratedClaim(pod *v1.Pod, podClaimName string) *resourceapi.ResourceClaim {
	claim := newUnownedClaim(pod.Name + "-" + podClaimName)
	claim.OwnerReferences = []metav1.OwnerReference{*makeOwnerReference(pod, true)}
	return claim
}

// appliedStatuses returns the entries of each status that the controller applied to a pod: the
// name of the claim by the name of the entry.
func appliedStatuses(tCtx ktesting.TContext, client *fake.Clientset) []map[string]string {
	tCtx.Helper()
	var all []map[string]string
	for _, action := range client.Actions() {
		patch, ok := action.(k8stesting.PatchAction)
		if !ok || patch.GetPatchType() != types.ApplyPatchType {
			continue
		}
		var pod v1.Pod
		tCtx.ExpectNoError(json.Unmarshal(patch.GetPatch(), &pod), "decode applied pod")
		statuses := map[string]string{}
		for _, status := range pod.Status.ResourceClaimStatuses {
			statuses[status.Name] = ptr.Deref(status.ResourceClaimName, "")
		}
		all = append(all, statuses)
	}
	return all
}

// TestKeepClaimStatuses checks that the status which gets applied for one claim of a pod
// has the others, too. The server removes those that are missing.
func TestKeepClaimStatuses(t *testing.T) {
	const generated = "generated" // the name that the server gave to the new claim
	for name, test := range map[string]struct {
		statuses []v1.PodResourceClaimStatus
		exist    []string
		expect   map[string]string
	}{
		"first-exists": {
			statuses: []v1.PodResourceClaimStatus{{Name: "a", ResourceClaimName: ptr.To(testPodName + "-a")}},
			exist:    []string{"a"},
			expect:   map[string]string{"a": testPodName + "-a", "b": generated},
		},
		"second-exists": {
			statuses: []v1.PodResourceClaimStatus{{Name: "b", ResourceClaimName: ptr.To(testPodName + "-b")}},
			exist:    []string{"b"},
			expect:   map[string]string{"a": generated, "b": testPodName + "-b"},
		},
		"one-was-deleted": {
			statuses: []v1.PodResourceClaimStatus{
				{Name: "a", ResourceClaimName: ptr.To(testPodName + "-a")},
				{Name: "b", ResourceClaimName: ptr.To(testPodName + "-b")},
			},
			exist:  []string{"a"},
			expect: map[string]string{"a": testPodName + "-a", "b": generated},
		},
		"entry-without-claim": {
			statuses: []v1.PodResourceClaimStatus{{Name: "a"}},
			expect:   map[string]string{"b": generated},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tCtx := ktesting.Init(t)
			pod := makePod(testPodName, testNamespace, testPodUID,
				v1.PodResourceClaim{Name: "a", ResourceClaimTemplateName: ptr.To(templateName)},
				v1.PodResourceClaim{Name: "b", ResourceClaimTemplateName: ptr.To(templateName)},
			)
			pod.Status.ResourceClaimStatuses = test.statuses
			client := createTestClient(pod, template)
			for _, podClaimName := range test.exist {
				tCtx.ExpectNoError(client.Tracker().Add(newGeneratedClaim(pod, podClaimName)), "add claim")
			}
			ec := startFixesTest(tCtx, client)
			client.ClearActions()

			tCtx.ExpectNoError(ec.syncHandler(tCtx, podKey(pod)), "sync pod")

			applied := appliedStatuses(tCtx, client)
			if assert.Len(t, applied, 1, "applied statuses") {
				for podClaimName, claimName := range test.expect {
					if claimName == generated {
						assert.NotEqual(t, testPodName+"-"+podClaimName, applied[0][podClaimName])
						assert.NotEmpty(t, applied[0][podClaimName])
						delete(test.expect, podClaimName)
						delete(applied[0], podClaimName)
					}
				}
				assert.Equal(t, test.expect, applied[0])
			}
		})
	}
}

// TestTemplateIsNotChanged checks that generating a claim leaves the template in the
// informer's cache as it is. Several workers use it at the same time.
func TestTemplateIsNotChanged(t *testing.T) {
	tCtx := ktesting.Init(t)
	annotated := template.DeepCopy()
	annotated.Spec.Annotations = map[string]string{"example.com/a": "b"}
	client := createTestClient(testPodWithResource, annotated)
	ec := startFixesTest(tCtx, client)

	tCtx.ExpectNoError(ec.syncHandler(tCtx, podKey(testPodWithResource)), "sync pod")

	obj, err := client.Tracker().List(claimResource, resourceapi.SchemeGroupVersion.WithKind("ResourceClaim"), testNamespace)
	tCtx.ExpectNoError(err, "list claims")
	claims := obj.(*resourceapi.ResourceClaimList).Items
	if assert.Len(t, claims, 1) {
		assert.Equal(t, map[string]string{
			"example.com/a":                         "b",
			"resource.kubernetes.io/pod-claim-name": podResourceClaimName,
		}, claims[0].Annotations, "annotations of the claim")
	}
	cached, err := ec.templateLister.ResourceClaimTemplates(testNamespace).Get(templateName)
	tCtx.ExpectNoError(err, "get template")
	assert.Equal(t, map[string]string{"example.com/a": "b"}, cached.Spec.Annotations, "annotations in the cache")
}

// TestClaimUnknownToInformer checks that no second claim is created while the informer does not have
// the one that the pod's status names.
func TestClaimUnknownToInformer(t *testing.T) {
	other := otherTestPod.DeepCopy()
	other.UID = "other-uid"
	for name, test := range map[string]struct {
		owner        *v1.Pod // nil if there is no claim
		getErr       error
		expectNew    bool
		expectErrMsg string
	}{
		"exists":         {owner: testPodWithResource},
		"was-deleted":    {expectNew: true},
		"of-another-pod": {owner: other, expectNew: true},
		"unknown":        {owner: testPodWithResource, getErr: errors.New("fake error"), expectErrMsg: "fake error"},
	} {
		t.Run(name, func(t *testing.T) {
			tCtx := ktesting.Init(t)
			pod := testPodWithResource.DeepCopy()
			stored := newGeneratedClaim(pod, podResourceClaimName)
			pod.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: podResourceClaimName, ResourceClaimName: &stored.Name}}
			client := createTestClient(pod, template)
			// The informer neither lists nor watches the claim.
			client.PrependReactor("get", "resourceclaims", func(k8stesting.Action) (bool, runtime.Object, error) {
				switch {
				case test.getErr != nil:
					return true, nil, test.getErr
				case test.owner == nil:
					return true, nil, apierrors.NewNotFound(claimResource.GroupResource(), stored.Name)
				}
				claim := stored.DeepCopy()
				claim.OwnerReferences = []metav1.OwnerReference{*makeOwnerReference(test.owner, true)}
				return true, claim, nil
			})
			ec := startFixesTest(tCtx, client)
			client.ClearActions()

			err := ec.syncHandler(tCtx, podKey(pod))

			if test.expectErrMsg != "" {
				assert.ErrorContains(t, err, test.expectErrMsg)
			} else {
				assert.NoError(t, err)
			}
			created := 0
			for _, action := range client.Actions() {
				if action.Matches("create", "resourceclaims") {
					created++
				}
			}
			if test.expectNew {
				assert.Equal(t, 1, created, "created claims")
				return
			}
			assert.Zero(t, created, "created claims")
			for _, statuses := range appliedStatuses(tCtx, client) {
				assert.Equal(t, map[string]string{podResourceClaimName: stored.Name}, statuses)
			}
		})
	}
}
