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
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"
	jobutil "k8s.io/kubernetes/pkg/controller/job/util"
	"k8s.io/kubernetes/pkg/controller/resourceclaim/retention"
)

// This file is about the objects that a claim can be reserved for instead of
// individual pods, called workloads here, and how they get watched.
//
// The built-in kinds are watched. For all other kinds, the object gets retrieved
// when it matters whether it might still start pods, which is usually only
// while no pod uses the claim.

// claimWorkloadIndex is used to find ResourceClaims which are reserved for a
// workload. Values for this index are those from workloadIndexKey.
const claimWorkloadIndex = "claimWorkload"

// workloadKind describes one of the built-in kinds.
type workloadKind struct {
	resource schema.GroupResource
	kind     string
	// informer is nil for a kind which cannot be watched.
	informer func(factory informers.SharedInformerFactory) cache.SharedIndexInformer
	get      func(ctx context.Context, client clientset.Interface, namespace, name string) (metav1.Object, error)
}

// builtinWorkloadKinds returns the kinds which are supported without having to
// ask the API server what they are. kube-controller-manager watches all of
// them already for other controllers, so using the shared informers for complete
// objects is cheaper than watching only their metadata.
func builtinWorkloadKinds(features Features) []*workloadKind {
	kinds := []*workloadKind{
		{
			resource: batchv1.Resource("jobs"),
			kind:     "Job",
			informer: func(factory informers.SharedInformerFactory) cache.SharedIndexInformer {
				return factory.Batch().V1().Jobs().Informer()
			},
			get: func(ctx context.Context, client clientset.Interface, namespace, name string) (metav1.Object, error) {
				return client.BatchV1().Jobs(namespace).Get(ctx, name, metav1.GetOptions{})
			},
		},
		{
			resource: batchv1.Resource("cronjobs"),
			kind:     "CronJob",
			informer: func(factory informers.SharedInformerFactory) cache.SharedIndexInformer {
				return factory.Batch().V1().CronJobs().Informer()
			},
			get: func(ctx context.Context, client clientset.Interface, namespace, name string) (metav1.Object, error) {
				return client.BatchV1().CronJobs(namespace).Get(ctx, name, metav1.GetOptions{})
			},
		},
		{
			resource: appsv1.Resource("deployments"),
			kind:     "Deployment",
			informer: func(factory informers.SharedInformerFactory) cache.SharedIndexInformer {
				return factory.Apps().V1().Deployments().Informer()
			},
			get: func(ctx context.Context, client clientset.Interface, namespace, name string) (metav1.Object, error) {
				return client.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
			},
		},
		{
			resource: appsv1.Resource("statefulsets"),
			kind:     "StatefulSet",
			informer: func(factory informers.SharedInformerFactory) cache.SharedIndexInformer {
				return factory.Apps().V1().StatefulSets().Informer()
			},
			get: func(ctx context.Context, client clientset.Interface, namespace, name string) (metav1.Object, error) {
				return client.AppsV1().StatefulSets(namespace).Get(ctx, name, metav1.GetOptions{})
			},
		},
		{
			resource: appsv1.Resource("replicasets"),
			kind:     "ReplicaSet",
			informer: func(factory informers.SharedInformerFactory) cache.SharedIndexInformer {
				return factory.Apps().V1().ReplicaSets().Informer()
			},
			get: func(ctx context.Context, client clientset.Interface, namespace, name string) (metav1.Object, error) {
				return client.AppsV1().ReplicaSets(namespace).Get(ctx, name, metav1.GetOptions{})
			},
		},
		{
			resource: appsv1.Resource("daemonsets"),
			kind:     "DaemonSet",
			informer: func(factory informers.SharedInformerFactory) cache.SharedIndexInformer {
				return factory.Apps().V1().DaemonSets().Informer()
			},
			get: func(ctx context.Context, client clientset.Interface, namespace, name string) (metav1.Object, error) {
				return client.AppsV1().DaemonSets(namespace).Get(ctx, name, metav1.GetOptions{})
			},
		},
	}
	return append(kinds, podGroupWorkloadKinds(features)...)
}

