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
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/kubernetes/pkg/controller/resourceclaim/fairness"
	"k8s.io/utils/ptr"
)

// groupTemplate makes one claim for each object of a kind.
func groupTemplate(group, resource string) *resourceapi.ResourceClaimTemplate {
	return &resourceapi.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "imex", Namespace: testNamespace},
		Spec: resourceapi.ResourceClaimTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{
				Labels:      map[string]string{"some": "label"},
				Annotations: map[string]string{"some": "annotation", extendedResourceAnnotation: "true", resourceclaim.GeneratedForAnnotation: "jobs.batch/other/1/imex"},
			},
			Spec: resourceapi.ResourceClaimSpec{ReservedFor: &resourceapi.ResourceClaimWorkloadReference{APIGroup: group, Resource: resource}},
		},
	}
}

// groupPod needs a claim from such a template.
func groupPod(name string, apiVersion, kind string, owner metav1.Object) *v1.Pod {
	pod := makePod(name, testNamespace, types.UID(name+"-uid"), v1.PodResourceClaim{Name: podResourceClaimName, ResourceClaimTemplateName: ptr.To("imex")})
	if owner != nil {
		pod = controlledBy(pod, apiVersion, kind, owner)
	}
	return pod
}

func groupPods(n int, apiVersion, kind string, owner metav1.Object) (pods []*v1.Pod, objects []runtime.Object) {
	for i := range n {
		pods = append(pods, groupPod(fmt.Sprintf("pod-%d", i), apiVersion, kind, owner))
		objects = append(objects, pods[i])
	}
	return pods, objects
}

func generatedName(generatedFor resourceclaim.GeneratedFor) string {
	generatedFor.Template = "imex"
	return generatedFor.ClaimName(podResourceClaimName)
}

var jobConsumer = resourceclaim.GeneratedFor{GroupResource: schema.GroupResource{Group: "batch", Resource: "jobs"}, Name: workloadName, UID: workloadUID, Template: "imex"}

// generatedJobClaim is the claim for the pods of the Job.
func generatedJobClaim() *resourceapi.ResourceClaim {
	claim := newUnownedClaim(generatedName(jobConsumer))
	claim.UID = "generated-uid"
	claim.Annotations = map[string]string{resourceclaim.PodClaimNameAnnotation: podResourceClaimName, resourceclaim.GeneratedForAnnotation: jobConsumer.String()}
	claim.Spec.ReservedFor = ptr.To(resourceapi.ResourceClaimWorkloadReference(jobRef))
	return claim
}

func (tt *workloadTest) mustSyncPod(pod *v1.Pod) {
	tt.Helper()
	tt.ExpectNoError(tt.ec.syncHandler(tt, podKey(pod)), "sync pod")
}

// podDelay returns when the pod is processed again, zero if not by itself.
func (tt *workloadTest) podDelay(pod *v1.Pod) time.Duration { return tt.queue.delays[podKey(pod)] }

// queued returns what is in the queue at the moment.
func (tt *workloadTest) queued() []string {
	var keys []string
	for tt.ec.queue.Len() > 0 {
		key, _ := tt.ec.queue.Get()
		tt.ec.queue.Done(key)
		keys = append(keys, key)
	}
	return keys
}

func (tt *workloadTest) allClaims() []resourceapi.ResourceClaim {
	tt.Helper()
	claims, err := claimClient(tt.client, testNamespace).List(tt, metav1.ListOptions{})
	tt.ExpectNoError(err, "list claims")
	tt.client.ClearActions()
	return claims.Items
}

// claimRequests returns verbs of requests for claims and pods since the last time.
func (tt *workloadTest) claimRequests() []string {
	var requests []string
	for _, action := range append(tt.client.Actions(), tt.dynamic.Actions()...) {
		requests = append(requests, action.GetVerb()+" "+action.GetResource().Resource)
	}
	tt.client.ClearActions()
	tt.dynamic.ClearActions()
	return requests
}

func (tt *workloadTest) claimOf(pod *v1.Pod) string {
	tt.Helper()
	pod, err := tt.client.CoreV1().Pods(testNamespace).Get(tt, pod.Name, metav1.GetOptions{})
	tt.ExpectNoError(err, "get pod")
	if len(pod.Status.ResourceClaimStatuses) == 0 {
		return ""
	}
	return *pod.Status.ResourceClaimStatuses[0].ResourceClaimName
}

