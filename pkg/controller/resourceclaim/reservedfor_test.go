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
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller"
	resourceclaimmetrics "k8s.io/kubernetes/pkg/controller/resourceclaim/metrics"
	"k8s.io/kubernetes/test/utils/ktesting"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
)

const (
	workloadName = "training"
	workloadUID  = types.UID("training-1")
	sharedClaim  = "shared"
)

var (
	workloadMeta = metav1.ObjectMeta{Name: workloadName, Namespace: testNamespace, UID: workloadUID}

	jobRef         = workloadReference("batch", "jobs")
	otherJobRef    = withUID(jobRef, "training-2")
	cronJobRef     = workloadReference("batch", "cronjobs")
	deploymentRef  = workloadReference("apps", "deployments")
	statefulSetRef = workloadReference("apps", "statefulsets")
	replicaSetRef  = workloadReference("apps", "replicasets")
	daemonSetRef   = workloadReference("apps", "daemonsets")
	podGroupRef    = workloadReference("scheduling.k8s.io", "podgroups")
	customRef      = workloadReference("example.com", "trainings")
	clusterRef     = workloadReference("example.com", "clustertrainings")
	unknownRef     = workloadReference("example.com", "unknowns")

	job         = &batchv1.Job{ObjectMeta: workloadMeta}
	cronJob     = &batchv1.CronJob{ObjectMeta: workloadMeta}
	deployment  = &appsv1.Deployment{ObjectMeta: workloadMeta, Spec: appsv1.DeploymentSpec{Replicas: ptr.To(int32(0))}}
	statefulSet = &appsv1.StatefulSet{ObjectMeta: workloadMeta, Spec: appsv1.StatefulSetSpec{Replicas: ptr.To(int32(0))}}
	replicaSet  = &appsv1.ReplicaSet{ObjectMeta: workloadMeta}
	daemonSet   = &appsv1.DaemonSet{ObjectMeta: workloadMeta}
	custom      = customWorkload("Training", workloadName, workloadUID)

	suspendedJob = func() *batchv1.Job {
		job := job.DeepCopy()
		job.Spec.Suspend = ptr.To(true)
		job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: v1.ConditionTrue}}
		return job
	}()
	completeJob = finishedJob(batchv1.JobComplete)
	failedJob   = finishedJob(batchv1.JobFailed)
	otherJob    = func() *batchv1.Job {
		job := job.DeepCopy()
		job.UID = otherJobRef.UID
		return job
	}()

	runningPod     = userPod("running", nodeName, v1.PodRunning)
	otherPod       = userPod("other", nodeName, v1.PodRunning)
	boundPod       = userPod("bound", nodeName, v1.PodPending)
	pendingPod     = userPod("pending", "", v1.PodPending)
	succeededPod   = userPod("succeeded", nodeName, v1.PodSucceeded)
	failedPod      = userPod("failed", nodeName, v1.PodFailed)
	terminatingPod = deleted(userPod("terminating", nodeName, v1.PodRunning))
	unrelatedPod   = func() *v1.Pod {
		pod := userPod("unrelated", nodeName, v1.PodRunning)
		pod.Spec.ResourceClaims[0].ResourceClaimName = ptr.To("unrelated")
		return pod
	}()
)

func workloadReference(group, resource string) resourceapi.ResourceClaimConsumerReference {
	return resourceapi.ResourceClaimConsumerReference{APIGroup: group, Resource: resource, Name: workloadName, UID: workloadUID}
}

func withUID(ref resourceapi.ResourceClaimConsumerReference, uid types.UID) resourceapi.ResourceClaimConsumerReference {
	ref.UID = uid
	return ref
}

func podReference(pod *v1.Pod) resourceapi.ResourceClaimConsumerReference {
	return resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID}
}

// customWorkload returns an object of a kind in the group example.com.
func customWorkload(kind, name string, uid types.UID, conditions ...interface{}) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetAPIVersion("example.com/v1")
	obj.SetKind(kind)
	obj.SetNamespace(testNamespace)
	obj.SetName(name)
	obj.SetUID(uid)
	if len(conditions) > 0 {
		obj.Object["status"] = map[string]interface{}{"conditions": conditions}
	}
	return obj
}

// finishedCustom returns a custom resource with one condition.
func finishedCustom(conditionType, status string) *unstructured.Unstructured {
	return customWorkload("Training", workloadName, workloadUID, "not a condition",
		map[string]interface{}{"type": "Created", "status": "True"},
		map[string]interface{}{"type": conditionType, "status": status})
}

func finishedJob(condition batchv1.JobConditionType) *batchv1.Job {
	job := job.DeepCopy()
	job.Status.Conditions = []batchv1.JobCondition{{Type: condition, Status: v1.ConditionTrue}}
	return job
}

// deleted returns a copy with deletion timestamp.
func deleted[T runtime.Object](obj T) T {
	obj = obj.DeepCopyObject().(T)
	accessor, err := meta.Accessor(obj)
	if err != nil {
		panic(err)
	}
	accessor.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
	accessor.SetFinalizers(append(accessor.GetFinalizers(), metav1.FinalizerDeleteDependents))
	return obj
}

func userPod(name, nodeName string, phase v1.PodPhase) *v1.Pod {
	pod := makePod(name, testNamespace, types.UID(name+"-uid"), v1.PodResourceClaim{Name: podResourceClaimName, ResourceClaimName: ptr.To(sharedClaim)})
	pod.Spec.NodeName = nodeName
	pod.Status.Phase = phase
	return pod
}

func controlledBy(pod *v1.Pod, apiVersion, kind string, owner metav1.Object) *v1.Pod {
	pod = pod.DeepCopy()
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: owner.GetName(), UID: owner.GetUID(), Controller: ptr.To(true)}}
	return pod
}

// unallocatedClaim is meant for the consumer of the given references. The UID
// is not known in advance.
func unallocatedClaim(ref resourceapi.ResourceClaimConsumerReference) *resourceapi.ResourceClaim {
	claim := newUnownedClaim(sharedClaim)
	claim.UID = "shared-uid"
	claim.Spec.ReservedFor = ptr.To(resourceapi.ResourceClaimWorkloadReference(withUID(ref, "")))
	return claim
}

// anyPodClaim is allocated for any pod because it is meant for the given
// consumer. It's not reserved.
func anyPodClaim(ref resourceapi.ResourceClaimConsumerReference) *resourceapi.ResourceClaim {
	claim := perPodClaim(ref)
	claim.Status.Allocation.ReservedForAnyPod = ptr.To(true)
	return claim
}

// perPodClaim is allocated as if the scheduler did not support the feature.
func perPodClaim(ref resourceapi.ResourceClaimConsumerReference) *resourceapi.ResourceClaim {
	return structuredParameters(allocateClaim(unallocatedClaim(ref)))
}

// workloadClaim is reserved for the consumer.
func workloadClaim(ref resourceapi.ResourceClaimConsumerReference) *resourceapi.ResourceClaim {
	return reservedBy(anyPodClaim(ref), ref)
}

func reservedBy(claim *resourceapi.ResourceClaim, refs ...resourceapi.ResourceClaimConsumerReference) *resourceapi.ResourceClaim {
	claim = claim.DeepCopy()
	claim.Status.ReservedFor = append(claim.Status.ReservedFor, refs...)
	return claim
}

// recordingQueue remembers for how long items were delayed instead of adding
// them later.
type recordingQueue struct {
	workqueue.TypedRateLimitingInterface[string]
	delays map[string]time.Duration
}

func (q *recordingQueue) AddAfter(item string, duration time.Duration) {
	if previous, ok := q.delays[item]; !ok || duration < previous {
		q.delays[item] = duration
	}
}

// workloadTest runs a controller without workers and with informers that can be
// stopped.
type workloadTest struct {
	ktesting.TContext
	client   *fake.Clientset
	dynamic  *dynamicfake.FakeDynamicClient
	ec       *Controller
	clock    *testingclock.FakeClock
	queue    *recordingQueue
	recorder *record.FakeRecorder
	factory  informers.SharedInformerFactory
}

var workloadsEnabled = Features{ReservedForWorkloads: true}

// watchingController returns a controller which also watches workloads if that
// is one of the features.
func watchingController(logger klog.Logger, features Features, client *fake.Clientset, factory informers.SharedInformerFactory, mapper meta.RESTMapper, dynamicClient dynamic.Interface) (*Controller, error) {
	setupMetrics()
	ec, err := newFeaturesTestController(logger, features, client, factory)
	if err != nil {
		return nil, err
	}
	return ec, ec.WatchWorkloads(logger, factory, claimInformer(factory), mapper, dynamicClient)
}

// claimInformer works with all versions of the API.
func claimInformer(factory informers.SharedInformerFactory) cache.SharedIndexInformer {
	informer, err := factory.ForResource(claimResource)
	if err != nil {
		panic(err)
	}
	return informer.Informer()
}

// trackedClaim returns the shared claim in the API server.
func trackedClaim(client *fake.Clientset) (*resourceapi.ResourceClaim, error) {
	obj, err := client.Tracker().Get(claimResource, testNamespace, sharedClaim)
	if err != nil {
		return nil, err
	}
	return obj.(*resourceapi.ResourceClaim), nil
}

