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
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
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
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	fakediscovery "k8s.io/client-go/discovery/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	cgotesting "k8s.io/client-go/testing"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/test/utils/ktesting"
)

var (
	statefulSetKind     = appsv1.SchemeGroupVersion.WithKind("StatefulSet")
	leaderWorkerSetKind = schema.GroupVersionKind{Group: "leaderworkerset.x-k8s.io", Version: "v1", Kind: "LeaderWorkerSet"}
	rayClusterKind      = schema.GroupVersionKind{Group: "ray.io", Version: "v1", Kind: "RayCluster"}
	rayJobKind          = schema.GroupVersionKind{Group: "ray.io", Version: "v1", Kind: "RayJob"}

	webDeployment = resourceapi.ResourceClaimConsumerReference{APIGroup: "apps", Resource: "deployments", Name: "web"}
	rayJob        = resourceapi.ResourceClaimConsumerReference{APIGroup: "ray.io", Resource: "rayjobs", Name: "ray"}
)

func newReplicaSet(owners []metav1.OwnerReference) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web-1", Namespace: namespace, UID: "web-1-uid", OwnerReferences: owners}}
}

func newReplicaSetPod(name string) *v1.Pod {
	return newPodOf(name, controlledBy(replicaSetKind, "web-1", "web-1-uid"))
}

// strictReader calls get only outside of PreFilter and Filter.
type strictReader struct {
	ownerReader

	// cycle is locked during PreFilter and Filter. A call in there would
	// never return, which the bubble notices.
	cycle sync.Mutex
	calls atomic.Int64
}

func (r *strictReader) get(ctx context.Context, namespace string, gvk schema.GroupVersionKind, name string) (metav1.Object, error) {
	r.cycle.Lock()
	defer r.cycle.Unlock()
	r.calls.Add(1)
	return r.ownerReader.get(ctx, namespace, gvk, name)
}

// TestReservedForNoCalls ensures that neither PreEnqueue nor PreFilter nor Filter calls the API
// server, and that many pods cause one call.
func TestReservedForNoCalls(t *testing.T) {
	for name, claim := range map[string]*resourceapi.ResourceClaim{
		"not-allocated": withReservedFor(newSharedClaim(), webDeployment),
		"allocated":     withReservedFor(newWorkloadClaim(), webDeployment),
		"listed":        withReservedFor(newWorkloadClaim(resourceapi.ResourceClaimConsumerReference{APIGroup: "apps", Resource: "deployments", Name: "web", UID: "web-uid"}), webDeployment),
	} {
		syncTest(t, name, func(tCtx ktesting.TContext) {
			const numPods = 1000
			tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{claim}, newReplicaSet(controlledBy(deploymentKind, "web", "web-uid")))
			reader := &strictReader{ownerReader: tc.p.owners.reader}
			tc.p.owners.reader = reader
			var inCycle atomic.Bool
			tc.client.PrependReactor("*", "*", func(action cgotesting.Action) (bool, apiruntime.Object, error) {
				if inCycle.Load() {
					tCtx.Errorf("unexpected API call: %v", action)
				}
				return false, nil, nil
			})
			withoutCalls := func(cb func()) {
				reader.cycle.Lock()
				inCycle.Store(true)
				cb()
				inCycle.Store(false)
				reader.cycle.Unlock()
			}

			var pods []*v1.Pod
			withoutCalls(func() {
				for i := range numPods {
					pod := newReplicaSetPod(fmt.Sprintf("pod-%d", i))
					pods = append(pods, pod)
					require.Equal(tCtx, fwk.UnschedulableAndUnresolvable, tc.p.PreEnqueue(tCtx, pod).Code(), "has to wait for the lookup")
				}
				// The Cluster Autoscaler does not call PreEnqueue.
				cycle := &podCycle{sharedClaimsTest: tc, pod: pods[0], state: newCycleState()}
				status := cycle.callPreFilter()
				require.Equal(tCtx, fwk.UnschedulableAndUnresolvable, status.Code())
				require.Contains(tCtx, status.Message(), "the scheduler is checking whether the pod belongs to it")
			})
			synctest.Wait()
			for _, pod := range pods {
				require.True(tCtx, tc.takeActivated(pod))
				withoutCalls(func() {
					require.Nil(tCtx, tc.p.PreEnqueue(tCtx, pod))
					cycle := &podCycle{sharedClaimsTest: tc, pod: pod, state: newCycleState()}
					require.Nil(tCtx, cycle.callPreFilter())
					require.Contains(tCtx, cycle.filter(), nodeName)
				})
			}
			assert.Equal(tCtx, int64(1), reader.calls.Load())
		})
	}
}

