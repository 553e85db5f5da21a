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
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	resourceclaimmetrics "k8s.io/kubernetes/pkg/controller/resourceclaim/metrics"
	"k8s.io/kubernetes/pkg/controller/resourceclaim/retention"
	"k8s.io/utils/clock"
)

// This file answers whether some pod uses a claim.
//
// The informer cache is sufficient for "yes". "No" has to be confirmed by the API
// server. Which claims a pod references is not available as selector,
// so that takes a list of all pods in the namespace which might run.
// Waiting until the informer cache is as new as the API server would avoid the
// list, but the resource version of the cache only changes with events about pods
// and bookmarks. Without events it lags behind by a minute.
//
// Therefore all claims of a namespace share one list: those which need to know
// wait for the next list which starts, without blocking a worker.

// mightRun returns true if containers of the pod might run: it was assigned to a
// node and is not known to have terminated.
func mightRun(pod *v1.Pod) bool {
	return pod.Spec.NodeName != "" && !podutil.IsPodTerminal(pod)
}

// claimNames returns the names of those claims that the pod references.
func claimNames(pod *v1.Pod) []string {
	var names []string
	if name := extendedResourceClaimName(pod); name != "" {
		names = append(names, name)
	}
	return slices.AppendSeq(names, resourceclaim.ClaimNames(pod))
}

// usesClaim returns true if containers of the pod might run with devices of the
// claim.
func (ec *Controller) usesClaim(pod *v1.Pod, claim *resourceapi.ResourceClaim) bool {
	return pod.Namespace == claim.Namespace && mightRun(pod) && slices.Contains(claimNames(pod), claim.Name) && !ec.isStranded(pod, claim)
}

// awaitsClaim returns true for a pod of a workload for which the claim is reserved that
// the scheduler may bind any moment. It does not use the claim, but needs it.
func (ec *Controller) awaitsClaim(pod *v1.Pod, claim *resourceapi.ResourceClaim) bool {
	if pod.Spec.NodeName != "" || len(pod.Spec.SchedulingGates) > 0 || podutil.IsPodTerminal(pod) || pod.DeletionTimestamp != nil ||
		!slices.Contains(claimNames(pod), claim.Name) {
		return false
	}
	uid, err := ec.workloadUIDOf(context.TODO(), pod, claim, false)
	return err != nil || slices.ContainsFunc(claim.Status.ReservedFor, func(ref resourceapi.ResourceClaimConsumerReference) bool { return ref.UID == uid })
}

// findUserInCache returns some pod in the informer cache which uses the claim, nil
// if there is none.
func (ec *Controller) findUserInCache(claim *resourceapi.ResourceClaim) (*v1.Pod, error) {
	// When thousands of pods share a claim, then it's usually still the
	// same one as last time.
	if name := ec.workloads.getLastUser(claim); name != "" {
		if pod, err := ec.podLister.Pods(claim.Namespace).Get(name); err == nil && ec.usesClaim(pod, claim) {
			return pod, nil
		}
	}
	pod, err := ec.findPodInCache(claim, ec.usesClaim)
	if pod != nil {
		ec.workloads.setLastUser(claim, pod.Name)
	}
	return pod, err
}

// findPodInCache returns some pod in the informer cache which references the
// claim and matches.
func (ec *Controller) findPodInCache(claim *resourceapi.ResourceClaim, matches func(*v1.Pod, *resourceapi.ResourceClaim) bool) (*v1.Pod, error) {
	objs, err := ec.podIndexer.ByIndex(podResourceClaimIndex, claim.Namespace+"/"+claim.Name)
	if err != nil {
		return nil, fmt.Errorf("find pods for claim in cache: %w", err)
	}
	for _, obj := range objs {
		if pod, ok := obj.(*v1.Pod); ok && matches(pod, claim) {
			return pod, nil
		}
	}
	return nil, nil
}

// isNominated returns true if the scheduler has chosen a node for the pod, but
// not assigned the pod to it. That happens when some other pod gets preempted
// and, depending on the release, while the scheduler waits for something before
// assigning the pod. When the allocation cannot be used on that node, then the
// pod cannot get bound with it.
func (ec *Controller) isNominated(pod *v1.Pod, claim *resourceapi.ResourceClaim) bool {
	return pod.Spec.NodeName == "" &&
		pod.Status.NominatedNodeName != "" &&
		!podutil.IsPodTerminal(pod) &&
		pod.DeletionTimestamp == nil &&
		slices.Contains(claimNames(pod), claim.Name) &&
		ec.fitsNode(claim, pod.Status.NominatedNodeName)
}