// TestGenerateClaim covers who gets which claim.
func TestGenerateClaim(t *testing.T) {
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "rs", Namespace: testNamespace, UID: "rs-uid",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1beta1", Kind: "Deployment", Name: workloadName, UID: workloadUID, Controller: ptr.To(true)}}}}
	childJob := job.DeepCopy()
	childJob.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1alpha1", Kind: "Training", Name: workloadName, UID: workloadUID, Controller: ptr.To(true)}}
	childJob.Name, childJob.UID = "child", "child-uid"
	leaders := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "leaders", Namespace: testNamespace, UID: "leaders-uid"}}
	leader := groupPod("leader", "apps/v1", "StatefulSet", leaders)
	workers := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "workers", Namespace: testNamespace, UID: "workers-uid"}}
	workers.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: leader.Name, UID: leader.UID, Controller: ptr.To(true)}}
	leaderConsumer := resourceclaim.GeneratedFor{GroupResource: podsResource, Name: "leader", UID: "leader-uid"}
	leaderRef := &resourceapi.ResourceClaimWorkloadReference{APIGroup: "apps", Resource: "statefulsets", Name: "leaders", UID: "leaders-uid"}

	for name, tc := range map[string]struct {
		template       *resourceapi.ResourceClaimTemplate
		objects        []runtime.Object
		pods           []*v1.Pod
		consumer       resourceclaim.GeneratedFor
		owner          string
		reservedFor    *resourceapi.ResourceClaimWorkloadReference
		expectRequests int
	}{
		"job": {
			template: groupTemplate("batch", "jobs"), objects: []runtime.Object{job},
			pods:     []*v1.Pod{groupPod("a", "batch/v1", "Job", job), groupPod("b", "batch/v1", "Job", job)},
			consumer: jobConsumer, owner: "batch/v1 Job", reservedFor: ptr.To(resourceapi.ResourceClaimWorkloadReference(jobRef)),
		},
		"singular": {
			template: groupTemplate("batch", "job"), objects: []runtime.Object{job},
			pods:     []*v1.Pod{groupPod("a", "batch/v1", "Job", job)},
			consumer: jobConsumer, owner: "batch/v1 Job", reservedFor: ptr.To(resourceapi.ResourceClaimWorkloadReference(jobRef)),
		},
		"deployment": {
			template: groupTemplate("apps", "deployments"), objects: []runtime.Object{rs, deployment},
			pods:     []*v1.Pod{groupPod("a", "apps/v1", "ReplicaSet", rs), groupPod("b", "apps/v1", "ReplicaSet", rs)},
			consumer: resourceclaim.GeneratedFor{GroupResource: schema.GroupResource{Group: "apps", Resource: "deployments"}, Name: workloadName, UID: workloadUID},
			owner:    "apps/v1 Deployment", reservedFor: ptr.To(resourceapi.ResourceClaimWorkloadReference(deploymentRef)),
		},
		// Its version is one that is served, not the one in the reference. It has to be looked up.
		"custom": {
			template: groupTemplate("example.com", "trainings"), objects: []runtime.Object{childJob, custom},
			pods:     []*v1.Pod{groupPod("a", "batch/v1", "Job", childJob), groupPod("b", "batch/v1", "Job", childJob)},
			consumer: resourceclaim.GeneratedFor{GroupResource: schema.GroupResource{Group: "example.com", Resource: "trainings"}, Name: workloadName, UID: workloadUID},
			owner:    "example.com/v1 Training", reservedFor: ptr.To(resourceapi.ResourceClaimWorkloadReference(customRef)), expectRequests: 1,
		},
		// What says so may go on: it has pods.
		"custom-completed": {
			template: groupTemplate("example.com", "trainings"), objects: []runtime.Object{childJob, finishedCustom("Completed", "True")},
			pods:     []*v1.Pod{groupPod("a", "batch/v1", "Job", childJob)},
			consumer: resourceclaim.GeneratedFor{GroupResource: schema.GroupResource{Group: "example.com", Resource: "trainings"}, Name: workloadName, UID: workloadUID},
			owner:    "example.com/v1 Training", reservedFor: ptr.To(resourceapi.ResourceClaimWorkloadReference(customRef)), expectRequests: 1,
		},
		// The nearest one counts.
		"job-of-custom": {
			template: groupTemplate("batch", "jobs"), objects: []runtime.Object{childJob, custom},
			pods:     []*v1.Pod{groupPod("a", "batch/v1", "Job", childJob)},
			consumer: resourceclaim.GeneratedFor{GroupResource: jobConsumer.GroupResource, Name: "child", UID: "child-uid"},
			owner:    "batch/v1 Job", reservedFor: &resourceapi.ResourceClaimWorkloadReference{APIGroup: "batch", Resource: "jobs", Name: "child", UID: "child-uid"},
		},
		"leader-and-workers": {
			template: groupTemplate("", "pods"), objects: []runtime.Object{leaders, workers},
			pods:     []*v1.Pod{leader, groupPod("worker", "apps/v1", "StatefulSet", workers)},
			consumer: leaderConsumer, owner: "v1 Pod", reservedFor: leaderRef,
		},
		"pod-alone": {
			template: groupTemplate("", "pods"), pods: []*v1.Pod{groupPod("leader", "", "", nil)},
			consumer: leaderConsumer, owner: "v1 Pod",
		},
	} {
		t.Run(name, func(t *testing.T) {
			objects := append([]runtime.Object{tc.template}, tc.objects...)
			for _, pod := range tc.pods {
				objects = append(objects, pod)
			}
			tt := newWorkloadTest(t, workloadsEnabled, objects...)
			name := generatedName(tc.consumer)
			tt.mustSyncPod(tc.pods[0])
			requests := tt.claimRequests()
			require.Len(tt, requests, tc.expectRequests+2, requests)
			assert.Equal(tt, []string{"create resourceclaims", "patch pods"}, requests[:2])
			// The informer does not have the claim yet, and nobody asks for it.
			for _, pod := range append(tc.pods[1:], tc.pods...) {
				tt.mustSyncPod(pod)
				assert.Equal(tt, []string{"patch pods"}, tt.claimRequests())
				assert.Equal(tt, name, tt.claimOf(pod))
				tt.client.ClearActions()
			}
			claims := tt.allClaims()
			require.Len(tt, claims, 1)
			claim := claims[0]
			assert.Equal(tt, name, claim.Name)
			tc.consumer.Template = "imex"
			assert.Equal(tt, map[string]string{"some": "annotation", resourceclaim.PodClaimNameAnnotation: podResourceClaimName, resourceclaim.GeneratedForAnnotation: tc.consumer.String()}, claim.Annotations)
			assert.Equal(tt, map[string]string{"some": "label"}, claim.Labels)
			assert.Equal(tt, tc.reservedFor, claim.Spec.ReservedFor)
			require.Len(tt, claim.OwnerReferences, 1)
			owner := claim.OwnerReferences[0]
			assert.Equal(tt, tc.owner, owner.APIVersion+" "+owner.Kind)
			assert.Equal(tt, tc.consumer.UID, owner.UID)
			assert.Nil(tt, owner.BlockOwnerDeletion)
			assert.Empty(tt, tt.events())
			// Nothing was changed in the cache.
			stored, err := tt.ec.templateLister.ResourceClaimTemplates(testNamespace).Get("imex")
			tt.ExpectNoError(err)
			assert.Equal(tt, tc.template, stored)
		})
	}
}

