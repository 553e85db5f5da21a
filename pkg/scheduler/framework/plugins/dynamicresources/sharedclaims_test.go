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
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
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
	// Some reactors block while the fake client is locked. Nothing else may
	// need the client then, in particular not the start of a watch.
	synctest.Wait()
	return &sharedClaimsTest{testContext: tc, tCtx: tCtx, api: api, activated: make(map[types.UID]*v1.Pod)}
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

func TestSharedClaims(t *testing.T) {
	// All pods which are waiting for the same claim are handled together.
	syncTest(t, "many-pods", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newSharedClaim()})
		const numPods = 100
		var cycles []*podCycle
		var names []string
		for i := range numPods {
			pod := newSharingPod(fmt.Sprintf("pod-%03d", i))
			names = append(names, pod.Name)
			cycles = append(cycles, tc.schedule(pod))
		}
		require.Len(tCtx, tc.listInFlightClaims(), 1)

		requireAllBound(tCtx, tc.bindAll(cycles))
		assert.Equal(tCtx, []string{"update", "update/status", "patch/status"}, tc.api.takeWrites())
		assert.Equal(tCtx, names, tc.reservedFor())
		claim := tc.claim()
		assert.Contains(tCtx, claim.Finalizers, resourceapi.Finalizer)
		checkAllocationTimestamp(tCtx, claim)
		assert.Empty(tCtx, tc.listInFlightClaims())
		synctest.Wait()
		assert.Zero(tCtx, tc.p.claimReserver.numClaims())

		// One more, with the claim in the assume cache.
		requireAllBound(tCtx, []*fwk.Status{tc.schedule(newSharingPod("one-more")).bind(tCtx)})
		assert.Equal(tCtx, []string{"patch/status"}, tc.api.takeWrites())
		assert.Contains(tCtx, tc.reservedFor(), "one-more")

		// Removing a pod only affects the pod.
		cycles[7].unreserve()
		assert.NotContains(tCtx, tc.reservedFor(), names[7])
		assert.Len(tCtx, tc.reservedFor(), numPods)
	})

	// Pods may only go where the device is which is about to be allocated.
	syncTest(t, "pending-topology", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newSharedClaim()})
		cycle, status := tc.preFilter(newSharingPod("pod-1"))
		require.Nil(tCtx, status)
		assert.Equal(tCtx, []string{nodeName, node2Name}, cycle.filter())
		require.Nil(tCtx, tc.p.Reserve(tCtx, cycle.state, cycle.pod, nodeName))

		cycle, status = tc.preFilter(newSharingPod("pod-2"))
		require.Nil(tCtx, status)
		assert.Equal(tCtx, []string{nodeName}, cycle.filter())

		// Nothing is stored which could be deallocated.
		_, status = tc.p.PostFilter(tCtx, cycle.state, cycle.pod, nil)
		assert.Equal(tCtx, fwk.Unschedulable, status.Code())
		assert.Empty(tCtx, tc.api.takeWrites())
	})

	// Others finish what the first pod started.
	syncTest(t, "first-pod-fails", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newSharedClaim()})
		first := tc.schedule(newSharingPod("pod-1"))
		second := tc.schedule(newSharingPod("pod-2"))
		third := tc.schedule(newSharingPod("pod-3"))

		tc.api.before = func(string, *resourceapi.ResourceClaim) error { return errors.New("fake API failure") }
		status := first.bind(tCtx)
		require.ErrorContains(tCtx, status.AsError(), "fake API failure")
		tc.api.before = nil
		// The devices must not be given to some other claim.
		require.Len(tCtx, tc.listInFlightClaims(), 1)
		first.unreserve() // Extra calls don't matter.
		require.Len(tCtx, tc.listInFlightClaims(), 1)

		third.unreserve()
		require.Len(tCtx, tc.listInFlightClaims(), 1)
		require.Nil(tCtx, second.bind(tCtx))
		assert.Equal(tCtx, []string{"pod-2"}, tc.reservedFor())
		assert.Empty(tCtx, tc.listInFlightClaims())

		// The failed one gets a second chance.
		require.Nil(tCtx, tc.schedule(newSharingPod("pod-1")).bind(tCtx))
		assert.Equal(tCtx, []string{"pod-1", "pod-2"}, tc.reservedFor())
	})

	syncTest(t, "first-pod-fails-after-storing", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newSharedClaim()})
		first := tc.schedule(newSharingPod("pod-1"))
		second := tc.schedule(newSharingPod("pod-2"))
		require.Nil(tCtx, first.bind(tCtx))
		first.unreserve()
		require.Nil(tCtx, second.bind(tCtx))
		assert.Equal(tCtx, []string{"pod-2"}, tc.reservedFor())
	})

	syncTest(t, "all-pods-fail", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newSharedClaim()})
		cycles := []*podCycle{tc.schedule(newSharingPod("pod-1")), tc.schedule(newSharingPod("pod-2"))}
		for _, cycle := range cycles {
			require.Len(tCtx, tc.listInFlightClaims(), 1)
			cycle.unreserve()
		}
		require.Empty(tCtx, tc.listInFlightClaims())
		assert.Empty(tCtx, tc.api.takeWrites())

		// Late cleanup of some other pod must not affect a new allocation.
		third := tc.schedule(newSharingPod("pod-3"))
		cycles[1].unreserve()
		require.Len(tCtx, tc.listInFlightClaims(), 1)
		require.Nil(tCtx, third.bind(tCtx))
	})

	// The claim gets used for something else while a pod is still being bound.
	syncTest(t, "late-unreserve", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newSharedClaim()})
		first := tc.schedule(newSharingPod("pod-1"))
		second := tc.schedule(newSharingPod("pod-2"))
		require.Nil(tCtx, first.bind(tCtx))
		require.Empty(tCtx, tc.listInFlightClaims())
		tc.change(func(claim *resourceapi.ResourceClaim) { claim.Status = resourceapi.ResourceClaimStatus{} })
		third := tc.schedule(newSharingPod("pod-3"))
		second.unreserve()
		require.Len(tCtx, tc.listInFlightClaims(), 1)
		require.Nil(tCtx, third.bind(tCtx))
		assert.Equal(tCtx, []string{"pod-3"}, tc.reservedFor())
	})

	// This is what happens for pods in a group: all of them get reserved and unreserved,
	// then reserved again before they get bound.
	syncTest(t, "reserve-again", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newSharedClaim()})
		cycles := []*podCycle{tc.schedule(newSharingPod("pod-1")), tc.schedule(newSharingPod("pod-2"))}
		for _, cycle := range slices.Backward(cycles) {
			cycle.unreserve()
		}
		require.Empty(tCtx, tc.listInFlightClaims())
		for _, cycle := range cycles {
			require.Nil(tCtx, tc.p.Reserve(tCtx, cycle.state, cycle.pod, nodeName))
			require.Len(tCtx, tc.listInFlightClaims(), 1)
		}
		requireAllBound(tCtx, tc.bindAll(cycles))
		assert.Equal(tCtx, []string{"pod-1", "pod-2"}, tc.reservedFor())
		assert.Empty(tCtx, tc.listInFlightClaims())
	})

	syncTest(t, "stored-between-prefilter-and-reserve", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newSharedClaim()})
		first := tc.schedule(newSharingPod("pod-1"))
		second, status := tc.preFilter(newSharingPod("pod-2"))
		require.Nil(tCtx, status)
		require.Equal(tCtx, []string{nodeName}, second.filter())
		require.Nil(tCtx, first.bind(tCtx))
		require.Nil(tCtx, tc.p.Reserve(tCtx, second.state, second.pod, nodeName))
		assert.Empty(tCtx, tc.listInFlightClaims())
		require.Nil(tCtx, second.bind(tCtx))
		assert.Equal(tCtx, []string{"pod-1", "pod-2"}, tc.reservedFor())
	})

	// A claim for one pod is handled as before.
	syncTest(t, "claim-of-a-pod", func(tCtx ktesting.TContext) {
		claim := st.FromResourceClaim(newSharedClaim()).OwnerReference("pod-1", "pod-1", podKind).Obj()
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{claim})
		first := tc.schedule(newSharingPod("pod-1"))
		_, status := tc.preFilter(newSharingPod("pod-2"))
		assert.Equal(tCtx, fwk.UnschedulableAndUnresolvable, status.Code())
		assert.Contains(tCtx, status.Message(), "in the process of being allocated")
		require.Nil(tCtx, first.bind(tCtx))
		assert.Equal(tCtx, []string{"update", "update/status"}, tc.api.takeWrites())
	})

	syncTest(t, "canceled", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newSharedClaim()})
		first, second, third := tc.schedule(newSharingPod("pod-1")), tc.schedule(newSharingPod("pod-2")), tc.schedule(newSharingPod("pod-3"))
		release := make(chan struct{})
		var once sync.Once
		tc.api.before = func(string, *resourceapi.ResourceClaim) error {
			once.Do(func() { <-release })
			return nil
		}
		cause := errors.New("pod got preempted")
		ctx, cancel := context.WithCancelCause(tCtx)
		var wg sync.WaitGroup
		var statuses [3]*fwk.Status
		for i, cycle := range []*podCycle{first, second, third} {
			podCtx := ctx
			if i == 2 {
				podCtx = tCtx
			}
			wg.Go(func() { statuses[i] = cycle.p.PreBind(podCtx, cycle.state, cycle.pod, nodeName) })
			synctest.Wait()
		}
		cancel(cause)
		synctest.Wait()
		// The second one was still waiting. The first one needs to know
		// what needs to be undone.
		require.ErrorIs(tCtx, statuses[1].AsError(), cause)
		close(release)
		wg.Wait()
		require.Nil(tCtx, statuses[0])
		require.Nil(tCtx, statuses[2])
		second.unreserve()
		assert.Equal(tCtx, []string{"pod-1", "pod-3"}, tc.reservedFor())
		first.unreserve()
		assert.Equal(tCtx, []string{"pod-3"}, tc.reservedFor())
	})
}