// userFieldSelector limits a list of pods to those which usesClaim may accept.
var userFieldSelector = fields.AndSelectors(
	fields.OneTermNotEqualSelector("spec.nodeName", ""),
	fields.OneTermNotEqualSelector("status.phase", string(v1.PodSucceeded)),
	fields.OneTermNotEqualSelector("status.phase", string(v1.PodFailed)),
).String()

// Limits for the lists of pods.
const (
	// listPause is the minimum time between the end of a list of the pods
	// in a namespace and the next one.
	listPause = 500 * time.Millisecond
	// maxListPause is reached when a namespace cannot be listed repeatedly, or only slowly.
	maxListPause = 30 * time.Second
	// listPauseFactor ensures that the API server is not busy all the time with a
	// namespace that has many pods: the pause is that much longer than the list took.
	listPauseFactor = 4
	// listPageSize is how many pods are retrieved with one request.
	listPageSize = 500
	// listTimeout is also the limit that the API server has.
	listTimeout = time.Minute
	// maxLists is how many namespaces may be listed at the same time.
	maxLists = 4
	// maxAnswerAge determines how long it is remembered who asked and what
	// the answer is. Nobody who still needs to know waits for that long.
	maxAnswerAge = 2 * time.Minute
	// maxUsedAnswerAge is for how long an answer may be used. The claim gets processed
	// when there is one. If that takes longer, then the answer is too old.
	maxUsedAnswerAge = 30 * time.Second
)

// userQuestion asks for pods which use a certain claim.
type userQuestion struct {
	// purpose identifies what the answer is needed for. An answer is only
	// good for the purpose for which it was asked, because then the list
	// certainly started after that.
	purpose string
	at      time.Time
}

// userAnswer is the answer to a question.
type userAnswer struct {
	userQuestion
	// pod uses the claim. It's nil if there is none.
	pod *v1.Pod
	err error
}

// namespaceUsers is about the claims of one namespace. The keys are the names of
// the claims.
type namespaceUsers struct {
	// waiting will be answered by the next list.
	waiting map[string]userQuestion
	// listing will be answered by the list which is in progress. It's nil if
	// there is none.
	listing map[string]userQuestion
	answers map[string]userAnswer
	// notBefore is when the next list may start.
	notBefore time.Time
	// failures counts how often listing failed in a row.
	failures int
}

// userBackend is what userLists needs from the controller.
type userBackend interface {
	// listUsers calls a function for all pods in the namespace for which mightRun is true,
	// perhaps also for others. It may stop when the function returns false.
	listUsers(ctx context.Context, namespace string, visit func(*v1.Pod) bool) error
	// isIgnored returns true if the pod does not use the claim although it refers to it.
	isIgnored(pod *v1.Pod, claim types.NamespacedName) bool
	// notifyClaim gets called for each claim which should ask again, after a
	// delay.
	notifyClaim(claim types.NamespacedName, after time.Duration)
}

// userLists finds pods which use a claim with consistent lists, one at a time for
// each namespace.
type userLists struct {
	clock clock.PassiveClock
	// spawn runs a function, usually in a goroutine.
	spawn func(func())

	mutex      sync.Mutex
	inProgress int
	namespaces map[string]*namespaceUsers
}

func newUserLists(clock clock.PassiveClock) *userLists {
	return &userLists{
		clock:      clock,
		spawn:      func(run func()) { go run() },
		namespaces: make(map[string]*namespaceUsers),
	}
}

// listUsers implements userBackend.
func (ec *Controller) listUsers(ctx context.Context, namespace string, visit func(*v1.Pod) bool) error {
	resourceclaimmetrics.WorkloadPodLists.Inc()
	// No resource version: that is what makes it a consistent read. All pages are
	// about the same point in time.
	options := metav1.ListOptions{FieldSelector: userFieldSelector, Limit: listPageSize}
	for {
		pods, err := ec.kubeClient.CoreV1().Pods(namespace).List(ctx, options)
		if apierrors.IsResourceExpired(err) && options.Continue != "" {
			// Took too long. This is a new list, of everything.
			options.Continue, options.Limit = "", 0
			continue
		}
		if err != nil {
			return fmt.Errorf("list pods which might use claims in namespace %s: %w", namespace, err)
		}
		for i := range pods.Items {
			if !visit(&pods.Items[i]) {
				return nil
			}
		}
		if pods.Continue == "" {
			return nil
		}
		options.Continue = pods.Continue
	}
}

