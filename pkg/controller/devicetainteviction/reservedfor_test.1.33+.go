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
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/controller/tainteviction"
	"k8s.io/kubernetes/pkg/features"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/ptr"
)

var (
	jobRef = resourceapi.ResourceClaimConsumerReference{APIGroup: "batch", Resource: "jobs", Name: "my-job", UID: "job-uid"}

	// workloadClaim is allocated, reserved for a Job, and doesn't list any pod.
	workloadClaim = func() *resourceapi.ResourceClaim {
		claim := claim.DeepCopy()
		claim.Spec.ReservedFor = (*resourceapi.ResourceClaimWorkloadReference)(jobRef.DeepCopy())
		claim.Status.Allocation = allocationResult.DeepCopy()
		claim.Status.Allocation.ReservedForAnyPod = ptr.To(true)
		claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{jobRef}
		return claim
	}()
	// sliceUntouched has no device that is allocated.
	sliceUntouched = func() *resourceapi.ResourceSlice {
		slice := slice.DeepCopy()
		for i := range slice.Spec.Devices {
			slice.Spec.Devices[i].Name += "-untouched"
		}
		return slice
	}()
	workloadClaimReleased        = changeClaim(workloadClaim, func(claim *resourceapi.ResourceClaim) { claim.Status.ReservedFor = nil })
	workloadClaimReleasedDeleted = changeClaim(workloadClaimReleased, func(claim *resourceapi.ResourceClaim) {
		claim.DeletionTimestamp = &metav1.Time{Time: taintedSince}
		claim.Finalizers = []string{resourceapi.Finalizer}
	})
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

	workloadPodOtherNamespace = changePod(workloadPod1, func(pod *v1.Pod) { pod.Namespace += "-other" })
	workloadPodOtherClaim     = changePod(workloadPod1, func(pod *v1.Pod) {
		otherClaimName := claimName + "-other"
		pod.Spec.ResourceClaims[0].ResourceClaimName = &otherClaimName
	})

	workloadPod1Finished    = changePod(workloadPod1, func(pod *v1.Pod) { pod.Status.Phase = v1.PodSucceeded })
	workloadPod1Terminating = changePod(workloadPod1, func(pod *v1.Pod) {
		pod.DeletionTimestamp = &metav1.Time{Time: taintedSince}
		pod.Finalizers = []string{"example.com/test"}
	})
	workloadPod1Pending = changePod(workloadPod1, func(pod *v1.Pod) { pod.Spec.NodeName = "" })
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

// TestReservedForWorkloads covers claims which are reserved for a workload: pods
// get evicted without being listed in the claim.
//
// With the feature disabled, nothing must be done for pods that are not listed.
func TestReservedForWorkloads(t *testing.T) {
	for name, tc := range map[string]struct {
		// As in evictionTest.
		initial, events   []any
		evicted, canceled []*v1.Pod
		delay             time.Duration

		// evictedWhenDisabled contains pods which get evicted even when the
		// feature is disabled.
		evictedWhenDisabled []*v1.Pod
	}{
		"unlisted-pods": {
			// In all possible orders. This covers in particular a pod which gets
			// created after the device got tainted.
			events:  []any{add(sliceTainted), add(workloadClaim), add(workloadPod1), add(workloadPod2)},
			evicted: []*v1.Pod{workloadPod1, workloadPod2},
		},
		"taint-added": {
			initial: []any{add(slice), add(workloadClaim), add(workloadPod1), add(workloadPod2)},
			events:  []any{update(slice, sliceTainted)},
			evicted: []*v1.Pod{workloadPod1, workloadPod2},
		},
		"pod-gets-scheduled": {
			initial: []any{add(sliceTainted), add(workloadClaim), add(workloadPod1Pending)},
			events:  []any{update(workloadPod1Pending, workloadPod1)},
			evicted: []*v1.Pod{workloadPod1},
		},
		"pod-not-scheduled": {
			initial: []any{add(slice), add(workloadClaim)},
			events:  []any{update(slice, sliceTainted), add(workloadPod1Pending)},
		},
		"claim-gets-allocated": {
			// A pod with node name in its spec may be known before the claim
			// is allocated.
			initial: []any{add(sliceTainted), add(workloadPod1)},
			events:  []any{update(workloadClaimDeallocated, workloadClaim)},
			evicted: []*v1.Pod{workloadPod1},
		},
		"claim-gets-reserved-again": {
			initial: []any{add(sliceTainted), add(workloadClaimReleased), add(workloadPod1)},
			events:  []any{update(workloadClaimReleased, workloadClaim)},
			evicted: []*v1.Pod{workloadPod1},
		},
		"deleted-claim-not-reserved": {
			// Nobody can reserve it again, and it stays allocated as long as pods run.
			initial: []any{add(slice), add(workloadClaimReleasedDeleted), add(workloadPod1)},
			events:  []any{update(slice, sliceTainted)},
			evicted: []*v1.Pod{workloadPod1},
		},
		"toleration": {
			events:  []any{add(sliceTainted), add(workloadClaimToleration), add(workloadPod1)},
			evicted: []*v1.Pod{workloadPod1},
			delay:   tolerationDuration,
		},
		"toleration-forever": {
			events: []any{add(sliceTainted), add(workloadClaimTolerationForever), add(workloadPod1)},
		},
		"other-device": {
			initial: []any{add(workloadClaim), add(workloadPod1)},
			events:  []any{add(sliceUntouched)},
		},
		"unrelated-pods": {
			// Neither a claim with the same name in a different namespace
			// nor another claim in the same namespace matters.
			initial: []any{add(slice), add(workloadClaim), add(workloadPodOtherNamespace), add(workloadPodOtherClaim)},
			events:  []any{update(slice, sliceTainted)},
		},
		"not-owner": {
			// The claim was not generated for the pod although the pod's status
			// says so.
			initial: []any{add(slice), add(workloadClaim), add(podWithClaimTemplateInStatus)},
			events:  []any{update(slice, sliceTainted)},
		},
		"reserved-per-pod": {
			// Not for any pod because it was allocated by a scheduler
			// without the feature.
			initial: []any{add(slice), add(workloadClaimPerPod), add(workloadPod1)},
			events:  []any{update(slice, sliceTainted)},
		},
		"mixed-list": {
			initial:             []any{add(slice), add(workloadClaimMixed), add(workloadPod1), add(workloadPod2)},
			events:              []any{update(slice, sliceTainted)},
			evicted:             []*v1.Pod{workloadPod1, workloadPod2},
			evictedWhenDisabled: []*v1.Pod{workloadPod1},
		},
		"finished-pod": {
			// The pods of a Job remain after they are done. They don't use
			// the device anymore.
			initial: []any{add(slice), add(workloadClaim), add(workloadPod1Finished)},
			events:  []any{update(slice, sliceTainted)},
		},
		"terminating-pod": {
			// Already being deleted, no need to do it again.
			initial: []any{add(slice), add(workloadClaim), add(workloadPod1Terminating)},
			events:  []any{update(slice, sliceTainted)},
		},
		"cancel-pod-finishes": {
			initial:  []any{add(sliceTainted), add(workloadClaimToleration), add(workloadPod1), add(workloadPod2)},
			events:   []any{update(workloadPod1, workloadPod1Finished)},
			evicted:  []*v1.Pod{workloadPod2},
			delay:    tolerationDuration,
			canceled: []*v1.Pod{workloadPod1},
		},
		"cancel-remove-taint": {
			initial:  []any{add(sliceTainted), add(workloadClaim), add(workloadPod1), add(workloadPod2)},
			events:   []any{update(sliceTainted, slice)},
			canceled: []*v1.Pod{workloadPod1, workloadPod2},
		},
		"cancel-release": {
			initial:  []any{add(sliceTainted), add(workloadClaim), add(workloadPod1), add(workloadPod2)},
			events:   []any{update(workloadClaim, workloadClaimReleased)},
			canceled: []*v1.Pod{workloadPod1, workloadPod2},
		},
		"cancel-deallocate": {
			initial:  []any{add(sliceTainted), add(workloadClaim), add(workloadPod1), add(workloadPod2)},
			events:   []any{update(workloadClaim, workloadClaimDeallocated)},
			canceled: []*v1.Pod{workloadPod1, workloadPod2},
		},
		"cancel-deallocate-same-list": {
			// Not valid and thus unlikely, but the pods must be found through
			// the old claim also without a change of the list.
			initial:  []any{add(sliceTainted), add(workloadClaim), add(workloadPod1)},
			events:   []any{update(workloadClaim, changeClaim(workloadClaim, func(claim *resourceapi.ResourceClaim) { claim.Status.Allocation = nil }))},
			canceled: []*v1.Pod{workloadPod1},
		},
		"cancel-delete-claim": {
			initial:  []any{add(sliceTainted), add(workloadClaim), add(workloadPod1), add(workloadPod2)},
			events:   []any{remove(workloadClaim)},
			canceled: []*v1.Pod{workloadPod1, workloadPod2},
		},
		"cancel-delete-pod": {
			initial: []any{add(sliceTainted), add(workloadClaim), add(workloadPod1)},
			events:  []any{remove(workloadPod1)},
		},
	} {
		for _, enabled := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/enabled=%v", name, enabled), func(t *testing.T) {
				featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAReservedForWorkloads, enabled)
				test := evictionTest{initial: tc.initial, evicted: tc.evicted, delay: tc.delay, canceled: tc.canceled}
				if !enabled {
					test.evicted = tc.evictedWhenDisabled
					test.canceled = nil
				}
				for _, events := range permutations(tc.events) {
					runReservedForTest(t, func(tContext *testContext) {
						test.check(tContext, events)
						for claim := range tContext.reservedFor.evicting {
							assert.True(tContext, tContext.mustEvictPodsOf(claim), "claim %s remembered although nothing gets evicted", claim)
						}
					})
				}
			})
		}
	}
}

