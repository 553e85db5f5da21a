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
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	cgotesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/ptr"
)

const sharedClaimName = "shared"

var claimGVR = resourceapi.SchemeGroupVersion.WithResource("resourceclaims")

// claimAPI replaces how the fake client handles writes of claims with something which
// behaves like the real API server as far as it matters here: conflicts, subresources,
// patches which get merged, and validation.
type claimAPI struct {
	tracker cgotesting.ObjectTracker

	// before gets called for each write. It may return an error. It may
	// also modify the stored claim.
	before func(write string, claim *resourceapi.ResourceClaim) error

	// after gets called before storing the new claim.
	after func(claim *resourceapi.ResourceClaim)

	// lost gets called after storing the new claim. It may return an error, which then
	// is all that the client gets to know.
	lost func(write string) error

	// late gets called instead of storing the new claim if it is set. The new claim
	// gets stored when the returned error was delivered and store gets called.
	late func(write string, store func()) error

	mutex           sync.Mutex
	resourceVersion int
	writes          []string
}

func (api *claimAPI) reactors() []cgotesting.Reactor {
	return []cgotesting.Reactor{
		&cgotesting.SimpleReactor{Verb: "update", Resource: "resourceclaims", Reaction: api.write},
		&cgotesting.SimpleReactor{Verb: "patch", Resource: "resourceclaims", Reaction: api.write},
	}
}

func (api *claimAPI) write(action cgotesting.Action) (bool, apiruntime.Object, error) {
	write := action.GetVerb()
	if action.GetSubresource() != "" {
		write += "/" + action.GetSubresource()
	}
	var name string
	switch action := action.(type) {
	case cgotesting.UpdateAction:
		name = action.GetObject().(metav1.Object).GetName()
	case cgotesting.PatchAction:
		name = action.GetName()
	}
	api.mutex.Lock()
	api.writes = append(api.writes, write)
	api.mutex.Unlock()

	get := func() (*resourceapi.ResourceClaim, error) {
		obj, err := api.tracker.Get(claimGVR, action.GetNamespace(), name)
		if err != nil {
			return nil, err
		}
		return obj.(*resourceapi.ResourceClaim).DeepCopy(), nil
	}
	stored, err := get()
	if err != nil {
		return true, nil, err
	}
	if api.before != nil {
		before := stored.DeepCopy()
		if err := api.before(write, before); err != nil {
			return true, nil, err
		}
		if !apiequality.Semantic.DeepEqual(before, stored) {
			if stored, err = api.store(before); err != nil {
				return true, nil, err
			}
		}
	}

	updated := stored.DeepCopy()
	switch action := action.(type) {
	case cgotesting.UpdateAction:
		claim := action.GetObject().(*resourceapi.ResourceClaim)
		if claim.UID != stored.UID || claim.ResourceVersion != stored.ResourceVersion {
			return true, nil, apierrors.NewConflict(claimGVR.GroupResource(), name, errors.New("the object has been modified"))
		}
		if action.GetSubresource() == "status" {
			updated.Status = *claim.Status.DeepCopy()
		} else {
			updated.ObjectMeta = *claim.ObjectMeta.DeepCopy()
		}
		// A fraction of a second gets lost.
		if allocation := updated.Status.Allocation; allocation != nil {
			encoded, err := json.Marshal(allocation)
			if err != nil {
				return true, nil, err
			}
			updated.Status.Allocation = &resourceapi.AllocationResult{}
			if err := json.Unmarshal(encoded, updated.Status.Allocation); err != nil {
				return true, nil, err
			}
		}
	case cgotesting.PatchAction:
		if action.GetPatchType() != types.StrategicMergePatchType || action.GetSubresource() != "status" {
			return true, nil, errors.New("unexpected patch")
		}
		original, err := json.Marshal(stored)
		if err != nil {
			return true, nil, err
		}
		patched, err := strategicpatch.StrategicMergePatch(original, action.GetPatch(), &resourceapi.ResourceClaim{})
		if err != nil {
			return true, nil, err
		}
		updated = &resourceapi.ResourceClaim{}
		if err := json.Unmarshal(patched, updated); err != nil {
			return true, nil, err
		}
		if updated.UID != stored.UID {
			return true, nil, apierrors.NewConflict(claimGVR.GroupResource(), name, errors.New("precondition failed: UID"))
		}
		if updated.ResourceVersion != stored.ResourceVersion {
			return true, nil, apierrors.NewConflict(claimGVR.GroupResource(), name, errors.New("the object has been modified"))
		}
	}
	if api.after != nil {
		api.after(updated)
	}
	if errs := validateStatus(updated, stored); len(errs) > 0 {
		return true, nil, apierrors.NewInvalid(resourceapi.SchemeGroupVersion.WithKind("ResourceClaim").GroupKind(), name, errs)
	}
	if api.late != nil {
		if err := api.late(write, func() { _, _ = api.store(updated) }); err != nil {
			return true, nil, err
		}
	}
	updated, err = api.store(updated)
	if err == nil && api.lost != nil {
		err = api.lost(write)
	}
	return true, updated, err
}

