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
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/nodedeclaredfeatures/features/draoptionalnodeoperations"
	fwk "k8s.io/kube-scheduler/framework"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/ptr"
)

// combination is a feature of the allocator beside a shared claim.
type combination struct {
	enable func(feats *feature.Features)
	slices []apiruntime.Object
	// shared, fits and conflicts are what claims ask for. If pods have the shared one, then another
	// pod can have the second, and cannot have the third.
	shared, fits, conflicts resourceapi.DeviceClaim
}

const combinationDriver = "combination.example.com"

// combinationSlice is the n-th of a pool with several slices.
func combinationSlice(n, of int, change func(spec *resourceapi.ResourceSliceSpec)) apiruntime.Object {
	slice := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("combination-%d", n)},
		Spec: resourceapi.ResourceSliceSpec{
			Driver:   combinationDriver,
			NodeName: ptr.To(nodeName),
			Pool:     resourceapi.ResourcePool{Name: "pool", ResourceSliceCount: int64(of)},
		},
	}
	change(&slice.Spec)
	return slice
}

// combinationDevice has a group as attribute.
func combinationDevice(name, group string) resourceapi.Device {
	return resourceapi.Device{Name: name, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"group": {StringValue: &group}, "name": {StringValue: &name}}}
}

// combinationRequest asks for devices of the driver. The condition is about the attributes.
func combinationRequest(count int64, condition string) resourceapi.DeviceClaim {
	expression := fmt.Sprintf("device.driver == %q", combinationDriver)
	if condition != "" {
		expression += fmt.Sprintf(" && device.attributes[%q].%s", combinationDriver, condition)
	}
	return resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
		Name: "request",
		Exactly: &resourceapi.ExactDeviceRequest{
			DeviceClassName: className, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count,
			Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}},
		},
	}}}
}

func fractionalCapacity() combination {
	request := func(quantity string) resourceapi.DeviceClaim {
		claim := combinationRequest(1, "")
		claim.Requests[0].Exactly.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse(quantity)}}
		return claim
	}
	return combination{
		enable: func(feats *feature.Features) {
			feats.EnableDRAConsumableCapacity = true
			feats.EnableDRAFractionalCapacityRange = true
		},
		slices: []apiruntime.Object{combinationSlice(0, 1, func(spec *resourceapi.ResourceSliceSpec) {
			device := combinationDevice("a", "one")
			device.AllowMultipleAllocations = ptr.To(true)
			device.Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {
				Value: resource.MustParse("1"),
				RequestPolicy: &resourceapi.CapacityRequestPolicy{
					Default:    ptr.To(resource.MustParse("100m")),
					ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: ptr.To(resource.MustParse("100m")), Step: ptr.To(resource.MustParse("100m"))},
				},
			}}
			spec.Devices = []resourceapi.Device{device}
		})},
		// It is rounded up to 300m, once for all pods.
		shared: request("250m"), fits: request("700m"), conflicts: request("701m"),
	}
}

func compatibilityGroups() combination {
	return combination{
		enable: func(feats *feature.Features) {
			feats.EnableDRAPartitionableDevices = true
			feats.EnableDRADeviceCompatibilityGroups = true
		},
		slices: []apiruntime.Object{
			combinationSlice(0, 2, func(spec *resourceapi.ResourceSliceSpec) {
				spec.SharedCounters = []resourceapi.CounterSet{{Name: "set", Counters: map[string]resourceapi.Counter{"memory": {Value: resource.MustParse("8Gi")}}}}
			}),
			combinationSlice(1, 2, func(spec *resourceapi.ResourceSliceSpec) {
				for _, device := range []resourceapi.Device{combinationDevice("a", "one"), combinationDevice("b", "two"), combinationDevice("c", "one")} {
					device.ConsumesCounters = []resourceapi.DeviceCounterConsumption{{
						CounterSet:          "set",
						Counters:            map[string]resourceapi.Counter{"memory": {Value: resource.MustParse("1Gi")}},
						CompatibilityGroups: []string{*device.Attributes["group"].StringValue},
					}}
					spec.Devices = append(spec.Devices, device)
				}
			}),
		},
		shared: combinationRequest(1, `name == "a"`), fits: combinationRequest(1, `group == "one"`), conflicts: combinationRequest(1, `group == "two"`),
	}
}