func newWorkloadTest(t *testing.T, features Features, objects ...runtime.Object) *workloadTest {
	tCtx := ktesting.Init(t)
	resourceclaimmetrics.WorkloadLookups.Reset()
	resourceclaimmetrics.WaitingWorkloadReservations.Reset()
	resourceclaimmetrics.WorkloadReleases.Reset()

	var kubeObjects, dynamicObjects []runtime.Object
	for _, obj := range objects {
		if _, ok := obj.(*unstructured.Unstructured); ok {
			dynamicObjects = append(dynamicObjects, obj)
		} else {
			kubeObjects = append(kubeObjects, obj)
		}
	}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{batchv1.SchemeGroupVersion, {Group: "example.com", Version: "v1"}})
	mapper.Add(batchv1.SchemeGroupVersion.WithKind("Job"), meta.RESTScopeNamespace)
	mapper.Add(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Training"}, meta.RESTScopeNamespace)
	mapper.Add(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Group"}, meta.RESTScopeNamespace)
	mapper.Add(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "ClusterTraining"}, meta.RESTScopeRoot)

	tt := &workloadTest{
		client:   createTestClient(kubeObjects...),
		dynamic:  dynamicfake.NewSimpleDynamicClient(runtime.NewScheme(), dynamicObjects...),
		clock:    testingclock.NewFakeClock(time.Now()),
		recorder: record.NewFakeRecorder(1000),
	}

	factory := informers.NewSharedInformerFactory(tt.client, controller.NoResyncPeriodFunc())
	ec, err := watchingController(tCtx.Logger(), features, tt.client, factory, mapper, tt.dynamic)
	tCtx.ExpectNoError(err, "create controller")
	ec.workloads.setClock(tt.clock)
	ec.workloads.users.spawn = func(run func()) { run() }
	tt.queue = &recordingQueue{TypedRateLimitingInterface: ec.queue, delays: make(map[string]time.Duration)}
	ec.queue = tt.queue
	ec.recorder = tt.recorder
	tt.ec = ec

	informerCtx, cancel := context.WithCancel(tCtx)
	factory.Start(informerCtx.Done())
	factory.WaitForCacheSync(informerCtx.Done())
	if !ec.workloadsSynced() {
		t.Fatal("workload informers should have synced")
	}
	// From now on, tests decide what is in the caches.
	cancel()
	factory.Shutdown()
	tCtx.Cleanup(ec.queue.ShutDown)
	tt.TContext = tCtx
	tt.factory = factory
	tt.client.ClearActions()
	tt.dynamic.ClearActions()
	return tt
}

// create adds objects to the API server, but not to the caches.
func (tt *workloadTest) create(objs ...runtime.Object) {
	tt.Helper()
	for _, obj := range objs {
		if _, ok := obj.(*unstructured.Unstructured); ok {
			tt.ExpectNoError(tt.dynamic.Tracker().Add(obj), "create")
		} else {
			tt.ExpectNoError(tt.client.Tracker().Add(obj), "create")
		}
	}
}

// remove removes a workload from the API server, but not from the caches.
func (tt *workloadTest) remove(ref resourceapi.ResourceClaimConsumerReference) {
	tt.Helper()
	tracker := tt.client.Tracker()
	if ref.APIGroup == "example.com" {
		tracker = tt.dynamic.Tracker()
	}
	gvr := schema.GroupVersionResource{Group: ref.APIGroup, Version: "v1", Resource: ref.Resource}
	tt.ExpectNoError(tracker.Delete(gvr, testNamespace, ref.Name), "delete")
}

// syncCaches brings the caches for claims and pods up-to-date and
// reports the change of the claim.
func (tt *workloadTest) syncCaches() *resourceapi.ResourceClaim {
	tt.Helper()
	claim := tt.getClaim()
	oldClaim, err := tt.ec.claimLister.ResourceClaims(testNamespace).Get(sharedClaim)
	tt.ExpectNoError(err, "get old claim")
	tt.ExpectNoError(claimInformer(tt.factory).GetIndexer().Update(claim), "update claim cache")
	tt.ec.enqueueResourceClaim(tt.Logger(), oldClaim, claim)

	obj, err := tt.client.Tracker().List(v1.SchemeGroupVersion.WithResource("pods"), v1.SchemeGroupVersion.WithKind("Pod"), testNamespace)
	tt.ExpectNoError(err, "list pods")
	pods := obj.(*v1.PodList)
	var items []interface{}
	for i := range pods.Items {
		items = append(items, &pods.Items[i])
	}
	tt.ExpectNoError(tt.ec.podIndexer.Replace(items, ""), "update pod cache")
	return claim
}

// setClaim changes the claim in the API server and the cache.
func (tt *workloadTest) setClaim(claim *resourceapi.ResourceClaim) {
	tt.Helper()
	tt.ExpectNoError(tt.client.Tracker().Update(claimResource, claim, claim.Namespace), "update claim")
	tt.syncCaches()
}

// getClaim returns the shared claim in the API server.
func (tt *workloadTest) getClaim() *resourceapi.ResourceClaim {
	tt.Helper()
	claim, err := trackedClaim(tt.client)
	tt.ExpectNoError(err, "get claim")
	return claim
}

// sync processes the claim and returns the delay before it will be
// processed again, zero if not scheduled.
func (tt *workloadTest) sync() (time.Duration, error) {
	tt.Helper()
	key := claimKeyPrefix + testNamespace + "/" + sharedClaim
	delete(tt.queue.delays, key)
	err := tt.ec.syncHandler(tt, key)
	return tt.queue.delays[key], err
}

// mustSync does the same without accepting an error.
func (tt *workloadTest) mustSync() time.Duration {
	tt.Helper()
	delay, err := tt.sync()
	tt.ExpectNoError(err, "sync claim")
	return delay
}

// release syncs twice, with a pause.
func (tt *workloadTest) release() {
	tt.Helper()
	tt.mustSync()
	tt.syncCaches()
	delay := tt.mustSync()
	if delay != tt.ec.workloads.endPause && delay != tt.ec.workloads.releasePause {
		tt.Fatalf("expected a pause of %s or %s, got %s", tt.ec.workloads.endPause, tt.ec.workloads.releasePause, delay)
	}
	tt.clock.Step(delay)
}

// requests returns those which were sent to the API server since the last time,
// without those for getting or updating the claim.
func (tt *workloadTest) requests() []string {
	var requests []string
	for _, action := range append(tt.client.Actions(), tt.dynamic.Actions()...) {
		if action.GetResource().Resource == "resourceclaims" {
			continue
		}
		requests = append(requests, action.GetVerb()+" "+action.GetResource().Resource)
	}
	tt.client.ClearActions()
	tt.dynamic.ClearActions()
	return requests
}

// events returns the type and reason of those since the last time.
func (tt *workloadTest) events() []string {
	var events []string
	for {
		select {
		case event := <-tt.recorder.Events:
			parts := strings.SplitN(event, " ", 3)
			events = append(events, parts[0]+" "+parts[1])
		default:
			return events
		}
	}
}

func gauge(tt *workloadTest, reason string) int {
	tt.Helper()
	value, err := testutil.GetGaugeMetricValue(resourceclaimmetrics.WaitingWorkloadReservations.WithLabelValues(reason))
	tt.ExpectNoError(err, "get gauge")
	return int(value)
}

func lookups(tt *workloadTest, result string) int {
	tt.Helper()
	value, err := testutil.GetCounterMetricValue(resourceclaimmetrics.WorkloadLookups.WithLabelValues(result))
	tt.ExpectNoError(err, "get counter")
	return int(value)
}

var (
	forbidden   = apierrors.NewForbidden(schema.GroupResource{Group: "example.com", Resource: "trainings"}, workloadName, errors.New("not allowed"))
	notServed   = apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{Group: "example.com", Resource: "trainings"}, workloadName, "404 page not found", 0, true)
	unavailable = apierrors.NewServiceUnavailable("come back later")
)

// keepTest describes one claim, and which of its reservations are kept.
type keepTest struct {
	// features has ReservedForWorkloads set by default.
	features *Features
	claim    *resourceapi.ResourceClaim
	// objects are in the caches and the API server.
	objects []runtime.Object
	// removed and created changes the API server after that.
	removed []resourceapi.ResourceClaimConsumerReference
	created []runtime.Object
	// getError and listError are returned when getting a workload resp. listing pods.
	getError, listError error

	// expect is what remains reserved.
	expect []resourceapi.ResourceClaimConsumerReference
	// expectDeallocated is true if one step is enough.
	expectDeallocated bool
	expectRequests    []string
	expectDelay       time.Duration
	expectEvents      []string
	expectError       string
}

func (test keepTest) run(t *testing.T) {
	features := workloadsEnabled
	if test.features != nil {
		features = *test.features
	}
	tt := newWorkloadTest(t, features, append(test.objects, test.claim)...)
	for _, ref := range test.removed {
		tt.remove(ref)
	}
	tt.create(test.created...)
	fail := func(err error) k8stesting.ReactionFunc {
		return func(action k8stesting.Action) (bool, runtime.Object, error) {
			if err == nil || action.GetResource().Resource == "resourceclaims" {
				return false, nil, nil
			}
			return true, nil, err
		}
	}
	tt.client.PrependReactor("get", "*", fail(test.getError))
	tt.dynamic.PrependReactor("get", "*", fail(test.getError))
	tt.client.PrependReactor("list", "pods", fail(test.listError))

	delay, err := tt.sync()
	requests := tt.requests()

	if test.expectError == "" {
		assert.NoError(t, err)
	} else {
		assert.ErrorContains(t, err, test.expectError)
	}
	claim := tt.getClaim()
	if test.expect == nil {
		test.expect = []resourceapi.ResourceClaimConsumerReference{}
	}
	assert.Equal(t, test.expect, claim.Status.ReservedFor, "status.reservedFor")
	assert.Equal(t, test.expectDeallocated, claim.Status.Allocation == nil, "deallocated")
	assert.Equal(t, test.expectDeallocated, !slices.Contains(claim.Finalizers, resourceapi.Finalizer), "finalizer removed")
	slices.Sort(requests)
	slices.Sort(test.expectRequests)
	assert.Equal(t, test.expectRequests, requests, "requests")
	assert.Equal(t, test.expectDelay, delay, "delay")
	assert.Equal(t, test.expectEvents, tt.events(), "events")
}

