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
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	cgotesting "k8s.io/client-go/testing"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultbinder"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/queuesort"
	"k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/ptr"
)

// TestPluginReservedForWorkloads ensures that the feature does not affect claims which don't
// use it, including those for extended resources.
func TestPluginReservedForWorkloads(t *testing.T) {
	pluginTestGates = feature.Carried{EnableDRASharedClaims: true, EnableDRAReservedForWorkloads: true}
	defer func() { pluginTestGates = feature.Carried{} }()
	// In a sub-test because that ends when everything that runs in parallel has ended.
	t.Run("plugin", TestPlugin)
}

var (
	jobKind        = batchv1.SchemeGroupVersion.WithKind("Job")
	replicaSetKind = appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
	deploymentKind = appsv1.SchemeGroupVersion.WithKind("Deployment")
	jobSetKind     = schema.GroupVersionKind{Group: "jobset.x-k8s.io", Version: "v1alpha2", Kind: "JobSet"}

	jobName = "train"
	jobUID  = types.UID("train-uid")

	// workloadRef is what goes into the spec, workloadRefWithUID into the status.
	workloadRef        = resourceapi.ResourceClaimConsumerReference{APIGroup: "batch", Resource: "jobs", Name: jobName}
	workloadRefWithUID = func() resourceapi.ResourceClaimConsumerReference {
		ref := workloadRef
		ref.UID = jobUID
		return ref
	}()
)

func reservedForFeatures(enabled bool) feature.Features {
	feats := sharedClaimsFeatures()
	feats.EnableDRAReservedForWorkloads = enabled
	return feats
}

func withReservedFor(claim *resourceapi.ResourceClaim, ref resourceapi.ResourceClaimConsumerReference) *resourceapi.ResourceClaim {
	claim = claim.DeepCopy()
	claim.Spec.ReservedFor = (*resourceapi.ResourceClaimWorkloadReference)(&ref)
	return claim
}

// newWorkloadClaim returns a claim which is allocated for any pod of the job.
func newWorkloadClaim(refs ...resourceapi.ResourceClaimConsumerReference) *resourceapi.ResourceClaim {
	claim := withReservedFor(newAllocatedSharedClaim(refs...), workloadRef)
	claim.Status.Allocation.ReservedForAnyPod = ptr.To(true)
	return claim
}

func controlledBy(gvk schema.GroupVersionKind, name string, uid types.UID) []metav1.OwnerReference {
	apiVersion, kind := gvk.ToAPIVersionAndKind()
	return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: uid, Controller: ptr.To(true)}}
}

func newPodOf(name string, owners []metav1.OwnerReference) *v1.Pod {
	pod := newSharingPod(name)
	pod.OwnerReferences = owners
	return pod
}

func newJobPod(name string) *v1.Pod {
	return newPodOf(name, controlledBy(jobKind, jobName, jobUID))
}

func podReference(name string) resourceapi.ResourceClaimConsumerReference {
	return resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: name, UID: types.UID(name)}
}

// clientOwnerReader gets owners with the client of the test.
type clientOwnerReader struct {
	client kubernetes.Interface
	// custom has objects which the client does not know.
	custom map[schema.GroupKind]metav1.Object

	mutex sync.Mutex
	err   error
}

// setErr makes lookups fail, or work again if err is nil.
func (r *clientOwnerReader) setErr(err error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.err = err
}

func (r *clientOwnerReader) getErr() error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.err
}

func (r *clientOwnerReader) get(ctx context.Context, namespace string, gvk schema.GroupVersionKind, name string) (metav1.Object, error) {
	if err := r.getErr(); err != nil {
		return nil, err
	}
	switch gvk.GroupKind() {
	case jobKind.GroupKind():
		return r.client.BatchV1().Jobs(namespace).Get(ctx, name, metav1.GetOptions{})
	case replicaSetKind.GroupKind():
		return r.client.AppsV1().ReplicaSets(namespace).Get(ctx, name, metav1.GetOptions{})
	}
	if obj := r.custom[gvk.GroupKind()]; obj != nil {
		if obj.GetName() != name || obj.GetNamespace() != namespace {
			return nil, apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, name)
		}
		return obj, nil
	}
	return nil, nil
}

// newReservedForTest enables access to the owners of pods.
func newReservedForTest(tCtx ktesting.TContext, feats feature.Features, claims []*resourceapi.ResourceClaim, objs ...apiruntime.Object) *sharedClaimsTest {
	tCtx.Helper()
	tc := newSharedClaimsTest(tCtx, feats, claims, objs...)
	if tc.p.owners != nil {
		tc.p.owners.reader = &clientOwnerReader{client: tc.client}
		tc.p.owners.activate = func(pods map[string]*v1.Pod) { tc.Activate(tCtx.Logger(), pods) }
	}
	return tc
}

