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
	"maps"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	cnitypes "github.com/containernetworking/cni/pkg/types"
	cni "github.com/containernetworking/cni/pkg/types/100"
	"github.com/prometheus/client_golang/prometheus"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/record"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2/ktesting"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"kubernetes-dra/cmd/dra-network-driver/pkg/config"
	"kubernetes-dra/cnistatus"
)

const (
	driverName = "network.dra.example.com"
	nodeName   = "node-1"
	namespace  = "default"
)

// node is everything around a driver: it stays when the driver is restarted.
type node struct {
	t      *testing.T
	ctx    context.Context
	dir    string
	cdi    string
	cni    *fakeCNI
	status *fakeStatus
	pods   map[string]*v1.Pod
	events *record.FakeRecorder
	clock  *testingclock.FakeClock
	netns  map[string]bool
	// crashOnSave crashes the driver after the first Save that it is true for.
	crashOnSave func(*Claim) bool
	// failOnSave makes each Save fail that it is true for.
	failOnSave func(*Claim) bool
	// allocated are the claims that the API server has.
	allocated map[string]*resourceapi.ResourceClaim
	claimsErr error
	// podsErr is what asking for any pod returns.
	podsErr error
	// links are those that somebody else made in each pod.
	links    sets.Set[string]
	linksErr error
	// podsDeadline is until when that may take.
	podsDeadline time.Time
	// fatal is what ended the driver.
	fatal    []error
	registry *prometheus.Registry

	*Driver
}

func newNode(t *testing.T) *node {
	_, ctx := ktesting.NewTestContext(t)
	n := &node{
		t:      t,
		ctx:    ctx,
		dir:    t.TempDir(),
		cdi:    t.TempDir(),
		cni:    &fakeCNI{interfaces: make(map[string]string), leases: make(map[string]string)},
		status: &fakeStatus{claims: make(map[types.UID][]resourceapi.AllocatedDeviceStatus)},
		pods:   make(map[string]*v1.Pod),
		events: record.NewFakeRecorder(100),
		clock:  testingclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)),
		netns:  make(map[string]bool),

		allocated: make(map[string]*resourceapi.ResourceClaim),
	}
	n.start()
	return n
}

// start replaces the driver by a new process.
func (n *node) start() {
	n.t.Helper()
	var err error
	n.registry = prometheus.NewRegistry()
	n.Driver, err = New(Options{
		Name:     driverName,
		NodeName: nodeName,
		Source:   config.Source{Driver: driverName, Dir: n.dir},
		CNI:      n.cni,
		Store:    crashingStore{Dir(n.dir), n},
		Gate:     CDIGate{Dir: n.cdi, Driver: driverName},
		Status:   n.status,
		Claims: func(_ context.Context, namespace, name string) (*resourceapi.ResourceClaim, error) {
			if n.claimsErr != nil {
				return nil, n.claimsErr
			}
			if claim := n.allocated[namespace+"/"+name]; claim != nil {
				return claim, nil
			}
			return nil, apierrors.NewNotFound(resourceapi.Resource("resourceclaims"), name)
		},
		Pods: fakePods{n},
		Links: func(path string) (sets.Set[string], error) {
			if n.links == nil {
				return nil, n.linksErr
			}
			return n.links.Clone(), n.linksErr
		},
		Events:      n.events,
		NetNSExists: func(path string) bool { return n.netns[path] },
		Clock:       n.clock,
		Metrics:     NewMetrics(n.registry),
		Fatal:       func(err error) { n.fatal = append(n.fatal, err) },
	})
	if err != nil {
		n.t.Fatal(err)
	}
	n.SetConnected(true)
}

// fakePods are the pods of the node that the driver was told about.
type fakePods struct{ *node }

func (f fakePods) Get(ctx context.Context, namespace, name string, uid types.UID) (*v1.Pod, error) {
	f.podsDeadline, _ = ctx.Deadline()
	if f.podsErr != nil {
		return nil, f.podsErr
	}
	if pod := f.pods[namespace+"/"+name]; pod != nil && pod.UID == uid {
		return pod, nil
	}
	return nil, errUnknownPod
}

func (f fakePods) List() []*v1.Pod { return slices.Collect(maps.Values(f.pods)) }

func (f fakePods) WaitForSync(context.Context) bool { return true }

type crash struct{}

// crashes runs what is expected to kill the driver. What would have been done
// after that is not done.
func (n *node) crashes(run func()) {
	n.t.Helper()
	defer func() {
		if r := recover(); r != (crash{}) {
			n.t.Fatalf("no crash, but %v", r)
		}
	}()
	run()
}

// drain does what Run does until nothing is left but what has to wait.
func (n *node) drain() {
	for n.queue.Len() > 0 {
		n.processNext(n.ctx)
	}
}

// retry does what waits for a second attempt.
func (n *node) retry(uid types.UID) {
	n.queue.Add(uid)
	n.drain()
}

// expectRetry checks whether the claim waits for another attempt.
func (n *node) expectRetry(claim *resourceapi.ResourceClaim, expected bool) {
	n.t.Helper()
	if retried := n.queue.NumRequeues(claim.UID) > 0; retried != expected {
		n.t.Errorf("retried: %v, want %v", retried, expected)
	}
}

// expectMetric checks the value of a counter or gauge; label is that of its only
// label, if it has one.
func (n *node) expectMetric(name, label string, expected float64) {
	n.t.Helper()
	families, err := n.registry.Gather()
	if err != nil {
		n.t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == name && (label == "" || metric.GetLabel()[0].GetValue() == label) {
				if got := metric.GetGauge().GetValue() + metric.GetCounter().GetValue(); got != expected {
					n.t.Errorf("%s %s: got %v, want %v", name, label, got, expected)
				}
				return
			}
		}
	}
	n.t.Errorf("no metric %s %s", name, label)
}

// crashingStore stores for real, and can crash after that, or fail.
type crashingStore struct {
	Dir
	node *node
}

func (s crashingStore) Save(claim *Claim) error {
	if s.node.failOnSave != nil && s.node.failOnSave(claim) {
		return errors.New("no space left on device")
	}
	err := s.Dir.Save(claim)
	if s.node.crashOnSave != nil && s.node.crashOnSave(claim) {
		s.node.crashOnSave = nil
		panic(crash{})
	}
	return err
}

// fakeCNI is a network with addresses that are leased. It panics if an interface
// is added twice.
type fakeCNI struct {
	mutex sync.Mutex
	// hangs makes a command wait for the channel, or until its context is done.
	hangs          map[string]chan struct{}
	interfaces     map[string]string // by sandbox and name: address
	leases         map[string]string // by address: sandbox and name
	calls          []string
	addErr, delErr error
	checkErr       error
	validateErr    error
	failInterface  string // addErr is for this one only
	crashAfterAdd  bool
	crashBeforeDel bool
	duringAdd      func()
	addresses      int      // of each interface, 1 if 0
	former         []Former // what was asked for
}

func (f *fakeCNI) Validate(context.Context, []byte) error { return f.validateErr }

