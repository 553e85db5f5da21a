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
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/controller/resourceclaim/retention"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
)

// TestManyOwners ensures that one tenant with one pod at a time does not decide how much memory the controller takes.
func TestManyOwners(t *testing.T) {
	claim := workloadClaim(customRef)
	tt := newWorkloadTest(t, workloadsEnabled, claim, custom)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range 10000 {
		// Twice: an owner that does not exist, and an incarnation that is not listed.
		owner := &metav1.ObjectMeta{Name: fmt.Sprintf("%0250d", i), UID: types.UID(fmt.Sprintf("%0120d", i))}
		tt.ec.mustReserve(tt, controlledBy(boundPod, "example.com/v1", "Training", owner), claim)
		owner.Name = workloadName
		tt.ec.mustReserve(tt, controlledBy(boundPod, "example.com/v1", "Training", owner), claim)
		tt.clock.Step(200 * time.Millisecond)
		tt.dynamic.ClearActions()
	}
	clear(tt.queue.delays)
	runtime.GC()
	runtime.ReadMemStats(&after)
	w := tt.ec.workloads
	total := 0
	for name, size := range map[string]func() (int, int){"owners": w.owners.Size, "done": w.done.Size, "lookups": w.lookups.Size, "unknown": w.unknownResources.Size, "stranded": w.stranded.Size} {
		entries, bytes := size()
		t.Logf("%s: %d entries, counted as %d bytes", name, entries, bytes)
		assert.LessOrEqual(t, bytes, maxNamespaceBytes, name)
		total += bytes
	}
	t.Logf("heap grew by %d bytes, counted as %d", int64(after.HeapAlloc)-int64(before.HeapAlloc), total)
	assert.Less(t, total, 1024*1024)
	assert.NotZero(t, total)
}

// TestManyLookups ensures that what is named in the claims of one tenant is limited, too.
func TestManyLookups(t *testing.T) {
	tt := newWorkloadTest(t, workloadsEnabled)
	w := tt.ec.workloads
	for i := range 10000 {
		ref := customRef
		ref.Name = fmt.Sprintf("%0250d", i)
		w.lookups.Add(testNamespace, workloadRef{testNamespace, ref}.key(), &lookupResult{observed: &observedWorkload{}}, time.Hour)
	}
	_, bytes := w.lookups.Size()
	assert.LessOrEqual(t, bytes, maxLookupBytes)
}

// TestUnknownOwner ensures that users are told once why it is not known to which workload a pod belongs.
func TestUnknownOwner(t *testing.T) {
	group := customWorkload("Group", "group", "group-1")
	for name, test := range map[string]struct {
		pod    *v1.Pod
		err    error
		expect string
	}{
		"absent":       {pod: controlledBy(boundPod, "example.com/v1", "Group", group), expect: `owner Group "group" does not exist`},
		"forbidden":    {pod: controlledBy(boundPod, "example.com/v1", "Group", group), err: forbidden, expect: `owner Group "group" may not be looked at`},
		"unknown-kind": {pod: controlledBy(boundPod, "example.com/v1", "Unknown", group), expect: `owner Unknown "group" is of a kind that is not served`},
		"too-long":     {pod: controlledBy(boundPod, "example.com/v1", "Group", &metav1.ObjectMeta{Name: strings.Repeat("x", 1000)}), expect: "an owner reference is too long"},
	} {
		t.Run(name, func(t *testing.T) {
			claim := workloadClaim(jobRef)
			tt := newWorkloadTest(t, workloadsEnabled, claim, test.pod, job)
			tt.dynamic.PrependReactor("get", "*", func(k8stesting.Action) (bool, apiruntime.Object, error) { return test.err != nil, nil, test.err })
			for range 3 {
				assert.False(t, tt.ec.mustReserve(tt, test.pod, claim))
			}
			require.Len(t, tt.recorder.Events, 1)
			event := <-tt.recorder.Events
			assert.Contains(t, event, "Warning UnknownOwner cannot tell whether pod \"bound\" belongs to jobs.batch \"training\": ")
			assert.Contains(t, event, test.expect)
			assert.LessOrEqual(t, len(tt.requests()), 1)
		})
	}
}

