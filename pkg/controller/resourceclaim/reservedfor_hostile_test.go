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
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/kubernetes/pkg/controller/resourceclaim/fairness"
	resourceclaimmetrics "k8s.io/kubernetes/pkg/controller/resourceclaim/metrics"
	"k8s.io/kubernetes/pkg/controller/resourceclaim/retention"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
)

// The tests in this file are about what hostile users, bad luck and large numbers
// can do.

type consumers = []resourceapi.ResourceClaimConsumerReference

var podResource = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// setPod changes a pod in the API server and the cache and reports that.
func (tt *workloadTest) setPod(pod *v1.Pod) {
	tt.Helper()
	err := tt.client.Tracker().Update(podResource, pod, pod.Namespace)
	if apierrors.IsNotFound(err) {
		err = tt.client.Tracker().Add(pod)
	}
	tt.ExpectNoError(err, "set pod")
	tt.ExpectNoError(tt.ec.podIndexer.Update(pod), "update pod cache")
	tt.ec.enqueuePod(tt.Logger(), pod, false)
}

// removePod removes a pod from the API server and the cache and reports that.
func (tt *workloadTest) removePod(pod *v1.Pod) {
	tt.Helper()
	tt.ExpectNoError(tt.client.Tracker().Delete(podResource, pod.Namespace, pod.Name), "delete pod")
	tt.ExpectNoError(tt.ec.podIndexer.Delete(pod), "update pod cache")
	tt.ec.enqueuePod(tt.Logger(), pod, true)
}

// syncPod processes a pod and returns the delay before it will be processed again.
func (tt *workloadTest) syncPod(pod *v1.Pod) time.Duration {
	tt.Helper()
	delete(tt.queue.delays, podKey(pod))
	tt.ExpectNoError(tt.ec.syncHandler(tt, podKey(pod)), "sync pod")
	return tt.queue.delays[podKey(pod)]
}

// TestDeletedClaim checks that a claim is gone soon after its last pod, whatever
// is known about its workload.
func TestDeletedClaim(t *testing.T) {
	for name, test := range map[string]struct {
		features Features
		ref      resourceapi.ResourceClaimConsumerReference
		objects  []runtime.Object
	}{
		"active":         {features: workloadsEnabled, ref: jobRef, objects: []runtime.Object{job}},
		"suspended":      {features: workloadsEnabled, ref: jobRef, objects: []runtime.Object{suspendedJob}},
		"forbidden":      {features: workloadsEnabled, ref: customRef},
		"unknown":        {features: workloadsEnabled, ref: unknownRef},
		"foreground":     {features: workloadsEnabled, ref: customRef, objects: []runtime.Object{deleted(custom)}},
		"active-off":     {ref: jobRef, objects: []runtime.Object{job}},
		"custom-off":     {ref: customRef, objects: []runtime.Object{custom}},
		"deployment-off": {ref: deploymentRef, objects: []runtime.Object{deployment}},
	} {
		t.Run(name, func(t *testing.T) {
			tt := newWorkloadTest(t, test.features, append(test.objects, deleted(workloadClaim(test.ref)), runningPod)...)
			tt.dynamic.PrependReactor("get", "*", func(k8stesting.Action) (bool, runtime.Object, error) { return true, nil, forbidden })
			tt.mustSync()
			assert.Equal(t, consumers{test.ref}, tt.getClaim().Status.ReservedFor, "reserved while used")

			tt.removePod(runningPod)
			tt.release()
			assert.NotNil(t, tt.getClaim().Status.Allocation, "allocated during pause")
			tt.mustSync()
			assert.Nil(t, tt.getClaim().Status.Allocation, "allocated")
			assert.NotContains(t, tt.getClaim().Finalizers, resourceapi.Finalizer)
		})
	}
}

// TestRemovedClaim checks that nothing remains when a claim gets removed while
// it is being processed.
func TestRemovedClaim(t *testing.T) {
	tt := newWorkloadTest(t, workloadsEnabled, workloadClaim(unknownRef))
	claim := tt.getClaim()
	tt.mustSync()
	assert.Equal(t, 1, gauge(tt, "unknown_resource"))
	tt.ec.observeClaim(claim, nil)
	assert.Equal(t, 0, gauge(tt, "unknown_resource"))

	// The worker has not noticed yet.
	tt.mustSync()
	assert.Equal(t, 1, gauge(tt, "unknown_resource"))
	tt.ExpectNoError(claimInformer(tt.factory).GetIndexer().Delete(claim), "remove from cache")
	tt.mustSync()
	assert.Equal(t, 0, gauge(tt, "unknown_resource"), "waiting reservations of removed claim")
	assert.Empty(t, tt.ec.workloads.claims, "state of removed claim")

	// Replaced by one with the same name.
	tt.ExpectNoError(claimInformer(tt.factory).GetIndexer().Add(claim), "add to cache")
	tt.mustSync()
	other := unallocatedClaim(unknownRef)
	other.UID = "other"
	tt.ExpectNoError(claimInformer(tt.factory).GetIndexer().Update(other), "replace in cache")
	tt.mustSync()
	assert.Equal(t, 0, gauge(tt, "unknown_resource"), "waiting reservations of replaced claim")
	assert.Empty(t, tt.ec.workloads.claims, "state of replaced claim")
}