// TestSharedClaimsChanged covers changes of the claim between scheduling and binding.
func TestSharedClaimsChanged(t *testing.T) {
	otherAllocation := allocationResult.DeepCopy()
	otherAllocation.Devices.Results[0].Device = "some-other-device"
	now := metav1.Now()

	testcases := map[string]struct {
		claim *resourceapi.ResourceClaim
		// change gets applied immediately before the first write.
		change      func(claim *resourceapi.ResourceClaim)
		expectErr   string
		expectRefs  []string
		expectWrite []string
	}{
		"pending-labels": {
			claim:       newSharedClaim(),
			change:      func(claim *resourceapi.ResourceClaim) { claim.Labels = map[string]string{"a": "b"} },
			expectRefs:  []string{"pod-1"},
			expectWrite: []string{"update", "update", "update/status"},
		},
		"pending-allocated-elsewhere": {
			claim: newSharedClaim(),
			change: func(claim *resourceapi.ResourceClaim) {
				claim.Status.Allocation = otherAllocation
				claim.Status.ReservedFor = podReferences(1)
			},
			expectErr:   "got allocated elsewhere",
			expectRefs:  []string{"other-pod-0"},
			expectWrite: []string{"update"},
		},
		"pending-deleted": {
			claim: newSharedClaim(),
			change: func(claim *resourceapi.ResourceClaim) {
				claim.DeletionTimestamp = &now
				claim.Finalizers = append(claim.Finalizers, "example.com/wait")
			},
			expectErr:   "got deleted",
			expectRefs:  []string{},
			expectWrite: []string{"update"},
		},
		"pending-replaced": {
			claim:       newSharedClaim(),
			change:      func(claim *resourceapi.ResourceClaim) { claim.UID = "some-other-uid" },
			expectErr:   "got replaced",
			expectRefs:  []string{},
			expectWrite: []string{"update"},
		},
		"allocated-labels": {
			claim:       newAllocatedSharedClaim(podReferences(2)...),
			change:      func(claim *resourceapi.ResourceClaim) { claim.Labels = map[string]string{"a": "b"} },
			expectRefs:  []string{"other-pod-0", "other-pod-1", "pod-1"},
			expectWrite: []string{"patch/status"},
		},
		"allocated-other-pod": {
			claim:       newAllocatedSharedClaim(),
			change:      func(claim *resourceapi.ResourceClaim) { claim.Status.ReservedFor = podReferences(2) },
			expectRefs:  []string{"other-pod-0", "other-pod-1", "pod-1"},
			expectWrite: []string{"patch/status"},
		},
		"allocated-already-listed": {
			claim: newAllocatedSharedClaim(),
			change: func(claim *resourceapi.ResourceClaim) {
				claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "pod-1", UID: "pod-1"}}
			},
			expectRefs:  []string{"pod-1"},
			expectWrite: []string{"patch/status"},
		},
		"allocated-differently": {
			claim: newAllocatedSharedClaim(podReferences(1)...),
			change: func(claim *resourceapi.ResourceClaim) {
				claim.Status.Allocation = otherAllocation
			},
			expectErr:  "got allocated elsewhere",
			expectRefs: []string{"other-pod-0"},
			// The pod gets removed again.
			expectWrite: []string{"patch/status", "patch/status"},
		},
		"allocated-deallocated": {
			claim: newAllocatedSharedClaim(podReferences(1)...),
			change: func(claim *resourceapi.ResourceClaim) {
				claim.Status = resourceapi.ResourceClaimStatus{}
			},
			expectErr:   "got deallocated",
			expectRefs:  []string{},
			expectWrite: []string{"patch/status"},
		},
		"allocated-deleted": {
			claim:       newAllocatedSharedClaim(podReferences(1)...),
			change:      func(claim *resourceapi.ResourceClaim) { claim.DeletionTimestamp = &now },
			expectErr:   "got deleted",
			expectRefs:  []string{"other-pod-0"},
			expectWrite: []string{"patch/status"},
		},
		"allocated-replaced": {
			claim:       newAllocatedSharedClaim(podReferences(1)...),
			change:      func(claim *resourceapi.ResourceClaim) { claim.UID = "some-other-uid" },
			expectErr:   "got replaced",
			expectRefs:  []string{"other-pod-0"},
			expectWrite: []string{"patch/status"},
		},
		"allocated-full": {
			claim: newAllocatedSharedClaim(),
			change: func(claim *resourceapi.ResourceClaim) {
				claim.Status.ReservedFor = podReferences(resourceapi.ResourceClaimReservedForMaxSize)
			},
			expectErr:   "spec.reservedFor",
			expectWrite: []string{"patch/status"},
		},
	}
	for name, tc := range testcases {
		syncTest(t, name, func(tCtx ktesting.TContext) {
			test := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{tc.claim})
			cycle := test.schedule(newSharingPod("pod-1"))
			var once sync.Once
			test.api.before = func(_ string, claim *resourceapi.ResourceClaim) error {
				once.Do(func() { tc.change(claim) })
				return nil
			}
			status := cycle.bind(tCtx)
			if tc.expectErr == "" {
				require.Nil(tCtx, status)
			} else {
				require.ErrorContains(tCtx, status.AsError(), tc.expectErr)
			}
			if tc.expectRefs != nil {
				assert.Equal(tCtx, tc.expectRefs, test.reservedFor())
			}
			assert.Equal(tCtx, tc.expectWrite, test.api.takeWrites())
			assert.Empty(tCtx, test.listInFlightClaims())

			// Nothing wrong in the cache.
			synctest.Wait()
			cached, err := test.draManager.ResourceClaims().Get(namespace, sharedClaimName)
			tCtx.ExpectNoError(err)
			assert.Equal(tCtx, test.claim().ResourceVersion, cached.ResourceVersion)
		})
	}
}

