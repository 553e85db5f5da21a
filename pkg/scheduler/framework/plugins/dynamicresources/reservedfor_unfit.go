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
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// This file contains the way out of an allocation for any pod which fits no longer,
// for example because its node is gone, cordoned or full. The scheduler must not
// deallocate such a claim itself because it cannot know all pods which use it. It takes
// the reservation away. The resourceclaim controller then looks at the API server.
// It deallocates the claim or, if there is a pod, brings the reservation back.
//
// The same way leads out of an allocation with a device that no new pod should use, because it is
// tainted or because it does not exist anymore (checkDevices). Without it, a workload whose
// pods get evicted because of that device would get new pods for the same device,
// and lose those, for ever. Taints are in reservedfor_taints.go, which 1.32 does not have.

const (
	// What gets recorded as event for the claim.
	releaseRequestedReason  = "ReleaseRequested"
	releaseRequestedMessage = "The allocation does not fit pod %s, which needs the claim, and no pod uses it: the scheduler removed the reservation so that the claim can be allocated elsewhere"
)

// tryAgainInterval is the time after which a pod looks again at pods which are
// about to be assigned to a node.
const tryAgainInterval = 5 * time.Second

// minUnfitClaims is the smallest number of entries at which it is worth looking for claims
// which are gone.
const minUnfitClaims = 100

// releaseRequestBackoff is for temporary failures of the API server.
var releaseRequestBackoff = wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 4}

// assignedUsersIndex is the name of the index that has the pods which use a claim on a node.
const assignedUsersIndex = "assignedUsersOfClaim"

// assignedUsers is the function for that index. Its keys are "<namespace>/<name>" of claims.
func assignedUsers(obj any) ([]string, error) {
	pod, ok := obj.(*v1.Pod)
	if !ok || pod.Spec.NodeName == "" || isDone(pod) {
		return nil, nil
	}
	var keys []string
	for name := range resourceclaim.ClaimNames(pod) {
		keys = append(keys, pod.Namespace+"/"+name)
	}
	return keys, nil
}

// claimUsers knows which claims must not be released.
type claimUsers struct {
	podIndexer cache.Indexer
	nodeLister corelisters.NodeLister

	// claim returns nil for a claim which is gone.
	claim func(name types.NamespacedName) *resourceapi.ResourceClaim

	mutex sync.Mutex

	// claims has an entry for each claim whose allocation did not fit some pod.
	claims map[types.NamespacedName]*unfitClaim

	// maxClaims is the number of entries at which those for claims which are gone get dropped.
	maxClaims int
}

// unfitClaim is a claim whose allocation did not fit some pod.
type unfitClaim struct {
	// user is a pod which is known to use the claim. As long as it does,
	// looking at all other pods is not necessary.
	user *v1.Pod

	// assumedOn is the node where a pod which uses the claim was about to be assigned to.
	assumedOn string

	// waiters are the pods which wait until the claim is not in use.
	waiters map[types.UID]*v1.Pod

	// requested is the ResourceVersion for which the release of the claim was requested.
	requested string
}

func newClaimUsers(handle pluginHandle, claim func(name types.NamespacedName) *resourceapi.ResourceClaim) (*claimUsers, error) {
	informer := handle.SharedInformerFactory().Core().V1().Pods().Informer()
	// Another profile may have added it.
	if _, found := informer.GetIndexer().GetIndexers()[assignedUsersIndex]; !found {
		if err := informer.AddIndexers(cache.Indexers{assignedUsersIndex: assignedUsers}); err != nil {
			return nil, fmt.Errorf("add index of the pods that use a claim: %w", err)
		}
	}
	return &claimUsers{
		podIndexer: informer.GetIndexer(),
		nodeLister: handle.SharedInformerFactory().Core().V1().Nodes().Lister(),
		claim:      claim,
		claims:     make(map[types.NamespacedName]*unfitClaim),
		maxClaims:  minUnfitClaims,
	}, nil
}

// cachedClaim returns nil for a claim which is not in the cache.
func (pl *DynamicResources) cachedClaim(name types.NamespacedName) *resourceapi.ResourceClaim {
	claim, err := pl.draManager.ResourceClaims().Get(name.Namespace, name.Name)
	if err != nil {
		return nil
	}
	return claim
}

func nameOf(claim *resourceapi.ResourceClaim) types.NamespacedName {
	return types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}
}

// usesClaim returns true if the pod has a reference to the claim: by name, or because it was
// told to use a claim that was generated for several pods.
func usesClaim(pod *v1.Pod, claimName string) bool {
	for name := range resourceclaim.ClaimNames(pod) {
		if name == claimName {
			return true
		}
	}
	return false
}