func TestKeepWorkloadReference(t *testing.T) {
	type refs = []resourceapi.ResourceClaimConsumerReference

	for name, test := range map[string]keepTest{
		"job-active": {
			claim:   workloadClaim(jobRef),
			objects: []runtime.Object{job},
			expect:  refs{jobRef},
		},
		"job-suspended": {
			claim:   workloadClaim(jobRef),
			objects: []runtime.Object{suspendedJob},
			expect:  refs{jobRef},
		},
		"job-gone": {
			claim:          workloadClaim(jobRef),
			objects:        []runtime.Object{unrelatedPod},
			expectRequests: []string{"get jobs", "list pods"},
		},
		"job-complete": {
			claim:          workloadClaim(jobRef),
			objects:        []runtime.Object{completeJob, succeededPod},
			expectRequests: []string{"get jobs", "list pods"},
		},
		"job-failed": {
			claim:          workloadClaim(jobRef),
			objects:        []runtime.Object{failedJob, failedPod},
			expectRequests: []string{"get jobs", "list pods"},
		},
		"job-being-deleted": {
			claim:          workloadClaim(jobRef),
			objects:        []runtime.Object{deleted(job)},
			expectRequests: []string{"get jobs", "list pods"},
		},
		"foreground-deletion": {
			// The job waits for the claim to be removed, so the claim must
			// not wait for that.
			claim:          deleted(workloadClaim(jobRef)),
			objects:        []runtime.Object{deleted(job)},
			expectRequests: []string{"list pods"},
		},
		"foreground-deletion-with-pods": {
			claim:       deleted(workloadClaim(jobRef)),
			objects:     []runtime.Object{deleted(job), terminatingPod},
			expect:      refs{jobRef},
			expectDelay: defaultNoticePeriod,
		},
		// Nothing can be added to a claim which is being deleted, so the
		// workload does not matter.
		"claim-deleted-job-active":    {claim: deleted(workloadClaim(jobRef)), objects: []runtime.Object{job}, expectRequests: []string{"list pods"}},
		"claim-deleted-job-suspended": {claim: deleted(workloadClaim(jobRef)), objects: []runtime.Object{suspendedJob, succeededPod}, expectRequests: []string{"list pods"}},
		"claim-deleted-scaled-down":   {claim: deleted(workloadClaim(deploymentRef)), objects: []runtime.Object{deployment}, expectRequests: []string{"list pods"}},
		"claim-deleted-custom-active": {claim: deleted(workloadClaim(customRef)), objects: []runtime.Object{custom}, expectRequests: []string{"list pods"}},
		"claim-deleted-forbidden":     {claim: deleted(workloadClaim(customRef)), getError: forbidden, expectRequests: []string{"list pods"}},
		"claim-deleted-unknown":       {claim: deleted(workloadClaim(unknownRef)), expectRequests: []string{"list pods"}},
		"claim-deleted-several":       {claim: deleted(reservedBy(workloadClaim(jobRef), otherJobRef, unknownRef)), objects: []runtime.Object{job}, expectRequests: []string{"list pods"}},
		"claim-deleted-job-active-with-pods": {
			claim:       deleted(workloadClaim(jobRef)),
			objects:     []runtime.Object{job, runningPod},
			expect:      refs{jobRef},
			expectDelay: defaultNoticePeriod,
		},
		"claim-deleted-unknown-with-pods": {
			claim:       deleted(workloadClaim(unknownRef)),
			objects:     []runtime.Object{runningPod},
			expect:      refs{unknownRef},
			expectDelay: defaultNoticePeriod,
		},
		"claim-deleted-pod-not-in-cache": {
			claim:          deleted(workloadClaim(unknownRef)),
			created:        []runtime.Object{boundPod},
			expect:         refs{unknownRef},
			expectRequests: []string{"list pods"},
			expectDelay:    defaultPollInterval,
		},
		"claim-deleted-list-error": {
			claim:          deleted(workloadClaim(unknownRef)),
			listError:      unavailable,
			expect:         refs{unknownRef},
			expectRequests: []string{"list pods"},
			expectDelay:    defaultRetryInterval,
			expectError:    "come back later",
		},
		"job-replaced": {
			claim:          workloadClaim(jobRef),
			objects:        []runtime.Object{otherJob},
			expectRequests: []string{"get jobs", "list pods"},
		},
		"job-replaced-with-pods": {
			claim:       workloadClaim(jobRef),
			objects:     []runtime.Object{otherJob, runningPod},
			expect:      refs{jobRef},
			expectDelay: defaultNoticePeriod,
		},
		"job-gone-pods-terminating": {
			claim:       workloadClaim(jobRef),
			objects:     []runtime.Object{terminatingPod, succeededPod},
			expect:      refs{jobRef},
			expectDelay: defaultNoticePeriod,
		},
		"job-complete-pods-terminating": {
			claim:       workloadClaim(jobRef),
			objects:     []runtime.Object{completeJob, terminatingPod},
			expect:      refs{jobRef},
			expectDelay: defaultNoticePeriod,
		},
		"job-gone-orphaned-pods": {
			claim:       workloadClaim(jobRef),
			objects:     []runtime.Object{runningPod},
			expect:      refs{jobRef},
			expectDelay: defaultNoticePeriod,
		},
		"job-gone-pods-pending": {
			// Pods which are not bound may have to wait for a new
			// reservation.
			claim:          workloadClaim(jobRef),
			objects:        []runtime.Object{pendingPod},
			expectRequests: []string{"get jobs", "list pods"},
		},
		"job-not-in-cache": {
			claim:          workloadClaim(jobRef),
			created:        []runtime.Object{job},
			expect:         refs{jobRef},
			expectRequests: []string{"get jobs"},
			expectDelay:    defaultPollInterval,
		},
		"job-in-outdated-cache": {
			// The controller will be told about that.
			claim:   workloadClaim(jobRef),
			objects: []runtime.Object{job},
			removed: refs{jobRef},
			expect:  refs{jobRef},
		},
		"pod-not-in-cache": {
			// The pod was bound and the cache doesn't know about it yet.
			claim:          workloadClaim(jobRef),
			objects:        []runtime.Object{unrelatedPod},
			created:        []runtime.Object{boundPod},
			expect:         refs{jobRef},
			expectRequests: []string{"get jobs", "list pods"},
			expectDelay:    defaultPollInterval,
		},
		"get-error": {
			claim:          workloadClaim(jobRef),
			getError:       unavailable,
			expect:         refs{jobRef},
			expectRequests: []string{"get jobs"},
			expectDelay:    defaultRetryInterval,
			expectError:    "come back later",
		},
		"list-error": {
			claim:          workloadClaim(jobRef),
			listError:      unavailable,
			expect:         refs{jobRef},
			expectRequests: []string{"get jobs", "list pods"},
			expectDelay:    defaultRetryInterval,
			expectError:    "come back later",
		},

		"cronjob-active":         {claim: workloadClaim(cronJobRef), objects: []runtime.Object{cronJob}, expect: refs{cronJobRef}},
		"cronjob-gone":           {claim: workloadClaim(cronJobRef), expectRequests: []string{"get cronjobs", "list pods"}},
		"deployment-scaled-down": {claim: workloadClaim(deploymentRef), objects: []runtime.Object{deployment}, expect: refs{deploymentRef}},
		"deployment-gone":        {claim: workloadClaim(deploymentRef), expectRequests: []string{"get deployments", "list pods"}},
		"statefulset-scaled-down": {
			claim: workloadClaim(statefulSetRef), objects: []runtime.Object{statefulSet}, expect: refs{statefulSetRef},
		},
		"statefulset-gone":          {claim: workloadClaim(statefulSetRef), expectRequests: []string{"get statefulsets", "list pods"}},
		"replicaset-active":         {claim: workloadClaim(replicaSetRef), objects: []runtime.Object{replicaSet}, expect: refs{replicaSetRef}},
		"replicaset-gone":           {claim: workloadClaim(replicaSetRef), expectRequests: []string{"get replicasets", "list pods"}},
		"daemonset-active":          {claim: workloadClaim(daemonSetRef), objects: []runtime.Object{daemonSet}, expect: refs{daemonSetRef}},
		"daemonset-gone":            {claim: workloadClaim(daemonSetRef), expectRequests: []string{"get daemonsets", "list pods"}},
		"other-kind-with-same-name": {claim: workloadClaim(jobRef), objects: []runtime.Object{deployment, cronJob}, expectRequests: []string{"get jobs", "list pods"}},

		"custom-active": {
			claim:          workloadClaim(customRef),
			objects:        []runtime.Object{custom},
			expect:         refs{customRef},
			expectRequests: []string{"get trainings"},
			expectDelay:    defaultPollInterval,
		},
		"custom-with-pods": {
			// No need to look up the workload.
			claim:   workloadClaim(customRef),
			objects: []runtime.Object{runningPod},
			expect:  refs{customRef},
		},
		"custom-gone": {
			claim:          workloadClaim(customRef),
			expectRequests: []string{"get trainings", "list pods"},
		},
		"custom-gone-pod-not-in-cache": {
			claim:          workloadClaim(customRef),
			created:        []runtime.Object{boundPod},
			expect:         refs{customRef},
			expectRequests: []string{"get trainings", "list pods"},
			expectDelay:    defaultPollInterval,
		},
		"custom-being-deleted": {
			claim:          workloadClaim(customRef),
			objects:        []runtime.Object{deleted(custom)},
			expectRequests: []string{"get trainings", "list pods"},
		},
		"custom-replaced": {
			claim:          workloadClaim(withUID(customRef, "training-0")),
			objects:        []runtime.Object{custom},
			expectRequests: []string{"get trainings", "list pods"},
		},
		"custom-forbidden": {
			claim:          workloadClaim(customRef),
			getError:       forbidden,
			expect:         refs{customRef},
			expectRequests: []string{"get trainings"},
			expectDelay:    defaultRetryInterval,
			expectEvents:   []string{"Warning WorkloadForbidden"},
		},
		"custom-not-served": {
			// The server says "not found" about the resource, not the object.
			claim:    workloadClaim(customRef),
			getError: notServed,
			expect:   refs{customRef},
			// The second time after getting all resources again.
			expectRequests: []string{"get trainings", "get trainings"},
			expectDelay:    defaultRetryInterval,
			expectEvents:   []string{"Warning UnknownWorkload"},
		},
		"custom-unavailable": {
			claim:          workloadClaim(customRef),
			getError:       unavailable,
			expect:         refs{customRef},
			expectRequests: []string{"get trainings"},
			expectDelay:    defaultRetryInterval,
			expectError:    "come back later",
		},
		"unknown-resource": {
			claim:        workloadClaim(unknownRef),
			expect:       refs{unknownRef},
			expectDelay:  defaultRetryInterval,
			expectEvents: []string{"Warning UnknownWorkload"},
		},
		"cluster-scoped": {
			claim:        workloadClaim(clusterRef),
			expect:       refs{clusterRef},
			expectDelay:  defaultRetryInterval,
			expectEvents: []string{"Warning UnknownWorkload"},
		},

		"wrong-group": {
			// Must not be mistaken for the resource in another group.
			claim:        workloadClaim(workloadReference("", "trainings")),
			expect:       refs{workloadReference("", "trainings")},
			expectDelay:  defaultRetryInterval,
			expectEvents: []string{"Warning UnknownWorkload"},
		},
		"singular-active": {
			claim:          workloadClaim(workloadReference("batch", "job")),
			objects:        []runtime.Object{job},
			expect:         refs{workloadReference("batch", "job")},
			expectRequests: []string{"get jobs"},
			expectDelay:    defaultPollInterval,
		},
		"singular-complete": {
			claim:          workloadClaim(workloadReference("batch", "job")),
			objects:        []runtime.Object{completeJob},
			expectRequests: []string{"get jobs", "list pods"},
		},

		"mixed-pod-done": {
			claim:   reservedBy(workloadClaim(jobRef), podReference(succeededPod)),
			objects: []runtime.Object{job, succeededPod},
			expect:  refs{jobRef},
		},
		"mixed-job-gone": {
			claim:       reservedBy(workloadClaim(jobRef), podReference(runningPod)),
			objects:     []runtime.Object{runningPod},
			expect:      refs{jobRef, podReference(runningPod)},
			expectDelay: defaultNoticePeriod,
		},
		"mixed-both-gone": {
			claim:          reservedBy(workloadClaim(jobRef), podReference(succeededPod)),
			objects:        []runtime.Object{succeededPod},
			expectRequests: []string{"get jobs", "list pods"},
		},
		"mixed-workloads": {
			claim:          reservedBy(workloadClaim(jobRef), withUID(customRef, "training-0"), otherJobRef),
			objects:        []runtime.Object{otherJob, custom},
			expect:         refs{otherJobRef},
			expectRequests: []string{"get jobs", "get trainings"},
		},
		"dead-covered-with-pods": {
			claim:          reservedBy(workloadClaim(jobRef), otherJobRef),
			objects:        []runtime.Object{otherJob, runningPod},
			expect:         refs{otherJobRef},
			expectRequests: []string{"get jobs"},
		},
		"dead-covered-not-in-cache": {
			// Found dead only by the API server.
			claim:          reservedBy(workloadClaim(jobRef), otherJobRef),
			objects:        []runtime.Object{runningPod},
			created:        []runtime.Object{otherJob},
			expect:         refs{otherJobRef},
			expectRequests: []string{"get jobs"},
			expectDelay:    defaultPollInterval,
		},
		"dead-custom-covered-with-pods": {
			claim:          reservedBy(workloadClaim(withUID(customRef, "training-0")), customRef),
			objects:        []runtime.Object{custom, runningPod},
			expect:         refs{customRef},
			expectRequests: []string{"get trainings"},
			expectDelay:    defaultPollInterval,
		},
		"all-dead-with-pods": {
			// One of them protects the pods, and one request is enough to
			// know about all of them.
			claim:          reservedBy(workloadClaim(jobRef), withUID(jobRef, "a"), withUID(jobRef, "b")),
			objects:        []runtime.Object{runningPod},
			expect:         refs{withUID(jobRef, "b")},
			expectRequests: []string{"get jobs"},
			expectDelay:    defaultNoticePeriod,
		},
		"all-dead": {
			claim:          reservedBy(workloadClaim(jobRef), withUID(jobRef, "a"), withUID(jobRef, "b")),
			expectRequests: []string{"get jobs", "list pods"},
		},
		"dead-covered-by-unchecked": {
			claim:          reservedBy(workloadClaim(jobRef), unknownRef),
			objects:        []runtime.Object{runningPod},
			expect:         refs{unknownRef},
			expectRequests: []string{"get jobs"},
			expectDelay:    defaultRetryInterval,
			expectEvents:   []string{"Warning UnknownWorkload"},
		},
		"several-unchecked": {
			// At most one of them exists.
			claim:        reservedBy(workloadClaim(unknownRef), withUID(unknownRef, "a"), withUID(unknownRef, "b")),
			expect:       refs{withUID(unknownRef, "b")},
			expectDelay:  defaultRetryInterval,
			expectEvents: []string{"Warning UnknownWorkload"},
		},
		"several-active": {
			claim:          reservedBy(workloadClaim(jobRef), withUID(customRef, "training-1")),
			objects:        []runtime.Object{job, custom},
			expect:         refs{jobRef, withUID(customRef, "training-1")},
			expectRequests: []string{"get trainings"},
			expectDelay:    defaultPollInterval,
		},
		"error-does-not-block-others": {
			claim:          reservedBy(workloadClaim(customRef), podReference(succeededPod), otherJobRef),
			objects:        []runtime.Object{succeededPod, otherJob},
			getError:       unavailable,
			expect:         refs{customRef, otherJobRef},
			expectRequests: []string{"get trainings"},
			expectDelay:    defaultRetryInterval,
			expectError:    "come back later",
		},

		// There is no standard for custom resources, but some conditions
		// mean the same for many of them.
		"custom-complete":  {claim: workloadClaim(customRef), objects: []runtime.Object{finishedCustom("Complete", "True")}, expectRequests: []string{"get trainings", "list pods"}},
		"custom-completed": {claim: workloadClaim(customRef), objects: []runtime.Object{finishedCustom("Completed", "True")}, expectRequests: []string{"get trainings", "list pods"}},
		"custom-succeeded": {claim: workloadClaim(customRef), objects: []runtime.Object{finishedCustom("Succeeded", "True"), succeededPod}, expectRequests: []string{"get trainings", "list pods"}},
		"custom-failed":    {claim: workloadClaim(customRef), objects: []runtime.Object{finishedCustom("Failed", "True")}, expectRequests: []string{"get trainings", "list pods"}},
		"custom-not-failed": {
			claim:          workloadClaim(customRef),
			objects:        []runtime.Object{finishedCustom("Failed", "False")},
			expect:         refs{customRef},
			expectRequests: []string{"get trainings"},
			expectDelay:    defaultPollInterval,
		},
		"custom-ready": {
			claim:          workloadClaim(customRef),
			objects:        []runtime.Object{finishedCustom("Ready", "True")},
			expect:         refs{customRef},
			expectRequests: []string{"get trainings"},
			expectDelay:    defaultPollInterval,
		},
		"custom-complete-with-pods": {
			claim:   workloadClaim(customRef),
			objects: []runtime.Object{finishedCustom("Complete", "True"), runningPod},
			expect:  refs{customRef},
		},
		"custom-complete-pod-not-in-cache": {
			claim:          workloadClaim(customRef),
			objects:        []runtime.Object{finishedCustom("Complete", "True")},
			created:        []runtime.Object{boundPod},
			expect:         refs{customRef},
			expectRequests: []string{"get trainings", "list pods"},
			expectDelay:    defaultPollInterval,
		},
		"pod-reference-only": {
			// Some other pod might not be listed.
			claim:   reservedBy(anyPodClaim(jobRef), podReference(succeededPod)),
			objects: []runtime.Object{succeededPod, runningPod},
		},
		"per-pod-allocation": {
			claim:   reservedBy(perPodClaim(jobRef), podReference(succeededPod)),
			objects: []runtime.Object{succeededPod},
		},
		"reservation-by-other-controller": {
			// Not meant for a workload. It's up to that controller.
			claim: func() *resourceapi.ResourceClaim {
				claim := reservedBy(perPodClaim(jobRef), jobRef)
				claim.Spec.ReservedFor = nil
				return claim
			}(),
			expect: refs{jobRef},
		},
		"reservation-by-other-controller-pod-done": {
			claim: func() *resourceapi.ResourceClaim {
				claim := reservedBy(perPodClaim(jobRef), jobRef, podReference(succeededPod))
				claim.Spec.ReservedFor = nil
				return claim
			}(),
			objects: []runtime.Object{succeededPod},
			expect:  refs{jobRef},
		},
		"reservation-by-other-controller-deleted": {
			claim: func() *resourceapi.ResourceClaim {
				claim := deleted(reservedBy(perPodClaim(jobRef), jobRef))
				claim.Spec.ReservedFor = nil
				return claim
			}(),
			expect: refs{jobRef},
		},

		// What was stored while the feature was enabled must not be stuck. Nothing
		// is watched, so each decision is based on what the API server says.
		"disabled-active": {
			features:       &Features{},
			claim:          workloadClaim(jobRef),
			objects:        []runtime.Object{job},
			expect:         refs{jobRef},
			expectRequests: []string{"get jobs"},
			expectDelay:    defaultPollInterval,
		},
		"disabled-active-with-pods": {
			features: &Features{},
			claim:    workloadClaim(jobRef),
			objects:  []runtime.Object{job, runningPod},
			expect:   refs{jobRef},
		},
		"disabled-gone": {
			features:       &Features{},
			claim:          workloadClaim(jobRef),
			expectRequests: []string{"get jobs", "list pods"},
		},
		"disabled-complete": {
			features:       &Features{},
			claim:          workloadClaim(jobRef),
			objects:        []runtime.Object{completeJob, succeededPod},
			expectRequests: []string{"get jobs", "list pods"},
		},
		"disabled-gone-with-pods": {
			features: &Features{},
			claim:    workloadClaim(jobRef),
			objects:  []runtime.Object{terminatingPod},
			expect:   refs{jobRef},
		},
		"disabled-gone-pod-not-in-cache": {
			features:       &Features{},
			claim:          workloadClaim(jobRef),
			created:        []runtime.Object{boundPod},
			expect:         refs{jobRef},
			expectRequests: []string{"get jobs", "list pods"},
			expectDelay:    defaultPollInterval,
		},
		"disabled-custom": {
			// Only the built-in kinds can be looked up.
			features:     &Features{},
			claim:        workloadClaim(customRef),
			objects:      []runtime.Object{custom},
			expect:       refs{customRef},
			expectDelay:  defaultRetryInterval,
			expectEvents: []string{"Warning UnknownWorkload"},
		},
		"disabled-claim-deleted": {
			features:       &Features{},
			claim:          deleted(workloadClaim(jobRef)),
			objects:        []runtime.Object{job},
			expectRequests: []string{"list pods"},
		},
		"disabled-claim-deleted-unknown": {
			features:       &Features{},
			claim:          deleted(workloadClaim(unknownRef)),
			expectRequests: []string{"list pods"},
		},
		"disabled-claim-deleted-with-pods": {
			features:    &Features{},
			claim:       deleted(workloadClaim(jobRef)),
			objects:     []runtime.Object{runningPod},
			expect:      refs{jobRef},
			expectDelay: defaultNoticePeriod,
		},
		"disabled-mixed": {
			features:       &Features{},
			claim:          reservedBy(workloadClaim(jobRef), podReference(succeededPod)),
			objects:        []runtime.Object{succeededPod},
			expectRequests: []string{"get jobs", "list pods"},
		},
		"disabled-reservation-by-other-controller": {
			// The feature was not used for this allocation.
			features: &Features{},
			claim:    reservedBy(perPodClaim(jobRef), jobRef),
			expect:   refs{jobRef},
		},
		"disabled-pod-reference-only": {
			features: &Features{},
			claim:    reservedBy(anyPodClaim(jobRef), podReference(succeededPod)),
			objects:  []runtime.Object{succeededPod, runningPod},
		},
		"disabled-per-pod-allocation": {
			features:          &Features{},
			claim:             reservedBy(perPodClaim(jobRef), podReference(succeededPod)),
			objects:           []runtime.Object{succeededPod},
			expectDeallocated: true,
		},
	} {
		t.Run(name, test.run)
	}
}

