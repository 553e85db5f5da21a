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
	"net"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/net/multiplex"
	"github.com/containerd/ttrpc"
	"github.com/prometheus/client_golang/prometheus"
)

// fakeRuntime is the container runtime's side of one NRI connection.
type fakeRuntime struct {
	t          *testing.T
	registered chan *api.RegisterPluginRequest
	plugin     api.PluginService
	close      func()
}

func (r *fakeRuntime) RegisterPlugin(_ context.Context, request *api.RegisterPluginRequest) (*api.Empty, error) {
	r.registered <- request
	return &api.Empty{}, nil
}

func (r *fakeRuntime) UpdateContainers(context.Context, *api.UpdateContainersRequest) (*api.UpdateContainersResponse, error) {
	return nil, errors.New("not expected")
}

// register waits until the driver has connected and said who it is.
func register(t *testing.T, ctx context.Context, listener net.Listener) *fakeRuntime {
	t.Helper()
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	mux := multiplex.Multiplex(conn, multiplex.WithBlockedRead())
	pluginConn, err := mux.Open(multiplex.PluginServiceConn)
	if err != nil {
		t.Fatal(err)
	}
	runtimeListener, err := mux.Listen(multiplex.RuntimeServiceConn)
	if err != nil {
		t.Fatal(err)
	}
	server, err := ttrpc.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	client := ttrpc.NewClient(pluginConn)
	r := &fakeRuntime{t: t, registered: make(chan *api.RegisterPluginRequest, 1), plugin: api.NewPluginClient(client)}
	api.RegisterRuntimeService(server, r)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(ctx, runtimeListener) })
	r.close = func() {
		_ = client.Close()
		_ = server.Close()
		_ = mux.Close()
		serving.Wait()
	}
	mux.Unblock()

	if request := <-r.registered; request.PluginName != PluginName || request.PluginIdx != pluginIndex {
		t.Errorf("registered as %+v", request)
	}
	return r
}

// accept does the same, and tells the driver which pods there are.
func accept(t *testing.T, ctx context.Context, listener net.Listener, pods ...*api.PodSandbox) *fakeRuntime {
	t.Helper()
	r := register(t, ctx, listener)
	configured, err := r.plugin.Configure(ctx, &api.ConfigureRequest{RuntimeName: "test", RequestTimeout: 600_000, RegistrationTimeout: 600_000})
	if err != nil {
		t.Fatal(err)
	}
	var events api.EventMask
	events.Set(api.Event_RUN_POD_SANDBOX, api.Event_STOP_POD_SANDBOX, api.Event_REMOVE_POD_SANDBOX, api.Event_CREATE_CONTAINER)
	if configured.Events != int32(events) {
		mask := api.EventMask(configured.Events)
		t.Errorf("subscribed to %s", mask.PrettyString())
	}
	if _, err := r.plugin.Synchronize(ctx, &api.SynchronizeRequest{Pods: pods}); err != nil {
		t.Fatal(err)
	}
	return r
}

func podSandbox(sandbox Sandbox) *api.PodSandbox {
	pod := &api.PodSandbox{
		Id: sandbox.ID, Name: sandbox.PodName, Namespace: sandbox.PodNamespace, Uid: string(sandbox.PodUID),
		Linux: &api.LinuxPodSandbox{Namespaces: []*api.LinuxNamespace{
			{Type: "pid"}, {Type: "network", Path: sandbox.NetNS}, {Type: "ipc", Path: "/proc/1/ns/ipc"},
		}},
	}
	if sandbox.Running {
		pod.Pid = 1
	}
	return pod
}