// TestReservedForWorkloadsIndex covers the index of pods by claim. It costs memory
// and thus must not exist unless the feature is enabled.
func TestReservedForWorkloadsIndex(t *testing.T) {
	for _, enabled := range []bool{true, false} {
		t.Run(fmt.Sprintf("enabled=%v", enabled), func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAReservedForWorkloads, enabled)
			runReservedForTest(t, func(tContext *testContext) {
				indexers := tContext.podInformer.Informer().GetIndexer().GetIndexers()
				assert.Equal(tContext, enabled, indexers[podByClaimIndex] != nil, "index exists")
			})
		})
	}

	otherClaimName := claimName + "-other"
	podWithTwoClaimNames := changePod(workloadPod1, func(pod *v1.Pod) {
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, v1.PodResourceClaim{Name: "other", ResourceClaimName: &otherClaimName})
	})
	for name, tc := range map[string]struct {
		obj     any
		want    []string
		wantErr bool
	}{
		"no-claim":               {obj: changePod(workloadPod1, func(pod *v1.Pod) { pod.Spec.ResourceClaims = nil })},
		"by-name":                {obj: podWithClaimName, want: []string{namespace + "/" + claimName}},
		"by-name-two-claims":     {obj: podWithTwoClaimNames, want: []string{namespace + "/" + claimName, namespace + "/" + claimName + "-other"}},
		"other-namespace":        {obj: workloadPodOtherNamespace, want: []string{namespace + "-other/" + claimName}},
		"not-scheduled":          {obj: unscheduledPodWithClaimName, want: []string{namespace + "/" + claimName}},
		"template-no-status":     {obj: podWithClaimTemplate},
		"template-generated":     {obj: podWithClaimTemplateInStatus, want: []string{namespace + "/" + claimName}},
		"template-not-generated": {obj: podWithClaimTemplateNoClaimInStatus},
		"same-claim-twice": {
			obj: changePod(workloadPod1, func(pod *v1.Pod) {
				pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, v1.PodResourceClaim{Name: "again", ResourceClaimName: &claimName})
			}),
			want: []string{namespace + "/" + claimName},
		},
		"invalid-claim": {
			obj: changePod(workloadPod1, func(pod *v1.Pod) { pod.Spec.ResourceClaims[0].ResourceClaimName = nil }),
		},
		"no-pod": {obj: claim, wantErr: true},
	} {
		t.Run(name, func(t *testing.T) {
			keys, err := podByClaimIndexFunc(tc.obj)
			assert.Equal(t, tc.wantErr, err != nil, "error")
			assert.Equal(t, sets.New(tc.want...), sets.New(keys...), "index keys")
			assert.Equal(t, len(tc.want), len(keys), "number of index keys")
		})
	}
}