// deallocateTest describes a claim which is not reserved, and what gets done to it.
type deallocateTest struct {
	features Features
	// claim is what gets seen first.
	claim   *resourceapi.ResourceClaim
	objects []runtime.Object
	// created is only known to the API server when looking again.
	created []runtime.Object

	expectNothing     bool // No pause, no second look.
	expectShort       bool // A pause of half a second.
	expectDeallocated bool
	expect            []resourceapi.ResourceClaimConsumerReference
	expectEvents      []string
}

func (test deallocateTest) run(t *testing.T) {
	tt := newWorkloadTest(t, test.features, append(test.objects, test.claim)...)
	pause := defaultReleasePause
	if test.expectShort {
		pause = defaultEndPause
	}

	delay := tt.mustSync()
	assert.Equal(t, test.claim, tt.getClaim(), "claim after first look")
	if test.expectNothing {
		assert.Equal(t, time.Duration(0), delay, "delay")
		assert.Empty(t, tt.events(), "events")
		return
	}
	assert.Equal(t, pause, delay, "delay after first look")

	tt.clock.Step(pause - time.Millisecond)
	assert.Equal(t, time.Millisecond, tt.mustSync(), "delay one millisecond before the second look")
	assert.Equal(t, test.claim, tt.getClaim(), "claim before second look")

	tt.clock.Step(time.Millisecond)
	tt.create(test.created...)
	tt.requests()
	delay = tt.mustSync()
	claim := tt.getClaim()
	assert.Equal(t, test.expect, claim.Status.ReservedFor, "status.reservedFor")
	assert.Equal(t, test.expectDeallocated, claim.Status.Allocation == nil, "deallocated")
	assert.Equal(t, test.expectDeallocated, !slices.Contains(claim.Finalizers, resourceapi.Finalizer), "finalizer removed")
	assert.Equal(t, test.expectEvents, tt.events(), "events")
	done := test.expectDeallocated || len(test.expect) > 0
	assert.Equal(t, !done, delay > 0, "checked again after %s", delay)
	if !test.expectDeallocated {
		return
	}
	assert.Contains(t, tt.requests(), "list pods")
	tt.syncCaches()
	assert.Empty(t, tt.ec.workloads.claims, "state of deallocated claim")
}