// hang is called without the mutex.
func (f *fakeCNI) hang(ctx context.Context, command string, a *Attachment) error {
	f.mutex.Lock()
	until := f.hangs[command+" "+a.InterfaceName]
	if until != nil {
		f.calls = append(f.calls, "hanging "+command+" "+a.SandboxID+"/"+a.InterfaceName)
	}
	f.mutex.Unlock()
	if until == nil {
		return nil
	}
	select {
	case <-until:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *fakeCNI) Add(ctx context.Context, _ []byte, a *Attachment) (cnitypes.Result, error) {
	if err := f.hang(ctx, "ADD", a); err != nil {
		return nil, err
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	key := a.SandboxID + "/" + a.InterfaceName
	f.calls = append(f.calls, "ADD "+key)
	if f.interfaces[key] != "" {
		panic("a second interface " + key)
	}
	address := ""
	if a.Former != nil {
		f.former = append(f.former, *a.Former)
		address, _, _ = strings.Cut(a.Former.IPs[0], "/")
		if f.leases[address] != "" {
			return nil, fmt.Errorf("address %s is taken", address)
		}
	}
	for i := 1; address == "" || f.leases[address] != ""; i++ {
		address = fmt.Sprintf("10.0.0.%d", i)
	}
	// Like plugins do it: the lease is there, whatever fails after that.
	f.leases[address] = key
	if f.duringAdd != nil {
		f.duringAdd()
	}
	if f.addErr != nil && (f.failInterface == "" || f.failInterface == a.InterfaceName) {
		return nil, f.addErr
	}
	f.interfaces[key] = address
	if f.crashAfterAdd {
		f.crashAfterAdd = false
		panic(crash{})
	}
	result := &cni.Result{
		CNIVersion: "1.0.0",
		Interfaces: []*cni.Interface{{Name: "veth0"}, {Name: a.InterfaceName, Mac: "02:00:00:00:00:01", Sandbox: a.NetNS}},
	}
	for i := range max(1, f.addresses) {
		ip := net.ParseIP(address).To4()
		ip[1] += byte(i)
		result.IPs = append(result.IPs, &cni.IPConfig{Interface: cni.Int(1), Address: net.IPNet{IP: ip, Mask: net.CIDRMask(24, 32)}})
	}
	return result, nil
}

func (f *fakeCNI) Check(ctx context.Context, _ []byte, a *Attachment) error {
	if err := f.hang(ctx, "CHECK", a); err != nil {
		return err
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.checkErr
}

func (f *fakeCNI) Del(ctx context.Context, network []byte, a *Attachment) error {
	if err := f.hang(ctx, "DEL", a); err != nil {
		return err
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if f.crashBeforeDel {
		f.crashBeforeDel = false
		panic(crash{})
	}
	key := a.SandboxID + "/" + a.InterfaceName
	call := "DEL " + key
	if a.NetNS == "" {
		call += " without namespace"
	}
	f.calls = append(f.calls, call)
	if len(network) == 0 {
		panic("DEL without the configuration of ADD")
	}
	if err := errors.Join(ctx.Err(), f.delErr); err != nil {
		return err
	}
	delete(f.interfaces, key)
	maps.DeleteFunc(f.leases, func(_, owner string) bool { return owner == key })
	return nil
}

// fakeStatus is what the API server has.
type fakeStatus struct {
	claims map[types.UID][]resourceapi.AllocatedDeviceStatus
	err    error
	writes int
	// during is called while the first write goes on.
	during func()
}

func (f *fakeStatus) Apply(_ context.Context, _, _ string, uid types.UID, devices []resourceapi.AllocatedDeviceStatus) error {
	if during := f.during; during != nil {
		f.during = nil
		during()
	}
	if f.err != nil {
		return f.err
	}
	f.writes++
	f.claims[uid] = devices
	return nil
}

const inline = `{"apiVersion": "network.dra.example.com/v1alpha1", "kind": "NetworkConfig", "config": {"cniVersion": "1.0.0", "name": "test", "plugins": [{"type": "fake"}]}}`

// newClaim returns a claim with devices, and a pod that uses it.
func (n *node) newClaim(name string, devices ...string) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name)},
		Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{
			Devices: resourceapi.DeviceAllocationResult{
				Config: []resourceapi.DeviceAllocationConfiguration{{
					Source: resourceapi.AllocationConfigSourceClass,
					DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
						Driver:     driverName,
						Parameters: runtime.RawExtension{Raw: []byte(inline)},
					}},
				}},
			},
		}},
	}
	for _, device := range devices {
		claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results,
			resourceapi.DeviceRequestAllocationResult{Request: "network", Driver: driverName, Pool: nodeName, Device: device})
	}
	n.allocated[namespace+"/"+name] = claim
	return claim
}

func (n *node) newPod(name string, claims ...string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name)}}
	for i, claim := range claims {
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, v1.PodResourceClaim{Name: fmt.Sprint(i), ResourceClaimName: ptr.To(claim)})
	}
	n.pods[namespace+"/"+name] = pod
	return pod
}

// newSandbox returns a sandbox with a network namespace.
func (n *node) newSandbox(pod, id string) Sandbox {
	path := "/run/netns/" + id
	n.netns[path] = true
	return Sandbox{ID: id, PodNamespace: namespace, PodName: pod, PodUID: types.UID("uid-" + pod), NetNS: path, Running: true}
}

func (n *node) mustPrepare(claim *resourceapi.ResourceClaim) {
	n.t.Helper()
	if err := n.tryPrepare(claim); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) tryPrepare(claim *resourceapi.ResourceClaim) error {
	n.t.Helper()
	results, err := n.PrepareResourceClaims(n.ctx, []*resourceapi.ResourceClaim{claim})
	if err != nil {
		n.t.Fatal(err)
	}
	result := results[claim.UID]
	if result.Err == nil && len(result.Devices) != len(claim.Status.Allocation.Devices.Results) {
		n.t.Fatalf("prepared devices: %+v", result.Devices)
	}
	return result.Err
}

func (n *node) tryUnprepare(claim *resourceapi.ResourceClaim) error {
	n.t.Helper()
	results, err := n.UnprepareResourceClaims(n.ctx, []kubeletplugin.NamespacedObject{{UID: claim.UID, NamespacedName: types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}}})
	if err != nil {
		n.t.Fatal(err)
	}
	err, answered := results[claim.UID]
	if !answered {
		n.t.Fatal("no result for the claim")
	}
	return err
}

func (n *node) mustAttach(sandbox Sandbox) {
	n.t.Helper()
	if err := n.Attach(n.ctx, sandbox); err != nil {
		n.t.Fatal(err)
	}
}

// reported is what the API server says about a claim, in short.
func (n *node) reported(claim *resourceapi.ResourceClaim) []string {
	reported := []string{}
	for _, device := range n.status.claims[claim.UID] {
		line := device.Device
		for _, c := range device.Conditions {
			line += fmt.Sprintf(" %s=%s %s", c.Type, c.Status, c.Reason)
		}
		if data := device.NetworkData; data != nil {
			line += fmt.Sprintf(" %s %s %s", data.InterfaceName, strings.Join(data.IPs, ","), data.HardwareAddress)
		}
		if (device.NetworkData == nil) != (device.Data == nil) {
			line += " data and networkData do not go together"
		}
		reported = append(reported, line)
	}
	return reported
}

func (n *node) expectReported(claim *resourceapi.ResourceClaim, expected ...string) {
	n.t.Helper()
	if got := n.reported(claim); !slices.Equal(got, expected) {
		n.t.Errorf("status of claim %s:\n got %q\nwant %q", claim.Name, got, expected)
	}
}

