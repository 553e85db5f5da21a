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
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	resourcebeta "k8s.io/api/resource/v1beta2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/controller/tainteviction"
	"k8s.io/kubernetes/pkg/features"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/ptr"
)

var (
	jobRef = resourceapi.ResourceClaimConsumerReference{APIGroup: "batch", Resource: "jobs", Name: "my-job", UID: "job-uid"}

	// workloadClaim is allocated, reserved for a Job, and doesn't list any pod.
	workloadClaim = func() *resourceapi.ResourceClaim {
		claim := claim.DeepCopy()
		claim.Spec.ReservedFor = jobRef.DeepCopy()
		claim.Status.Allocation = allocationResult.DeepCopy()
		claim.Status.Allocation.ReservedForAnyPod = ptr.To(true)
		claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{jobRef}
		return claim
	}()
	workloadClaimReleased    = changeClaim(workloadClaim, func(claim *resourceapi.ResourceClaim) { claim.Status.ReservedFor = nil })
	workloadClaimDeallocated = changeClaim(workloadClaimReleased, func(claim *resourceapi.ResourceClaim) { claim.Status.Allocation = nil })
	workloadClaimPerPod      = changeClaim(workloadClaim, func(claim *resourceapi.ResourceClaim) { claim.Status.Allocation.ReservedForAnyPod = nil })
	workloadClaimToleration  = changeClaim(workloadClaim, func(claim *resourceapi.ResourceClaim) {
		claim.Status.Allocation.Devices.Results[0].Tolerations = inUseClaimWithToleration.Status.Allocation.Devices.Results[0].Tolerations
	})
	workloadClaimTolerationForever = changeClaim(workloadClaimToleration, func(claim *resourceapi.ResourceClaim) {
		claim.Status.Allocation.Devices.Results[0].Tolerations = []resourceapi.DeviceToleration{{
			Operator: resourceapi.DeviceTolerationOpExists,
			Effect:   resourceapi.DeviceTaintEffectNoExecute,
		}}
	})
	// workloadClaimMixed additionally lists workloadPod1.
	workloadClaimMixed = changeClaim(workloadClaim, func(claim *resourceapi.ResourceClaim) {
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: podName + "-1", UID: types.UID(podUID + "-1")})
	})

	workloadPod1 = makeWorkloadPod(1, nodeName)
	// On a different node than the one publishing the device.
	workloadPod2 = makeWorkloadPod(2, nodeName2)

	workloadPod1Finished    = changePod(workloadPod1, func(pod *v1.Pod) { pod.Status.Phase = v1.PodSucceeded })
	workloadPod1Terminating = changePod(workloadPod1, func(pod *v1.Pod) { pod.DeletionTimestamp = taintTime; pod.Finalizers = []string{"example.com/test"} })
	workloadPod1Pending     = changePod(workloadPod1, func(pod *v1.Pod) { pod.Spec.NodeName = "" })

	workloadEvictionTime        = newEvictionTime(taintTime, sliceTainted, sliceTainted.Spec.Devices[0].Name, 0)
	workloadEvictionTimeDelayed = newEvictionTime(metav1Time(taintTime.Add(tolerationDuration)), sliceTainted, sliceTainted.Spec.Devices[0].Name, 0)
)

func changeClaim(claim *resourceapi.ResourceClaim, change func(*resourceapi.ResourceClaim)) *resourceapi.ResourceClaim {
	claim = claim.DeepCopy()
	change(claim)
	return claim
}

func changePod(pod *v1.Pod, change func(*v1.Pod)) *v1.Pod {
	pod = pod.DeepCopy()
	change(pod)
	return pod
}

func makeWorkloadPod(index int, nodeName string) *v1.Pod {
	return st.MakePod().Name(fmt.Sprintf("%s-%d", podName, index)).Namespace(namespace).
		UID(fmt.Sprintf("%s-%d", podUID, index)).
		PodResourceClaims(v1.PodResourceClaim{Name: resourceName, ResourceClaimName: &claimName}).
		Node(nodeName).
		Obj()
}

