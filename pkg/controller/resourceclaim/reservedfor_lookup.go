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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	resourceclaimmetrics "k8s.io/kubernetes/pkg/controller/resourceclaim/metrics"
	"k8s.io/kubernetes/pkg/controller/resourceclaim/retention"
)

// This file is about retrieving workloads from the API server. Whoever can
// create claims and pods decides what gets looked up here, so everything is
// limited: requests, fairly between namespaces, and what gets remembered.

const (
	// maxNamespaceBytes limits what each cache remembers about one namespace,
	// maxCacheBytes what it remembers at all.
	maxNamespaceBytes = 256 * 1024
	maxCacheBytes     = 16 * 1024 * 1024
	// maxLookupBytes is for the cache whose entries are named in claims, not in pods. There
	// are not more of them than claims.
	maxLookupBytes = 4 * 1024 * 1024
	// maxStrandedBytes is for the cache whose entries are for pods that exist, some 80,000 of them. What informers
	// have of each is several times as much.
	maxStrandedBytes = 32 * 1024 * 1024
	// maxUnknownInterval is the longest time before trying again whether
	// the API server now has a resource.
	maxUnknownInterval = 5 * time.Minute
	// mapperResetInterval is the minimum time between two times that all
	// resources get retrieved from the API server.
	mapperResetInterval = 30 * time.Second
	// lookupTimeout limits how long a worker waits for an object, for example behind
	// a conversion webhook which does not answer. All claims share the workers.
	lookupTimeout = 5 * time.Second
)

// workloadKey identifies an object independent of its incarnation.
type workloadKey struct {
	schema.GroupResource
	types.NamespacedName
}

func (r workloadRef) key() workloadKey {
	return workloadKey{r.groupResource(), types.NamespacedName{Namespace: r.namespace, Name: r.Name}}
}

// lookupResult is what a lookup found out about the current incarnation or, if
// there is no observed workload, about all of them.
type lookupResult struct {
	at time.Time
	// uid is that of the incarnation which was asked for.
	uid      types.UID
	observed *observedWorkload
	status   workloadStatus
}

// size returns the number of bytes of the strings in the result.
func (r *lookupResult) size() int {
	n := len(r.uid) + len(r.status.explanation)
	if o := r.observed; o != nil {
		n += len(o.uid) + len(o.status.explanation)
		if c := o.controller; c != nil {
			n += len(c.APIVersion) + len(c.Kind) + len(c.Name) + len(c.UID)
		}
	}
	return n
}

func (r *lookupResult) statusOf(uid types.UID) workloadStatus {
	if r.observed != nil {
		return r.observed.statusOf(uid)
	}
	return r.status
}

// recentStatus returns what is known without asking the API server because
// it was asked a short while ago, nil if nothing.
func (w *workloads) recentStatus(ref workloadRef, maxAge time.Duration) *workloadStatus {
	if unknown, wait := w.unknownResource(ref.namespace, ref.groupResource()); wait > 0 {
		return &workloadStatus{
			state:       retention.UnknownResource,
			explanation: fmt.Sprintf("cannot be checked: %v", unknown),
			checkAfter:  wait,
		}
	}
	result, ok := w.lookups.Get(ref.namespace, ref.key())
	if !ok {
		return nil
	}
	status := result.statusOf(ref.UID)
	age := w.clock.Since(result.at)
	switch status.state {
	case retention.Active:
		if age >= maxAge {
			return nil
		}
		status.checkAfter = max(maxAge-age, w.lookupInterval)
	case retention.Forbidden, retention.UnknownResource:
		if age >= w.retryInterval {
			return nil
		}
		status.checkAfter = w.retryInterval
	case retention.Done:
		// Any other incarnation might be too new for that. A claim is reviewed before its
		// pods are listed and again after that: the second review needs no request.
		if result.uid != ref.UID || status.mayResume {
			return nil
		}
	default:
		return nil
	}
	return &status
}

// lookUpWorkload retrieves the workload from the API server. It must only be
// called if there is no recent result. An error is also reflected in the
// status.
func (ec *Controller) lookUpWorkload(ctx context.Context, ref workloadRef) (*lookupResult, error) {
	w := ec.workloads
	// Kinds which are watched do not have to be polled, so usually they are done
	// when this gets called.
	if w.informers[ref.groupResource()] == nil {
		if wait := w.limiter.TryAccept(ref.namespace); wait > 0 {
			return deferredLookup(wait), nil
		}
	}

	result := &lookupResult{at: w.clock.Now(), uid: ref.UID}
	observed, err := ec.getWorkload(ctx, ref.groupResource(), ref.namespace, ref.Name)
	var deferred lookupDeferredError
	switch {
	case errors.As(err, &deferred):
		return deferredLookup(deferred.after), nil
	case err == nil:
		result.observed = observed
		result.observed.status.checkAfter = w.pollInterval
	case apierrors.IsForbidden(err):
		result.status = workloadStatus{state: retention.Forbidden, checkAfter: w.retryInterval,
			explanation: fmt.Sprintf("cannot be checked because the resourceclaim controller is not allowed to get %s", ref.groupResource())}
	case isUnknownResource(err):
		_, wait := w.unknownResource(ref.namespace, ref.groupResource())
		result.status = workloadStatus{state: retention.UnknownResource, checkAfter: max(wait, w.retryInterval),
			explanation: fmt.Sprintf("cannot be checked: %v", err)}
	case apierrors.IsNotFound(err):
		result.status = workloadStatus{state: retention.Done, explanation: "does not exist anymore"}
	default:
		resourceclaimmetrics.WorkloadLookups.WithLabelValues("error").Inc()
		result.status = workloadStatus{state: retention.Failed, checkAfter: w.retryInterval}
		return result, fmt.Errorf("look up %s: %w", ref, err)
	}

	status := result.statusOf(ref.UID)
	resourceclaimmetrics.WorkloadLookups.WithLabelValues(string(status.state)).Inc()
	klog.FromContext(ctx).V(5).Info("Looked up workload", "workload", ref, "state", status.state, "explanation", status.explanation)
	remember := w.retryInterval
	if status.state == retention.Done && !status.mayResume && ref.UID != "" {
		// It stays that way. With many claims to release, it takes minutes until the next look at one of them.
		remember = doneInterval
	}
	w.lookups.Add(ref.namespace, ref.key(), result, remember)
	return result, nil
}

