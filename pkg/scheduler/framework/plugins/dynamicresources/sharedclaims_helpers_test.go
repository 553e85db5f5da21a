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
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	cgotesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// This file contains what the tests of shared claims need of upstream's tests and of the plugin, as it is
// since 1.36: the plugin can be set up in a bubble. All else that they need is in sharedclaims_setup_test.go.

type frameworkHandle = fwk.Handle

// hasSnapshot is true if PreFilter gets the nodes.
const hasSnapshot = true

// hasPreBindPreFlight is true if PreBind does not get called when there is nothing to do.
const hasPreBindPreFlight = true

type preFilterResult = fwk.PreFilterResult

func newCycleState() cycleState {
	return framework.NewCycleState()
}

// newSnapshotNode returns the node without pods.
func newSnapshotNode(node *v1.Node) snapshotNode {
	info := framework.NewNodeInfo()
	info.SetNode(node)
	return info
}

func sharedClaimsFeatures() feature.Features {
	return feature.Features{
		Carried: feature.Carried{EnableDRASharedClaims: true},

		EnableDRAAdminAccess:               true,
		EnableDRADeviceBindingConditions:   true,
		EnableDRAResourceClaimDeviceStatus: true,
		EnableDRASchedulerFilterTimeout:    true,
		EnableDynamicResourceAllocation:    true,
	}
}

// syncTest runs a test in a bubble. It is a sub-test if it has a name.
func syncTest(t *testing.T, name string, cb func(tCtx ktesting.TContext)) {
	ktesting.Init(t).SyncTest(name, cb)
}

func setupSharedClaims(tCtx ktesting.TContext, nodes []*v1.Node, claims []*resourceapi.ResourceClaim, objs []apiruntime.Object, feats feature.Features, apiReactors []cgotesting.Reactor) *testContext {
	podGroups, others := splitPodGroups(objs)
	return setup(tCtx, nil, nodes, claims, []*resourceapi.DeviceClass{deviceClass}, podGroups, others, feats, false, apiReactors)
}

func (c *podCycle) preFilterNodes() (sets.Set[string], *fwk.Status) {
	result, status := c.p.PreFilter(c.tCtx, c.state, c.pod, c.nodeInfos)
	if result == nil {
		return nil, status
	}
	return result.NodeNames, status
}

func (c *podCycle) preBindPreFlight(ctx context.Context) *fwk.Status {
	_, status := c.p.PreBindPreFlight(ctx, c.state, c.pod, nodeName)
	return status
}

// checkAllocationTimestamp ensures that the time of the allocation was recorded, or that it was not.
func checkAllocationTimestamp(tCtx ktesting.TContext, claim *resourceapi.ResourceClaim, recorded bool) {
	tCtx.Helper()
	assert.Equal(tCtx, recorded, claim.Status.Allocation.AllocationTimestamp != nil, "time of the allocation")
}

// knowsStoredShares is true if the scheduler knows the shares of devices which are stored in claims, and not only the
// capacity that they consume (136734).
const knowsStoredShares = true