// TestReservedForForgedOwner covers pods whose owner references contain what belongs
// to somebody else.
func TestReservedForForgedOwner(t *testing.T) {
	for name, forged := range map[string]*v1.Pod{
		"other-namespace": func() *v1.Pod {
			pod := newReplicaSetPod("forged")
			pod.Namespace = "attacker"
			return pod
		}(),
		"other-name":  newPodOf("forged", controlledBy(replicaSetKind, "no-such-replicaset", "web-1-uid")),
		"other-kind":  newPodOf("forged", controlledBy(jobKind, "web-1", "web-1-uid")),
		"other-group": newPodOf("forged", controlledBy(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "ReplicaSet"}, "web-1", "web-1-uid")),
		"other-uid":   newPodOf("forged", controlledBy(replicaSetKind, "web-1", "some-other-uid")),
	} {
		syncTest(t, name, func(tCtx ktesting.TContext) {
			claim := withReservedFor(newSharedClaim(), webDeployment)
			attackersClaim := claim.DeepCopy()
			attackersClaim.Namespace = "attacker"
			tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{claim, attackersClaim}, newReplicaSet(controlledBy(deploymentKind, "web", "web-uid")))
			_, status := tc.preFilter(forged)
			require.Equal(tCtx, fwk.UnschedulableAndUnresolvable, status.Code())
			require.Contains(tCtx, status.Message(), "does not belong to it")
			require.Nil(tCtx, tc.schedule(newReplicaSetPod("victim")).bind(tCtx))
		})
	}
}

// TestReservedForOwnerChanges covers pods which have to wait because of an owner and get
// activated when that changes.
func TestReservedForOwnerChanges(t *testing.T) {
	forbidden := apierrors.NewForbidden(appsv1.Resource("replicasets"), "web-1", errors.New("no such rule"))
	adopted := newReplicaSet(controlledBy(deploymentKind, "web", "web-uid"))
	rsGVR := appsv1.SchemeGroupVersion.WithResource("replicasets")
	for name, tcase := range map[string]struct {
		objs          []apiruntime.Object
		err           error
		expectMessage string
		change        func(tCtx ktesting.TContext, tc *sharedClaimsTest, reader *clientOwnerReader)
	}{
		"adopted": {
			objs:          []apiruntime.Object{newReplicaSet(nil)},
			expectMessage: "does not belong to it",
			change: func(tCtx ktesting.TContext, tc *sharedClaimsTest, _ *clientOwnerReader) {
				tCtx.ExpectNoError(tc.client.Tracker().Update(rsGVR, adopted, namespace))
			},
		},
		"created": {
			expectMessage: `does not belong to it (controller is ReplicaSet "web-1", owner ReplicaSet "web-1" does not exist)`,
			change: func(tCtx ktesting.TContext, tc *sharedClaimsTest, _ *clientOwnerReader) {
				tCtx.ExpectNoError(tc.client.Tracker().Create(rsGVR, adopted, namespace))
			},
		},
		"permission": {
			objs:          []apiruntime.Object{adopted},
			err:           forbidden,
			expectMessage: `not allowed to check whether the pod belongs to it: owner ReplicaSet "web-1" may not be looked at: replicasets.apps "web-1" is forbidden`,
			change: func(_ ktesting.TContext, _ *sharedClaimsTest, reader *clientOwnerReader) {
				reader.setErr(nil)
			},
		},
		"failure": {
			objs:          []apiruntime.Object{adopted},
			err:           errors.New("connection refused"),
			expectMessage: "could not check yet",
			change: func(_ ktesting.TContext, _ *sharedClaimsTest, reader *clientOwnerReader) {
				reader.setErr(nil)
			},
		},
	} {
		syncTest(t, name, func(tCtx ktesting.TContext) {
			pod := newReplicaSetPod("pod-1")
			tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{withReservedFor(newSharedClaim(), webDeployment)}, append(tcase.objs, pod)...)
			reader := tc.p.owners.reader.(*clientOwnerReader)
			reader.setErr(tcase.err)
			_, status := tc.preFilter(pod)
			require.Equal(tCtx, fwk.UnschedulableAndUnresolvable, status.Code())
			require.Contains(tCtx, status.Message(), tcase.expectMessage)
			time.Sleep(10 * time.Minute) // fake time
			synctest.Wait()
			require.False(tCtx, tc.takeActivated(pod), "nothing changed")
			tcase.change(tCtx, tc, reader)
			time.Sleep(maxOwnerBackoff)
			synctest.Wait()
			require.True(tCtx, tc.takeActivated(pod))
			require.Nil(tCtx, tc.schedule(pod).bind(tCtx))
		})
	}

	// The pod itself gets adopted.
	syncTest(t, "pod-adopted", func(tCtx ktesting.TContext) {
		pod := newSharingPod("pod-1")
		tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{withReservedFor(newSharedClaim(), workloadRef)}, pod)
		_, status := tc.preFilter(pod)
		require.Contains(tCtx, status.Message(), "does not belong to it (no controller)")
		podGVR := v1.SchemeGroupVersion.WithResource("pods")
		labeled := pod.DeepCopy()
		labeled.Labels = map[string]string{"a": "b"}
		tCtx.ExpectNoError(tc.client.Tracker().Update(podGVR, labeled, namespace))
		synctest.Wait()
		require.False(tCtx, tc.takeActivated(pod), "irrelevant change")
		pod = newJobPod("pod-1")
		tCtx.ExpectNoError(tc.client.Tracker().Update(podGVR, pod, namespace))
		synctest.Wait()
		require.True(tCtx, tc.takeActivated(pod))
		require.Nil(tCtx, tc.schedule(pod).bind(tCtx))
	})
}

