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
	"reflect"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/resourceclaim/owners"
)

const (
	// ownerLookupTimeout limits one look at an owner.
	ownerLookupTimeout = 5 * time.Second

	// maxOwnerLookups limits how many owners are being looked up at the same time,
	// maxOwnerLookupsPerNamespace how many of those may be in the same namespace.
	maxOwnerLookups             = 8
	maxOwnerLookupsPerNamespace = 2

	// maxOwnerBytes limits what is known about the owners in one namespace, maxAllOwnerBytes
	// that about all of them.
	maxOwnerBytes    = 768 * 1024
	maxAllOwnerBytes = 32 * 1024 * 1024

	// ownerEntryBytes is about what one owner takes without strings.
	ownerEntryBytes = 600

	// maxRefusedPods limits how many pods in a namespace are remembered for which there was no
	// room. Others have to wait until the scheduler tries them again by itself.
	maxRefusedPods = 1000

	// An owner which has a controller almost never gets a different one. An owner
	// that has none, or that does not exist, may have just been created.
	ownerTTL         = 10 * time.Minute
	ownerNegativeTTL = 10 * time.Second

	// Owners for which pods are waiting are looked up again and again.
	minOwnerBackoff = time.Second
	maxOwnerBackoff = 30 * time.Second

	// ownerUnusedTTL is how long a controller is remembered which nobody asks for. That there is
	// none is not remembered for longer than it is used.
	ownerUnusedTTL = 30 * time.Minute

	// ownerSweepInterval is how often that is checked.
	ownerSweepInterval = time.Minute

	// ownerMinTTL is how long an answer is kept in any case: those who asked for it need time
	// to come back.
	ownerMinTTL = 5 * time.Second
)

// errOwnerPending is returned for an owner which is being looked up for the first time.
var errOwnerPending = errors.New("owner is being looked up")

// errTooManyOwners is returned if there is no room for one more owner.
var errTooManyOwners = errors.New("too many owners of pods in the namespace have to be looked up")

// ownerReader retrieves owners of pods.
type ownerReader interface {
	// get returns the object, nil if there can be no such object in the
	// namespace because of its kind.
	get(ctx context.Context, namespace string, gvk schema.GroupVersionKind, name string) (metav1.Object, error)
}

// ownerKey identifies an owner. Nothing that is known about one key says
// anything about another one: owner references can be forged.
type ownerKey struct {
	namespace, group, kind, name string

	uid types.UID
}

// ownerEntry is what is known about an owner.
type ownerEntry struct {
	key     ownerKey
	version string

	// answered is true once there was an answer. It is either the controller of the
	// owner, which may be nil, or an error.
	answered   bool
	controller *metav1.OwnerReference
	err        error

	// checked is the time of the last answer, used the time of the last question.
	checked, used time.Time

	// pending is true while the lookup waits for its turn or is running.
	pending bool

	// backoff is the time until the next lookup.
	backoff time.Duration

	// recheck is set while the next lookup is scheduled.
	recheck *time.Timer

	// waiters are the names of the pods which have to be scheduled again when the answer
	// changes. The pods themselves may be large, and gone.
	waiters map[types.UID]string

	// bytes is what the entry is counted as.
	bytes int
}

// size determines what the entry has to be counted as. Names of pods which wait are not
// counted: there are not many more than pods.
func (e *ownerEntry) size() int {
	n := ownerEntryBytes + len(e.key.namespace) + len(e.key.group) + len(e.key.kind) + len(e.key.name) + len(e.key.uid) + len(e.version)
	if c := e.controller; c != nil {
		n += len(c.APIVersion) + len(c.Kind) + len(c.Name) + len(c.UID)
	}
	if e.err != nil {
		n += len(e.err.Error())
	}
	return n
}

// namespaceOwners are the owners in one namespace.
type namespaceOwners struct {
	entries map[ownerKey]*ownerEntry

	// queue has the lookups which wait for their turn.
	queue []*ownerEntry

	// running is the number of lookups in progress.
	running int

	// scheduled is true if the namespace is among those whose turn comes.
	scheduled bool

	// bytes is what the entries are counted as.
	bytes int

	// refused are the names of pods for which there was no room. They get scheduled again when
	// retry fires.
	refused map[types.UID]string
	retry   *time.Timer
}