// isDone returns true if the pod does not use its claims anymore.
func isDone(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

// waitForUsers returns true if some pod uses the claim. Then the given pod gets activated when
// that is not the case anymore. A pod uses the claim if it is assigned to a
// node, whatever the state of that node is, and has not terminated.
func (u *claimUsers) waitForUsers(pod *v1.Pod, claim *resourceapi.ResourceClaim) bool {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	unfit := u.get(nameOf(claim))
	if !u.isAssigned(nameOf(claim), unfit) {
		return false
	}
	unfit.waiters[pod.UID] = pod
	return true
}

// inUse returns true if some pod uses the claim.
func (u *claimUsers) inUse(claim *resourceapi.ResourceClaim) bool {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	return u.isAssigned(nameOf(claim), u.get(nameOf(claim)))
}

// get returns what is known about the claim.
func (u *claimUsers) get(name types.NamespacedName) *unfitClaim {
	unfit := u.claims[name]
	if unfit == nil {
		u.makeRoom()
		unfit = &unfitClaim{waiters: make(map[types.UID]*v1.Pod)}
		u.claims[name] = unfit
	}
	return unfit
}

func (u *claimUsers) isAssigned(name types.NamespacedName, unfit *unfitClaim) bool {
	claim := u.claim(name)
	uses := func(obj any) bool {
		pod, ok := obj.(*v1.Pod)
		return ok && pod.Spec.NodeName != "" && !isDone(pod) && usesClaim(pod, name.Name) && !u.isStranded(pod, claim)
	}
	if unfit.user != nil {
		obj, exists, err := u.podIndexer.GetByKey(name.Namespace + "/" + unfit.user.Name)
		if err == nil && exists && uses(obj) {
			return true
		}
		unfit.user = nil
	}
	pods, err := u.podIndexer.ByIndex(assignedUsersIndex, name.String())
	if err != nil {
		// Cannot happen with an informer. Better safe than sorry.
		return true
	}
	for _, obj := range pods {
		if uses(obj) {
			unfit.user, _ = obj.(*v1.Pod)
			return true
		}
	}
	return false
}

// isStranded returns true for a pod on a node for which the claim is not allocated. Its kubelet does not
// start it. Should that be about to change, then the resourceclaim controller finds the pod and brings the
// reservation back.
func (u *claimUsers) isStranded(pod *v1.Pod, claim *resourceapi.ResourceClaim) bool {
	if pod.Status.Phase == v1.PodRunning || claim == nil || claim.Status.Allocation == nil || claim.Status.Allocation.NodeSelector == nil {
		return false
	}
	node, err := u.nodeLister.Get(pod.Spec.NodeName)
	if err != nil {
		return false
	}
	selector, err := nodeaffinity.NewNodeSelector(claim.Status.Allocation.NodeSelector)
	return err == nil && !selector.Match(node)
}

// gone gets called for pods which do not use the claim anymore. It returns the pods which were waiting
// for that if this was the last one.
func (u *claimUsers) gone(pod *v1.Pod, claimName string) map[string]*v1.Pod {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	name := types.NamespacedName{Namespace: pod.Namespace, Name: claimName}
	unfit := u.claims[name]
	if unfit == nil {
		return nil
	}
	delete(unfit.waiters, pod.UID)
	if pod.Spec.NodeName == "" || len(unfit.waiters) == 0 || u.isAssigned(name, unfit) {
		return nil
	}
	pods := make(map[string]*v1.Pod, len(unfit.waiters))
	for uid, waiter := range unfit.waiters {
		pods[string(uid)] = waiter
	}
	clear(unfit.waiters)
	return pods
}

// start returns true if the release has to be requested for this revision of the claim.
func (u *claimUsers) start(claim *resourceapi.ResourceClaim) bool {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	unfit := u.claims[nameOf(claim)]
	if unfit == nil || unfit.requested == claim.ResourceVersion {
		return false
	}
	unfit.requested = claim.ResourceVersion
	return true
}

// isRequested returns true if the release was requested for this revision of the claim.
func (u *claimUsers) isRequested(claim *resourceapi.ResourceClaim) bool {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	unfit := u.claims[nameOf(claim)]
	return unfit != nil && unfit.requested == claim.ResourceVersion
}

// assumedNode returns the node that was passed to setAssumedNode, empty if there is none.
func (u *claimUsers) assumedNode(claim *resourceapi.ResourceClaim) string {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	return u.get(nameOf(claim)).assumedOn
}

// setAssumedNode remembers the node where isAssumed found a pod.
func (u *claimUsers) setAssumedNode(claim *resourceapi.ResourceClaim, nodeName string) {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	u.get(nameOf(claim)).assumedOn = nodeName
}

// makeRoom drops what is known about claims which are gone. It looks for those each time that
// there are twice as many claims as there were after the last time.
func (u *claimUsers) makeRoom() {
	if len(u.claims) < u.maxClaims {
		return
	}
	for name := range u.claims {
		if u.claim(name) == nil {
			delete(u.claims, name)
		}
	}
	u.maxClaims = max(minUnfitClaims, 2*len(u.claims))
}

// requestFailed ensures that the next attempt to schedule a pod requests the release again.
func (u *claimUsers) requestFailed(claim *resourceapi.ResourceClaim) {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	if unfit := u.claims[nameOf(claim)]; unfit != nil {
		unfit.requested = ""
	}
}

// giveUpAllocation gets called by PostFilter for a claim whose allocation does not fit the pod.
// If the allocation is for any pod, belongs to the pod's workload, and is not in
// use, then the release gets requested in the background. The status is nil if
// the allocation has to stay.
func (pl *DynamicResources) giveUpAllocation(ctx context.Context, pod *v1.Pod, state *stateData, index int) *fwk.Status {
	logger := klog.FromContext(ctx)
	claim := state.claims.get(index)
	if index >= len(state.informationsForClaim) {
		// PreFilter did not get that far.
		return nil
	}
	workload := state.informationsForClaim[index].workload
	if !pl.fts.EnableDRAReservedForWorkloads || workload == nil || !resourceclaim.IsAllocatedForAnyPod(claim) || claim.DeletionTimestamp != nil {
		return nil
	}
	if !pl.requestReleaseUnlessUsed(logger, pod, claim, workload) {
		return nil
	}
	return fwk.NewStatus(fwk.Unschedulable, fmt.Sprintf("release of resourceclaim %s requested because its allocation does not fit anymore", klog.KObj(claim)))
}

// requestReleaseUnlessUsed requests the release of the claim in the background, unless that is going on
// already. It returns false if the allocation has to stay. If that is because of pods which
// use it or are about to, then the pod gets activated when that may have changed.
func (pl *DynamicResources) requestReleaseUnlessUsed(logger klog.Logger, pod *v1.Pod, claim *resourceapi.ResourceClaim, workload claimConsumer) bool {
	if ref, err := workload.reservation(claim); err != nil || ref == nil {
		// The workload, whose pods may fit, is better able to judge.
		return false
	}
	if pl.claimUsers.waitForUsers(pod, claim) {
		return false
	}
	if len(claim.Status.ReservedFor) == 0 || pl.claimUsers.isRequested(claim) {
		// A pod that got assumed since then cannot be bound before the claim is reserved again.
		return true
	}
	if pl.isAssumed(claim) {
		pl.tryAgainSoon(pod)
		return false
	}
	if pl.claimUsers.start(claim) {
		logger.V(2).Info("Allocation does not fit anymore, requesting the release of ResourceClaim", "pod", klog.KObj(pod), "resourceclaim", klog.KObj(claim), "resourceVersion", claim.ResourceVersion)
		go pl.requestRelease(klog.NewContext(pl.claimReserver.ctx, logger), pod, claim)
	}
	return true
}

// tryAgainSoon is for a pod that no event may wake up. For instance one that is assumed gets assigned
// to its node, or fails to be, and no event says so.
func (pl *DynamicResources) tryAgainSoon(pod *v1.Pod) {
	time.AfterFunc(tryAgainInterval, func() {
		if pl.claimReserver.ctx.Err() == nil {
			pl.owners.activate(map[string]*v1.Pod{string(pod.UID): pod})
		}
	})
}

// isAssumed returns true if a pod that uses the claim is about to be assigned
// to a node. It must only be called in a scheduling cycle.
//
// It looks at all pods, once for each revision of a claim. While it finds one, others that ask
// only look at the node of that pod.
func (pl *DynamicResources) isAssumed(claim *resourceapi.ResourceClaim) bool {
	snapshot := pl.fh.SnapshotSharedLister()
	if snapshot == nil {
		return false
	}
	if nodeName := pl.claimUsers.assumedNode(claim); nodeName != "" {
		if nodeInfo, err := snapshot.NodeInfos().Get(nodeName); err == nil && hasUser(nodeInfo, claim) {
			return true
		}
	}
	nodeInfos, err := snapshot.NodeInfos().List()
	if err != nil {
		return true
	}
	for _, nodeInfo := range nodeInfos {
		if hasUser(nodeInfo, claim) {
			pl.claimUsers.setAssumedNode(claim, nodeInfo.Node().Name)
			return true
		}
	}
	return false
}

// hasUser returns true if a pod on the node uses the claim.
func hasUser(nodeInfo snapshotNode, claim *resourceapi.ResourceClaim) bool {
	for pod := range podsOn(nodeInfo) {
		if pod.Namespace == claim.Namespace && usesClaim(pod, claim.Name) {
			return true
		}
	}
	return false
}

// requestRelease removes all reservations from exactly this revision of the claim. If
// something else changes it, then the pod tries again.
func (pl *DynamicResources) requestRelease(ctx context.Context, pod *v1.Pod, claim *resourceapi.ResourceClaim) {
	logger := klog.FromContext(ctx)
	err := wait.ExponentialBackoffWithContext(ctx, releaseRequestBackoff, func(ctx context.Context) (bool, error) {
		err := pl.removeAllReservations(ctx, claim)
		switch {
		case err == nil:
			return true, nil
		case apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsForbidden(err), apierrors.IsInvalid(err):
			return false, err
		default:
			logger.V(2).Info("Requesting the release of ResourceClaim failed, trying again", "resourceclaim", klog.KObj(claim), "err", err)
			return false, nil
		}
	})
	switch {
	case err == nil:
		metrics.ResourceClaimReleaseRequests.Inc()
		pl.recordReleaseRequest(logger, pod, claim)
	case apierrors.IsConflict(err):
		logger.V(2).Info("ResourceClaim changed, not released", "resourceclaim", klog.KObj(claim), "err", err)
		// The event of a change that is not in the status wakes up nobody.
		pl.tryAgainSoon(pod)
	case apierrors.IsNotFound(err):
		logger.V(2).Info("ResourceClaim is gone, not released", "resourceclaim", klog.KObj(claim), "err", err)
	default:
		logger.Error(err, "Requesting the release of ResourceClaim failed", "resourceclaim", klog.KObj(claim))
		pl.claimUsers.requestFailed(claim)
		if wait.Interrupted(err) && ctx.Err() == nil {
			pl.owners.activate(map[string]*v1.Pod{string(pod.UID): pod})
		}
	}
}

// removeAllReservations removes all entries from status.reservedFor. Entries for pods can only be
// for pods which are not assigned to a node.
func (pl *DynamicResources) removeAllReservations(ctx context.Context, claim *resourceapi.ResourceClaim) error {
	uids := make([]types.UID, 0, len(claim.Status.ReservedFor))
	for _, ref := range claim.Status.ReservedFor {
		uids = append(uids, ref.UID)
	}
	if _, err := pl.patchReservations(ctx, claim, claim.ResourceVersion, withoutEntries(uids)); err != nil {
		return fmt.Errorf("remove reservations from claim %s: %w", klog.KObj(claim), err)
	}
	return nil
}

// checkDevices gets called by PreFilter for a claim that is allocated for any pod. If the
// allocation has a device which no new pod should use, then the pod has to wait until the last
// pod is gone which uses it and the claim is allocated elsewhere.
//
// Preemption would not help, so the status is not one for which that gets tried.
func (pl *DynamicResources) checkDevices(logger klog.Logger, pod *v1.Pod, claim *resourceapi.ResourceClaim, workload claimConsumer) *fwk.Status {
	reason, err := pl.unfitDevice(claim)
	if err != nil {
		return statusError(logger, err)
	}
	if reason == "" {
		return nil
	}
	next := "waiting until no pod uses the claim anymore"
	if pl.requestReleaseUnlessUsed(logger, pod, claim, workload) {
		next = "waiting until the claim is allocated elsewhere"
	}
	return statusUnschedulable(logger, fmt.Sprintf("resourceclaim %s is allocated for any pod, but new pods must not use it because %s: %s", klog.KObj(claim), reason, next), "pod", klog.KObj(pod), "resourceclaim", klog.KObj(claim))
}

// unfitDevice returns why no new pod should use the allocation, empty if it may be used.
func (pl *DynamicResources) unfitDevice(claim *resourceapi.ResourceClaim) (string, error) {
	// Almost always the devices are as they were. Looking at the few slices of their pools
	// proves that. These may be a little behind, and no event would come if a pod had to
	// wait because of that. Therefore everything else is decided by the list.
	reason, found := pl.unfitDeviceIn(claim, pl.slicesByPool.get)
	if found && reason == "" {
		return "", nil
	}
	slices, err := pl.resourceSlices()
	if err != nil {
		return "", fmt.Errorf("list ResourceSlices: %w", err)
	}
	reason, _ = pl.unfitDeviceIn(claim, func(poolID) []*resourceapi.ResourceSlice { return slices })
	return reason, nil
}

// unfitDeviceIn does the same as unfitDevice for the given slices. slicesOf may return more than those of
// the pool. found is false if a device is in none of them.
func (pl *DynamicResources) unfitDeviceIn(claim *resourceapi.ResourceClaim, slicesOf func(pool poolID) []*resourceapi.ResourceSlice) (reason string, found bool) {
	found = true
	for i := range claim.Status.Allocation.Devices.Results {
		result := &claim.Status.Allocation.Devices.Results[i]
		id := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
		switch device, known := findDevice(slicesOf(poolID{result.Driver, result.Pool}), result); {
		case device != nil:
			if taint := pl.untoleratedTaint(claim, device, result); taint != "" {
				return fmt.Sprintf("device %s has the taint %s", id, taint), true
			}
		case known:
			return fmt.Sprintf("device %s does not exist anymore", id), false
		default:
			found = false
		}
	}
	return "", found
}

// findDevice returns the allocated device, nil if it is not in any slice. Then known is true if
// that means that the device is gone. A pool of which a slice is missing is about to be
// published again by its driver.
func findDevice(slices []*resourceapi.ResourceSlice, result *resourceapi.DeviceRequestAllocationResult) (device *resourceapi.Device, known bool) {
	var generation, expected, found int64
	for _, slice := range slices {
		if slice.Spec.Driver != result.Driver || slice.Spec.Pool.Name != result.Pool || slice.Spec.Pool.Generation < generation {
			continue
		}
		if slice.Spec.Pool.Generation > generation {
			generation, found = slice.Spec.Pool.Generation, 0
			device = nil
		}
		expected = slice.Spec.Pool.ResourceSliceCount
		found++
		for i := range slice.Spec.Devices {
			if slice.Spec.Devices[i].Name == result.Device {
				device = &slice.Spec.Devices[i]
			}
		}
	}
	return device, found >= expected
}

// poolID identifies a pool of devices.
type poolID struct {
	driver, pool string
}

func poolOf(slice *resourceapi.ResourceSlice) poolID {
	return poolID{driver: slice.Spec.Driver, pool: slice.Spec.Pool.Name}
}

// slicesByPool has the slices of each pool. A cluster has thousands of slices, and what one claim
// has been allocated is in very few of them. The zero value is ready for use.
//
// It gets updated by events and therefore may be a little behind the list of all slices.
type slicesByPool struct {
	mutex sync.RWMutex

	// pools has the slices of a pool by name. The slices must not be modified.
	pools map[poolID]map[string]*resourceapi.ResourceSlice
}

var _ cache.ResourceEventHandler = &slicesByPool{}

// get returns all slices of the pool, in no particular order.
func (s *slicesByPool) get(pool poolID) []*resourceapi.ResourceSlice {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	slices := make([]*resourceapi.ResourceSlice, 0, len(s.pools[pool]))
	for _, slice := range s.pools[pool] {
		slices = append(slices, slice)
	}
	return slices
}

// OnAdd implements [cache.ResourceEventHandler].
func (s *slicesByPool) OnAdd(obj any, _ bool) {
	s.replace(nil, obj)
}

// OnUpdate implements [cache.ResourceEventHandler].
func (s *slicesByPool) OnUpdate(oldObj, newObj any) {
	s.replace(oldObj, newObj)
}

// OnDelete implements [cache.ResourceEventHandler].
func (s *slicesByPool) OnDelete(obj any) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	s.replace(obj, nil)
}

func (s *slicesByPool) replace(oldObj, newObj any) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if slice, ok := oldObj.(*resourceapi.ResourceSlice); ok {
		pool := poolOf(slice)
		delete(s.pools[pool], slice.Name)
		if len(s.pools[pool]) == 0 {
			delete(s.pools, pool)
		}
	}
	if slice, ok := newObj.(*resourceapi.ResourceSlice); ok {
		pool := poolOf(slice)
		if s.pools == nil {
			s.pools = make(map[poolID]map[string]*resourceapi.ResourceSlice)
		}
		if s.pools[pool] == nil {
			s.pools[pool] = make(map[string]*resourceapi.ResourceSlice)
		}
		s.pools[pool][slice.Name] = slice
	}
}
