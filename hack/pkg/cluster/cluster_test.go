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

package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// newCluster has no programs, and is never started.
func newCluster(t *testing.T) *Cluster {
	t.Helper()
	dir := t.TempDir()
	c, err := New(Options{Repo: dir, Bin: dir, Dir: filepath.Join(dir, "cluster"), Release: "1.36"}, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	c.Ports = ports{}
	c.PodSubnet = "10.200"
	for _, err := range []error{c.prepareFolder(t.Context()), c.choosePorts(t.Context())} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("it needs root")
	}
}

func TestNewRefuses(t *testing.T) {
	good := Options{Repo: "/repo", Bin: "/bin", Dir: t.TempDir()}
	for name, change := range map[string]func(*Options){
		"no repository":    func(o *Options) { o.Repo = "" },
		"relative":         func(o *Options) { o.Bin = "bin" },
		"hidden":           func(o *Options) { o.Bin, o.Private = "/tmp/bin", []string{"/tmp"} },
		"many nodes":       func(o *Options) { o.RealNodes = 5 },
		"bare: two nodes":  func(o *Options) { o.Bare, o.RealNodes = true, 2 },
		"bare: no node":    func(o *Options) { o.Bare, o.NoRealNode = true, true },
		"bare: simulated":  func(o *Options) { o.Bare, o.SimulatedNodes = true, 1 },
		"bare: Services":   func(o *Options) { o.Bare, o.Services = true, true },
		"newer state file": func(o *Options) { o.Dir = "/dev/null" },
		"two members":      func(o *Options) { o.ControlPlanes = 2 },
		"seven members":    func(o *Options) { o.ControlPlanes = 7 },
		"no member":        func(o *Options) { o.ControlPlanes = -1 },
		"bare: members":    func(o *Options) { o.Bare, o.ControlPlanes = true, 3 },
		"services":         func(o *Options) { o.Services, o.ControlPlanes = true, 3 },
	} {
		if _, err := New(good, nil); err != nil {
			t.Fatal(err)
		}
		bad := good
		change(&bad)
		if _, err := New(bad, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := os.WriteFile(filepath.Join(good.Dir, stateFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(good, nil); err == nil || !strings.Contains(err.Error(), stateFile) {
		t.Errorf("half a file: %v", err)
	}
}

func TestPorts(t *testing.T) {
	c := newCluster(t)
	seen := map[int]string{}
	for component, port := range c.Ports {
		if other, taken := seen[port]; taken || port == 0 {
			t.Errorf("%s and %q have port %d", component, other, port)
		}
		seen[port] = component
	}

	// A node with a network of its own takes no port that others want: they would be told that it is in
	// their way.
	c.Options.Bare, c.Ports = true, ports{}
	if err := c.choosePorts(t.Context()); err != nil || len(c.Ports) != 1 || c.Ports[APIServer] == 0 {
		t.Errorf("bare: %v, %v", c.Ports, err)
	}

	// Somebody has the one that is wanted.
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	c.Options.Bare, c.Ports = false, ports{}
	c.Options.APIPort = l.Addr().(*net.TCPAddr).Port
	err = c.choosePorts(t.Context())
	if err == nil || !strings.Contains(err.Error(), "API_PORT") || !strings.Contains(err.Error(), strconv.Itoa(c.Options.APIPort)) {
		t.Errorf("want an error about API_PORT, got %v", err)
	}
}

// TestPodSubnet checks that clusters on one machine have addresses of their own, and that the first that goes
// does not take along those of another.
func TestPodSubnet(t *testing.T) {
	asRoot(t)
	write, _ := ownMachine(t)
	write("net/ipv4/ip_forward", "1")
	defer func(subnets []string) { podSubnets = subnets }(podSubnets)
	podSubnets = []string{"10.253", "10.254"}
	remove := func(c *Cluster) {
		if err := c.Traces.remove(context.Background(), c); err != nil {
			t.Error(err)
		}
	}
	start := func(asked string) (*Cluster, error) {
		c := newCluster(t)
		c.Options.PodSubnet, c.state.RealNode = asked, true
		t.Cleanup(func() { remove(c) })
		return c, c.choosePodSubnet(t.Context())
	}
	first, err := start("")
	if err != nil || first.PodSubnet != "10.253" {
		t.Fatalf("want 10.253, got %s, %v", first.PodSubnet, err)
	}
	if err := first.addAddress(t.Context(), first.node().address()); err != nil {
		t.Errorf("its own address: %v", err)
	}
	second, err := start("")
	if err != nil || second.PodSubnet != "10.254" {
		t.Fatalf("want 10.254, got %s, %v", second.PodSubnet, err)
	}
	for _, asked := range []string{"", "10.254"} {
		other, err := start(asked)
		if err == nil || !strings.Contains(err.Error(), "10.254.127.1") || !strings.Contains(err.Error(), "make down") {
			t.Errorf("asked for %q: want an error that names the address and says what to do, got %v", asked, err)
		}
		remove(other)
	}
	// One that died had the address of the first before this machine was started anew.
	if err := first.Traces.leave(t.Context(), first, nil); err != nil {
		t.Fatal(err)
	}
	dead := newCluster(t)
	dead.Traces.Addresses = first.Traces.Addresses
	remove(dead)
	if !hasAddress("10.253.127.1") || !hasAddress("10.254.127.1") {
		t.Error("a cluster that did not start took along the address of another")
	}
	remove(first)
	if hasAddress("10.253.127.1") || !hasAddress("10.254.127.1") {
		t.Error("want the address of the second alone")
	}
}

// TestArgs checks that everything listens on the loopback interface, and that everybody has an identity of
// its own.
func TestArgs(t *testing.T) {
	c := newCluster(t).controlPlanes()[0]
	for _, component := range controlPlaneComponents {
		args, err := c.args(component, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(args, func(arg string) bool {
			return arg == "--bind-address=127.0.0.1" || strings.HasPrefix(arg, "--listen-client-urls=http://127.0.0.1:")
		}) {
			t.Errorf("%s does not listen on 127.0.0.1 alone: %v", component, args)
		}
		for _, other := range []string{ControllerManager, Scheduler} {
			has := slices.Contains(args, "--kubeconfig="+c.ComponentKubeconfig(other))
			if has != (component == other) {
				t.Errorf("%s has the identity of %s: %t", component, other, has)
			}
		}
	}
	if _, err := c.args("kube-dns", nil); err == nil {
		t.Error("no error for a component that does not exist")
	}
	c.Options.Gates = map[string]bool{"B": true, "A": true}
	for want, gates := range map[string]map[string]bool{
		"--feature-gates=A=true,B=true":         nil,
		"--feature-gates=A=true,B=false,C=true": {"B": false, "C": true},
	} {
		if got := c.Program(Scheduler, gates); got[len(got)-1] != want {
			t.Errorf("want %s, got %v", want, got)
		}
	}
	for _, test := range []struct {
		facts       []string
		extra, want string
	}{
		{nil, "", ""},
		{nil, "api/all=true", "api/all=true"},
		{[]string{"a/v1=true", "a/v2=true"}, "", "a/v1=true,a/v2=true"},
		{[]string{"a/v1=true"}, "api/beta=true", "api/beta=true,a/v1=true"},
	} {
		c.Facts.RuntimeConfig, c.Options.RuntimeConfig = test.facts, test.extra
		if got := c.runtimeConfig(); got != test.want {
			t.Errorf("%q, %q: want %q, got %q", test.facts, test.extra, test.want, got)
		}
	}
}

// TestIdentities checks the certificates as those would who get them.
func TestIdentities(t *testing.T) {
	c := newCluster(t)
	if err := c.writeIdentities(t.Context()); err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(c.pki("ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	verify := func(certificate []byte, usage x509.ExtKeyUsage) *x509.Certificate {
		t.Helper()
		block, _ := pem.Decode(certificate)
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
			t.Errorf("%s: %v", cert.Subject, err)
		}
		return cert
	}
	for file, want := range map[string]struct{ user, group string }{
		c.Kubeconfig():                           {"kubernetes-admin", "system:masters"},
		c.ComponentKubeconfig(Scheduler):         {"system:kube-scheduler", ""},
		c.ComponentKubeconfig(ControllerManager): {"system:kube-controller-manager", ""},
		c.ComponentKubeconfig(Kubelet):           {"system:node:real", "system:nodes"},
		c.ComponentKubeconfig(Kwok):              {"kwok", ""},
		c.ComponentKubeconfig(Driver):            {"dra-driver", ""},
	} {
		config, err := clientcmd.BuildConfigFromFlags("", file)
		if err != nil {
			t.Fatal(err)
		}
		if want := "https://" + c.Ports.address(APIServer); config.Host != want {
			t.Errorf("%s: want %s, got %s", file, want, config.Host)
		}
		if _, err := tls.X509KeyPair(config.CertData, config.KeyData); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		cert := verify(config.CertData, x509.ExtKeyUsageClientAuth)
		if cert.Subject.CommonName != want.user || strings.Join(cert.Subject.Organization, ",") != want.group {
			t.Errorf("%s: want %s of %q, got %s", file, want.user, want.group, cert.Subject)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: others may read it: %v, %v", file, info.Mode(), err)
		}
	}
	for component, hosts := range map[string][]string{
		APIServer: {"127.0.0.1", "localhost", "kubernetes.default.svc", c.serviceIP()},
		Scheduler: {"127.0.0.1"},
		Kubelet:   {c.node().address()},
	} {
		content, err := os.ReadFile(c.pki(component + ".crt"))
		if err != nil {
			t.Fatal(err)
		}
		cert := verify(content, x509.ExtKeyUsageServerAuth)
		for _, host := range hosts {
			if err := cert.VerifyHostname(host); err != nil {
				t.Errorf("%s: %v", component, err)
			}
		}
		if err := cert.VerifyHostname("example.com"); err == nil {
			t.Errorf("%s passes for any host", component)
		}
	}
}

// TestProcess starts processes that behave well, end at once, or do not want to end.
func TestProcess(t *testing.T) {
	c := newCluster(t)
	ctx := t.Context()
	for name, script := range map[string]string{
		"polite":   "sleep 1000",
		"stubborn": "trap '' TERM; while :; do sleep 1; done",
		"parent":   "sleep 1000 & sleep 1001 & wait",
	} {
		p, err := c.run(name, []string{"sh", "-c", script})
		if err != nil {
			t.Fatal(err)
		}
		if !p.alive() || c.Processes.find(name) != p {
			t.Errorf("%s does not run", name)
		}
		// The number is not all: it may be that of another process now.
		later, earlier := *p, *p
		later.Clock++
		earlier.Boot = "earlier"
		if later.alive() || earlier.alive() {
			t.Errorf("%s: a process that was started at another time passes for it", name)
		}
		if !slices.Contains(c.Processes.marked(), p.PID) {
			t.Errorf("%s is not found by its mark", name)
		}
		if err := p.stop(ctx, 300*time.Millisecond); err != nil {
			t.Error(err)
		}
		if p.alive() {
			t.Errorf("%s was not stopped", name)
		}
	}
	if left := c.Processes.marked(); len(left) > 0 {
		t.Errorf("these are left: %v", left)
	}
	// One that ends is reported with what it said last.
	p, err := c.run("broken", []string{"sh", "-c", "echo no luck today; exit 1"})
	if err == nil {
		err = c.Processes.waitHealthy(ctx, p, 10*time.Second, func(context.Context) error { return errors.New("not yet") })
	}
	if err == nil || !strings.Contains(err.Error(), "broken") || !strings.Contains(err.Error(), "no luck today") {
		t.Errorf("want an error with the log, got %v", err)
	}
}

// TestMarkAtOnce asks for the mark while the kernel still starts the program.
func TestMarkAtOnce(t *testing.T) {
	c := newCluster(t)
	for range 300 {
		cmd := exec.Command("sleep", "1000")
		cmd.Env = []string{marker + "=" + c.Options.Dir, "PATH=" + os.Getenv("PATH")}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		marked := c.Processes.isMarked(cmd.Process.Pid)
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait()
		if !marked {
			t.Fatal("a process is not found by its mark while it starts")
		}
	}
}

// TestDown takes down a cluster of which only the state is left, as after a crash, and of which somebody
// started a component by hand.
func TestDown(t *testing.T) {
	c := newCluster(t)
	etcd, err := c.run(Etcd, []string{"sleep", "1000"})
	if err != nil {
		t.Fatal(err)
	}
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	byHand := func(program, mentions string) *exec.Cmd {
		t.Helper()
		name := filepath.Join(c.Options.Bin, program)
		if err := os.WriteFile(name, content, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(name, "1000")
		// sleep does not know the path of a cluster, but the name of a program may be anything.
		cmd.Args[0] = mentions
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() { _ = cmd.Wait(); close(done) }()
		t.Cleanup(func() { _ = cmd.Process.Kill(); <-done })
		// It may have been built again since.
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	stopped := byHand(Scheduler, c.path("config", "scheduler.yaml"))
	others := map[string]*exec.Cmd{
		"another cluster": byHand(Scheduler, c.Options.Dir+"-other/config/scheduler.yaml"),
		"kubectl":         byHand("kubectl", c.Kubeconfig()),
	}
	// Ports of nobody: nothing of the network or cgroups is touched.
	c.Ports = nil
	if err := c.save(); err != nil {
		t.Fatal(err)
	}
	later, err := Open(c.Options.Dir, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	if err := later.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	runs := func(pid int) bool {
		stat, err := stat(pid)
		return err == nil && !ended(stat)
	}
	if etcd.alive() || runs(stopped.Process.Pid) {
		t.Error("a component still runs")
	}
	for name, cmd := range others {
		if !runs(cmd.Process.Pid) {
			t.Errorf("%s: it was stopped", name)
		}
	}
	entries, err := os.ReadDir(c.Options.Dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "logs" {
		t.Errorf("want only logs to be left, got %v, %v", entries, err)
	}
	if _, err := Open(c.Options.Dir, t.Logf); err == nil {
		t.Error("there is still a cluster")
	}
	// Twice is not an error.
	if err := later.Down(t.Context()); err != nil {
		t.Error(err)
	}
}

// ownMachine gives the test a registry, cgroups, and sysctls of its own, which it writes and looks at.
func ownMachine(t *testing.T) (write, expect func(name, value string)) {
	t.Helper()
	root, list, cgroups := sysctlRoot, registry, cgroupRoot
	t.Cleanup(func() { sysctlRoot, registry, cgroupRoot = root, list, cgroups })
	sysctlRoot, registry, cgroupRoot = t.TempDir(), filepath.Join(t.TempDir(), "registry"), t.TempDir()
	if err := os.WriteFile(filepath.Join(cgroupRoot, "cgroup.controllers"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	write = func(name, value string) {
		t.Helper()
		file := filepath.Join(sysctlRoot, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	expect = func(name, value string) {
		t.Helper()
		if got, err := os.ReadFile(filepath.Join(sysctlRoot, name)); err != nil || string(got) != value+"\n" {
			t.Errorf("%s: want %s, got %q, %v", name, value, got, err)
		}
	}
	return write, expect
}

// TestTraces starts two clusters and one whose folder gets lost. Whichever ends first, the other one keeps
// what it needs, and the last one leaves the machine as it was before the first.
func TestTraces(t *testing.T) {
	const forward, panics = "net/ipv4/ip_forward", "kernel/panic"
	for _, order := range [][]int{{0, 1}, {1, 0}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			write, expect := ownMachine(t)
			write(forward, "0")
			write(panics, "0")
			root := t.TempDir()
			used, made := filepath.Join(root, "used"), filepath.Join(root, "var", "cdi")
			if err := os.MkdirAll(filepath.Join(used, "by-somebody-else"), 0o755); err != nil {
				t.Fatal(err)
			}
			var clusters []*Cluster
			for range 3 {
				c := newCluster(t)
				if err := c.Traces.leave(t.Context(), c, []string{made, used}); err != nil {
					t.Fatal(err)
				}
				clusters = append(clusters, c)
				expect(forward, "1")
				// The kubelet sets this one.
				write(panics, "10")
			}
			if err := os.RemoveAll(clusters[2].Options.Dir); err != nil {
				t.Fatal(err)
			}
			for i, n := range order {
				later, err := Open(clusters[n].Options.Dir, t.Logf)
				if err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(later.Traces.remove(t.Context(), later), later.removeFolder()); err != nil {
					t.Fatal(err)
				}
				want := []string{"1", "10"}
				if i == 1 {
					want = []string{"0", "0"}
				}
				expect(forward, want[0])
				expect(panics, want[1])
				if _, err := os.Stat(made); (err == nil) != (i == 0) {
					t.Errorf("after %d clusters went: %v", i+1, err)
				}
			}
			if entries, err := os.ReadDir(root); err != nil || len(entries) != 1 {
				t.Errorf("want only %s, got %v, %v", used, entries, err)
			}
			if entries, err := os.ReadDir(used); err != nil || len(entries) != 1 {
				t.Errorf("want %s as it was, got %v, %v", used, entries, err)
			}
			if _, err := os.Stat(registry); err == nil {
				t.Errorf("%s was left", registry)
			}
		})
	}
	// A node with a network of its own leaves alone what this machine's network is set to: another cluster
	// may have changed it meanwhile.
	write, expect := ownMachine(t)
	write(forward, "0")
	write(panics, "0")
	c := newCluster(t)
	c.Options.Bare = true
	if err := c.Traces.leave(t.Context(), c, nil); err != nil {
		t.Fatal(err)
	}
	expect(forward, "0")
	if _, found := c.Traces.Sysctls[forward]; found || c.Traces.Sysctls[panics] != "0" {
		t.Errorf("bare: %v", c.Traces.Sysctls)
	}
	if err := setSysctls(map[string]string{"net/none/of_these": "1"}); err == nil || !strings.Contains(err.Error(), "net.none.of_these to 1") {
		t.Errorf("want an error that names it, got: %v", err)
	}
}

// TestTracesOfDead takes down a cluster that died, after another one got its port.
func TestTracesOfDead(t *testing.T) {
	const forward, panics = "net/ipv4/ip_forward", "kernel/panic"
	write, expect := ownMachine(t)
	write(forward, "0")
	write(panics, "0")
	dead, other := newCluster(t), newCluster(t)
	other.Ports[APIServer] = dead.Ports[APIServer]
	cgroup := filepath.Join(cgroupRoot, other.NodeCgroup())
	for _, c := range []*Cluster{dead, other} {
		if err := errors.Join(c.Traces.leave(t.Context(), c, nil), os.MkdirAll(cgroup, 0o755)); err != nil {
			t.Fatal(err)
		}
		write(panics, "10")
	}
	if err := dead.Traces.remove(t.Context(), dead); err != nil {
		t.Error(err)
	}
	expect(forward, "1")
	expect(panics, "10")
	if got, err := os.ReadFile(other.Traces.Registered); err != nil || string(got) != other.Options.Dir {
		t.Errorf("want the other one registered, got %q, %v", got, err)
	}
	if _, err := os.Stat(cgroup); err != nil {
		t.Error(err)
	}
	// The other one knows how the machine was before the first, and its folder may have two names.
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(other.Options.Dir, link); err != nil {
		t.Fatal(err)
	}
	other.Options.Dir = link
	if err := other.Traces.remove(t.Context(), other); err != nil {
		t.Error(err)
	}
	expect(forward, "0")
	expect(panics, "0")
	for _, name := range []string{cgroup, registry} {
		if _, err := os.Stat(name); err == nil {
			t.Errorf("%s was left", name)
		}
	}
}

func TestWithoutProxyRules(t *testing.T) {
	const saved = `# Generated by iptables-save
*filter
:INPUT ACCEPT [1:2]
:KUBE-FIREWALL - [0:0]
:KUBE-SERVICES - [0:0]
:DOCKER - [0:0]
-A INPUT -m comment --comment "to KUBE-FIREWALL" -j DOCKER
-A INPUT -j KUBE-FIREWALL
-A INPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A KUBE-SERVICES -j KUBE-FIREWALL
COMMIT
# Completed
*nat
:OUTPUT ACCEPT [0:0]
-A OUTPUT -j DOCKER
COMMIT
`
	const want = `*filter
:KUBE-FIREWALL - [0:0]
:KUBE-SERVICES - [0:0]
-D INPUT -j KUBE-FIREWALL
-D INPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-X KUBE-FIREWALL
-X KUBE-SERVICES
COMMIT
`
	if got := withoutProxyRules(saved); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := withoutProxyRules("*nat\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n"); got != "" {
		t.Errorf("there is nothing to remove, but got\n%s", got)
	}
}

// TestInNetwork listens in another network, and comes back.
func TestInNetwork(t *testing.T) {
	asRoot(t)
	other := exec.Command("unshare", "--net", "sh", "-c", "ip link set lo up; echo up; exec sleep 1000")
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = other.Process.Kill()
		_ = other.Wait()
	})
	if _, err := out.Read(make([]byte, 3)); err != nil {
		t.Skipf("no namespaces: %v", err)
	}
	namespace := fmt.Sprintf("/proc/%d/ns/net", other.Process.Pid)
	var l net.Listener
	if err := inNetwork(namespace, func() (err error) {
		l, err = net.Listen("tcp4", "127.0.0.1:0")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if conn, err := net.DialTimeout("tcp", l.Addr().String(), time.Second); err == nil {
		_ = conn.Close()
		t.Errorf("%s answers in the network of this machine", l.Addr())
	}
	if err := inNetwork(namespace, func() error {
		conn, err := net.DialTimeout("tcp", l.Addr().String(), time.Second)
		if err == nil {
			_ = conn.Close()
		}
		return err
	}); err != nil {
		t.Errorf("in the other network: %v", err)
	}
	if err := inNetwork("/proc/none", func() error { return nil }); err == nil {
		t.Error("no error for a network that is not there")
	}
}

// TestConfigurations parses what the programs get to read.
func TestConfigurations(t *testing.T) {
	c := newCluster(t)
	stages, err := render("stages.yaml", nil)
	if err != nil {
		t.Fatal(err)
	}
	texts := strings.Split(stages, "\n---\n")
	for name, values := range map[string]map[string]any{"kubelet.yaml": c.node().kubeletConfig(), "audit-policy.yaml": nil, "access.yaml": nil, "dns.yaml": {"ServiceIP": "10.200.128.10", "Address": "10.200.127.53"}} {
		text, err := render(name, values)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, strings.Split(text, "\n---\n")...)
	}
	for services, want := range map[bool]int{false: 1, true: 2} {
		network, err := render("ptp.conflist", map[string]any{"Name": "name", "Subnet": "10.200.0.0/20", "HostPorts": services})
		var config struct{ Plugins []struct{ Type string } }
		if err := errors.Join(err, yaml.Unmarshal([]byte(network), &config)); err != nil || len(config.Plugins) != want {
			t.Errorf("Services %t: want %d CNI plugins, got %+v, %v", services, want, config, err)
		}
	}
	for _, text := range texts {
		var object map[string]any
		if err := yaml.UnmarshalStrict([]byte(text), &object); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
	}
	if strings.Count(stages, EndLabel) < 2 {
		t.Errorf("the stages know no label %s", EndLabel)
	}
	if _, err := render("ptp.conflist", map[string]any{}); err == nil {
		t.Error("no error without values")
	}
	if limit := 15; len(c.NetworkBridge()) > limit {
		t.Errorf("the name of an interface has at most %d characters: %s", limit, c.NetworkBridge())
	}
	if out, err := exec.Command("sh", "-c", "printf %s "+quote(`it's "a" $path`)).Output(); err != nil || string(out) != `it's "a" $path` {
		t.Errorf("the shell reads %q, %v", out, err)
	}
}

// TestNetworkDriverOfTwo checks that the driver of a cluster listens on the port that was chosen for this
// cluster, and is asked there whether it is ready. Of two clusters on this machine each has its own.
func TestNetworkDriverOfTwo(t *testing.T) {
	repo, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	// The ports are given here: of two that are chosen while nobody listens, one in some thousand is the other.
	for _, port := range []int{20001, 20002} {
		c := newCluster(t)
		if chosen := c.Ports[NetworkDaemonSet]; chosen == 0 || chosen == 9177 {
			t.Errorf("want a port of this cluster's own, got %d", chosen)
		}
		c.Ports[NetworkDaemonSet] = port
		c.Options.Repo = repo
		manifest, err := c.NetworkDriver()
		if err != nil {
			t.Fatal(err)
		}
		address := fmt.Sprintf("127.0.0.1:%d", port)
		if url := c.NetworkDriverURL(""); url != "http://"+address {
			t.Errorf("want a driver on %s, got %s", address, url)
		}
		if !strings.Contains(manifest, "\n        - --listen="+address+"\n") {
			t.Errorf("the driver does not listen on %s:\n%s", address, manifest)
		}
		host, port, _ := strings.Cut(address, ":")
		if strings.Count(manifest, "host: "+host+"\n") != 2 || strings.Count(manifest, "port: "+port+"\n") != 2 {
			t.Errorf("want two probes of %s:\n%s", address, manifest)
		}
	}
}

// TestManifest checks that each version of the API has a manifest which its servers take.
func TestManifest(t *testing.T) {
	for version, want := range map[string]string{"v1": "pods.yaml", "v1beta2": "pods-v1beta1.yaml", "v1beta1": "pods-v1beta1.yaml"} {
		if got := Manifest("pods", version); got != want {
			t.Errorf("%s: %s, want %s", version, got, want)
		}
	}
}

// TestAdminClaim checks where each version of the API has the fields of a request.
func TestAdminClaim(t *testing.T) {
	fields := map[string]any{"deviceClassName": "class", "adminAccess": true, "allocationMode": "All"}
	nested := map[string]any{"name": "device", "exactly": fields}
	flat := maps.Clone(fields)
	flat["name"] = "device"
	for version, want := range map[string]map[string]any{"v1": nested, "v1beta2": nested, "v1beta1": flat} {
		claim := (&Client{Version: version}).AdminClaim("monitor", "class", "All")
		spec := map[string]any{"devices": map[string]any{"requests": []any{want}}}
		if got := claim.Object["spec"]; !reflect.DeepEqual(got, spec) {
			t.Errorf("%s: %v, want %v", version, got, spec)
		}
		if got := claim.GetAPIVersion(); got != "resource.k8s.io/"+version {
			t.Errorf("%s: %s", version, got)
		}
	}
}