// TestNoConsumer covers pods for which no claim may be generated, and that not all of many users are told.
func TestNoConsumer(t *testing.T) {
	old := metav1.NewTime(time.Now().Add(-time.Hour))
	cycle := &batchv1.Job{ObjectMeta: workloadMeta}
	cycle.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: workloadName, UID: workloadUID, Controller: ptr.To(true)}}
	for name, tc := range map[string]struct {
		template    *resourceapi.ResourceClaimTemplate
		objects     []runtime.Object
		owner       metav1.Object
		features    Features
		young       bool
		change      func(tt *workloadTest)
		expectEvent string
	}{
		"other-kind":       {template: groupTemplate("apps", "deployments"), objects: []runtime.Object{job}, owner: job, expectEvent: "none of its controllers is one"},
		"no-owner":         {template: groupTemplate("batch", "jobs"), expectEvent: "none of its controllers is one"},
		"other-group":      {template: groupTemplate("example.com", "jobs"), objects: []runtime.Object{job}, owner: job, expectEvent: "none of its controllers is one"},
		"cycle":            {template: groupTemplate("apps", "deployments"), objects: []runtime.Object{cycle}, owner: cycle, expectEvent: "none of its controllers is one"},
		"does-not-exist":   {template: groupTemplate("batch", "jobs"), owner: job, expectEvent: "does not exist"},
		"replaced":         {template: groupTemplate("batch", "jobs"), objects: []runtime.Object{otherJob}, owner: job, expectEvent: "was replaced by another object"},
		"finished":         {template: groupTemplate("batch", "jobs"), objects: []runtime.Object{completeJob}, owner: job, expectEvent: "has finished"},
		"deleted":          {template: groupTemplate("batch", "jobs"), objects: []runtime.Object{deleted(job)}, owner: job, expectEvent: "is being deleted"},
		"owner-of-it-gone": {template: groupTemplate("apps", "deployments"), owner: job, expectEvent: `owner Job "training" does not exist`},
		// Maybe nobody has seen it yet.
		"young": {template: groupTemplate("apps", "deployments"), owner: job, young: true},
		"forbidden": {template: groupTemplate("apps", "deployments"), owner: job, change: func(tt *workloadTest) {
			tt.client.PrependReactor("get", "jobs", func(k8stesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(schema.GroupResource{Group: "batch", Resource: "jobs"}, workloadName, errors.New("no such rule"))
			})
		}, expectEvent: "aggregate-to-resourceclaim-controller"},
		// Its kind may be served again.
		"leader-of-unknown-kind": {template: groupTemplate("", "pods"), objects: []runtime.Object{controlledBy(groupPod("leader", "", "", nil), "example.com/v1", "Unknown", custom)},
			owner: groupPod("leader", "", "", nil), expectEvent: "is of a kind that is not served"},
		"too-long": {template: groupTemplate("batch", "jobs"), owner: &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("x", 65536), UID: "1"}}, expectEvent: "an owner reference is too long to be one"},
		"gate-off": {template: groupTemplate("batch", "jobs"), objects: []runtime.Object{job}, owner: job, features: Features{}, expectEvent: "DRAReservedForWorkloads feature gate is disabled in kube-controller-manager"},
	} {
		t.Run(name, func(t *testing.T) {
			var owner metav1.Object
			if tc.owner != nil {
				owner = tc.owner
			}
			apiVersion, kind := "batch/v1", "Job"
			if _, ok := tc.owner.(*v1.Pod); ok {
				apiVersion, kind = "v1", "Pod"
			}
			pods, objects := groupPods(30, apiVersion, kind, owner)
			for _, pod := range pods {
				pod.CreationTimestamp = old
				if tc.young {
					pod.CreationTimestamp = metav1.Now()
				}
			}
			features := workloadsEnabled
			if name == "gate-off" {
				features = tc.features
			}
			tt := newWorkloadTest(t, features, append(append(objects, tc.template), tc.objects...)...)
			if tc.change != nil {
				tc.change(tt)
			}
			for range 3 {
				for _, pod := range pods {
					tt.mustSyncPod(pod)
				}
			}
			for _, request := range tt.claimRequests() {
				assert.Equal(tt, "get jobs", request)
			}
			assert.Empty(tt, tt.allClaims(), "never a claim for each pod")
			messages := tt.messages()
			if tc.expectEvent == "" {
				assert.Empty(tt, messages)
				assert.Equal(tt, minGenerateBackOff, tt.podDelay(pods[0]))
				return
			}
			limit := maxReports
			if tc.owner == nil {
				// Nothing in common.
				limit *= len(pods)
			}
			require.NotEmpty(tt, messages)
			assert.LessOrEqual(tt, len(messages), limit)
			for _, message := range messages {
				assert.Contains(tt, message, "Warning FailedResourceClaimCreation")
				assert.Contains(tt, message, tc.expectEvent)
				assert.Less(tt, len(message), 1024)
			}
		})
	}
}

// messages returns the events since the last time.
func (tt *workloadTest) messages() []string {
	var messages []string
	for {
		select {
		case event := <-tt.recorder.Events:
			messages = append(messages, event)
		default:
			return messages
		}
	}
}