func (t *sharedClaimsTest) countGets(resource string) int {
	return len(slices.DeleteFunc(slices.Clone(t.client.Actions()), func(action cgotesting.Action) bool {
		return !action.Matches("get", resource)
	}))
}

// TestReservedForFirstPods covers pods which use a claim that still needs to be allocated.
func TestReservedForFirstPods(t *testing.T) {
	syncTest(t, "one-pod", func(tCtx ktesting.TContext) {
		tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{withReservedFor(newSharedClaim(), workloadRef)})
		cycle := tc.schedule(newJobPod("pod-1"))

		// Must be set before anyone else sees the allocation.
		pending := tc.p.pendingAllocations().GetPendingAllocation(tc.claim().UID)
		require.NotNil(tCtx, pending)
		assert.True(tCtx, ptr.Deref(pending.ReservedForAnyPod, false))
		pendingBefore := pending.DeepCopy()

		require.Nil(tCtx, cycle.bind(tCtx))
		assert.Equal(tCtx, []string{"update", "update/status"}, tc.api.takeWrites())
		claim := tc.claim()
		assert.True(tCtx, resourceclaim.IsReservedForAnyPod(claim))
		assert.Equal(tCtx, []resourceapi.ResourceClaimConsumerReference{workloadRefWithUID}, claim.Status.ReservedFor)
		assert.Empty(tCtx, tc.listInFlightClaims())
		assert.Equal(tCtx, pendingBefore, pending, "shared with readers, must not be modified")

		// Nothing at all for the next ones, whether they belong to the job or not.
		for _, pod := range []*v1.Pod{newJobPod("pod-2"), newSharingPod("unrelated")} {
			cycle := tc.schedule(pod)
			assert.Equal(tCtx, hasPreBindPreFlight, cycle.preBindPreFlight(tCtx).IsSkip())
			// Only called if the preflight isn't called, but does not matter.
			require.Nil(tCtx, tc.p.PreBind(tCtx, cycle.state, cycle.pod, nodeName))
			assert.Empty(tCtx, tc.api.takeWrites())
			// Not removed, others use it.
			cycle.unreserve()
			assert.Empty(tCtx, tc.api.takeWrites())
		}
		cycle.unreserve()
		assert.Empty(tCtx, tc.api.takeWrites())
		assert.Equal(tCtx, []string{jobName}, tc.reservedFor())
	})

	for _, numPods := range []int{2, 300, 1000} {
		syncTest(t, fmt.Sprintf("%d-pods-at-once", numPods), func(tCtx ktesting.TContext) {
			tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{withReservedFor(newSharedClaim(), workloadRef)})
			var cycles []*podCycle
			for i := range numPods {
				cycles = append(cycles, tc.schedule(newJobPod(fmt.Sprintf("pod-%d", i))))
			}
			requireAllBound(tCtx, tc.bindAll(cycles))
			assert.Equal(tCtx, []string{"update", "update/status"}, tc.api.takeWrites())
			assert.Equal(tCtx, []string{jobName}, tc.reservedFor())
			assert.Empty(tCtx, tc.listInFlightClaims())
		})
	}

	// Pods which were scheduled before the allocation was stored, but
	// get bound after it.
	syncTest(t, "stored-before-preflight", func(tCtx ktesting.TContext) {
		tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{withReservedFor(newSharedClaim(), workloadRef)})
		first := tc.schedule(newJobPod("pod-1"))
		second := tc.schedule(newJobPod("pod-2"))
		assert.False(tCtx, second.preBindPreFlight(tCtx).IsSkip())
		require.Nil(tCtx, first.bind(tCtx))
		tc.api.takeWrites()
		assert.Equal(tCtx, hasPreBindPreFlight, second.preBindPreFlight(tCtx).IsSkip())
		require.Nil(tCtx, second.bind(tCtx))
		second.unreserve()
		assert.Empty(tCtx, tc.api.takeWrites())
	})

	syncTest(t, "first-pod-fails", func(tCtx ktesting.TContext) {
		tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{withReservedFor(newSharedClaim(), workloadRef)})
		first := tc.schedule(newJobPod("pod-1"))
		second := tc.schedule(newJobPod("pod-2"))
		tc.api.before = func(string, *resourceapi.ResourceClaim) error { return errors.New("fake API failure") }
		require.ErrorContains(tCtx, first.bind(tCtx).AsError(), "fake API failure")
		tc.api.before = nil
		require.Nil(tCtx, second.bind(tCtx))
		assert.Equal(tCtx, []string{jobName}, tc.reservedFor())
		assert.True(tCtx, resourceclaim.IsReservedForAnyPod(tc.claim()))
	})

	syncTest(t, "first-pod-fails-after-storing", func(tCtx ktesting.TContext) {
		tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{withReservedFor(newSharedClaim(), workloadRef)})
		first := tc.schedule(newJobPod("pod-1"))
		second := tc.schedule(newJobPod("pod-2"))
		require.Nil(tCtx, first.bind(tCtx))
		first.unreserve()
		assert.Equal(tCtx, []string{jobName}, tc.reservedFor())
		tc.api.takeWrites()
		require.Nil(tCtx, second.bind(tCtx))
		assert.Empty(tCtx, tc.api.takeWrites())
	})

	// Two schedulers, or an old and a new leader.
	syncTest(t, "other-scheduler", func(tCtx ktesting.TContext) {
		for name, tcase := range map[string]struct {
			device    string
			expectErr string
		}{
			"same-device":  {device: "instance-1"},
			"other-device": {device: "instance-2", expectErr: "got allocated elsewhere"},
		} {
			tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{withReservedFor(newSharedClaim(), workloadRef)})
			cycle := tc.schedule(newJobPod("pod-1"))
			var once sync.Once
			tc.api.before = func(_ string, claim *resourceapi.ResourceClaim) error {
				once.Do(func() {
					claim.Finalizers = []string{resourceapi.Finalizer}
					claim.Status = *newWorkloadClaim(workloadRefWithUID).Status.DeepCopy()
					claim.Status.Allocation.Devices.Results[0].Device = tcase.device
				})
				return nil
			}
			status := cycle.bind(tCtx)
			if tcase.expectErr != "" {
				require.ErrorContains(tCtx, status.AsError(), tcase.expectErr, name)
			} else {
				require.Nil(tCtx, status, name)
			}
			assert.Equal(tCtx, []string{jobName}, tc.reservedFor(), name)
			assert.Equal(tCtx, []string{"update"}, tc.api.takeWrites(), name)
			assert.Empty(tCtx, tc.listInFlightClaims(), name)
		}
	})

	// The feature is disabled in the API server. Then the pod must be listed to be able to run.
	syncTest(t, "dropped-by-apiserver", func(tCtx ktesting.TContext) {
		tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{withReservedFor(newSharedClaim(), workloadRef)})
		tc.api.after = func(claim *resourceapi.ResourceClaim) {
			if claim.Status.Allocation != nil {
				claim.Status.Allocation.ReservedForAnyPod = nil
			}
		}
		cycles := []*podCycle{tc.schedule(newJobPod("pod-1")), tc.schedule(newJobPod("pod-2"))}
		requireAllBound(tCtx, tc.bindAll(cycles))
		assert.Equal(tCtx, []string{"pod-1", "pod-2", jobName}, tc.reservedFor())
	})
}

