//go:build go1.25

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
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/cache"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// TestBackOff ensures that what failed is tried again soon: what was missing may be there.
func TestBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ec := newQueueTest(t)
		var waited time.Duration
		for range 30 {
			start := time.Now()
			ec.queue.AddRateLimited("pod:a/b")
			key, _ := ec.queue.Get()
			ec.queue.Done(key)
			waited = time.Since(start) // fake time
			require.LessOrEqual(t, waited, maxBackOff)
		}
		assert.Equal(t, maxBackOff, waited)
		assert.LessOrEqual(t, maxBackOff, 20*time.Second)
	})
}

func waitingPod(name string) *v1.Pod {
	pod := testPodWithResource.DeepCopy()
	pod.Name = name
	return pod
}

// expectQueued waits until exactly one key is in the queue.
func expectQueued(tCtx ktesting.TContext, ec *Controller, key string) {
	tCtx.Helper()
	tCtx.ExpectNoError(wait.PollUntilContextTimeout(tCtx, time.Millisecond, wait.ForeverTestTimeout, true, func(context.Context) (bool, error) {
		return ec.queue.Len() > 0, nil
	}), "wait for key")
	got, _ := ec.queue.Get()
	assert.Equal(tCtx, key, got)
	ec.queue.Done(got)
	assert.Zero(tCtx, ec.queue.Len())
}

// TestLacksClaim covers for which pods a claim has to be created.
func TestLacksClaim(t *testing.T) {
	assert.True(t, lacksClaim(testPodWithResource))
	pod := testPodWithResource.DeepCopy()
	pod.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: pod.Spec.ResourceClaims[0].Name}}
	assert.False(t, lacksClaim(pod))
	pod = testPodWithResource.DeepCopy()
	pod.Spec.NodeName = nodeName
	assert.False(t, lacksClaim(pod))
	assert.False(t, lacksClaim(testPod))
}

// TestPresetNode ensures that there is no error about a pod with a node, only because its status has no claim
// yet: retries because of errors are limited for the whole controller. The change of the status is enough.
func TestPresetNode(t *testing.T) {
	tCtx := ktesting.Init(t)
	pod := waitingPod("waiting")
	pod.Spec.NodeName = nodeName
	client := createTestClient(pod, template)
	ec := startFixesTest(tCtx, client)
	tCtx.ExpectNoError(ec.syncHandler(tCtx, podKeyPrefix+testNamespace+"/"+pod.Name))
	got, err := client.CoreV1().Pods(testNamespace).Get(tCtx, pod.Name, metav1.GetOptions{})
	tCtx.ExpectNoError(err)
	assert.Len(t, got.Status.ResourceClaimStatuses, 1)
}

// TestLateLabel ensures that pods without their claim are processed when their namespace gets a label.
func TestLateLabel(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAAdminAccess, true)
	tCtx := ktesting.Init(t)
	namespace := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: testNamespace, Annotations: map[string]string{"a": "b"}}}
	client := createTestClient(waitingPod("waiting"), namespace, template)
	ec := startFixesTest(tCtx, client)
	expectQueued(tCtx, ec, podKeyPrefix+testNamespace+"/waiting")
	watchCtx, cancel := context.WithCancel(tCtx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ec.Run(watchCtx, 0)
	}()
	defer func() {
		cancel()
		<-done
	}()
	tCtx.ExpectNoError(wait.PollUntilContextTimeout(tCtx, time.Millisecond, wait.ForeverTestTimeout, true, func(context.Context) (bool, error) {
		for _, action := range client.Actions() {
			if action.Matches("watch", "namespaces") {
				return true, nil
			}
		}
		return false, nil
	}), "wait for watch")

	namespace = namespace.DeepCopy()
	namespace.ResourceVersion = "2"
	namespace.Annotations = nil
	_, err := client.CoreV1().Namespaces().Update(tCtx, namespace, metav1.UpdateOptions{})
	tCtx.ExpectNoError(err)
	namespace = namespace.DeepCopy()
	namespace.ResourceVersion = "3"
	namespace.Labels = map[string]string{"example.com/admin-access": "true"}
	_, err = client.CoreV1().Namespaces().Update(tCtx, namespace, metav1.UpdateOptions{})
	tCtx.ExpectNoError(err)
	expectQueued(tCtx, ec, podKeyPrefix+testNamespace+"/waiting")
}

// TestLateTemplate ensures the same for a template that was missing.
func TestLateTemplate(t *testing.T) {
	tCtx := ktesting.Init(t)
	client := createTestClient(waitingPod("waiting"))
	ec := startFixesTest(tCtx, client)
	expectQueued(tCtx, ec, podKeyPrefix+testNamespace+"/waiting")
	tCtx.ExpectNoError(client.Tracker().Create(resourceapi.SchemeGroupVersion.WithResource("resourceclaimtemplates"), template, testNamespace))
	expectQueued(tCtx, ec, podKeyPrefix+testNamespace+"/waiting")
}

// TestDeletedGeneratedClaim ensures that a pod whose claim was deleted gets another one, although the controller
// remembers what it has created.
func TestDeletedGeneratedClaim(t *testing.T) {
	tCtx := ktesting.Init(t)
	pod := testPodWithResource.DeepCopy()
	claim := newGeneratedClaim(pod, podResourceClaimName)
	claim.UID = "claim-uid"
	claim.ResourceVersion = "5"
	claim.Annotations = map[string]string{"resource.kubernetes.io/pod-claim-name": podResourceClaimName}
	for name, obj := range map[string]interface{}{
		"deleted": claim,
		"missed":  cache.DeletedFinalStateUnknown{Key: claim.Namespace + "/" + claim.Name, Obj: claim},
	} {
		t.Run(name, func(t *testing.T) {
			ec := startFixesTest(tCtx, createTestClient(pod, template))
			ec.claimCache.Mutation(claim)
			found, err := ec.findPodResourceClaim(pod, pod.Spec.ResourceClaims[0])
			require.NoError(t, err)
			require.NotNil(t, found)

			// Of another incarnation, or nothing at all.
			other := claim.DeepCopy()
			other.UID = "other-uid"
			other.Name = "other"
			ec.forgetDeletedClaim(other)
			ec.forgetDeletedClaim("unknown")
			found, err = ec.findPodResourceClaim(pod, pod.Spec.ResourceClaims[0])
			require.NoError(t, err)
			require.NotNil(t, found)

			ec.forgetDeletedClaim(obj)
			found, err = ec.findPodResourceClaim(pod, pod.Spec.ResourceClaims[0])
			require.NoError(t, err)
			assert.Nil(t, found)
		})
	}

	t.Run("event", func(t *testing.T) {
		client := createTestClient(pod, template, claim)
		ec := startFixesTest(tCtx, client)
		newer := claim.DeepCopy()
		newer.ResourceVersion = "6"
		ec.claimCache.Mutation(newer)
		tCtx.ExpectNoError(wait.PollUntilContextTimeout(tCtx, 10*time.Millisecond, wait.ForeverTestTimeout, true, func(context.Context) (bool, error) {
			// The fake API loses what happens between the list and the watch of an informer.
			if err := client.Tracker().Create(claimResource, claim, claim.Namespace); err != nil && !apierrors.IsAlreadyExists(err) {
				return false, err
			}
			if err := client.Tracker().Delete(claimResource, claim.Namespace, claim.Name); err != nil {
				return false, err
			}
			found, err := ec.findPodResourceClaim(pod, pod.Spec.ResourceClaims[0])
			return found == nil, err
		}), "wait for the claim to be forgotten")
	})
}
