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
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"
	resourceclaimmetrics "k8s.io/kubernetes/pkg/controller/resourceclaim/metrics"
	"k8s.io/kubernetes/pkg/controller/resourceclaim/owners"
	"k8s.io/kubernetes/pkg/controller/resourceclaim/retention"
	"k8s.io/utils/ptr"
)

// This file generates one claim for all pods of a consumer, from a template with
// spec.spec.reservedFor. The name of the claim follows from the consumer, so two
// controllers which create it at the same time make one.
//
// Thousands of pods may need the same claim. One of them creates it while the others wait
// without blocking a worker. They do not return errors either: retries because
// of an error are limited for the whole controller.

const (
	// generatedInterval is how long it is assumed that a claim exists which was created and
	// which the informer does not have. After that, the API server knows better.
	generatedInterval = time.Minute
	// foreignInterval is how long to wait before looking again at a claim that is in the way.
	// Usually its removal is seen.
	foreignInterval = 5 * time.Minute
	// minGenerateBackOff is the time after the first failure.
	minGenerateBackOff = time.Second
	// failuresPerSecond limits the requests of namespaces where claims could not be created, for all of them
	// together: many consumers whose claims a quota refuses must not take all requests of the client. An
	// event may follow each.
	failuresPerSecond = 5
	// failureInterval is how long a namespace is such a one after a failure. A namespace with many of them
	// has the next failure before that.
	failureInterval = 10 * time.Second
	// consumerGracePeriod is how old a pod must be before its user is told that an owner does
	// not exist. Informers and the pod's author may need some time.
	consumerGracePeriod = 30 * time.Second
	// maxReports is how many pods of one consumer get an event about the same problem in
	// reportInterval. Events of all pods would take the requests that claims need.
	maxReports     = 10
	reportInterval = time.Hour
)

// reasonNotGenerated is used for an event about a pod whose claim cannot be generated.
const reasonNotGenerated = "FailedResourceClaimCreation"

// extendedResourceAnnotation is the key of upstream's annotation of a claim that the scheduler made
// for one pod, and which it deletes. A template must not bring it into the claim of several.
const extendedResourceAnnotation = "resource.kubernetes.io/extended-resource-claim"

// generatedClaim is what is remembered about a claim that has to be created, or was a short
// while ago.
type generatedClaim struct {
	// creating is true while a worker creates it.
	creating bool
	// created is when that was done, zero if it was not.
	created time.Time
	// notBefore is when to try again after failures.
	notBefore time.Time
	failures  int
	// dropped is true if the API server made another claim than it should. That one gets deleted
	// again, which must not be the reason for trying again before notBefore.
	dropped bool
	// waiting are the names of the pods which have to be processed again.
	waiting map[string]bool
}

// reportKey identifies a problem of the pods of a consumer.
type reportKey struct {
	consumer types.UID
	entry    string
	reason   string
}

func (k reportKey) size(int) int { return len(k.consumer) + len(k.entry) + len(k.reason) }

// generateClaim ensures that the claim exists which a pod shares with others because of its
// template. It returns false if this is not such a template.
func (ec *Controller) generateClaim(ctx context.Context, pod *v1.Pod, podClaim v1.PodResourceClaim, newPodClaims *map[string]string) bool {
	template, err := ec.templateLister.ResourceClaimTemplates(pod.Namespace).Get(*podClaim.ResourceClaimTemplateName)
	var name string
	switch {
	case err != nil && !ec.features.ReservedForWorkloads:
		// Looking for owners would cost requests.
		return false
	case err != nil:
		// Others of the same consumer may have got it before the template was removed.
		if name = ec.findGenerated(ctx, pod, podClaim); name == "" {
			return false
		}
	case template.Spec.Spec.ReservedFor == nil:
		return false
	case !ec.features.ReservedForWorkloads:
		ec.reportPod(ctx, pod, podClaim.Name, "disabled", fmt.Sprintf("ResourceClaimTemplate %q has spec.spec.reservedFor, but the DRAReservedForWorkloads feature gate is disabled in kube-controller-manager", template.Name))
		return true
	default:
		consumer, err := ec.findConsumer(ctx, pod, template.Spec.Spec.ReservedFor)
		if err != nil {
			ec.noConsumer(ctx, pod, podClaim.Name, template, err)
			return true
		}
		if name = ec.ensureGenerated(ctx, pod, podClaim.Name, template, consumer); name == "" {
			return true
		}
	}

	if told, _, err := resourceclaim.Name(pod, &podClaim); err == nil && ptr.Deref(told, "") == name {
		return true
	}
	if *newPodClaims == nil {
		*newPodClaims = make(map[string]string)
	}
	(*newPodClaims)[podClaim.Name] = name
	return true
}