// isIgnored implements userBackend.
func (ec *Controller) isIgnored(pod *v1.Pod, name types.NamespacedName) bool {
	claim, err := ec.claimLister.ResourceClaims(name.Namespace).Get(name.Name)
	return err == nil && ec.isStranded(pod, claim)
}

// namespace must be called with the mutex locked.
func (u *userLists) namespace(name string) *namespaceUsers {
	ns := u.namespaces[name]
	if ns == nil {
		ns = &namespaceUsers{waiting: make(map[string]userQuestion), answers: make(map[string]userAnswer)}
		u.namespaces[name] = ns
	}
	return ns
}

// isPending returns true if it is not known yet which pods use the claim and
// asking again is of no use now. If the returned delay is not zero, the claim must
// be processed again after that. Otherwise it gets notified. The caller must not rely on
// the delay that it got before: a queue has one delay for each claim, the shortest.
func (u *userLists) isPending(claim types.NamespacedName, purpose string) (bool, time.Duration) {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	ns := u.namespaces[claim.Namespace]
	switch {
	case ns == nil:
		return false, 0
	case ns.listing[claim.Name].purpose == purpose:
		return true, 0
	case ns.waiting[claim.Name].purpose != purpose:
		return false, 0
	case ns.listing != nil:
		return true, 0
	default:
		wait := u.delay(ns)
		return wait > 0, wait
	}
}

// delay returns the time until the next list of a namespace which is not being listed may
// start, zero if that is now. It must be called with the mutex locked.
func (u *userLists) delay(ns *namespaceUsers) time.Duration {
	wait := max(ns.notBefore.Sub(u.clock.Now()), 0)
	if wait == 0 && u.inProgress >= maxLists {
		return listPause
	}
	return wait
}

// cancel gets called when the answer for a claim is not needed anymore. A later
// question must not get an answer which is older.
func (u *userLists) cancel(claim types.NamespacedName) {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	if ns := u.namespaces[claim.Namespace]; ns != nil {
		delete(ns.waiting, claim.Name)
		delete(ns.listing, claim.Name)
		delete(ns.answers, claim.Name)
	}
}

// find returns an answer that is based on a list of pods which started after this
// was called for the first time for the given purpose. If there is none yet, then
// the claim must be processed again: it gets notified or, if the returned delay
// is not zero, the caller has to ask again after that.
func (u *userLists) find(ctx context.Context, backend userBackend, claim types.NamespacedName, purpose string) (*userAnswer, time.Duration) {
	if answer := u.takeAnswer(claim, purpose); answer != nil {
		return answer, 0
	}
	started, wait := u.ask(claim, purpose)
	if !started {
		return nil, wait
	}
	u.spawn(func() { u.run(ctx, backend, claim.Namespace) })
	return u.takeAnswer(claim, purpose), 0
}

func (u *userLists) takeAnswer(claim types.NamespacedName, purpose string) *userAnswer {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	ns := u.namespaces[claim.Namespace]
	if ns == nil {
		return nil
	}
	answer, ok := ns.answers[claim.Name]
	if !ok {
		return nil
	}
	delete(ns.answers, claim.Name)
	if answer.purpose != purpose || u.clock.Since(answer.at) > maxUsedAnswerAge {
		return nil
	}
	return &answer
}

// ask adds the question and returns true if the caller has to start the next
// list. Otherwise it may have to wait.
func (u *userLists) ask(claim types.NamespacedName, purpose string) (bool, time.Duration) {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	ns := u.namespace(claim.Namespace)
	if ns.listing[claim.Name].purpose == purpose {
		return false, 0
	}
	ns.waiting[claim.Name] = userQuestion{purpose: purpose, at: u.clock.Now()}
	if ns.listing != nil {
		return false, 0
	}
	if wait := u.delay(ns); wait > 0 {
		return false, wait
	}
	u.inProgress++
	ns.listing, ns.waiting = ns.waiting, make(map[string]userQuestion)
	return true, 0
}