// TestReservedForUnknownOwner covers pods whose owner cannot be looked up while the claim is
// already reserved for the workload.
func TestReservedForUnknownOwner(t *testing.T) {
	claim := withReservedFor(newWorkloadClaim(resourceapi.ResourceClaimConsumerReference{APIGroup: "apps", Resource: "deployments", Name: "web", UID: "web-uid"}), webDeployment)
	for name, tcase := range map[string]struct {
		err  error
		wait bool
	}{
		"forbidden": {err: apierrors.NewForbidden(appsv1.Resource("replicasets"), "web-1", errors.New("no such rule"))},
		"failure":   {err: errors.New("connection refused"), wait: true},
		"gone":      {},
	} {
		syncTest(t, name, func(tCtx ktesting.TContext) {
			tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{claim})
			tc.p.owners.reader.(*clientOwnerReader).setErr(tcase.err)
			_, status := tc.preFilter(newReplicaSetPod("pod-1"))
			assert.Equal(tCtx, tcase.wait, !status.IsSuccess())
		})
	}
}

// TestOwnerResolverForgets ensures that nobody is waited for who is gone, and that what is known is limited.
func TestOwnerResolverForgets(t *testing.T) {
	syncTest(t, "pod-gone", func(tCtx ktesting.TContext) {
		pod := newReplicaSetPod("pod-1")
		tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{withReservedFor(newSharedClaim(), webDeployment)}, pod)
		_, status := tc.preFilter(pod)
		require.NotNil(tCtx, status)
		time.Sleep(time.Minute) // fake time
		tCtx.ExpectNoError(tc.client.Tracker().Delete(v1.SchemeGroupVersion.WithResource("pods"), namespace, pod.Name))
		time.Sleep(time.Minute)
		tc.client.ClearActions()
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Zero(tCtx, tc.countGets("replicasets"))
	})

	syncTest(t, "many", func(tCtx ktesting.TContext) {
		refused := newSharingPod("pod")
		tc := newReservedForTest(tCtx, reservedForFeatures(true), nil, refused)
		var gotRoom atomic.Bool
		tc.p.owners.activate = func(pods map[string]*v1.Pod) {
			if pods[string(refused.UID)] != nil {
				gotRoom.Store(true)
			}
		}
		blocked := &strictReader{ownerReader: tc.p.owners.reader}
		blocked.cycle.Lock()
		tc.p.owners.reader = blocked
		owner := func(i int) metav1.OwnerReference {
			return controlledBy(replicaSetKind, fmt.Sprintf("forged-%d", i), types.UID(fmt.Sprintf("forged-%d", i)))[0]
		}
		room := 0
		for ; room < 3000; room++ {
			_, err := tc.p.owners.controllerOf(newSharingPod(fmt.Sprintf("pod-%d", room)), owner(room))
			if err != nil && !errors.Is(err, errOwnerPending) {
				break
			}
		}
		require.Greater(tCtx, room, 1000)
		require.Less(tCtx, room, 2000)
		_, err := tc.p.owners.controllerOf(refused, owner(room))
		require.ErrorIs(tCtx, err, errTooManyOwners)
		other := newSharingPod("other-pod")
		other.Namespace = "other"
		_, err = tc.p.owners.controllerOf(other, owner(0))
		require.ErrorIs(tCtx, err, errOwnerPending)

		// None of these pods exists.
		blocked.cycle.Unlock()
		time.Sleep(time.Minute) // fake time
		synctest.Wait()
		require.True(tCtx, gotRoom.Load())
		_, err = tc.p.owners.controllerOf(newSharingPod("pod"), owner(room))
		require.ErrorIs(tCtx, err, errOwnerPending)
		time.Sleep(2 * ownerUnusedTTL)
		_, err = tc.p.owners.controllerOf(newSharingPod("pod"), owner(0))
		require.ErrorIs(tCtx, err, errOwnerPending)
		tc.p.owners.mutex.Lock()
		defer tc.p.owners.mutex.Unlock()
		require.Len(tCtx, tc.p.owners.namespaces, 1)
		require.Len(tCtx, tc.p.owners.namespaces[namespace].entries, 1)
		require.Equal(tCtx, tc.p.owners.namespaces[namespace].bytes, tc.p.owners.bytes)
	})

	// One pod after the other, each with an owner reference of its own.
	syncTest(t, "one-at-a-time", func(tCtx ktesting.TContext) {
		tc := newReservedForTest(tCtx, reservedForFeatures(true), nil)
		r := tc.p.owners
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range 10000 {
			name := fmt.Sprintf("%0250d", i)
			pod := newSharingPod(name)
			_, _ = r.controllerOf(pod, controlledBy(replicaSetKind, name, types.UID(fmt.Sprintf("%0128d", i)))[0])
			time.Sleep(100 * time.Millisecond) // fake time
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		tc.client.ClearActions() // of the fake client
		runtime.GC()
		runtime.ReadMemStats(&after)
		tCtx.Logf("heap grew by %d bytes, counted as %d", int64(after.HeapAlloc)-int64(before.HeapAlloc), r.bytes)
		r.mutex.Lock()
		defer r.mutex.Unlock()
		require.LessOrEqual(tCtx, r.bytes, maxOwnerBytes)
		bytes := 0
		for _, entry := range r.namespaces[namespace].entries {
			bytes += entry.size()
		}
		require.Equal(tCtx, bytes, r.bytes)
	})

	// The queue needs more of a pod than its name.
	syncTest(t, "activated", func(tCtx ktesting.TContext) {
		pod := newReplicaSetPod("pod-1")
		pod.Labels = map[string]string{"a": "b"}
		tc := newReservedForTest(tCtx, reservedForFeatures(true), nil, pod)
		var activated map[string]*v1.Pod
		tc.p.owners.activate = func(pods map[string]*v1.Pod) { activated = pods }
		_, err := tc.p.owners.controllerOf(pod, pod.OwnerReferences[0])
		require.ErrorIs(tCtx, err, errOwnerPending)
		synctest.Wait()
		require.Len(tCtx, activated, 1)
		require.Equal(tCtx, pod.Labels, activated[string(pod.UID)].Labels)
	})

	syncTest(t, "too-long", func(tCtx ktesting.TContext) {
		long := newPodOf("long", controlledBy(replicaSetKind, strings.Repeat("x", 1000), "uid"))
		tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{withReservedFor(newSharedClaim(), webDeployment)}, long)
		_, status := tc.preFilter(long)
		require.Equal(tCtx, fwk.UnschedulableAndUnresolvable, status.Code())
		require.Contains(tCtx, status.Message(), "an owner reference is too long to be one")
		require.Empty(tCtx, tc.p.owners.namespaces)
	})
}