// findGenerated returns the name of the claim which was generated for one of the controllers of a
// pod, or for the pod itself, from a template that does not exist anymore.
func (ec *Controller) findGenerated(ctx context.Context, pod *v1.Pod, podClaim v1.PodResourceClaim) string {
	find := func(name string, uid types.UID) string {
		generatedFor := resourceclaim.GeneratedFor{Name: name, UID: uid, Template: *podClaim.ResourceClaimTemplateName}
		claim, err := ec.claimLister.ResourceClaims(pod.Namespace).Get(generatedFor.ClaimName(podClaim.Name))
		if err != nil || !isGeneratedFor(claim, generatedFor) {
			return ""
		}
		return claim.Name
	}
	for owner, err := range ec.controllersOf(ctx, pod) {
		if err != nil {
			break
		}
		if name := find(owner.Name, owner.UID); name != "" {
			return name
		}
	}
	return find(pod.Name, pod.UID)
}

// isGeneratedFor returns true for a claim with the mark of a certain consumer and template. The
// name of the claim must have been checked by the caller.
func isGeneratedFor(claim *resourceapi.ResourceClaim, generatedFor resourceclaim.GeneratedFor) bool {
	mark := resourceclaim.GeneratedForOf(claim)
	return mark != nil && mark.UID == generatedFor.UID && mark.Template == generatedFor.Template
}

// ensureGenerated returns the name of the claim if it exists. Otherwise the pod gets processed again
// when it does.
func (ec *Controller) ensureGenerated(ctx context.Context, pod *v1.Pod, entry string, template *resourceapi.ResourceClaimTemplate, c *consumer) string {
	generatedFor := c.generatedFor(template.Name)
	name := generatedFor.ClaimName(entry)
	key := types.NamespacedName{Namespace: pod.Namespace, Name: name}
	claim, err := ec.claimLister.ResourceClaims(pod.Namespace).Get(name)
	if err == nil && isGeneratedFor(claim, generatedFor) && mustReplace(claim, template, c) == nil {
		// It may be in deletion. That must not be hidden from those pods which cannot use it:
		// they get another one when it is gone, because they have its name.
		return name
	}
	if exists, mayCreate := ec.workloads.beginGenerate(key, pod.Name); exists {
		return name
	} else if !mayCreate {
		return ""
	}

	reason, delay, err := ec.createGenerated(ctx, key, template, entry, c)
	if err == nil {
		ec.wakePods(key.Namespace, ec.workloads.generateSucceeded(key))
		// Normally the claim is seen before that, and forgotten.
		ec.notifyClaim(key, generatedInterval)
		return name
	}
	delay = ec.workloads.generateFailed(key, pod.Name, delay, reason == reasonDropped)
	klog.FromContext(ctx).V(4).Info("Cannot generate claim", "claim", key, "consumer", c.workloadRef, "err", err, "recheckAfter", delay)
	if reason != "" {
		ec.reportConsumer(ctx, pod, c.UID, entry, reason, fmt.Sprintf("cannot generate ResourceClaim %q for %s %q: %v", name, c.groupResource(), c.Name, err))
	}
	ec.notifyClaim(key, delay)
	return ""
}