func makePodEvent(message string, pod *v1.Pod) *v1.Event {
	event := deletePodEvent.DeepCopy()
	event.InvolvedObject.Namespace = pod.Namespace
	event.InvolvedObject.Name = pod.Name
	event.InvolvedObject.UID = pod.UID
	event.Message = message
	return event
}

func deleteEvents(pods ...*v1.Pod) (events []*v1.Event) {
	for _, pod := range pods {
		events = append(events, makePodEvent("Marking for deletion", pod))
	}
	return events
}

func cancelEvents(pods ...*v1.Pod) (events []*v1.Event) {
	for _, pod := range pods {
		events = append(events, makePodEvent("Cancelling deletion", pod))
	}
	return events
}

func evict(when *evictionAndReason, pods ...*v1.Pod) evictMap {
	evictions := evictMap{}
	for _, pod := range pods {
		evictions[newObject(pod)] = *when
	}
	return evictions
}

func queue(pods ...*v1.Pod) MockState[workItem] {
	var state MockState[workItem]
	for _, pod := range pods {
		state.Ready = append(state.Ready, newWorkItem(pod))
	}
	return state
}

// TestReservedForWorkloads covers claims which are reserved for a workload: pods
// get evicted without being listed in the claim.
//
// With the feature disabled, nothing must be done for pods that are not listed:
// each test case where pods get evicted also runs without it.
func TestReservedForWorkloads(t *testing.T) {
	for name, tc := range map[string]struct {
		testCase

		// evictedWhenDisabled contains pods which get evicted even when the
		// feature is disabled.
		evictedWhenDisabled []*v1.Pod
	}{
		"unlisted-pods": {
			testCase: testCase{
				// In all possible orders. This covers in particular a pod which gets
				// created after the device got tainted.
				events: []any{
					add(sliceTainted),
					add(workloadClaim),
					add(workloadPod1),
					add(workloadPod2),
				},
				finalState: state{
					slices:          l(sliceTainted),
					allocatedClaims: l(ac(workloadClaim, workloadEvictionTime)),
					deletePodAt:     evict(workloadEvictionTime, workloadPod1, workloadPod2),
					queued:          queue(workloadPod1, workloadPod2),
				},
				wantEvents: deleteEvents(workloadPod1, workloadPod2),
			},
		},
		"taint-added": {
			testCase: testCase{
				initialState: state{
					pods:            l(workloadPod1, workloadPod2),
					slices:          l(slice),
					allocatedClaims: l(ac(workloadClaim)),
				},
				events: []any{update(slice, sliceTainted)},
				finalState: state{
					slices:          l(sliceTainted),
					allocatedClaims: l(ac(workloadClaim, workloadEvictionTime)),
					deletePodAt:     evict(workloadEvictionTime, workloadPod1, workloadPod2),
					queued:          queue(workloadPod1, workloadPod2),
				},
				wantEvents: deleteEvents(workloadPod1, workloadPod2),
			},
		},
		"pod-gets-scheduled": {
			testCase: testCase{
				initialState: state{
					pods:            l(workloadPod1Pending),
					slices:          l(sliceTainted),
					allocatedClaims: l(ac(workloadClaim, workloadEvictionTime)),
				},
				events: []any{update(workloadPod1Pending, workloadPod1)},
				finalState: state{
					slices:          l(sliceTainted),
					allocatedClaims: l(ac(workloadClaim, workloadEvictionTime)),
					deletePodAt:     evict(workloadEvictionTime, workloadPod1),
					queued:          queue(workloadPod1),
				},
				wantEvents: deleteEvents(workloadPod1),
			},
		},
		"pod-not-scheduled": {
			testCase: testCase{
				initialState: state{
					slices:          l(slice),
					allocatedClaims: l(ac(workloadClaim)),
				},
				events: []any{
					update(slice, sliceTainted),
					add(workloadPod1Pending),
				},
				finalState: state{
					slices:          l(sliceTainted),
					allocatedClaims: l(ac(workloadClaim, workloadEvictionTime)),
				},
				process: []step{{pods: l(workloadPod1Pending)}},
			},
		},
		"claim-gets-allocated": {
			testCase: testCase{
				// A pod with node name in its spec may be known before the claim
				// is allocated.
				initialState: state{
					pods:   l(workloadPod1),
					slices: l(sliceTainted),
				},
				events: []any{update(workloadClaimDeallocated, workloadClaim)},
				finalState: state{
					slices:          l(sliceTainted),
					allocatedClaims: l(ac(workloadClaim, workloadEvictionTime)),
					deletePodAt:     evict(workloadEvictionTime, workloadPod1),
					queued:          queue(workloadPod1),
				},
				wantEvents: deleteEvents(workloadPod1),
			},
		},
		"claim-gets-reserved-again": {
			testCase: testCase{
				initialState: state{
					pods:            l(workloadPod1),
					slices:          l(sliceTainted),
					allocatedClaims: l(ac(workloadClaimReleased, workloadEvictionTime)),
				},
				events: []any{update(workloadClaimReleased, workloadClaim)},
				finalState: state{
					slices:          l(sliceTainted),
					allocatedClaims: l(ac(workloadClaim, workloadEvictionTime)),
					deletePodAt:     evict(workloadEvictionTime, workloadPod1),
					queued:          queue(workloadPod1),
				},
				wantEvents: deleteEvents(workloadPod1),
			},
		},
		"toleration": {
			testCase: testCase{
				events: []any{
					add(sliceTainted),
					add(workloadClaimToleration),
					add(workloadPod1),
				},
				finalState: state{
					slices:          l(sliceTainted),
					allocatedClaims: l(ac(workloadClaimToleration, workloadEvictionTimeDelayed)),
					deletePodAt:     evict(workloadEvictionTimeDelayed, workloadPod1),
					queued:          MockState[workItem]{Later: newDelayedWorkItems(workloadPod1, tolerationDuration)},
				},
				process: []step{
					{
						pods:            l(workloadPod1),
						deletePodAt:     evict(workloadEvictionTimeDelayed, workloadPod1),
						queuedProcessed: MockState[workItem]{Later: newDelayedWorkItems(workloadPod1, tolerationDuration)},
						advance:         tolerationDuration,
						queuedShifted:   queue(workloadPod1),
					},
					{},
				},
				wantEvents: deleteEvents(workloadPod1),
			},
		},
		"toleration-forever": {
			testCase: testCase{
				events: []any{
					add(sliceTainted),
					add(workloadClaimTolerationForever),
					add(workloadPod1),
				},
				finalState: state{
					slices:          l(sliceTainted),
					allocatedClaims: l(ac(workloadClaimTolerationForever)),
				},
				process: []step{{pods: l(workloadPod1)}},
			},
		},
		"other-device": {
			testCase: testCase{
				initialState: state{
					pods:            l(workloadPod1),
					allocatedClaims: l(ac(workloadClaim)),
				},
				events: []any{add(sliceOtherDevices)},
				finalState: state{
					slices:          l(sliceOtherDevices),
					allocatedClaims: l(ac(workloadClaim)),
				},
			},
		},
		"rule": {
			testCase: testCase{
				initialState: state{
					pods:            l(workloadPod1, workloadPod2),
					slices:          l(simpleSlice),
					allocatedClaims: l(ac(workloadClaim)),
				},
				events: []any{add(ruleEvict)},
				finalState: state{
					slices:          l(simpleSlice),
					allocatedClaims: l(ac(workloadClaim, newEvictionTime(taintTime, ruleEvict))),
					deletePodAt:     evict(newEvictionTime(taintTime, ruleEvict), workloadPod1, workloadPod2),
					queued: MockState[workItem]{
						Ready: newWorkItems(ruleEvict, workloadPod1, workloadPod2),
						Later: newDelayedWorkItems(ruleEvict, ruleStatusPeriod),
					},
				},
				process: []step{{
					rules:           l(inProgress(ruleEvict, true, "PodsPendingEviction", "2 pods need to be evicted in 1 namespace.", taintTime)),
					ruleStats:       map[types.UID]taintRuleStats{ruleEvict.UID: {numEvictedPods: 2}},
					queuedProcessed: MockState[workItem]{Later: newDelayedWorkItems(ruleEvict, ruleStatusPeriod)},
					queuedShifted:   MockState[workItem]{Later: newDelayedWorkItems(ruleEvict, ruleStatusPeriod)},
				}},
				wantEvents: deleteEvents(workloadPod1, workloadPod2),
			},
		},
		"unrelated-pods": {
			testCase: testCase{
				// Neither a claim with the same name in a different namespace
				// nor another claim in the same namespace matters.
				initialState: state{
					pods:            l(podWithClaimNameOtherNamespace, podWithClaimNameOtherName),
					slices:          l(slice),
					allocatedClaims: l(ac(workloadClaim)),
				},
				events: []any{update(slice, sliceTainted)},
				finalState: state{
					slices:          l(sliceTainted),
					allocatedClaims: l(ac(workloadClaim, workloadEvictionTime)),
				},
			},
		},
		"not-owner": {
			testCase: testCase{
				// The claim was not generated for the pod although the pod's status
				// says so.
				initialState: state{
					pods:            l(podWithClaimTemplateInStatus),
					slices:          l(slice),
					allocatedClaims: l(ac(workloadClaim)),
				},
				events: []any{update(slice, sliceTainted)},
				finalState: state{
					slices:          l(sliceTainted),
					allocatedClaims: l(ac(workloadClaim, workloadEvictionTime)),
				},
			},
		},
		"reserved-per-pod": {
			testCase: testCase{
				// Not for any pod because it was allocated by a scheduler
				// without the feature.
				initialState: state{
					pods:            l(workloadPod1),
					slices:          l(slice),
					allocatedClaims: l(ac(workloadClaimPerPod)),
				},
				events: []any{update(slice, sliceTainted)},
				finalState: state{
					slices:          l(sliceTainted),
					allocatedClaims: l(ac(workloadClaimPerPod, workloadEvictionTime)),
				},
			},
		},
		"mixed-list": {
			testCase: testCase{
				initialState: state{
					pods:            l(workloadPod1, workloadPod2),
					slices:          l(slice),
					allocatedClaims: l(ac(workloadClaimMixed)),
				},
				events: []any{update(slice, sliceTainted)},
				finalState: state{
					slices:          l(sliceTainted),
					allocatedClaims: l(ac(workloadClaimMixed, workloadEvictionTime)),
					deletePodAt:     evict(workloadEvictionTime, workloadPod1, workloadPod2),
					queued:          queue(workloadPod1, workloadPod2),
				},
				wantEvents: deleteEvents(workloadPod1, workloadPod2),
			},
			evictedWhenDisabled: l(workloadPod1),
		},
		"finished-pod": {
			testCase: testCase{
				// The pods of a Job remain after they are done. They don't use
				// the device anymore.
				initialState: state{
					pods:            l(workloadPod1Finished),
					slices:          l(slice),
					allocatedClaims: l(ac(workloadClaim)),
				},
				events: []any{update(slice, sliceTainted)},
				finalState: state{
					slices:          l(sliceTainted),
					allocatedClaims: l(ac(workloadClaim, workloadEvictionTime)),
				},
			},
		},
		"terminating-pod": {
			testCase: testCase{
				// Already being deleted, no need to do it again.
				initialState: state{
					pods:            l(workloadPod1Terminating),
					slices:          l(slice),
					allocatedClaims: l(ac(workloadClaim)),
				},
				events: []any{update(slice, sliceTainted)},
				finalState: state{
					slices:          l(sliceTainted),
					allocatedClaims: l(ac(workloadClaim, workloadEvictionTime)),
				},
			},
		},
		"cancel-pod-finishes": {
			testCase: testCase{
				initialState: state{
					pods:            l(workloadPod1, workloadPod2),
					slices:          l(sliceTainted),
					allocatedClaims: l(ac(workloadClaimToleration, workloadEvictionTimeDelayed)),
					deletePodAt:     evict(workloadEvictionTimeDelayed, workloadPod1, workloadPod2),
				},
				events: []any{update(workloadPod1, workloadPod1Finished)},
				finalState: state{
					slices:          l(sliceTainted),
					allocatedClaims: l(ac(workloadClaimToleration, workloadEvictionTimeDelayed)),
					deletePodAt:     evict(workloadEvictionTimeDelayed, workloadPod2),
				},
				wantEvents: cancelEvents(workloadPod1),
			},
		},
		"cancel-remove-taint": {
			testCase: testCase{
				initialState: state{
					pods:            l(workloadPod1, workloadPod2),
					slices:          l(sliceTainted),
					allocatedClaims: l(ac(workloadClaim, workloadEvictionTime)),
					deletePodAt:     evict(workloadEvictionTime, workloadPod1, workloadPod2),
				},
				events: []any{update(sliceTainted, slice)},
				finalState: state{
					slices:          l(slice),
					allocatedClaims: l(ac(workloadClaim)),
				},
				wantEvents: cancelEvents(workloadPod1, workloadPod2),
			},
		},
		"cancel-release": {
			testCase: testCase{
				initialState: state{
					pods:            l(workloadPod1, workloadPod2),
					slices:          l(sliceTainted),
					allocatedClaims: l(ac(workloadClaim, workloadEvictionTime)),
					deletePodAt:     evict(workloadEvictionTime, workloadPod1, workloadPod2),
				},
				events: []any{update(workloadClaim, workloadClaimReleased)},
				finalState: state{
					slices:          l(sliceTainted),
					allocatedClaims: l(ac(workloadClaimReleased, workloadEvictionTime)),
				},
				wantEvents: cancelEvents(workloadPod1, workloadPod2),
			},
		},
		"cancel-deallocate": {
			testCase: testCase{
				initialState: state{
					pods:            l(workloadPod1, workloadPod2),
					slices:          l(sliceTainted),
					allocatedClaims: l(ac(workloadClaim, workloadEvictionTime)),
					deletePodAt:     evict(workloadEvictionTime, workloadPod1, workloadPod2),
				},
				events: []any{update(workloadClaim, workloadClaimDeallocated)},
				finalState: state{
					slices: l(sliceTainted),
				},
				wantEvents: cancelEvents(workloadPod1, workloadPod2),
			},
		},
		"cancel-deallocate-same-list": {
			testCase: testCase{
				// Not valid and thus unlikely, but the pods must be found through
				// the old claim also without a change of the list.
				initialState: state{
					pods:            l(workloadPod1),
					slices:          l(sliceTainted),
					allocatedClaims: l(ac(workloadClaim, workloadEvictionTime)),
					deletePodAt:     evict(workloadEvictionTime, workloadPod1),
				},
				events: []any{update(workloadClaim, changeClaim(workloadClaim, func(claim *resourceapi.ResourceClaim) { claim.Status.Allocation = nil }))},
				finalState: state{
					slices: l(sliceTainted),
				},
				wantEvents: cancelEvents(workloadPod1),
			},
		},
		"cancel-delete-claim": {
			testCase: testCase{
				initialState: state{
					pods:            l(workloadPod1, workloadPod2),
					slices:          l(sliceTainted),
					allocatedClaims: l(ac(workloadClaim, workloadEvictionTime)),
					deletePodAt:     evict(workloadEvictionTime, workloadPod1, workloadPod2),
				},
				events: []any{remove(workloadClaim)},
				finalState: state{
					slices: l(sliceTainted),
				},
				wantEvents: cancelEvents(workloadPod1, workloadPod2),
			},
		},
		"cancel-delete-pod": {
			testCase: testCase{
				initialState: state{
					pods:            l(workloadPod1),
					slices:          l(sliceTainted),
					allocatedClaims: l(ac(workloadClaim, workloadEvictionTime)),
					deletePodAt:     evict(workloadEvictionTime, workloadPod1),
				},
				events: []any{remove(workloadPod1)},
				finalState: state{
					slices:          l(sliceTainted),
					allocatedClaims: l(ac(workloadClaim, workloadEvictionTime)),
				},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			gates := []bool{true, false}
			if len(tc.initialState.deletePodAt) > 0 {
				// Canceling requires prior eviction, which doesn't happen
				// with the feature disabled.
				gates = []bool{true}
			}
			for _, enabled := range gates {
				t.Run(fmt.Sprintf("enabled=%v", enabled), func(t *testing.T) {
					featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAReservedForWorkloads, enabled)
					tc := tc
					if !enabled {
						disable(&tc.testCase, tc.evictedWhenDisabled)
					}
					for _, events := range permutations(tc.events) {
						tc := tc
						tc.events = events
						ktesting.Init(t).SyncTest("", func(tCtx ktesting.TContext) {
							testHandlers(setup(tCtx, false), tc.testCase)
						})
					}
				})
			}
		})
	}
}

