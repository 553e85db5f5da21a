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

	resourceapi "k8s.io/api/resource/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// These releases have another setup of the plugin, no PreBindPreFlight, and do not record the time of an
// allocation.

// hasSnapshot is false because upstream's setup of the plugin has no snapshot.
const hasSnapshot = false

// hasPreBindPreFlight is false because PreBind always gets called.
const hasPreBindPreFlight = false

func sharedClaimsFeatures() feature.Features {
	return feature.Features{
		Carried: feature.Carried{EnableDRASharedClaims: true},

		EnableDRAAdminAccess:            true,
		EnableDynamicResourceAllocation: true,
	}
}

func testArgs() apiruntime.Object {
	return nil
}

func (c *podCycle) preFilterNodes() (sets.Set[string], *framework.Status) {
	result, status := c.p.PreFilter(c.tCtx, c.state, c.pod)
	if result == nil {
		return nil, status
	}
	return result.NodeNames, status
}

func (c *podCycle) preBindPreFlight(context.Context) *framework.Status {
	return nil
}

// checkAllocationTimestamp has nothing to check: there is no such field.
func checkAllocationTimestamp(ktesting.TContext, *resourceapi.ResourceClaim, bool) {}