// hangingReader never answers for one namespace.
type hangingReader struct {
	ownerReader
	hanging string
}

func (r *hangingReader) get(ctx context.Context, namespace string, gvk schema.GroupVersionKind, name string) (metav1.Object, error) {
	if namespace == r.hanging {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return r.ownerReader.get(ctx, namespace, gvk, name)
}

// TestOwnerResolverFair ensures that one namespace does not keep others waiting.
func TestOwnerResolverFair(t *testing.T) {
	syncTest(t, "", func(tCtx ktesting.TContext) {
		tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{withReservedFor(newSharedClaim(), webDeployment)}, newReplicaSet(controlledBy(deploymentKind, "web", "web-uid")))
		tc.p.owners.reader = &hangingReader{ownerReader: tc.p.owners.reader, hanging: "attacker"}
		for i := range 1000 {
			pod := newSharingPod(fmt.Sprintf("forged-%d", i))
			pod.Namespace = "attacker"
			_, err := tc.p.owners.controllerOf(pod, controlledBy(replicaSetKind, pod.Name, pod.UID)[0])
			require.ErrorIs(tCtx, err, errOwnerPending)
		}
		start := time.Now()
		require.Nil(tCtx, tc.schedule(newReplicaSetPod("victim")).bind(tCtx))
		assert.Zero(tCtx, time.Since(start), "in fake time")
	})
}