// TestManyIncarnations checks that the list does not grow when more and more
// incarnations of a workload use the claim, forged or not.
func TestManyIncarnations(t *testing.T) {
	for name, test := range map[string]struct {
		ref     resourceapi.ResourceClaimConsumerReference
		objects []runtime.Object
		max     int
	}{
		"living":  {ref: jobRef, objects: []runtime.Object{job}, max: 1},
		"gone":    {ref: jobRef, max: 1},
		"unknown": {ref: unknownRef, max: 1},
		"custom":  {ref: customRef, objects: []runtime.Object{custom}, max: 1},
	} {
		t.Run(name, func(t *testing.T) {
			tt := newWorkloadTest(t, workloadsEnabled, append(test.objects, workloadClaim(test.ref), runningPod)...)
			for i := range 300 {
				claim := reservedBy(tt.getClaim(), withUID(test.ref, types.UID(fmt.Sprintf("forged-%d", i))))
				tt.setClaim(claim)
				tt.mustSync()
				tt.syncCaches()
				tt.clock.Step(time.Minute)
				tt.mustSync()
				if refs := tt.getClaim().Status.ReservedFor; len(refs) > test.max || len(refs) == 0 {
					t.Fatalf("expected at most %d entries, got: %v", test.max, refs)
				}
			}
			if len(test.objects) > 0 {
				assert.Equal(t, consumers{test.ref}, tt.getClaim().Status.ReservedFor)
			}
			assert.LessOrEqual(t, len(tt.ec.workloads.claims), 1)
		})
	}
}

// TestReserveForIncarnation checks that the incarnation to which a pod belongs
// gets listed although some other one is.
func TestReserveForIncarnation(t *testing.T) {
	replicaSetOf := func(uid types.UID) *appsv1.ReplicaSet {
		replicaSet := replicaSet.DeepCopy()
		replicaSet.Name = "training-abc"
		replicaSet.UID = "training-abc-uid"
		replicaSet.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: workloadName, UID: uid, Controller: ptr.To(true)}}
		return replicaSet
	}
	otherCustom := customWorkload("Training", workloadName, "training-2")
	otherCustomRef := withUID(customRef, "training-2")
	withSpecUID := workloadClaim(jobRef)
	withSpecUID.Spec.ReservedFor.UID = otherJobRef.UID

	for name, test := range map[string]struct {
		claim   *resourceapi.ResourceClaim
		pod     *v1.Pod
		objects []runtime.Object
		expect  consumers
		// expectLater is after processing the claim.
		expectLater    consumers
		expectRequests []string
	}{
		"recreated": {
			claim:          workloadClaim(jobRef),
			pod:            controlledBy(runningPod, "batch/v1", "Job", otherJob),
			objects:        []runtime.Object{otherJob},
			expect:         consumers{jobRef, otherJobRef},
			expectLater:    consumers{otherJobRef},
			expectRequests: []string{"get jobs"},
		},
		"recreated-deployment": {
			claim:          workloadClaim(withUID(deploymentRef, "training-0")),
			pod:            controlledBy(runningPod, "apps/v1", "ReplicaSet", replicaSetOf(workloadUID)),
			objects:        []runtime.Object{replicaSetOf(workloadUID), deployment},
			expect:         consumers{withUID(deploymentRef, "training-0"), deploymentRef},
			expectLater:    consumers{deploymentRef},
			expectRequests: []string{"get deployments"},
		},
		"recreated-custom": {
			claim:          workloadClaim(customRef),
			pod:            controlledBy(runningPod, "example.com/v1", "Training", otherCustom),
			objects:        []runtime.Object{otherCustom},
			expect:         consumers{customRef, otherCustomRef},
			expectLater:    consumers{otherCustomRef},
			expectRequests: []string{"get trainings"},
		},
		"uid-in-spec": {
			claim:          withSpecUID,
			pod:            runningPod,
			objects:        []runtime.Object{otherJob},
			expect:         consumers{jobRef, otherJobRef},
			expectLater:    consumers{otherJobRef},
			expectRequests: []string{"get jobs"},
		},
		"dead-incarnation": {
			claim:          workloadClaim(jobRef),
			pod:            controlledBy(runningPod, "batch/v1", "Job", otherJob),
			objects:        []runtime.Object{job},
			expect:         consumers{jobRef},
			expectLater:    consumers{jobRef},
			expectRequests: []string{"get jobs"},
		},
		"finished-incarnation": {
			claim:          workloadClaim(otherJobRef),
			pod:            controlledBy(runningPod, "batch/v1", "Job", job),
			objects:        []runtime.Object{completeJob},
			expect:         consumers{otherJobRef},
			expectLater:    consumers{otherJobRef},
			expectRequests: []string{"get jobs"},
		},
		"unknown-incarnation": {
			claim:       workloadClaim(unknownRef),
			pod:         controlledBy(runningPod, "example.com/v1", "Unknown", otherCustom),
			expect:      consumers{unknownRef},
			expectLater: consumers{unknownRef},
		},
		"not-of-workload": {
			claim:       workloadClaim(jobRef),
			pod:         controlledBy(runningPod, "apps/v1", "ReplicaSet", replicaSetOf(workloadUID)),
			objects:     []runtime.Object{job, replicaSetOf(workloadUID)},
			expect:      consumers{jobRef},
			expectLater: consumers{jobRef},
			// Whose controller might be the job.
			expectRequests: []string{"get deployments"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tt := newWorkloadTest(t, workloadsEnabled, append(test.objects, test.claim, test.pod)...)
			if needsWork, _ := tt.ec.podNeedsWork(test.pod); needsWork {
				tt.syncPod(test.pod)
			}
			assert.Equal(t, test.expect, tt.getClaim().Status.ReservedFor, "after processing pod")
			tt.syncCaches()
			tt.mustSync()
			assert.Equal(t, test.expectLater, tt.getClaim().Status.ReservedFor, "after processing claim")
			tt.syncCaches()
			requests := tt.requests()
			slices.Sort(requests)
			assert.Equal(t, test.expectRequests, slices.Compact(requests))

			// Stable, without further requests.
			needsWork, reason := tt.ec.podNeedsWork(test.pod)
			assert.False(t, needsWork, "podNeedsWork: %s", reason)
			tt.mustSync()
			assert.Equal(t, test.expectLater, tt.getClaim().Status.ReservedFor)
		})
	}
}

