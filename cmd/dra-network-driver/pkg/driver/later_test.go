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

package driver

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"

	v1 "k8s.io/api/core/v1"
)

// runtimeOf is the container runtime, which waits for as long as a request takes.
func (n *node) runtimeOf() *session {
	return &session{NRI: NewNRI(n.Driver, ""), ctx: n.ctx, timeout: func() time.Duration { return time.Hour }}
}

// newWaitingPod has containers that list the claims. It is what the cache of pods has of it.
func (n *node) newWaitingPod(name string, claims ...string) *v1.Pod {
	pod := n.newPod(name, claims...)
	container := v1.Container{}
	for _, entry := range pod.Spec.ResourceClaims {
		container.Resources.Claims = append(container.Resources.Claims, v1.ResourceClaim{Name: entry.Name})
	}
	pod.Spec.InitContainers, pod.Spec.Containers = []v1.Container{container}, []v1.Container{container}
	cached, err := onlyClaims(pod)
	if err != nil {
		n.t.Fatal(err)
	}
	pod = cached.(*v1.Pod)
	n.pods[namespace+"/"+name] = pod
	return pod
}

// podSandbox is a sandbox of the container runtime.
func (n *node) podSandbox(pod, id string) *api.PodSandbox {
	sandbox := n.newSandbox(pod, id)
	return &api.PodSandbox{
		Id: id, Name: pod, Namespace: sandbox.PodNamespace, Uid: string(sandbox.PodUID),
		Linux: &api.LinuxPodSandbox{Namespaces: []*api.LinuxNamespace{{Type: "network", Path: sandbox.NetNS}}},
	}
}

func (n *node) createContainer(runtime *session, pod *api.PodSandbox) error {
	_, _, err := runtime.CreateContainer(n.ctx, pod, nil)
	return err
}

// setAddError is what plugins say from now on.
func (n *node) setAddError(err error) {
	n.cni.mutex.Lock()
	defer n.cni.mutex.Unlock()
	n.cni.addErr = err
}

// called returns how many times plugins were run.
func (n *node) called(call string) (times int) {
	n.cni.mutex.Lock()
	defer n.cni.mutex.Unlock()
	for _, c := range n.cni.calls {
		if c == call {
			times++
		}
	}
	return times
}

// tick lets time go on until something holds.
func (n *node) tick(what string, condition func() bool) {
	n.t.Helper()
	n.eventually(what, func() bool {
		n.clock.Step(time.Second)
		return condition()
	})
}

// TestContainersWait covers a pod whose network has no address at first. Its sandbox stays, and its containers wait.
func TestContainersWait(t *testing.T) {
	n := newNode(t)
	claim := n.newClaim("claim", "net-0")
	n.newWaitingPod("pod", "claim")
	n.mustPrepare(claim)
	runtime, pod := n.runtimeOf(), n.podSandbox("pod", "sandbox")
	n.setAddError(errors.New("no address is left"))
	if err := runtime.RunPodSandbox(n.ctx, pod); err != nil {
		t.Fatal(err)
	}
	n.expectGate(claim, nil)
	expectError(t, n.createContainer(runtime, pod), "the network devices of pod default/pod are not attached yet")

	// It fails again, and then it works.
	n.tick("second attempt", func() bool { return n.called("ADD sandbox/net1") > 1 })
	n.setAddError(nil)
	n.tick("interface", func() bool { return !n.IsLater("sandbox") })
	n.Wait()
	n.expectInterfaces("sandbox/net1")
	n.expectGate(claim, map[string]string{"net-0": "/run/netns/sandbox"})
	if err := n.createContainer(runtime, pod); err != nil {
		t.Error(err)
	}
	if err := runtime.StopPodSandbox(n.ctx, pod); err != nil {
		t.Error(err)
	}
	n.expectInterfaces()
}