// TestReservedForWorkloadsManyPods checks that more pods than fit into the cache
// of evicted pods get evicted exactly once although the claim changes in the
// meantime, and that each pod gets checked only once per change.
func TestReservedForWorkloadsManyPods(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAReservedForWorkloads, true)
	runReservedForTest(t, func(tContext *testContext) {
		const numPods = 1000 // Twice as many as the cache can hold.
		evictions := make(map[tainteviction.NamespacedObject]int)
		tContext.onEvict(func(pod tainteviction.NamespacedObject) { evictions[pod]++ })

		tContext.apply(add(slice))
		tContext.apply(add(workloadClaimMixed))
		for i := range numPods {
			tContext.apply(add(makeWorkloadPod(i, nodeName)))
		}
		assert.Empty(tContext, evictions, "pods evicted before adding the taint")
		tContext.apply(update(slice, sliceTainted))
		assert.Len(tContext, evictions, numPods, "evicted pods")
		for pod, count := range evictions {
			if count != 1 {
				tContext.Errorf("pod %s was evicted %d times", pod, count)
			}
		}

		tContext.processEvictions(0)
		assert.Empty(tContext, tContext.existingPods(), "pods after eviction")

		// In a real cluster, the pods still exist for a while.
		store := tContext.podInformer.Informer().GetStore()
		for i := range numPods {
			pod := makeWorkloadPod(i, nodeName)
			pod.DeletionTimestamp = &metav1.Time{Time: taintedSince}
			tContext.ExpectNoError(store.Update(pod))
		}
		clear(evictions)
		tContext.apply(update(workloadClaimMixed, workloadClaim))
		tContext.apply(update(workloadClaim, changeClaim(workloadClaim, func(claim *resourceapi.ResourceClaim) { claim.Labels = map[string]string{"a": "b"} })))
		assert.Equal(tContext, map[tainteviction.NamespacedObject]int{newObject(workloadPod1): 1}, evictions, "evictions of terminating pods, only for the listed pod")
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
	runReservedForTest(t, func(tContext *testContext) {
		lookups := 0
		tContext.ExpectNoError(tContext.podInformer.Informer().GetStore().Add(workloadPod1))
		tContext.podInformer = countingPodInformer{PodInformer: tContext.podInformer, lookups: &lookups}

		tContext.apply(add(slice))
		tContext.apply(add(workloadClaim))
		tContext.apply(update(workloadClaim, workloadClaimMixed))
		assert.Equal(tContext, 0, lookups, "pod index lookups without taint")
		tContext.apply(update(slice, sliceTainted))
		assert.Equal(tContext, 1, lookups, "pod index lookups after adding taint")
		tContext.apply(update(sliceTainted, slice))
		assert.Equal(tContext, 2, lookups, "pod index lookups after removing taint")
		tContext.apply(update(workloadClaimMixed, workloadClaim))
		assert.Equal(tContext, 2, lookups, "pod index lookups when there is nothing left to cancel")
	})
}