// TestManyStrandedPods ensures that all of them are told, and that none keeps the devices.
func TestManyStrandedPods(t *testing.T) {
	const numPods = 1000
	objects := []apiruntime.Object{completeJob, makeNode(nodeName), makeNode("other"), claimForNode(workloadClaim(jobRef), "other")}
	var pods []*v1.Pod
	for i := range numPods {
		pod := boundPod.DeepCopy()
		pod.Name, pod.UID = fmt.Sprintf("pod-%d", i), types.UID(fmt.Sprintf("%036d", i))
		pods = append(pods, pod)
		objects = append(objects, pod)
	}
	tt := newWorkloadTest(t, workloadsEnabled, objects...)
	for range 2 {
		for _, pod := range pods {
			tt.syncPod(pod)
		}
		tt.clock.Step(strandedGracePeriod)
	}
	tt.mustSync()
	assert.Empty(t, tt.getClaim().Status.ReservedFor)
}

// TestStrandedPodIsNoUser covers what may be a pod that cannot run, and whether it keeps the claim from being released.
func TestStrandedPodIsNoUser(t *testing.T) {
	started := func(change func(*v1.PodStatus)) *v1.Pod {
		pod := boundPod.DeepCopy()
		change(&pod.Status)
		return pod
	}
	elsewhere := claimForNode(workloadClaim(jobRef), "other")
	for name, test := range map[string]struct {
		claim  *resourceapi.ResourceClaim
		pod    *v1.Pod
		nodes  []apiruntime.Object
		expect bool
	}{
		"elsewhere":   {claim: elsewhere, pod: boundPod, nodes: []apiruntime.Object{makeNode(nodeName), makeNode("other")}, expect: true},
		"deleted":     {claim: deleted(elsewhere), pod: boundPod, nodes: []apiruntime.Object{makeNode(nodeName)}, expect: true},
		"same-node":   {claim: claimForNode(workloadClaim(jobRef), nodeName), pod: boundPod, nodes: []apiruntime.Object{makeNode(nodeName)}},
		"all-nodes":   {claim: workloadClaim(jobRef), pod: boundPod, nodes: []apiruntime.Object{makeNode(nodeName)}},
		"no-node":     {claim: elsewhere, pod: boundPod},
		"terminating": {claim: elsewhere, pod: deleted(boundPod), nodes: []apiruntime.Object{makeNode(nodeName)}},
		"sandbox": {claim: elsewhere, nodes: []apiruntime.Object{makeNode(nodeName)}, pod: started(func(status *v1.PodStatus) {
			status.Conditions = []v1.PodCondition{{Type: v1.PodReadyToStartContainers, Status: v1.ConditionTrue}}
		})},
		"init-container": {claim: elsewhere, nodes: []apiruntime.Object{makeNode(nodeName)}, pod: started(func(status *v1.PodStatus) {
			status.InitContainerStatuses = []v1.ContainerStatus{{State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}
		})},
	} {
		t.Run(name, func(t *testing.T) {
			tt := newWorkloadTest(t, workloadsEnabled, append(test.nodes, test.claim, completeJob, test.pod)...)
			tt.mustSync()
			tt.syncPod(test.pod)
			tt.mustSync()
			require.NotEmpty(t, tt.getClaim().Status.ReservedFor, "informers might be outdated")
			tt.clock.Step(strandedGracePeriod)
			tt.syncPod(test.pod)
			tt.mustSync()
			if !test.expect {
				assert.NotEmpty(t, tt.getClaim().Status.ReservedFor)
				return
			}
			assert.Empty(t, tt.getClaim().Status.ReservedFor)
			tt.syncCaches()
			tt.mustSync()
			tt.clock.Step(tt.ec.workloads.releasePause)
			tt.mustSync()
			assert.Nil(t, tt.getClaim().Status.Allocation)
		})
	}

	// The node got its label after the pod was bound.
	t.Run("started-later", func(t *testing.T) {
		tt := newWorkloadTest(t, workloadsEnabled, elsewhere, completeJob, boundPod, makeNode(nodeName))
		tt.syncPod(boundPod)
		tt.clock.Step(strandedGracePeriod)
		tt.syncPod(boundPod)
		pod := boundPod.DeepCopy()
		pod.Status.Phase = v1.PodRunning
		tt.setPod(pod)
		tt.mustSync()
		assert.NotEmpty(t, tt.getClaim().Status.ReservedFor)
	})
}

// TestIdleLimits covers claims that are not idle, and those which will not be for a long time.
func TestIdleLimits(t *testing.T) {
	t.Run("forever", func(t *testing.T) {
		tt := newWorkloadTest(t, workloadsEnabled, idleClaim(jobRef, "2562047h"), job)
		assert.Equal(t, maxIdleRecheck, tt.mustSync())
		tt.clock.Step(maxIdleRecheck)
		assert.Equal(t, maxIdleRecheck, tt.mustSync())
	})
	gated := controlledBy(pendingPod, "batch/v1", "Job", job)
	gated.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "queue"}}
	for name, test := range map[string]struct {
		pod  *v1.Pod
		idle bool
	}{
		"waits":       {pod: controlledBy(pendingPod, "batch/v1", "Job", job)},
		"of-somebody": {pod: pendingPod, idle: true},
		"gated":       {pod: gated, idle: true},
		"deleted":     {pod: deleted(controlledBy(pendingPod, "batch/v1", "Job", job)), idle: true},
	} {
		t.Run(name, func(t *testing.T) {
			tt := newWorkloadTest(t, workloadsEnabled, idleClaim(jobRef, "1m"), job, test.pod)
			assert.Equal(t, time.Minute, tt.mustSync())
			tt.clock.Step(time.Minute)
			delay := tt.mustSync()
			assert.Equal(t, test.idle, len(tt.getClaim().Status.ReservedFor) == 0)
			if test.idle {
				return
			}
			assert.Equal(t, time.Minute, delay)
			tt.removePod(test.pod)
			tt.mustSync()
			tt.clock.Step(time.Minute)
			tt.mustSync()
			assert.Empty(t, tt.getClaim().Status.ReservedFor)
		})
	}
}