// disable changes the test case such that only the given pods are expected to be
// evicted and all other pods to be left alone.
func disable(tc *testCase, evicted []*v1.Pod) {
	deletePodAt := evictMap{}
	for _, pod := range evicted {
		deletePodAt[newObject(pod)] = tc.finalState.deletePodAt[newObject(pod)]
	}
	tc.finalState.deletePodAt = deletePodAt
	tc.wantEvents = deleteEvents(evicted...)
	var pods []*v1.Pod
	addPod := func(pod *v1.Pod) {
		if pod != nil && !slices.ContainsFunc(evicted, func(evicted *v1.Pod) bool { return evicted.UID == pod.UID }) {
			pods = append(slices.DeleteFunc(pods, func(old *v1.Pod) bool { return old.UID == pod.UID }), pod)
		}
	}
	for _, pod := range tc.initialState.pods {
		addPod(pod)
	}
	var rules []*resourcebeta.DeviceTaintRule
	for _, event := range tc.events {
		switch pair := event.(type) {
		case [2]*v1.Pod:
			addPod(pair[1])
		case [2]*resourcebeta.DeviceTaintRule:
			rules = append(rules, inProgress(pair[1], false, "NotStarted", "", taintTime))
		}
	}
	// The order is the one in which a list returns them.
	slices.SortFunc(pods, func(a, b *v1.Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	tc.finalState.queued = queue(evicted...)
	for _, rule := range rules {
		tc.finalState.queued.Ready = append(tc.finalState.queued.Ready, newWorkItem(rule))
	}
	tc.process = []step{{pods: pods, rules: rules}}
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

// TestReservedForWorkloadsIndex covers the index of pods by claim. It costs memory
// and thus must not exist unless the feature is enabled.
func TestReservedForWorkloadsIndex(t *testing.T) {
	for _, enabled := range []bool{true, false} {
		t.Run(fmt.Sprintf("enabled=%v", enabled), func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAReservedForWorkloads, enabled)
			tContext := setup(ktesting.Init(t), true)
			indexers := tContext.podInformer.Informer().GetIndexer().GetIndexers()
			assertEqual(t, enabled, indexers[podByClaimIndex] != nil, "index exists")
			assertEqual(t, true, indexers[podGroupIndex] != nil, "other index exists")
		})
	}

	podWithExtendedResource := changePod(workloadPod1, func(pod *v1.Pod) {
		pod.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{ResourceClaimName: "extended"}
	})
	for name, tc := range map[string]struct {
		obj     any
		want    []string
		wantErr bool
	}{
		"no-claim":               {obj: podWithPodGroup},
		"by-name":                {obj: podWithClaimName, want: l(namespace + "/" + claimName)},
		"by-name-two-claims":     {obj: podWithTwoClaimNames, want: l(namespace+"/"+claimName, namespace+"/"+claimName+"-other")},
		"other-namespace":        {obj: podWithClaimNameOtherNamespace, want: l(namespace + "-other/" + claimName)},
		"not-scheduled":          {obj: unscheduledPodWithClaimName, want: l(namespace + "/" + claimName)},
		"template-no-status":     {obj: podWithClaimTemplate},
		"template-generated":     {obj: podWithClaimTemplateInStatus, want: l(namespace + "/" + claimName)},
		"template-not-generated": {obj: podWithClaimTemplateNoClaimInStatus},
		"extended-resource":      {obj: podWithExtendedResource, want: l(namespace + "/" + claimName)},
		"same-claim-twice": {
			obj: changePod(workloadPod1, func(pod *v1.Pod) {
				pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, v1.PodResourceClaim{Name: "again", ResourceClaimName: &claimName})
			}),
			want: l(namespace + "/" + claimName),
		},
		"invalid-claim": {
			obj: changePod(workloadPod1, func(pod *v1.Pod) { pod.Spec.ResourceClaims[0].ResourceClaimName = nil }),
		},
		"no-pod": {obj: claim, wantErr: true},
	} {
		t.Run(name, func(t *testing.T) {
			keys, err := podByClaimIndexFunc(tc.obj)
			assertEqual(t, tc.wantErr, err != nil, "error")
			assertEqual(t, sets.New(tc.want...), sets.New(keys...), "index keys")
			assertEqual(t, len(tc.want), len(keys), "number of index keys")
		})
	}
}