// workloadStatus is what was found out about a workload.
type workloadStatus struct {
	state retention.State
	// explanation is for users and completes a sentence which starts with the
	// name of the workload.
	explanation string
	// mayResume is set for a workload which is done only as long as nobody changes its status.
	mayResume bool
	// checkAfter is how long to wait before looking again.
	checkAfter time.Duration
}

// observedWorkload is what is needed of an object in the API server or a cache. The
// rest of it does not get kept in memory.
type observedWorkload struct {
	uid        types.UID
	controller *metav1.OwnerReference
	status     workloadStatus
}

func observeWorkload(obj metav1.Object) *observedWorkload {
	return &observedWorkload{uid: obj.GetUID(), controller: metav1.GetControllerOf(obj), status: workloadStatusOf(obj)}
}

// statusOf returns the status of one incarnation.
func (o *observedWorkload) statusOf(uid types.UID) workloadStatus {
	if o.uid != uid {
		return workloadStatus{state: retention.Done, explanation: "was replaced by another object of the same name"}
	}
	return o.status
}

// workloadRef identifies one incarnation of a workload. Can be used as key.
type workloadRef struct {
	namespace string
	resourceapi.ResourceClaimConsumerReference
}

// String returns the form that is used in messages for users.
func (r workloadRef) String() string {
	return fmt.Sprintf("%s %q (UID %s)", r.groupResource(), r.Name, r.UID)
}

func (r workloadRef) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.APIGroup, Resource: r.Resource}
}

// WatchWorkloads provides what is needed to find out about the objects other
// than pods that a claim may be reserved for. It must be called before the
// informers get started. It does nothing unless the feature is enabled. Without
// it, the controller has to poll the built-in kinds of workloads and cannot
// look up any other kind. That is enough for those claims which were reserved
// before the feature got disabled.
//
// The dynamic client should use the identity of the controller, because that
// is what gets granted access to additional kinds of workloads: a ClusterRole
// which allows to get such objects and has the label
// "rbac.authorization.k8s.io/aggregate-to-resourceclaim-controller" with value
// "true" is all that is needed for supporting some custom resource.
//
// The controller of a custom resource may also remove its reference from
// status.reservedFor itself, once none of its pods runs anymore. Then
// this controller deallocates. For that it needs permission to update or patch
// resourceclaims/status and resourceclaims/binding.
//
// The REST mapper must not be shared with others because it gets reset when a
// resource is not found.
func (ec *Controller) WatchWorkloads(logger klog.Logger, factory informers.SharedInformerFactory, claimInformer cache.SharedIndexInformer, restMapper meta.RESTMapper, dynamicClient dynamic.Interface) error {
	if !ec.features.ReservedForWorkloads {
		return nil
	}

	w := ec.workloads
	w.restMapper = restMapper
	w.dynamicClient = dynamicClient
	w.nodes = factory.Core().V1().Nodes().Informer()

	if err := claimInformer.AddIndexers(cache.Indexers{claimWorkloadIndex: claimWorkloadIndexFunc}); err != nil {
		return fmt.Errorf("add index of ResourceClaims by workload: %w", err)
	}
	claimIndexer := claimInformer.GetIndexer()

	for _, kind := range w.kinds {
		if kind.informer == nil {
			continue
		}
		informer := kind.informer(factory)
		w.informers[kind.resource] = informer
		enqueue := func(obj interface{}) {
			ec.enqueueClaimsOfWorkload(logger, claimIndexer, kind.resource, obj)
		}
		if err := addEventHandler(logger, informer, cache.ResourceEventHandlerFuncs{
			// A new workload isn't interesting: it's not a reason for
			// releasing a claim.
			UpdateFunc: func(oldObj, newObj interface{}) {
				oldWorkload, oldErr := meta.Accessor(oldObj)
				newWorkload, newErr := meta.Accessor(newObj)
				if oldErr != nil || newErr != nil {
					return
				}
				if oldWorkload.GetUID() != newWorkload.GetUID() || workloadStatusOf(newWorkload).state == retention.Done {
					enqueue(oldObj)
				}
				if !apiequality.Semantic.DeepEqual(metav1.GetControllerOfNoCopy(oldWorkload), metav1.GetControllerOfNoCopy(newWorkload)) {
					ec.enqueuePodsOfWorkload(logger, newWorkload)
				}
			},
			DeleteFunc: enqueue,
		}); err != nil {
			return fmt.Errorf("add event handler for %s: %w", kind.resource, err)
		}
	}
	return ec.watchClasses(logger, factory)
}

