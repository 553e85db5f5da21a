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

package reservedfor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	ktesting "k8s.io/kubernetes/test/utils/client-go/ktesting"
	"k8s.io/utils/ptr"
)

// maxEntries is how many entries the list of a claim may have which has more than pods in it. There is
// one for each incarnation of the workload whose pods still run.
const maxEntries = 12

// maxReservedPods is how many pods may be listed in a claim that was allocated for
// any pod. Usually there is none. It happens when a reservation had to be restored for
// a pod that does not belong to the workload.
const maxReservedPods = 2

// record is one change of one object. Resource versions come from the same etcd
// for all kinds of objects, therefore records of different kinds can be put into the
// order in which the changes really happened.
type record struct {
	rv      uint64
	seen    time.Time
	deleted bool
	obj     runtime.Object
}

// history has all changes of pods, claims and workloads in one namespace.
type history struct {
	mutex   sync.Mutex
	records []record
	errs    []error
	// excused has the changes of claims that were made by the test in the place of
	// somebody who does not know what he is doing.
	excused map[uint64]bool
	// broken counts how often a device broke. Then its allocation may be given up.
	broken map[device]int
	// idleByClass is set when claims may be released when idle because their DeviceClass says so.
	idleByClass bool
}

// observe collects changes until the end of the test.
func observe(tCtx ktesting.TContext, namespace string) *history {
	tCtx.Helper()
	h := &history{}
	tCtx = withCancel(tCtx)
	client := tCtx.Client()
	var wg sync.WaitGroup
	for _, start := range []func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error){
		client.CoreV1().Pods(namespace).Watch,
		resourceClient(client).ResourceClaims(namespace).Watch,
		client.BatchV1().Jobs(namespace).Watch,
		client.AppsV1().Deployments(namespace).Watch,
		client.AppsV1().StatefulSets(namespace).Watch,
		client.AppsV1().ReplicaSets(namespace).Watch,
		client.CoreV1().Events(namespace).Watch,
	} {
		// The namespace is new and empty, so there is nothing to list first.
		w, err := start(tCtx, metav1.ListOptions{ResourceVersion: namespaceRV(tCtx, client, namespace)})
		tCtx.ExpectNoError(err, "start watch")
		inBackground(&wg, func() { h.collect(tCtx, start, w) })
	}
	tCtx.Cleanup(func() {
		tCtx.Cancel("stopping to observe")
		wg.Wait()
	})
	return h
}

func namespaceRV(tCtx ktesting.TContext, client clientset.Interface, namespace string) string {
	tCtx.Helper()
	ns, err := client.CoreV1().Namespaces().Get(tCtx, namespace, metav1.GetOptions{})
	tCtx.ExpectNoError(err, "get namespace")
	return ns.ResourceVersion
}

// collect reads a watch and restarts it where it ended.
func (h *history) collect(ctx context.Context, start func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error), w watch.Interface) {
	last := ""
	for {
		for event := range w.ResultChan() {
			if event.Type == watch.Error {
				h.fail(fmt.Errorf("watch failed, changes may have been missed: %v", event.Object))
				w.Stop()
				return
			}
			accessor, err := meta.Accessor(event.Object)
			if err != nil {
				h.fail(err)
				continue
			}
			last = accessor.GetResourceVersion()
			h.add(event.Object, event.Type == watch.Deleted, time.Now())
		}
		if ctx.Err() != nil {
			return
		}
		var err error
		w, err = start(ctx, metav1.ListOptions{ResourceVersion: last})
		if err != nil {
			if ctx.Err() == nil {
				h.fail(fmt.Errorf("restart watch: %w", err))
			}
			return
		}
	}
}

func (h *history) fail(err error) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.errs = append(h.errs, err)
}

// excuse tells the checker that a change was not made by one of the components.
func (h *history) excuse(obj metav1.Object) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	rv, err := strconv.ParseUint(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		h.errs = append(h.errs, fmt.Errorf("resource version: %w", err))
		return
	}
	if h.excused == nil {
		h.excused = map[uint64]bool{}
	}
	h.excused[rv] = true
}