// expectInterfaces checks what exists, and that exactly that much is leased.
func (n *node) expectInterfaces(expected ...string) {
	n.t.Helper()
	got := slices.Sorted(maps.Keys(n.cni.interfaces))
	if !slices.Equal(got, expected) {
		n.t.Errorf("interfaces:\n got %q\nwant %q", got, expected)
	}
	if len(n.cni.leases) != len(expected) {
		n.t.Errorf("%d interfaces, but leases %v", len(expected), n.cni.leases)
	}
}

func (n *node) expectNothingLeft() {
	n.t.Helper()
	n.expectInterfaces()
	for _, dir := range []string{n.dir, n.cdi} {
		files, err := os.ReadDir(dir)
		if err != nil || len(files) != 0 {
			n.t.Errorf("files %v, error %v", files, err)
		}
	}
	if len(n.claims) != 0 {
		n.t.Errorf("claims: %v", n.claims)
	}
}

func (n *node) event() string {
	select {
	case event := <-n.events.Events:
		return event
	default:
		return ""
	}
}

func expectError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error:\n got %v\nwant %s", err, part)
		}
	}
}

func TestLifecycle(t *testing.T) {
	n := newNode(t)
	claim := n.newClaim("claim", "net-0", "net-1")
	n.newPod("pod", "claim")
	n.mustPrepare(claim)
	n.drain()
	if n.status.writes != 0 {
		t.Error("there is nothing to report before the pod starts")
	}

	sandbox := n.newSandbox("pod", "sandbox")
	n.mustAttach(sandbox)
	n.drain()
	n.expectInterfaces("sandbox/net1", "sandbox/net2")
	both := []string{
		"net-0 Ready=True Attached net1 10.0.0.1/24 02:00:00:00:00:01",
		"net-1 Ready=True Attached net2 10.0.0.2/24 02:00:00:00:00:01",
	}
	n.expectReported(claim, both...)
	if n.status.writes != 1 {
		t.Errorf("%d writes for two devices of one claim", n.status.writes)
	}
	n.expectMetric("dra_network_status_writes_total", "success", 1)
	n.expectMetric("dra_network_attachments", "", 2)

	// Everybody repeats everything.
	n.mustPrepare(claim)
	n.mustAttach(sandbox)
	n.start()
	n.expectMetric("dra_network_attachments", "", 2)
	n.mustPrepare(claim)
	n.mustAttach(sandbox)
	n.Synchronize([]Sandbox{sandbox})(n.ctx)
	n.drain()
	n.expectReported(claim, both...)
	if expected := []string{"ADD sandbox/net1", "ADD sandbox/net2"}; !slices.Equal(n.cni.calls, expected) {
		t.Errorf("calls: %q", n.cni.calls)
	}

	if err := n.Detach(n.ctx, "other"); err != nil {
		t.Fatal(err)
	}
	n.expectInterfaces("sandbox/net1", "sandbox/net2")
	for range 2 { // stopped and removed
		if err := n.Detach(n.ctx, "sandbox"); err != nil {
			t.Fatal(err)
		}
	}
	n.drain()
	n.expectInterfaces()
	n.expectMetric("dra_network_attachments", "", 0)
	n.expectReported(claim)
	for range 2 {
		if err := n.tryUnprepare(claim); err != nil {
			t.Fatal(err)
		}
		n.drain()
		n.expectNothingLeft()
	}
	if event := n.event(); event != "" {
		t.Errorf("event %s", event)
	}
}

// TestCrash kills the driver wherever it matters. The next one must bring the
// node and the status into the state which they would have had.
func TestCrash(t *testing.T) {
	saves := func(phase Phase) func(*Claim) bool {
		return func(claim *Claim) bool {
			a := claim.Devices[0].Attachment
			return a != nil && a.Phase == phase
		}
	}
	t.Run("attach", func(t *testing.T) {
		for name, arm := range map[string]func(*node){
			"before ADD":                         func(n *node) { n.crashOnSave = saves(Adding) },
			"between ADD and storing its result": func(n *node) { n.cni.crashAfterAdd = true },
			"before the status is written":       func(n *node) { n.crashOnSave = saves(Added) },
		} {
			t.Run(name, func(t *testing.T) {
				n := newNode(t)
				claim := n.newClaim("claim", "net-0")
				n.newPod("pod", "claim")
				n.mustPrepare(claim)
				sandbox := n.newSandbox("pod", "sandbox")
				arm(n)
				n.crashes(func() { _ = n.Attach(n.ctx, sandbox) })

				// The runtime has started the pod nevertheless.
				n.start()
				// DEL comes first. If it fails, that is seen, even if nothing
				// was reported before.
				n.cni.delErr = errors.New("busy")
				n.drain()
				if n.claims[claim.UID].Devices[0].Attachment.Phase == Adding {
					expectError(t, n.Attach(n.ctx, sandbox), "busy")
					n.drain()
					n.expectReported(claim, "net-0 Ready=False CNIDelFailed")
				}
				n.cni.delErr = nil
				n.Synchronize([]Sandbox{sandbox})(n.ctx)
				n.drain()
				n.expectInterfaces("sandbox/net1")
				n.expectReported(claim, "net-0 Ready=True Attached net1 10.0.0.1/24 02:00:00:00:00:01")
			})
			t.Run(name+", and the pod is gone", func(t *testing.T) {
				n := newNode(t)
				claim := n.newClaim("claim", "net-0")
				n.newPod("pod", "claim")
				n.mustPrepare(claim)
				sandbox := n.newSandbox("pod", "sandbox")
				arm(n)
				n.crashes(func() { _ = n.Attach(n.ctx, sandbox) })

				delete(n.netns, sandbox.NetNS)
				n.start()
				n.Synchronize(nil)(n.ctx)
				n.drain()
				n.expectInterfaces()
				n.expectReported(claim)
				if err := n.tryUnprepare(claim); err != nil {
					t.Fatal(err)
				}
				n.drain()
				n.expectNothingLeft()
			})
		}
	})
	t.Run("failed attach", func(t *testing.T) {
		for name, tc := range map[string]struct {
			arm      func(*node)
			expected []string
		}{
			"before DEL of the failed device": {
				func(n *node) { n.cni.crashBeforeDel = true },
				[]string{"net-1 Ready=False CNIAddFailed"},
			},
			"before DEL of the other device": {
				func(n *node) { n.crashOnSave = saves(Deleting) },
				[]string{"net-0 Ready=False PodIncomplete", "net-1 Ready=False CNIAddFailed"},
			},
		} {
			t.Run(name, func(t *testing.T) {
				n := newNode(t)
				claim := n.newClaim("claim", "net-0", "net-1")
				n.newPod("pod", "claim")
				n.mustPrepare(claim)
				sandbox := n.newSandbox("pod", "sandbox")
				n.cni.addErr, n.cni.failInterface = errors.New("no such master"), "net2"
				tc.arm(n)
				n.crashes(func() { _ = n.Attach(n.ctx, sandbox) })

				delete(n.netns, sandbox.NetNS)
				n.start()
				n.Synchronize(nil)(n.ctx)
				n.drain()
				n.expectInterfaces()
				n.expectReported(claim, tc.expected...)
			})
		}
	})
	t.Run("detach", func(t *testing.T) {
		for name, arm := range map[string]func(*node){
			"before DEL": func(n *node) { n.cni.crashBeforeDel = true },
			"after DEL": func(n *node) {
				n.crashOnSave = func(claim *Claim) bool { return claim.Devices[0].Attachment == nil }
			},
		} {
			t.Run(name, func(t *testing.T) {
				n := newNode(t)
				claim := n.newClaim("claim", "net-0")
				n.newPod("pod", "claim")
				n.mustPrepare(claim)
				n.mustAttach(n.newSandbox("pod", "sandbox"))
				n.drain()
				arm(n)
				n.crashes(func() { _ = n.Detach(n.ctx, "sandbox") })

				n.start()
				n.drain()
				n.expectInterfaces()
				n.expectReported(claim)
			})
		}
	})
}