func TestSharedClaimsRejected(t *testing.T) {
	// Something that the plugin doesn't know about: don't keep trying.
	syncTest(t, "", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newAllocatedSharedClaim()})
		cycle := tc.schedule(newSharingPod("pod-1"))
		tc.api.before = func(string, *resourceapi.ResourceClaim) error {
			return apierrors.NewInvalid(resourceapi.SchemeGroupVersion.WithKind("ResourceClaim").GroupKind(), sharedClaimName, field.ErrorList{field.Forbidden(field.NewPath("status"), "by policy")})
		}
		require.ErrorContains(tCtx, cycle.bind(tCtx).AsError(), "by policy")
		assert.Equal(tCtx, []string{"patch/status"}, tc.api.takeWrites())
	})

	// Conflicts without end.
	syncTest(t, "conflicts", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newSharedClaim()})
		cycle := tc.schedule(newSharingPod("pod-1"))
		counter := 0
		tc.api.before = func(_ string, claim *resourceapi.ResourceClaim) error {
			counter++
			claim.Labels = map[string]string{"counter": fmt.Sprintf("%d", counter)}
			return nil
		}
		require.ErrorContains(tCtx, cycle.bind(tCtx).AsError(), "giving up")
		assert.Len(tCtx, tc.api.takeWrites(), maxClaimWriteAttempts)
		assert.Empty(tCtx, tc.listInFlightClaims())
	})
}

