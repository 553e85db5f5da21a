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
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"
	jobutil "k8s.io/kubernetes/pkg/controller/job/util"
	resourceclaimmetrics "k8s.io/kubernetes/pkg/controller/resourceclaim/metrics"
)

// This file is about the objects that a claim can be reserved for instead of
// individual pods, called workloads here. It answers one question about them:
// might this one still start pods?
//
// The built-in kinds are watched. For all other kinds, the object gets retrieved
// when the answer matters, which is only while no pod uses the claim.

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

// workloadState says whether a workload might start more pods.
type workloadState string

const (
	// workloadActive is the state of a workload which might start more pods.
	// This includes one which is suspended or scaled down to zero.
	workloadActive workloadState = "active"

	// workloadDone is the state of a workload which certainly will not start
	// more pods.
	workloadDone workloadState = "done"

	// workloadForbidden is used for a workload that the controller may not get.
	workloadForbidden workloadState = "forbidden"

	// workloadUnknownResource is used when there is no such resource.
	workloadUnknownResource workloadState = "unknown_resource"
)

// workloadStatus is what was found out about a workload.
type workloadStatus struct {
	state workloadState
	// explanation is for users and completes a sentence which starts with the
	// name of the workload.
	explanation string
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
// The metadata client should use the identity of the controller, because that
// is what gets granted access to additional kinds of workloads: a ClusterRole
// which allows to get such objects and has the label
// "rbac.authorization.k8s.io/aggregate-to-resourceclaim-controller" with value
// "true" is all that is needed for supporting some custom resource.
//
// The controller of a custom resource may also remove its reference from
// status.reservedFor itself, once none of its pods runs anymore. Then
// this controller deallocates. For that it needs permission to update or patch
// resourceclaims/status and resourceclaims/binding.
func (ec *Controller) WatchWorkloads(logger klog.Logger, factory informers.SharedInformerFactory, claimInformer cache.SharedIndexInformer, restMapper meta.RESTMapper, metadataClient metadata.Interface) error {
	if !ec.features.ReservedForWorkloads {
		return nil
	}

	w := ec.workloads
	w.restMapper = restMapper
	w.metadataClient = metadataClient

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
				if oldWorkload.GetUID() != newWorkload.GetUID() || workloadStatusOf(newWorkload).state == workloadDone {
					enqueue(oldObj)
				}
			},
			DeleteFunc: enqueue,
		}); err != nil {
			return fmt.Errorf("add event handler for %s: %w", kind.resource, err)
		}
	}
	return nil
}

// workloadsSynced returns true if all informers which were set up by
// WatchWorkloads are ready.
func (ec *Controller) workloadsSynced() bool {
	for _, informer := range ec.workloads.informers {
		if !informer.HasSynced() {
			return false
		}
	}
	return true
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

// claimWorkloadIndexFunc is an index function that returns the workloads that
// a claim is reserved for.
func claimWorkloadIndexFunc(obj interface{}) ([]string, error) {
	claim, ok := obj.(*resourceapi.ResourceClaim)
	if !ok {
		return nil, nil
	}
	var keys []string
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
		return workloadStatus{state: workloadDone, explanation: "is being deleted"}
	}
	if job, ok := obj.(*batchv1.Job); ok {
		if finished, condition := jobutil.FinishedCondition(job); finished {
			return workloadStatus{state: workloadDone, explanation: fmt.Sprintf("has finished (%s)", condition)}
		}
	}
	return workloadStatus{state: workloadActive, explanation: "might start more pods"}
}

func workloadStatusOfIncarnation(obj metav1.Object, ref workloadRef) workloadStatus {
	if obj.GetUID() != ref.UID {
		return workloadStatus{state: workloadDone, explanation: "was replaced by another object of the same name"}
	}
	return workloadStatusOf(obj)
}