func TestAddFails(t *testing.T) {
	n := newNode(t)
	claim := n.newClaim("claim", "net-0", "net-1")
	n.newPod("pod", "claim")
	n.mustPrepare(claim)
	n.cni.addErr, n.cni.failInterface = errors.New(`plugin type="fake" failed (add): no such master`), "net2"
	err := n.Attach(n.ctx, n.newSandbox("pod", "first"))
	expectError(t, err, "network device net-1 of claim default/claim", `plugin type="fake" failed (add): no such master`)
	if event := n.event(); !strings.Contains(event, "Warning FailedAttachNetworkDevice network device net-1 of claim default/claim: interface net2: "+`plugin type="fake" failed (add): no such master`) {
		t.Errorf("event %q", event)
	}
	n.drain()
	n.expectInterfaces()
	n.expectReported(claim, "net-0 Ready=False PodIncomplete", "net-1 Ready=False CNIAddFailed")
	if message := n.status.claims[claim.UID][1].Conditions[0].Message; !strings.Contains(message, "no such master") {
		t.Errorf("message %q", message)
	}

	// The kubelet tries again with another sandbox. The runtime did not say
	// what became of the first one.
	n.cni.addErr = nil
	n.clock.Step(time.Minute)
	n.mustAttach(n.newSandbox("pod", "second"))
	n.drain()
	n.expectInterfaces("second/net1", "second/net2")
	n.expectReported(claim,
		"net-0 Ready=True Attached net1 10.0.0.1/24 02:00:00:00:00:01",
		"net-1 Ready=True Attached net2 10.0.0.2/24 02:00:00:00:00:01",
	)
	if since := n.status.claims[claim.UID][0].Conditions[0].LastTransitionTime; !since.Time.Equal(n.clock.Now()) {
		t.Errorf("last transition %s, now %s", since, n.clock.Now())
	}
}

// TestUnreportable checks that a pod does not start with what the API cannot
// describe.
func TestUnreportable(t *testing.T) {
	n := newNode(t)
	n.cni.addresses = 17
	claim := n.newClaim("claim", "net-0")
	n.newPod("pod", "claim")
	n.mustPrepare(claim)
	expectError(t, n.Attach(n.ctx, n.newSandbox("pod", "sandbox")), "networkData.ips: Too many: 17: must have at most 16 items")
	n.drain()
	n.expectInterfaces()
	n.expectReported(claim, "net-0 Ready=False CNIAddFailed")

	// That stays so when the kubelet repeats itself, and ends with the claim.
	n.mustPrepare(claim)
	n.drain()
	n.expectReported(claim, "net-0 Ready=False CNIAddFailed")
	n.status.err = errors.New("connection refused")
	if err := n.tryUnprepare(claim); err != nil {
		t.Fatal(err)
	}
	n.drain()
	n.mustPrepare(claim)
	n.status.err = nil
	n.drain()
	n.expectReported(claim)
	if err := n.tryUnprepare(claim); err != nil {
		t.Fatal(err)
	}
	n.drain()
	n.expectNothingLeft()
}

// TestAddTakesTooLong checks that DEL is run although the runtime does not wait any
// longer.
func TestAddTakesTooLong(t *testing.T) {
	n := newNode(t)
	claim := n.newClaim("claim", "net-0")
	n.newPod("pod", "claim")
	n.mustPrepare(claim)
	ctx, cancel := context.WithCancel(n.ctx)
	n.cni.duringAdd, n.cni.addErr = cancel, context.Canceled
	expectError(t, n.Attach(ctx, n.newSandbox("pod", "sandbox")), "context canceled")
	n.expectInterfaces()
	n.drain()
	n.expectReported(claim, "net-0 Ready=False CNIAddFailed")
	if err := n.tryUnprepare(claim); err != nil {
		t.Fatal(err)
	}
	n.drain()
	n.expectReported(claim)
	n.expectNothingLeft()
}

// TestLongMessage checks that the API takes whatever a plugin says.
func TestLongMessage(t *testing.T) {
	for _, message := range []string{strings.Repeat("x", 40*1024), "x" + strings.Repeat("ä", 40*1024), strings.Repeat("\xffx", 20*1024)} {
		n := newNode(t)
		n.cni.addErr = errors.New(message)
		claim := n.newClaim("claim", "net-0")
		n.newPod("pod", "claim")
		n.mustPrepare(claim)
		expectError(t, n.Attach(n.ctx, n.newSandbox("pod", "sandbox")), "interface net1")
		n.drain()
		// What the API server gets is JSON.
		encoded, err := json.Marshal(n.status.claims[claim.UID][0])
		if err != nil {
			t.Fatal(err)
		}
		var status resourceapi.AllocatedDeviceStatus
		if err := json.Unmarshal(encoded, &status); err != nil {
			t.Fatal(err)
		}
		if errs := cnistatus.Validate(&status, nil); len(errs) > 0 {
			t.Errorf("%d bytes: %v", len(status.Conditions[0].Message), errs[0].Detail)
		}
		if length := len(status.Conditions[0].Message); length < 32*1024-2 {
			t.Errorf("only %d bytes are left", length)
		}
	}
}

// TestReportedAlone checks that a device which cannot be reported does not keep
// others from being so.
func TestReportedAlone(t *testing.T) {
	n := newNode(t)
	claim := n.newClaim("claim", "net-0", "net-1")
	n.newPod("pod", "claim")
	n.mustPrepare(claim)
	n.mustAttach(n.newSandbox("pod", "sandbox"))
	n.claims[claim.UID].Devices[0].Attachment.Result = []byte(`{"cniVersion": "9.0.0"}`)
	n.drain()
	n.expectReported(claim, "net-0 Ready=True Attached", "net-1 Ready=True Attached net2 10.0.0.2/24 02:00:00:00:00:01")
	n.expectRetry(claim, true)
}

// TestStoreFails checks that nothing is done which the driver would not know of
// after a restart.
func TestStoreFails(t *testing.T) {
	attachment := func(phase Phase) func(*Claim) bool {
		return func(claim *Claim) bool {
			a := claim.Devices[0].Attachment
			return phase == "" && a == nil || a != nil && a.Phase == phase
		}
	}
	n := newNode(t)
	claim := n.newClaim("claim", "net-0")
	n.newPod("pod", "claim")
	n.failOnSave = attachment("")
	expectError(t, n.tryPrepare(claim), "claim default/claim: storing claim default/claim: no space left on device")
	n.failOnSave = nil
	n.mustPrepare(claim)
	sandbox := n.newSandbox("pod", "sandbox")
	n.failOnSave = attachment(Adding)
	expectError(t, n.Attach(n.ctx, sandbox), "no space left on device")
	if len(n.cni.calls) > 0 {
		t.Errorf("calls %q", n.cni.calls)
	}
	n.failOnSave = attachment(Added)
	expectError(t, n.Attach(n.ctx, sandbox), "no space left on device")
	n.expectInterfaces()
	if expected := []string{"ADD sandbox/net1", "DEL sandbox/net1"}; !slices.Equal(n.cni.calls, expected) {
		t.Errorf("calls %q", n.cni.calls)
	}
	n.failOnSave = nil
	n.mustAttach(sandbox)
	n.failOnSave = attachment(Deleting)
	expectError(t, n.Detach(n.ctx, "sandbox"), "no space left on device")
	n.expectInterfaces("sandbox/net1")
	n.failOnSave = nil
	n.drain()
	n.expectInterfaces()
	n.failOnSave = func(claim *Claim) bool { return claim.Released }
	expectError(t, n.tryUnprepare(claim), "no space left on device")
}