// TestOwnerChains covers workloads which control the controllers of pods, with the real reader.
func TestOwnerChains(t *testing.T) {
	ref := func(gvk schema.GroupVersionKind, resource, name string) resourceapi.ResourceClaimConsumerReference {
		return resourceapi.ResourceClaimConsumerReference{APIGroup: gvk.Group, Resource: resource, Name: name}
	}
	object := func(gvk schema.GroupVersionKind, name string, owners []metav1.OwnerReference) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind},
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, UID: types.UID(name + "-uid"), OwnerReferences: owners},
		}
	}
	oldRayClusterKind := rayClusterKind
	oldRayClusterKind.Version = "v1alpha1"
	for name, tcase := range map[string]struct {
		workload  resourceapi.ResourceClaimConsumerReference
		pod       *v1.Pod
		objs      []apiruntime.Object
		expectUID types.UID
	}{
		"LeaderWorkerSet": {
			workload:  ref(leaderWorkerSetKind, "leaderworkersets", "lws"),
			pod:       newPodOf("pod-1", controlledBy(statefulSetKind, "lws-0", "lws-0-uid")),
			objs:      []apiruntime.Object{object(statefulSetKind, "lws-0", controlledBy(leaderWorkerSetKind, "lws", "lws-uid"))},
			expectUID: "lws-uid",
		},
		"LeaderWorkerSet-two-levels": {
			// The StatefulSet of workers is controlled by the leader pod.
			workload: ref(leaderWorkerSetKind, "leaderworkersets", "lws"),
			pod:      newPodOf("pod-1", controlledBy(statefulSetKind, "lws-0", "lws-0-uid")),
			objs: []apiruntime.Object{
				object(statefulSetKind, "lws-0", controlledBy(v1.SchemeGroupVersion.WithKind("Pod"), "lws-leader-0", "lws-leader-0-uid")),
				object(v1.SchemeGroupVersion.WithKind("Pod"), "lws-leader-0", controlledBy(statefulSetKind, "lws-leader", "lws-leader-uid")),
				object(statefulSetKind, "lws-leader", controlledBy(leaderWorkerSetKind, "lws", "lws-uid")),
			},
			expectUID: "lws-uid",
		},
		"JobSet": {
			workload:  ref(jobSetKind, "jobsets", "set"),
			pod:       newPodOf("pod-1", controlledBy(jobKind, "set-0", "set-0-uid")),
			objs:      []apiruntime.Object{object(jobKind, "set-0", controlledBy(jobSetKind, "set", "set-uid"))},
			expectUID: "set-uid",
		},
		"RayJob": {
			workload:  rayJob,
			pod:       newPodOf("pod-1", controlledBy(rayClusterKind, "cluster", "cluster-uid")),
			objs:      []apiruntime.Object{object(rayClusterKind, "cluster", controlledBy(rayJobKind, "ray", "ray-uid"))},
			expectUID: "ray-uid",
		},
		"version-not-served": {
			workload:  rayJob,
			pod:       newPodOf("pod-1", controlledBy(oldRayClusterKind, "cluster", "cluster-uid")),
			objs:      []apiruntime.Object{object(rayClusterKind, "cluster", controlledBy(rayJobKind, "ray", "ray-uid"))},
			expectUID: "ray-uid",
		},
		"unknown-kind": {
			workload: rayJob,
			pod:      newPodOf("pod-1", controlledBy(schema.GroupVersionKind{Group: "ray.io", Version: "v1", Kind: "Unknown"}, "cluster", "cluster-uid")),
		},
		"unknown-group": {
			workload: rayJob,
			pod:      newPodOf("pod-1", controlledBy(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "RayCluster"}, "cluster", "cluster-uid")),
		},
		"cluster-scoped": {
			workload: rayJob,
			pod:      newPodOf("pod-1", controlledBy(schema.GroupVersionKind{Group: "ray.io", Version: "v1", Kind: "Global"}, "cluster", "cluster-uid")),
		},
		"circle": {
			workload: rayJob,
			pod:      newPodOf("pod-1", controlledBy(rayClusterKind, "cluster", "cluster-uid")),
			objs:     []apiruntime.Object{object(rayClusterKind, "cluster", controlledBy(rayClusterKind, "cluster", "cluster-uid"))},
		},
	} {
		syncTest(t, name, func(tCtx ktesting.TContext) {
			tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{withReservedFor(newSharedClaim(), tcase.workload)})
			reader, requests := newFakeMetadataReader(tCtx, tcase.objs...)
			tc.p.owners.reader = reader
			cycle, status := tc.preFilter(tcase.pod)
			if tcase.expectUID == "" {
				require.Equal(tCtx, fwk.UnschedulableAndUnresolvable, status.Code())
				require.Contains(tCtx, status.Message(), "does not belong to it")
				// Whatever is asked for, discovery is not repeated all the time.
				before := requests()
				for i := range 100 {
					pod := tcase.pod.DeepCopy()
					pod.UID = types.UID(fmt.Sprintf("pod-%d", i))
					pod.OwnerReferences[0].UID = pod.UID
					_, status := tc.preFilter(pod)
					require.NotNil(tCtx, status)
				}
				require.Equal(tCtx, before, requests())
				return
			}
			require.Nil(tCtx, status)
			require.Contains(tCtx, cycle.filter(), nodeName)
			require.Nil(tCtx, tc.p.Reserve(tCtx, cycle.state, tcase.pod, nodeName))
			require.Nil(tCtx, cycle.bind(tCtx))
			refs := tc.claim().Status.ReservedFor
			require.Len(tCtx, refs, 1)
			require.Equal(tCtx, tcase.expectUID, refs[0].UID)
		})
	}
}

