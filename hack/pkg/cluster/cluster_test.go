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
	"io/fs"
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

	"k8s.io/apimachinery/pkg/util/sets"
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
	for _, sub := range []string{"pki", "config", "logs"} {
		if err := os.MkdirAll(c.path(sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c.Ports = map[string]int{}
	if err := c.choosePorts(); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestNewWantsPaths(t *testing.T) {
	for _, opts := range []Options{
		{Bin: "/bin", Dir: "/dir"},
		{Repo: "/repo", Bin: "bin", Dir: "/dir"},
		{Repo: "/repo", Bin: "/bin", Dir: "./dir"},
		{Repo: "/repo", Bin: "/tmp/bin", Dir: "/dir", Private: []string{"/tmp"}},
	} {
		if c, err := New(opts, nil); err == nil {
			t.Errorf("%+v: no error, but %+v", opts, c.Options)
		}
	}
}

func TestPortsDiffer(t *testing.T) {
	c := newCluster(t)
	seen := map[int]string{}
	for component, port := range c.Ports {
		if other, taken := seen[port]; taken || port == 0 {
			t.Errorf("%s and %q have port %d", component, other, port)
		}
		seen[port] = component
	}

	// Somebody has the one that is wanted.
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	c.Ports = map[string]int{}
	c.Options.APIPort = l.Addr().(*net.TCPAddr).Port
	err = c.choosePorts()
	if err == nil || !strings.Contains(err.Error(), "API_PORT") || !strings.Contains(err.Error(), strconv.Itoa(c.Options.APIPort)) {
		t.Errorf("want an error about API_PORT, got %v", err)
	}
}

func TestGates(t *testing.T) {
	c := newCluster(t)
	c.Options.Gates = map[string]bool{"B": true, "A": true}
	for _, test := range []struct {
		gates map[string]bool
		want  []string
	}{
		{nil, []string{"--feature-gates=A=true,B=true"}},
		{map[string]bool{"B": false, "C": true}, []string{"--feature-gates=A=true,B=false,C=true"}},
	} {
		if got := gateFlag(c.Options.Gates, test.gates); !slices.Equal(got, test.want) {
			t.Errorf("want %v, got %v", test.want, got)
		}
	}
	if c.Options.Gates["B"] != true || len(c.Options.Gates) != 2 {
		t.Errorf("the cluster's gates were changed: %v", c.Options.Gates)
	}
	c.Options.Gates = nil
	if got := gateFlag(c.Options.Gates, nil); got != nil {
		t.Errorf("want no flag, got %v", got)
	}
}

// TestArgs checks that everything listens on the loopback interface, and that
// everybody has an identity of its own.
func TestArgs(t *testing.T) {
	c := newCluster(t)
	for _, component := range []string{Etcd, APIServer, ControllerManager, Scheduler} {
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
			has := slices.Contains(args, "--kubeconfig="+c.kubeconfig(other))
			if has != (component == other) {
				t.Errorf("%s has the identity of %s: %t", component, other, has)
			}
		}
	}
	if _, err := c.args("kube-dns", nil); err == nil {
		t.Error("no error for a component that does not exist")
	}
}

func TestRuntimeConfig(t *testing.T) {
	for _, test := range []struct {
		facts       []string
		extra, want string
	}{
		{nil, "", ""},
		{nil, "api/all=true", "api/all=true"},
		{[]string{"a/v1=true", "a/v2=true"}, "", "a/v1=true,a/v2=true"},
		{[]string{"a/v1=true"}, "api/beta=true", "api/beta=true,a/v1=true"},
	} {
		c := newCluster(t)
		c.Facts.RuntimeConfig, c.Options.RuntimeConfig = test.facts, test.extra
		if got := c.runtimeConfig(); got != test.want {
			t.Errorf("%q, %q: want %q, got %q", test.facts, test.extra, test.want, got)
		}
	}
}

// TestIdentities checks the certificates as those would who get them.
func TestIdentities(t *testing.T) {
	c := newCluster(t)
	if err := c.writeIdentities(); err != nil {
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

	for file, want := range map[string]struct {
		user   string
		groups []string
	}{
		c.Kubeconfig():                  {"kubernetes-admin", []string{"system:masters"}},
		c.kubeconfig(Scheduler):         {"system:kube-scheduler", nil},
		c.kubeconfig(ControllerManager): {"system:kube-controller-manager", nil},
		c.kubeconfig(Kubelet):           {"system:node:real", []string{"system:nodes"}},
		c.kubeconfig(Kwok):              {"kwok", nil},
		c.kubeconfig(Driver):            {"dra-driver", nil},
	} {
		config, err := clientcmd.BuildConfigFromFlags("", file)
		if err != nil {
			t.Fatal(err)
		}
		if want := "https://" + c.address(APIServer); config.Host != want {
			t.Errorf("%s: want %s, got %s", file, want, config.Host)
		}
		if _, err := tls.X509KeyPair(config.CertData, config.KeyData); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		cert := verify(config.CertData, x509.ExtKeyUsageClientAuth)
		if cert.Subject.CommonName != want.user || !slices.Equal(cert.Subject.Organization, want.groups) {
			t.Errorf("%s: want %s of %v, got %s", file, want.user, want.groups, cert.Subject)
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

// TestProcess starts processes that behave well, end at once, or do not want to
// end.
func TestProcess(t *testing.T) {
	c := newCluster(t)
	ctx := t.Context()
	for name, script := range map[string]string{
		"polite":   "sleep 1000",
		"stubborn": "trap '' TERM; while :; do sleep 1; done",
		"parent":   "sleep 1000 & sleep 1001 & wait",
	} {
		p, err := c.start(name, []string{"sh", "-c", script})
		if err != nil {
			t.Fatal(err)
		}
		if !p.alive() || c.process(name) != p {
			t.Errorf("%s does not run", name)
		}
		// The number is not all: it may be that of another process now.
		other := *p
		other.Started++
		if other.alive() {
			t.Errorf("%s: a process that was started at another time passes for it", name)
		}
		other = *p
		other.Boot = "earlier"
		if other.alive() {
			t.Errorf("%s: a process from before a restart of the machine passes for it", name)
		}
		if !slices.Contains(c.marked(), p.PID) {
			t.Errorf("%s is not found by its mark", name)
		}
		if err := p.stop(ctx, 300*time.Millisecond); err != nil {
			t.Error(err)
		}
		if p.alive() {
			t.Errorf("%s was not stopped", name)
		}
	}
	if err := poll(ctx, 10*time.Second, "all are gone", func(context.Context) error {
		if left := c.marked(); len(left) > 0 {
			return errors.New("some are left")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}

	// One that ends is reported with what it said last.
	p, err := c.start("broken", []string{"sh", "-c", "echo no luck today; exit 1"})
	if err == nil {
		err = c.waitHealthy(ctx, p, 10*time.Second, func(context.Context) error { return errors.New("not yet") })
	}
	if err == nil || !strings.Contains(err.Error(), "broken") || !strings.Contains(err.Error(), "no luck today") {
		t.Errorf("want an error with the log, got %v", err)
	}
}

// TestMarkAtOnce asks for the mark while the kernel still starts the program.
func TestMarkAtOnce(t *testing.T) {
	c := newCluster(t)
	for range 500 {
		cmd := exec.Command("sleep", "1000")
		cmd.Env = []string{marker + "=" + c.Options.Dir, "PATH=" + os.Getenv("PATH")}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		marked := c.isMarked(cmd.Process.Pid)
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait()
		if !marked {
			t.Fatal("a process is not found by its mark while it starts")
		}
	}
}

// TestDownRemovesAll takes down a cluster of which only the state is left, as
// after a crash.
func TestDownRemovesAll(t *testing.T) {
	c := newCluster(t)
	if _, err := c.start(Etcd, []string{"sleep", "1000"}); err != nil {
		t.Fatal(err)
	}
	pid := c.process(Etcd).PID
	empty, used := filepath.Join(t.TempDir(), "empty"), filepath.Join(t.TempDir(), "used")
	for _, dir := range []string{empty, used} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(used, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	c.Removables = []string{empty, used}
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
	if anyAlive([]int{pid}) {
		t.Error("the process still runs")
	}
	if _, err := os.Stat(empty); err == nil {
		t.Error("a folder that was made outside was left")
	}
	if _, err := os.Stat(filepath.Join(used, "file")); err != nil {
		t.Errorf("somebody else's file was removed: %v", err)
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

// TestConfigurations parses what the programs get to read.
func TestConfigurations(t *testing.T) {
	c := newCluster(t)
	for name, text := range map[string]string{"kubelet": c.node().kubeletConfig(), "cni": c.node().cniConfig(), "audit": auditPolicy} {
		var object map[string]any
		if err := yaml.UnmarshalStrict([]byte(text), &object); err != nil {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
	for _, document := range strings.Split(stages, "\n---\n") {
		var object map[string]any
		if err := yaml.UnmarshalStrict([]byte(document), &object); err != nil {
			t.Errorf("%v\n%s", err, document)
		}
	}
	if limit := 15; len(c.NetworkBridge()) > limit {
		t.Errorf("the name of an interface has at most %d characters: %s", limit, c.NetworkBridge())
	}
	c.Options.Services = true
	var config struct{ Plugins []struct{ Type string } }
	if err := yaml.Unmarshal([]byte(c.node().cniConfig()), &config); err != nil || len(config.Plugins) != 2 {
		t.Errorf("a node with Services has two CNI plugins, got %+v, %v", config, err)
	}
	c.Options.RealNodes = maxRealNodes
	subnets := sets.New[string]()
	for _, n := range c.realNodes() {
		subnets.Insert(n.podSubnet())
	}
	if len(subnets) != maxRealNodes {
		t.Errorf("each node has a subnet of its own, got %v", sets.List(subnets))
	}
	if out, err := exec.Command("sh", "-c", "printf %s "+quote(`it's "a" $path`)).Output(); err != nil || string(out) != `it's "a" $path` {
		t.Errorf("the shell reads %q, %v", out, err)
	}
}

// TestMountPoints starts two clusters one after the other. Whichever ends first,
// the other one keeps what it has mounted something over.
func TestMountPoints(t *testing.T) {
	before := private
	t.Cleanup(func() { private = before })
	for name, order := range map[string][2]int{"first": {0, 1}, "second": {1, 0}} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			used := filepath.Join(root, "used")
			private = []string{filepath.Join(root, "cdi"), used}
			if err := os.MkdirAll(filepath.Join(used, "by-somebody-else"), 0o755); err != nil {
				t.Fatal(err)
			}
			clusters := [2]*Cluster{}
			for i := range clusters {
				c, err := New(Options{Repo: "/repo", Bin: "/bin", Dir: t.TempDir()}, t.Logf)
				if err != nil {
					t.Fatal(err)
				}
				c.Ports = map[string]int{APIServer: 6443 + i}
				if err := c.makeMountPoints(); err != nil {
					t.Fatal(err)
				}
				clusters[i] = c
			}
			for i, n := range order {
				if err := clusters[n].removeRemovables(); err != nil {
					t.Fatal(err)
				}
				_, err := os.Stat(private[0])
				if i == 0 && err != nil {
					t.Errorf("%s is gone with the first cluster: %v", private[0], err)
				}
				if i == 1 && !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s was left: %v", private[0], err)
				}
			}
			if entries, err := os.ReadDir(root); err != nil || len(entries) != 1 {
				t.Errorf("want only %s, got %v, %v", used, entries, err)
			}
			if entries, err := os.ReadDir(used); err != nil || len(entries) != 1 {
				t.Errorf("want %s as it was, got %v, %v", used, entries, err)
			}
		})
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
