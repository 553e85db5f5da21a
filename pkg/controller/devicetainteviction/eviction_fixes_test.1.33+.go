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

package devicetainteviction

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/assert"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/controller/tainteviction"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/ptr"
)

// evictionTest describes which pods get evicted after some events, in terms which
// are the same in all Kubernetes releases.
type evictionTest struct {
	// initial are changes as returned by [add], [remove] and [update]. They
	// get applied first.
	initial []any

	// evicted are the pods which get evicted, after some time.
	evicted []*v1.Pod
	delay   time.Duration

	// canceled are the pods whose eviction gets canceled.
	canceled []*v1.Pod
}

// check applies further changes. The context must be a new one.
func (test evictionTest) check(tContext *testContext, events []any) {
	tContext.Helper()
	for _, event := range slices.Concat(test.initial, events) {
		tContext.apply(event)
	}
	pending := make(map[tainteviction.NamespacedObject]time.Time)
	for _, pod := range test.evicted {
		pending[newObject(pod)] = taintedSince.Add(test.delay)
	}
	assert.Equal(tContext, pending, tContext.pendingEvictions(), "pods which need to be evicted and when")

	remaining := tContext.existingPods()
	tContext.processEvictions(0)
	if test.delay > 0 {
		assert.Equal(tContext, remaining, tContext.existingPods(), "pods before eviction")
		tContext.processEvictions(test.delay)
	}
	var wantEvents []*v1.Event
	for _, pod := range test.evicted {
		delete(remaining, newObject(pod))
		wantEvents = append(wantEvents, makePodEvent("Marking for deletion", pod))
	}
	assert.Equal(tContext, remaining, tContext.existingPods(), "pods after eviction")
	for _, pod := range test.canceled {
		wantEvents = append(wantEvents, makePodEvent("Cancelling deletion", pod))
	}
	if diff := cmp.Diff(wantEvents, tContext.recorder.Events,
		cmpopts.EquateEmpty(),
		cmpopts.IgnoreTypes(metav1.ObjectMeta{}, metav1.Time{}),
		cmpopts.SortSlices(func(a, b *v1.Event) bool {
			return strings.Compare(string(a.InvolvedObject.UID), string(b.InvolvedObject.UID)) < 0
		}),
	); diff != "" {
		tContext.Errorf("unexpected events (-want, +got):\n%s", diff)
	}
}

func (tContext *testContext) existingPods() map[tainteviction.NamespacedObject]bool {
	tContext.Helper()
	pods, err := tContext.client.CoreV1().Pods("").List(tContext, metav1.ListOptions{})
	tContext.ExpectNoError(err, "list pods")
	existing := make(map[tainteviction.NamespacedObject]bool)
	for _, pod := range pods.Items {
		existing[newObject(&pod)] = true
	}
	return existing
}

func makePodEvent(message string, pod *v1.Pod) *v1.Event {
	return &v1.Event{
		InvolvedObject: v1.ObjectReference{
			Kind:       "Pod",
			APIVersion: "v1",
			Namespace:  pod.Namespace,
			Name:       pod.Name,
			UID:        pod.UID,
		},
		Reason:  "DeviceTaintManagerEviction",
		Message: message,
		Type:    v1.EventTypeNormal,
		Source:  v1.EventSource{Component: "nodeControllerTest"},
		Count:   1,
	}
}

// permutations returns the items in all possible orders.
func permutations(items []any) [][]any {
	if len(items) <= 1 {
		return [][]any{items}
	}
	var result [][]any
	for i := range items {
		others := slices.Delete(slices.Clone(items), i, i+1)
		for _, tail := range permutations(others) {
			result = append(result, append([]any{items[i]}, tail...))
		}
	}
	return result
}

// makeListedPod returns a pod and its entry in status.reservedFor.
func makeListedPod(suffix string) (*v1.Pod, resourceapi.ResourceClaimConsumerReference) {
	pod := st.MakePod().Name(podName + suffix).Namespace(namespace).UID(podUID + suffix).
		PodResourceClaims(v1.PodResourceClaim{Name: resourceName, ResourceClaimName: &claimName}).
		Node(nodeName).
		Obj()
	return pod, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID}
}

