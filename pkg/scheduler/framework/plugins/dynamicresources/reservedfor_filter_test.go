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
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// TestReservedForLimitFilter covers for which nodes Filter gets called for a pod of a workload.
// As long as no pod uses the claim, PostFilter may have it released, but only if
// some node fits the pod and not the allocation.
func TestReservedForLimitFilter(t *testing.T) {
	byName := selectNodes(namedNode(nodeName))
	for name, tc := range map[string]struct {
		claim     *resourceapi.ResourceClaim
		pods      []apiruntime.Object
		wantSkip  bool
		wantNames sets.Set[string]
	}{
		"any-node":        {claim: changed(newWorkloadClaim(workloadRefWithUID), selectNodes()), wantSkip: true},
		"one-node-unused": {claim: changed(newWorkloadClaim(workloadRefWithUID), byName)},
		"one-node-used":   {claim: changed(newWorkloadClaim(workloadRefWithUID), byName), pods: []apiruntime.Object{assigned(newJobPod("running"), nodeName)}, wantNames: sets.New(nodeName)},
		// Allocated while the feature was off.
		"one-node-pods": {claim: changed(withReservedFor(newAllocatedSharedClaim(podReferences(1)...), workloadRef), byName), wantNames: sets.New(nodeName)},
	} {
		syncTest(t, name, func(tCtx ktesting.TContext) {
			test := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{tc.claim}, tc.pods...)
			cycle, status := test.preFilter(newJobPod("pod-1"))
			require.Nil(tCtx, status)
			assert.Equal(tCtx, tc.wantSkip, cycle.skipped, "Skip")
			assert.Equal(tCtx, tc.wantNames, cycle.names)
			assert.Contains(tCtx, cycle.filter(), nodeName)
		})
	}
}
