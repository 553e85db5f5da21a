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
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
)

// hang makes a command wait that is about the interface, until the function is called,
// which may be done more than once.
func (n *node) hang(command string) (goOn func()) {
	n.t.Helper()
	until := make(chan struct{})
	n.cni.mutex.Lock()
	n.cni.hangs = map[string]chan struct{}{command: until}
	n.cni.mutex.Unlock()
	goOn = sync.OnceFunc(func() {
		n.cni.mutex.Lock()
		n.cni.hangs = nil
		n.cni.mutex.Unlock()
		close(until)
	})
	n.t.Cleanup(func() { goOn(); n.Wait() })
	return goOn
}

// hanging waits until the command is being run.
func (n *node) hanging(call string) {
	n.t.Helper()
	n.eventually("hanging "+call, func() bool {
		n.cni.mutex.Lock()
		defer n.cni.mutex.Unlock()
		return slices.Contains(n.cni.calls, "hanging "+call)
	})
}

func (n *node) eventually(what string, condition func() bool) {
	n.t.Helper()
	for deadline := time.Now().Add(time.Minute); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			n.t.Fatalf("no %s", what)
		}
	}
}

// soon is a context that ends while something hangs.
func (n *node) soon() context.Context {
	ctx, cancel := context.WithTimeout(n.ctx, 20*time.Millisecond)
	n.t.Cleanup(cancel)
	return ctx
}

// twoPods have a claim each. Only the first is attached.
func twoPods(t *testing.T) (n *node, first, second *resourceapi.ResourceClaim) {
	n = newNode(t)
	first, second = n.newClaim("first", "net-0"), n.newClaim("second", "net-1")
	// Otherwise they would be the same for what hangs.
	first.Status.Allocation.Devices.Config[0].Opaque.Parameters.Raw = []byte(strings.Replace(inline, `"config"`, `"interfaceName": "one", "config"`, 1))
	n.newPod("first", "first")
	n.newPod("second", "second")
	n.newPod("none")
	n.mustPrepare(first)
	n.mustPrepare(second)
	n.mustAttach(n.newSandbox("first", "first"))
	return n, first, second
}

// othersGoOn checks that nothing but the first pod is affected by what hangs.
func (n *node) othersGoOn(second *resourceapi.ResourceClaim) {
	n.t.Helper()
	n.mustAttach(n.newSandbox("none", "none"))
	n.mustAttach(n.newSandbox("second", "second"))
	n.mustPrepare(n.newClaim("third", "net-2"))
	n.queue.Add(second.UID)
	n.drain()
	if reported := n.reported(second); len(reported) != 1 || !strings.HasPrefix(reported[0], "net-1 Ready=True Attached net1 ") {
		n.t.Errorf("status of the second claim: %q", reported)
	}
	if err := n.Detach(n.ctx, "second"); err != nil {
		n.t.Fatal(err)
	}
	if err := n.tryUnprepare(second); err != nil {
		n.t.Fatal(err)
	}
}

// late calls a function for which the container runtime waits in vain for a second, because a command hangs.
func (n *node) late(call string, f func(context.Context) error) error {
	n.t.Helper()
	ctx, cancel := context.WithCancel(n.ctx)
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- f(ctx) }()
	n.hanging(call)
	n.clock.Step(time.Second)
	cancel()
	return <-result
}

