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

package dra

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"
)

func skipNodeOperations(operations ...resourceapi.SkipNodeOperation) func(claim *resourceapi.ResourceClaim) {
	return func(claim *resourceapi.ResourceClaim) {
		claim.Status.Allocation.Devices.Results[0].SkipNodeOperations = operations
	}
}

func enableOptionalNodeOperations(t *testing.T, enabled bool) {
	featuregatetesting.SetFeatureGatesDuringTest(t, utilfeature.DefaultFeatureGate, featuregatetesting.FeatureOverrides{
		features.DRAOptionalNodeOperations: enabled,
		features.NodeDeclaredFeatures:      true, // dependency
	})
}

// TestReservedForWorkloadSkipsNodeOperations runs pods of a Job with a claim for which
// the driver does not have to be called. None of the pods is listed.
func TestReservedForWorkloadSkipsNodeOperations(t *testing.T) {
	for name, tc := range map[string]struct {
		skip                         []resourceapi.SkipNodeOperation
		wantPrepares, wantUnprepares uint32
	}{
		"all":       {skip: []resourceapi.SkipNodeOperation{resourceapi.SkipNodeOperationAll}},
		"prepare":   {skip: []resourceapi.SkipNodeOperation{resourceapi.SkipNodeOperationNodePrepareResources}, wantUnprepares: 1},
		"unprepare": {skip: []resourceapi.SkipNodeOperation{resourceapi.SkipNodeOperationNodeUnprepareResources}, wantPrepares: 1},
		"none":      {wantPrepares: 1, wantUnprepares: 1},
	} {
		t.Run(name, func(t *testing.T) {
			enableReservedForWorkloads(t, true)
			enableOptionalNodeOperations(t, true)
			test := newManagerTest(t)
			test.setClaim(genWorkloadClaim(skipNodeOperations(tc.skip...)))
			pods := []*v1.Pod{genTestPodWithClaims(claimName), genTestPodWithClaims(claimName)}
			for _, pod := range pods {
				require.NoError(t, test.manager.PrepareResources(test, pod))
			}
			assert.Equal(t, tc.wantPrepares, test.driver.prepareResourceCalls.Load(), "prepare calls")
			for _, pod := range pods {
				assert.Equal(t, uint32(0), test.driver.unprepareResourceCalls.Load(), "unprepare calls while a pod is running")
				require.NoError(t, test.manager.UnprepareResources(test, pod))
			}
			assert.Equal(t, tc.wantUnprepares, test.driver.unprepareResourceCalls.Load(), "unprepare calls")
			assert.False(t, test.manager.cache.contains(claimName, namespace), "claim still known")
		})
	}

	t.Run("disabled", func(t *testing.T) {
		// The kubelet cannot do what the allocation says.
		enableReservedForWorkloads(t, true)
		enableOptionalNodeOperations(t, false)
		test := newManagerTest(t)
		test.setClaim(genWorkloadClaim(skipNodeOperations(resourceapi.SkipNodeOperationAll)))
		pod := genTestPodWithClaims(claimName)
		require.ErrorContains(t, test.manager.PrepareResources(test, pod), string(features.DRAOptionalNodeOperations))
		assert.False(t, test.manager.PodMightNeedToUnprepareResources(pod.UID), "pod known")
	})
}

// TestReservedForWorkloadReallocatedSkips does the same as TestReservedForWorkloadReallocated
// for a device that is the same, but needs the driver now, or no longer.
func TestReservedForWorkloadReallocatedSkips(t *testing.T) {
	skip := skipNodeOperations(resourceapi.SkipNodeOperationNodePrepareResources)
	skipBoth := skipNodeOperations(resourceapi.SkipNodeOperationNodePrepareResources, resourceapi.SkipNodeOperationNodeUnprepareResources)
	skipBothReversed := skipNodeOperations(resourceapi.SkipNodeOperationNodeUnprepareResources, resourceapi.SkipNodeOperationNodePrepareResources)
	for name, tc := range map[string]reallocatedTest{
		"needs-driver-now":               {claim: genWorkloadClaim(skip), newClaim: genWorkloadClaim(), wantConflict: true},
		"needs-driver-now-after-restart": {restart: true, claim: genWorkloadClaim(skip), newClaim: genWorkloadClaim(), wantConflict: true},
		"same-operations":                {claim: genWorkloadClaim(skipBoth), newClaim: genWorkloadClaim(skipBothReversed)},
	} {
		t.Run(name, func(t *testing.T) {
			enableOptionalNodeOperations(t, true)
			tc.run(t)
		})
	}
}
