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
	"fmt"
	"strings"
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
		for event := n.event(); event != ""; event = n.event() {
			if strings.Contains(event, "plugin_request_timeout") {
				t.Errorf("%s: nobody waited, and an Event says %s", during, event)
			}
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

// newWaitingPods have a claim each, with a network and an interface of its name. Their networks have no address.
func (n *node) newWaitingPods(names ...string) {
	n.setAddError(errors.New("no address is left"))
	for i, name := range names {
		claim := n.newClaim(name, fmt.Sprintf("net-%d", i))
		claim.Status.Allocation.Devices.Config[0].Opaque.Parameters.Raw = []byte(strings.NewReplacer(`"name": "test"`, fmt.Sprintf(`"name": %q`, name), `"config"`, fmt.Sprintf(`"interfaceName": %q, "config"`, name)).Replace(inline))
		n.newWaitingPod(name, name)
		n.mustPrepare(claim)
		if err := n.runtimeOf().RunPodSandbox(n.ctx, n.podSandbox(name, name)); err != nil {
			n.t.Fatal(err)
		}
	}
}

// lockNetworks is a pod with the same networks whose plugins take long.
func (n *node) lockNetworks(pod string) (unlock func()) {
	n.t.Helper()
	unlock, err := n.laterLocks.lock(n.ctx, n.networksOf(n.pods[namespace+"/"+pod]), nil)
	if err != nil {
		n.t.Fatal(err)
	}
	return unlock
}

// TestWaitingPodGetsAnotherSandbox covers one that gets its interface while the attempt for the former sandbox is
// about to begin: nobody told that it ended. The interface stays.
func TestWaitingPodGetsAnotherSandbox(t *testing.T) {
	for _, told := range []string{"by nobody", "by the list of sandboxes"} {
		n := newNode(t)
		n.newWaitingPods("pod")
		key := n.networksOf(n.pods[namespace+"/pod"])
		unlock := n.lockNetworks("pod")
		n.tick("waiting attempt", func() bool { return n.laterLocks.contended(key) })

		delete(n.netns, "/run/netns/pod")
		n.setAddError(nil)
		second := n.newSandbox("pod", "second")
		if told != "by nobody" {
			n.Synchronize([]Sandbox{second})(n.ctx)
			if n.IsLater("pod") {
				t.Error("the former sandbox still waits")
			}
		} else {
			n.mustAttach(second)
		}
		unlock()
		n.tick("end of the attempts", func() bool { return !n.IsLater("pod") && !n.IsLater("second") })
		n.Wait()
		n.expectInterfaces("second/pod")
	}
}

// TestFormerSandboxIsNotAttached covers an attempt that finds out last that its sandbox is not the newest one.
func TestFormerSandboxIsNotAttached(t *testing.T) {
	n := newNode(t)
	n.newPod("pod", "claim")
	n.mustPrepare(n.newClaim("claim", "net-0"))
	first := n.newSandbox("pod", "first")
	delete(n.netns, first.NetNS)
	n.mustAttach(n.newSandbox("pod", "second"))
	expectError(t, n.Attach(n.ctx, first), "the sandbox of the pod has ended")
	n.expectInterfaces("second/net1")
}

// TestWaitingPodWhenConnectedAgain covers a connection to the runtime that ends while containers wait, and a driver
// that starts then. One attempt at a time goes on, and nobody else waits for it.
func TestWaitingPodWhenConnectedAgain(t *testing.T) {
	n := newNode(t)
	n.newWaitingPods("pod")
	before := n.called("ADD pod/pod")
	sandbox := n.newSandbox("pod", "pod")
	n.Synchronize([]Sandbox{sandbox})(n.ctx)
	n.Check(n.ctx)
	if times := n.called("ADD pod/pod"); times != before {
		t.Errorf("it was tried %d times by somebody else", times-before)
	}
	if !n.IsLater("pod") {
		t.Error("it is not tried any longer")
	}

	n.endLater("pod")
	n.Wait()
	n.start()
	unlock := n.lockNetworks("pod")
	n.Synchronize([]Sandbox{sandbox})(n.ctx)
	if times := n.called("ADD pod/pod"); times != before {
		t.Errorf("after the start, it was tried %d times without its turn", times-before)
	}
	unlock()
	n.setAddError(nil)
	n.tick("interface", func() bool { return !n.IsLater("pod") })
	n.Wait()
	n.expectInterfaces("pod/pod")
}

// TestWaitingPodsOfOtherNetworks ensures that a network that hangs keeps nobody waiting for another one.
func TestWaitingPodsOfOtherNetworks(t *testing.T) {
	n := newNode(t)
	n.newWaitingPods("hangs", "works")
	goOn := n.hang("ADD hangs")
	n.tick("ADD that hangs", func() bool { return n.called("hanging ADD hangs/hangs") > 0 })
	n.setAddError(nil)
	stopped := n.called("DEL hangs/hangs")
	n.tick("interface of the other pod", func() bool { return !n.IsLater("works") })
	if n.called("DEL hangs/hangs") > stopped {
		t.Error("it had to wait for the network that hangs")
	}
	n.expectInterfaces("works/works")
	goOn()
	n.tick("interface", func() bool { return !n.IsLater("hangs") })
	n.Wait()
	n.expectInterfaces("hangs/hangs", "works/works")
}

// TestWorksInBackground ensures that a network stays one that is late when it works while nobody waits.
func TestWorksInBackground(t *testing.T) {
	n := newNode(t)
	claim := n.newClaim("claim", "net-0")
	n.newPod("pod", "claim")
	n.mustPrepare(claim)
	hangs := func() {
		goOn := n.hang("ADD net1")
		expectError(t, n.late("ADD sandbox/net1", func(ctx context.Context) error { return n.AttachInTime(ctx, n.newSandbox("pod", "sandbox")) }), "not done within the time")
		goOn()
		n.Wait()
		n.cni.calls = nil
	}
	hangs()
	n.mustAttach(n.newSandbox("pod", "sandbox"))
	if err := n.Detach(n.ctx, "sandbox"); err != nil {
		t.Fatal(err)
	}
	hangs()
	expectError(t, n.AttachInTime(n.ctx, n.newSandbox("pod", "sandbox")), "did not answer in time a moment ago")
}