// TestManyPodsOnNodes checks that the number of requests does not depend on the
// number of pods with the same owner, and that it is limited if they
// are forged.
func TestManyPodsOnNodes(t *testing.T) {
	const numPods = 10000
	group := customWorkload("Group", "group", "group-uid")
	group.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Training", Name: workloadName, UID: workloadUID, Controller: ptr.To(true)}})

	for name, forged := range map[string]bool{"same-owner": false, "forged-owners": true} {
		t.Run(name, func(t *testing.T) {
			tt := newWorkloadTest(t, workloadsEnabled, workloadClaim(customRef), custom, group)
			for i := range numPods {
				owner := group.DeepCopy()
				if forged {
					owner.SetName(fmt.Sprintf("forged-%d", i))
				}
				pod := controlledBy(userPod(fmt.Sprintf("pod-%d", i), nodeName, v1.PodRunning), "example.com/v1", "Group", owner)
				tt.ExpectNoError(tt.ec.podIndexer.Add(pod), "add pod")
				if needsWork, _ := tt.ec.podNeedsWork(pod); needsWork {
					delay := tt.syncPod(pod)
					if i >= lookupsPerSecond && forged {
						assert.Positive(t, delay, "delay for pod %d", i)
					}
				}
			}
			requests := len(tt.requests())
			if forged {
				assert.Equal(t, lookupsPerSecond, requests, "requests")
			} else {
				assert.Equal(t, 1, requests, "requests")
			}
			assert.Equal(t, workloadClaim(customRef), tt.getClaim())
		})
	}
}

// TestOwnerChain checks that the workload gets found at the end of a chain.
func TestOwnerChain(t *testing.T) {
	objects := []runtime.Object{custom}
	uid := workloadUID
	owner := metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Training", Name: workloadName, UID: uid, Controller: ptr.To(true)}
	for i := range 3 {
		group := customWorkload("Group", fmt.Sprintf("group-%d", i), types.UID(fmt.Sprintf("group-uid-%d", i)))
		group.SetOwnerReferences([]metav1.OwnerReference{owner})
		objects = append(objects, group)
		owner.Kind, owner.Name, owner.UID = "Group", group.GetName(), group.GetUID()
	}
	jobOfGroup := job.DeepCopy()
	jobOfGroup.Name, jobOfGroup.UID = "job-of-group", "job-of-group-uid"
	jobOfGroup.OwnerReferences = []metav1.OwnerReference{owner}
	pod := controlledBy(boundPod, "batch/v1", "Job", jobOfGroup)
	objects = append(objects, jobOfGroup, pod)

	tt := newWorkloadTest(t, workloadsEnabled, append(objects, anyPodClaim(customRef))...)
	tt.syncPod(pod)
	assert.Equal(t, consumers{customRef}, tt.getClaim().Status.ReservedFor)
	assert.Equal(t, []string{"get groups", "get groups", "get groups"}, tt.requests())

	// A circle does not belong to anything.
	circle := customWorkload("Group", "group-0", "group-uid-0")
	circle.SetOwnerReferences([]metav1.OwnerReference{owner})
	tt = newWorkloadTest(t, workloadsEnabled, append(slices.Clone(objects[2:]), circle, anyPodClaim(customRef))...)
	tt.syncPod(pod)
	assert.Equal(t, consumers{podReference(pod)}, tt.getClaim().Status.ReservedFor)
}

func claimForNode(claim *resourceapi.ResourceClaim, node string) *resourceapi.ResourceClaim {
	claim = claim.DeepCopy()
	claim.Status.Allocation.NodeSelector = &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
		MatchFields: []v1.NodeSelectorRequirement{{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{node}}},
	}}}
	return claim
}

func makeNode(name string) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func nominatedPod(node string) *v1.Pod {
	pod := userPod("nominated", "", v1.PodPending)
	pod.Status.NominatedNodeName = node
	return pod
}