// createGenerated creates the claim if that makes sense now. If that fails, then it returns a reason for telling
// users, and when to try again if that is known.
func (ec *Controller) createGenerated(ctx context.Context, key types.NamespacedName, template *resourceapi.ResourceClaimTemplate, entry string, c *consumer) (reason string, delay time.Duration, finalErr error) {
	status, err := ec.consumerStatus(ctx, c.workloadRef)
	var deferred lookupDeferredError
	switch {
	case errors.As(err, &deferred):
		return "", deferred.after, err
	case err != nil:
		return "lookup", 0, err
	case status.state == retention.Done && status.mayResume:
		// It goes on: it has a pod that asks for a claim.
	case status.state != retention.Active:
		// If it is done, then its pods will go, too. If it is not known whether it exists, then the
		// garbage collector might remove the claim again and again.
		return string(status.state), ec.workloads.retryInterval, errors.New("it " + status.explanation)
	}
	if wait := ec.workloads.beforeCreation(key.Namespace); wait > 0 {
		return "", wait, errors.New("others of the namespace could not be created")
	}
	reason, delay, err = ec.storeGenerated(ctx, key, template, entry, c)
	if err != nil {
		ec.workloads.creationFailed(key.Namespace)
	}
	return reason, delay, err
}

// beforeCreation returns how long to wait before creating a claim, because others of the namespace could not be
// created. Usually that is zero.
func (w *workloads) beforeCreation(namespace string) time.Duration {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if last, failed := w.failed[namespace]; !failed || w.clock.Since(last) >= failureInterval {
		return 0
	}
	return w.creations.TryAccept(namespace)
}

// creationFailed must be called after that.
func (w *workloads) creationFailed(namespace string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	maps.DeleteFunc(w.failed, func(_ string, last time.Time) bool { return w.clock.Since(last) >= failureInterval })
	w.failed[namespace] = w.clock.Now()
}

// storeGenerated creates the claim, or finds that it exists. The results are those of createGenerated.
func (ec *Controller) storeGenerated(ctx context.Context, key types.NamespacedName, template *resourceapi.ResourceClaimTemplate, entry string, c *consumer) (reason string, delay time.Duration, finalErr error) {
	claims := claimClient(ec.kubeClient, key.Namespace)
	claim, err := claims.Create(ctx, claimForConsumer(key, template, entry, c), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		claim, err = claims.Get(ctx, key.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			// Gone in the meantime.
			return "", 0, err
		case err != nil:
			return "lookup", 0, err
		case !isGeneratedFor(claim, c.generatedFor(template.Name)):
			return "foreign", foreignInterval, errors.New("a ResourceClaim with that name exists which was not generated by this controller, delete it")
		}
		// Perhaps it was created, but not deleted again.
		if err := mustReplace(claim, template, c); err != nil {
			return reasonDropped, ec.workloads.retryInterval, ec.deleteIncomplete(ctx, claim, err)
		}
		return "", 0, nil
	}
	if err != nil {
		resourceclaimmetrics.GeneratedClaims.WithLabelValues("failure").Inc()
		return "create", 0, err
	}
	if err := mustReplace(claim, template, c); err != nil {
		resourceclaimmetrics.GeneratedClaims.WithLabelValues("failure").Inc()
		return reasonDropped, ec.workloads.retryInterval, ec.deleteIncomplete(ctx, claim, err)
	}
	resourceclaimmetrics.GeneratedClaims.WithLabelValues("success").Inc()
	klog.FromContext(ctx).V(4).Info("Generated claim", "claim", klog.KObj(claim), "consumer", c.workloadRef, "template", klog.KObj(template))
	return "", 0, nil
}