func (api *claimAPI) store(claim *resourceapi.ResourceClaim) (*resourceapi.ResourceClaim, error) {
	api.mutex.Lock()
	defer api.mutex.Unlock()
	api.resourceVersion++
	claim.ResourceVersion = fmt.Sprintf("%d", 10000+api.resourceVersion)
	err := api.tracker.Update(claimGVR, claim, claim.Namespace)
	return claim.DeepCopy(), err
}

func validateStatus(claim, oldClaim *resourceapi.ResourceClaim) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("status")
	uids := sets.New[types.UID]()
	for i, ref := range claim.Status.ReservedFor {
		if uids.Has(ref.UID) {
			errs = append(errs, field.Duplicate(path.Child("reservedFor").Index(i), ref.UID))
		}
		uids.Insert(ref.UID)
		if claim.DeletionTimestamp != nil && !slices.Contains(oldClaim.Status.ReservedFor, ref) {
			errs = append(errs, field.Forbidden(path.Child("reservedFor").Index(i), "being deleted"))
		}
	}
	if len(claim.Status.ReservedFor) > resourceapi.ResourceClaimReservedForMaxSize {
		errs = append(errs, field.TooMany(path.Child("reservedFor"), len(claim.Status.ReservedFor), resourceapi.ResourceClaimReservedForMaxSize))
	}
	if len(claim.Status.ReservedFor) > 0 && claim.Status.Allocation == nil {
		errs = append(errs, field.Forbidden(path.Child("reservedFor"), "not allocated"))
	}
	if claim.Status.Allocation != nil && oldClaim.Status.Allocation != nil && !apiequality.Semantic.DeepEqual(claim.Status.Allocation, oldClaim.Status.Allocation) {
		errs = append(errs, field.Invalid(path.Child("allocation"), claim.Status.Allocation, "field is immutable"))
	}
	return errs
}

// takeWrites returns all attempted writes of claims since the last call.
func (api *claimAPI) takeWrites() []string {
	api.mutex.Lock()
	defer api.mutex.Unlock()
	writes := api.writes
	api.writes = nil
	return writes
}

// sharedClaimsTest runs the plugin for several pods.
type sharedClaimsTest struct {
	*testContext
	tCtx ktesting.TContext
	api  *claimAPI

	// activated has the pods which were moved to the active queue.
	activatedMutex sync.Mutex
	activated      map[types.UID]*v1.Pod
}

// Activate is called instead of the same method of the scheduling queue.
func (t *sharedClaimsTest) Activate(_ klog.Logger, pods map[string]*v1.Pod) {
	t.activatedMutex.Lock()
	defer t.activatedMutex.Unlock()
	for _, pod := range pods {
		t.activated[pod.UID] = pod
	}
}