// TestNominatedPods checks that a claim does not get deallocated while some pod is
// on its way to a node, but also not kept for ever because of that.
func TestNominatedPods(t *testing.T) {
	claim := claimForNode(anyPodClaim(jobRef), nodeName)
	for name, test := range map[string]struct {
		claim *resourceapi.ResourceClaim
		pod   *v1.Pod
		wait  bool
	}{
		"nominated":     {claim: claim, pod: nominatedPod(nodeName), wait: true},
		"unknown-node":  {claim: claim, pod: nominatedPod("unknown"), wait: true},
		"other-node":    {claim: claim, pod: nominatedPod("other")},
		"pending":       {claim: claim, pod: pendingPod},
		"being-deleted": {claim: claim, pod: deleted(nominatedPod(nodeName))},
		"claim-deleted": {claim: deleted(claim), pod: nominatedPod(nodeName)},
	} {
		t.Run(name, func(t *testing.T) {
			tt := newWorkloadTest(t, workloadsEnabled, test.claim, test.pod, makeNode(nodeName), makeNode("other"))
			tt.mustSync()
			tt.clock.Step(defaultReleasePause)
			tt.requests()
			delay := tt.mustSync()
			if !test.wait {
				assert.Nil(t, tt.getClaim().Status.Allocation)
				return
			}
			assert.NotNil(t, tt.getClaim().Status.Allocation)
			assert.Equal(t, defaultPollInterval, delay)
			assert.Empty(t, tt.requests(), "requests while waiting")

			// For ever.
			tt.clock.Step(defaultNominatedPause - defaultReleasePause - time.Second)
			assert.Equal(t, time.Second, tt.mustSync())
			assert.NotNil(t, tt.getClaim().Status.Allocation)
			tt.clock.Step(time.Second)
			tt.mustSync()
			assert.Nil(t, tt.getClaim().Status.Allocation, "allocation after maximum delay")
		})
	}

	t.Run("bound", func(t *testing.T) {
		tt := newWorkloadTest(t, workloadsEnabled, claim, nominatedPod(nodeName), job)
		tt.mustSync()
		tt.clock.Step(defaultReleasePause)
		tt.mustSync()
		pod := controlledBy(nominatedPod(nodeName), "batch/v1", "Job", job)
		pod.Spec.NodeName = nodeName
		tt.setPod(pod)
		tt.mustSync()
		assert.Equal(t, consumers{jobRef}, tt.getClaim().Status.ReservedFor)
	})
}

// TestStrandedPod checks that users get told about a pod which cannot run.
func TestStrandedPod(t *testing.T) {
	noWorkload := newUnownedClaim(sharedClaim)
	for name, test := range map[string]struct {
		features    *Features
		claim       *resourceapi.ResourceClaim
		pod         *v1.Pod
		expectEvent bool
		reason      string
	}{
		"unallocated":         {claim: unallocatedClaim(jobRef), pod: boundPod, expectEvent: true, reason: "unallocated"},
		"unallocated-running": {claim: unallocatedClaim(jobRef), pod: runningPod, expectEvent: true, reason: "unallocated"},
		"other-node":          {claim: claimForNode(workloadClaim(jobRef), "other"), pod: boundPod, expectEvent: true, reason: "other_node"},
		"other-node-per-pod":  {claim: claimForNode(perPodClaim(jobRef), "other"), pod: boundPod, expectEvent: true, reason: "other_node"},
		"other-node-running":  {claim: claimForNode(workloadClaim(jobRef), "other"), pod: runningPod},
		"same-node":           {claim: claimForNode(workloadClaim(jobRef), nodeName), pod: boundPod},
		"not-assigned":        {claim: unallocatedClaim(jobRef), pod: pendingPod},
		"terminal":            {claim: unallocatedClaim(jobRef), pod: succeededPod},
		"being-deleted":       {claim: unallocatedClaim(jobRef), pod: terminatingPod},
		"not-for-workload":    {claim: noWorkload, pod: boundPod},
		"disabled":            {features: &Features{}, claim: unallocatedClaim(jobRef), pod: boundPod},
	} {
		t.Run(name, func(t *testing.T) {
			features := workloadsEnabled
			if test.features != nil {
				features = *test.features
			}
			resourceclaimmetrics.StrandedPods.Reset()
			tt := newWorkloadTest(t, features, test.claim, test.pod, makeNode(nodeName), makeNode("other"))
			needsWork, reason := tt.ec.podNeedsWork(test.pod)
			assert.Equal(t, test.expectEvent, needsWork, "podNeedsWork: %s", reason)
			if !needsWork {
				return
			}

			// Could be a delay of informers.
			assert.Equal(t, strandedGracePeriod, tt.syncPod(test.pod))
			assert.Empty(t, tt.events())
			tt.clock.Step(strandedGracePeriod)
			tt.syncPod(test.pod)
			select {
			case event := <-tt.recorder.Events:
				for _, expect := range []string{"Warning ResourceClaimNotUsable", nodeName, sharedClaim, "delete the pod"} {
					assert.Contains(t, event, expect)
				}
			default:
				t.Error("expected an event")
			}
			value, err := testutil.GetCounterMetricValue(resourceclaimmetrics.StrandedPods.WithLabelValues(test.reason))
			tt.ExpectNoError(err, "get metric")
			assert.Equal(t, 1, int(value))
			assert.Equal(t, test.claim, tt.getClaim(), "claim should not be changed")

			// Once.
			needsWork, reason = tt.ec.podNeedsWork(test.pod)
			assert.False(t, needsWork, "podNeedsWork after event: %s", reason)
			tt.syncPod(test.pod)
			assert.Empty(t, tt.events())

			// Allocated for the node after all.
			tt.setClaim(claimForNode(perPodClaim(jobRef), nodeName))
			needsWork, _ = tt.ec.podNeedsWork(test.pod)
			assert.True(t, needsWork, "podNeedsWork after allocation")
			tt.syncPod(test.pod)
			assert.Equal(t, consumers{podReference(test.pod)}, tt.getClaim().Status.ReservedFor)
			assert.Empty(t, tt.events())
		})
	}
}