// releasesIdle is called before a DeviceClass says that its claims are released when idle.
func (h *history) releasesIdle() {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.idleByClass = true
}

// breaks tells the checker that a device is about to break.
func (h *history) breaks(d device) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.broken == nil {
		h.broken = map[device]int{}
	}
	h.broken[d]++
}

// claimUIDs returns all claims that ever existed.
func (h *history) claimUIDs() map[types.UID]string {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	uids := map[types.UID]string{}
	for _, r := range h.records {
		if claim, ok := r.obj.(*resourceapi.ResourceClaim); ok {
			uids[claim.UID] = claim.Name
		}
	}
	return uids
}

func (h *history) add(obj runtime.Object, deleted bool, seen time.Time) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	accessor, err := meta.Accessor(obj)
	if err != nil {
		h.errs = append(h.errs, err)
		return
	}
	rv, err := strconv.ParseUint(accessor.GetResourceVersion(), 10, 64)
	if err != nil {
		h.errs = append(h.errs, fmt.Errorf("resource version: %w", err))
		return
	}
	h.records = append(h.records, record{rv: rv, seen: seen, deleted: deleted, obj: obj})
}

// waitFor blocks until everything up to now has been observed for pods and
// claims: the given objects were written last.
func (h *history) waitFor(tCtx ktesting.TContext, uids ...types.UID) {
	tCtx.Helper()
	err := wait.PollUntilContextTimeout(tCtx, 50*time.Millisecond, timeout, true, func(context.Context) (bool, error) {
		h.mutex.Lock()
		defer h.mutex.Unlock()
		for _, uid := range uids {
			if !slices.ContainsFunc(h.records, func(r record) bool {
				accessor, err := meta.Accessor(r.obj)
				return err == nil && accessor.GetUID() == uid
			}) {
				return false, nil
			}
		}
		return true, nil
	})
	tCtx.ExpectNoError(err, "wait for the observer")
}

// invariants are what the checker found out about a history.
type invariants struct {
	// violations is empty if all is well.
	violations []error
	// slowest is the longest time from the end of the last user of a claim to
	// its deallocation.
	slowest time.Duration
	// allocations and releases are counted to see that something happened at all.
	// changes are those of claims.
	allocations, releases, runs, changes int
	// everStranded is how many pods were on a node, at least for a moment, while their
	// claim was not allocated.
	everStranded int
}

