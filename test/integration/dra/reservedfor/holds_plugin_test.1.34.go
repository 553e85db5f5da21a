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

package reservedfor

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// holdPlugin holds up pods, see holds. In 1.34, the interfaces of plugins are still part of
// the scheduler.
type holdPlugin struct {
	ctx    context.Context
	handle framework.Handle
	holds  *holds
}

var _ framework.PermitPlugin = &holdPlugin{}
var _ framework.PreBindPlugin = &holdPlugin{}
var _ framework.EnqueueExtensions = &holdPlugin{}

// newRegistry has the plugin for the configuration of the scheduler.
func newRegistry(h *holds) frameworkruntime.Registry {
	return frameworkruntime.Registry{
		holdPluginName: func(ctx context.Context, _ runtime.Object, handle framework.Handle) (framework.Plugin, error) {
			h.setInFlight(func(claimUID types.UID) bool {
				return handle.SharedDRAManager().ResourceClaims().ClaimHasPendingAllocation(claimUID)
			})
			return &holdPlugin{ctx: ctx, handle: handle, holds: h}, nil
		},
	}
}

func (p *holdPlugin) Name() string { return holdPluginName }

// EventsToRegister returns nothing because the plugin never rejects a pod.
func (p *holdPlugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return nil, nil
}

func (p *holdPlugin) Permit(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) (*fwk.Status, time.Duration) {
	done := p.holds.wait(pod, holdInPermit)
	if done == nil {
		return nil, 0
	}
	go allow(p.ctx, done, func() waitingPod {
		if waiting := p.handle.GetWaitingPod(pod.UID); waiting != nil {
			return waiting
		}
		return nil
	})
	return fwk.NewStatus(fwk.Wait), timeout
}

func (p *holdPlugin) PreBindPreFlight(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) *fwk.Status {
	if pod.Labels[holdInPreBind] == "" {
		return fwk.NewStatus(fwk.Skip)
	}
	return nil
}

func (p *holdPlugin) PreBind(ctx context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) *fwk.Status {
	done := p.holds.wait(pod, holdInPreBind)
	if done == nil {
		return nil
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fwk.AsStatus(context.Cause(ctx))
	}
}