func TestDeallocateUnreserved(t *testing.T) {
	type refs = []resourceapi.ResourceClaimConsumerReference

	for name, test := range map[string]deallocateTest{
		"unused": {
			features:          workloadsEnabled,
			claim:             anyPodClaim(jobRef),
			objects:           []runtime.Object{job, unrelatedPod, succeededPod, pendingPod},
			expectDeallocated: true,
			expectEvents:      []string{"Normal ReservationReleased", "Normal Deallocated"},
		},
		"unused-deleted": {
			features:          workloadsEnabled,
			claim:             deleted(anyPodClaim(jobRef)),
			expectShort:       true,
			expectDeallocated: true,
			expectEvents:      []string{"Normal ReservationReleased", "Normal Deallocated"},
		},
		"unused-disabled": {
			// What was started gets completed.
			claim:             anyPodClaim(jobRef),
			expectDeallocated: true,
			expectEvents:      []string{"Normal ReservationReleased", "Normal Deallocated"},
		},
		"unused-deleted-disabled": {
			claim:             deleted(anyPodClaim(jobRef)),
			expectShort:       true,
			expectDeallocated: true,
			expectEvents:      []string{"Normal ReservationReleased", "Normal Deallocated"},
		},
		"per-pod": {
			features:          workloadsEnabled,
			claim:             perPodClaim(jobRef),
			expectDeallocated: true,
			expectEvents:      []string{"Normal ReservationReleased", "Normal Deallocated"},
		},
		"per-pod-disabled": {
			claim:         perPodClaim(jobRef),
			expectNothing: true,
		},
		"not-for-workload": {
			features: workloadsEnabled,
			claim: func() *resourceapi.ResourceClaim {
				claim := perPodClaim(jobRef)
				claim.Spec.ReservedFor = nil
				return claim
			}(),
			expectNothing: true,
		},
		"not-allocated": {
			features:      workloadsEnabled,
			claim:         unallocatedClaim(jobRef),
			expectNothing: true,
		},
		"not-allocated-by-scheduler": {
			features: workloadsEnabled,
			claim: func() *resourceapi.ResourceClaim {
				claim := anyPodClaim(jobRef)
				claim.Finalizers = nil
				return claim
			}(),
			expectNothing: true,
		},
		"pod-in-cache": {
			features:     workloadsEnabled,
			claim:        anyPodClaim(jobRef),
			objects:      []runtime.Object{job, controlledBy(runningPod, "batch/v1", "Job", job)},
			expect:       refs{jobRef},
			expectEvents: []string{"Normal ReservationReleased", "Normal ReservationRestored"},
		},
		"pod-bound-in-between": {
			features:     workloadsEnabled,
			claim:        anyPodClaim(jobRef),
			created:      []runtime.Object{controlledBy(boundPod, "batch/v1", "Job", job)},
			expect:       refs{jobRef},
			expectEvents: []string{"Normal ReservationReleased", "Normal ReservationRestored"},
		},
		"pod-bound-in-between-deleted": {
			features:     workloadsEnabled,
			claim:        deleted(anyPodClaim(jobRef)),
			expectShort:  true,
			created:      []runtime.Object{boundPod},
			expectEvents: []string{"Normal ReservationReleased"},
		},
		"pod-bound-in-between-disabled": {
			// What was undone gets restored.
			claim:        anyPodClaim(jobRef),
			created:      []runtime.Object{controlledBy(boundPod, "batch/v1", "Job", job)},
			expect:       refs{jobRef},
			expectEvents: []string{"Normal ReservationReleased", "Normal ReservationRestored"},
		},
		"pod-bound-in-between-deleted-disabled": {
			claim:        deleted(anyPodClaim(jobRef)),
			expectShort:  true,
			created:      []runtime.Object{boundPod},
			expectEvents: []string{"Normal ReservationReleased"},
		},
	} {
		t.Run(name, test.run)
	}
}