// claimForConsumer returns what to create.
func claimForConsumer(key types.NamespacedName, template *resourceapi.ResourceClaimTemplate, entry string, c *consumer) *resourceapi.ResourceClaim {
	annotations := maps.Clone(template.Spec.ObjectMeta.Annotations)
	if annotations == nil {
		annotations = make(map[string]string)
	}
	delete(annotations, extendedResourceAnnotation)
	annotations[resourceclaim.PodClaimNameAnnotation] = entry
	annotations[resourceclaim.GeneratedForAnnotation] = c.generatedFor(template.Name).String()
	claim := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name:            key.Name,
			Namespace:       key.Namespace,
			OwnerReferences: []metav1.OwnerReference{c.ownerReference()},
			Labels:          template.Spec.ObjectMeta.Labels,
			Annotations:     annotations,
			// What the scheduler would have to add before it stores the allocation.
			Finalizers: []string{resourceapi.Finalizer},
		},
		Spec: *template.Spec.Spec.DeepCopy(),
	}
	claim.Spec.ReservedFor = c.reservedFor
	return claim
}

// reasonDropped is the reason of createGenerated for a claim that is not what it should be.
const reasonDropped = "dropped"

// mustReplace returns an error if the claim must not be used because it lacks something. One that is
// allocated is kept: pods may use it, and perhaps it was all right when it was generated, from a template
// of that name or for a pod without a controller.
func mustReplace(claim *resourceapi.ResourceClaim, template *resourceapi.ResourceClaimTemplate, c *consumer) error {
	if claim.Status.Allocation != nil {
		return nil
	}
	return missingInClaim(claim, template, c)
}

// deleteIncomplete deletes a claim because of what is missing in it, unless it was changed, for
// instance allocated. It returns an error that says so.
func (ec *Controller) deleteIncomplete(ctx context.Context, claim *resourceapi.ResourceClaim, missing error) error {
	if claim.DeletionTimestamp != nil {
		return missing
	}
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &claim.UID, ResourceVersion: &claim.ResourceVersion}}
	if err := claimClient(ec.kubeClient, claim.Namespace).Delete(ctx, claim.Name, options); err != nil {
		return fmt.Errorf("%w; delete the claim, because doing that failed: %w", missing, err)
	}
	return missing
}

// missingInClaim returns an error if the API server has dropped what makes the claim different
// from one that anybody may use: some of its feature gates are disabled.
func missingInClaim(claim *resourceapi.ResourceClaim, template *resourceapi.ResourceClaimTemplate, c *consumer) error {
	if c.reservedFor != nil && claim.Spec.ReservedFor == nil {
		return errors.New("the DRAReservedForWorkloads feature gate is disabled in kube-apiserver")
	}
	if needsAdminAccess(template) && !needsAdminAccess(&resourceapi.ResourceClaimTemplate{Spec: resourceapi.ResourceClaimTemplateSpec{Spec: claim.Spec}}) {
		return errors.New("the DRAAdminAccess feature gate is disabled in kube-apiserver")
	}
	return nil
}

// beginGenerate returns whether the claim exists and, if not, whether the caller has to create it.
// Otherwise the pod gets processed again.
func (w *workloads) beginGenerate(key types.NamespacedName, podName string) (exists, mayCreate bool) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	g := w.generated[key]
	if g == nil {
		g = &generatedClaim{waiting: make(map[string]bool)}
		w.generated[key] = g
	}
	if !g.created.IsZero() && w.clock.Since(g.created) < generatedInterval {
		return true, false
	}
	if g.creating || w.clock.Now().Before(g.notBefore) {
		g.waiting[podName] = true
		return false, false
	}
	g.creating = true
	return false, true
}

// generateSucceeded must be called after beginGenerate said that the caller has to create the claim, if it
// exists now. It returns the names of the pods which wait for it.
func (w *workloads) generateSucceeded(key types.NamespacedName) map[string]bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	// It is kept while the claim is being created.
	g := w.generated[key]
	waiting := g.waiting
	*g = generatedClaim{created: w.clock.Now(), waiting: make(map[string]bool)}
	return waiting
}

// generateFailed is the same for a claim which could not be created. The pod of the caller waits, too. The
// result is the time until one of those which wait tries again: the given one or, if that is zero, one
// that grows with each failure.
func (w *workloads) generateFailed(key types.NamespacedName, podName string, delay time.Duration, dropped bool) time.Duration {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	g := w.generated[key]
	if delay == 0 {
		delay = min(minGenerateBackOff<<min(g.failures, 10), maxBackOff)
		g.failures++
	}
	g.creating, g.created, g.notBefore, g.dropped = false, time.Time{}, w.clock.Now().Add(delay), dropped
	g.waiting[podName] = true
	return delay
}