func derivedAttributes() combination {
	const derived = "derived/group"
	matching := func(count int64) resourceapi.DeviceClaim {
		claim := combinationRequest(count, "")
		claim.Requests[0].Exactly.DerivedAttributes = []resourceapi.DeviceDerivedAttribute{{Name: derived, Expression: fmt.Sprintf("device.attributes[%q].group", combinationDriver)}}
		claim.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: ptr.To(resourceapi.FullyQualifiedName(derived))}}
		return claim
	}
	return combination{
		enable: func(feats *feature.Features) { feats.EnableDRADerivedAttributes = true },
		slices: []apiruntime.Object{combinationSlice(0, 1, func(spec *resourceapi.ResourceSliceSpec) {
			spec.Devices = []resourceapi.Device{combinationDevice("a", "one"), combinationDevice("b", "two"), combinationDevice("c", "two"), combinationDevice("d", "three")}
		})},
		shared: matching(2), fits: combinationRequest(2, ""), conflicts: matching(2),
	}
}

// TestReservedForCombinations covers what 1.37 added to the allocator, for a claim that pods share: it counts
// once, from the first pod on, while it is in flight and when it is stored.
func TestReservedForCombinations(t *testing.T) {
	for name, newCombination := range map[string]func() combination{
		"fractional-capacity":  fractionalCapacity,
		"compatibility-groups": compatibilityGroups,
		"derived-attributes":   derivedAttributes,
	} {
		for _, workload := range []bool{false, true} {
			syncTest(t, fmt.Sprintf("%s/workload=%v", name, workload), func(tCtx ktesting.TContext) {
				testReservedForCombination(tCtx, newCombination(), workload)
			})
		}
	}
}

func testReservedForCombination(tCtx ktesting.TContext, tc combination, workload bool) {
	shared := newSharedClaim()
	shared.Spec.Devices = tc.shared
	if workload {
		shared = withReservedFor(shared, workloadRef)
	}
	other := func(name string, devices resourceapi.DeviceClaim) *resourceapi.ResourceClaim {
		claim := newSharedClaim()
		claim.Name = name
		claim.Spec.Devices = devices
		return claim
	}
	podOf := func(claim string) *v1.Pod {
		pod := newJobPod("pod-" + claim)
		pod.Spec.ResourceClaims[0].ResourceClaimName = &claim
		return pod
	}
	feats := reservedForFeatures(true)
	tc.enable(&feats)
	test := newReservedForTest(tCtx, feats, []*resourceapi.ResourceClaim{shared, other("fits", tc.fits), other("conflicts", tc.conflicts)}, tc.slices...)
	check := func(when string, fits, conflicts bool) {
		tCtx.Helper()
		synctest.Wait() // for the informer
		for claim, want := range map[string]bool{"fits": fits, "conflicts": conflicts} {
			cycle, status := test.preFilter(podOf(claim))
			require.Nil(tCtx, status, "%s, %s", when, claim)
			if want {
				assert.Equal(tCtx, []string{nodeName}, cycle.filter(), "%s, nodes for claim %q", when, claim)
			} else {
				assert.Empty(tCtx, cycle.filter(), "%s, nodes for claim %q", when, claim)
			}
		}
	}

	check("before", true, true)
	cycles := []*podCycle{test.schedule(newJobPod("pod-1")), test.schedule(newJobPod("pod-2"))}
	check("in flight", true, false)
	require.True(tCtx, cycles[0].bind(tCtx).IsSuccess(), "first pod")
	check("stored, and the other pod in flight", true, false)
	require.True(tCtx, cycles[1].bind(tCtx).IsSuccess(), "second pod")
	check("stored", true, false)
	want := []string{"pod-1", "pod-2"}
	if workload {
		want = []string{workloadRef.Name}
	}
	assert.Equal(tCtx, want, test.reservedFor())
	test.schedule(newJobPod("pod-3"))
}