// replay goes through a history and checks at each change:
//   - a claim with a running pod is never deallocated, allocated differently or removed,
//   - a pod only runs if its claims are allocated, and if it is allowed to use them:
//     it is listed or the claim was allocated for any pod,
//   - no device is allocated to two claims,
//   - a claim without user gets deallocated within the given time,
//   - a claim that is allocated for any pod does not list them,
//   - a pod that is on a node when its claim gets released is found before the claim is
//     deallocated,
//   - a pod does not stay on a node whose claim is not allocated without an explanation,
//   - a claim that is being deleted and has no user is gone within the given time, whatever
//     it is reserved for,
//   - a claim is not deallocated while a workload lives whose pods used it,
//   - what is left of dead workloads does not pile up in the list of a claim.
//
// Claims whose allocation is tied to a node may be deallocated when their workload lives: the
// node may be gone. So may those whose users asked for it by annotation, or their DeviceClass, and those with a device
// that broke, once each time.
func (h *history) replay(bound time.Duration) invariants {
	h.mutex.Lock()
	records := slices.Clone(h.records)
	errs := slices.Clone(h.errs)
	excused := maps.Clone(h.excused)
	broken := maps.Clone(h.broken)
	idleByClass := h.idleByClass
	h.mutex.Unlock()
	slices.SortStableFunc(records, func(a, b record) int {
		switch {
		case a.rv < b.rv:
			return -1
		case a.rv > b.rv:
			return 1
		}
		return 0
	})
	s := &state{
		bound:     bound,
		pods:      map[string]*v1.Pod{},
		claims:    map[string]*resourceapi.ResourceClaim{},
		workloads: map[resourceapi.ResourceClaimConsumerReference]bool{},
		devices:   map[device]string{},
		tampered:  map[string]bool{},
		idle:      map[string]time.Time{},
		stories:   map[string][]record{},

		excused:     excused,
		broken:      broken,
		idleByClass: idleByClass,
		givenUp:     map[device]int{},
		replicaSets: map[types.UID]*metav1.OwnerReference{},
		belongsTo:   map[types.UID]resourceapi.ResourceClaimConsumerReference{},
		assigned:    map[types.UID]uint64{},
		users:       map[string]map[resourceapi.ResourceClaimConsumerReference]string{},
		released:    map[string]uint64{},
		stranded:    map[types.UID]time.Time{},
		explained:   map[types.UID]bool{},
		outlived:    map[string]map[resourceapi.ResourceClaimConsumerReference]time.Time{},
	}
	s.violations = errs
	var now time.Time
	for _, r := range records {
		// Watches of different kinds are not synchronized, what was seen
		// does not always have the order in which it happened.
		if r.seen.After(now) {
			now = r.seen
		}
		s.rv, s.now = r.rv, now
		switch obj := r.obj.(type) {
		case *v1.Pod:
			s.stories[obj.Name] = append(s.stories[obj.Name], r)
			s.pod(obj, r.deleted)
		case *resourceapi.ResourceClaim:
			s.stories[obj.Name] = append(s.stories[obj.Name], r)
			s.claim(obj, r.deleted)
		case *batchv1.Job:
			done := slices.ContainsFunc(obj.Status.Conditions, func(c batchv1.JobCondition) bool {
				return (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == v1.ConditionTrue
			})
			s.workload(jobs, obj, r.deleted || done)
		case *appsv1.Deployment:
			s.workload(deployments, obj, r.deleted)
		case *appsv1.StatefulSet:
			s.workload(statefulsets, obj, r.deleted)
		case *appsv1.ReplicaSet:
			s.replicaSets[obj.UID] = metav1.GetControllerOf(obj)
		case *v1.Event:
			if obj.Type == v1.EventTypeWarning && obj.Reason != "FailedScheduling" {
				s.explained[obj.InvolvedObject.UID] = true
			}
		default:
			s.fail("unexpected object %T", r.obj)
		}
		s.checkIdle()
		s.checkStranded()
		s.checkOutlived()
	}
	return s.invariants
}

type device struct{ driver, pool, name string }

// state is the state of the namespace at one resource version.
type state struct {
	invariants
	bound     time.Duration
	rv        uint64
	now       time.Time
	pods      map[string]*v1.Pod
	claims    map[string]*resourceapi.ResourceClaim
	workloads map[resourceapi.ResourceClaimConsumerReference]bool
	devices   map[device]string
	// tampered claims lost all their reservations while they were used, which the
	// controller does not do. It then may have to restore them pod by pod.
	tampered map[string]bool
	// idle says since when a claim is allocated without being used.
	idle map[string]time.Time
	// stories has what happened to the objects of each name, for violations that
	// do not happen again when they are looked for.
	stories map[string][]record

	// excused has the changes of claims that no component made.
	excused map[uint64]bool
	// idleByClass is true if the DeviceClass of a claim decides when it is idle.
	idleByClass bool
	// broken says how often a device broke, and givenUp how often it was taken from a workload that lives.
	broken, givenUp map[device]int
	// replicaSets has what controls each ReplicaSet.
	replicaSets map[types.UID]*metav1.OwnerReference
	// belongsTo has the workload that a pod belonged to from its creation until it was
	// assigned to a node.
	belongsTo map[types.UID]resourceapi.ResourceClaimConsumerReference
	// assigned says when a pod was assigned to a node.
	assigned map[types.UID]uint64
	// users has, for each claim, the workloads whose pods were assigned to a node while it was
	// allocated, with the name of such a pod.
	users map[string]map[resourceapi.ResourceClaimConsumerReference]string
	// released says when the list of an allocated claim became empty.
	released map[string]uint64
	// stranded says since when a pod is on a node whose claim is not allocated.
	stranded map[types.UID]time.Time
	// explained has those objects for which there was a warning.
	explained map[types.UID]bool
	// outlived says since when a claim lists a workload that is gone beside one that lives.
	outlived map[string]map[resourceapi.ResourceClaimConsumerReference]time.Time
}

// story describes the end of what happened to the objects of a name.
func (s *state) story(name string) string {
	const limit = 20
	lines := []string{name + ":"}
	records := s.stories[name]
	for _, r := range records[max(0, len(records)-limit):] {
		what := ""
		switch obj := r.obj.(type) {
		case *v1.Pod:
			what = fmt.Sprintf("node %q, %s, deletion %v", obj.Spec.NodeName, obj.Status.Phase, obj.DeletionTimestamp)
		case *resourceapi.ResourceClaim:
			what = fmt.Sprintf("allocated %t, reserved for %v, deletion %v", obj.Status.Allocation != nil, obj.Status.ReservedFor, obj.DeletionTimestamp)
		}
		if r.deleted {
			what = "removed"
		}
		lines = append(lines, fmt.Sprintf("    %s %d %T: %s", r.seen.Format("15:04:05.000"), r.rv, r.obj, what))
	}
	return strings.Join(lines, "\n")
}

func (s *state) fail(format string, args ...any) {
	s.violations = append(s.violations, fmt.Errorf("at resource version %d: %w", s.rv, fmt.Errorf(format, args...)))
}

// claimName returns the name of the claim, empty if the pod was not told yet.
func claimName(pod *v1.Pod, podClaim v1.PodResourceClaim) string {
	name, _, err := resourceclaim.Name(pod, &podClaim)
	if err != nil {
		return ""
	}
	return ptr.Deref(name, "")
}

func usesClaim(pod *v1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.ResourceClaims, func(c v1.PodResourceClaim) bool { return claimName(pod, c) == name })
}

