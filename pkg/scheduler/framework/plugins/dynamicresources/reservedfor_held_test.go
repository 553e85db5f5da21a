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
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	fwk "k8s.io/kube-scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/ptr"
)

// newHeldClaim returns a claim which is allocated for the job and holds all devices.
func newHeldClaim(name string, changes ...func(claim *resourceapi.ResourceClaim)) *resourceapi.ResourceClaim {
	claim := newWorkloadClaim(workloadRefWithUID)
	claim.Name = name
	second := *claim.Status.Allocation.Devices.Results[0].DeepCopy()
	second.Pool = node2Name
	claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results, second)
	for _, change := range changes {
		change(claim)
	}
	return claim
}

// newUserOf returns a pod on a node which uses the claim.
func newUserOf(claimName string) *v1.Pod {
	pod := assigned(newJobPod("user"), nodeName)
	// The API server gives it one.
	pod.UID = ""
	pod.Spec.ResourceClaims[0].ResourceClaimName = ptr.To(claimName)
	return pod
}

// explanation tries to schedule a pod with another claim, for which there are no devices. It returns what the
// pod is told in addition.
func (t *sharedClaimsTest) explanation() string {
	t.tCtx.Helper()
	pod := newSharingPod("waiting")
	cycle, status := t.preFilter(pod)
	require.Nil(t.tCtx, status)
	require.Empty(t.tCtx, cycle.filter())
	_, status = t.p.PostFilter(t.tCtx, cycle.state, cycle.pod, nil)
	require.Equal(t.tCtx, fwk.Unschedulable, status.Code())
	reasons := status.Reasons()
	if len(reasons) == 0 || reasons[len(reasons)-1] == "still not schedulable" {
		return ""
	}
	return reasons[len(reasons)-1]
}