// fromInformer returns what the informer cache says. That may be outdated.
// The result is nil for a workload which is not watched.
func (w *workloads) fromInformer(ref workloadRef) (*workloadStatus, error) {
	informer := w.informers[ref.groupResource()]
	if informer == nil {
		return nil, nil
	}
	obj, exists, err := informer.GetIndexer().GetByKey(ref.namespace + "/" + ref.Name)
	if err != nil {
		return nil, err
	}
	if !exists {
		return &workloadStatus{state: workloadDone, explanation: "does not exist anymore"}, nil
	}
	workload, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	status := workloadStatusOfIncarnation(workload, ref)
	return &status, nil
}

// fromRecentLookup returns what was found out by looking up the workload in the
// API server a short while ago, nil if nothing. Whether something is done
// does not get cached.
func (w *workloads) fromRecentLookup(ref workloadRef) *workloadStatus {
	obj, ok := w.lookups.Get(ref)
	if !ok {
		return nil
	}
	return obj.(*workloadStatus)
}

// errTooManyLookups is returned when a workload should be looked up later.
var errTooManyLookups = errors.New("too many workloads get looked up at the moment")

// lookUp retrieves the workload from the API server. The limit for how often
// that may be done only applies to those kinds which have to be polled.
func (ec *Controller) lookUpWorkload(ctx context.Context, ref workloadRef) (workloadStatus, error) {
	w := ec.workloads
	if w.informers[ref.groupResource()] == nil && !w.limiter.TryAccept() {
		return workloadStatus{}, errTooManyLookups
	}

	status, err := ec.retrieveWorkloadStatus(ctx, ref)
	if err != nil {
		resourceclaimmetrics.WorkloadLookups.WithLabelValues("error").Inc()
		return workloadStatus{}, fmt.Errorf("look up %s: %w", ref, err)
	}
	resourceclaimmetrics.WorkloadLookups.WithLabelValues(string(status.state)).Inc()
	klog.FromContext(ctx).V(5).Info("Looked up workload", "workload", ref, "state", status.state, "explanation", status.explanation)

	switch status.state {
	case workloadActive:
		w.lookups.Set(ref, &status, w.lookupInterval)
	case workloadForbidden, workloadUnknownResource:
		w.lookups.Set(ref, &status, w.retryInterval)
	}
	return status, nil
}

func (ec *Controller) retrieveWorkloadStatus(ctx context.Context, ref workloadRef) (workloadStatus, error) {
	obj, err := ec.getWorkload(ctx, ref.groupResource(), ref.namespace, ref.Name)
	switch {
	case err == nil:
		return workloadStatusOfIncarnation(obj, ref), nil
	case apierrors.IsForbidden(err):
		return workloadStatus{state: workloadForbidden, explanation: fmt.Sprintf("cannot be checked because the resourceclaim controller is not allowed to get %s", ref.groupResource())}, nil
	case isUnknownResource(err):
		return workloadStatus{state: workloadUnknownResource, explanation: fmt.Sprintf("cannot be checked: %v", err)}, nil
	case apierrors.IsNotFound(err):
		return workloadStatus{state: workloadDone, explanation: "does not exist anymore"}, nil
	default:
		return workloadStatus{}, err
	}
}

// errDisabled is returned for resources which can only be looked up while the
// feature is enabled.
var errDisabled = errors.New("the DRAReservedForWorkloads feature gate must be enabled in kube-controller-manager for that")

// errNotNamespaced is returned for a resource which exists, but cannot consume
// a claim because it isn't in the namespace of the claim.
var errNotNamespaced = errors.New("resource is not namespaced")

// isUnknownResource recognizes those errors where the object could not be looked
// up because the API server doesn't have such objects. This is not the
// same as "the object was not found", which is what [apierrors.IsNotFound] also
// returns for a request that the API server doesn't know how to handle.
func isUnknownResource(err error) bool {
	if meta.IsNoMatchError(err) || errors.Is(err, errNotNamespaced) || errors.Is(err, errDisabled) {
		return true
	}
	if !apierrors.IsNotFound(err) {
		return false
	}
	// "The server could not find the requested resource"
	if _, ok := apierrors.StatusCause(err, metav1.CauseTypeUnexpectedServerResponse); ok {
		return true
	}
	// Also don't trust a reply which wasn't given by the code which deals with
	// the object: that one names it.
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		details := status.Status().Details
		return details == nil || details.Name == ""
	}
	return true
}