// observeGenerated gets called when a claim was seen, or seen to be gone: nothing has to be assumed
// about it anymore, and pods which wait for it can go on.
func (ec *Controller) observeGenerated(oldClaim, newClaim *resourceapi.ResourceClaim) {
	w := ec.workloads
	claim := newClaim
	if claim == nil {
		claim = oldClaim
	} else if resourceclaim.GeneratedForOf(claim) == nil {
		// Still in the way, if it is.
		return
	}
	key := claimName(claim)
	w.mutex.Lock()
	g := w.generated[key]
	if g == nil || g.creating || g.dropped && w.clock.Now().Before(g.notBefore) {
		w.mutex.Unlock()
		return
	}
	delete(w.generated, key)
	w.mutex.Unlock()
	ec.wakePods(key.Namespace, g.waiting)
}

// retryGenerated gets called for a claim that does not exist. One of the pods which wait for it tries to
// create it, if the time for that has come.
func (ec *Controller) retryGenerated(key types.NamespacedName) {
	w := ec.workloads
	w.mutex.Lock()
	defer w.mutex.Unlock()
	g := w.generated[key]
	if g == nil || g.creating {
		return
	}
	if !g.created.IsZero() {
		if wait := generatedInterval - w.clock.Since(g.created); wait > 0 {
			ec.notifyClaim(key, wait)
			return
		}
		// It was removed without being seen. Pods were told already to use it.
		delete(w.generated, key)
		pods, err := ec.podIndexer.ByIndex(podResourceClaimIndex, key.String())
		if err != nil {
			utilruntime.HandleError(fmt.Errorf("find pods for claim in cache: %w", err))
		}
		for _, obj := range pods {
			if pod, ok := obj.(*v1.Pod); ok {
				g.waiting[pod.Name] = true
			}
		}
		ec.wakePods(key.Namespace, g.waiting)
		return
	}
	if wait := g.notBefore.Sub(w.clock.Now()); wait > 0 {
		ec.notifyClaim(key, wait)
		return
	}
	for podName := range g.waiting {
		// Either it waits again afterwards, or it does not need the claim anymore.
		delete(g.waiting, podName)
		if pod, err := ec.podLister.Pods(key.Namespace).Get(podName); err == nil && !isPodDone(pod) && pod.DeletionTimestamp == nil {
			ec.queue.Add(podKeyPrefix + key.Namespace + "/" + podName)
			ec.notifyClaim(key, w.retryInterval)
			return
		}
	}
	delete(w.generated, key)
}

func (ec *Controller) wakePods(namespace string, names map[string]bool) {
	for name := range names {
		ec.queue.Add(podKeyPrefix + namespace + "/" + name)
	}
}

// noConsumer gets called for a pod for which no claim can be generated because its consumer
// is not known.
func (ec *Controller) noConsumer(ctx context.Context, pod *v1.Pod, entry string, template *resourceapi.ResourceClaimTemplate, err error) {
	w := ec.workloads
	ref := template.Spec.Spec.ReservedFor
	prefix := fmt.Sprintf("cannot generate a ResourceClaim from ResourceClaimTemplate %q for the %s of the pod: ", template.Name, schema.GroupResource{Group: ref.APIGroup, Resource: ref.Resource})
	after := w.retryInterval
	var deferred lookupDeferredError
	reason := owners.ReasonFor(err)
	switch {
	case errors.As(err, &deferred):
		after = deferred.after
	case errors.Is(err, errNoConsumer):
		// Something may get adopted later. That is seen for pods and built-in kinds.
		after = foreignInterval
		ec.reportPod(ctx, pod, entry, "none", prefix+"none of its controllers is one; create such a pod through one, or use another template")
	case reason == owners.NotFound && w.clock.Since(pod.CreationTimestamp.Time) < consumerGracePeriod:
		after = minGenerateBackOff
	case reason == owners.Forbidden:
		ec.reportPod(ctx, pod, entry, string(reason), prefix+err.Error()+`; allow that through a ClusterRole with label "rbac.authorization.k8s.io/aggregate-to-resourceclaim-controller: true"`)
	default:
		ec.reportPod(ctx, pod, entry, string(reason), prefix+err.Error())
	}
	klog.FromContext(ctx).V(4).Info("Cannot determine consumer of pod", "podClaim", entry, "err", err, "recheckAfter", after)
	ec.queue.AddAfter(podKeyPrefix+pod.Namespace+"/"+pod.Name, after)
}