// TestGenerateFailure covers a quota that has no room for some time, as seen by many pods.
func TestGenerateFailure(t *testing.T) {
	pods, objects := groupPods(100, "batch/v1", "Job", job)
	tt := newWorkloadTest(t, workloadsEnabled, append(objects, job, groupTemplate("batch", "jobs"))...)
	tt.queued()
	full := true
	tt.client.PrependReactor("create", "resourceclaims", func(k8stesting.Action) (bool, runtime.Object, error) {
		if full {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceclaims"}, "", errors.New("exceeded quota: claims"))
		}
		return false, nil, nil
	})
	claimKey := claimKeyPrefix + testNamespace + "/" + generatedName(jobConsumer)
	syncAll := func() {
		for _, pod := range pods {
			tt.mustSyncPod(pod)
		}
	}
	syncAll()
	assert.Equal(tt, []string{"create resourceclaims"}, tt.claimRequests())
	assert.Equal(tt, minGenerateBackOff, tt.queue.delays[claimKey])
	messages := tt.messages()
	require.Len(tt, messages, 1)
	assert.Contains(tt, messages[0], "exceeded quota: claims")
	syncAll()
	assert.Empty(tt, tt.claimRequests(), "too early")

	// One of them tries it again, with less and less effort, and only some users are told.
	expectDelay := minGenerateBackOff
	for range 20 {
		delay := tt.queue.delays[claimKey]
		require.Equal(tt, expectDelay, delay)
		delete(tt.queue.delays, claimKey)
		tt.clock.Step(delay)
		tt.ExpectNoError(tt.ec.syncHandler(tt, claimKey))
		keys := tt.queued()
		require.Len(tt, keys, 1)
		tt.ExpectNoError(tt.ec.syncHandler(tt, keys[0]))
		assert.Equal(tt, []string{"create resourceclaims"}, tt.claimRequests())
		expectDelay = min(2*expectDelay, maxBackOff)
	}
	assert.Len(tt, tt.messages(), maxReports-1)

	// The pod which would try next is gone.
	full = false
	tt.clock.Step(maxBackOff)
	tt.ExpectNoError(tt.ec.podIndexer.Delete(pods[0]))
	tt.ExpectNoError(tt.ec.syncHandler(tt, claimKey))
	keys := tt.queued()
	require.Len(tt, keys, 1)
	require.NotEqual(tt, podKey(pods[0]), keys[0])
	tt.ExpectNoError(tt.ec.syncHandler(tt, keys[0]))
	assert.Equal(tt, []string{"create resourceclaims", "patch pods"}, tt.claimRequests())
	assert.GreaterOrEqual(tt, len(tt.queued()), 98, "all others go on")
	syncAll()
	for _, pod := range pods[1:] {
		assert.Equal(tt, generatedName(jobConsumer), tt.claimOf(pod))
	}
	assert.Len(tt, tt.allClaims(), 1)

	// Nothing remains when the claim was seen.
	claim := tt.allClaims()[0]
	tt.ec.enqueueResourceClaim(tt.Logger(), nil, &claim)
	assert.Empty(tt, tt.ec.workloads.generated)
}

// TestGenerateManyFailures has a namespace with many templates, and a quota that has no room for their claims. Trying
// again takes few requests, and another namespace does not wait.
func TestGenerateManyFailures(t *testing.T) {
	const count = 300
	otherJob := job.DeepCopy()
	otherJob.Namespace = "other"
	otherTemplate := groupTemplate("batch", "jobs")
	otherTemplate.Namespace = "other"
	otherPod := groupPod("pod", "batch/v1", "Job", otherJob)
	otherPod.Namespace = "other"
	objects := []runtime.Object{job, otherJob, otherTemplate, otherPod}
	pods := map[string]*v1.Pod{}
	var claimKeys []string
	for i := range count {
		template := groupTemplate("batch", "jobs")
		template.Name = fmt.Sprintf("template-%d", i)
		pod := groupPod(fmt.Sprintf("pod-%d", i), "batch/v1", "Job", job)
		pod.Spec.ResourceClaims[0].ResourceClaimTemplateName = &template.Name
		// Nobody has to schedule it.
		pod.Spec.NodeName = nodeName
		pods[podKey(pod)] = pod
		generatedFor := jobConsumer
		generatedFor.Template = template.Name
		claimKeys = append(claimKeys, claimKeyPrefix+testNamespace+"/"+generatedFor.ClaimName(podResourceClaimName))
		objects = append(objects, template, pod)
	}
	tt := newWorkloadTest(t, workloadsEnabled, objects...)
	tt.queued()
	full := true
	creates := 0
	tt.client.PrependReactor("create", "resourceclaims", func(action k8stesting.Action) (bool, runtime.Object, error) {
		if action.GetNamespace() != testNamespace {
			return false, nil, nil
		}
		creates++
		if full {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceclaims"}, "", errors.New("exceeded quota: claims"))
		}
		return false, nil, nil
	})
	for _, pod := range pods {
		tt.mustSyncPod(pod)
	}
	assert.LessOrEqual(tt, creates, 1+failuresPerSecond, "at first")
	tt.mustSyncPod(otherPod)
	got, err := tt.client.CoreV1().Pods("other").Get(tt, otherPod.Name, metav1.GetOptions{})
	tt.ExpectNoError(err)
	assert.Len(tt, got.Status.ResourceClaimStatuses, 1, "the other namespace")

	seconds := func(n int) {
		for range n {
			tt.clock.Step(time.Second)
			for _, key := range claimKeys {
				tt.ExpectNoError(tt.ec.syncHandler(tt, key))
			}
			for _, key := range tt.queued() {
				if pods[key] != nil {
					tt.mustSyncPod(pods[key])
				}
			}
		}
	}
	creates = 0
	seconds(60)
	assert.LessOrEqual(tt, creates, 60*failuresPerSecond)
	assert.GreaterOrEqual(tt, creates, 59*failuresPerSecond, "somebody tries, in case that there is room")

	// All of them wait for at most MaxDelay after the last failure was forgotten.
	full = false
	seconds(int((failureInterval + fairness.MaxDelay) / time.Second))
	assert.Len(tt, tt.allClaims(), count)
	tt.clock.Step(failureInterval)
	tt.ec.workloads.creationFailed("third")
	assert.Len(tt, tt.ec.workloads.failed, 1, "nothing old is remembered")
}