// TestReleasedBySomeoneElse checks what happens when someone else, for example the
// scheduler, removes the reservation of a workload which still exists.
func TestReleasedBySomeoneElse(t *testing.T) {
	tt := newWorkloadTest(t, workloadsEnabled, workloadClaim(deploymentRef), deployment)
	tt.setClaim(anyPodClaim(deploymentRef))
	tt.mustSync()
	tt.clock.Step(defaultReleasePause)
	tt.mustSync()
	assert.Nil(t, tt.getClaim().Status.Allocation)

	// Used after all, by a pod where the workload cannot be determined anymore.
	tt = newWorkloadTest(t, workloadsEnabled, workloadClaim(deploymentRef), deployment)
	tt.setClaim(anyPodClaim(deploymentRef))
	tt.mustSync()
	tt.setPod(runningPod)
	tt.clock.Step(defaultReleasePause)
	tt.mustSync()
	assert.Equal(t, workloadClaim(deploymentRef).Status, tt.getClaim().Status)
}

// TestUnknownResources checks that claims for resources which do not exist
// neither cost much nor affect others.
func TestUnknownResources(t *testing.T) {
	tt := newWorkloadTest(t, workloadsEnabled, workloadClaim(unknownRef), custom)
	mapper := &countingMapper{RESTMapper: tt.ec.workloads.restMapper}
	tt.ec.workloads.restMapper = mapper
	ref := func(resource string, i int) workloadRef {
		consumer := workloadReference("example.com", resource)
		consumer.Name = fmt.Sprintf("%s-%d", resource, i)
		return workloadRef{namespace: testNamespace, ResourceClaimConsumerReference: consumer}
	}

	// 300 different claims, over and over again.
	start := tt.clock.Now()
	for tt.clock.Since(start) < time.Hour {
		for i := range 300 {
			r := ref("unknowns", i)
			status := tt.ec.workloads.recentStatus(r, 0)
			if status == nil {
				result, err := tt.ec.lookUpWorkload(tt, r)
				tt.ExpectNoError(err, "look up")
				s := result.statusOf(r.UID)
				status = &s
			}
			assert.Equal(t, retention.UnknownResource, status.state)
		}
		tt.clock.Step(10 * time.Second)
	}
	// 30s, 1m, 2m, 4m, 5m, 5m, ...
	assert.LessOrEqual(t, mapper.kindFor, 2*16, "number of times that the resource was searched for")
	assert.LessOrEqual(t, mapper.resets, 16, "resets because of one resource")

	// All of that did not use up what others need.
	_, err := tt.ec.lookUpWorkload(tt, workloadRef{namespace: testNamespace, ResourceClaimConsumerReference: customRef})
	tt.ExpectNoError(err, "look up")
	assert.Equal(t, []string{"get trainings"}, tt.requests())

	// Many different resources.
	mapper.resets = 0
	start = tt.clock.Now()
	for i := 0; tt.clock.Since(start) < 10*time.Minute; i++ {
		_, err := tt.ec.getWorkload(tt, schema.GroupResource{Group: "example.com", Resource: fmt.Sprintf("bogus%d", i)}, testNamespace, workloadName)
		assert.Error(t, err)
		tt.clock.Step(100 * time.Millisecond)
	}
	assert.LessOrEqual(t, mapper.resets, 21, "resets because of many resources")
}

// countingMapper counts calls of another mapper.
type countingMapper struct {
	meta.RESTMapper
	kindFor, resets int
}

func (m *countingMapper) KindFor(resource schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	m.kindFor++
	return m.RESTMapper.KindFor(resource)
}

func (m *countingMapper) Reset() { m.resets++ }