// brokenDiscovery calls a function before the resources of one API are returned, or fails.
type brokenDiscovery struct {
	discovery.ServerResourcesInterface
	broken string
	ask    func() error
}

func (d *brokenDiscovery) ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error) {
	if groupVersion == d.broken {
		if err := d.ask(); err != nil {
			return nil, err
		}
	}
	return d.ServerResourcesInterface.ServerResourcesForGroupVersion(groupVersion)
}

// TestOwnerReaderBrokenAPI ensures that an API for which discovery takes long and then fails, like that
// of an aggregated API server which is not there, does not hold up the lookup of other kinds, and is
// not asked again and again.
func TestOwnerReaderBrokenAPI(t *testing.T) {
	tCtx := ktesting.Init(t)
	reader, _ := newFakeMetadataReader(tCtx)
	get := func(gvk schema.GroupVersionKind) error {
		_, err := reader.get(tCtx, namespace, gvk, "owner")
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	errBroken := errors.New("no endpoints available")
	asked := 0
	reader.discovery = &brokenDiscovery{ServerResourcesInterface: reader.discovery, broken: "ray.io/v1", ask: func() error {
		asked++
		done := make(chan error, 1)
		go func() { done <- get(leaderWorkerSetKind) }()
		select {
		case err := <-done:
			assert.NoError(tCtx, err, "other kind")
		case <-time.After(wait.ForeverTestTimeout):
			assert.Fail(tCtx, "other kind has to wait")
		}
		return errBroken
	}}
	for i := range 100 {
		gvk := rayJobKind
		gvk.Kind = fmt.Sprintf("Kind%d", i)
		require.ErrorIs(tCtx, get(gvk), errBroken)
	}
	assert.Equal(tCtx, 1, asked)
}

// TestDiscovered covers for how long the parts of the discovery information are used.
func TestDiscovered(t *testing.T) {
	syncTest(t, "", func(tCtx ktesting.TContext) {
		served, failure, asked := map[string]string{"Job": "jobs"}, error(nil), 0
		var d discovered[string]
		expect := func(kind, resource string, expectErr error, expectAsked int) {
			tCtx.Helper()
			asked = 0
			got, found, err := d.get(kind, func() (map[string]string, error) {
				asked++
				return served, failure
			})
			assert.Equal(tCtx, resource, got)
			assert.Equal(tCtx, resource != "", found)
			assert.Equal(tCtx, expectErr, err)
			assert.Equal(tCtx, expectAsked, asked)
		}
		expect("Job", "jobs", nil, 1)
		expect("Job", "jobs", nil, 0)
		expect("Set", "", nil, 0)
		time.Sleep(discoveryInterval) // fake time
		served = map[string]string{"Job": "jobs", "Set": "sets"}
		expect("Job", "jobs", nil, 0)
		expect("Set", "sets", nil, 1)

		// What is known survives a failure.
		failure = errors.New("timeout")
		time.Sleep(discoveryTTL)
		expect("Job", "jobs", nil, 1)
		expect("Job", "jobs", nil, 0)
		expect("Unknown", "", failure, 0)
		time.Sleep(discoveryInterval)
		expect("Unknown", "", failure, 1)
		served, failure = map[string]string{"Set": "sets"}, nil
		time.Sleep(discoveryTTL)
		expect("Job", "", nil, 1)
	})
}

// newFakeMetadataReader returns the real reader for a fake API server, and a function which returns the
// number of discovery requests.
func newFakeMetadataReader(tCtx ktesting.TContext, objs ...apiruntime.Object) (*metadataOwnerReader, func() int) {
	tCtx.Helper()
	scheme := metadatafake.NewTestScheme()
	tCtx.ExpectNoError(metav1.AddMetaToScheme(scheme))
	fakeDiscovery := &fakediscovery.FakeDiscovery{Fake: &cgotesting.Fake{}}
	fakeDiscovery.Resources = []*metav1.APIResourceList{
		{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "pods", Kind: "Pod", Namespaced: true}, {Name: "pods/status", Kind: "Pod", Namespaced: true}}},
		{GroupVersion: batchv1.SchemeGroupVersion.String(), APIResources: []metav1.APIResource{{Name: "jobs", Kind: "Job", Namespaced: true}}},
		{GroupVersion: "leaderworkerset.x-k8s.io/v1", APIResources: []metav1.APIResource{{Name: "leaderworkersets", Kind: "LeaderWorkerSet", Namespaced: true}}},
		{GroupVersion: "ray.io/v1", APIResources: []metav1.APIResource{
			{Name: "rayclusters", Kind: "RayCluster", Namespaced: true},
			{Name: "rayjobs", Kind: "RayJob", Namespaced: true},
			{Name: "globals", Kind: "Global"},
		}},
	}
	reader := &metadataOwnerReader{
		metadata:  metadatafake.NewSimpleMetadataClient(scheme, objs...),
		discovery: fakeDiscovery,
		groups:    fakeDiscovery,
	}
	return reader, func() int { return len(fakeDiscovery.Actions()) }
}