// TestReleaseList checks that the list of pods is consistent and limited to
// those which might use the claim.
func TestReleaseList(t *testing.T) {
	tt := newWorkloadTest(t, workloadsEnabled, workloadClaim(jobRef))
	var selectors []string
	tt.client.PrependReactor("list", "pods", func(action k8stesting.Action) (bool, runtime.Object, error) {
		opts := action.(k8stesting.ListActionImpl).ListOptions
		assert.Empty(t, opts.ResourceVersion, "resource version")
		assert.Equal(t, testNamespace, action.GetNamespace(), "namespace")
		selectors = append(selectors, opts.FieldSelector)
		return false, nil, nil
	})
	tt.release()
	tt.mustSync()
	expect := "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
	assert.Equal(t, []string{expect, expect}, selectors, "field selectors of first and second look")
	assert.Nil(t, tt.getClaim().Status.Allocation, "allocation")
}

// TestReleaseConflict checks that nothing happens to a claim which got modified
// in the meantime, in both steps.
func TestReleaseConflict(t *testing.T) {
	tt := newWorkloadTest(t, workloadsEnabled, workloadClaim(jobRef))
	conflict := true
	tt.client.PrependReactor("update", "resourceclaims", func(action k8stesting.Action) (bool, runtime.Object, error) {
		if !conflict {
			return false, nil, nil
		}
		return true, nil, apierrors.NewConflict(action.GetResource().GroupResource(), sharedClaim, errors.New("modified"))
	})

	_, err := tt.sync()
	assert.True(t, apierrors.IsConflict(err), "expected conflict while removing reservation, got: %v", err)
	assert.Equal(t, workloadClaim(jobRef), tt.getClaim())
	assert.Empty(t, tt.events())

	conflict = false
	tt.clock.Step(listPause)
	tt.release()
	conflict = true
	_, err = tt.sync()
	assert.True(t, apierrors.IsConflict(err), "expected conflict while deallocating, got: %v", err)
	assert.NotNil(t, tt.getClaim().Status.Allocation)
	assert.Equal(t, []string{"Normal ReservationReleased"}, tt.events())

	conflict = false
	tt.clock.Step(listPause)
	tt.mustSync()
	assert.Nil(t, tt.getClaim().Status.Allocation)
	assert.Equal(t, []string{"Normal Deallocated"}, tt.events())
}

// TestSecondLookError checks that not being able to look again is not the same as
// finding nothing.
func TestSecondLookError(t *testing.T) {
	tt := newWorkloadTest(t, workloadsEnabled, workloadClaim(jobRef))
	tt.release()
	tt.client.PrependReactor("list", "pods", func(action k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewServiceUnavailable("come back later")
	})
	delay, err := tt.sync()
	assert.ErrorContains(t, err, "come back later")
	assert.Equal(t, tt.ec.workloads.retryInterval, delay)
	assert.NotNil(t, tt.getClaim().Status.Allocation)
}

// TestPauseAfterStaleSync ensures that a sync with an older revision of the claim does not shorten
// the next pause.
func TestPauseAfterStaleSync(t *testing.T) {
	reserved := workloadClaim(jobRef)
	unreserved := reserved.DeepCopy()
	unreserved.Status.ReservedFor = nil
	tt := newWorkloadTest(t, workloadsEnabled, job, unreserved)
	tt.mustSync()
	tt.ec.enqueueResourceClaim(tt.Logger(), unreserved, reserved)
	tt.setClaim(reserved)
	// That one had got the claim before.
	tt.ec.workloads.unreserved(unreserved)
	tt.mustSync()
	tt.clock.Step(time.Hour)
	tt.setClaim(unreserved)
	assert.Equal(t, tt.ec.workloads.releasePause, tt.mustSync())
	assert.NotNil(t, tt.getClaim().Status.Allocation)
}

// TestDeallocateAgain ensures that a claim whose deallocation failed does not wait for what fails elsewhere.
func TestDeallocateAgain(t *testing.T) {
	tt := newWorkloadTest(t, workloadsEnabled, completeJob, workloadClaim(jobRef))
	tt.release()
	tt.client.PrependReactor("update", "resourceclaims", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("fake API failure")
	})
	delay, err := tt.sync()
	assert.Error(t, err)
	assert.Equal(t, tt.ec.workloads.retryInterval, delay)
}

// TestReservedDuringPause checks that a claim which gets reserved again during
// the pause is not deallocated and that the next pause is complete.
func TestReservedDuringPause(t *testing.T) {
	tt := newWorkloadTest(t, workloadsEnabled, workloadClaim(jobRef))
	pause := tt.ec.workloads.releasePause
	tt.mustSync()
	tt.syncCaches()
	assert.Equal(t, tt.ec.workloads.endPause, tt.mustSync())

	tt.clock.Step(tt.ec.workloads.endPause - time.Millisecond)
	tt.create(otherJob)
	tt.setClaim(workloadClaim(otherJobRef))
	tt.clock.Step(time.Millisecond)
	tt.mustSync()
	assert.Equal(t, workloadClaim(otherJobRef), tt.getClaim(), "claim while in use by next job")

	// Some other controller removes that reservation.
	tt.setClaim(anyPodClaim(jobRef))
	assert.Equal(t, pause, tt.mustSync(), "pause after external release")
	assert.Equal(t, anyPodClaim(jobRef), tt.getClaim(), "claim in second pause")
	tt.clock.Step(pause)
	tt.mustSync()
	assert.Nil(t, tt.getClaim().Status.Allocation)
}

// TestPauseBeforeDeallocation checks that devices are free soon after the end of a workload, unless some
// pod might be on its way to a node.
func TestPauseBeforeDeallocation(t *testing.T) {
	gatedPod := pendingPod.DeepCopy()
	gatedPod.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/gate"}}
	for name, test := range map[string]struct {
		claim   *resourceapi.ResourceClaim
		objects []runtime.Object
		// created gets into the caches while the claim is not reserved anymore.
		created *v1.Pod
		expect  time.Duration
	}{
		"job-gone":          {claim: workloadClaim(jobRef), objects: []runtime.Object{unrelatedPod}, expect: defaultEndPause},
		"job-complete":      {claim: workloadClaim(jobRef), objects: []runtime.Object{completeJob, succeededPod}, expect: defaultEndPause},
		"job-deleted":       {claim: workloadClaim(jobRef), objects: []runtime.Object{deleted(job)}, expect: defaultEndPause},
		"several":           {claim: reservedBy(workloadClaim(jobRef), otherJobRef), objects: []runtime.Object{unrelatedPod}, expect: defaultEndPause},
		"custom-gone":       {claim: workloadClaim(customRef), expect: defaultEndPause},
		"custom-deleted":    {claim: workloadClaim(customRef), objects: []runtime.Object{deleted(custom)}, expect: defaultEndPause},
		"claim-deleted":     {claim: deleted(workloadClaim(jobRef)), objects: []runtime.Object{job}, expect: defaultEndPause},
		"pending-pod":       {claim: workloadClaim(jobRef), objects: []runtime.Object{completeJob, pendingPod}, expect: defaultReleasePause},
		"gated-pod":         {claim: workloadClaim(jobRef), objects: []runtime.Object{completeJob, gatedPod}, expect: defaultReleasePause},
		"deleted-pending":   {claim: deleted(workloadClaim(jobRef)), objects: []runtime.Object{job, pendingPod}, expect: defaultReleasePause},
		"pod-comes":         {claim: workloadClaim(jobRef), objects: []runtime.Object{completeJob}, created: pendingPod, expect: defaultReleasePause},
		"idle":              {claim: idleClaim(deploymentRef, "1m"), objects: []runtime.Object{deployment}, expect: defaultReleasePause},
		"custom-may-resume": {claim: workloadClaim(customRef), objects: []runtime.Object{finishedCustom("Complete", "True")}, expect: defaultReleasePause},
	} {
		t.Run(name, func(t *testing.T) {
			tt := newWorkloadTest(t, workloadsEnabled, append(test.objects, test.claim)...)
			tt.mustSync()
			if name == "idle" {
				tt.clock.Step(time.Minute)
				tt.mustSync()
			}
			if test.created != nil {
				tt.syncCaches()
				assert.Equal(t, defaultEndPause, tt.mustSync(), "pause before there is a pod")
				tt.create(test.created)
			}
			claim := tt.syncCaches()
			assert.Empty(t, claim.Status.ReservedFor, "status.reservedFor")
			assert.NotNil(t, claim.Status.Allocation, "allocation")
			assert.Equal(t, test.expect, tt.mustSync(), "pause")
			tt.clock.Step(test.expect)
			tt.mustSync()
			assert.Nil(t, tt.getClaim().Status.Allocation, "allocation after the pause")
		})
	}
}