// takeActivated returns true if the pod was activated since the last call.
func (t *sharedClaimsTest) takeActivated(pod *v1.Pod) bool {
	t.activatedMutex.Lock()
	defer t.activatedMutex.Unlock()
	_, found := t.activated[pod.UID]
	delete(t.activated, pod.UID)
	return found
}

func newSharedClaimsTest(tCtx ktesting.TContext, feats feature.Features, claims []*resourceapi.ResourceClaim, objs ...apiruntime.Object) *sharedClaimsTest {
	tCtx.Helper()
	api := &claimAPI{}
	objs = append([]apiruntime.Object{workerNodeSlice, workerNode2Slice}, objs...)
	clonedClaims := make([]*resourceapi.ResourceClaim, 0, len(claims))
	for _, claim := range claims {
		clonedClaims = append(clonedClaims, claim.DeepCopy())
	}
	tc := setupSharedClaims(tCtx, []*v1.Node{workerNode, workerNode2}, clonedClaims, objs, feats, api.reactors())
	api.tracker = tc.client.Tracker()
	// A scheduler always watches pods.
	tc.informerFactory.Core().V1().Pods().Informer()
	tc.informerFactory.Start(tCtx.Done())
	// Some reactors block while the fake client is locked. Nothing else may
	// need the client then, in particular not the start of a watch.
	synctest.Wait()
	test := &sharedClaimsTest{testContext: tc, tCtx: tCtx, api: api, activated: make(map[types.UID]*v1.Pod)}
	tc.p.fh = activatingHandle{tc.p.fh, test}
	return test
}

// activatingHandle has no scheduling queue.
type activatingHandle struct {
	frameworkHandle
	test *sharedClaimsTest
}

func (h activatingHandle) Activate(logger klog.Logger, pods map[string]*v1.Pod) {
	h.test.Activate(logger, pods)
}

func newSharedClaim() *resourceapi.ResourceClaim {
	return st.MakeResourceClaim().Name(sharedClaimName).Namespace(namespace).Request(className).Obj()
}

func newAllocatedSharedClaim(refs ...resourceapi.ResourceClaimConsumerReference) *resourceapi.ResourceClaim {
	claim := newSharedClaim()
	claim.Finalizers = []string{resourceapi.Finalizer}
	claim.Status.Allocation = allocationResult.DeepCopy()
	claim.Status.ReservedFor = refs
	return claim
}

func podReferences(num int) []resourceapi.ResourceClaimConsumerReference {
	var refs []resourceapi.ResourceClaimConsumerReference
	for i := range num {
		name := fmt.Sprintf("other-pod-%d", i)
		refs = append(refs, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: name, UID: types.UID(name)})
	}
	return refs
}

func newSharingPod(name string) *v1.Pod {
	return st.MakePod().Name(name).Namespace(namespace).UID(name).
		PodResourceClaims(v1.PodResourceClaim{Name: resourceName, ResourceClaimName: ptr.To(sharedClaimName)}).
		Obj()
}

func (t *sharedClaimsTest) claim() *resourceapi.ResourceClaim {
	t.tCtx.Helper()
	claim, err := t.p.claimClient(namespace).Get(t.tCtx, sharedClaimName, metav1.GetOptions{})
	t.tCtx.ExpectNoError(err, "get shared claim")
	return claim
}

// change modifies the stored claim and waits for the cache.
func (t *sharedClaimsTest) change(cb func(claim *resourceapi.ResourceClaim)) {
	t.tCtx.Helper()
	claim := t.claim()
	cb(claim)
	_, err := t.api.store(claim)
	t.tCtx.ExpectNoError(err, "modify shared claim")
	synctest.Wait()
}

func (t *sharedClaimsTest) reservedFor() []string {
	t.tCtx.Helper()
	names := []string{}
	for _, ref := range t.claim().Status.ReservedFor {
		names = append(names, ref.Name)
	}
	slices.Sort(names)
	return names
}

// podCycle is one attempt to schedule one pod.
type podCycle struct {
	*sharedClaimsTest
	pod   *v1.Pod
	state cycleState

	// skipped and names are what PreFilter wants of Filter.
	skipped bool
	names   sets.Set[string]
}