// TestReservedForStored covers decisions that depend on what is stored for an allocated claim.
func TestReservedForStored(t *testing.T) {
	perPodClaim := withReservedFor(newAllocatedSharedClaim(podReference("other-pod")), workloadRef)
	withUID := func(claim *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
		return withReservedFor(claim, workloadRefWithUID)
	}
	newJobUID := types.UID("new-train-uid")
	newWorkloadRef := workloadRefWithUID
	newWorkloadRef.UID = newJobUID

	testcases := map[string]struct {
		disabled bool
		claim    *resourceapi.ResourceClaim
		pod      *v1.Pod
		objs     []apiruntime.Object

		expectSkip   bool
		expectRefs   []resourceapi.ResourceClaimConsumerReference
		expectWrites []string
		// expectRejected is part of the message of PreFilter.
		expectRejected string
	}{
		"reserved": {
			claim:      newWorkloadClaim(workloadRefWithUID),
			pod:        newJobPod("pod-1"),
			expectSkip: true,
			expectRefs: []resourceapi.ResourceClaimConsumerReference{workloadRefWithUID},
		},
		"reserved-other-pod": {
			claim:      newWorkloadClaim(workloadRefWithUID),
			pod:        newSharingPod("pod-1"),
			expectSkip: true,
			expectRefs: []resourceapi.ResourceClaimConsumerReference{workloadRefWithUID},
		},
		"reserved-gate-off": {
			disabled:     true,
			claim:        newWorkloadClaim(workloadRefWithUID),
			pod:          newJobPod("pod-1"),
			expectRefs:   []resourceapi.ResourceClaimConsumerReference{workloadRefWithUID, podReference("pod-1")},
			expectWrites: []string{"patch/status"},
		},
		"mixed": {
			claim:      newWorkloadClaim(podReference("other-pod"), workloadRefWithUID),
			pod:        newJobPod("pod-1"),
			expectSkip: true,
			expectRefs: []resourceapi.ResourceClaimConsumerReference{podReference("other-pod"), workloadRefWithUID},
		},
		"mixed-full": {
			claim:      newWorkloadClaim(append(podReferences(255), workloadRefWithUID)...),
			pod:        newJobPod("pod-1"),
			expectSkip: true,
			expectRefs: append(podReferences(255), workloadRefWithUID),
		},
		"mixed-full-gate-off": {
			disabled:       true,
			claim:          newWorkloadClaim(append(podReferences(255), workloadRefWithUID)...),
			pod:            newJobPod("pod-1"),
			expectRejected: "resourceclaim in use",
		},
		"released": {
			claim:        newWorkloadClaim(),
			pod:          newJobPod("pod-1"),
			expectRefs:   []resourceapi.ResourceClaimConsumerReference{workloadRefWithUID},
			expectWrites: []string{"patch/status"},
		},
		"released-other-pod": {
			claim:          newWorkloadClaim(),
			pod:            newSharingPod("pod-1"),
			expectRejected: `resourceclaim default/shared is reserved for jobs.batch "train" and the pod does not belong to it (no controller): waiting until a pod of jobs.batch "train" has been scheduled`,
		},
		"released-with-uid": {
			claim:        withUID(newWorkloadClaim()),
			pod:          newSharingPod("pod-1"),
			expectRefs:   []resourceapi.ResourceClaimConsumerReference{workloadRefWithUID},
			expectWrites: []string{"patch/status"},
		},
		"only-pods-left": {
			claim:        newWorkloadClaim(podReference("other-pod")),
			pod:          newJobPod("pod-1"),
			expectRefs:   []resourceapi.ResourceClaimConsumerReference{podReference("other-pod"), workloadRefWithUID},
			expectWrites: []string{"patch/status"},
		},
		"old-incarnation": {
			claim:        newWorkloadClaim(workloadRefWithUID),
			pod:          newPodOf("pod-1", controlledBy(jobKind, jobName, newJobUID)),
			expectRefs:   []resourceapi.ResourceClaimConsumerReference{workloadRefWithUID, newWorkloadRef},
			expectWrites: []string{"patch/status"},
		},
		"old-incarnation-indirect": {
			claim: withReservedFor(newWorkloadClaim(resourceapi.ResourceClaimConsumerReference{APIGroup: "apps", Resource: "deployments", Name: "web", UID: "old-web-uid"}),
				resourceapi.ResourceClaimConsumerReference{APIGroup: "apps", Resource: "deployments", Name: "web"}),
			pod:  newPodOf("pod-1", controlledBy(replicaSetKind, "web-1", "web-1-uid")),
			objs: []apiruntime.Object{&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web-1", Namespace: namespace, UID: "web-1-uid", OwnerReferences: controlledBy(deploymentKind, "web", "web-uid")}}},
			expectRefs: []resourceapi.ResourceClaimConsumerReference{
				{APIGroup: "apps", Resource: "deployments", Name: "web", UID: "old-web-uid"},
				{APIGroup: "apps", Resource: "deployments", Name: "web", UID: "web-uid"},
			},
			expectWrites: []string{"patch/status"},
		},
		"per-pod": {
			claim:        perPodClaim,
			pod:          newJobPod("pod-1"),
			expectRefs:   []resourceapi.ResourceClaimConsumerReference{podReference("other-pod"), podReference("pod-1")},
			expectWrites: []string{"patch/status"},
		},
		"per-pod-other-pod": {
			claim:        perPodClaim,
			pod:          newSharingPod("pod-1"),
			expectRefs:   []resourceapi.ResourceClaimConsumerReference{podReference("other-pod"), podReference("pod-1")},
			expectWrites: []string{"patch/status"},
		},
		"per-pod-listed": {
			claim:      perPodClaim,
			pod:        newJobPod("other-pod"),
			expectRefs: []resourceapi.ResourceClaimConsumerReference{podReference("other-pod")},
		},
		"per-pod-full": {
			claim:          withReservedFor(newAllocatedSharedClaim(podReferences(256)...), workloadRef),
			pod:            newJobPod("pod-1"),
			expectRejected: "was allocated while the DRAReservedForWorkloads feature was disabled",
		},
		"ordinary": {
			claim:        newAllocatedSharedClaim(podReference("other-pod")),
			pod:          newJobPod("pod-1"),
			expectRefs:   []resourceapi.ResourceClaimConsumerReference{podReference("other-pod"), podReference("pod-1")},
			expectWrites: []string{"patch/status"},
		},
		"pending-gate-off": {
			disabled:     true,
			claim:        withReservedFor(newSharedClaim(), workloadRef),
			pod:          newJobPod("pod-1"),
			expectRefs:   []resourceapi.ResourceClaimConsumerReference{podReference("pod-1")},
			expectWrites: []string{"update", "update/status"},
		},
		"pending-with-uid": {
			claim:        withUID(newSharedClaim()),
			pod:          newSharingPod("pod-1"),
			expectRefs:   []resourceapi.ResourceClaimConsumerReference{workloadRefWithUID},
			expectWrites: []string{"update", "update/status"},
		},
		"pending-other-pod": {
			claim:          withReservedFor(newSharedClaim(), workloadRef),
			pod:            newPodOf("pod-1", controlledBy(jobKind, "eval", "eval-uid")),
			expectRejected: `resourceclaim default/shared is reserved for jobs.batch "train" and the pod does not belong to it (controller is Job "eval", owner Job "eval" does not exist): waiting until a pod of jobs.batch "train" has been scheduled`,
		},
		"owned-by-pod": {
			claim:        st.FromResourceClaim(withReservedFor(newSharedClaim(), workloadRef)).OwnerReference("other-pod", "other-pod", podKind).Obj(),
			pod:          newJobPod("pod-1"),
			expectRefs:   []resourceapi.ResourceClaimConsumerReference{workloadRefWithUID},
			expectWrites: []string{"update", "update/status"},
		},
	}
	for name, tcase := range testcases {
		syncTest(t, name, func(tCtx ktesting.TContext) {
			tc := newReservedForTest(tCtx, reservedForFeatures(!tcase.disabled), []*resourceapi.ResourceClaim{tcase.claim}, tcase.objs...)
			if tcase.expectRejected != "" {
				_, status := tc.preFilter(tcase.pod)
				assert.Equal(tCtx, fwk.UnschedulableAndUnresolvable, status.Code())
				assert.Contains(tCtx, status.Message(), tcase.expectRejected)
				assert.Empty(tCtx, tc.api.takeWrites())
				return
			}

			anyPod := tcase.claim.Status.Allocation != nil && ptr.Deref(tcase.claim.Status.Allocation.ReservedForAnyPod, false) ||
				tcase.claim.Status.Allocation == nil && !tcase.disabled
			cycle := tc.schedule(tcase.pod)
			status := cycle.preBindPreFlight(tCtx)
			assert.Equal(tCtx, tcase.expectSkip && hasPreBindPreFlight, status.IsSkip())
			require.Nil(tCtx, cycle.p.PreBind(tCtx, cycle.state, cycle.pod, nodeName))
			claim := tc.claim()
			assert.ElementsMatch(tCtx, tcase.expectRefs, claim.Status.ReservedFor)
			assert.Equal(tCtx, tcase.expectWrites, tc.api.takeWrites())
			assert.Equal(tCtx, anyPod, resourceclaim.IsAllocatedForAnyPod(claim))

			// Only an entry for the pod may be removed.
			cycle.unreserve()
			remaining := slices.DeleteFunc(slices.Clone(tcase.expectRefs), func(ref resourceapi.ResourceClaimConsumerReference) bool {
				return ref.UID == tcase.pod.UID
			})
			assert.ElementsMatch(tCtx, remaining, tc.claim().Status.ReservedFor)
		})
	}
}

// TestReservedForChanged covers changes between scheduling and binding.
func TestReservedForChanged(t *testing.T) {
	syncTest(t, "released", func(tCtx ktesting.TContext) {
		tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{newWorkloadClaim(workloadRefWithUID)})
		member := tc.schedule(newJobPod("pod-1"))
		other := tc.schedule(newSharingPod("pod-2"))
		tc.change(func(claim *resourceapi.ResourceClaim) { claim.Status.ReservedFor = nil })

		// This one doesn't know the UID.
		require.ErrorContains(tCtx, other.bind(tCtx).AsError(), "not reserved for jobs.batch")
		assert.Empty(tCtx, tc.api.takeWrites())
		// This one does.
		require.Nil(tCtx, member.bind(tCtx))
		assert.Equal(tCtx, []string{"patch/status"}, tc.api.takeWrites())
		assert.Equal(tCtx, []string{jobName}, tc.reservedFor())
	})

	syncTest(t, "deallocated", func(tCtx ktesting.TContext) {
		tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{newWorkloadClaim(workloadRefWithUID)})
		cycle := tc.schedule(newJobPod("pod-1"))
		tc.change(func(claim *resourceapi.ResourceClaim) { claim.Status = resourceapi.ResourceClaimStatus{} })
		require.ErrorContains(tCtx, cycle.bind(tCtx).AsError(), "got deallocated")
		assert.Empty(tCtx, tc.reservedFor())
	})

	syncTest(t, "reallocated", func(tCtx ktesting.TContext) {
		tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{newWorkloadClaim(workloadRefWithUID)})
		cycle := tc.schedule(newJobPod("pod-1"))
		tc.change(func(claim *resourceapi.ResourceClaim) {
			claim.Status.Allocation.Devices.Results[0].Device = "instance-2"
		})
		require.ErrorContains(tCtx, cycle.bind(tCtx).AsError(), "got allocated elsewhere")
		assert.Equal(tCtx, []string{jobName}, tc.reservedFor())
	})

	// Same after the claim was replaced in between by one that is reserved for each pod.
	syncTest(t, "reallocated-per-pod", func(tCtx ktesting.TContext) {
		tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{newWorkloadClaim(workloadRefWithUID)})
		cycle := tc.schedule(newJobPod("pod-1"))
		tc.change(func(claim *resourceapi.ResourceClaim) {
			claim.Status.Allocation.ReservedForAnyPod = nil
			claim.Status.ReservedFor = podReferences(1)
		})
		require.Nil(tCtx, cycle.bind(tCtx))
		assert.Equal(tCtx, []string{"other-pod-0", "pod-1"}, tc.reservedFor())
	})
}

