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
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// A plugin of the scheduler holds up pods where real plugins do: in Permit, where
// gangs wait for each other, and in PreBind, where volumes get bound. What differs
// between releases of the scheduler is in holds_plugin_test.go.

const (
	// holdPluginName is the plugin's name in the configuration of the scheduler.
	holdPluginName = "Hold"
	// holdInPermit and holdInPreBind are the labels of pods that are held up. The
	// value is a duration or the name of something that gets opened by the test.
	holdInPermit  = "test.example.com/hold-in-permit"
	holdInPreBind = "test.example.com/hold-in-prebind"
)

// holds is shared by all schedulers of a cluster.
type holds struct {
	mutex sync.Mutex
	// gates are those which are not open yet.
	gates map[string]chan struct{}
	// arrived has the pods which were held up at least once.
	arrived map[types.UID]bool
	// inFlight says whether the scheduler that was started last has an
	// allocation in flight for a claim.
	inFlight func(claimUID types.UID) bool
}

func newHolds() *holds {
	return &holds{gates: map[string]chan struct{}{}, arrived: map[types.UID]bool{}}
}

// enableHoldPlugin adds the plugin after those of Kubernetes, so pods
// get held up when everything else that is done at the same point is done.
func enableHoldPlugin(cfg *schedulerconfig.KubeSchedulerConfiguration) {
	for i := range cfg.Profiles {
		multiPoint := &cfg.Profiles[i].Plugins.MultiPoint
		multiPoint.Enabled = append(multiPoint.Enabled, schedulerconfig.Plugin{Name: holdPluginName})
	}
}

// wait returns what a pod has to wait for, nil if it is not held up.
func (h *holds) wait(pod *v1.Pod, label string) <-chan struct{} {
	value := pod.Labels[label]
	if value == "" {
		return nil
	}
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.arrived[pod.UID] = true
	if duration, err := time.ParseDuration(value); err == nil {
		ch := make(chan struct{})
		time.AfterFunc(duration, func() { close(ch) })
		return ch
	}
	return h.gate(value)
}

// gate must be called with the mutex locked.
func (h *holds) gate(name string) chan struct{} {
	if h.gates[name] == nil {
		h.gates[name] = make(chan struct{})
	}
	return h.gates[name]
}

// open lets all pods continue which wait for something of that name, once and for all.
func (h *holds) open(name string) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	ch := h.gate(name)
	select {
	case <-ch:
	default:
		close(ch)
	}
}

// hasArrived returns true if the pod was held up.
func (h *holds) hasArrived(pod *v1.Pod) bool {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.arrived[pod.UID]
}

func (h *holds) setInFlight(inFlight func(claimUID types.UID) bool) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.inFlight = inFlight
}

// isInFlight returns true if the scheduler is about to allocate the claim, or believes so.
func (h *holds) isInFlight(claimUID types.UID) bool {
	h.mutex.Lock()
	inFlight := h.inFlight
	h.mutex.Unlock()
	return inFlight != nil && inFlight(claimUID)
}

// waitingPod is what the scheduler has of a pod that waits in Permit.
type waitingPod interface {
	Allow(pluginName string)
}

// allow lets a pod continue that waits in Permit. It gets added to those which wait only
// after the plugin said that it must.
func allow(ctx context.Context, done <-chan struct{}, get func() waitingPod) {
	select {
	case <-done:
	case <-ctx.Done():
		return
	}
	for range 1000 {
		if pod := get(); pod != nil {
			pod.Allow(holdPluginName)
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return
		}
	}
}

// holdPlugin is the plugin.
type holdPlugin struct {
	ctx    context.Context
	handle schedulerHandle
	holds  *holds
}

// newRegistry has the plugin for the configuration of the scheduler.
func newRegistry(h *holds) frameworkruntime.Registry {
	return frameworkruntime.Registry{
		holdPluginName: func(ctx context.Context, _ runtime.Object, handle schedulerHandle) (schedulerPlugin, error) {
			h.setInFlight(func(claimUID types.UID) bool { return hasPendingAllocation(handle, claimUID) })
			return &holdPlugin{ctx: ctx, handle: handle, holds: h}, nil
		},
	}
}

func (p *holdPlugin) Name() string { return holdPluginName }

// EventsToRegister returns nothing because the plugin never rejects a pod.
func (p *holdPlugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return nil, nil
}

func (p *holdPlugin) Permit(_ context.Context, _ cycleState, pod *v1.Pod, _ string) (*fwk.Status, time.Duration) {
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

func (p *holdPlugin) PreBind(ctx context.Context, _ cycleState, pod *v1.Pod, _ string) *fwk.Status {
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