func (t *sharedClaimsTest) preFilter(pod *v1.Pod) (*podCycle, *fwk.Status) {
	t.tCtx.Helper()
	for status := t.p.PreEnqueue(t.tCtx, pod); !status.IsSuccess(); status = t.p.PreEnqueue(t.tCtx, pod) {
		synctest.Wait()
		if !t.takeActivated(pod) {
			return nil, status
		}
	}
	cycle := &podCycle{sharedClaimsTest: t, pod: pod, state: newCycleState()}
	return cycle, cycle.callPreFilter()
}

// filter returns the names of the nodes where the pod could run.
func (c *podCycle) filter() []string {
	var nodes []string
	for i, nodeInfo := range c.nodeInfos {
		if c.callFilter(i) {
			nodes = append(nodes, nodeInfo.Node().Name)
		}
	}
	return nodes
}

// schedule does everything up to and including Reserve.
func (t *sharedClaimsTest) schedule(pod *v1.Pod) *podCycle {
	t.tCtx.Helper()
	cycle, status := t.preFilter(pod)
	require.Nil(t.tCtx, status, "PreFilter of %s", pod.Name)
	require.Contains(t.tCtx, cycle.filter(), nodeName, "nodes for %s", pod.Name)
	require.Nil(t.tCtx, t.p.Reserve(t.tCtx, cycle.state, pod, nodeName), "Reserve of %s", pod.Name)
	return cycle
}

// bind does what the binding cycle does.
func (c *podCycle) bind(ctx context.Context) *fwk.Status {
	status := c.preBindPreFlight(ctx)
	if status.IsSkip() {
		return nil
	}
	if status.IsSuccess() {
		status = c.p.PreBind(ctx, c.state, c.pod, nodeName)
	}
	if !status.IsSuccess() {
		c.unreserve()
	}
	return status
}

func (c *podCycle) unreserve() {
	c.p.Unreserve(c.tCtx, c.state, c.pod, nodeName)
}

// bindAll binds all pods concurrently, but the first one has to wait with its first write
// until all others are waiting for it.
func (t *sharedClaimsTest) bindAll(cycles []*podCycle) []*fwk.Status {
	t.tCtx.Helper()
	release := make(chan struct{})
	before := t.api.before
	var once sync.Once
	t.api.before = func(write string, claim *resourceapi.ResourceClaim) error {
		once.Do(func() { <-release })
		if before != nil {
			return before(write, claim)
		}
		return nil
	}
	defer func() { t.api.before = before }()

	var wg sync.WaitGroup
	statuses := make([]*fwk.Status, len(cycles))
	for i, cycle := range cycles {
		wg.Go(func() {
			status := cycle.preBindPreFlight(t.tCtx)
			if status.IsSuccess() {
				status = cycle.p.PreBind(t.tCtx, cycle.state, cycle.pod, nodeName)
			}
			if !status.IsSkip() {
				statuses[i] = status
			}
		})
		// The order is relevant: the first pod must be the first which writes.
		synctest.Wait()
	}
	close(release)
	wg.Wait()
	for i, status := range statuses {
		if !status.IsSuccess() {
			cycles[i].unreserve()
		}
	}
	return statuses
}

func requireAllBound(tCtx ktesting.TContext, statuses []*fwk.Status) {
	tCtx.Helper()
	for i, status := range statuses {
		require.Nil(tCtx, status, "PreBind of pod #%d", i)
	}
}

func withoutSharedClaims() feature.Features {
	feats := sharedClaimsFeatures()
	feats.EnableDRASharedClaims = false
	return feats
}

// scheduleAll does everything up to and including Reserve for several pods.
func (t *sharedClaimsTest) scheduleAll(numPods int) []*podCycle {
	t.tCtx.Helper()
	var cycles []*podCycle
	for i := range numPods {
		cycles = append(cycles, t.schedule(newSharingPod(fmt.Sprintf("pod-%03d", i))))
	}
	return cycles
}