// run answers all questions that were asked before it started.
func (u *userLists) run(ctx context.Context, backend userBackend, namespace string) {
	listCtx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	u.mutex.Lock()
	wanted := sets.KeySet(u.namespace(namespace).listing)
	start := u.clock.Now()
	u.mutex.Unlock()
	found := make(map[string]*v1.Pod)
	err := backend.listUsers(listCtx, namespace, func(pod *v1.Pod) bool {
		if !mightRun(pod) {
			return true
		}
		var kept *v1.Pod
		for _, name := range claimNames(pod) {
			if wanted.Has(name) && found[name] == nil && !backend.isIgnored(pod, types.NamespacedName{Namespace: namespace, Name: name}) {
				if kept == nil {
					// The list is large, don't keep it in memory. Nor a copy for each claim of a pod with thousands.
					kept = pod.DeepCopy()
				}
				found[name] = kept
			}
		}
		return len(found) < len(wanted)
	})
	logger := klog.FromContext(ctx)

	u.mutex.Lock()
	ns := u.namespace(namespace)
	listed, answers := ns.listing, answersFrom(ns.listing, found, err)
	logger.V(4).Info("Listed pods which might use claims", "namespace", namespace, "claims", len(answers), "err", err)
	for name, answer := range answers {
		answer.at = u.clock.Now()
		ns.answers[name] = answer
	}
	pause := ns.finish(u.clock.Since(start), err)
	ns.notBefore = u.clock.Now().Add(pause)
	u.inProgress--
	var late []string
	for name := range ns.waiting {
		late = append(late, name)
	}
	u.expire()
	u.mutex.Unlock()

	for name := range listed {
		backend.notifyClaim(types.NamespacedName{Namespace: namespace, Name: name}, 0)
	}
	for _, name := range late {
		backend.notifyClaim(types.NamespacedName{Namespace: namespace, Name: name}, pause)
	}
}

// finish must be called when a list is complete. It returns the pause until the
// next one may start.
func (ns *namespaceUsers) finish(took time.Duration, err error) time.Duration {
	ns.listing = nil
	if err == nil {
		ns.failures = 0
		return min(max(listPause, listPauseFactor*took), maxListPause)
	}
	ns.failures++
	return min(listPause<<min(ns.failures, 10), maxListPause)
}

func answersFrom(questions map[string]userQuestion, found map[string]*v1.Pod, err error) map[string]userAnswer {
	answers := make(map[string]userAnswer, len(questions))
	for name, question := range questions {
		answer := userAnswer{userQuestion: question, err: err}
		if err == nil {
			answer.pod = found[name]
		}
		answers[name] = answer
	}
	return answers
}

// expire forgets those who do not ask again, for example because the claim is
// gone, and namespaces without claims. It must be called with the mutex locked.
func (u *userLists) expire() {
	now := u.clock.Now()
	for namespace, ns := range u.namespaces {
		for name, question := range ns.waiting {
			if now.Sub(question.at) > maxAnswerAge {
				delete(ns.waiting, name)
			}
		}
		for name, answer := range ns.answers {
			if now.Sub(answer.at) > maxAnswerAge {
				delete(ns.answers, name)
			}
		}
		if ns.listing == nil && len(ns.waiting) == 0 && len(ns.answers) == 0 && now.After(ns.notBefore) {
			delete(u.namespaces, namespace)
		}
	}
}

// findStoredUser looks for a pod which uses the claim with a consistent read. The
// purpose distinguishes different reasons for looking. The result is pending
// while it is not known yet. Then the claim gets processed again later.
func (ec *Controller) findStoredUser(ctx context.Context, claim *resourceapi.ResourceClaim, purpose string) (*v1.Pod, retention.Usage, error) {
	answer, wait := ec.workloads.users.find(ctx, ec, claimName(claim), purpose)
	switch {
	case answer == nil:
		if wait > 0 {
			ec.recheckClaim(claim, wait)
		}
		return nil, retention.UsagePending, nil
	case answer.err != nil:
		return nil, retention.UsageFailed, answer.err
	case answer.pod != nil:
		return answer.pod, retention.UsageFound, nil
	default:
		return nil, retention.UsageNone, nil
	}
}

// notifyClaim causes the claim to be processed. It implements userBackend.
func (ec *Controller) notifyClaim(claim types.NamespacedName, after time.Duration) {
	key := claimKeyPrefix + claim.Namespace + "/" + claim.Name
	if after > 0 {
		ec.queue.AddAfter(key, after)
		return
	}
	ec.queue.Add(key)
}

// recheckClaim causes the claim to be processed again later.
func (ec *Controller) recheckClaim(claim *resourceapi.ResourceClaim, after time.Duration) {
	ec.notifyClaim(claimName(claim), after)
}