// TestReservedForOtherPod follows a pod which may only use a claim after a pod of the workload
// has reserved it.
func TestReservedForOtherPod(t *testing.T) {
	syncTest(t, "", func(tCtx ktesting.TContext) {
		tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{withReservedFor(newSharedClaim(), workloadRef)})
		other := newSharingPod("other-pod")
		_, status := tc.preFilter(other)
		require.Equal(tCtx, fwk.UnschedulableAndUnresolvable, status.Code())

		// An allocation which is in flight does not help because the
		// other pod could not finish it.
		cycle := tc.schedule(newJobPod("pod-1"))
		_, status = tc.preFilter(other)
		require.Equal(tCtx, fwk.UnschedulableAndUnresolvable, status.Code())

		oldClaim := tc.claim()
		require.Nil(tCtx, cycle.bind(tCtx))
		hint, err := tc.p.isSchedulableAfterClaimChange(tCtx.Logger(), other, oldClaim, tc.claim())
		tCtx.ExpectNoError(err)
		assert.Equal(tCtx, fwk.Queue, hint)
		tc.api.takeWrites()
		require.Nil(tCtx, tc.schedule(other).bind(tCtx))
		assert.Empty(tCtx, tc.api.takeWrites())
	})
}

// TestReservedForQueueingHint covers a list which is full, but does not matter.
func TestReservedForQueueingHint(t *testing.T) {
	for _, enabled := range []bool{true, false} {
		syncTest(t, fmt.Sprintf("enabled=%v", enabled), func(tCtx ktesting.TContext) {
			tc := newReservedForTest(tCtx, reservedForFeatures(enabled), []*resourceapi.ResourceClaim{newWorkloadClaim(append(podReferences(255), workloadRefWithUID)...)})
			newClaim := tc.claim()
			oldClaim := newClaim.DeepCopy()
			oldClaim.Status.ReservedFor = oldClaim.Status.ReservedFor[0:255]
			expect := fwk.QueueSkip
			if enabled {
				expect = fwk.Queue
			}
			hint, err := tc.p.isSchedulableAfterClaimChange(tCtx.Logger(), newSharingPod("pod-1"), oldClaim, newClaim)
			tCtx.ExpectNoError(err)
			assert.Equal(tCtx, expect, hint)
		})
	}
}