// ownerTest is for one way of how the UID gets determined.
type ownerTest struct {
	workload resourceapi.ResourceClaimConsumerReference
	pod      *v1.Pod
	objs     []apiruntime.Object
	// enable changes the features and returns additional objects.
	enable  func(tCtx ktesting.TContext, feats *feature.Features) []apiruntime.Object
	failure error

	expectUID      types.UID
	expectStatus   fwk.Code
	expectMessage  string
	expectRequests map[string]int
}

// TestReservedForOwner covers how the UID gets determined.
func TestReservedForOwner(t *testing.T) {
	deployment := resourceapi.ResourceClaimConsumerReference{APIGroup: "apps", Resource: "deployments", Name: "web"}
	jobSet := resourceapi.ResourceClaimConsumerReference{APIGroup: "jobset.x-k8s.io", Resource: "jobsets", Name: "set"}
	replicaSet := func(uid types.UID, owners []metav1.OwnerReference) *appsv1.ReplicaSet {
		return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web-1", Namespace: namespace, UID: uid, OwnerReferences: owners}}
	}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "set-0", Namespace: namespace, UID: "set-0-uid", OwnerReferences: controlledBy(jobSetKind, "set", "set-uid")}}
	replicaSetPod := newPodOf("pod-1", controlledBy(replicaSetKind, "web-1", "web-1-uid"))

	for name, tcase := range map[string]ownerTest{
		"job": {
			workload:  workloadRef,
			pod:       newJobPod("pod-1"),
			expectUID: jobUID,
		},
		"not-the-controller": {
			workload: workloadRef,
			pod: func() *v1.Pod {
				pod := newJobPod("pod-1")
				pod.OwnerReferences[0].Controller = nil
				return pod
			}(),
			expectStatus:  fwk.UnschedulableAndUnresolvable,
			expectMessage: "no controller",
		},
		"other-group": {
			workload:      workloadRef,
			pod:           newPodOf("pod-1", controlledBy(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Job"}, jobName, jobUID)),
			expectStatus:  fwk.UnschedulableAndUnresolvable,
			expectMessage: `controller is Job "train"`,
		},
		"other-version": {
			workload:  workloadRef,
			pod:       newPodOf("pod-1", controlledBy(schema.GroupVersionKind{Group: "batch", Version: "v2", Kind: "Job"}, jobName, jobUID)),
			expectUID: jobUID,
		},
		"deployment": {
			workload:       deployment,
			pod:            replicaSetPod,
			objs:           []apiruntime.Object{replicaSet("web-1-uid", controlledBy(deploymentKind, "web", "web-uid"))},
			expectUID:      "web-uid",
			expectRequests: map[string]int{"replicasets": 1},
		},
		"other-deployment": {
			workload:       deployment,
			pod:            replicaSetPod,
			objs:           []apiruntime.Object{replicaSet("web-1-uid", controlledBy(deploymentKind, "other", "other-uid"))},
			expectStatus:   fwk.UnschedulableAndUnresolvable,
			expectMessage:  `reserved for deployments.apps "web"`,
			expectRequests: map[string]int{"replicasets": 1},
		},
		"replicaset-recreated": {
			workload:       deployment,
			pod:            replicaSetPod,
			objs:           []apiruntime.Object{replicaSet("other-uid", controlledBy(deploymentKind, "web", "web-uid"))},
			expectStatus:   fwk.UnschedulableAndUnresolvable,
			expectMessage:  "does not belong to it",
			expectRequests: map[string]int{"replicasets": 1},
		},
		"replicaset-gone": {
			workload:       deployment,
			pod:            replicaSetPod,
			expectStatus:   fwk.UnschedulableAndUnresolvable,
			expectMessage:  "does not belong to it",
			expectRequests: map[string]int{"replicasets": 1},
		},
		"jobset": {
			workload:       jobSet,
			pod:            newPodOf("pod-1", controlledBy(jobKind, "set-0", "set-0-uid")),
			objs:           []apiruntime.Object{job},
			expectUID:      "set-uid",
			expectRequests: map[string]int{"jobs": 1},
		},
		"unknown-controller": {
			workload:      jobSet,
			pod:           newPodOf("pod-1", controlledBy(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}, "set-0", "set-0-uid")),
			objs:          []apiruntime.Object{job},
			expectStatus:  fwk.UnschedulableAndUnresolvable,
			expectMessage: `controller is Thing "set-0"`,
		},
		"forbidden": {
			workload:       jobSet,
			pod:            newPodOf("pod-1", controlledBy(jobKind, "set-0", "set-0-uid")),
			failure:        apierrors.NewForbidden(batchv1.Resource("jobs"), "set-0", errors.New("no such rule")),
			expectStatus:   fwk.UnschedulableAndUnresolvable,
			expectMessage:  "the scheduler is not allowed to check whether the pod belongs to it: owner Job \"set-0\" may not be looked at: jobs.batch \"set-0\" is forbidden: no such rule",
			expectRequests: map[string]int{"jobs": 1},
		},
		"error": {
			workload:       jobSet,
			pod:            newPodOf("pod-1", controlledBy(jobKind, "set-0", "set-0-uid")),
			failure:        errors.New("fake API failure"),
			expectStatus:   fwk.UnschedulableAndUnresolvable,
			expectMessage:  "fake API failure",
			expectRequests: map[string]int{"jobs": 1},
		},
	} {
		syncTest(t, name, tcase.run)
	}
}