// TestNetworkRests checks that a network that does not answer in time keeps other pods of the node waiting for a
// tenth of the time at most, however many pods want it. Pods with other networks do not notice.
func TestNetworkRests(t *testing.T) {
	n := newNode(t)
	claims := map[string]*resourceapi.ResourceClaim{}
	for i, name := range []string{"hangs", "same", "other"} {
		claims[name] = n.newClaim(name, fmt.Sprintf("net-%d", i))
		network := name
		if name == "same" {
			network = "hangs"
		}
		claims[name].Status.Allocation.Devices.Config[0].Opaque.Parameters.Raw = []byte(strings.NewReplacer(`"name": "test"`, fmt.Sprintf(`"name": %q`, network), `"config"`, fmt.Sprintf(`"interfaceName": %q, "config"`, name)).Replace(inline))
		n.newPod(name, name)
		n.mustPrepare(claims[name])
	}
	attach := func(name string) func(context.Context) error {
		return func(ctx context.Context) error { return n.AttachInTime(ctx, n.newSandbox(name, name)) }
	}
	detach := func(name string) func(context.Context) error {
		return func(ctx context.Context) error { return n.DetachInTime(ctx, name) }
	}
	// It has the first address, until the end.
	if err := attach("other")(n.ctx); err != nil {
		t.Error(err)
	}
	// Once does not count, nor does twice with a success in between.
	hangs := func() {
		t.Helper()
		goOn := n.hang("ADD hangs")
		expectError(t, n.late("ADD hangs/hangs", attach("hangs")), "not done within the time")
		goOn()
		n.Wait()
		n.cni.calls = nil
	}
	hangs()
	if err := attach("same")(n.ctx); err != nil {
		t.Error(err)
	}
	if err := detach("same")(n.ctx); err != nil {
		t.Error(err)
	}
	hangs()
	hangs()

	for _, name := range []string{"hangs", "same"} {
		expectError(t, attach(name)(n.ctx), "did not answer in time a moment ago", "tried again after 10s")
	}
	if len(n.cni.calls) > 0 {
		t.Errorf("it was tried again at once: %q", n.cni.calls)
	}
	if err := detach("other")(n.ctx); err != nil {
		t.Error(err)
	}
	if err := attach("other")(n.ctx); err != nil {
		t.Error(err)
	}
	// Nobody waits for this one.
	n.mustAttach(n.newSandbox("same", "same"))
	if err := detach("same")(n.ctx); err != nil {
		t.Fatal(err)
	}
	n.clock.Step(10 * time.Second)
	for _, name := range []string{"same", "hangs"} {
		if err := attach(name)(n.ctx); err != nil {
			t.Error(err)
		}
	}

	lateAgain := func() {
		n.wasLate(&waiter{since: n.clock.Now().Add(-time.Second)}, func(a *Attachment) bool { return a.PodName == "hangs" })
	}
	// Also if it is the former sandbox that does not end, or the pod.
	goOn := n.hang("DEL hangs")
	again := n.newSandbox("hangs", "again")
	expectError(t, n.late("DEL hangs/hangs", func(ctx context.Context) error { return n.AttachInTime(ctx, again) }), "not done within the time")
	lateAgain()
	expectError(t, n.AttachInTime(n.ctx, again), "did not answer in time a moment ago")
	goOn()
	n.Wait()
	n.clock.Step(10 * time.Second)
	n.mustAttach(again)

	goOn = n.hang("DEL hangs")
	expectError(t, n.late("DEL again/hangs", detach("again")), "not done within the time")
	lateAgain()
	expectError(t, detach("again")(n.ctx), "goes on without anybody waiting")
	// This one has the same network, and answers.
	if err := detach("same")(n.ctx); err != nil {
		t.Error(err)
	}
	goOn()
	n.Wait()
	n.expectInterfaces("other/other")
	n.clock.Step(2 * forgetTrouble)
	n.rests("", &Device{}, n.clock.Now())
	if len(n.troubles) != 1 {
		t.Errorf("it remembers %v", n.troubles)
	}
}

// TestTimeSpentElsewhere checks that a network does not rest for others when pods of a tenant are late because of
// something else: here, another network of theirs that takes most of the time, and is in time.
func TestTimeSpentElsewhere(t *testing.T) {
	n := newNode(t)
	for i, name := range []string{"slow", "shared", "other"} {
		claim := n.newClaim(name, fmt.Sprintf("net-%d", i))
		network := "shared"
		if name == "slow" {
			network = "slow"
		}
		claim.Status.Allocation.Devices.Config[0].Opaque.Parameters.Raw = []byte(strings.NewReplacer(`"name": "test"`, fmt.Sprintf(`"name": %q`, network), `"config"`, fmt.Sprintf(`"interfaceName": %q, "config"`, name)).Replace(inline))
		if name == "other" {
			claim.Namespace = name
		}
		n.mustPrepare(claim)
	}
	n.newPod("pod", "slow", "shared")
	late := n.newSandbox("pod", "pod")
	pod, sandbox := n.newPod("other", "other"), n.newSandbox("other", "other")
	pod.Namespace, sandbox.PodNamespace = "other", "other"
	n.pods["other/other"] = pod

	for range 2 {
		n.cni.duringAdd = func() {
			n.cni.duringAdd = nil
			n.clock.Step(3 * time.Second)
		}
		goOn := n.hang("ADD shared")
		expectError(t, n.late("ADD pod/shared", func(ctx context.Context) error { return n.AttachInTime(ctx, late) }), "not done within the time")
		goOn()
		n.Wait()
		n.cni.calls = nil
	}
	expectError(t, n.AttachInTime(n.ctx, late), "failed or was late a moment ago for pods of this namespace")
	if err := n.AttachInTime(n.ctx, sandbox); err != nil {
		t.Errorf("another tenant: %v", err)
	}
}