func isTerminal(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

func isRunning(pod *v1.Pod) bool { return pod != nil && pod.Status.Phase == v1.PodRunning }

func (s *state) pod(pod *v1.Pod, deleted bool) {
	old := s.pods[pod.Name]
	if deleted {
		delete(s.pods, pod.Name)
		return
	}
	s.pods[pod.Name] = pod
	s.track(old, pod)
	if !isRunning(pod) || isRunning(old) && old.UID == pod.UID {
		return
	}
	s.runs++
	for _, podClaim := range pod.Spec.ResourceClaims {
		name := claimName(pod, podClaim)
		claim := s.claims[name]
		if claim == nil {
			s.fail("pod %s runs without claim %s", pod.Name, name)
			continue
		}
		// Whether the claim is also reserved right now does not matter: the
		// reservation may get removed after the pod was bound, as long as the
		// controller then finds the pod and does not deallocate.
		if claim.Status.Allocation == nil {
			s.fail("pod %s runs although claim %s is not allocated", pod.Name, name)
		} else if !ptr.Deref(claim.Status.Allocation.ReservedForAnyPod, false) &&
			!slices.ContainsFunc(claim.Status.ReservedFor, func(ref resourceapi.ResourceClaimConsumerReference) bool { return ref.UID == pod.UID }) {
			s.fail("pod %s runs although claim %s is not reserved for it", pod.Name, name)
		}
	}
}

// track remembers what a pod belongs to and when it was assigned to a node.
func (s *state) track(old, pod *v1.Pod) {
	workload, found := s.workloadOf(pod)
	if old == nil || old.UID != pod.UID {
		if found {
			s.belongsTo[pod.UID] = workload
		}
	} else if known, ok := s.belongsTo[pod.UID]; ok && old.Spec.NodeName == "" && (!found || known != workload) {
		// Adopted on the way to its node. The scheduler may have seen either.
		delete(s.belongsTo, pod.UID)
	}
	if pod.Spec.NodeName == "" || s.assigned[pod.UID] > 0 {
		return
	}
	s.assigned[pod.UID] = s.rv
	workload, found = s.belongsTo[pod.UID]
	for _, podClaim := range pod.Spec.ResourceClaims {
		name := claimName(pod, podClaim)
		claim := s.claims[name]
		if !found || claim == nil || claim.Status.Allocation == nil || !s.meant(claim, workload) {
			continue
		}
		if s.users[name] == nil {
			s.users[name] = map[resourceapi.ResourceClaimConsumerReference]string{}
		}
		s.users[name][workload] = pod.Name
	}
}

// meant returns true if the claim can be reserved for this incarnation of a workload.
func (s *state) meant(claim *resourceapi.ResourceClaim, workload resourceapi.ResourceClaimConsumerReference) bool {
	want := claim.Spec.ReservedFor
	return want != nil && ptr.Deref(claim.Status.Allocation.ReservedForAnyPod, false) &&
		want.APIGroup == workload.APIGroup && want.Resource == workload.Resource && want.Name == workload.Name &&
		(want.UID == "" || want.UID == workload.UID)
}

// workloadOf follows the controllers of a pod.
func (s *state) workloadOf(pod *v1.Pod) (resourceapi.ResourceClaimConsumerReference, bool) {
	owner := metav1.GetControllerOf(pod)
	if owner != nil && owner.Kind == "ReplicaSet" {
		owner = s.replicaSets[owner.UID]
	}
	if owner == nil {
		return resourceapi.ResourceClaimConsumerReference{}, false
	}
	gr, ok := map[string]schema.GroupResource{"Job": jobs, "Deployment": deployments, "StatefulSet": statefulsets}[owner.Kind]
	return *reservedFor(gr, owner.Name, owner.UID), ok
}

// checkDeallocated gets called for a claim that is not allocated anymore as it was before.
func (s *state) checkDeallocated(before *resourceapi.ResourceClaim) {
	name := before.Name
	released := s.released[name]
	if released == 0 {
		// Both in one write.
		released = s.rv
	}
	for _, pod := range s.pods {
		// A pod that was assigned later may have been on its way. It must find out itself.
		if !isTerminal(pod) && !isRunning(pod) && usesClaim(pod, name) && s.assigned[pod.UID] > 0 && s.assigned[pod.UID] < released {
			s.fail("claim %s was deallocated although pod %s was on a node before it was released\n%s\n%s", name, pod.Name, s.story(name), s.story(pod.Name))
		}
	}
	mayGoAnyway := before.DeletionTimestamp != nil || before.Status.Allocation.NodeSelector != nil || before.Annotations[releaseWhenIdle] != "" || s.idleByClass
	for workload, pod := range s.users[name] {
		if !s.workloads[workload] || mayGoAnyway {
			continue
		}
		if !s.mayGiveUp(before) {
			s.fail("claim %s was deallocated although %s %q (UID %s) lives, to which pod %s belonged\n%s", name, workload.Resource, workload.Name, workload.UID, pod, s.story(name))
		}
		break
	}
	delete(s.users, name)
	delete(s.released, name)
}

// mayGiveUp returns true if a device of the allocation broke, and more often than it was given up.
func (s *state) mayGiveUp(claim *resourceapi.ResourceClaim) bool {
	for _, result := range claim.Status.Allocation.Devices.Results {
		d := device{driver: result.Driver, pool: result.Pool, name: result.Device}
		if s.givenUp[d] < s.broken[d] {
			s.givenUp[d]++
			return true
		}
	}
	return false
}

// checkStranded looks for pods which wait on a node for a claim that nobody allocates.
func (s *state) checkStranded() {
	for _, pod := range s.pods {
		if pod.Spec.NodeName == "" || isTerminal(pod) || isRunning(pod) || pod.DeletionTimestamp != nil || s.explained[pod.UID] || !s.waitsForClaim(pod) {
			delete(s.stranded, pod.UID)
			continue
		}
		since, ok := s.stranded[pod.UID]
		switch {
		case !ok:
			s.stranded[pod.UID] = s.now
			s.everStranded++
		case s.bound > 0 && s.now.Sub(since) > s.bound:
			s.fail("pod %s is on node %s since %s although its claim is not allocated, and nobody said so\n%s", pod.Name, pod.Spec.NodeName, s.now.Sub(since), s.story(pod.Name))
			s.stranded[pod.UID] = s.now
		}
	}
}

// waitsForClaim returns true if a claim of the pod exists and is not allocated.
func (s *state) waitsForClaim(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.ResourceClaims, func(podClaim v1.PodResourceClaim) bool {
		claim := s.claims[claimName(pod, podClaim)]
		return claim != nil && claim.Status.Allocation == nil
	})
}