// TestReservedForWorkloadsManyPods checks that more pods than fit into the cache
// of evicted pods get evicted exactly once although the claim changes in the
// meantime, and that each pod gets checked only once per change.
func TestReservedForWorkloadsManyPods(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAReservedForWorkloads, true)
	ktesting.Init(t).SyncTest("", func(tCtx ktesting.TContext) {
		const numPods = 2 * maxUIDCacheEntries
		tContext := setup(tCtx, false)
		store := tContext.podInformer.Informer().GetStore()
		for i := range numPods {
			pod := makeWorkloadPod(i, nodeName)
			tContext.ExpectNoError(store.Add(pod))
			tContext.ExpectNoError(tContext.client.Tracker().Add(pod))
		}
		evictions := make(map[tainteviction.NamespacedObject]int)
		tContext.evictPodHook = func(pod tainteviction.NamespacedObject, eviction evictionAndReason) { evictions[pod]++ }

		applyEventPair(tContext, add(slice))
		applyEventPair(tContext, add(workloadClaimMixed))
		assertEqual(tContext, 0, len(evictions), "pods evicted before adding the taint")
		applyEventPair(tContext, update(slice, sliceTainted))
		assertEqual(tContext, numPods, len(evictions), "evicted pods")
		for pod, count := range evictions {
			if count != 1 {
				tContext.Errorf("pod %s was evicted %d times", pod, count)
			}
		}

		tContext.Controller.worker(tContext)
		pods, err := tContext.client.CoreV1().Pods("").List(tContext, metav1.ListOptions{})
		tContext.ExpectNoError(err)
		assertEqual(tContext, 0, len(pods.Items), "pods after eviction")

		// In a real cluster, the pods still exist for a while.
		for i := range numPods {
			pod := makeWorkloadPod(i, nodeName)
			pod.DeletionTimestamp = taintTime
			tContext.ExpectNoError(store.Update(pod))
		}
		applyEventPair(tContext, update(workloadClaimMixed, workloadClaim))
		applyEventPair(tContext, update(workloadClaim, changeClaim(workloadClaim, func(claim *resourceapi.ResourceClaim) { claim.Labels = map[string]string{"a": "b"} })))
		assertEqual(tContext, newWorkItems(workloadPod1), tContext.mockQueue.State().Ready, "work items for terminating pods, only for the listed pod")
	})
}