func TestReserveForPodOnNode(t *testing.T) {
	type refs = []resourceapi.ResourceClaimConsumerReference

	jobOfCronJob := job.DeepCopy()
	jobOfCronJob.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "CronJob", Name: workloadName, UID: workloadUID, Controller: ptr.To(true)}}
	replicaSetOfDeployment := replicaSet.DeepCopy()
	replicaSetOfDeployment.Name = "training-abc"
	replicaSetOfDeployment.UID = "training-abc-uid"
	replicaSetOfDeployment.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: workloadName, UID: workloadUID, Controller: ptr.To(true)}}
	jobOfCustom := job.DeepCopy()
	jobOfCustom.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Training", Name: workloadName, UID: workloadUID, Controller: ptr.To(true)}}
	withSpecUID := func(claim *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
		claim = claim.DeepCopy()
		claim.Spec.ReservedFor.UID = workloadUID
		return claim
	}

	tests := map[string]struct {
		features *Features
		claim    *resourceapi.ResourceClaim
		pod      *v1.Pod
		objects  []runtime.Object
		released refs

		// expect are the additional reservations.
		expect refs
	}{
		"reserved-for-any-pod": {
			claim: workloadClaim(jobRef),
			pod:   runningPod,
		},
		"reserved-for-any-pod-disabled": {
			// Must not try to add thousands of running pods.
			features: &Features{},
			claim:    workloadClaim(jobRef),
			pod:      runningPod,
		},
		"reserved-for-any-pod-mixed": {
			claim: reservedBy(workloadClaim(jobRef), podReference(otherPod)),
			pod:   runningPod,
		},
		"listed": {
			claim: reservedBy(anyPodClaim(jobRef), podReference(runningPod)),
			pod:   runningPod,
		},
		"per-pod": {
			claim:  perPodClaim(jobRef),
			pod:    controlledBy(runningPod, "batch/v1", "Job", job),
			expect: refs{podReference(runningPod)},
		},
		"per-pod-reserved-for-workload": {
			claim:  reservedBy(perPodClaim(jobRef), jobRef),
			pod:    controlledBy(runningPod, "batch/v1", "Job", job),
			expect: refs{podReference(runningPod)},
		},
		"uid-in-spec": {
			claim:  withSpecUID(anyPodClaim(jobRef)),
			pod:    runningPod,
			expect: refs{jobRef},
		},
		"only-other-pods-listed": {
			claim:  reservedBy(withSpecUID(anyPodClaim(jobRef)), podReference(otherPod)),
			pod:    runningPod,
			expect: refs{jobRef},
		},
		"controller": {
			claim:    anyPodClaim(jobRef),
			pod:      controlledBy(runningPod, "batch/v1", "Job", otherJob),
			released: refs{jobRef},
			expect:   refs{otherJobRef},
		},
		"custom-controller": {
			claim:  anyPodClaim(customRef),
			pod:    controlledBy(runningPod, "example.com/v1", "Training", custom),
			expect: refs{customRef},
		},
		"replicaset-deployment": {
			claim:   anyPodClaim(deploymentRef),
			pod:     controlledBy(runningPod, "apps/v1", "ReplicaSet", replicaSetOfDeployment),
			objects: []runtime.Object{replicaSetOfDeployment},
			expect:  refs{deploymentRef},
		},
		"job-cronjob": {
			claim:   anyPodClaim(cronJobRef),
			pod:     controlledBy(runningPod, "batch/v1", "Job", jobOfCronJob),
			objects: []runtime.Object{jobOfCronJob},
			expect:  refs{cronJobRef},
		},
		"job-custom": {
			claim:   anyPodClaim(customRef),
			pod:     controlledBy(runningPod, "batch/v1", "Job", jobOfCustom),
			objects: []runtime.Object{jobOfCustom},
			expect:  refs{customRef},
		},
		"controller-gone": {
			claim:    anyPodClaim(deploymentRef),
			pod:      controlledBy(runningPod, "apps/v1", "ReplicaSet", replicaSetOfDeployment),
			released: refs{deploymentRef},
			expect:   refs{deploymentRef},
		},
		"controller-replaced": {
			claim: anyPodClaim(deploymentRef),
			pod: func() *v1.Pod {
				pod := controlledBy(runningPod, "apps/v1", "ReplicaSet", replicaSetOfDeployment)
				pod.OwnerReferences[0].UID = "other"
				return pod
			}(),
			objects: []runtime.Object{replicaSetOfDeployment},
			expect:  refs{podReference(runningPod)},
		},
		"unknown-controller": {
			claim:  anyPodClaim(jobRef),
			pod:    controlledBy(runningPod, "example.com/v1", "Unknown", custom),
			expect: refs{podReference(runningPod)},
		},
		"no-controller": {
			claim:  anyPodClaim(jobRef),
			pod:    runningPod,
			expect: refs{podReference(runningPod)},
		},
		"disabled": {
			features: &Features{},
			claim:    withSpecUID(anyPodClaim(jobRef)),
			pod:      controlledBy(runningPod, "batch/v1", "Job", job),
			expect:   refs{podReference(runningPod)},
		},
		"terminated": {
			claim: withSpecUID(anyPodClaim(jobRef)),
			pod:   succeededPod,
		},
		"terminated-disabled": {
			features: &Features{},
			claim:    withSpecUID(anyPodClaim(jobRef)),
			pod:      succeededPod,
		},
		"pod-being-deleted": {
			claim: withSpecUID(anyPodClaim(jobRef)),
			pod:   terminatingPod,
		},
		"claim-being-deleted": {
			claim: deleted(withSpecUID(anyPodClaim(jobRef))),
			pod:   runningPod,
		},
		"not-on-node": {
			claim: withSpecUID(anyPodClaim(jobRef)),
			pod:   pendingPod,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			features := workloadsEnabled
			if test.features != nil {
				features = *test.features
			}
			tt := newWorkloadTest(t, features, append(test.objects, test.claim, test.pod)...)
			if len(test.released) > 0 {
				tt.ec.observeClaim(reservedBy(test.claim, test.released...), test.claim)
			}

			needsWork, reason := tt.ec.podNeedsWork(test.pod)
			assert.Equal(t, len(test.expect) > 0, needsWork, "podNeedsWork: %s", reason)
			tt.ExpectNoError(tt.ec.syncHandler(tt, podKey(test.pod)), "sync pod")
			assert.Equal(t, reservedBy(test.claim, test.expect...).Status, tt.getClaim().Status)
			tt.syncCaches()
			needsWork, reason = tt.ec.podNeedsWork(test.pod)
			assert.False(t, needsWork, "podNeedsWork after syncing pod: %s", reason)
		})
	}
}

// TestReserveForPodOnNodeError checks that a temporary problem does not lead to
// reserving for the wrong object.
func TestReserveForPodOnNodeError(t *testing.T) {
	pod := controlledBy(runningPod, "apps/v1", "ReplicaSet", replicaSet)
	tt := newWorkloadTest(t, workloadsEnabled, anyPodClaim(deploymentRef), pod)
	tt.client.PrependReactor("get", "replicasets", func(action k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewServiceUnavailable("come back later")
	})
	assert.ErrorContains(t, tt.ec.syncHandler(tt, podKey(pod)), "come back later")
	assert.Empty(t, tt.getClaim().Status.ReservedFor)
}

// TestMustReserve checks what must be true even if pods which have terminated were
// not already ignored elsewhere.
func TestMustReserve(t *testing.T) {
	tt := newWorkloadTest(t, workloadsEnabled)
	assert.True(t, tt.ec.mustReserve(tt, runningPod, anyPodClaim(jobRef)), "running pod, released claim")
	assert.False(t, tt.ec.mustReserve(tt, runningPod, workloadClaim(jobRef)), "running pod, reserved claim")
	for _, pod := range []*v1.Pod{succeededPod, failedPod} {
		assert.False(t, tt.ec.mustReserve(tt, pod, anyPodClaim(jobRef)), "%s pod, released claim", pod.Name)
	}
}

// countingIndexer counts those operations which are expensive for a claim with
// many pods.
type countingIndexer struct {
	cache.Indexer
	byIndex int
}

func (i *countingIndexer) ByIndex(indexName, indexedValue string) ([]interface{}, error) {
	i.byIndex++
	return i.Indexer.ByIndex(indexName, indexedValue)
}

// TestLastPods checks what it costs to process the claim for each pod of a
// large workload which ends.
func TestLastPods(t *testing.T) {
	const numPods = 1000
	for name, test := range map[string]struct {
		ref     resourceapi.ResourceClaimConsumerReference
		objects []runtime.Object
		// expectLast are the requests after the last pod is gone.
		expectLast []string
	}{
		"job-active":    {ref: jobRef, objects: []runtime.Object{job}},
		"job-gone":      {ref: jobRef, expectLast: []string{"get jobs", "list pods"}},
		"custom-active": {ref: customRef, objects: []runtime.Object{custom}, expectLast: []string{"get trainings"}},
	} {
		t.Run(name, func(t *testing.T) {
			objects := append(test.objects, workloadClaim(test.ref))
			var pods []*v1.Pod
			for i := range numPods {
				pod := userPod(fmt.Sprintf("pod-%d", i), nodeName, v1.PodRunning)
				pods = append(pods, pod)
				objects = append(objects, pod)
			}
			tt := newWorkloadTest(t, workloadsEnabled, objects...)
			indexer := &countingIndexer{Indexer: tt.ec.podIndexer}
			tt.ec.podIndexer = indexer

			for i, pod := range pods {
				assert.Equal(t, workloadClaim(test.ref), tt.getClaim())
				pod = pod.DeepCopy()
				pod.Status.Phase = v1.PodSucceeded
				tt.ExpectNoError(tt.client.Tracker().Update(schema.GroupVersionResource{Version: "v1", Resource: "pods"}, pod, pod.Namespace), "update pod")
				tt.ExpectNoError(tt.ec.podIndexer.Update(pod), "update pod cache")
				tt.ec.enqueuePod(tt.Logger(), pod, false)
				tt.mustSync()
				if i < numPods-1 {
					if requests := tt.requests(); len(requests) > 0 {
						t.Fatalf("pod %d: expected no requests, got: %v", i, requests)
					}
				}
			}
			assert.ElementsMatch(t, test.expectLast, tt.requests(), "requests after last pod")

			// Which pod is found is random, so usually it's about ten.
			assert.Less(t, indexer.byIndex, numPods/2, "number of times that all pods were considered")
		})
	}
}