// checkOutlived looks for entries of dead workloads beside those of living ones.
func (s *state) checkOutlived() {
	for name, claim := range s.claims {
		living := slices.ContainsFunc(claim.Status.ReservedFor, func(ref resourceapi.ResourceClaimConsumerReference) bool { return s.workloads[ref] })
		outlived := map[resourceapi.ResourceClaimConsumerReference]time.Time{}
		for _, ref := range claim.Status.ReservedFor {
			if !living || s.workloads[ref] || ref.Resource == "pods" {
				continue
			}
			since, ok := s.outlived[name][ref]
			if !ok {
				since = s.now
			}
			if s.bound > 0 && s.now.Sub(since) > s.bound {
				s.fail("claim %s still lists %s %q (UID %s), which is dead since %s\n%s", name, ref.Resource, ref.Name, ref.UID, s.now.Sub(since), s.story(name))
				since = s.now
			}
			outlived[ref] = since
		}
		s.outlived[name] = outlived
	}
}

func (s *state) claim(claim *resourceapi.ResourceClaim, deleted bool) {
	old := s.claims[claim.Name]
	s.changes++
	if deleted {
		delete(s.claims, claim.Name)
		claim = claim.DeepCopy()
		claim.Status = resourceapi.ResourceClaimStatus{}
	} else {
		s.claims[claim.Name] = claim
	}

	var before *resourceapi.AllocationResult
	if old != nil {
		before = old.Status.Allocation
	}
	after := claim.Status.Allocation
	if before != nil && !apiequality.Semantic.DeepEqual(before, after) {
		for _, pod := range s.pods {
			if isRunning(pod) && usesClaim(pod, claim.Name) {
				s.fail("claim %s was deallocated while pod %s is running\n%s\n%s", claim.Name, pod.Name, s.story(claim.Name), s.story(pod.Name))
			}
		}
		s.releases++
		s.checkDeallocated(old)
		for d, owner := range s.devices {
			if owner == claim.Name {
				delete(s.devices, d)
			}
		}
	}
	if after != nil && !apiequality.Semantic.DeepEqual(before, after) {
		s.allocations++
		for _, result := range after.Devices.Results {
			if ptr.Deref(result.AdminAccess, false) {
				continue
			}
			d := device{driver: result.Driver, pool: result.Pool, name: result.Device}
			if other, ok := s.devices[d]; ok && other != claim.Name {
				s.fail("device %s is allocated to claim %s and claim %s", d.name, other, claim.Name)
			}
			s.devices[d] = claim.Name
		}
	}
	s.trackReleased(claim)
	if !apiequality.Semantic.DeepEqual(before, after) {
		delete(s.tampered, claim.Name)
	} else if after != nil && len(old.Status.ReservedFor) > 0 && len(claim.Status.ReservedFor) == 0 && s.hasUser(claim) {
		s.tampered[claim.Name] = true
	}
	listed := 0
	for _, ref := range claim.Status.ReservedFor {
		if ref.APIGroup == "" && ref.Resource == "pods" {
			listed++
		}
	}
	if others := len(claim.Status.ReservedFor) - listed; others > maxEntries {
		s.fail("claim %s has %d entries for workloads: %v", claim.Name, others, claim.Status.ReservedFor)
	}
	if after != nil && ptr.Deref(after.ReservedForAnyPod, false) && listed > maxReservedPods && !s.tampered[claim.Name] {
		s.fail("claim %s is allocated for any pod and still lists pods: %v", claim.Name, claim.Status.ReservedFor)
	}
}