func (tcase ownerTest) run(tCtx ktesting.TContext) {
	feats := reservedForFeatures(true)
	objs := tcase.objs
	if tcase.enable != nil {
		objs = append(objs, tcase.enable(tCtx, &feats)...)
	}
	tc := newReservedForTest(tCtx, feats, []*resourceapi.ResourceClaim{withReservedFor(newSharedClaim(), tcase.workload)}, objs...)
	if tcase.failure != nil {
		tc.client.PrependReactor("get", "*", func(action cgotesting.Action) (bool, apiruntime.Object, error) {
			return true, nil, tcase.failure
		})
	}

	// More than one pod with the same controller.
	for i := range 2 {
		pod := tcase.pod.DeepCopy()
		pod.Name = fmt.Sprintf("pod-%d", i)
		pod.UID = types.UID(pod.Name)
		_, status := tc.preFilter(pod)
		assert.Equal(tCtx, tcase.expectStatus, status.Code())
		assert.Contains(tCtx, status.Message(), tcase.expectMessage)
	}
	for _, resource := range []string{"jobs", "replicasets"} {
		assert.Equal(tCtx, tcase.expectRequests[resource], tc.countGets(resource), resource)
	}
	if tcase.expectStatus != fwk.Success {
		return
	}

	require.Nil(tCtx, tc.schedule(tcase.pod).bind(tCtx))
	expectRef := tcase.workload
	expectRef.UID = tcase.expectUID
	assert.Equal(tCtx, []resourceapi.ResourceClaimConsumerReference{expectRef}, tc.claim().Status.ReservedFor)
	assert.True(tCtx, resourceclaim.IsReservedForAnyPod(tc.claim()))

	// Any pod may use the claim now, one lookup for each controller.
	tc.client.ClearActions()
	for i := range 10 {
		require.Nil(tCtx, tc.schedule(newPodOf(fmt.Sprintf("later-pod-%d", i), controlledBy(jobKind, "some-job", "some-job-uid"))).bind(tCtx))
	}
	if tcase.workload != workloadRef {
		assert.Equal(tCtx, 1, tc.countGets("jobs"))
	}
}