// TestFailingNetworkRests checks that plugins that fail keep other pods of the node waiting for a tenth of the time
// at most, however many pods of a tenant want their network. Another tenant with that network does not notice.
func TestFailingNetworkRests(t *testing.T) {
	n := newNode(t)
	sandboxes := map[string]Sandbox{}
	for i, name := range []string{"fails", "same", "tenant"} {
		claim, pod, sandbox := n.newClaim(name, fmt.Sprintf("net-%d", i)), n.newPod(name, name), n.newSandbox(name, name)
		if name == "tenant" {
			claim.Namespace, pod.Namespace, sandbox.PodNamespace = name, name, name
			n.pods[name+"/"+name] = pod
		}
		n.mustPrepare(claim)
		sandboxes[name] = sandbox
	}
	attach := func(name string, want ...string) {
		t.Helper()
		n.cni.calls = nil
		err := n.AttachInTime(n.ctx, sandboxes[name])
		if want == nil && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if want != nil {
			expectError(t, err, want...)
		}
	}
	n.cni.duringAdd = func() { n.clock.Step(200 * time.Millisecond) }
	const failed = "no addresses are left"
	fail := func() {
		t.Helper()
		n.cni.addErr = errors.New(failed)
		attach("fails", failed)
		n.cni.addErr = nil
	}
	// Once does not count, nor does twice with a success in between.
	fail()
	attach("same")
	if err := n.DetachInTime(n.ctx, "same"); err != nil {
		t.Error(err)
	}
	fail()
	fail()
	for _, name := range []string{"fails", "same"} {
		attach(name, "CNI ADD of its network failed or was late a moment ago for pods of this namespace", "tried again after 2s")
	}
	if len(n.cni.calls) > 0 {
		t.Errorf("it was tried again at once: %q", n.cni.calls)
	}
	n.clock.Step(1900 * time.Millisecond)
	attach("fails", "tried again after 1s")
	attach("tenant")
	n.clock.Step(100 * time.Millisecond)
	attach("fails")
	n.expectInterfaces("fails/net1", "tenant/net1")
}