// TestReservedForPostFilter ensures that a claim is not deallocated while pods
// might use it which are not listed.
func TestReservedForPostFilter(t *testing.T) {
	for name, tcase := range map[string]struct {
		claim            *resourceapi.ResourceClaim
		expectDeallocate bool
	}{
		"ordinary":           {claim: newAllocatedSharedClaim(), expectDeallocate: true},
		"ordinary-this-pod":  {claim: newAllocatedSharedClaim(podReference("pod-1")), expectDeallocate: true},
		"ordinary-other-pod": {claim: newAllocatedSharedClaim(podReference("other-pod"))},
		"not-for-any-pod":    {claim: withReservedFor(newAllocatedSharedClaim(), workloadRef), expectDeallocate: true},
		"reserved":           {claim: newWorkloadClaim(workloadRefWithUID)},
		"released":           {claim: newWorkloadClaim()},
		"only-this-pod":      {claim: newWorkloadClaim(podReference("pod-1"))},
		"workload-with-pods-uid": {claim: withReservedFor(newAllocatedSharedClaim(resourceapi.ResourceClaimConsumerReference{
			APIGroup: "batch", Resource: "jobs", Name: jobName, UID: "pod-1",
		}), workloadRef)},
	} {
		for _, enabled := range []bool{true, false} {
			syncTest(t, fmt.Sprintf("%s/enabled=%v", name, enabled), func(tCtx ktesting.TContext) {
				tc := newReservedForTest(tCtx, reservedForFeatures(enabled), []*resourceapi.ResourceClaim{tcase.claim})
				cycle, status := tc.preFilter(newJobPod("pod-1"))
				require.Nil(tCtx, status)
				// Not on the other node.
				require.Equal(tCtx, fwk.UnschedulableAndUnresolvable, tc.p.Filter(tCtx, cycle.state, cycle.pod, tc.nodeInfos[1]).Code())
				_, status = tc.p.PostFilter(tCtx, cycle.state, cycle.pod, nil)
				assert.Equal(tCtx, fwk.Unschedulable, status.Code())
				assert.Equal(tCtx, tcase.expectDeallocate, tc.claim().Status.Allocation == nil)
			})
		}
	}
}