// getWorkload retrieves an object from the API server. Which API version gets
// used is undefined because only metadata matters, except for Jobs.
func (ec *Controller) getWorkload(ctx context.Context, resource schema.GroupResource, namespace, name string) (metav1.Object, error) {
	w := ec.workloads
	for _, kind := range w.kinds {
		if kind.resource == resource {
			return kind.get(ctx, ec.kubeClient, namespace, name)
		}
	}

	if !ec.features.ReservedForWorkloads {
		return nil, errDisabled
	}
	if w.restMapper == nil || w.metadataClient == nil {
		return nil, &meta.NoResourceMatchError{PartialResource: resource.WithVersion("")}
	}
	if err, ok := w.unknownResources.Get(resource); ok {
		return nil, err.(error)
	}
	obj, err := ec.getMappedWorkload(ctx, resource, namespace, name)
	if err != nil && isUnknownResource(err) {
		// The mapper may hold on to a resource or version of it which is
		// gone.
		meta.MaybeResetRESTMapper(w.restMapper)
		// Not finding a mapping can cause the mapper to retrieve all
		// resources. Don't do that for each workload.
		w.unknownResources.Set(resource, err, w.retryInterval)
	}
	return obj, err
}

func (ec *Controller) getMappedWorkload(ctx context.Context, resource schema.GroupResource, namespace, name string) (metav1.Object, error) {
	w := ec.workloads
	gvk, err := w.restMapper.KindFor(resource.WithVersion(""))
	if err != nil {
		return nil, err
	}
	if gvk.Group != resource.Group {
		// An empty group matches any group. That's not what it means in a
		// reference.
		return nil, &meta.NoResourceMatchError{PartialResource: resource.WithVersion("")}
	}
	mapping, err := w.restMapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, err
	}
	for _, kind := range w.kinds {
		if kind.resource == mapping.Resource.GroupResource() {
			// The singular name of a built-in kind.
			return kind.get(ctx, ec.kubeClient, namespace, name)
		}
	}
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return nil, fmt.Errorf("%s: %w", resource, errNotNamespaced)
	}
	return w.metadataClient.Resource(mapping.Resource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
}

// controllerOf determines what controls the object in the owner reference. The
// result is nil if there is no such controller or it cannot be determined.
func (ec *Controller) controllerOf(ctx context.Context, namespace string, owner *metav1.OwnerReference) (*metav1.OwnerReference, error) {
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return nil, nil
	}
	resource, err := ec.workloads.resourceFor(gv.WithKind(owner.Kind))
	if err != nil {
		if meta.IsNoMatchError(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("determine resource for owner %s of kind %s: %w", owner.Name, owner.Kind, err)
	}
	obj, err := ec.getWorkload(ctx, resource, namespace, owner.Name)
	switch {
	case err == nil:
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err), isUnknownResource(err):
		return nil, nil
	default:
		return nil, fmt.Errorf("get %s %s: %w", resource, owner.Name, err)
	}
	if obj.GetUID() != owner.UID {
		return nil, nil
	}
	return metav1.GetControllerOf(obj), nil
}

func (w *workloads) resourceFor(gvk schema.GroupVersionKind) (schema.GroupResource, error) {
	for _, kind := range w.kinds {
		if kind.resource.Group == gvk.Group && kind.kind == gvk.Kind {
			return kind.resource, nil
		}
	}
	if w.restMapper == nil {
		return schema.GroupResource{}, &meta.NoKindMatchError{GroupKind: gvk.GroupKind()}
	}
	mapping, err := w.restMapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return schema.GroupResource{}, err
	}
	return mapping.Resource.GroupResource(), nil
}

// Defaults for the intervals in workloads. Together they ensure that devices
// are free within ten seconds after the last pod is gone.
const (
	// defaultReleasePause is the time between removing the last reservation
	// and deallocating a claim.
	defaultReleasePause = 5 * time.Second

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

	// lookupsPerSecond and lookupsBurst limit polling.
	lookupsPerSecond = 10
	lookupsBurst     = 50
)
