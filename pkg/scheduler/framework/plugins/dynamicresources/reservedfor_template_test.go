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

package dynamicresources

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/ptr"
)

var generatedFor = resourceclaim.GeneratedFor{GroupResource: schema.GroupResource{Group: "batch", Resource: "jobs"}, Name: jobName, UID: jobUID, Template: "template"}

// asGenerated turns the shared claim into one that was generated for the pods of the Job.
func asGenerated(claim *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	claim = withReservedFor(claim, workloadRefWithUID)
	claim.Name = generatedFor.ClaimName(resourceName)
	claim.Annotations = map[string]string{resourceclaim.GeneratedForAnnotation: generatedFor.String()}
	claim.OwnerReferences = controlledBy(jobKind, jobName, jobUID)
	return claim
}

// newGeneratedPod returns a pod which was told to use that claim.
func newGeneratedPod(name string) *v1.Pod {
	pod := newJobPod(name)
	pod.Spec.ResourceClaims[0].ResourceClaimName, pod.Spec.ResourceClaims[0].ResourceClaimTemplateName = nil, ptr.To(generatedFor.Template)
	pod.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: resourceName, ResourceClaimName: ptr.To(generatedFor.ClaimName(resourceName))}}
	return pod
}

func (t *sharedClaimsTest) generatedClaim() *resourceapi.ResourceClaim {
	t.tCtx.Helper()
	claim, err := t.p.claimClient(namespace).Get(t.tCtx, generatedFor.ClaimName(resourceName), metav1.GetOptions{})
	t.tCtx.ExpectNoError(err, "get generated claim")
	return claim
}

// TestReservedForGenerated covers pods whose claim was generated for all of them: it gets reserved like one that
// they name, without looking at any owner.
func TestReservedForGenerated(t *testing.T) {
	syncTest(t, "", func(tCtx ktesting.TContext) {
		tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{asGenerated(newSharedClaim())})

		// It may use the claim, but not choose the nodes for those others.
		named := newJobPod("named")
		named.Spec.ResourceClaims[0].ResourceClaimName = ptr.To(generatedFor.ClaimName(resourceName))
		_, status := tc.preFilter(named)
		require.Equal(tCtx, fwk.UnschedulableAndUnresolvable, status.Code())
		assert.Contains(tCtx, status.Message(), "waiting until a pod of jobs.batch")

		// Not told to use it.
		stranger := newGeneratedPod("stranger")
		stranger.Spec.ResourceClaims[0].ResourceClaimTemplateName = ptr.To("other")
		_, status = tc.preFilter(stranger)
		require.Equal(tCtx, fwk.UnschedulableAndUnresolvable, status.Code())
		assert.Contains(tCtx, status.Message(), "was not created for Pod")

		first, second := tc.schedule(newGeneratedPod("pod-1")), tc.schedule(newGeneratedPod("pod-2"))
		requireAllBound(tCtx, tc.bindAll([]*podCycle{first, second}))
		assert.Equal(tCtx, []string{"update", "update/status"}, tc.api.takeWrites())
		claim := tc.generatedClaim()
		assert.True(tCtx, resourceclaim.IsReservedForAnyPod(claim))
		assert.Equal(tCtx, []resourceapi.ResourceClaimConsumerReference{workloadRefWithUID}, claim.Status.ReservedFor)
		assert.Zero(tCtx, tc.countGets("jobs"))

		synctest.Wait()
		require.Nil(tCtx, tc.schedule(named).bind(tCtx))
		require.Nil(tCtx, tc.schedule(newGeneratedPod("pod-3")).bind(tCtx))
		assert.Empty(tCtx, tc.api.takeWrites())
	})
}

// TestReservedForGeneratedUnfit ensures that an allocation is kept while pods use it which do not name the
// claim in their spec.
func TestReservedForGeneratedUnfit(t *testing.T) {
	for name, tcase := range map[string]struct {
		pod  *v1.Pod
		keep bool
	}{
		"running": {pod: assigned(newGeneratedPod("running"), nodeName), keep: true},
		"pending": {pod: newGeneratedPod("pending")},
		"done":    {pod: withPhase(assigned(newGeneratedPod("done"), nodeName), v1.PodSucceeded)},
	} {
		syncTest(t, name, func(tCtx ktesting.TContext) {
			claim := asGenerated(newWorkloadClaim(workloadRefWithUID))
			tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{claim}, []apiruntime.Object{tcase.pod}...)
			require.Equal(tCtx, fwk.Unschedulable, tc.cannotFit(newGeneratedPod("pod-1")).Code())
			synctest.Wait()
			assert.Equal(tCtx, tcase.keep, len(tc.generatedClaim().Status.ReservedFor) > 0)
			if !tcase.keep {
				return
			}
			// Its end makes the other one schedulable.
			tCtx.ExpectNoError(tc.client.CoreV1().Pods(namespace).Delete(tCtx, tcase.pod.Name, metav1.DeleteOptions{}))
			synctest.Wait()
			assert.True(tCtx, tc.takeActivated(newGeneratedPod("pod-1")))
		})
	}
}