// TestReservedForNeedsSharedClaims ensures that a scheduler does not start with feature
// gates that do not go together.
func TestReservedForNeedsSharedClaims(t *testing.T) {
	tCtx := ktesting.Init(t)
	pl := &DynamicResources{fts: feature.Features{Carried: feature.Carried{EnableDRAReservedForWorkloads: true}}}
	require.ErrorContains(t, pl.initReservedFor(tCtx), "DRAReservedForWorkloads feature gate of kube-scheduler depends on the DRASharedClaims feature gate")
	pl.fts.EnableDRAReservedForWorkloads = false
	require.NoError(t, pl.initReservedFor(tCtx))
}

// TestAdmitIncarnation covers for how many incarnations of its workload a claim gets reserved.
func TestAdmitIncarnation(t *testing.T) {
	incarnation := func(i int) resourceapi.ResourceClaimConsumerReference {
		ref := workloadRef
		ref.UID = types.UID(fmt.Sprintf("incarnation-%d", i))
		return ref
	}
	claim := newWorkloadClaim(podReference("listed"))
	for i := range maxIncarnations - 1 {
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, incarnation(i))
	}
	last, oneMore := incarnation(maxIncarnations-1), incarnation(maxIncarnations)
	missing := []resourceapi.ResourceClaimConsumerReference{podReference("missing")}
	require.NoError(t, admitIncarnation(claim, last, missing))
	missing = append(missing, last)
	err := admitIncarnation(claim, oneMore, missing)
	require.ErrorContains(t, err, "already reserved for 8 incarnations of jobs")
	assert.ErrorIs(t, err, errClaimFull)
	assert.NoError(t, admitIncarnation(claim, podReference("some-pod"), missing))
}

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