// TestOldAnswer ensures that which pods used a claim at some time is not the answer to a later question.
func TestOldAnswer(t *testing.T) {
	finished := finishedCustom("Complete", "True")
	tt := newWorkloadTest(t, workloadsEnabled, workloadClaim(customRef), finished)
	var lists []func()
	tt.ec.workloads.users.spawn = func(run func()) { lists = append(lists, run) }
	update := func(obj *unstructured.Unstructured) {
		tt.ExpectNoError(tt.dynamic.Tracker().Update(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "trainings"}, obj, testNamespace))
		tt.clock.Step(10 * time.Second)
	}
	tt.mustSync()
	require.Len(t, lists, 1)
	lists[0]()

	// It starts over, a pod is bound that is not in the cache yet, and it finishes again.
	update(custom)
	tt.mustSync()
	tt.create(boundPod)
	update(finished)
	tt.mustSync()
	require.NotEmpty(t, tt.getClaim().Status.ReservedFor)
	require.Len(t, lists, 2)
	lists[1]()
	tt.mustSync()
	require.NotEmpty(t, tt.getClaim().Status.ReservedFor)
}

// TestListPages ensures that pods are found on any page, and that an expired list is repeated.
func TestListPages(t *testing.T) {
	for name, test := range map[string]struct {
		expired bool
		visits  int
	}{
		"pages":   {visits: 2},
		"expired": {expired: true, visits: 3},
	} {
		t.Run(name, func(t *testing.T) {
			tt := newWorkloadTest(t, workloadsEnabled)
			calls := 0
			tt.client.PrependReactor("list", "pods", func(k8stesting.Action) (bool, apiruntime.Object, error) {
				calls++
				switch {
				case calls == 1:
					return true, &v1.PodList{ListMeta: metav1.ListMeta{Continue: "more"}, Items: []v1.Pod{*otherPod}}, nil
				case calls == 2 && test.expired:
					return true, nil, apierrors.NewResourceExpired("too old")
				case calls == 3:
					return true, &v1.PodList{Items: []v1.Pod{*otherPod, *runningPod}}, nil
				default:
					return true, &v1.PodList{Items: []v1.Pod{*runningPod}}, nil
				}
			})
			var visited []string
			tt.ExpectNoError(tt.ec.listUsers(tt, testNamespace, func(pod *v1.Pod) bool {
				visited = append(visited, pod.Name)
				return true
			}))
			assert.Len(t, visited, test.visits)
			assert.Equal(t, runningPod.Name, visited[len(visited)-1])

			calls = 0
			tt.ExpectNoError(tt.ec.listUsers(tt, testNamespace, func(pod *v1.Pod) bool { return false }))
			assert.Equal(t, 1, calls, "not more than necessary")
		})
	}
	var ns namespaceUsers
	assert.Equal(t, listPause, ns.finish(0, nil))
	assert.Equal(t, 20*time.Second, ns.finish(5*time.Second, nil))
	assert.Equal(t, maxListPause, ns.finish(time.Minute, nil))
}