// TestGenerateForgetsPods ensures that nothing is remembered for pods which are gone.
func TestGenerateForgetsPods(t *testing.T) {
	pods, objects := groupPods(2, "batch/v1", "Job", job)
	tt := newWorkloadTest(t, workloadsEnabled, append(objects, job, groupTemplate("batch", "jobs"))...)
	tt.client.PrependReactor("create", "resourceclaims", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("fake error")
	})
	for _, pod := range pods {
		tt.mustSyncPod(pod)
		tt.ExpectNoError(tt.ec.podIndexer.Delete(pod))
	}
	assert.NotEmpty(tt, tt.ec.workloads.generated)
	tt.queued()
	tt.clock.Step(maxBackOff)
	tt.ExpectNoError(tt.ec.syncHandler(tt, claimKeyPrefix+testNamespace+"/"+generatedName(jobConsumer)))
	assert.Empty(tt, tt.queued())
	assert.Empty(tt, tt.ec.workloads.generated)
}

// TestGenerateAtOnce ensures that many workers make one claim and that none of them waits for another.
func TestGenerateAtOnce(t *testing.T) {
	pods, objects := groupPods(50, "batch/v1", "Job", job)
	tt := newWorkloadTest(t, workloadsEnabled, append(objects, job, groupTemplate("batch", "jobs"))...)
	tt.queued()
	var creates atomic.Int32
	proceed := make(chan struct{})
	tt.client.PrependReactor("create", "resourceclaims", func(k8stesting.Action) (bool, runtime.Object, error) {
		creates.Add(1)
		<-proceed
		return false, nil, nil
	})
	var all, others sync.WaitGroup
	all.Add(len(pods))
	others.Add(len(pods) - 1)
	for _, pod := range pods {
		go func() {
			defer all.Done()
			var claims map[string]string
			if handled := tt.ec.generateClaim(tt, pod, pod.Spec.ResourceClaims[0], &claims); !handled {
				t.Error("must be handled")
			}
			if len(claims) == 0 {
				others.Done()
			}
		}()
	}
	others.Wait()
	close(proceed)
	all.Wait()
	assert.EqualValues(tt, 1, creates.Load())
	assert.Len(tt, tt.queued(), len(pods)-1, "processed again")
}

// TestGeneratedExists covers a claim that is there already.
func TestGeneratedExists(t *testing.T) {
	pods, objects := groupPods(3, "batch/v1", "Job", job)
	objects = append(objects, job, groupTemplate("batch", "jobs"))
	foreign := generatedJobClaim()
	foreign.Annotations = nil
	otherMark := generatedJobClaim()
	otherMark.Annotations[resourceclaim.GeneratedForAnnotation] = strings.Replace(jobConsumer.String(), string(workloadUID), "other", 1)

	for name, tc := range map[string]struct {
		claim  *resourceapi.ResourceClaim
		cached bool
		ours   bool
	}{
		// The controller was restarted before it could write the status of the pod.
		"ours":               {claim: generatedJobClaim(), ours: true},
		"ours-cached":        {claim: generatedJobClaim(), cached: true, ours: true},
		"foreign":            {claim: foreign},
		"foreign-cached":     {claim: foreign, cached: true},
		"other-mark":         {claim: otherMark},
		"ours-being-deleted": {claim: deleted(generatedJobClaim()), cached: true, ours: true},
	} {
		t.Run(name, func(t *testing.T) {
			tt := newWorkloadTest(t, workloadsEnabled, objects...)
			tt.create(tc.claim)
			if tc.cached {
				tt.ExpectNoError(claimInformer(tt.factory).GetIndexer().Add(tc.claim))
			}
			for _, pod := range pods {
				tt.mustSyncPod(pod)
			}
			requests := tt.claimRequests()
			assert.Len(tt, tt.allClaims(), 1)
			if tc.ours {
				for _, pod := range pods {
					assert.Equal(tt, tc.claim.Name, tt.claimOf(pod))
				}
				assert.Empty(tt, tt.events())
				return
			}
			assert.Equal(tt, []string{"create resourceclaims", "get resourceclaims"}, requests)
			messages := tt.messages()
			require.Len(tt, messages, 1)
			assert.Contains(tt, messages[0], "was not generated by this controller, delete it")
			assert.Contains(tt, messages[0], tc.claim.Name)
			for _, pod := range pods {
				assert.Empty(tt, tt.claimOf(pod))
			}

			// Changing it is of no use, removing it is.
			tt.queued()
			if resourceclaim.GeneratedForOf(tc.claim) == nil {
				tt.ec.enqueueResourceClaim(tt.Logger(), tc.claim, tc.claim)
				assert.NotContains(tt, tt.queued(), podKey(pods[1]))
			}
			tt.ExpectNoError(tt.client.Tracker().Delete(claimResource, testNamespace, tc.claim.Name))
			tt.ExpectNoError(claimInformer(tt.factory).GetIndexer().Delete(tc.claim))
			tt.ec.enqueueResourceClaim(tt.Logger(), tc.claim, nil)
			for _, key := range tt.queued() {
				tt.ExpectNoError(tt.ec.syncHandler(tt, key))
			}
			for _, key := range tt.queued() {
				tt.ExpectNoError(tt.ec.syncHandler(tt, key))
			}
			for _, pod := range pods {
				assert.Equal(tt, tc.claim.Name, tt.claimOf(pod))
			}
		})
	}
}