// ownerResolver finds the controllers of the owners of pods. There is no informer for
// them because very few objects are needed: one for all pods of a
// ReplicaSet or Job. Lookups are made in the background, with a client of
// its own, such that neither scheduling nor binding is ever held up by them.
//
// A pod which asked gets scheduled again when the answer it got changes. As long as pods
// wait for that, the owner is looked up again.
type ownerResolver struct {
	// ctx ends when the scheduler stops.
	ctx context.Context

	// reader is nil if there is no access to the API server.
	reader ownerReader

	pods corelisters.PodLister

	// activate must be called without holding the mutex.
	activate func(pods map[string]*v1.Pod)

	mutex      sync.Mutex
	namespaces map[string]*namespaceOwners
	bytes      int
	swept      time.Time

	// turns lists the namespaces whose turn comes, running is the number of lookups in progress.
	turns   []string
	running int
}

func newOwnerResolver(ctx context.Context, handle pluginHandle) (*ownerResolver, error) {
	r := &ownerResolver{
		ctx:        ctx,
		namespaces: make(map[string]*namespaceOwners),
		swept:      time.Now(),
		pods:       handle.SharedInformerFactory().Core().V1().Pods().Lister(),
		activate:   func(pods map[string]*v1.Pod) { handle.Activate(klog.FromContext(ctx), pods) },
	}
	if config := handle.KubeConfig(); config != nil {
		reader, err := newMetadataOwnerReader(config)
		if err != nil {
			return nil, err
		}
		r.reader = reader
	}
	return r, nil
}

// isWaiting returns false for a pod which got assigned to a node or is gone.
func (r *ownerResolver) isWaiting(namespace, name string, uid types.UID) bool {
	pod, err := r.pods.Pods(namespace).Get(name)
	return err == nil && pod.UID == uid && pod.Spec.NodeName == ""
}

// podsNamed returns what the scheduling queue needs to find pods. It looks at the group of a
// pod, too. If a pod is not in the cache, then its name is tried.
func (r *ownerResolver) podsNamed(namespace string, names map[types.UID]string) map[string]*v1.Pod {
	pods := make(map[string]*v1.Pod, len(names))
	for uid, name := range names {
		pod, err := r.pods.Pods(namespace).Get(name)
		if err != nil || pod.UID != uid {
			pod = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid}}
		}
		pods[string(uid)] = pod
	}
	return pods
}

// workloadUID returns the UID of the workload that the pod belongs to, empty if it does not
// belong to it. An error is an *owners.UnresolvedError if it was found out that a
// controller cannot be determined. It never blocks.
func (r *ownerResolver) workloadUID(pod *v1.Pod, workload resourceapi.ResourceClaimWorkloadReference) (types.UID, error) {
	return owners.FindWorkloadUID(pod, workload, func(owner metav1.OwnerReference) (*metav1.OwnerReference, error) {
		return r.controllerOf(pod, owner)
	})
}

// noController explains why a pod belongs to nothing, empty if that is not certain: whoever may not
// look at an owner does not know.
func noController(err error) string {
	if reason := owners.ReasonFor(err); reason == "" || reason == owners.Forbidden {
		return ""
	}
	return ", " + err.Error()
}

// errNoOwnerAccess is returned by a plugin without a configuration for clients, for example in a simulation
// of the Cluster Autoscaler.
var errNoOwnerAccess = errors.New("the scheduler plugin was started without access to the API server")

// controllerOf returns the controller of an owner of the pod, nil if there is none. It
// never blocks. If it returns an error or nil, then the pod gets activated
// when that changes.
func (r *ownerResolver) controllerOf(pod *v1.Pod, owner metav1.OwnerReference) (*metav1.OwnerReference, error) {
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return nil, owners.Unresolved(owners.UnknownKind, owner, nil)
	}
	if r.reader == nil {
		return nil, errNoOwnerAccess
	}

	r.mutex.Lock()
	defer r.mutex.Unlock()
	key := ownerKey{namespace: pod.Namespace, group: gv.Group, kind: owner.Kind, name: owner.Name, uid: owner.UID}
	entry := r.entry(key, gv.Version)
	if entry == nil {
		r.refuse(pod)
		return nil, errTooManyOwners
	}
	now := time.Now()
	entry.used = now
	age := now.Sub(entry.checked)

	if entry.controller != nil {
		if age > ownerTTL {
			r.enqueue(entry)
		}
		return entry.controller, nil
	}

	entry.wait(pod)
	switch {
	case !entry.answered:
		r.enqueue(entry)
		return nil, errOwnerPending
	case entry.pending:
	case entry.recheck == nil && age > ownerNegativeTTL:
		// Nobody waited for changes.
		entry.answered = false
		r.enqueue(entry)
		return nil, errOwnerPending
	default:
		r.scheduleRecheck(entry)
	}
	return nil, entry.err
}