// TestReservedForHeld covers what a pod is told about claims which hold the devices that it waits for.
func TestReservedForHeld(t *testing.T) {
	const start = "2000-01-01T00:00:00Z"
	explain := func(n int, claims string) string {
		return fmt.Sprintf("devices of DeviceClass %s are held by %d resourceclaim(s) that no pod uses (%s): the end of the workload frees them, or the annotation %s of such a claim or of the DeviceClass", className, n, claims, resourceclaim.ReleaseWhenIdleAnnotation)
	}
	elsewhere := func(claim *resourceapi.ResourceClaim) { claim.Namespace = "other" }
	for name, tcase := range map[string]struct {
		claims []*resourceapi.ResourceClaim
		pods   []apiruntime.Object
		off    bool
		expect string
	}{
		"unused": {
			claims: []*resourceapi.ResourceClaim{newHeldClaim("held")},
			expect: explain(1, `held for jobs.batch "train", not used since `+start),
		},
		"annotation": {
			claims: []*resourceapi.ResourceClaim{newHeldClaim("held", func(claim *resourceapi.ResourceClaim) {
				claim.Annotations = map[string]string{resourceclaim.ReleaseWhenIdleAnnotation: "90m"}
			})},
			expect: explain(1, `held for jobs.batch "train", not used since `+start+` and free after 1h30m0s`),
		},
		// Its name is none of the pod's business.
		"other-namespace": {
			claims: []*resourceapi.ResourceClaim{newHeldClaim("held", elsewhere)},
			expect: explain(1, `1 in other namespaces`),
		},
		"many": {
			claims: []*resourceapi.ResourceClaim{newHeldClaim("e"), newHeldClaim("d"), newHeldClaim("c"), newHeldClaim("b"), newHeldClaim("a"), newHeldClaim("f", elsewhere)},
			expect: explain(6, `a for jobs.batch "train", not used since `+start+`; b for jobs.batch "train", not used since `+start+`; c for jobs.batch "train", not used since `+start+`; 2 more in this namespace; 1 in other namespaces`),
		},
		"used":     {claims: []*resourceapi.ResourceClaim{newHeldClaim("held")}, pods: []apiruntime.Object{newUserOf("held")}},
		"finished": {claims: []*resourceapi.ResourceClaim{newHeldClaim("held")}, pods: []apiruntime.Object{withPhase(newUserOf("held"), v1.PodSucceeded)}, expect: explain(1, `held for jobs.batch "train", not used since `+start)},
		"released": {claims: []*resourceapi.ResourceClaim{newHeldClaim("held", func(claim *resourceapi.ResourceClaim) { claim.Status.ReservedFor = nil })}},
		"for-pods": {claims: []*resourceapi.ResourceClaim{newHeldClaim("held", func(claim *resourceapi.ResourceClaim) {
			claim.Spec.ReservedFor, claim.Status.Allocation.ReservedForAnyPod = nil, nil
			claim.Status.ReservedFor = podReferences(1)
		})}},
		"other-class": {claims: []*resourceapi.ResourceClaim{newHeldClaim("held", func(claim *resourceapi.ResourceClaim) {
			claim.Spec.Devices.Requests = st.MakeResourceClaim().Request("other-class").Obj().Spec.Devices.Requests
		})}},
		"off": {claims: []*resourceapi.ResourceClaim{newHeldClaim("held")}, off: true},
	} {
		syncTest(t, name, func(tCtx ktesting.TContext) {
			tc := newReservedForTest(tCtx, reservedForFeatures(!tcase.off), append(tcase.claims, newSharedClaim()), tcase.pods...)
			// The pod that uses a claim may not be in the cache yet.
			require.Empty(tCtx, tc.explanation())
			for range 2 {
				time.Sleep(heldInterval)
				require.Equal(tCtx, tcase.expect, tc.explanation())
			}
		})
	}

	// What happens between two looks at all claims is not missed.
	syncTest(t, "changes", func(tCtx ktesting.TContext) {
		tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{newHeldClaim("held"), newSharedClaim()})
		pods := tc.client.CoreV1().Pods(namespace)
		user, err := pods.Create(tCtx, newUserOf("held"), metav1.CreateOptions{})
		tCtx.ExpectNoError(err)
		synctest.Wait()
		require.Empty(tCtx, tc.explanation())
		time.Sleep(time.Second)
		for i := range 2 {
			// Only the first one is about a pod that has not ended already.
			user.Status.Phase, user.Status.Message = v1.PodSucceeded, fmt.Sprint(i)
			user, err = pods.UpdateStatus(tCtx, user, metav1.UpdateOptions{})
			tCtx.ExpectNoError(err)
			synctest.Wait()
			require.Equal(tCtx, explain(1, `held for jobs.batch "train", not used since 2000-01-01T00:00:01Z`), tc.explanation())
			time.Sleep(time.Second)
		}
		tCtx.ExpectNoError(pods.Delete(tCtx, user.Name, metav1.DeleteOptions{}))
		synctest.Wait()
		require.Equal(tCtx, explain(1, `held for jobs.batch "train", not used since 2000-01-01T00:00:01Z`), tc.explanation())

		again := newUserOf("held")
		again.Spec.NodeName = ""
		again, err = pods.Create(tCtx, again, metav1.CreateOptions{})
		tCtx.ExpectNoError(err)
		synctest.Wait()
		require.NotEmpty(tCtx, tc.explanation(), "the pod is not bound yet")
		again.Spec.NodeName = nodeName
		again, err = pods.Update(tCtx, again, metav1.UpdateOptions{})
		tCtx.ExpectNoError(err)
		synctest.Wait()
		require.Empty(tCtx, tc.p.heldClaims.unused)
		require.Empty(tCtx, tc.explanation())
		tCtx.ExpectNoError(pods.Delete(tCtx, again.Name, metav1.DeleteOptions{}))
		synctest.Wait()
		require.Equal(tCtx, explain(1, `held for jobs.batch "train", not used since 2000-01-01T00:00:03Z`), tc.explanation())
	})

	syncTest(t, "bounded", func(tCtx ktesting.TContext) {
		tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{newHeldClaim("held"), newSharedClaim()})
		held := &tc.p.heldClaims
		for i := range 10 * minUnfitClaims {
			held.ended(tc.p, namespace, "held")
			require.LessOrEqual(tCtx, len(held.unused), minUnfitClaims+1)
			// Claims which are gone.
			held.unused[types.UID(fmt.Sprint(i))] = time.Now()
		}
		require.Equal(tCtx, 1, held.byClass[className].total)
	})
}