// trackReleased remembers since when the list of an allocated claim is empty.
func (s *state) trackReleased(claim *resourceapi.ResourceClaim) {
	if s.excused[s.rv] {
		// Who removes an entry by hand decides that the workload does not need it.
		delete(s.users, claim.Name)
	}
	if claim.Status.Allocation == nil || len(claim.Status.ReservedFor) > 0 {
		delete(s.released, claim.Name)
	} else if s.released[claim.Name] == 0 {
		s.released[claim.Name] = s.rv
	}
}

func (s *state) workload(gr schema.GroupResource, obj metav1.Object, done bool) {
	ref := *reservedFor(gr, obj.GetName(), obj.GetUID())
	if done || obj.GetDeletionTimestamp() != nil {
		delete(s.workloads, ref)
		return
	}
	s.workloads[ref] = true
}

// inUse returns true if a claim is used: a pod which may use it has a node and
// has not ended, or the object that it is reserved for may start more of them.
func (s *state) inUse(claim *resourceapi.ResourceClaim) bool {
	if s.hasUser(claim) {
		return true
	}
	for _, ref := range claim.Status.ReservedFor {
		// Nothing can be started with a claim that is being deleted.
		if s.workloads[ref] && claim.DeletionTimestamp == nil {
			return true
		}
		// A pod that is reserved for and has no node yet.
		for _, pod := range s.pods {
			if pod.UID == ref.UID && !isTerminal(pod) {
				return true
			}
		}
	}
	return false
}