// entry returns the entry for the key, nil if there is no room for one more.
func (r *ownerResolver) entry(key ownerKey, version string) *ownerEntry {
	r.sweep()
	ns := r.namespaces[key.namespace]
	if ns == nil {
		ns = &namespaceOwners{entries: make(map[ownerKey]*ownerEntry), refused: make(map[types.UID]string)}
		r.namespaces[key.namespace] = ns
	}
	if entry := ns.entries[key]; entry != nil {
		return entry
	}
	entry := &ownerEntry{key: key, version: version, backoff: minOwnerBackoff}
	for ns.bytes+entry.size() > maxOwnerBytes {
		if !r.evict(ns) {
			return nil
		}
	}
	for r.bytes+entry.size() > maxAllOwnerBytes {
		if !r.evict(r.largest()) {
			return nil
		}
	}
	ns.entries[key] = entry
	r.count(entry)
	return entry
}

// count updates what an entry is counted as.
func (r *ownerResolver) count(entry *ownerEntry) {
	bytes := entry.size()
	r.namespaces[entry.key.namespace].bytes += bytes - entry.bytes
	r.bytes += bytes - entry.bytes
	entry.bytes = bytes
}

func (r *ownerResolver) remove(ns *namespaceOwners, entry *ownerEntry) {
	delete(ns.entries, entry.key)
	ns.bytes -= entry.bytes
	r.bytes -= entry.bytes
}

// largest returns the namespace which takes the most memory.
func (r *ownerResolver) largest() *namespaceOwners {
	var largest *namespaceOwners
	for _, ns := range r.namespaces {
		if largest == nil || ns.bytes > largest.bytes {
			largest = ns
		}
	}
	return largest
}

// evict removes what was not used for the longest time.
func (r *ownerResolver) evict(ns *namespaceOwners) bool {
	var oldest *ownerEntry
	now := time.Now()
	for _, entry := range ns.entries {
		if entry.isIdle() && now.Sub(entry.checked) >= ownerMinTTL && (oldest == nil || entry.used.Before(oldest.used)) {
			oldest = entry
		}
	}
	if oldest == nil {
		return false
	}
	r.remove(ns, oldest)
	return true
}

// refuse ensures that a pod for which there is no room gets another chance.
func (r *ownerResolver) refuse(pod *v1.Pod) {
	ns := r.namespaces[pod.Namespace]
	if len(ns.refused) < maxRefusedPods {
		ns.refused[pod.UID] = pod.Name
	}
	if ns.retry != nil {
		return
	}
	namespace := pod.Namespace
	ns.retry = time.AfterFunc(ownerMinTTL, func() {
		r.mutex.Lock()
		pods := r.podsNamed(namespace, ns.refused)
		clear(ns.refused)
		ns.retry = nil
		r.mutex.Unlock()
		if r.ctx.Err() == nil && len(pods) > 0 {
			r.activate(pods)
		}
	})
}

func (e *ownerEntry) isIdle() bool {
	return !e.pending && e.recheck == nil && len(e.waiters) == 0
}

// wait adds a pod which has to be scheduled again when the answer changes.
func (e *ownerEntry) wait(pod *v1.Pod) {
	if e.waiters == nil {
		e.waiters = make(map[types.UID]string, 1)
	}
	e.waiters[pod.UID] = pod.Name
}

// sweep forgets what nobody asks for.
func (r *ownerResolver) sweep() {
	now := time.Now()
	if now.Sub(r.swept) < ownerSweepInterval {
		return
	}
	r.swept = now
	for name, ns := range r.namespaces {
		for _, entry := range ns.entries {
			ttl := ownerUnusedTTL
			if entry.controller == nil {
				ttl = ownerNegativeTTL
			}
			if entry.isIdle() && now.Sub(entry.used) >= ttl {
				r.remove(ns, entry)
			}
		}
		if len(ns.entries) == 0 && ns.retry == nil {
			delete(r.namespaces, name)
		}
	}
}

// enqueue ensures that the owner gets looked up.
func (r *ownerResolver) enqueue(entry *ownerEntry) {
	if entry.pending {
		return
	}
	entry.pending = true
	ns := r.namespaces[entry.key.namespace]
	ns.queue = append(ns.queue, entry)
	r.takeTurn(entry.key.namespace, ns)
	r.dispatch()
}

// takeTurn puts a namespace which may start one more lookup at the end of the line.
func (r *ownerResolver) takeTurn(name string, ns *namespaceOwners) {
	if !ns.scheduled && len(ns.queue) > 0 && ns.running < maxOwnerLookupsPerNamespace {
		ns.scheduled = true
		r.turns = append(r.turns, name)
	}
}