// TestReservedForMapped covers a workload whose device comes with CPUs of the node. One pod after the other
// may use it.
func TestReservedForMapped(t *testing.T) {
	for name, tcase := range map[string]struct {
		pods    []apiruntime.Object
		assumed []*v1.Pod
		waits   bool
	}{
		"unused":  {},
		"done":    {pods: []apiruntime.Object{withPhase(assigned(newJobPod("done"), nodeName), v1.PodSucceeded)}},
		"running": {pods: []apiruntime.Object{assigned(newJobPod("running"), nodeName)}, waits: true},
		"assumed": {assumed: []*v1.Pod{assigned(newJobPod("assumed"), nodeName)}, waits: true},
	} {
		syncTest(t, name, func(tCtx ktesting.TContext) {
			feats := reservedForFeatures(true)
			feats.EnableDRANodeAllocatableResources = true
			claim := useMapped(newWorkloadClaim(workloadRefWithUID))
			tc := newReservedForTest(tCtx, feats, []*resourceapi.ResourceClaim{claim}, append(tcase.pods, newMappedSlice())...)
			tc.p.fh = snapshotHandle{tc.p.fh, internalcache.NewSnapshot(tcase.assumed, []*v1.Node{workerNode})}
			pod := newJobPod("pod-1")
			state := &stateData{claimHasNodeAllocatableMappedDevice: map[types.UID]bool{tc.claim().UID: true}}
			status := tc.p.validateNodeAllocatableDRAClaimSharing(pod, tc.claim(), state, nil)
			if !tcase.waits {
				require.Nil(tCtx, status)
				return
			}
			require.Equal(tCtx, fwk.UnschedulableAndUnresolvable, status.Code())
			assert.Contains(tCtx, status.Message(), "cannot be shared across pods")
			if tcase.assumed != nil {
				synctest.Wait()
				return
			}
			running := tcase.pods[0].(*v1.Pod).DeepCopy()
			running.Status.Phase = v1.PodSucceeded
			tCtx.ExpectNoError(tc.client.Tracker().Update(v1.SchemeGroupVersion.WithResource("pods"), running, running.Namespace))
			synctest.Wait()
			assert.True(tCtx, tc.takeActivated(pod), "its turn has come")
		})
	}
}

// skipsOperations makes the allocation of the claim one for which the driver is not called, on any node.
func skipsOperations(claim *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	claim.Status.Allocation.NodeSelector = nil
	for i := range claim.Status.Allocation.Devices.Results {
		claim.Status.Allocation.Devices.Results[i].SkipNodeOperations = []resourceapi.SkipNodeOperation{resourceapi.SkipNodeOperationAll}
	}
	return claim
}

// declareSkipping tells the plugin that the kubelets of some nodes can skip operations.
func (t *sharedClaimsTest) declareSkipping(nodes ...*v1.Node) {
	for i, nodeInfo := range t.nodeInfos {
		for _, node := range nodes {
			if nodeInfo.Node().Name != node.Name {
				continue
			}
			capable := node.DeepCopy()
			capable.Status.DeclaredFeatures = []string{draoptionalnodeoperations.DRAOptionalNodeOperationsFeatureGate}
			info := framework.NewNodeInfo()
			info.SetNode(capable)
			t.nodeInfos[i] = info
		}
	}
}

