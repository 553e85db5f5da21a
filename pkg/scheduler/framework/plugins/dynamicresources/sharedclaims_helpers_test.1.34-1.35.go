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
	"slices"
	"time"

	"github.com/stretchr/testify/assert"
	resourceapi "k8s.io/api/resource/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// These releases have another setup of the plugin, and PreBindPreFlight returns only a status.

// hasSnapshot is true if PreFilter gets the nodes.
const hasSnapshot = true

// hasPreBindPreFlight is true if PreBind does not get called when there is nothing to do.
const hasPreBindPreFlight = true

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

func newTestDRAManager(tCtx ktesting.TContext, tc *testContext) (*DefaultDRAManager, cache.InformerSynced) {
	tCtx.Helper()
	sliceTracker, err := tracker.StartTracker(tCtx, tracker.Options{
		SliceInformer: tc.informerFactory.Resource().V1().ResourceSlices(),
		KubeClient:    tc.client,
	})
	tCtx.ExpectNoError(err, "start tracker of ResourceSlices")
	claimsCache := assumecache.NewAssumeCache(tCtx.Logger(), tc.informerFactory.Resource().V1().ResourceClaims().Informer(), "resource claim", "", nil)
	// Not the handler of the DRA manager, but all of them get synced together.
	registration := claimsCache.AddEventHandler(cache.ResourceEventHandlerFuncs{})
	return NewDRAManager(tCtx, claimsCache, sliceTracker, tc.informerFactory), registration.HasSynced
}

func testArgs() apiruntime.Object {
	return getDefaultDynamicResourcesArgs()
}

func (c *podCycle) preFilterNodes() (sets.Set[string], *fwk.Status) {
	result, status := c.p.PreFilter(c.tCtx, c.state, c.pod, c.nodeInfos)
	if result == nil {
		return nil, status
	}
	return result.NodeNames, status
}

func (c *podCycle) preBindPreFlight(ctx context.Context) *fwk.Status {
	return c.p.PreBindPreFlight(ctx, c.state, c.pod, nodeName)
}

// checkAllocationTimestamp ensures that the time of the allocation was recorded, or that it was not.
func checkAllocationTimestamp(tCtx ktesting.TContext, claim *resourceapi.ResourceClaim, recorded bool) {
	tCtx.Helper()
	assert.Equal(tCtx, recorded, claim.Status.Allocation.AllocationTimestamp != nil, "time of the allocation")
}

// keepAge lets allocations be as old as they were when upstream's table of test cases was made.
// Otherwise the result of a case depends on how many others ran before: one of them has ten
// seconds left until a timeout.
func keepAge(claims []*resourceapi.ResourceClaim, start time.Time) []*resourceapi.ResourceClaim {
	claims = slices.Clone(claims)
	for i, claim := range claims {
		if claim.Status.Allocation != nil && claim.Status.Allocation.AllocationTimestamp != nil {
			claims[i] = claim.DeepCopy()
			timestamp := claims[i].Status.Allocation.AllocationTimestamp
			timestamp.Time = timestamp.Add(time.Since(start))
		}
	}
	return claims
}

// knowsStoredShares is true if the scheduler knows the shares of devices which are stored in claims, and not only the
// capacity that they consume (136734).
const knowsStoredShares = false
