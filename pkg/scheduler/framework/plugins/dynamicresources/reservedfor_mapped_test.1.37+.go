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
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/test/utils/ktesting"
)

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