// TestListedPodNotFound checks that all pods which use a tainted device get evicted
// although others before them in the list don't exist anymore.
func TestListedPodNotFound(t *testing.T) {
	pod, listed := makeListedPod("-last")
	replacement, replaced := makeListedPod("-first")
	replaced.UID = "other"
	for name, tc := range map[string]struct {
		first resourceapi.ResourceClaimConsumerReference
		pods  []any
	}{
		"gone":     {first: replaced, pods: []any{add(pod)}},
		"replaced": {first: replaced, pods: []any{add(replacement), add(pod)}},
	} {
		t.Run(name, func(t *testing.T) {
			claim := claim.DeepCopy()
			claim.Status.Allocation = allocationResult
			claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{tc.first, listed}
			test := evictionTest{
				initial: slices.Concat([]any{add(slice), add(claim)}, tc.pods),
				evicted: []*v1.Pod{pod},
			}
			runEvictionTest(t, func(tContext *testContext) {
				test.check(tContext, []any{update(slice, sliceTainted)})
			})
		})
	}
}

// TestEvictionEvents checks that each pod gets an event.
func TestEvictionEvents(t *testing.T) {
	pod1, listed1 := makeListedPod("-1")
	pod2, listed2 := makeListedPod("-2")
	claim := claim.DeepCopy()
	claim.Status.Allocation = allocationResult
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{listed1, listed2}
	test := evictionTest{
		initial: []any{add(slice), add(claim), add(pod1), add(pod2)},
		evicted: []*v1.Pod{pod1, pod2},
	}
	runEvictionTest(t, func(tContext *testContext) {
		test.check(tContext, []any{update(slice, sliceTainted)})
	})
}

// TestTolerationWithoutEffect checks that an empty effect matches all of them, as the API
// says, and for how long.
func TestTolerationWithoutEffect(t *testing.T) {
	for name, tc := range map[string]struct {
		toleration resourceapi.DeviceToleration
		evicted    bool
		delay      time.Duration
	}{
		"forever":      {toleration: resourceapi.DeviceToleration{Operator: resourceapi.DeviceTolerationOpExists}},
		"for-a-while":  {toleration: resourceapi.DeviceToleration{Operator: resourceapi.DeviceTolerationOpExists, TolerationSeconds: ptr.To(int64(60))}, evicted: true, delay: time.Minute},
		"other-key":    {toleration: resourceapi.DeviceToleration{Key: "other", Operator: resourceapi.DeviceTolerationOpExists}, evicted: true},
		"other-effect": {toleration: resourceapi.DeviceToleration{Operator: resourceapi.DeviceTolerationOpExists, Effect: resourceapi.DeviceTaintEffectNoSchedule}, evicted: true},
	} {
		t.Run(name, func(t *testing.T) {
			pod, listed := makeListedPod("-1")
			claim := claim.DeepCopy()
			claim.Status.Allocation = allocationResult.DeepCopy()
			for i := range claim.Status.Allocation.Devices.Results {
				claim.Status.Allocation.Devices.Results[i].Tolerations = []resourceapi.DeviceToleration{tc.toleration}
			}
			claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{listed}
			test := evictionTest{initial: []any{add(slice), add(claim), add(pod)}, delay: tc.delay}
			if tc.evicted {
				test.evicted = []*v1.Pod{pod}
			}
			runEvictionTest(t, func(tContext *testContext) {
				test.check(tContext, []any{update(slice, sliceTainted)})
			})
		})
	}
}

// TestReallocatedInOneUpdate covers an informer which had to list all claims again, and did not see that one was
// deallocated in between.
func TestReallocatedInOneUpdate(t *testing.T) {
	pod, listed := makeListedPod("-1")
	allocated := func(device string) *resourceapi.ResourceClaim {
		claim := claim.DeepCopy()
		claim.Status.Allocation = allocationResult.DeepCopy()
		for i := range claim.Status.Allocation.Devices.Results {
			claim.Status.Allocation.Devices.Results[i].Device = device
		}
		claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{listed}
		return claim
	}
	tainted, other := allocated(allocationResult.Devices.Results[0].Device), allocated("instance-other")
	t.Run("from-tainted", func(t *testing.T) {
		test := evictionTest{initial: []any{add(sliceTainted), add(tainted), add(pod)}, canceled: []*v1.Pod{pod}}
		runEvictionTest(t, func(tContext *testContext) { test.check(tContext, []any{update(tainted, other)}) })
	})
	t.Run("to-tainted", func(t *testing.T) {
		test := evictionTest{initial: []any{add(sliceTainted), add(other), add(pod)}, evicted: []*v1.Pod{pod}}
		runEvictionTest(t, func(tContext *testContext) { test.check(tContext, []any{update(other, tainted)}) })
	})
}