// workloadsSynced returns true if all informers which were set up by
// WatchWorkloads are ready.
func (ec *Controller) workloadsSynced() bool {
	for _, informer := range ec.workloads.informers {
		if !informer.HasSynced() {
			return false
		}
	}
	return ec.workloads.nodes == nil || ec.workloads.nodes.HasSynced()
}

// enqueueClaimsOfWorkload causes those claims to be checked which are reserved
// for an object with the given name.
func (ec *Controller) enqueueClaimsOfWorkload(logger klog.Logger, claimIndexer cache.Indexer, resource schema.GroupResource, obj interface{}) {
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = d.Obj
	}
	workload, err := meta.Accessor(obj)
	if err != nil {
		logger.Error(err, "Unexpected object in event about workload", "type", fmt.Sprintf("%T", obj))
		return
	}
	claims, err := claimIndexer.ByIndex(claimWorkloadIndex, workloadIndexKey(resource, workload.GetNamespace(), workload.GetName()))
	if err != nil {
		logger.Error(err, "Unable to list claims for workload", "resource", resource, "workload", klog.KObj(workload))
		return
	}
	for _, obj := range claims {
		claim, ok := obj.(*resourceapi.ResourceClaim)
		if !ok {
			continue
		}
		logger.V(5).Info("Enqueueing claim because its workload changed", "claim", klog.KObj(claim), "resource", resource, "workload", klog.KObj(workload))
		ec.queue.Add(claimKeyPrefix + claim.Namespace + "/" + claim.Name)
	}
}

// enqueuePodsOfWorkload gets called when something which controls pods, for example
// a ReplicaSet, was adopted. Pods which are running already then belong to another
// workload than before, which has to be listed as long as it exists. Nothing
// about the pods changed and no new one might ever get scheduled. Pods which wait may now
// have the consumer that their template wants.
func (ec *Controller) enqueuePodsOfWorkload(logger klog.Logger, workload metav1.Object) {
	pods, err := ec.podLister.Pods(workload.GetNamespace()).List(labels.Everything())
	if err != nil {
		logger.Error(err, "Unable to list pods of workload", "workload", klog.KObj(workload))
		return
	}
	for _, pod := range pods {
		if pod.Spec.NodeName == "" && !lacksClaim(pod) || len(pod.Spec.ResourceClaims) == 0 || isPodDone(pod) || !metav1.IsControlledBy(pod, workload) {
			continue
		}
		logger.V(5).Info("Enqueueing pod because its workload was adopted", "pod", klog.KObj(pod), "workload", klog.KObj(workload))
		ec.queue.Add(podKeyPrefix + pod.Namespace + "/" + pod.Name)
	}
}

// claimWorkloadIndexFunc is an index function that returns the workloads that
// a claim is reserved for.
func claimWorkloadIndexFunc(obj interface{}) ([]string, error) {
	claim, ok := obj.(*resourceapi.ResourceClaim)
	if !ok {
		return nil, nil
	}
	var keys []string
	if generatedFor := resourceclaim.GeneratedForOf(claim); generatedFor != nil {
		// Also as long as it is not reserved.
		keys = append(keys, workloadIndexKey(generatedFor.GroupResource, claim.Namespace, generatedFor.Name))
	}
	for _, ref := range claim.Status.ReservedFor {
		if !resourceclaim.IsPodReference(ref) {
			keys = append(keys, workloadIndexKey(schema.GroupResource{Group: ref.APIGroup, Resource: ref.Resource}, claim.Namespace, ref.Name))
		}
	}
	return keys, nil
}