// TestReservedForSkipNodeOperations covers that pods of a workload only get to nodes which can do what the allocation
// of their claim says, whether they are listed in the claim or not.
func TestReservedForSkipNodeOperations(t *testing.T) {
	for name, claim := range map[string]*resourceapi.ResourceClaim{
		"stored":      newWorkloadClaim(workloadRefWithUID),
		"listed-pods": newAllocatedSharedClaim(podReferences(2)...),
	} {
		syncTest(t, name, func(tCtx ktesting.TContext) {
			feats := reservedForFeatures(true)
			feats.EnableDRAOptionalNodeOperations = true
			tc := newReservedForTest(tCtx, feats, []*resourceapi.ResourceClaim{skipsOperations(claim)})
			tc.declareSkipping(workerNode)
			cycle, status := tc.preFilter(newJobPod("pod-1"))
			require.Nil(tCtx, status)
			assert.Equal(tCtx, []string{nodeName}, cycle.filter())
		})
	}

	// No node fits. The scheduler must not deallocate the claim: another pod uses it.
	syncTest(t, "no-node", func(tCtx ktesting.TContext) {
		feats := reservedForFeatures(true)
		feats.EnableDRAOptionalNodeOperations = true
		user := newJobPod("pod-0")
		user.Spec.NodeName = "elsewhere"
		tc := newReservedForTest(tCtx, feats, []*resourceapi.ResourceClaim{skipsOperations(newWorkloadClaim(workloadRefWithUID))}, user)
		cycle, status := tc.preFilter(newJobPod("pod-1"))
		require.Nil(tCtx, status)
		assert.Empty(tCtx, cycle.filter())
		_, status = tc.p.PostFilter(tCtx, cycle.state, cycle.pod, nil)
		assert.Equal(tCtx, fwk.Unschedulable, status.Code(), status.Message())
		synctest.Wait() // for what must not happen
		assert.NotNil(tCtx, tc.claim().Status.Allocation)
		assert.Len(tCtx, tc.claim().Status.ReservedFor, 1)
	})

	// The same for an allocation that is not stored yet.
	syncTest(t, "in-flight", func(tCtx ktesting.TContext) {
		feats := reservedForFeatures(true)
		feats.EnableDRAOptionalNodeOperations = true
		tc := newReservedForTest(tCtx, feats, []*resourceapi.ResourceClaim{withReservedFor(newSharedClaim(), workloadRef)})
		allocated := skipsOperations(newWorkloadClaim())
		allocated.UID = tc.claim().UID
		require.NoError(tCtx, tc.p.pendingAllocations().SignalClaimPendingAllocation(allocated.UID, allocated))
		tc.declareSkipping(workerNode2)
		cycle, status := tc.preFilter(newJobPod("pod-1"))
		require.Nil(tCtx, status)
		assert.Equal(tCtx, []string{node2Name}, cycle.filter())
		_, status = tc.p.PostFilter(tCtx, cycle.state, cycle.pod, nil)
		assert.Equal(tCtx, fwk.Unschedulable, status.Code(), status.Message())
		assert.NotNil(tCtx, tc.p.pendingAllocations().GetPendingAllocation(allocated.UID), "still in flight")
	})
}

// TestReservedForHeldFromGroup ensures that a PodGroup that waits for devices is told as well who holds them.
func TestReservedForHeldFromGroup(t *testing.T) {
	for name, tcase := range map[string]struct {
		claim  *resourceapi.ResourceClaim
		expect string
	}{
		"unused": {newHeldClaim("held"), "held by 1 resourceclaim(s) that no pod uses"},
		"used":   {newHeldClaim("used"), ""},
	} {
		syncTest(t, name, func(tCtx ktesting.TContext) {
			enablePodGroups(tCtx)
			feats := reservedForFeatures(true)
			feats.EnableDRAWorkloadResourceClaims = true
			tc := newReservedForTest(tCtx, feats, []*resourceapi.ResourceClaim{tcase.claim, newSharedClaim()}, newSharingPodGroup(), newUserOf("used"))
			var status *fwk.Status
			// The first time, the pod that uses the claim may not be in the cache yet.
			for range 2 {
				time.Sleep(heldInterval)
				pod := newSharingPod("waiting")
				pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: ptr.To(podGroupName)}
				groupState := framework.NewCycleState()
				cycle := &podCycle{sharedClaimsTest: tc, pod: pod, state: newCycleState()}
				cycle.state.(*framework.CycleState).SetPodGroupSchedulingCycle(groupState)
				require.Nil(tCtx, cycle.callPreFilter())
				require.Empty(tCtx, cycle.filter())
				status = cycle.postFilterInGroup(groupState)
				require.Equal(tCtx, fwk.Unschedulable, status.Code())
			}
			if tcase.expect == "" {
				assert.Len(tCtx, status.Reasons(), 1)
				return
			}
			assert.Contains(tCtx, status.Message(), tcase.expect)
		})
	}
}