// gangPlugin lets pods wait in Permit.
type gangPlugin struct{}

func (gangPlugin) Name() string { return "gang" }

func (gangPlugin) Permit(context.Context, cycleState, *v1.Pod, string) (*fwk.Status, time.Duration) {
	return fwk.NewStatus(fwk.Wait), 5 * time.Minute
}

// newOrderedFramework returns a framework which runs the plugin under test as in a scheduler.
func newOrderedFramework(tCtx ktesting.TContext, tc *sharedClaimsTest, permit bool) orderFramework {
	tCtx.Helper()
	registry := runtime.Registry{
		Name:               func(context.Context, apiruntime.Object, orderHandle) (orderPlugin, error) { return tc.p, nil },
		queuesort.Name:     queuesort.New,
		defaultbinder.Name: defaultbinder.New,
		"gang":             func(context.Context, apiruntime.Object, orderHandle) (orderPlugin, error) { return gangPlugin{}, nil },
	}
	enabled := func(names ...string) (set config.PluginSet) {
		for _, name := range names {
			set.Enabled = append(set.Enabled, config.Plugin{Name: name})
		}
		return set
	}
	plugins := &config.Plugins{QueueSort: enabled(queuesort.Name), PreBind: enabled(Name), Bind: enabled(defaultbinder.Name)}
	if permit {
		plugins.Permit = enabled("gang")
	}
	fw, err := runtime.NewFramework(tCtx, registry, &config.KubeSchedulerProfile{SchedulerName: "test", Plugins: plugins},
		runtime.WithClientSet(tc.client),
		runtime.WithInformerFactory(tc.informerFactory),
		runtime.WithSharedDRAManager(tc.draManager),
		runtime.WithWaitingPods(runtime.NewWaitingPodsMap()),
	)
	tCtx.ExpectNoError(err, "create framework")
	tc.p.fh = fw
	return fw
}