// TestGenerateStalledInformer ensures that a claim which the informer never shows is asked for again.
func TestGenerateStalledInformer(t *testing.T) {
	pods, objects := groupPods(3, "batch/v1", "Job", job)
	tt := newWorkloadTest(t, workloadsEnabled, append(objects, job, groupTemplate("batch", "jobs"))...)
	tt.mustSyncPod(pods[0])
	tt.claimRequests()
	tt.clock.Step(generatedInterval - time.Second)
	tt.mustSyncPod(pods[1])
	assert.Equal(tt, []string{"patch pods"}, tt.claimRequests())
	tt.clock.Step(time.Second)
	tt.mustSyncPod(pods[2])
	assert.Equal(tt, []string{"create resourceclaims", "get resourceclaims", "patch pods"}, tt.claimRequests())
	// Removed before it was seen. The pods are told by nobody else.
	tt.ExpectNoError(tt.client.Tracker().Delete(claimResource, testNamespace, generatedName(jobConsumer)))
	for _, pod := range pods {
		pod.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: podResourceClaimName, ResourceClaimName: ptr.To(generatedName(jobConsumer))}}
		tt.ExpectNoError(tt.ec.podIndexer.Update(pod))
	}
	claimKey := claimKeyPrefix + testNamespace + "/" + generatedName(jobConsumer)
	assert.Equal(tt, generatedInterval, tt.queue.delays[claimKey])
	tt.clock.Step(generatedInterval)
	tt.queued()
	tt.ExpectNoError(tt.ec.syncHandler(tt, claimKey))
	keys := tt.queued()
	assert.Len(tt, keys, len(pods))
	for _, key := range keys {
		tt.ExpectNoError(tt.ec.syncHandler(tt, key))
	}
	// Since 1.37, upstream looks for the claim, too.
	assert.Equal(tt, []string{"create resourceclaims"}, slices.DeleteFunc(tt.claimRequests(), func(request string) bool { return strings.HasPrefix(request, "get ") }))
	assert.Len(tt, tt.allClaims(), 1)

	// Nothing is remembered once it is there.
	claim := tt.allClaims()[0]
	tt.ExpectNoError(claimInformer(tt.factory).GetIndexer().Add(&claim))
	tt.ExpectNoError(tt.ec.syncHandler(tt, claimKey))
	assert.Empty(tt, tt.ec.workloads.generated)
}

// TestTemplateChanged covers pods of the same Job which are created before and after their template
// was replaced or removed.
func TestTemplateChanged(t *testing.T) {
	pods, objects := groupPods(2, "batch/v1", "Job", job)
	withClaim := pods[0].DeepCopy()
	withClaim.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: podResourceClaimName, ResourceClaimName: ptr.To(generatedName(jobConsumer))}}
	objects[0] = withClaim
	objects = append(objects, job, generatedJobClaim())
	plain := groupTemplate("batch", "jobs")
	plain.Spec.Spec.ReservedFor = nil
	other := groupTemplate("batch", "jobs")
	other.Spec.Labels = map[string]string{"other": "label"}

	t.Run("removed", func(t *testing.T) {
		tt := newWorkloadTest(t, workloadsEnabled, objects...)
		tt.mustSyncPod(withClaim)
		tt.mustSyncPod(pods[1])
		assert.Equal(tt, generatedName(jobConsumer), tt.claimOf(pods[1]))
	})
	t.Run("removed-before", func(t *testing.T) {
		tt := newWorkloadTest(t, workloadsEnabled, pods[1], job)
		assert.ErrorContains(tt, tt.ec.syncHandler(tt, podKey(pods[1])), `resource claim template "imex"`)
		assert.Empty(tt, tt.allClaims())
	})
	t.Run("other-content", func(t *testing.T) {
		tt := newWorkloadTest(t, workloadsEnabled, append(objects, other)...)
		tt.mustSyncPod(withClaim)
		tt.mustSyncPod(pods[1])
		assert.Equal(tt, generatedName(jobConsumer), tt.claimOf(pods[1]))
		assert.Len(tt, tt.allClaims(), 1)
	})
	t.Run("for-each-pod", func(t *testing.T) {
		plain.Spec.Annotations = nil
		tt := newWorkloadTest(t, workloadsEnabled, append(objects, plain)...)
		tt.mustSyncPod(withClaim)
		tt.mustSyncPod(pods[1])
		assert.Equal(tt, generatedName(jobConsumer), tt.claimOf(withClaim), "kept")
		assert.NotEqual(tt, generatedName(jobConsumer), tt.claimOf(pods[1]))
		assert.Len(tt, tt.allClaims(), 2)
	})
}

// TestGeneratedIncomplete covers an API server with the gate disabled: its claim would be one for few pods.
func TestGeneratedIncomplete(t *testing.T) {
	pods, objects := groupPods(2, "batch/v1", "Job", job)
	tt := newWorkloadTest(t, workloadsEnabled, append(objects, job, groupTemplate("batch", "jobs"))...)
	tt.client.PrependReactor("create", "resourceclaims", func(action k8stesting.Action) (bool, runtime.Object, error) {
		action.(k8stesting.CreateAction).GetObject().(*resourceapi.ResourceClaim).Spec.ReservedFor = nil
		return false, nil, nil
	})
	for _, pod := range pods {
		tt.mustSyncPod(pod)
		assert.Empty(tt, tt.claimOf(pod))
	}
	assert.Empty(tt, tt.allClaims())
	messages := tt.messages()
	require.Len(tt, messages, 1)
	assert.Contains(tt, messages[0], "DRAReservedForWorkloads feature gate is disabled in kube-apiserver")
}