// hasUser returns true if a pod which uses the claim has a node and has not ended.
func (s *state) hasUser(claim *resourceapi.ResourceClaim) bool {
	for _, pod := range s.pods {
		if pod.Spec.NodeName != "" && !isTerminal(pod) && usesClaim(pod, claim.Name) {
			return true
		}
	}
	return false
}

func (s *state) checkIdle() {
	for name, claim := range s.claims {
		if claim.Status.Allocation == nil && claim.DeletionTimestamp == nil || s.inUse(claim) {
			s.endIdle(name)
			continue
		}
		since, ok := s.idle[name]
		switch {
		case !ok:
			s.idle[name] = s.now
		case s.bound > 0 && s.now.Sub(since) > s.bound:
			s.fail("claim %s has no user since %s and is still allocated or there, deletion %v\n%s", name, s.now.Sub(since), claim.DeletionTimestamp, s.story(name))
			// Once is enough.
			s.idle[name] = s.now
		}
	}
	for name := range s.idle {
		if s.claims[name] == nil {
			s.endIdle(name)
		}
	}
}

func (s *state) endIdle(name string) {
	if since, ok := s.idle[name]; ok {
		s.slowest = max(s.slowest, s.now.Sub(since))
		delete(s.idle, name)
	}
}

// err combines all violations, with a limit.
func (i invariants) err() error {
	const limit = 20
	if len(i.violations) > limit {
		return errors.Join(append(slices.Clone(i.violations[:limit]), fmt.Errorf("and %d more", len(i.violations)-limit))...)
	}
	return errors.Join(i.violations...)
}