func TestFullClaim(t *testing.T) {
	const maxSize = resourceapi.ResourceClaimReservedForMaxSize

	syncTest(t, "prefilter", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newAllocatedSharedClaim(podReferences(maxSize)...)})
		_, status := tc.preFilter(newSharingPod("pod-1"))
		assert.Equal(tCtx, fwk.UnschedulableAndUnresolvable, status.Code())
		assert.Contains(tCtx, status.Message(), "resourceclaim in use")
		assert.Contains(tCtx, status.Message(), "256")
		assert.Contains(tCtx, status.Message(), "spec.reservedFor")
		assert.Empty(tCtx, tc.api.takeWrites())

		// One which is listed already is not affected.
		require.Nil(tCtx, tc.schedule(newSharingPod("other-pod-3")).bind(tCtx))
	})

	// Some other scheduler takes places for which pods are on their way already.
	syncTest(t, "prebind", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newAllocatedSharedClaim(podReferences(maxSize - 5)...)})
		var cycles []*podCycle
		for i := range 5 {
			cycles = append(cycles, tc.schedule(newSharingPod(fmt.Sprintf("pod-%d", i))))
		}
		tc.change(func(claim *resourceapi.ResourceClaim) { claim.Status.ReservedFor = podReferences(maxSize - 3) })
		statuses := tc.bindAll(cycles)
		requireAllBound(tCtx, statuses[0:3])
		for _, status := range statuses[3:] {
			assert.Equal(tCtx, fwk.UnschedulableAndUnresolvable, status.Code())
			assert.Contains(tCtx, status.Message(), "spec.reservedFor")
		}
		assert.Equal(tCtx, []string{"patch/status", "patch/status"}, tc.api.takeWrites())
		assert.Len(tCtx, tc.reservedFor(), maxSize)
	})

	syncTest(t, "queueing-hint", func(tCtx ktesting.TContext) {
		tc := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), []*resourceapi.ResourceClaim{newAllocatedSharedClaim(podReferences(maxSize)...)})
		pod := newSharingPod("pod-1")
		full := tc.claim()
		hint := func(cb func(claim *resourceapi.ResourceClaim)) fwk.QueueingHint {
			tCtx.Helper()
			claim := full.DeepCopy()
			cb(claim)
			hint, err := tc.p.isSchedulableAfterClaimChange(tCtx.Logger(), pod, full, claim)
			tCtx.ExpectNoError(err)
			return hint
		}
		assert.Equal(tCtx, fwk.QueueSkip, hint(func(claim *resourceapi.ResourceClaim) {
			claim.Status.Devices = []resourceapi.AllocatedDeviceStatus{{Driver: driver, Pool: nodeName, Device: "instance-1"}}
		}), "still full")
		assert.Equal(tCtx, fwk.QueueSkip, hint(func(claim *resourceapi.ResourceClaim) {
			claim.Status.ReservedFor[0].UID = "yet-another-pod"
		}), "still full with some other pod")
		assert.Equal(tCtx, fwk.Queue, hint(func(claim *resourceapi.ResourceClaim) {
			claim.Status.ReservedFor = claim.Status.ReservedFor[1:]
		}), "room for one pod")
		assert.Equal(tCtx, fwk.Queue, hint(func(claim *resourceapi.ResourceClaim) {
			claim.Status.ReservedFor[0].UID = pod.UID
		}), "room for this pod")
		assert.Equal(tCtx, fwk.Queue, hint(func(claim *resourceapi.ResourceClaim) {
			claim.Status = resourceapi.ResourceClaimStatus{}
		}), "deallocated")
	})
}