// TestCheckHangs checks that a CHECK that does not answer keeps nobody waiting: neither
// other pods, nor the one whose interface is checked.
func TestCheckHangs(t *testing.T) {
	n, first, second := twoPods(t)
	n.drain()
	goOn := n.hang("CHECK one")
	var checking sync.WaitGroup
	checking.Go(func() { n.Check(n.ctx) })
	n.hanging("CHECK first/one")
	n.othersGoOn(second)
	// One at a time.
	n.Check(n.ctx)

	// The pod gets another sandbox. What was checked is not of interest any more.
	n.mustAttach(n.newSandbox("first", "again"))
	checking.Wait()
	n.expectInterfaces("again/one")
	n.drain()
	n.expectReported(first, "net-0 Ready=True Attached one 10.0.0.1/24 02:00:00:00:00:01")
	goOn()

	for what, run := range map[string]func() error{
		"detach":    func() error { return n.Detach(n.ctx, "again") },
		"unprepare": func() error { return n.tryUnprepare(first) },
	} {
		n.mustPrepare(first)
		n.mustAttach(n.newSandbox("first", "again"))
		n.cni.calls = nil
		n.hang("CHECK one")
		checking.Go(func() { n.Check(n.ctx) })
		n.hanging("CHECK again/one")
		if err := run(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		checking.Wait()
		n.expectInterfaces()
	}
}

// TestDelHangs checks that a DEL that does not answer keeps no other pod waiting, that
// the same device is not attached meanwhile, and that whoever waits hears why.
func TestDelHangs(t *testing.T) {
	n, first, second := twoPods(t)
	goOn := n.hang("DEL one")
	// The runtime gets an answer, and asks again.
	for range 3 {
		expectError(t, n.DetachInTime(n.soon(), "first"), "not done within the time that the container runtime waits", "it goes on")
	}
	n.hanging("DEL first/one")
	n.othersGoOn(second)
	for n.event() != "" {
		t.Error("unexpected event")
	}

	err := n.AttachInTime(n.soon(), n.newSandbox("first", "again"))
	expectError(t, err, "not done within the time")
	n.eventually("event", func() bool {
		return strings.Contains(n.event(), "CNI DEL of interface one of pod default/first has not ended, it will be tried again")
	})
	results, err := n.PrepareResourceClaims(n.soon(), []*resourceapi.ResourceClaim{first})
	if err != nil {
		t.Fatal(err)
	}
	expectError(t, results[first.UID].Err, "CNI DEL of interface one of pod default/first has not ended")
	// The status of the claim does not wait either.
	n.status.writes = 0
	n.queue.Add(first.UID)
	n.processNext(n.ctx)
	if n.status.writes != 1 {
		t.Error("the status was not written")
	}

	goOn()
	n.Wait()
	if dels := slices.DeleteFunc(slices.Clone(n.cni.calls), func(call string) bool { return call != "hanging DEL first/one" }); len(dels) != 1 {
		t.Errorf("DEL was run for each request: %q", n.cni.calls)
	}
	n.mustAttach(n.newSandbox("first", "again"))
	n.drain()
	n.expectInterfaces("again/one")
	n.expectReported(first, "net-0 Ready=True Attached one 10.0.0.1/24 02:00:00:00:00:01")
}

// TestAddHangs checks that the runtime hears in time that a pod must not start, and that
// then nothing is left of it.
func TestAddHangs(t *testing.T) {
	n, first, second := twoPods(t)
	if err := n.Detach(n.ctx, "first"); err != nil {
		t.Fatal(err)
	}
	goOn := n.hang("ADD one")
	expectError(t, n.AttachInTime(n.soon(), n.newSandbox("first", "again")), "attaching the network devices of pod default/first", "plugin_request_timeout")
	n.Wait()
	if event := n.event(); !strings.Contains(event, "network device net-0 of claim default/first: interface one: CNI ADD was not done within the time that the container runtime waits") {
		t.Errorf("event %q", event)
	}
	n.othersGoOn(second)
	n.expectInterfaces()
	n.drain()
	n.expectReported(first, "net-0 Ready=False CNIAddFailed")
	goOn()
	n.mustAttach(n.newSandbox("first", "third"))
	n.expectInterfaces("third/one")
}

// TestAddTooLate checks that a pod which the runtime has given up keeps nothing, although
// in the end all of it succeeded.
func TestAddTooLate(t *testing.T) {
	n := newNode(t)
	claim := n.newClaim("claim", "net-0", "net-1")
	n.newPod("pod", "claim")
	n.mustPrepare(claim)
	ctx, cancel := context.WithCancel(n.ctx)
	gaveUp := make(chan error)
	n.cni.duringAdd = func() {
		if len(n.cni.leases) == 2 {
			cancel()
			expectError(t, <-gaveUp, "not done within the time")
		}
	}
	go func() { gaveUp <- n.AttachInTime(ctx, n.newSandbox("pod", "sandbox")) }()
	n.eventually("end", func() bool { return ctx.Err() != nil })
	n.Wait()
	n.expectInterfaces()
	n.drain()
	n.expectReported(claim, "net-0 Ready=False PodIncomplete", "net-1 Ready=False PodIncomplete")
}

// TestNotConnected checks that a claim with interfaces is not prepared while the driver
// does not hear of pods.
func TestNotConnected(t *testing.T) {
	n := newNode(t)
	claim := n.newClaim("claim", "net-0")
	n.SetConnected(false)
	expectError(t, n.tryPrepare(claim), "claim default/claim: the driver does not hear from the container runtime")
	if len(n.claims) > 0 {
		t.Errorf("claims %v", n.claims)
	}
	n.SetConnected(true)
	n.mustPrepare(claim)
	// Also one that was prepared before: the kubelet asks before it starts a pod.
	n.SetConnected(false)
	expectError(t, n.tryPrepare(claim), "needs NRI")
	// What has to go does so, and who only looks needs no connection.
	if err := n.tryUnprepare(claim); err != nil {
		t.Fatal(err)
	}
	admin := n.newClaim("admin", "net-0")
	admin.Status.Allocation.Devices.Results[0].AdminAccess = new(bool)
	*admin.Status.Allocation.Devices.Results[0].AdminAccess = true
	n.mustPrepare(admin)
}

// gate returns what containers could use, by ID.
func (n *node) gate() map[string]cdiMount {
	n.t.Helper()
	mounts := make(map[string]cdiMount)
	files, err := filepath.Glob(filepath.Join(n.cdi, "*.json"))
	if err != nil {
		n.t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			n.t.Fatal(err)
		}
		var spec cdiSpec
		if err := json.Unmarshal(data, &spec); err != nil {
			n.t.Fatal(err)
		}
		for _, device := range spec.Devices {
			mounts[spec.Kind+"="+device.Name] = device.ContainerEdits.Mounts[0]
		}
	}
	return mounts
}