// deferredLookup is the result if the workload has to be looked up later.
func deferredLookup(after time.Duration) *lookupResult {
	return &lookupResult{status: workloadStatus{state: retention.Deferred, checkAfter: after,
		explanation: "gets checked later because too many workloads get looked up at the moment"}}
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

// unknownResource remembers that the API server did not have some resource. It is remembered
// for one namespace: whoever can write a claim there decides what gets asked for,
// and the answer may come from something that only serves some namespaces.
type unknownResource struct {
	err      error
	until    time.Time
	failures int
}

// unknownResource returns why the API server does not have some resource and for
// how long to assume that. It returns nil and zero if that is not known.
func (w *workloads) unknownResource(namespace string, resource schema.GroupResource) (error, time.Duration) {
	unknown, ok := w.unknownResources.Get(namespace, resource)
	if !ok {
		return nil, 0
	}
	if wait := unknown.until.Sub(w.clock.Now()); wait > 0 {
		return unknown.err, wait
	}
	return nil, 0
}

// addUnknownResource increases the time until it gets checked again with each
// failure.
func (w *workloads) addUnknownResource(namespace string, resource schema.GroupResource, err error) {
	unknown := unknownResource{err: err}
	if previous, ok := w.unknownResources.Get(namespace, resource); ok {
		unknown.failures = previous.failures + 1
	}
	wait := min(w.retryInterval<<min(unknown.failures, 10), maxUnknownInterval)
	unknown.until = w.clock.Now().Add(wait)
	w.unknownResources.Add(namespace, resource, &unknown, 2*maxUnknownInterval)
}

// resetMapper makes the mapper forget all resources. It returns false if that was
// done recently.
func (w *workloads) resetMapper() bool {
	w.mutex.Lock()
	now := w.clock.Now()
	reset := w.mapperReset.IsZero() || now.Sub(w.mapperReset) >= mapperResetInterval
	if reset {
		w.mapperReset = now
	}
	w.mutex.Unlock()
	if reset {
		meta.MaybeResetRESTMapper(w.restMapper)
	}
	return reset
}

// getWorkload retrieves an object from the API server. Which API version gets
// used is undefined because only metadata and conditions matter.
func (ec *Controller) getWorkload(ctx context.Context, resource schema.GroupResource, namespace, name string) (*observedWorkload, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	w := ec.workloads
	for _, kind := range w.kinds {
		if kind.resource == resource {
			return ec.getBuiltinWorkload(ctx, kind, namespace, name)
		}
	}

	if !ec.features.ReservedForWorkloads {
		return nil, errDisabled
	}
	if w.restMapper == nil || w.dynamicClient == nil {
		return nil, &meta.NoResourceMatchError{PartialResource: resource.WithVersion("")}
	}
	if err, wait := w.unknownResource(namespace, resource); wait > 0 {
		return nil, err
	}
	if !w.limiter.Begin(namespace) {
		return nil, lookupDeferredError{w.lookupInterval}
	}
	defer w.limiter.End(namespace)
	workload, err := ec.getMappedWorkload(ctx, resource, namespace, name)
	if err != nil && isUnknownResource(err) && !errors.Is(err, errNotNamespaced) && w.resetMapper() {
		// The mapper may not know a new resource yet or hold on to a resource
		// or version of it which is gone.
		workload, err = ec.getMappedWorkload(ctx, resource, namespace, name)
	}
	if err != nil && isUnknownResource(err) {
		w.addUnknownResource(namespace, resource, err)
	} else {
		w.unknownResources.Remove(namespace, resource)
	}
	return workload, err
}

func (ec *Controller) getBuiltinWorkload(ctx context.Context, kind *workloadKind, namespace, name string) (*observedWorkload, error) {
	obj, err := kind.get(ctx, ec.kubeClient, namespace, name)
	if err != nil {
		return nil, err
	}
	return observeWorkload(obj), nil
}

func (ec *Controller) getMappedWorkload(ctx context.Context, resource schema.GroupResource, namespace, name string) (*observedWorkload, error) {
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
			return ec.getBuiltinWorkload(ctx, kind, namespace, name)
		}
	}
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return nil, fmt.Errorf("%s: %w", resource, errNotNamespaced)
	}
	obj, err := w.dynamicClient.Resource(mapping.Resource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return observeWorkload(obj), nil
}

// resourceFor returns the resource for an owner reference.
func (w *workloads) resourceFor(gvk schema.GroupVersionKind) (schema.GroupResource, error) {
	for _, kind := range w.kinds {
		if kind.resource.Group == gvk.Group && kind.kind == gvk.Kind {
			return kind.resource, nil
		}
	}
	if w.restMapper == nil {
		return schema.GroupResource{}, &meta.NoKindMatchError{GroupKind: gvk.GroupKind()}
	}
	// The version may be one that is not served anymore.
	mapping, err := w.restMapper.RESTMapping(gvk.GroupKind())
	if meta.IsNoMatchError(err) && w.resetMapper() {
		mapping, err = w.restMapper.RESTMapping(gvk.GroupKind())
	}
	if err != nil {
		return schema.GroupResource{}, err
	}
	return mapping.Resource.GroupResource(), nil
}