// reportPod tells the user of a pod about a problem of all pods which have the same controller.
func (ec *Controller) reportPod(ctx context.Context, pod *v1.Pod, entry, reason, message string) {
	uid := pod.UID
	if controller := metav1.GetControllerOfNoCopy(pod); controller != nil {
		uid = controller.UID
		if owners.Check(*controller) != nil {
			// No object has that one, and it must not be remembered.
			uid = ""
		}
	}
	ec.reportConsumer(ctx, pod, uid, entry, reason, message)
}

// reportConsumer tells the user of a pod about a problem of all pods of a consumer, unless
// enough of them were told.
func (ec *Controller) reportConsumer(ctx context.Context, pod *v1.Pod, uid types.UID, entry, reason, message string) {
	w := ec.workloads
	key := reportKey{uid, entry, reason}
	w.mutex.Lock()
	count, _ := w.reports.Get(pod.Namespace, key)
	if count < maxReports {
		w.reports.Add(pod.Namespace, key, count+1, reportInterval)
	}
	w.mutex.Unlock()
	if count >= maxReports || ec.recorder == nil {
		return
	}
	klog.FromContext(ctx).V(2).Info("Pod has to wait for a generated claim", "pod", klog.KObj(pod), "podClaim", entry, "message", message)
	ec.recorder.Event(pod, v1.EventTypeWarning, reasonNotGenerated, fmt.Sprintf("PodResourceClaim %s: %s", entry, message))
}

// endGenerated removes a generated claim when its consumer does not need it anymore. As long
// as pods use the claim, its devices remain allocated. It is called each time that
// the claim is processed.
func (ec *Controller) endGenerated(ctx context.Context, claim *resourceapi.ResourceClaim) error {
	generatedFor := resourceclaim.GeneratedForOf(claim)
	if generatedFor == nil || generatedFor.UID == "" || claim.DeletionTimestamp != nil || !ec.features.ReservedForWorkloads {
		return nil
	}
	ref := workloadRef{namespace: claim.Namespace, ResourceClaimConsumerReference: resourceapi.ResourceClaimConsumerReference{
		APIGroup: generatedFor.Group, Resource: generatedFor.Resource, Name: generatedFor.Name, UID: generatedFor.UID,
	}}
	if generatedFor.GroupResource != podsResource && ec.workloads.informers[generatedFor.GroupResource] == nil {
		// Nobody tells when it has changed. The garbage collector removes the claim together with it. This
		// is for one that was removed without its dependents.
		if len(claim.Status.ReservedFor) > 0 {
			return nil
		}
		ec.recheckClaim(claim, maxIdleRecheck)
	}
	status, err := ec.consumerStatus(ctx, ref)
	var deferred lookupDeferredError
	if errors.As(err, &deferred) {
		ec.recheckClaim(claim, deferred.after)
		return nil
	}
	if err != nil || status.state != retention.Done || status.mayResume {
		return err
	}
	options := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(claim.UID))}
	if err := claimClient(ec.kubeClient, claim.Namespace).Delete(ctx, claim.Name, options); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete generated claim %s: %w", klog.KObj(claim), err)
	}
	klog.FromContext(ctx).V(2).Info("Deleted generated claim", "claim", klog.KObj(claim), "consumer", ref, "explanation", status.explanation)
	return nil
}