// TestNewResource checks that a resource which gets added later is found soon.
func TestNewResource(t *testing.T) {
	tt := newWorkloadTest(t, workloadsEnabled, workloadClaim(unknownRef))
	unknown := customWorkload("Unknown", workloadName, workloadUID)
	tt.mustSync()
	assert.Equal(t, []string{"Warning UnknownWorkload"}, tt.events())
	tt.ec.workloads.restMapper.(*meta.DefaultRESTMapper).Add(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Unknown"}, meta.RESTScopeNamespace)
	tt.create(unknown)
	tt.clock.Step(tt.mustSync())
	assert.Equal(t, defaultPollInterval, tt.mustSync())
	assert.Equal(t, []string{"get unknowns"}, tt.requests())
	assert.Equal(t, 0, gauge(tt, "unknown_resource"))
}

// TestSlowLookups checks that looking up workloads which takes long does not take up all
// workers.
func TestSlowLookups(t *testing.T) {
	tt := newWorkloadTest(t, workloadsEnabled, workloadClaim(customRef), custom)
	hang := make(chan struct{})
	tt.dynamic.PrependReactor("get", "trainings", func(k8stesting.Action) (bool, runtime.Object, error) {
		<-hang
		return false, nil, nil
	})
	ref := workloadRef{namespace: testNamespace, ResourceClaimConsumerReference: customRef}
	var workers sync.WaitGroup
	for range fairness.MaxRunningPerNamespace {
		workers.Add(1)
		go func() {
			defer workers.Done()
			result, err := tt.ec.lookUpWorkload(tt, ref)
			assert.NoError(t, err)
			assert.Equal(t, retention.Active, result.statusOf(customRef.UID).state)
		}()
	}
	limiter := tt.ec.workloads.limiter
	assert.Eventually(t, func() bool {
		return limiter.InProgress() == fairness.MaxRunningPerNamespace
	}, wait.ForeverTestTimeout, time.Millisecond)
	assert.Equal(t, tt.ec.workloads.lookupInterval, tt.mustSync(), "later")
	assert.Equal(t, workloadClaim(customRef), tt.getClaim())

	// Other namespaces have their share, and then there is a limit for all.
	for i := range fairness.MaxRunning - fairness.MaxRunningPerNamespace {
		assert.True(t, limiter.Begin(fmt.Sprintf("other-%d", i)))
	}
	assert.False(t, limiter.Begin("one-more"))
	for i := range fairness.MaxRunning - fairness.MaxRunningPerNamespace {
		limiter.End(fmt.Sprintf("other-%d", i))
	}

	close(hang)
	workers.Wait()
	assert.Zero(t, limiter.InProgress())
}

// TestSeveralActive checks that a claim which is reserved for several objects does not get
// processed more often than those get looked up.
func TestSeveralActive(t *testing.T) {
	otherRef := withUID(customRef, "other-uid")
	otherRef.Name = "other"
	tt := newWorkloadTest(t, workloadsEnabled, reservedBy(workloadClaim(customRef), otherRef), custom, customWorkload("Training", otherRef.Name, otherRef.UID))
	w := tt.ec.workloads
	assert.Equal(t, w.pollInterval, tt.mustSync())
	tt.clock.Step(3 * time.Second)
	assert.Equal(t, w.pollInterval-3*time.Second, tt.mustSync())
	assert.Equal(t, []string{"get trainings", "get trainings"}, tt.requests())
}

// fakeBackend implements userBackend.
type fakeBackend struct {
	list   func(ctx context.Context, namespace string) (*v1.PodList, error)
	notify func(claim types.NamespacedName, after time.Duration)
}

func (b fakeBackend) listUsers(ctx context.Context, namespace string, visit func(*v1.Pod) bool) error {
	pods, err := b.list(ctx, namespace)
	for i := range pods.Items {
		visit(&pods.Items[i])
	}
	return err
}

func (b fakeBackend) isIgnored(*v1.Pod, types.NamespacedName) bool { return false }

func (b fakeBackend) notifyClaim(claim types.NamespacedName, after time.Duration) {
	b.notify(claim, after)
}

// TestUserLists checks that lists are shared, start after the question and do not
// run more often than necessary.
func TestUserLists(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Now())
	lists := 0
	var listErr error
	var pods []v1.Pod
	type notification struct {
		name  string
		after time.Duration
	}
	var notified []notification
	var pending []func()
	users := newUserLists(clock)
	backend := fakeBackend{
		list: func(ctx context.Context, namespace string) (*v1.PodList, error) {
			lists++
			assert.Equal(t, testNamespace, namespace)
			if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > listTimeout {
				t.Error("list without time limit")
			}
			return &v1.PodList{Items: pods}, listErr
		},
		notify: func(claim types.NamespacedName, after time.Duration) {
			notified = append(notified, notification{claim.Name, after})
		},
	}
	users.spawn = func(run func()) { pending = append(pending, run) }
	complete := func() {
		t.Helper()
		assert.Len(t, pending, 1, "lists in progress")
		run := pending[0]
		pending, notified = nil, nil
		run()
	}
	find := func(name string) (*userAnswer, time.Duration) {
		return users.find(context.Background(), backend, types.NamespacedName{Namespace: testNamespace, Name: name}, "test")
	}
	expectPending := func(name string, wait time.Duration) {
		t.Helper()
		answer, after := find(name)
		assert.Nil(t, answer, name)
		assert.Equal(t, wait, after, name)
	}

	// The first one starts a list, the others have to wait for the next.
	expectPending(sharedClaim, 0)
	for i := range 1000 {
		expectPending(fmt.Sprintf("claim-%d", i), 0)
	}
	expectIsPending := func(purpose string, want bool, wantWait time.Duration) {
		t.Helper()
		got, wait := users.isPending(types.NamespacedName{Namespace: testNamespace, Name: "claim-7"}, purpose)
		assert.Equal(t, want, got)
		assert.Equal(t, wantWait, wait)
	}
	expectIsPending("test", true, 0)
	expectIsPending("other", false, 0)
	pods = []v1.Pod{*pendingPod, *succeededPod, *runningPod}
	complete()
	assert.Len(t, notified, 1001)
	assert.Contains(t, notified, notification{sharedClaim, 0})
	assert.Contains(t, notified, notification{"claim-7", listPause})
	// Whoever asks too early has to come again: the notification may be gone.
	expectIsPending("test", true, listPause)
	clock.Step(listPause)
	expectIsPending("test", false, 0)
	clock.SetTime(clock.Now().Add(-listPause))
	answer, _ := find(sharedClaim)
	if assert.NotNil(t, answer) && assert.NotNil(t, answer.pod) {
		assert.Equal(t, runningPod.Name, answer.pod.Name)
	}

	// An answer is good once, and for one purpose.
	expectPending(sharedClaim, listPause)
	clock.Step(listPause - time.Millisecond)
	expectPending("claim-0", time.Millisecond)
	clock.Step(time.Millisecond)
	expectPending("claim-0", 0)
	pods = nil
	complete()
	assert.Equal(t, 2, lists)
	for i := range 1000 {
		answer, _ := find(fmt.Sprintf("claim-%d", i))
		if assert.NotNil(t, answer, "claim-%d", i) {
			assert.Nil(t, answer.pod)
			assert.NoError(t, answer.err)
		}
	}
	answer, wait := users.find(context.Background(), backend, types.NamespacedName{Namespace: testNamespace, Name: sharedClaim}, "other")
	assert.Nil(t, answer)
	assert.Equal(t, listPause, wait)

	// Failures cause longer pauses.
	listErr = errors.New("too many requests")
	for i, pause := range []time.Duration{2 * listPause, 4 * listPause, 8 * listPause, 16 * listPause, 32 * listPause, maxListPause, maxListPause} {
		clock.Step(time.Minute)
		expectPending(sharedClaim, 0)
		late := fmt.Sprintf("late-%d", i)
		expectPending(late, 0)
		complete()
		assert.Contains(t, notified, notification{late, pause})
		answer, _ := find(sharedClaim)
		if assert.NotNil(t, answer) {
			assert.ErrorIs(t, answer.err, listErr)
		}
	}

	// What is not needed anymore does not take up memory.
	listErr = nil
	users.cancel(types.NamespacedName{Namespace: testNamespace, Name: "late-5"})
	clock.Step(time.Hour)
	expectPending("gone", 0)
	complete()
	clock.Step(time.Hour)
	expectPending(sharedClaim, 0)
	complete()
	answer, _ = find(sharedClaim)
	assert.NotNil(t, answer)
	ns := users.namespaces[testNamespace]
	assert.Empty(t, ns.answers)
	assert.Empty(t, ns.waiting)
	clock.Step(time.Hour)
	users.expire()
	assert.Empty(t, users.namespaces)
}