// TestReservedForOrder runs all steps after Reserve in the order of a scheduler. The claim changes in between.
func TestReservedForOrder(t *testing.T) {
	release := func(claim *resourceapi.ResourceClaim) { claim.Status.ReservedFor = nil }
	deallocate := func(claim *resourceapi.ResourceClaim) { claim.Status = resourceapi.ResourceClaimStatus{} }
	reallocate := func(claim *resourceapi.ResourceClaim) {
		claim.Status.Allocation.Devices.Results[0].Device = "instance-2"
	}

	for name, tcase := range map[string]struct {
		beforePermit, beforePreBind, beforeBind func(claim *resourceapi.ResourceClaim)
		foreign                                 bool
		gang                                    bool
		expectErr                               string
		expectRefs                              []string
	}{
		"unchanged":                  {expectRefs: []string{jobName}},
		"unchanged-gang":             {gang: true, expectRefs: []string{jobName}},
		"released-in-permit":         {gang: true, beforePreBind: release, expectRefs: []string{jobName}},
		"released-in-permit-foreign": {gang: true, foreign: true, beforePreBind: release, expectErr: "not reserved for"},
		"deallocated-in-permit":      {gang: true, beforePreBind: deallocate, expectErr: "got deallocated"},
		"reallocated-in-permit":      {gang: true, beforePreBind: reallocate, expectErr: "got allocated elsewhere"},
		"released-in-prebind":        {beforeBind: release, expectErr: "not reserved for"},
		"deallocated-in-prebind":     {beforeBind: deallocate, expectErr: "got deallocated"},
		"reallocated-in-prebind":     {beforeBind: reallocate, expectErr: "got allocated elsewhere"},
		"deallocated-before-permit":  {beforePermit: deallocate, gang: true, expectErr: "got deallocated"},
		"released-before-permit":     {beforePermit: release, gang: true, expectRefs: []string{jobName}},
	} {
		syncTest(t, name, func(tCtx ktesting.TContext) {
			tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{newWorkloadClaim(workloadRefWithUID)})
			fw := newOrderedFramework(tCtx, tc, tcase.gang)
			change := func(cb func(claim *resourceapi.ResourceClaim)) {
				if cb != nil {
					tc.change(cb)
				}
			}
			pod := newJobPod("pod-1")
			if tcase.foreign {
				pod = newSharingPod("pod-1")
			}
			cycle := tc.schedule(pod)
			change(tcase.beforePermit)
			status := runPermit(tCtx, fw, cycle)
			require.Equal(tCtx, tcase.gang, status.IsWait(), status)
			status = runPreBindPreFlight(tCtx, fw, cycle)
			require.NotEqual(tCtx, fwk.Error, status.Code())
			change(tcase.beforePreBind)
			if tcase.gang {
				fw.GetWaitingPod(pod.UID).Allow("gang")
			}
			require.Nil(tCtx, fw.WaitOnPermit(tCtx, pod))
			status = fw.RunPreBindPlugins(tCtx, cycle.state, pod, nodeName)
			if status.IsSuccess() {
				change(tcase.beforeBind)
				status = CheckBeforeBind(tCtx.Logger(), cycle.state, pod)
			}
			synctest.Wait()
			if tcase.expectErr != "" {
				require.ErrorContains(tCtx, status.AsError(), tcase.expectErr)
				return
			}
			require.Nil(tCtx, status)
			assert.Equal(tCtx, tcase.expectRefs, tc.reservedFor())
		})
	}
}

// TestReservedForIncarnations covers a pod of one incarnation of a workload too many: PreFilter makes it
// wait. In PreBind, it would be refused again and again.
func TestReservedForIncarnations(t *testing.T) {
	syncTest(t, "", func(tCtx ktesting.TContext) {
		claim := newWorkloadClaim()
		for i := range maxIncarnations {
			ref := workloadRefWithUID
			ref.UID = types.UID(fmt.Sprintf("incarnation-%d", i))
			claim.Status.ReservedFor = append(claim.Status.ReservedFor, ref)
		}
		tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{claim})
		_, status := tc.preFilter(newJobPod("pod-1"))
		require.Equal(tCtx, fwk.UnschedulableAndUnresolvable, status.Code())
		assert.Contains(tCtx, status.Message(), "incarnations")
		tc.change(func(claim *resourceapi.ResourceClaim) { claim.Status.ReservedFor = claim.Status.ReservedFor[1:] })
		require.Nil(tCtx, tc.schedule(newJobPod("pod-1")).bind(tCtx))
		assert.Empty(tCtx, tc.listInFlightClaims())
	})
}

// TestReservedForWithoutClient covers a plugin that cannot ask the API server, as in a simulation of the Cluster
// Autoscaler: pods of a workload that uses its claim already fit, whatever their owners are.
func TestReservedForWithoutClient(t *testing.T) {
	for _, reserved := range []bool{true, false} {
		syncTest(t, fmt.Sprint(reserved), func(tCtx ktesting.TContext) {
			deployment := resourceapi.ResourceClaimConsumerReference{APIGroup: "apps", Resource: "deployments", Name: "web"}
			claim := newWorkloadClaim()
			if reserved {
				ref := deployment
				ref.UID = "web-uid"
				claim = newWorkloadClaim(ref)
			}
			claim = withReservedFor(claim, deployment)
			tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{claim})
			tc.p.owners.reader = nil
			_, status := tc.preFilter(newPodOf("pod-1", controlledBy(replicaSetKind, "web-1", "web-1-uid")))
			if reserved {
				require.Nil(tCtx, status)
				return
			}
			require.Equal(tCtx, fwk.UnschedulableAndUnresolvable, status.Code())
			assert.Contains(tCtx, status.Message(), "without access to the API server")
		})
	}
}