// countingPodInformer counts how often pods get looked up by claim.
type countingPodInformer struct {
	coreinformers.PodInformer
	lookups *int
}

func (i countingPodInformer) Informer() cache.SharedIndexInformer {
	return countingInformer{SharedIndexInformer: i.PodInformer.Informer(), lookups: i.lookups}
}

type countingInformer struct {
	cache.SharedIndexInformer
	lookups *int
}

func (i countingInformer) GetIndexer() cache.Indexer {
	return countingIndexer{Indexer: i.SharedIndexInformer.GetIndexer(), lookups: i.lookups}
}

type countingIndexer struct {
	cache.Indexer
	lookups *int
}

func (i countingIndexer) ByIndex(indexName, indexedValue string) ([]any, error) {
	if indexName == podByClaimIndex {
		*i.lookups++
	}
	return i.Indexer.ByIndex(indexName, indexedValue)
}

// TestReservedForWorkloadsNoTaint checks that updates of a claim without tainted
// devices don't cause any work for the potentially large number of pods.
func TestReservedForWorkloadsNoTaint(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAReservedForWorkloads, true)
	tContext := setup(ktesting.Init(t), false)
	lookups := 0
	tContext.ExpectNoError(tContext.podInformer.Informer().GetStore().Add(workloadPod1))
	tContext.podInformer = countingPodInformer{PodInformer: tContext.podInformer, lookups: &lookups}

	applyEventPair(tContext, add(slice))
	applyEventPair(tContext, add(workloadClaim))
	applyEventPair(tContext, update(workloadClaim, workloadClaimMixed))
	assertEqual(tContext, 0, lookups, "pod index lookups without taint")
	applyEventPair(tContext, update(slice, sliceTainted))
	assertEqual(tContext, 1, lookups, "pod index lookups after adding taint")
}