// TestConcurrentLists checks that only a few namespaces get listed at the same
// time.
func TestConcurrentLists(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Now())
	users := newUserLists(clock)
	backend := fakeBackend{}
	var pending []func()
	users.spawn = func(run func()) { pending = append(pending, run) }
	waits := 0
	for i := range 100 {
		if _, wait := users.find(context.Background(), backend, types.NamespacedName{Namespace: fmt.Sprintf("ns-%d", i), Name: sharedClaim}, "test"); wait > 0 {
			waits++
		}
	}
	assert.Len(t, pending, maxLists)
	assert.Equal(t, 100-maxLists, waits)
	// Whoever asked for that does not have to look up anything before it is possible.
	isPending, wait := users.isPending(types.NamespacedName{Namespace: "ns-99", Name: sharedClaim}, "test")
	assert.True(t, isPending)
	assert.Equal(t, listPause, wait)
}

// TestManyClaims checks that the number of requests for releasing many claims is
// limited.
func TestManyClaims(t *testing.T) {
	const numClaims, numPods = 1000, 10000
	var objects []runtime.Object
	var claims []*resourceapi.ResourceClaim
	for i := range numClaims {
		ref := jobRef
		ref.Name = fmt.Sprintf("job-%d", i)
		claim := workloadClaim(ref)
		claim.Name, claim.UID = fmt.Sprintf("claim-%d", i), types.UID(fmt.Sprintf("claim-%d", i))
		finished := completeJob.DeepCopy()
		finished.Name = ref.Name
		claims = append(claims, claim)
		objects = append(objects, claim, finished)
	}
	for i := range numPods {
		pod := userPod(fmt.Sprintf("pod-%d", i), nodeName, v1.PodRunning)
		pod.Spec.ResourceClaims[0].ResourceClaimName = ptr.To("unrelated")
		objects = append(objects, pod)
	}
	tt := newWorkloadTest(t, workloadsEnabled, objects...)
	// Lists take some time, as they do in reality.
	var running []func()
	tt.ec.workloads.users.spawn = func(run func()) { running = append(running, run) }
	claimKeys := make([]string, 0, numClaims)
	for _, claim := range claims {
		claimKeys = append(claimKeys, claimKey(claim))
	}
	deallocated := func() int {
		n := 0
		for _, claim := range claims {
			obj, err := tt.client.Tracker().Get(claimResource, testNamespace, claim.Name)
			tt.ExpectNoError(err, "get claim")
			updated := obj.(*resourceapi.ResourceClaim)
			old, err := tt.ec.claimLister.ResourceClaims(testNamespace).Get(claim.Name)
			tt.ExpectNoError(err, "get cached claim")
			if old != updated {
				tt.ExpectNoError(claimInformer(tt.factory).GetIndexer().Update(updated), "update claim cache")
				tt.ec.observeClaim(old, updated)
			}
			if updated.Status.Allocation == nil {
				n++
			}
		}
		return n
	}

	rounds := 0
	for deallocated() < numClaims {
		rounds++
		if rounds > 100 {
			t.Fatal("claims do not get deallocated")
		}
		for _, key := range claimKeys {
			tt.ExpectNoError(tt.ec.syncHandler(tt, key), "sync claim")
			tt.events()
		}
		lists := running
		running = nil
		for _, run := range lists {
			run()
		}
		tt.clock.Step(listPause)
	}
	requests := map[string]int{}
	for _, request := range tt.requests() {
		requests[request]++
	}
	t.Logf("requests after %d rounds: %v", rounds, requests)
	// Two looks, and for each of them the first claim does not wait for the others.
	assert.LessOrEqual(t, requests["list pods"], 8)
	assert.LessOrEqual(t, requests["get jobs"], numClaims, "requests for jobs")
}