// TestNRI goes through the protocol with the runtime's side of it: a pod that
// starts and ends, one that fails, and a runtime that is restarted.
func TestNRI(t *testing.T) {
	n := newNode(t)
	claim := n.newClaim("claim", "net-0")
	n.newPod("pod", "claim")
	n.mustPrepare(claim)
	sandbox := n.newSandbox("pod", "sandbox")

	ctx, cancel := context.WithCancel(n.ctx)
	defer cancel()
	socket := filepath.Join(t.TempDir(), "nri.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	nri := NewNRI(n.Driver, socket)
	var running sync.WaitGroup
	running.Go(func() { nri.Run(ctx) })

	runtime := accept(t, ctx, listener)
	if !n.Connected() {
		t.Error("not connected")
	}
	n.expectMetric("dra_network_nri_connected", "", 1)
	event := func(runtime *fakeRuntime, event api.Event, sandbox Sandbox) error {
		_, err := runtime.plugin.StateChange(ctx, &api.StateChangeEvent{Event: event, Pod: podSandbox(sandbox)})
		return err
	}
	n.cni.addErr = errors.New("no such master")
	expectError(t, event(runtime, api.Event_RUN_POD_SANDBOX, sandbox), "no such master")
	n.expectInterfaces()
	// A quarter of the time that the runtime waits is left for the answer.
	if latest := time.Now().Add(450 * time.Second); n.podsDeadline.IsZero() || n.podsDeadline.After(latest) {
		t.Errorf("attaching may take until %s, want %s at the latest", n.podsDeadline, latest)
	}
	n.cni.addErr = nil
	if err := event(runtime, api.Event_RUN_POD_SANDBOX, sandbox); err != nil {
		t.Fatal(err)
	}
	n.expectInterfaces("sandbox/net1")

	// After its restart, the runtime has another sandbox of the pod, in which
	// nobody attached anything, and the process of the first has ended.
	other := n.newClaim("other", "net-1")
	n.newPod("other", "other")
	n.mustPrepare(other)
	n.mustPrepare(n.newClaim("stopped", "net-2"))
	runtime.close()
	delete(n.netns, sandbox.NetNS)
	sandbox.Running = false
	second := n.newSandbox("other", "second")
	n.newPod("stopped", "stopped")
	stopped := n.newSandbox("stopped", "stopped")
	stopped.Running = false
	runtime = accept(t, ctx, listener, podSandbox(sandbox), podSandbox(second), podSandbox(stopped))
	n.Wait()
	n.expectInterfaces("second/net1")
	if err := event(runtime, api.Event_STOP_POD_SANDBOX, second); err != nil {
		t.Fatal(err)
	}
	n.expectInterfaces()
	if err := event(runtime, api.Event_REMOVE_POD_SANDBOX, second); err != nil {
		t.Fatal(err)
	}
	// One that does not stop, because it has never started, is only removed.
	if err := event(runtime, api.Event_RUN_POD_SANDBOX, second); err != nil {
		t.Fatal(err)
	}
	n.expectInterfaces("second/net1")
	if err := event(runtime, api.Event_REMOVE_POD_SANDBOX, second); err != nil {
		t.Fatal(err)
	}
	n.expectInterfaces()
	if !slices.Contains(n.cni.calls, "DEL sandbox/net1 without namespace") {
		t.Errorf("calls %q", n.cni.calls)
	}

	cancel()
	running.Wait()
	if n.Connected() {
		t.Error("still connected")
	}
	n.expectMetric("dra_network_nri_connected", "", 0)
	runtime.close()
}

// TestNRIUnfinished has a runtime that accepts the driver, and then never says
// anything, as one does that is killed just then.
func TestNRIUnfinished(t *testing.T) {
	n := newNode(t)
	ctx, cancel := context.WithCancel(n.ctx)
	defer cancel()
	socket := filepath.Join(t.TempDir(), "nri.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	nri := NewNRI(n.Driver, socket)
	nri.registration = 100 * time.Millisecond
	var running sync.WaitGroup
	running.Go(func() { nri.Run(ctx) })

	// Each time the driver comes back, and nothing of the former time goes on.
	for range 5 {
		defer register(t, ctx, listener).close()
	}
	stacks := make([]byte, 1<<20)
	stacks = stacks[:goruntime.Stack(stacks, true)]
	if running := strings.Count(string(stacks), "stub.(*stub).Start("); running > 1 {
		t.Errorf("%d connections are waited for:\n%s", running, stacks)
	}
	// It also ends when it is told to while nobody answers.
	cancel()
	running.Wait()
	if n.Connected() {
		t.Error("want no connection")
	}
}

// TestNRILostInSynchronize loses the connection while the driver learns which pods there are. It
// must not believe after that that it hears of pods.
func TestNRILostInSynchronize(t *testing.T) {
	n := newNode(t)
	n.SetConnected(false)
	s := &session{NRI: NewNRI(n.Driver, "unused"), ctx: n.ctx}
	exists := n.NetNSExists
	var once sync.Once
	n.NetNSExists = func(path string) bool {
		once.Do(s.end)
		return exists(path)
	}
	if _, err := s.Synchronize(n.ctx, []*api.PodSandbox{podSandbox(n.newSandbox("pod", "sandbox"))}, nil); err != nil {
		t.Fatal(err)
	}
	n.Wait()
	if n.Connected() {
		t.Error("connected through a connection that has ended")
	}
}

// TestStaticPods covers pods that the kubelet does not get from the API server.
func TestStaticPods(t *testing.T) {
	for source, want := range map[string]bool{"": false, "api": false, "file": true, "http": true} {
		pod := &api.PodSandbox{Annotations: map[string]string{"kubernetes.io/config.source": source}}
		if got := sandboxOf(pod).Static; got != want {
			t.Errorf("%q: %v", source, got)
		}
	}
}

// TestRuntimeWaits checks that a request leaves half of the runtime's time to other pods, and that it is counted.
func TestRuntimeWaits(t *testing.T) {
	n := newNode(t)
	s := &session{NRI: NewNRI(n.Driver, ""), ctx: n.ctx, timeout: func() time.Duration { return 2 * time.Second }}
	start := time.Now()
	ctx, done := s.inTime(n.ctx, "RunPodSandbox")
	if deadline, ok := ctx.Deadline(); !ok || deadline.After(time.Now().Add(time.Second)) || deadline.Before(start.Add(time.Second)) {
		t.Errorf("started at %s, and has to be done at %s", start, deadline)
	}
	done()
	if ctx.Err() == nil {
		t.Error("the context goes on")
	}
	counted := make(chan prometheus.Metric, 2)
	n.Metrics.runtimeWait.Collect(counted)
	if len(counted) != 1 {
		t.Errorf("%d kinds of requests are counted", len(counted))
	}
}
