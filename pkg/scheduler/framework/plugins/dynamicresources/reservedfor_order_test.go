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
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultbinder"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/queuesort"
	"k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// gangPlugin lets pods wait in Permit.
type gangPlugin struct{}

func (gangPlugin) Name() string { return "gang" }

func (gangPlugin) Permit(context.Context, cycleState, *v1.Pod, string) (*fwk.Status, time.Duration) {
	return fwk.NewStatus(fwk.Wait), 5 * time.Minute
}

// newOrderedFramework returns a framework which runs the plugin under test as in a scheduler.
func newOrderedFramework(tCtx ktesting.TContext, tc *sharedClaimsTest, permit bool) orderFramework {
	tCtx.Helper()
	registry := runtime.Registry{
		Name:               func(context.Context, apiruntime.Object, orderHandle) (orderPlugin, error) { return tc.p, nil },
		queuesort.Name:     queuesort.New,
		defaultbinder.Name: defaultbinder.New,
		"gang":             func(context.Context, apiruntime.Object, orderHandle) (orderPlugin, error) { return gangPlugin{}, nil },
	}
	enabled := func(names ...string) (set config.PluginSet) {
		for _, name := range names {
			set.Enabled = append(set.Enabled, config.Plugin{Name: name})
		}
		return set
	}
	plugins := &config.Plugins{QueueSort: enabled(queuesort.Name), PreBind: enabled(Name), Bind: enabled(defaultbinder.Name)}
	if permit {
		plugins.Permit = enabled("gang")
	}
	fw, err := runtime.NewFramework(tCtx, registry, &config.KubeSchedulerProfile{SchedulerName: "test", Plugins: plugins},
		runtime.WithClientSet(tc.client),
		runtime.WithInformerFactory(tc.informerFactory),
		runtime.WithSharedDRAManager(tc.draManager),
		runtime.WithWaitingPods(runtime.NewWaitingPodsMap()),
	)
	tCtx.ExpectNoError(err, "create framework")
	tc.p.fh = fw
	return fw
}

// TestReservedForOrder runs all steps after Reserve in the order of a scheduler. The claim changes in between.
func TestReservedForOrder(t *testing.T) {
	release := func(claim *resourceapi.ResourceClaim) { claim.Status.ReservedFor = nil }
	deallocate := func(claim *resourceapi.ResourceClaim) { claim.Status = resourceapi.ResourceClaimStatus{} }
	reallocate := func(claim *resourceapi.ResourceClaim) {
		claim.Status.Allocation.Devices.Results[0].Device = "instance-2"
	}

	for name, tcase := range map[string]struct {
		beforePermit, beforePreBind, beforeBind func(claim *resourceapi.ResourceClaim)
		foreign                                 bool
		gang                                    bool
		expectErr                               string
		expectRefs                              []string
	}{
		"unchanged":                  {expectRefs: []string{jobName}},
		"unchanged-gang":             {gang: true, expectRefs: []string{jobName}},
		"released-in-permit":         {gang: true, beforePreBind: release, expectRefs: []string{jobName}},
		"released-in-permit-foreign": {gang: true, foreign: true, beforePreBind: release, expectErr: "not reserved for"},
		"deallocated-in-permit":      {gang: true, beforePreBind: deallocate, expectErr: "got deallocated"},
		"reallocated-in-permit":      {gang: true, beforePreBind: reallocate, expectErr: "got allocated elsewhere"},
		"released-in-prebind":        {beforeBind: release, expectErr: "not reserved for"},
		"deallocated-in-prebind":     {beforeBind: deallocate, expectErr: "got deallocated"},
		"reallocated-in-prebind":     {beforeBind: reallocate, expectErr: "got allocated elsewhere"},
		"deallocated-before-permit":  {beforePermit: deallocate, gang: true, expectErr: "got deallocated"},
		"released-before-permit":     {beforePermit: release, gang: true, expectRefs: []string{jobName}},
	} {
		syncTest(t, name, func(tCtx ktesting.TContext) {
			tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{newWorkloadClaim(workloadRefWithUID)})
			fw := newOrderedFramework(tCtx, tc, tcase.gang)
			change := func(cb func(claim *resourceapi.ResourceClaim)) {
				if cb != nil {
					tc.change(cb)
				}
			}
			pod := newJobPod("pod-1")
			if tcase.foreign {
				pod = newSharingPod("pod-1")
			}
			cycle := tc.schedule(pod)
			change(tcase.beforePermit)
			status := runPermit(tCtx, fw, cycle)
			require.Equal(tCtx, tcase.gang, status.IsWait(), status)
			status = runPreBindPreFlight(tCtx, fw, cycle)
			require.NotEqual(tCtx, fwk.Error, status.Code())
			change(tcase.beforePreBind)
			if tcase.gang {
				fw.GetWaitingPod(pod.UID).Allow("gang")
			}
			require.Nil(tCtx, fw.WaitOnPermit(tCtx, pod))
			status = fw.RunPreBindPlugins(tCtx, cycle.state, pod, nodeName)
			if status.IsSuccess() {
				change(tcase.beforeBind)
				status = CheckBeforeBind(tCtx.Logger(), cycle.state, pod)
			}
			synctest.Wait()
			if tcase.expectErr != "" {
				require.ErrorContains(tCtx, status.AsError(), tcase.expectErr)
				return
			}
			require.Nil(tCtx, status)
			assert.Equal(tCtx, tcase.expectRefs, tc.reservedFor())
		})
	}
}