func idleClaim(ref resourceapi.ResourceClaimConsumerReference, value string) *resourceapi.ResourceClaim {
	claim := workloadClaim(ref)
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, resourceclaim.ReleaseWhenIdleAnnotation, value)
	return claim
}

// TestReleaseWhenIdle checks that a claim which is not used gets released although
// its workload exists if, and only if, users want that.
func TestReleaseWhenIdle(t *testing.T) {
	for name, test := range map[string]struct {
		ref     resourceapi.ResourceClaimConsumerReference
		objects []runtime.Object
	}{
		"suspended-job": {ref: jobRef, objects: []runtime.Object{suspendedJob}},
		"scaled-down":   {ref: deploymentRef, objects: []runtime.Object{deployment}},
		"custom":        {ref: customRef, objects: []runtime.Object{custom}},
		"unknown":       {ref: unknownRef},
	} {
		t.Run(name, func(t *testing.T) {
			tt := newWorkloadTest(t, workloadsEnabled, append(test.objects, idleClaim(test.ref, "20m"), runningPod)...)
			reserved := func(expect bool, what string) {
				t.Helper()
				tt.mustSync()
				assert.Equal(t, expect, len(tt.getClaim().Status.ReservedFor) > 0, "reserved %s", what)
				assert.NotNil(t, tt.getClaim().Status.Allocation, "allocated %s", what)
			}

			reserved(true, "while used")
			tt.clock.Step(time.Hour)
			reserved(true, "while used for a long time")
			tt.removePod(runningPod)
			reserved(true, "directly after use")

			// Used in between, without the claim being checked at that time.
			tt.clock.Step(15 * time.Minute)
			tt.setPod(otherPod)
			tt.clock.Step(time.Minute)
			tt.removePod(otherPod)
			reserved(true, "after short use")
			tt.clock.Step(20*time.Minute - time.Second)
			delay := tt.mustSync()
			assert.Positive(t, delay)
			assert.LessOrEqual(t, delay, time.Second, "next check")
			reserved(true, "just before the time is up")

			// Now.
			tt.events()
			tt.clock.Step(time.Second)
			tt.release()
			tt.mustSync()
			assert.Nil(t, tt.getClaim().Status.Allocation)
			assert.Equal(t, []string{"Normal IdleReservation", "Normal ReservationReleased", "Normal Deallocated"}, tt.events())
		})
	}
}

// TestReleaseWhenIdleChanged checks that changing the annotation is effective
// immediately, and values which are not valid.
func TestReleaseWhenIdleChanged(t *testing.T) {
	tt := newWorkloadTest(t, workloadsEnabled, idleClaim(jobRef, "24h"), job)
	assert.Equal(t, maxIdleRecheck, tt.mustSync())
	tt.clock.Step(2 * time.Hour)
	tt.mustSync()
	assert.Equal(t, consumers{jobRef}, tt.getClaim().Status.ReservedFor)

	for _, value := range []string{"", "soon", "5s", "-1h"} {
		tt.setClaim(idleClaim(jobRef, value))
		assert.Equal(t, time.Duration(0), tt.mustSync(), "delay with %q", value)
		assert.Equal(t, []string{"Warning InvalidReleaseWhenIdle"}, tt.events(), "events for %q", value)
		tt.mustSync()
		assert.Empty(t, tt.events(), "more events for %q", value)
	}

	// Removed.
	tt.setClaim(workloadClaim(jobRef))
	assert.Equal(t, time.Duration(0), tt.mustSync())
	assert.Equal(t, consumers{jobRef}, tt.getClaim().Status.ReservedFor)

	// Shorter than what has already passed.
	tt.setClaim(idleClaim(jobRef, "1h"))
	tt.mustSync()
	assert.Empty(t, tt.getClaim().Status.ReservedFor)

	// Reserved again by the scheduler. The pod is not bound yet.
	tt.setClaim(anyPodClaim(jobRef))
	tt.setClaim(idleClaim(jobRef, "1h"))
	assert.Equal(t, time.Hour, tt.mustSync())
	assert.Equal(t, consumers{jobRef}, tt.getClaim().Status.ReservedFor)

	// A pod is assigned, but the cache does not know yet.
	tt.clock.Step(time.Hour)
	tt.create(boundPod)
	tt.mustSync()
	assert.Equal(t, consumers{jobRef}, tt.getClaim().Status.ReservedFor)

	// Not without the feature.
	tt = newWorkloadTest(t, Features{}, idleClaim(jobRef, "10s"), job)
	tt.mustSync()
	tt.clock.Step(time.Hour)
	tt.mustSync()
	assert.Equal(t, consumers{jobRef}, tt.getClaim().Status.ReservedFor)
}
