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
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// snapshotHandle has a snapshot of the scheduler's cache.
type snapshotHandle struct {
	orderHandle
	snapshot sharedLister
}

func (h snapshotHandle) SnapshotSharedLister() sharedLister { return h.snapshot }

// TestReservedForAssumed covers a pod that needs an allocation to be given up while another pod which fits it is
// on its way to a node. The API server does not know that yet. When that pod runs and ends, or never gets
// there, the waiting pod must get another chance, without any event.
func TestReservedForAssumed(t *testing.T) {
	syncTest(t, "", func(tCtx ktesting.TContext) {
		tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{newWorkloadClaim(workloadRefWithUID)})
		handle := tc.p.fh
		tc.p.fh = snapshotHandle{handle, internalcache.NewSnapshot([]*v1.Pod{assigned(newJobPod("assumed"), nodeName)}, []*v1.Node{workerNode})}
		pod := newJobPod("pod-1")
		for range 3 {
			require.Equal(tCtx, fwk.Unschedulable, tc.cannotFit(pod).Code())
			time.Sleep(assumedRecheckInterval - time.Millisecond) // fake time
			synctest.Wait()
			assert.Equal(tCtx, []string{jobName}, tc.reservedFor(), "the assumed pod may use the claim")
			assert.False(tCtx, tc.takeActivated(pod))
			time.Sleep(time.Millisecond)
			synctest.Wait()
			assert.True(tCtx, tc.takeActivated(pod), "it looks again")
		}
		tc.p.fh = snapshotHandle{handle, internalcache.NewSnapshot(nil, []*v1.Node{workerNode})}
		require.Equal(tCtx, fwk.Unschedulable, tc.cannotFit(pod).Code())
		synctest.Wait()
		assert.Empty(tCtx, tc.reservedFor(), "nobody uses the claim")
	})
}

// TestReservedForIncarnations covers a pod of one incarnation of a workload too many: PreFilter makes it
// wait. In PreBind, it would be refused again and again.
func TestReservedForIncarnations(t *testing.T) {
	syncTest(t, "", func(tCtx ktesting.TContext) {
		claim := newWorkloadClaim()
		for i := range maxIncarnations {
			ref := workloadRefWithUID
			ref.UID = types.UID(fmt.Sprintf("incarnation-%d", i))
			claim.Status.ReservedFor = append(claim.Status.ReservedFor, ref)
		}
		tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{claim})
		_, status := tc.preFilter(newJobPod("pod-1"))
		require.Equal(tCtx, fwk.UnschedulableAndUnresolvable, status.Code())
		assert.Contains(tCtx, status.Message(), "incarnations")
		tc.change(func(claim *resourceapi.ResourceClaim) { claim.Status.ReservedFor = claim.Status.ReservedFor[1:] })
		require.Nil(tCtx, tc.schedule(newJobPod("pod-1")).bind(tCtx))
		assert.Empty(tCtx, tc.listInFlightClaims())
	})
}

// TestReservedForWithoutClient covers a plugin that cannot ask the API server, as in a simulation of the Cluster
// Autoscaler: pods of a workload that uses its claim already fit, whatever their owners are.
func TestReservedForWithoutClient(t *testing.T) {
	for _, reserved := range []bool{true, false} {
		syncTest(t, fmt.Sprint(reserved), func(tCtx ktesting.TContext) {
			deployment := resourceapi.ResourceClaimConsumerReference{APIGroup: "apps", Resource: "deployments", Name: "web"}
			claim := newWorkloadClaim()
			if reserved {
				ref := deployment
				ref.UID = "web-uid"
				claim = newWorkloadClaim(ref)
			}
			claim = withReservedFor(claim, deployment)
			tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{claim})
			tc.p.owners.reader = nil
			_, status := tc.preFilter(newPodOf("pod-1", controlledBy(replicaSetKind, "web-1", "web-1-uid")))
			if reserved {
				require.Nil(tCtx, status)
				return
			}
			require.Equal(tCtx, fwk.UnschedulableAndUnresolvable, status.Code())
			assert.Contains(tCtx, status.Message(), "without access to the API server")
		})
	}
}