// workloadIndexKey intentionally doesn't contain the UID: an event about a
// new incarnation may be all that is seen when a workload gets replaced.
func workloadIndexKey(resource schema.GroupResource, namespace, name string) string {
	return resource.String() + "/" + namespace + "/" + name
}

// workloadStatusOf determines the status of an object that exists.
func workloadStatusOf(obj metav1.Object) workloadStatus {
	if obj.GetDeletionTimestamp() != nil {
		return workloadStatus{state: retention.Done, explanation: "is being deleted"}
	}
	switch obj := obj.(type) {
	case *batchv1.Job:
		if finished, condition := jobutil.FinishedCondition(obj); finished {
			return workloadStatus{state: retention.Done, explanation: fmt.Sprintf("has finished (%s)", condition)}
		}
	case *unstructured.Unstructured:
		if end := finished(obj); end != "" {
			// In contrast to a Job, nothing prevents a change of that status.
			return workloadStatus{state: retention.Done, mayResume: true, explanation: fmt.Sprintf("has finished (%s)", end)}
		}
	}
	return workloadStatus{state: retention.Active, explanation: "might start more pods"}
}

// fromInformer returns what the informer cache says. That may be outdated.
// The result is nil for a workload which is not watched.
func (w *workloads) fromInformer(ref workloadRef) (*workloadStatus, error) {
	informer := w.informers[ref.groupResource()]
	if informer == nil {
		return nil, nil
	}
	workload, err := getFromInformer(informer, ref.namespace, ref.Name)
	if err != nil {
		return nil, err
	}
	if workload == nil {
		return &workloadStatus{state: retention.Done, explanation: "does not exist anymore"}, nil
	}
	if workload.GetUID() != ref.UID {
		status := (&observedWorkload{uid: workload.GetUID()}).statusOf(ref.UID)
		return &status, nil
	}
	status := workloadStatusOf(workload)
	return &status, nil
}

// getFromInformer returns nil for an object which is not in the cache.
func getFromInformer(informer cache.SharedIndexInformer, namespace, name string) (metav1.Object, error) {
	obj, exists, err := informer.GetIndexer().GetByKey(namespace + "/" + name)
	if err != nil || !exists {
		return nil, err
	}
	return meta.Accessor(obj)
}

// Defaults for the intervals in workloads. Together they ensure that devices are free within a second
// after a workload which is done and its last pod is gone, and within ten seconds otherwise.
const (
	// defaultReleasePause is the time between removing the last reservation
	// and deallocating a claim.
	defaultReleasePause = 5 * time.Second

	// defaultEndPause is the same for a claim that no pod may be about to use.
	defaultEndPause = 500 * time.Millisecond

	// defaultNominatedPause is for how long deallocating a claim gets put off
	// at most because a pod might be on its way to a node. The
	// scheduler itself waits at most that long for binding volumes before it
	// binds the pod, and less than that for other things like the rest
	// of a gang. Whatever takes longer starts over.
	defaultNominatedPause = 10 * time.Minute

	// defaultPollInterval determines how often those workloads get looked up
	// which might start more pods and cannot be watched. This
	// is only necessary while no pod uses the claim.
	defaultPollInterval = 10 * time.Second

	// defaultLookupInterval is the minimum time between two lookups of the same
	// workload.
	defaultLookupInterval = time.Second

	// defaultRetryInterval determines how often those workloads get looked up
	// where that wasn't possible.
	defaultRetryInterval = 30 * time.Second

	// defaultNoticePeriod is how long pods may keep using a claim after the
	// workload is done before an event explains what is going on. Usually
	// the pods are gone sooner.
	defaultNoticePeriod = time.Minute

	// warningPeriod is when a warning about a claim gets repeated if it still applies. The
	// API server keeps events for one hour by default.
	warningPeriod = time.Hour

	// lookupsPerSecond limits polling, for all namespaces together. It's half
	// of the default limit of the client: others need requests, too.
	lookupsPerSecond = 10
)