func TestDelFails(t *testing.T) {
	n := newNode(t)
	claim := n.newClaim("claim", "net-0")
	n.newPod("pod", "claim")
	n.mustPrepare(claim)
	n.mustAttach(n.newSandbox("pod", "sandbox"))
	n.drain()
	n.cni.delErr = errors.New("busy")
	expectError(t, n.Detach(n.ctx, "sandbox"), "interface net1: busy")
	n.drain()
	n.expectReported(claim, "net-0 Ready=False CNIDelFailed")
	if calls := len(n.cni.calls); calls != 3 {
		t.Errorf("not one attempt right away and then a pause: %q", n.cni.calls)
	}
	n.expectRetry(claim, true)
	since := n.status.claims[claim.UID][0].Conditions[0].LastTransitionTime
	n.clock.Step(time.Minute)
	n.start()
	n.drain()
	if again := n.status.claims[claim.UID][0].Conditions[0].LastTransitionTime; !again.Equal(&since) {
		t.Errorf("it failed first at %s, not at %s", since, again)
	}
	expectError(t, n.tryUnprepare(claim), "default/claim", "busy")

	// The namespace goes, and the next attempt succeeds, after a restart.
	delete(n.netns, "/run/netns/sandbox")
	n.cni.delErr = nil
	n.start()
	n.drain()
	if last := n.cni.calls[len(n.cni.calls)-1]; last != "DEL sandbox/net1 without namespace" {
		t.Errorf("last call %s", last)
	}
	n.expectInterfaces()
	n.expectReported(claim)
	if err := n.tryUnprepare(claim); err != nil {
		t.Fatal(err)
	}
	n.drain()
	n.expectNothingLeft()
}

// TestSynchronize is about pods that came and went without the driver.
func TestSynchronize(t *testing.T) {
	n := newNode(t)
	var claims []*resourceapi.ResourceClaim
	for i, name := range []string{"new", "stopped", "vanished", "gone", "rebooted", "ended"} {
		claims = append(claims, n.newClaim(name, fmt.Sprintf("net-%d", i)))
		n.newPod(name, name)
		n.mustPrepare(claims[i])
		if i > 2 {
			n.mustAttach(n.newSandbox(name, name))
		}
	}
	n.start()
	rebooted := n.newSandbox("rebooted", "rebooted")
	delete(n.netns, rebooted.NetNS)
	delete(n.netns, "/run/netns/gone")
	ended := n.newSandbox("ended", "ended")
	ended.Running = false // but not yet removed
	stopped := n.newSandbox("stopped", "stopped")
	stopped.Running = false
	vanished := n.newSandbox("vanished", "vanished")
	finish := n.Synchronize([]Sandbox{n.newSandbox("new", "new"), stopped, vanished, rebooted, ended})
	delete(n.netns, vanished.NetNS)

	// This one starts before the work is done. It is not one of those that
	// are gone.
	late := n.newClaim("late", "net-9")
	n.newPod("late", "late")
	n.mustPrepare(late)
	n.mustAttach(n.newSandbox("late", "late"))
	finish(n.ctx)
	n.drain()
	n.expectInterfaces("ended/net1", "late/net1", "new/net1")
	for _, claim := range claims[1:5] {
		n.expectReported(claim)
	}
}

// TestAttachRunningAgain checks that a pod which runs already, and could not be attached when the runtime
// connected, is attached later, unless it has ended.
func TestAttachRunningAgain(t *testing.T) {
	n := newNode(t)
	var sandboxes []Sandbox
	for i, name := range []string{"fails", "ends", "vanishes"} {
		claim := n.newClaim(name, fmt.Sprintf("net-%d", i))
		n.newPod(name, name)
		n.mustPrepare(claim)
		sandboxes = append(sandboxes, n.newSandbox(name, name))
	}
	n.start()
	n.cni.addErr = errors.New("no such master")
	n.Synchronize(sandboxes)(n.ctx)
	n.Check(n.ctx)
	n.expectInterfaces()
	if len(n.missing) != 3 {
		t.Errorf("%d pods are to be attached, want 3", len(n.missing))
	}
	if err := n.Detach(n.ctx, "ends"); err != nil {
		t.Fatal(err)
	}
	delete(n.netns, sandboxes[2].NetNS)
	n.cni.addErr = nil
	n.Check(n.ctx)
	n.drain()
	n.expectInterfaces("fails/net1")
	if len(n.missing) != 0 {
		t.Errorf("still to be attached: %v", n.missing)
	}
}

// TestOtherSandbox checks that a pod whose sandbox is replaced keeps nothing of
// the former one.
func TestOtherSandbox(t *testing.T) {
	n := newNode(t)
	claim := n.newClaim("claim", "net-0")
	n.newPod("pod", "claim")
	n.mustPrepare(claim)
	n.mustAttach(n.newSandbox("pod", "first"))
	n.cni.delErr = errors.New("busy")
	expectError(t, n.Attach(n.ctx, n.newSandbox("pod", "second")), "busy")
	n.expectInterfaces("first/net1")
	n.cni.delErr = nil
	n.mustAttach(n.newSandbox("pod", "second"))
	n.drain()
	n.expectInterfaces("second/net1")
	n.expectReported(claim, "net-0 Ready=True Attached net1 10.0.0.1/24 02:00:00:00:00:01")
}

// TestSameAddressAgain reboots the node: its pods come back in another order, and each asks for the address
// that it had.
func TestSameAddressAgain(t *testing.T) {
	n := newNode(t)
	claims := map[string]*resourceapi.ResourceClaim{}
	for i, name := range []string{"first", "second", "third"} {
		claims[name] = n.newClaim(name, fmt.Sprintf("net-%d", i))
		n.newPod(name, name)
		n.mustPrepare(claims[name])
		n.mustAttach(n.newSandbox(name, name))
	}
	clear(n.netns)
	n.start()
	n.Synchronize(nil)(n.ctx)
	n.drain()
	n.expectInterfaces()
	// The kubelet does not know anymore that it had done this.
	for _, claim := range claims {
		n.mustPrepare(claim)
	}

	// Somebody whom nobody knew is faster than the third.
	taken := n.newClaim("taken", "net-9")
	n.newPod("taken", "taken")
	n.mustPrepare(taken)
	n.mustAttach(n.newSandbox("second", "second-2"))
	n.mustAttach(n.newSandbox("first", "first-2"))
	n.mustAttach(n.newSandbox("taken", "taken"))
	expectError(t, n.Attach(n.ctx, n.newSandbox("third", "third-2")), "address 10.0.0.3 is taken")
	n.mustAttach(n.newSandbox("third", "third-3"))
	n.drain()
	for name, address := range map[string]string{"first": "10.0.0.1", "second": "10.0.0.2", "taken": "10.0.0.3", "third": "10.0.0.4"} {
		if n.cni.leases[address] == "" || !strings.HasPrefix(n.cni.leases[address], name) {
			t.Errorf("%s is that of %q, want %s", address, n.cni.leases[address], name)
		}
	}
	want := []Former{}
	for i, name := range []string{"second", "first", "third"} {
		want = append(want, Former{PodUID: types.UID("uid-" + name), IPs: []string{fmt.Sprintf("10.0.0.%d/24", []int{2, 1, 3}[i])}, MAC: "02:00:00:00:00:01"})
	}
	if !reflect.DeepEqual(n.cni.former, want) {
		t.Errorf("asked for %+v, want %+v", n.cni.former, want)
	}

	// Another pod of the same claim does not inherit it.
	if err := n.Detach(n.ctx, "first-2"); err != nil {
		t.Fatal(err)
	}
	n.newPod("heir", "first")
	n.mustAttach(n.newSandbox("heir", "heir"))
	if len(n.cni.former) != len(want) {
		t.Errorf("the heir asked for %+v", n.cni.former[len(want):])
	}
}