// TestLookups checks how often a workload which cannot be watched gets looked up.
func TestLookups(t *testing.T) {
	tt := newWorkloadTest(t, workloadsEnabled, workloadClaim(customRef), custom)

	// Many events within a short time.
	for range 100 {
		tt.mustSync()
	}
	assert.Equal(t, []string{"get trainings"}, tt.requests())
	assert.Equal(t, 1, lookups(tt, "active"))

	// The next event shortly after that.
	tt.clock.Step(tt.ec.workloads.lookupInterval)
	assert.Equal(t, tt.ec.workloads.pollInterval, tt.mustSync())
	assert.Equal(t, []string{"get trainings"}, tt.requests())

	// Gone. This does not depend on what was cached.
	tt.remove(customRef)
	assert.Equal(t, tt.ec.workloads.lookupInterval, tt.mustSync())
	tt.clock.Step(tt.ec.workloads.lookupInterval)
	tt.mustSync()
	assert.Empty(t, tt.getClaim().Status.ReservedFor)
	assert.Equal(t, 1, lookups(tt, "done"))
}

// TestSecondReview checks which workloads get looked up again once it is known that no
// pod uses the claim.
func TestSecondReview(t *testing.T) {
	for name, tc := range map[string]struct {
		ref      resourceapi.ResourceClaimConsumerReference
		workload runtime.Object
		// between happens while the pods are listed.
		between func(tt *workloadTest)
		again   []string
		kept    bool
	}{
		"finished job":         {ref: jobRef, workload: completeJob},
		"deleted job":          {ref: jobRef},
		"job being deleted":    {ref: jobRef, workload: deleted(job)},
		"replaced job":         {ref: jobRef, workload: otherJob},
		"deleted custom":       {ref: customRef},
		"custom being deleted": {ref: customRef, workload: deleted(custom)},
		"finished custom":      {ref: customRef, workload: finishedCustom("Complete", "True"), again: []string{"get trainings"}},
		"resumed custom": {
			ref: customRef, workload: finishedCustom("Complete", "True"),
			between: func(tt *workloadTest) {
				tt.remove(customRef)
				tt.create(custom)
			},
			again: []string{"get trainings"}, kept: true,
		},
		"new job": {
			ref: jobRef,
			between: func(tt *workloadTest) {
				tt.create(otherJob)
				tt.setClaim(workloadClaim(otherJobRef))
			},
			again: []string{"get jobs"}, kept: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			claim := workloadClaim(tc.ref)
			objects := []runtime.Object{claim}
			if tc.workload != nil {
				objects = append(objects, tc.workload)
			}
			tt := newWorkloadTest(t, workloadsEnabled, objects...)
			var list func()
			tt.ec.workloads.users.spawn = func(run func()) { list = run }
			tt.mustSync()
			assert.Equal(t, []string{"get " + tc.ref.Resource}, tt.requests())
			list()
			assert.Equal(t, []string{"list pods"}, tt.requests())
			if tc.between != nil {
				tc.between(tt)
			}

			tt.mustSync()
			assert.Equal(t, tc.again, tt.requests())
			assert.Equal(t, tc.kept, len(tt.getClaim().Status.ReservedFor) > 0, "reserved")
		})
	}
}

// TestLookupLimit checks that polling many workloads is limited.
func TestLookupLimit(t *testing.T) {
	tt := newWorkloadTest(t, workloadsEnabled, workloadClaim(customRef), custom)
	for i := range lookupsPerSecond {
		ref := customRef
		ref.Name = fmt.Sprintf("training-%d", i)
		_, err := tt.ec.lookUpWorkload(tt, workloadRef{namespace: testNamespace, ResourceClaimConsumerReference: ref})
		tt.ExpectNoError(err, "look up")
	}
	tt.requests()
	assert.Equal(t, time.Second, tt.mustSync())
	assert.Empty(t, tt.requests())
	assert.Equal(t, workloadClaim(customRef), tt.getClaim())

	tt.clock.Step(time.Second)
	tt.mustSync()
	assert.Equal(t, []string{"get trainings"}, tt.requests())
}

// TestNotices checks that users get told why a claim remains reserved, and again when the event is
// about to be forgotten.
func TestNotices(t *testing.T) {
	tt := newWorkloadTest(t, workloadsEnabled, workloadClaim(customRef))
	forbidden := true
	tt.dynamic.PrependReactor("get", "trainings", func(action k8stesting.Action) (bool, runtime.Object, error) {
		if forbidden {
			return true, nil, apierrors.NewForbidden(action.GetResource().GroupResource(), workloadName, errors.New("not allowed"))
		}
		return false, nil, nil
	})

	tt.mustSync()
	assert.Equal(t, []string{"Warning WorkloadForbidden"}, tt.events())
	assert.Equal(t, 1, gauge(tt, "forbidden"))
	tt.requests()
	for range 10 {
		assert.Equal(t, tt.ec.workloads.retryInterval, tt.mustSync())
	}
	assert.Empty(t, tt.requests(), "lookups before the retry interval is over")
	for i := range 10 {
		tt.clock.Step(tt.ec.workloads.retryInterval)
		tt.mustSync()
		assert.Empty(t, tt.events(), "repeated events")
		assert.Equal(t, i+2, lookups(tt, "forbidden"))
	}
	tt.clock.Step(warningPeriod)
	for range 2 {
		tt.clock.Step(tt.ec.workloads.retryInterval)
		tt.mustSync()
	}
	assert.Equal(t, []string{"Warning WorkloadForbidden"}, tt.events())
	assert.Equal(t, 1, gauge(tt, "forbidden"))

	// Granted.
	tt.create(custom)
	forbidden = false
	tt.clock.Step(tt.ec.workloads.retryInterval)
	tt.mustSync()
	assert.Equal(t, 0, gauge(tt, "forbidden"))
	assert.Empty(t, tt.events())

	// Revoked. This is a new problem.
	forbidden = true
	tt.clock.Step(tt.ec.workloads.lookupInterval)
	tt.mustSync()
	assert.Equal(t, []string{"Warning WorkloadForbidden"}, tt.events())
	assert.Equal(t, 1, gauge(tt, "forbidden"))

	// Someone removes the reservation.
	tt.setClaim(anyPodClaim(customRef))
	assert.Equal(t, 0, gauge(tt, "forbidden"))
	tt.mustSync()
	tt.clock.Step(tt.ec.workloads.releasePause)
	tt.mustSync()
	assert.Equal(t, []string{"Normal ReservationReleased", "Normal Deallocated"}, tt.events())
	assert.Empty(t, tt.ec.workloads.claims)
}

// TestNoticePods checks that users get told when pods keep using a claim.
func TestNoticePods(t *testing.T) {
	tt := newWorkloadTest(t, workloadsEnabled, workloadClaim(jobRef), completeJob, terminatingPod)

	assert.Equal(t, tt.ec.workloads.noticePeriod, tt.mustSync())
	assert.Empty(t, tt.events())
	assert.Equal(t, 1, gauge(tt, "pods"))
	tt.clock.Step(tt.ec.workloads.noticePeriod)
	assert.Equal(t, time.Duration(0), tt.mustSync())
	assert.Equal(t, []string{"Normal WaitingForPods"}, tt.events())
	tt.mustSync()
	assert.Empty(t, tt.events())

	// Some other workload without such a problem.
	tt.setClaim(deleted(workloadClaim(jobRef)))
	assert.Equal(t, 1, gauge(tt, "pods"))

	// The claim is not reserved, but cannot be removed either.
	tt.setClaim(deleted(anyPodClaim(jobRef)))
	assert.Equal(t, 0, gauge(tt, "pods"))
	tt.mustSync()
	tt.clock.Step(tt.ec.workloads.releasePause)
	assert.Equal(t, tt.ec.workloads.pollInterval, tt.mustSync())
	assert.Equal(t, []string{"Normal ReservationReleased"}, tt.events())
	assert.Equal(t, 1, gauge(tt, "pods_deleted_claim"))
	tt.clock.Step(tt.ec.workloads.noticePeriod)
	tt.mustSync()
	assert.Equal(t, []string{"Normal WaitingForPods"}, tt.events())

	// Removed by force.
	tt.ec.enqueueResourceClaim(tt.Logger(), tt.getClaim(), nil)
	assert.Equal(t, 0, gauge(tt, "pods_deleted_claim"))
	assert.Empty(t, tt.ec.workloads.claims)
}

// TestWithoutWatching checks that built-in kinds are supported also without
// informers, and that all others are kept.
func TestWithoutWatching(t *testing.T) {
	for name, test := range map[string]struct {
		ref     resourceapi.ResourceClaimConsumerReference
		objects []runtime.Object
		keep    bool
	}{
		"job-active": {ref: jobRef, objects: []runtime.Object{job}, keep: true},
		"job-gone":   {ref: jobRef},
		"custom":     {ref: customRef, keep: true},
	} {
		t.Run(name, func(t *testing.T) {
			tt := newWorkloadTest(t, workloadsEnabled, append(test.objects, workloadClaim(test.ref))...)
			clear(tt.ec.workloads.informers)
			tt.ec.workloads.restMapper = nil
			tt.ec.workloads.dynamicClient = nil
			delay := tt.mustSync()
			assert.Equal(t, test.keep, len(tt.getClaim().Status.ReservedFor) > 0, "reserved")
			assert.Equal(t, test.keep, delay > 0, "checked again after %s", delay)
		})
	}
}

// TestDisabledNotice checks that users get told what to do about a claim which
// remains reserved because the feature is disabled.
func TestDisabledNotice(t *testing.T) {
	tt := newWorkloadTest(t, Features{}, workloadClaim(customRef))
	tt.mustSync()
	select {
	case event := <-tt.recorder.Events:
		for _, expect := range []string{"trainings.example.com", workloadName, "DRAReservedForWorkloads", "kube-controller-manager", "status.reservedFor"} {
			assert.Contains(t, event, expect)
		}
	default:
		t.Error("expected an event")
	}

	// Once.
	tt.clock.Step(tt.ec.workloads.retryInterval)
	tt.mustSync()
	assert.Empty(t, tt.events())
}