// dispatch starts as many lookups as possible.
func (r *ownerResolver) dispatch() {
	for r.running < maxOwnerLookups && len(r.turns) > 0 {
		name := r.turns[0]
		r.turns = r.turns[1:]
		ns := r.namespaces[name]
		ns.scheduled = false
		entry := ns.queue[0]
		ns.queue = ns.queue[1:]
		ns.running++
		r.running++
		r.takeTurn(name, ns)
		go r.run(entry)
	}
}

// run looks up one owner.
func (r *ownerResolver) run(entry *ownerEntry) {
	controller, err := r.lookUp(entry)
	if r.ctx.Err() != nil {
		return
	}

	r.mutex.Lock()
	ns := r.namespaces[entry.key.namespace]
	ns.running--
	r.running--
	entry.pending = false
	pods := r.answer(entry, controller, err)
	r.takeTurn(entry.key.namespace, ns)
	r.dispatch()
	r.mutex.Unlock()

	if len(pods) > 0 {
		r.activate(pods)
	}
}

// lookUp asks the API server for the controller of an owner.
func (r *ownerResolver) lookUp(entry *ownerEntry) (controller *metav1.OwnerReference, err error) {
	defer func() {
		// The pods must not wait for ever, whatever goes wrong.
		if p := recover(); p != nil {
			utilruntime.HandleErrorWithContext(r.ctx, nil, "Looking up the owner of a pod panicked", "panic", p)
			controller, err = nil, fmt.Errorf("internal error: %v", p)
		}
	}()
	ctx, cancel := context.WithTimeout(r.ctx, ownerLookupTimeout)
	defer cancel()
	key := entry.key
	gvk := schema.GroupVersionKind{Group: key.group, Version: entry.version, Kind: key.kind}
	owner := metav1.OwnerReference{Kind: key.kind, Name: key.name, UID: key.uid}
	obj, err := r.reader.get(ctx, key.namespace, gvk, key.name)
	reason := owners.ReasonForGet(err)
	switch {
	case reason != "":
		err = owners.Unresolved(reason, owner, err)
	case err != nil:
		err = fmt.Errorf("get owner %s %s of the pod: %w", key.kind, klog.KRef(key.namespace, key.name), err)
	case obj == nil:
		err = owners.Unresolved(owners.UnknownKind, owner, nil)
	default:
		controller, err = owners.Controller(obj.GetUID(), metav1.GetControllerOf(obj), owner)
	}
	klog.FromContext(r.ctx).V(5).Info("Looked up owner of pods", "kind", key.kind, "owner", klog.KRef(key.namespace, key.name), "uid", key.uid, "controlledBy", controller, "err", err)
	return controller, err
}

// answer stores the result of a lookup. It returns the pods which have to be scheduled again.
func (r *ownerResolver) answer(entry *ownerEntry, controller *metav1.OwnerReference, err error) map[string]*v1.Pod {
	if err != nil && entry.controller != nil && noController(err) == "" {
		// An owner does not lose its controller because it cannot be looked up.
		controller, err = entry.controller, nil
	}
	changed := !entry.answered || !reflect.DeepEqual(entry.controller, controller) || reasonOf(entry.err) != reasonOf(err)
	entry.answered, entry.controller, entry.err = true, controller, err
	entry.checked = time.Now()
	defer r.count(entry)
	if changed {
		entry.backoff = minOwnerBackoff
		pods := r.podsNamed(entry.key.namespace, entry.waiters)
		entry.waiters = nil
		return pods
	}
	entry.backoff = min(2*entry.backoff, maxOwnerBackoff)
	if len(entry.waiters) > 0 {
		r.scheduleRecheck(entry)
	}
	return nil
}

// reasonOf tells errors apart where that makes a difference for pods. The text
// may be different each time.
func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	return "error " + string(owners.ReasonFor(err)) + string(apierrors.ReasonForError(err))
}

// scheduleRecheck ensures that an owner gets looked up again while pods wait for it.
func (r *ownerResolver) scheduleRecheck(entry *ownerEntry) {
	if entry.recheck != nil {
		return
	}
	entry.recheck = time.AfterFunc(entry.backoff, func() {
		r.mutex.Lock()
		defer r.mutex.Unlock()
		entry.recheck = nil
		if r.ctx.Err() != nil {
			return
		}
		for uid, name := range entry.waiters {
			if !r.isWaiting(entry.key.namespace, name, uid) {
				delete(entry.waiters, uid)
			}
		}
		if len(entry.waiters) > 0 {
			r.enqueue(entry)
		}
	})
}