// TestGeneratedIncompleteEvents ensures that such a claim, which a finalizer keeps from being gone at once, is
// not created again because of its own events, and that no pod is told to use it.
func TestGeneratedIncompleteEvents(t *testing.T) {
	pods, objects := groupPods(3, "batch/v1", "Job", job)
	tt := newWorkloadTest(t, workloadsEnabled, append(objects, job, groupTemplate("batch", "jobs"))...)
	creates := 0
	tt.client.PrependReactor("create", "resourceclaims", func(action k8stesting.Action) (bool, runtime.Object, error) {
		creates++
		action.(k8stesting.CreateAction).GetObject().(*resourceapi.ResourceClaim).Spec.ReservedFor = nil
		return false, nil, nil
	})
	tt.client.PrependReactor("delete", "resourceclaims", func(k8stesting.Action) (bool, runtime.Object, error) { return true, nil, nil })
	for _, pod := range pods {
		tt.mustSyncPod(pod)
	}
	run := func() {
		for range 3 {
			for _, key := range tt.queued() {
				tt.ExpectNoError(tt.ec.syncHandler(tt, key))
			}
		}
	}
	created := &tt.allClaims()[0]
	marked := deleted(created)
	indexer := claimInformer(tt.factory).GetIndexer()
	for _, event := range [][2]*resourceapi.ResourceClaim{{nil, created}, {created, marked}, {marked, nil}} {
		if event[1] == nil {
			tt.ExpectNoError(indexer.Delete(event[0]))
			tt.ExpectNoError(tt.client.Tracker().Delete(claimResource, testNamespace, created.Name))
		} else {
			tt.ExpectNoError(indexer.Add(event[1]))
		}
		tt.ec.enqueueResourceClaim(tt.Logger(), event[0], event[1])
		run()
		assert.Equal(tt, 1, creates)
		for _, pod := range pods {
			assert.Empty(tt, tt.claimOf(pod))
		}
	}

	tt.clock.Step(tt.ec.workloads.retryInterval)
	tt.ExpectNoError(tt.ec.syncHandler(tt, claimKeyPrefix+testNamespace+"/"+created.Name))
	run()
	assert.Equal(tt, 2, creates, "tried again")
}

// TestReplaceIncomplete covers such a claim that was created earlier, but not deleted again.
func TestReplaceIncomplete(t *testing.T) {
	incomplete := generatedJobClaim()
	incomplete.Spec.ReservedFor = nil
	for name, tc := range map[string]struct {
		claim          *resourceapi.ResourceClaim
		cached, expect bool
	}{
		"not-cached": {claim: incomplete},
		"cached":     {claim: incomplete, cached: true},
		// Pods may use it.
		"allocated":        {claim: allocateClaim(incomplete), expect: true},
		"allocated-cached": {claim: allocateClaim(incomplete), cached: true, expect: true},
	} {
		t.Run(name, func(t *testing.T) {
			pods, objects := groupPods(2, "batch/v1", "Job", job)
			tt := newWorkloadTest(t, workloadsEnabled, append(objects, job, groupTemplate("batch", "jobs"))...)
			tt.create(tc.claim)
			if tc.cached {
				tt.ExpectNoError(claimInformer(tt.factory).GetIndexer().Add(tc.claim))
			}
			tt.mustSyncPod(pods[0])
			if tc.expect {
				assert.Equal(tt, tc.claim.Name, tt.claimOf(pods[0]))
				assert.Len(tt, tt.allClaims(), 1)
				return
			}
			assert.Empty(tt, tt.claimOf(pods[0]))
			assert.Empty(tt, tt.allClaims())
			tt.ExpectNoError(claimInformer(tt.factory).GetIndexer().Delete(tc.claim))
			tt.clock.Step(tt.ec.workloads.retryInterval)
			tt.mustSyncPod(pods[1])
			assert.Equal(tt, tc.claim.Name, tt.claimOf(pods[1]))
			assert.NotNil(tt, tt.allClaims()[0].Spec.ReservedFor)
		})
	}
}

// TestGenerateRetriedByOther ensures that a pod which does not need the claim anymore does not keep others from
// trying again.
func TestGenerateRetriedByOther(t *testing.T) {
	pods, objects := groupPods(2, "batch/v1", "Job", job)
	tt := newWorkloadTest(t, workloadsEnabled, append(objects, job, groupTemplate("batch", "jobs"))...)
	tt.client.PrependReactor("create", "resourceclaims", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("fake quota")
	})
	for _, pod := range pods {
		tt.mustSyncPod(pod)
	}
	tt.queued()
	// It is on a node that is lost.
	terminating := deleted(pods[0])
	terminating.Spec.NodeName = nodeName
	tt.ExpectNoError(tt.ec.podIndexer.Update(terminating))
	claimKey := claimKeyPrefix + testNamespace + "/" + generatedName(jobConsumer)
	tt.clock.Step(maxBackOff)
	delete(tt.queue.delays, claimKey)
	tt.ExpectNoError(tt.ec.syncHandler(tt, claimKey))
	assert.Equal(tt, []string{podKey(pods[1])}, tt.queued())
	assert.Equal(tt, tt.ec.workloads.retryInterval, tt.queue.delays[claimKey], "the next one, if that one does nothing")
}