func TestOnePodAtATime(t *testing.T) {
	n := newNode(t)
	claim := n.newClaim("claim", "net-0")
	n.newPod("first", "claim")
	n.newPod("second", "claim")
	n.mustPrepare(claim)
	n.mustAttach(n.newSandbox("first", "first"))
	expectError(t, n.Attach(n.ctx, n.newSandbox("second", "second")), "it is in use by pod default/first")
	if event := n.event(); !strings.Contains(event, "it is in use by pod default/first, and can be in one pod at a time") {
		t.Errorf("event %q", event)
	}
	n.drain()
	n.expectInterfaces("first/net1")
	n.expectReported(claim, "net-0 Ready=True Attached net1 10.0.0.1/24 02:00:00:00:00:01")
}

func TestOtherPods(t *testing.T) {
	n := newNode(t)
	claim := n.newClaim("claim", "net-0")
	n.mustPrepare(claim)
	n.newPod("none")
	n.newPod("replaced", "claim").UID = "other"
	n.newPod("host", "claim")
	n.mustAttach(n.newSandbox("none", "none"))
	for _, pod := range []string{"replaced", "unknown"} {
		sandbox := n.newSandbox(pod, pod)
		expectError(t, n.Attach(n.ctx, sandbox), "cannot find out which network devices pod default/"+pod+" has: the API server has not told the driver about the pod")
		// Those of the kubelet have another UID in the API.
		sandbox.Static = true
		n.mustAttach(sandbox)
	}
	host := n.newSandbox("host", "host")
	host.NetNS = ""
	expectError(t, n.Attach(n.ctx, host), "the pod uses the host's network")
	n.expectInterfaces()

	// Two claims of one pod that want the same name.
	named := strings.Replace(inline, `"config"`, `"interfaceName": "data", "config"`, 1)
	for i, name := range []string{"a", "b"} {
		claim := n.newClaim(name, fmt.Sprintf("net-%d", i+1))
		claim.Status.Allocation.Devices.Config[0].Opaque.Parameters.Raw = []byte(named)
		n.mustPrepare(claim)
	}
	n.newPod("named", "a", "b")
	expectError(t, n.Attach(n.ctx, n.newSandbox("named", "named")), "network device net-2 of claim default/b: the interface name data is taken by network device net-1")
	n.expectInterfaces()
	// One is enough, in the order of the pod.
	n.newPod("ordered", "b", "claim")
	n.start()
	n.mustAttach(n.newSandbox("ordered", "ordered"))
	n.expectInterfaces("ordered/data", "ordered/net1")
}

func TestCheck(t *testing.T) {
	n := newNode(t)
	claim := n.newClaim("claim", "net-0")
	n.newPod("pod", "claim")
	n.mustPrepare(claim)
	n.mustAttach(n.newSandbox("pod", "sandbox"))
	n.drain()
	start := n.clock.Now()
	for _, tc := range []struct {
		err      error
		expected string
		writes   int
		since    time.Duration
	}{
		{nil, "net-0 Ready=True Attached", 0, 0},
		{errors.New("link is gone"), "net-0 Ready=False CNICheckFailed", 1, 2 * time.Minute},
		{errors.New("link is gone"), "net-0 Ready=False CNICheckFailed", 0, 2 * time.Minute},
		{errors.New("another address"), "net-0 Ready=False CNICheckFailed", 1, 2 * time.Minute},
		{nil, "net-0 Ready=True Attached", 1, 5 * time.Minute},
	} {
		before := n.status.writes
		n.cni.checkErr = tc.err
		n.clock.Step(time.Minute)
		n.Check(n.ctx)
		n.drain()
		// It stays visible what the interface should be.
		n.expectReported(claim, tc.expected+" net1 10.0.0.1/24 02:00:00:00:00:01")
		if writes := n.status.writes - before; writes != tc.writes {
			t.Errorf("%v: %d writes, want %d", tc.err, writes, tc.writes)
		}
		// It is the time of the change, and not that of the write.
		n.retry(claim.UID)
		if since := n.status.claims[claim.UID][0].Conditions[0].LastTransitionTime; !since.Time.Equal(start.Add(tc.since)) {
			t.Errorf("%v: last transition %s, want %s after the start", tc.err, since.Time.Sub(start), tc.since)
		}
	}
	n.expectInterfaces("sandbox/net1")

	// What it found is not forgotten over a restart, whatever the API server has.
	n.cni.checkErr = errors.New("link is gone")
	n.Check(n.ctx)
	n.cni.checkErr = nil
	n.start()
	n.drain()
	n.expectReported(claim, "net-0 Ready=False CNICheckFailed net1 10.0.0.1/24 02:00:00:00:00:01")

	// When the runtime connects, everything is checked, except for what is about to
	// be removed or has no namespace any more.
	n.Synchronize([]Sandbox{n.newSandbox("pod", "sandbox")})(n.ctx)
	n.drain()
	n.expectReported(claim, "net-0 Ready=True Attached net1 10.0.0.1/24 02:00:00:00:00:01")
	n.cni.checkErr = errors.New("link is gone")
	n.netns["/run/netns/sandbox"] = false
	n.Check(n.ctx)
	n.drain()
	n.expectReported(claim, "net-0 Ready=True Attached net1 10.0.0.1/24 02:00:00:00:00:01")
	n.netns["/run/netns/sandbox"] = true
	n.cni.delErr = errors.New("busy")
	expectError(t, n.Detach(n.ctx, "sandbox"), "busy")
	n.Check(n.ctx)
	if reason := n.claims[claim.UID].Devices[0].Ready.Reason; reason != ReasonDelFailed {
		t.Errorf("reason %s", reason)
	}
}