// TestReservedForWorkloadsRun runs the controller with real informers.
func TestReservedForWorkloadsRun(t *testing.T) {
	for _, enabled := range []bool{true, false} {
		t.Run(fmt.Sprintf("enabled=%v", enabled), func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAReservedForWorkloads, enabled)
			ktesting.Init(t).SyncTest("", func(tCtx ktesting.TContext) {
				client := fake.NewClientset(slice, workloadClaim, workloadPod1, workloadPod2)
				tCtx = tCtx.WithClients(nil, nil, client, nil, nil)
				controller := newTestController(tCtx)

				var wg sync.WaitGroup
				defer func() {
					tCtx.Cancel("time to stop")
					wg.Wait()
				}()
				wg.Go(func() {
					tCtx.AssertNoError(controller.Run(tCtx, 10 /* workers */), "eviction controller failed")
				})
				tCtx.Wait()

				_, err := client.ResourceV1().ResourceSlices().Update(tCtx, sliceTainted, metav1.UpdateOptions{})
				tCtx.ExpectNoError(err)
				tCtx.Wait()

				pods, err := client.CoreV1().Pods(namespace).List(tCtx, metav1.ListOptions{})
				tCtx.ExpectNoError(err)
				if enabled {
					assertEqual(tCtx, 0, len(pods.Items), "pods after eviction")
					tCtx.ExpectNoError(testPodDeletionsMetrics(controller, 0*time.Second, 0*time.Second), "pod eviction done")
				} else {
					assertEqual(tCtx, 2, len(pods.Items), "pods with disabled feature")
					tCtx.ExpectNoError(testPodDeletionsMetrics(controller), "no pod eviction")
				}
			})
		})
	}
}