// numClaims returns for how many claims there is a goroutine or a pod that waits.
func (r *claimReserver) numClaims() int {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return len(r.queues)
}

// TestClaimReserver ensures that no request gets lost, whatever the timing is.
func TestClaimReserver(t *testing.T) {
	tCtx := ktesting.Init(t)
	var mutex sync.Mutex
	stored := sets.New[string]()
	active := sets.New[types.UID]()
	reserver := newClaimReserver(tCtx, func(_ context.Context, requests []*claimReservation) {
		mutex.Lock()
		claimUID := requests[0].claim.UID
		if active.Has(claimUID) {
			tCtx.Errorf("claim %s is already being changed", claimUID)
		}
		active.Insert(claimUID)
		mutex.Unlock()
		defer func() {
			mutex.Lock()
			defer mutex.Unlock()
			active.Delete(claimUID)
		}()

		for _, request := range requests {
			if request.claim.UID != claimUID {
				tCtx.Errorf("got a request for claim %s among those for %s", request.claim.UID, claimUID)
			}
			if strings.HasSuffix(request.pod.Name, "7") {
				request.err = errors.New("fake failure for " + request.pod.Name)
				continue
			}
			request.result = request.claim
			mutex.Lock()
			stored.Insert(request.pod.Name)
			mutex.Unlock()
		}
	})

	var wg sync.WaitGroup
	for c := range 3 {
		claim := newSharedClaim()
		claim.UID = types.UID(fmt.Sprintf("claim-%d", c))
		for p := range 200 {
			wg.Go(func() {
				request := &claimReservation{
					pod:   newSharingPod(fmt.Sprintf("pod-%d-%d", c, p)),
					claim: claim,
					done:  make(chan struct{}),
				}
				ctx := context.Context(tCtx)
				canceled := p%10 == 3
				if canceled {
					c, cancel := context.WithCancel(ctx)
					cancel()
					ctx = c
				}
				result, err := reserver.reserve(ctx, request)
				mutex.Lock()
				done := stored.Has(request.pod.Name)
				mutex.Unlock()
				switch {
				case p%10 == 7:
					assert.ErrorContains(tCtx, err, request.pod.Name)
				case canceled:
					assert.Equal(tCtx, done, err == nil, "%s: the result must match what was stored", request.pod.Name)
				default:
					assert.NoError(tCtx, err)
					assert.Equal(tCtx, claim, result)
					assert.True(tCtx, done)
				}
			})
		}
	}
	wg.Wait()
	// The goroutines check once more for work before they stop.
	require.Eventually(tCtx, func() bool { return reserver.numClaims() == 0 }, time.Minute, time.Millisecond)
}