func TestPrepare(t *testing.T) {
	n := newNode(t)
	claim := n.newClaim("claim", "net-0")
	n.mustPrepare(claim)
	for name, tc := range map[string]struct {
		change   func(*resourceapi.ResourceClaim)
		expected string
	}{
		"in use": {
			func(c *resourceapi.ResourceClaim) { c.Name, c.UID = "other", "uid-other" },
			"claim default/other: device node-1/net-0 is still in use by claim default/claim",
		},
		"same name": {
			func(c *resourceapi.ResourceClaim) {
				c.UID = "uid-other"
				c.Status.Allocation.Devices.Results[0].Device = "net-1"
			},
			"a former claim of this name, with UID uid-claim, is still in use on node node-1",
		},
		"other node": {
			func(c *resourceapi.ResourceClaim) { c.Status.Allocation.Devices.Results[0].Pool = "node-2" },
			"device node-2/net-0 is not one of node node-1",
		},
		"share": {
			func(c *resourceapi.ResourceClaim) {
				c.Status.Allocation.Devices.Results[0].ShareID = ptr.To(types.UID("x"))
			},
			"has a share ID",
		},
		"no config": {
			func(c *resourceapi.ResourceClaim) { c.Status.Allocation.Devices.Config = nil },
			"neither the DeviceClass nor the claim says which network",
		},
		"not allocated": {
			func(c *resourceapi.ResourceClaim) { c.Status.Allocation = nil },
			"it is not allocated",
		},
	} {
		changed := claim.DeepCopy()
		tc.change(changed)
		results, err := n.PrepareResourceClaims(n.ctx, []*resourceapi.ResourceClaim{changed})
		if err != nil {
			t.Fatal(err)
		}
		if err := results[changed.UID].Err; err == nil || !strings.Contains(err.Error(), tc.expected) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	n.cni.validateErr = errors.New(`failed to find plugin "fake"`)
	expectError(t, n.tryPrepare(n.newClaim("third", "net-1")), "device node-1/net-1: its network does not work on node node-1", `failed to find plugin "fake"`)
	n.cni.validateErr = nil

	// Devices of other drivers are not ours, and one that is used by others
	// gets no interface.
	mixed := n.newClaim("mixed", "net-0")
	mixed.Status.Allocation.Devices.Results[0].AdminAccess = ptr.To(true)
	mixed.Status.Allocation.Devices.Results = append(mixed.Status.Allocation.Devices.Results,
		resourceapi.DeviceRequestAllocationResult{Request: "other", Driver: "other.example.com", Pool: "other", Device: "other"})
	mixed.Status.Allocation.Devices.Config = nil
	results, err := n.PrepareResourceClaims(n.ctx, []*resourceapi.ResourceClaim{mixed})
	if err != nil {
		t.Fatal(err)
	}
	// It needs nothing that would have to exist.
	expected := kubeletplugin.PrepareResult{Devices: []kubeletplugin.Device{{Requests: []string{"network"}, PoolName: nodeName, DeviceName: "net-0"}}}
	if result := results[mixed.UID]; !reflect.DeepEqual(result, expected) {
		t.Errorf("result:\n got %+v\nwant %+v", result, expected)
	}
	n.newPod("mixed", "mixed")
	n.mustAttach(n.newSandbox("mixed", "mixed"))
	n.expectInterfaces()

	// The same names in another namespace are something else.
	elsewhere := n.newClaim("claim", "net-2")
	elsewhere.Namespace, elsewhere.UID = "elsewhere", "uid-elsewhere"
	n.mustPrepare(elsewhere)
	foreign := n.newClaim("foreign", "net-3")
	foreign.Namespace = "elsewhere"
	n.mustPrepare(foreign)
	n.newPod("pod", "claim", "foreign")
	n.mustAttach(n.newSandbox("pod", "pod"))
	n.drain()
	n.expectInterfaces("pod/net1")
	n.expectReported(claim, "net-0 Ready=True Attached net1 10.0.0.1/24 02:00:00:00:00:01")
	n.expectReported(elsewhere)

	if len(n.claims) != 4 {
		t.Errorf("claims %v", n.claims)
	}
}

// TestReleasedLate checks that a device is free before the status of its former
// claim could be cleared, and that the claim may come back while that goes on.
func TestReleasedLate(t *testing.T) {
	n := newNode(t)
	claim := n.newClaim("claim", "net-0")
	n.newPod("pod", "claim")
	n.mustPrepare(claim)
	n.mustAttach(n.newSandbox("pod", "sandbox"))
	n.drain()
	n.status.err = errors.New("connection refused")
	if err := n.tryUnprepare(claim); err != nil {
		t.Fatal(err)
	}
	n.drain()
	n.mustPrepare(n.newClaim("another", "net-1"))
	n.mustAttach(n.newSandbox("pod", "too late"))
	n.expectInterfaces()
	same := n.newClaim("claim", "net-0")
	same.UID = "uid-next"
	n.mustPrepare(same)
	n.mustAttach(n.newSandbox("pod", "next"))
	n.drain()
	n.expectInterfaces("next/net1")

	n = newNode(t)
	n.newPod("pod", "claim")
	n.mustPrepare(claim)
	n.mustAttach(n.newSandbox("pod", "sandbox"))
	n.drain()
	if err := n.tryUnprepare(claim); err != nil {
		t.Fatal(err)
	}
	n.status.during = func() { n.mustPrepare(claim) }
	n.drain()
	n.start()
	n.mustAttach(n.newSandbox("pod", "second"))
	n.drain()
	n.expectInterfaces("second/net1")
	n.expectReported(claim, "net-0 Ready=True Attached net1 10.0.0.1/24 02:00:00:00:00:01")
}

// TestHandleError checks that the driver ends when its servers do.
func TestHandleError(t *testing.T) {
	n := newNode(t)
	n.HandleError(n.ctx, fmt.Errorf("%w: try again", kubeletplugin.ErrRecoverable), "publishing")
	if len(n.fatal) > 0 {
		t.Errorf("ended with %v", n.fatal)
	}
	n.HandleError(n.ctx, errors.New("socket is gone"), "serving")
	if len(n.fatal) != 1 || n.fatal[0].Error() != "serving: socket is gone" {
		t.Errorf("ended with %v", n.fatal)
	}
}

// TestClaimNames checks which claims a pod has.
func TestClaimNames(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{ResourceClaims: []v1.PodResourceClaim{
		{Name: "direct", ResourceClaimName: ptr.To("b")},
		{Name: "generated", ResourceClaimTemplateName: ptr.To("template")},
		{Name: "unnecessary", ResourceClaimTemplateName: ptr.To("template")},
		{Name: "again", ResourceClaimName: ptr.To("b")},
	}}}
	_, err := claimNames(pod)
	expectError(t, err, "not created yet")
	pod.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "generated", ResourceClaimName: ptr.To("a")}, {Name: "unnecessary"}}
	pod.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{ResourceClaimName: "extended"}
	if names, err := claimNames(pod); err != nil || !slices.Equal(names, []string{"b", "a", "extended"}) {
		t.Errorf("names %q, %v", names, err)
	}

	// The pod must not start without its interfaces.
	n := newNode(t)
	n.mustPrepare(n.newClaim("a", "net-0"))
	n.newPod("pod").Spec.ResourceClaims = pod.Spec.ResourceClaims
	expectError(t, n.Attach(n.ctx, n.newSandbox("pod", "sandbox")), "pod default/pod: ", "not created yet")
	n.podsErr = errors.New("connection refused")
	expectError(t, n.Attach(n.ctx, n.newSandbox("pod", "sandbox")), "cannot find out which network devices pod default/pod has: connection refused")
}