// TestUnknownInOneNamespace ensures that an answer for one namespace is not one for others.
func TestUnknownInOneNamespace(t *testing.T) {
	tt := newWorkloadTest(t, workloadsEnabled)
	w := tt.ec.workloads
	resource := schema.GroupResource{Group: "example.com", Resource: "trainings"}
	w.addUnknownResource("a", resource, errors.New("404 page not found"))
	_, wait := w.unknownResource("a", resource)
	assert.Equal(t, w.retryInterval, wait)
	_, wait = w.unknownResource("b", resource)
	assert.Zero(t, wait)
}

// TestDoneIsRemembered ensures that the end of a workload is looked up once: with thousands of claims to release, it takes
// minutes until the second look at one of them, and that must not need another request.
func TestDoneIsRemembered(t *testing.T) {
	tt := newWorkloadTest(t, workloadsEnabled)
	ref := workloadRef{namespace: testNamespace, ResourceClaimConsumerReference: jobRef}
	other, noUID := ref, ref
	other.UID, noUID.UID = "other", ""
	_, err := tt.ec.lookUpWorkload(tt, ref)
	tt.ExpectNoError(err, "look up")
	tt.clock.Step(5 * time.Minute)
	if status := tt.ec.workloads.recentStatus(ref, 0); assert.NotNil(tt, status, "five minutes later") {
		assert.Equal(tt, retention.Done, status.state)
	}
	assert.Nil(tt, tt.ec.workloads.recentStatus(other, 0), "another incarnation")

	// It may be created at any time.
	_, err = tt.ec.lookUpWorkload(tt, noUID)
	tt.ExpectNoError(err, "look up")
	tt.clock.Step(time.Minute)
	assert.Nil(tt, tt.ec.workloads.recentStatus(noUID, 0), "without UID")
}

// TestUserListCopies ensures that a pod with thousands of claims is not kept once for each of them.
func TestUserListCopies(t *testing.T) {
	pod := userPod("pod", nodeName, v1.PodRunning)
	pod.Spec.ResourceClaims = nil
	for _, name := range []string{"a", "b"} {
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, v1.PodResourceClaim{Name: name, ResourceClaimName: ptr.To(name)})
	}
	clock := testingclock.NewFakeClock(time.Now())
	users := newUserLists(clock)
	var pending []func()
	users.spawn = func(run func()) { pending = append(pending, run) }
	backend := fakeBackend{
		list:   func(context.Context, string) (*v1.PodList, error) { return &v1.PodList{Items: []v1.Pod{*pod}}, nil },
		notify: func(types.NamespacedName, time.Duration) {},
	}
	find := func(name string) *userAnswer {
		answer, _ := users.find(context.Background(), backend, types.NamespacedName{Namespace: testNamespace, Name: name}, "test")
		return answer
	}
	// The first one does not wait for others, and these wait for the next list.
	for range 2 {
		for _, name := range []string{"first", "a", "b"} {
			find(name)
		}
		require.NotEmpty(t, pending, "list")
		run := pending[0]
		pending = pending[1:]
		run()
		clock.Step(5 * time.Second)
	}
	a, b := find("a"), find("b")
	if assert.NotNil(t, a) && assert.NotNil(t, b) {
		assert.Same(t, a.pod, b.pod)
	}
}