// TestContainersWaitForSlowNetwork covers plugins that need longer than the container runtime waits.
func TestContainersWaitForSlowNetwork(t *testing.T) {
	n := newNode(t)
	claim := n.newClaim("claim", "net-0")
	n.newWaitingPod("pod", "claim")
	n.mustPrepare(claim)
	runtime, pod := n.runtimeOf(), n.podSandbox("pod", "sandbox")
	runtime.timeout = func() time.Duration { return 20 * time.Millisecond }
	goOn := n.hang("ADD net1")
	if err := runtime.RunPodSandbox(n.ctx, pod); err != nil {
		t.Fatal(err)
	}
	n.tick("second attempt", func() bool { return n.called("hanging ADD sandbox/net1") > 1 })
	// Longer than anybody waits.
	time.Sleep(50 * time.Millisecond)
	expectError(t, n.createContainer(runtime, pod), "are not attached yet")
	goOn()
	n.eventually("interface", func() bool { return !n.IsLater("sandbox") })
	n.Wait()
	n.expectInterfaces("sandbox/net1")
	n.expectGate(claim, map[string]string{"net-0": "/run/netns/sandbox"})
}

// TestWaitingPodEnds covers a pod that is deleted while its containers wait: between two attempts, and during one.
func TestWaitingPodEnds(t *testing.T) {
	n := newNode(t)
	claim := n.newClaim("claim", "net-0")
	n.newWaitingPod("pod", "claim")
	n.mustPrepare(claim)
	runtime := n.runtimeOf()
	for _, during := range []string{"", "hanging ADD", "the end of ADD"} {
		n.setAddError(errors.New("no address is left"))
		goOn := func() {}
		pod := n.podSandbox("pod", "sandbox"+during)
		if err := runtime.RunPodSandbox(n.ctx, pod); err != nil {
			t.Fatal(err)
		}
		switch during {
		case "hanging ADD":
			n.setAddError(nil)
			goOn = n.hang("ADD net1")
			n.tick("ADD", func() bool { return n.called("hanging ADD "+pod.Id+"/net1") > 0 })
		case "the end of ADD":
			n.setAddError(nil)
			var ended atomic.Bool
			n.cni.duringAdd = func() {
				n.cni.duringAdd = nil
				n.endLater(pod.Id)
				ended.Store(true)
			}
			n.tick("ADD", ended.Load)
			n.Wait()
			n.expectInterfaces()
			return
		}
		if err := runtime.StopPodSandbox(n.ctx, pod); err != nil {
			t.Errorf("%s: %v", during, err)
		}
		n.Wait()
		goOn()
		if n.IsLater(pod.Id) {
			t.Errorf("%s: it goes on", during)
		}
		n.expectInterfaces()
	}
}

// TestSandboxIsRefused covers pods with a container that could start without the interface if the driver ended now.
func TestSandboxIsRefused(t *testing.T) {
	for name, change := range map[string]func(*node, *v1.Pod){
		"container": func(_ *node, pod *v1.Pod) { pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{}) },
		"init container": func(_ *node, pod *v1.Pod) {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, v1.Container{})
		},
		"other claim":  func(_ *node, pod *v1.Pod) { pod.Spec.Containers[0].Resources.Claims[0].Name = "other" },
		"one request":  func(_ *node, pod *v1.Pod) { pod.Spec.Containers[0].Resources.Claims[0].Request = "network" },
		"no container": func(_ *node, pod *v1.Pod) { pod.Spec.InitContainers, pod.Spec.Containers = nil, nil },
		"extended resource": func(n *node, pod *v1.Pod) {
			n.mustPrepare(n.newClaim("extended", "net-1"))
			pod.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{ResourceClaimName: "extended"}
		},
		"claim of another pod": func(n *node, _ *v1.Pod) {
			n.newPod("another", "claim")
			n.setAddError(nil)
			n.mustAttach(n.newSandbox("another", "another"))
		},
		"unknown pod": func(n *node, pod *v1.Pod) { delete(n.pods, namespace+"/"+pod.Name) },
		"lost record": func(n *node, _ *v1.Pod) {
			n.mutex.Lock()
			defer n.mutex.Unlock()
			clear(n.claims)
			n.ours.Insert(namespace + "/claim")
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.setAddError(errors.New("no address is left"))
			n.mustPrepare(n.newClaim("claim", "net-0"))
			change(n, n.newWaitingPod("pod", "claim"))
			ctx, cancel := context.WithTimeout(n.ctx, time.Second)
			defer cancel()
			if err := n.runtimeOf().RunPodSandbox(ctx, n.podSandbox("pod", "sandbox")); err == nil || n.IsLater("sandbox") {
				t.Errorf("want it to be refused, got %v", err)
			}
		})
	}
}