// TestNothingToAttach checks that pods do not depend on the API server, unless the
// driver may have something for them.
func TestNothingToAttach(t *testing.T) {
	n := newNode(t)
	elsewhere := n.newClaim("elsewhere", "net-0")
	elsewhere.Namespace = "elsewhere"
	n.mustPrepare(elsewhere)
	admin := n.newClaim("admin", "net-0")
	admin.Status.Allocation.Devices.Results[0].AdminAccess = ptr.To(true)
	n.mustPrepare(admin)
	n.newPod("pod", "released")
	released := n.newClaim("released", "net-1")
	n.mustPrepare(released)
	n.mustAttach(n.newSandbox("pod", "first"))
	n.status.err = errors.New("connection refused")
	if err := n.tryUnprepare(released); err != nil {
		t.Fatal(err)
	}
	n.drain()
	n.podsErr = n.status.err
	n.mustAttach(n.newSandbox("pod", "second"))
	if len(n.claims) != 3 {
		t.Errorf("claims %v", n.claims)
	}
}

// TestReallocated checks what happens when a claim comes back with other
// devices, and nobody told that the former ones were given back.
func TestReallocated(t *testing.T) {
	n := newNode(t)
	n.newPod("pod", "claim")
	n.mustPrepare(n.newClaim("claim", "net-0", "net-1"))
	sandbox := n.newSandbox("pod", "sandbox")
	n.mustAttach(sandbox)
	n.drain()
	claim := n.newClaim("claim", "net-1", "net-2")
	n.cni.delErr = errors.New("busy")
	expectError(t, n.tryPrepare(claim), "busy")
	n.cni.delErr = nil
	n.mustPrepare(claim)
	n.expectInterfaces("sandbox/net2")
	n.drain()
	n.expectReported(claim, "net-1 Ready=True Attached net2 10.0.0.2/24 02:00:00:00:00:01")
	n.mustAttach(sandbox)
	n.drain()
	n.expectInterfaces("sandbox/net1", "sandbox/net2")
	n.expectReported(claim,
		"net-1 Ready=True Attached net2 10.0.0.2/24 02:00:00:00:00:01",
		"net-2 Ready=True Attached net1 10.0.0.1/24 02:00:00:00:00:01",
	)
}

func TestStatusWrites(t *testing.T) {
	resource := schema.GroupResource{Group: resourceapi.GroupName, Resource: "resourceclaims"}
	for name, tc := range map[string]struct {
		err error
		// retried while the claim is prepared, and after that
		prepared, released bool
	}{
		"server":    {errors.New("connection refused"), true, true},
		"dropped":   {ErrStatusDropped, true, true},
		"forbidden": {apierrors.NewForbidden(resource, "claim", errors.New("no")), true, false},
		"gone":      {apierrors.NewNotFound(resource, "claim"), false, false},
		"replaced":  {apierrors.NewConflict(resource, "claim", errors.New("uid")), false, false},
		"freed":     {apierrors.NewInvalid(schema.GroupKind{}, "claim", field.ErrorList{field.Invalid(field.NewPath("status", "devices"), "net-0", "must be an allocated device in the claim")}), false, false},
		// The form that the granular authorization gives to a refusal.
		"refused": {apierrors.NewInvalid(schema.GroupKind{}, "claim", field.ErrorList{field.Forbidden(field.NewPath("status", "devices"), "changing status.devices requires ...")}), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			claim := n.newClaim("claim", "net-0")
			n.newPod("pod", "claim")
			n.mustPrepare(claim)
			n.mustAttach(n.newSandbox("pod", "sandbox"))
			n.status.err = tc.err
			n.drain()
			if retried := n.queue.NumRequeues(claim.UID) > 0; retried != tc.prepared {
				t.Errorf("while prepared, retried: %v", retried)
			}
			event := n.event()
			if said := strings.HasPrefix(event, "Warning FailedWriteDeviceStatus driver network.dra.example.com on node node-1 may not write the status"); said != (name == "forbidden" || name == "refused") {
				t.Errorf("event %q", event)
			} else if said {
				n.expectMetric("dra_network_status_writes_total", "forbidden", 1)
			}
			n.queue.Forget(claim.UID)
			if err := n.tryUnprepare(claim); err != nil {
				t.Fatal(err)
			}
			n.drain()
			if retried := n.queue.NumRequeues(claim.UID) > 0; retried != tc.released {
				t.Errorf("when released, retried: %v", retried)
			}
			if tc.released {
				// It is not forgotten over a restart.
				n.start()
				n.status.err = nil
				n.status.claims[claim.UID] = []resourceapi.AllocatedDeviceStatus{{Device: "stale"}}
				n.drain()
				n.expectReported(claim)
			}
			n.expectNothingLeft()
		})
	}
}

// TestPreparedAgain checks that a claim which comes back before its status was
// cleared is not forgotten.
func TestPreparedAgain(t *testing.T) {
	n := newNode(t)
	claim := n.newClaim("claim", "net-0")
	n.newPod("pod", "claim")
	n.mustPrepare(claim)
	n.mustAttach(n.newSandbox("pod", "first"))
	n.drain()
	n.status.err = errors.New("connection refused")
	if err := n.tryUnprepare(claim); err != nil {
		t.Fatal(err)
	}
	n.drain()
	n.mustPrepare(claim)
	n.status.err = nil
	n.retry(claim.UID)
	n.expectReported(claim)
	n.mustAttach(n.newSandbox("pod", "second"))
	n.drain()
	n.expectInterfaces("second/net1")
	n.expectReported(claim, "net-0 Ready=True Attached net1 10.0.0.1/24 02:00:00:00:00:01")
}

func TestDir(t *testing.T) {
	dir := Dir(t.TempDir())
	claim := &Claim{Namespace: "a", Name: "b", UID: "u", Devices: []*Device{{
		Pool: "p", Name: "net-0", Network: []byte(`{"name":"x"}`),
		Attachment: &Attachment{Phase: Added, SandboxID: "s", Result: []byte(`{"cniVersion":"1.0.0"}`)},
		Ready:      &Ready{Status: metav1.ConditionTrue, Since: metav1.Unix(1, 0)},
	}}}
	for range 2 {
		if err := dir.Save(claim); err != nil {
			t.Fatal(err)
		}
	}
	// What an interrupted Save leaves.
	leftover := filepath.Join(string(dir), "u.new-123")
	if err := os.WriteFile(leftover, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := dir.Load()
	if err != nil || len(loaded) != 1 || !reflect.DeepEqual(loaded[0], claim) {
		t.Errorf("loaded %+v, %v", loaded, err)
	}
	if _, err := os.Stat(leftover); !os.IsNotExist(err) {
		t.Errorf("leftover: %v", err)
	}
	if err := os.WriteFile(filepath.Join(string(dir), "v.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = dir.Load()
	expectError(t, err, "v.json", "remove the file")
	for range 2 {
		if err := dir.Delete("v"); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(filepath.Join(string(dir), "u.json"), filepath.Join(string(dir), "w.json")); err != nil {
		t.Fatal(err)
	}
	_, err = dir.Load()
	expectError(t, err, "w.json", `UID "u"`)

	// A file that cannot be replaced.
	dir = Dir(t.TempDir())
	if err := os.Mkdir(filepath.Join(string(dir), "u.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	expectError(t, dir.Save(claim), "u.json")
	if files, err := os.ReadDir(string(dir)); err != nil || len(files) != 1 {
		t.Errorf("left behind: %v, %v", files, err)
	}
	expectError(t, Dir(filepath.Join(string(dir), "missing")).Save(claim), "missing")
}