// TestEndGenerated covers when a generated claim gets removed.
func TestEndGenerated(t *testing.T) {
	leader := groupPod("leader", "", "", nil)
	doneLeader := leader.DeepCopy()
	doneLeader.Status.Phase = v1.PodSucceeded
	newLeader := leader.DeepCopy()
	newLeader.UID = "other"
	leaderConsumer := resourceclaim.GeneratedFor{GroupResource: podsResource, Name: "leader", UID: leader.UID, Template: "imex"}
	customConsumer := resourceclaim.GeneratedFor{GroupResource: schema.GroupResource{Group: "example.com", Resource: "trainings"}, Name: workloadName, UID: workloadUID, Template: "imex"}

	for name, tc := range map[string]struct {
		consumer resourceclaim.GeneratedFor
		objects  []runtime.Object
		change   func(tt *workloadTest, claim *resourceapi.ResourceClaim)
		removed  bool
	}{
		"job":          {consumer: jobConsumer, objects: []runtime.Object{job}},
		"suspended":    {consumer: jobConsumer, objects: []runtime.Object{suspendedJob}},
		"job-finished": {consumer: jobConsumer, objects: []runtime.Object{completeJob}, removed: true},
		"job-failed":   {consumer: jobConsumer, objects: []runtime.Object{failedJob}, removed: true},
		"job-deleted":  {consumer: jobConsumer, objects: []runtime.Object{deleted(job)}, removed: true},
		"job-gone":     {consumer: jobConsumer, removed: true},
		"job-replaced": {consumer: jobConsumer, objects: []runtime.Object{otherJob}, removed: true},
		"not-seen-yet": {consumer: jobConsumer, change: func(tt *workloadTest, claim *resourceapi.ResourceClaim) { tt.create(job) }},
		// Its devices remain allocated, see the finalizer.
		"in-use": {consumer: jobConsumer, objects: []runtime.Object{completeJob}, change: func(tt *workloadTest, claim *resourceapi.ResourceClaim) {
			*claim = *reservedBy(structuredParameters(allocateClaim(claim)), jobRef)
		}, removed: true},
		"unmarked": {consumer: jobConsumer, change: func(tt *workloadTest, claim *resourceapi.ResourceClaim) { claim.Annotations = nil }},
		"invalid": {consumer: jobConsumer, change: func(tt *workloadTest, claim *resourceapi.ResourceClaim) {
			claim.Annotations[resourceclaim.GeneratedForAnnotation] = "x"
		}},
		"leader":            {consumer: leaderConsumer, objects: []runtime.Object{leader}},
		"leader-done":       {consumer: leaderConsumer, objects: []runtime.Object{doneLeader}, removed: true},
		"leader-deleted":    {consumer: leaderConsumer, objects: []runtime.Object{deleted(leader)}, removed: true},
		"leader-gone":       {consumer: leaderConsumer, removed: true},
		"leader-replaced":   {consumer: leaderConsumer, objects: []runtime.Object{newLeader}, removed: true},
		"leader-not-seen":   {consumer: leaderConsumer, change: func(tt *workloadTest, claim *resourceapi.ResourceClaim) { tt.create(leader) }},
		"custom":            {consumer: customConsumer, objects: []runtime.Object{custom}},
		"custom-gone":       {consumer: customConsumer, removed: true},
		"custom-may-resume": {consumer: customConsumer, objects: []runtime.Object{finishedCustom("Complete", "True")}},
		"custom-reserved": {consumer: customConsumer, change: func(tt *workloadTest, claim *resourceapi.ResourceClaim) {
			*claim = *reservedBy(structuredParameters(allocateClaim(claim)), customRef)
		}},
		"forbidden": {consumer: customConsumer, change: func(tt *workloadTest, claim *resourceapi.ResourceClaim) {
			tt.dynamic.PrependReactor("get", "*", func(k8stesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(schema.GroupResource{Group: "example.com", Resource: "trainings"}, workloadName, errors.New("no such rule"))
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			tt := newWorkloadTest(t, workloadsEnabled, tc.objects...)
			claim := generatedJobClaim()
			claim.Annotations[resourceclaim.GeneratedForAnnotation] = tc.consumer.String()
			if tc.change != nil {
				tc.change(tt, claim)
			}
			tt.client.PrependReactor("delete", "resourceclaims", func(k8stesting.Action) (bool, runtime.Object, error) {
				// As with a finalizer.
				return true, nil, nil
			})
			tt.create(claim)
			tt.ExpectNoError(claimInformer(tt.factory).GetIndexer().Add(claim))
			tt.ExpectNoError(tt.ec.syncHandler(tt, claimKeyPrefix+testNamespace+"/"+claim.Name))
			var deletes []k8stesting.DeleteAction
			for _, action := range tt.client.Actions() {
				if action.Matches("delete", "resourceclaims") {
					deletes = append(deletes, action.(k8stesting.DeleteAction))
				}
			}
			if !tc.removed {
				assert.Empty(tt, deletes)
				return
			}
			require.Len(tt, deletes, 1)
			assert.Equal(tt, claim.UID, ptr.Deref(deletes[0].GetDeleteOptions().Preconditions.UID, ""))
		})
	}
}

// TestGeneratedWorkloadEvent ensures that a claim which was never reserved is processed when its consumer
// is gone.
func TestGeneratedWorkloadEvent(t *testing.T) {
	tt := newWorkloadTest(t, workloadsEnabled, job)
	claim := generatedJobClaim()
	indexer := claimInformer(tt.factory).GetIndexer()
	tt.ExpectNoError(indexer.Add(claim))
	tt.ec.enqueueClaimsOfWorkload(tt.Logger(), indexer, batchv1.Resource("jobs"), job)
	assert.Equal(tt, []string{claimKeyPrefix + testNamespace + "/" + claim.Name}, tt.queued())
}

// TestGeneratedIdle covers the time after which a generated claim that no pod uses is released.
func TestGeneratedIdle(t *testing.T) {
	for name, tc := range map[string]struct {
		change  func(claim *resourceapi.ResourceClaim)
		classes []runtime.Object
		expect  time.Duration
	}{
		"of-class": {change: func(claim *resourceapi.ResourceClaim) {
			claim.Spec.Devices = withClasses(t, claim, "gpu").Spec.Devices
		}, classes: []runtime.Object{idleClass("gpu", "2h")}, expect: 2 * time.Hour},
		"default": {expect: resourceclaim.DefaultGeneratedReleaseWhenIdle},
		"chosen": {change: func(claim *resourceapi.ResourceClaim) {
			claim.Annotations[resourceclaim.ReleaseWhenIdleAnnotation] = "1h"
		}, expect: time.Hour},
		"unmarked": {change: func(claim *resourceapi.ResourceClaim) { claim.Annotations = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			tt := newWorkloadTest(t, workloadsEnabled, tc.classes...)
			claim := generatedJobClaim()
			if tc.change != nil {
				tc.change(claim)
			}
			assert.Equal(tt, tc.expect, tt.ec.checkAnnotation(claim).wanted)
		})
	}
}