func (n *node) expectGate(claim *resourceapi.ResourceClaim, netNS map[string]string) {
	n.t.Helper()
	got := n.gate()
	if len(got) != len(netNS) {
		n.t.Errorf("containers could use %v, want %v", got, netNS)
	}
	for device, path := range netNS {
		id := fmt.Sprintf("%s/interface=%s_%s", driverName, claim.UID, device)
		if got[id].HostPath != path {
			n.t.Errorf("%s: got %+v, want %s", id, got[id], path)
		}
	}
}

// TestGate checks that containers can be created only while the devices of their claim
// are attached to the sandbox.
func TestGate(t *testing.T) {
	n := newNode(t)
	claim := n.newClaim("claim", "net-0", "net-1")
	n.newPod("pod", "claim")
	results, err := n.PrepareResourceClaims(n.ctx, []*resourceapi.ResourceClaim{claim})
	if err != nil {
		t.Fatal(err)
	}
	for i, device := range results[claim.UID].Devices {
		want := fmt.Sprintf("%s/interface=%s_net-%d", driverName, claim.UID, i)
		if !slices.Equal(device.CDIDeviceIDs, []string{want}) {
			t.Errorf("containers need %q, want %q", device.CDIDeviceIDs, want)
		}
	}
	n.expectGate(claim, nil)

	n.cni.addErr, n.cni.failInterface = errors.New("no such master"), "net2"
	expectError(t, n.Attach(n.ctx, n.newSandbox("pod", "first")), "no such master")
	n.expectGate(claim, nil)
	n.cni.addErr = nil
	second := n.newSandbox("pod", "second")
	n.mustAttach(second)
	both := map[string]string{"net-0": second.NetNS, "net-1": second.NetNS}
	n.expectGate(claim, both)

	// A reboot takes the files with it, and a driver before this one left some.
	foreign := filepath.Join(n.cdi, "other.example.com-claim.json")
	for _, name := range []string{driverName + "-interface-gone.json", driverName + "-interface-uid.new-123"} {
		if err := os.WriteFile(filepath.Join(n.cdi, name), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(foreign, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(CDIGate{Dir: n.cdi, Driver: driverName}.file(claim.UID)); err != nil {
		t.Fatal(err)
	}
	n.start()
	n.expectGate(claim, both)
	if files, err := os.ReadDir(n.cdi); err != nil || len(files) != 2 {
		t.Errorf("files %v, %v", files, err)
	}
	if err := os.Remove(foreign); err != nil {
		t.Fatal(err)
	}

	// The former sandbox is worth nothing, also if its DEL fails.
	n.cni.delErr = errors.New("busy")
	expectError(t, n.Attach(n.ctx, n.newSandbox("pod", "third")), "busy")
	n.expectGate(claim, map[string]string{"net-1": second.NetNS})
	n.cni.delErr = nil
	third := n.newSandbox("pod", "third")
	n.mustAttach(third)
	n.expectGate(claim, map[string]string{"net-0": third.NetNS, "net-1": third.NetNS})
	if err := n.Detach(n.ctx, "third"); err != nil {
		t.Fatal(err)
	}
	n.expectGate(claim, nil)
	if err := n.tryUnprepare(claim); err != nil {
		t.Fatal(err)
	}
	n.drain()
	n.expectNothingLeft()

	// Without the file, the pod does not start.
	n.mustPrepare(claim)
	n.Driver.Gate = CDIGate{Dir: filepath.Join(n.cdi, "missing"), Driver: driverName}
	expectError(t, n.Attach(n.ctx, n.newSandbox("pod", "fourth")), "missing")
	n.expectInterfaces()
}

// TestComplete checks that containers of a pod that has everything do not depend on the
// API server, and that others do not get by.
func TestComplete(t *testing.T) {
	n := newNode(t)
	claim := n.newClaim("claim", "net-0")
	n.newPod("pod", "claim")
	n.mustPrepare(claim)
	sandbox := n.newSandbox("pod", "sandbox")
	n.mustAttach(sandbox)
	n.podsErr = errors.New("connection refused")
	n.mustAttach(sandbox)
	expectError(t, n.Attach(n.ctx, n.newSandbox("pod", "other")), "connection refused")
	n.Synchronize([]Sandbox{sandbox})(n.ctx)
	n.mustAttach(sandbox)
	if err := n.Detach(n.ctx, "sandbox"); err != nil {
		t.Fatal(err)
	}
	expectError(t, n.Attach(n.ctx, sandbox), "connection refused")
	n.podsErr = nil
	n.mustAttach(sandbox)
	n.podsErr = errors.New("connection refused")
	n.Synchronize(nil)(n.ctx)
	expectError(t, n.Attach(n.ctx, sandbox), "connection refused")
}

// TestRunningPodKeeps checks that a pod which runs already does not lose an interface
// because another one cannot be made.
func TestRunningPodKeeps(t *testing.T) {
	n := newNode(t)
	n.newPod("pod", "claim")
	n.mustPrepare(n.newClaim("claim", "net-0"))
	sandbox := n.newSandbox("pod", "sandbox")
	n.mustAttach(sandbox)
	n.newPod("pod", "claim", "more")
	n.mustPrepare(n.newClaim("more", "net-1"))
	n.start()
	n.cni.addErr = errors.New("no such master")
	n.Synchronize([]Sandbox{sandbox})(n.ctx)
	n.expectInterfaces("sandbox/net1")
}

// TestReclaim checks that devices do not stay in use for a claim that the kubelet has
// forgotten.
func TestReclaim(t *testing.T) {
	for name, tc := range map[string]struct {
		change  func(*node, *resourceapi.ResourceClaim)
		expect  bool
		message string
	}{
		"deleted":     {change: func(n *node, _ *resourceapi.ResourceClaim) { delete(n.allocated, "default/claim") }, expect: true},
		"replaced":    {change: func(_ *node, claim *resourceapi.ResourceClaim) { claim.UID = "uid-next" }, expect: true},
		"deallocated": {change: func(_ *node, claim *resourceapi.ResourceClaim) { claim.Status.Allocation = nil }, expect: true},
		"other node": {change: func(_ *node, claim *resourceapi.ResourceClaim) {
			claim.Status.Allocation.Devices.Results[0].Pool = "node-2"
		}, expect: true},
		"allocated": {change: func(*node, *resourceapi.ResourceClaim) {}},
		"nobody knows": {change: func(n *node, _ *resourceapi.ResourceClaim) {
			delete(n.allocated, "default/claim")
			n.claimsErr = errors.New("connection refused")
		}},
		"pod runs": {change: func(n *node, _ *resourceapi.ResourceClaim) {
			delete(n.allocated, "default/claim")
			n.netns["/run/netns/sandbox"] = true
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, how := range []string{"when its device is needed", "periodically"} {
				n := newNode(t)
				claim := n.newClaim("claim", "net-0")
				n.newPod("pod", "claim")
				n.mustPrepare(claim)
				n.mustAttach(n.newSandbox("pod", "sandbox"))
				n.drain()
				delete(n.netns, "/run/netns/sandbox")
				current := claim.DeepCopy()
				n.allocated["default/claim"] = current
				tc.change(n, current)
				if how == "periodically" {
					n.Reclaim(n.ctx)
				}
				if err := n.tryPrepare(n.newClaim("other", "net-0")); (err == nil) != tc.expect {
					t.Errorf("%s: %v", how, err)
				}
				n.drain()
				if released := n.claims[claim.UID] == nil; released != tc.expect {
					t.Errorf("%s: released: %v", how, released)
				}
				if tc.expect {
					n.expectInterfaces()
				} else {
					n.expectInterfaces("sandbox/net1")
				}
			}
		})
	}
}
