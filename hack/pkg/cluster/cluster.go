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

// Package cluster runs a Kubernetes cluster on this machine from binaries: etcd
// and the control plane with TLS, RBAC and the node authorizer, any number of
// nodes simulated by kwok and, as root, one real node with containerd and a
// kubelet. Everything listens on addresses of the loopback interface only.
//
// A cluster survives the process that started it. Its folder holds all that
// later processes need to look at it, to restart a component of it and to take
// it down again.
package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"kubernetes-dra/hack/pkg/dist/image"
	"kubernetes-dra/hack/pkg/sys"
	"kubernetes-dra/hack/pkg/tools"
	"kubernetes-dra/hack/pkg/tree/ledger"
)

// Names of the components, as Restart and the logs call them.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kwok              = "kwok"
	Containerd        = "containerd"
	Kubelet           = "kubelet"
	Driver            = "dra-driver"
)

const (
	// RealNode is the name of the node with a kubelet.
	RealNode = "real"
	// DriverName is the DRA driver that runs on the real node. It serves
	// whatever devices a ResourceSlice lists under its name.
	DriverName = "shared.dra.example.com"
	// ShellImage has a shell and the usual commands. Pods on the real node
	// can use no other image but those in Options.Images.
	ShellImage = "docker.io/library/busybox:stable"
)

// Options say what cluster to start. The zero value of each has a meaning.
type Options struct {
	// Repo is the root of this repository.
	Repo string
	// Release names the release, for messages only.
	Release string
	// Bin holds the programs of Kubernetes.
	Bin string
	// Kubelet, if it is not nil, is another folder with the kubelet, of an older release for
	// example, and its gates in place of Gates.
	Kubelet *Programs
	// Dir is the folder of the cluster.
	Dir string
	// Gates are feature gates, for every component.
	Gates map[string]bool
	// LogLevel is the -v of every component of Kubernetes.
	LogLevel int
	// APIPort and EtcdPort are taken as they are, or any free ones if they
	// are 0.
	APIPort, EtcdPort int
	// SimulatedNodes is the number of nodes that kwok simulates.
	SimulatedNodes int
	// RealNodes is the number of nodes with a kubelet, 0 for one.
	RealNodes int
	// NoRealNode leaves them out even where they could run.
	NoRealNode bool
	// RuntimeConfig is the API server's --runtime-config.
	RuntimeConfig string
	// PodSubnet is the first two numbers of the IPv4 addresses of pods, Services and
	// real nodes, "10.200" for example. It is taken as it is, or any free one if it is empty.
	PodSubnet string
	// Images are for pods on the real node, besides ShellImage.
	Images []image.Image
	// Private are folders of which the real node has its own, besides those of
	// containerd and the kubelet.
	Private []string
	// Services makes Services work on real nodes, with a kube-proxy and a DNS server.
	Services bool
	// Kubeadm makes kubeadm start the control plane, if it is not nil.
	Kubeadm *Kubeadm
	// Bare leaves out everything but a real node with containerd. It has a network of its own, so
	// that somebody else's cluster can start there with whatever ports it wants.
	Bare bool
}

// Programs are programs of Kubernetes in a folder, with feature gates.
type Programs struct {
	Bin   string
	Gates map[string]bool
}

// Cluster is a cluster in a folder, whether it runs or not.
type Cluster struct {
	state
	// Log gets progress.
	Log func(format string, args ...any)
}

// state is what is remembered in cluster.json.
type state struct {
	Options Options
	// Facts are what the ledger says about the API server's release.
	Facts ledger.Release
	// Version is that of the API server: v1.36.3+dra.1.
	Version string
	// Ports of the components, by name.
	Ports map[string]int
	// PodSubnet is the one that was taken.
	PodSubnet string
	// Processes in the order in which they were started.
	Processes []*process
	// RealNode is true if there is one, NoRealNode says why not.
	RealNode   bool
	NoRealNode string
	// Removables are folders and files that were made outside of the cluster's
	// folder.
	Removables []string
	// Sysctls are the values from before the real node was started.
	Sysctls map[string]string
	// Addresses are those that were added to the loopback interface.
	Addresses []string
	// OwnProxyRules is true if no kube-proxy but this cluster's has made rules.
	OwnProxyRules bool
	// Ready is true after everything was healthy once.
	Ready bool
}

const stateFile = "cluster.json"

// New returns the cluster in opts.Dir: the one that was started there, or one
// that can be started.
func New(opts Options, log func(format string, args ...any)) (*Cluster, error) {
	for name, value := range map[string]string{"Repo": opts.Repo, "Bin": opts.Bin, "Dir": opts.Dir} {
		if !filepath.IsAbs(value) {
			return nil, fmt.Errorf("option %s must be an absolute path, not %q", name, value)
		}
		for _, dir := range opts.Private {
			if strings.HasPrefix(value+"/", filepath.Clean(dir)+"/") {
				return nil, fmt.Errorf("the real node has its own %s and would not see %s %s: put it somewhere else", dir, name, value)
			}
		}
	}
	if opts.RealNodes < 0 || opts.RealNodes > maxRealNodes {
		return nil, fmt.Errorf("there can be up to %d real nodes, not %d", maxRealNodes, opts.RealNodes)
	}
	if opts.RealNodes > 1 && opts.Kubeadm != nil {
		return nil, errors.New("kubeadm makes a cluster with one real node")
	}
	if opts.Services && opts.Kubeadm != nil {
		return nil, errors.New("kubeadm starts a kube-proxy itself")
	}
	if opts.Bare && (opts.RealNodes > 1 || opts.NoRealNode || opts.SimulatedNodes > 0 || opts.Services || opts.Kubeadm != nil) {
		return nil, errors.New("a bare cluster is one real node with containerd: leave out the other options")
	}
	if log == nil {
		log = func(string, ...any) {}
	}
	c := &Cluster{Log: log}
	c.Options = opts
	if err := c.load(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return c, nil
}

// Open returns the cluster that was started in a folder.
func Open(dir string, log func(format string, args ...any)) (*Cluster, error) {
	if log == nil {
		log = func(string, ...any) {}
	}
	c := &Cluster{Log: log}
	c.Options.Dir = dir
	if err := c.load(); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("no cluster was started in %s", dir)
		}
		return nil, err
	}
	return c, nil
}

func (c *Cluster) load() error {
	content, err := os.ReadFile(c.path(stateFile))
	if err != nil {
		return err
	}
	var s state
	if err := json.Unmarshal(content, &s); err != nil {
		return fmt.Errorf("%s: %w", c.path(stateFile), err)
	}
	// The folder may have been moved.
	s.Options.Dir = c.Options.Dir
	c.state = s
	return nil
}

func (c *Cluster) save() error {
	content, err := json.MarshalIndent(c.state, "", "  ")
	if err != nil {
		return err
	}
	return sys.WriteFile(c.path(stateFile), append(content, '\n'), 0o600)
}

// path is below the cluster's folder.
func (c *Cluster) path(elem ...string) string {
	return filepath.Join(append([]string{c.Options.Dir}, elem...)...)
}

// Kubeconfig is that of the administrator.
func (c *Cluster) Kubeconfig() string { return c.path("admin.kubeconfig") }

// Kubectl is the program.
func (c *Cluster) Kubectl() string { return filepath.Join(c.Options.Bin, "kubectl") }

// KubectlCommand is a call of it by the administrator, that has not been started.
func (c *Cluster) KubectlCommand(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, c.Kubectl(), append([]string{"--kubeconfig=" + c.Kubeconfig()}, args...)...)
}

// LogFile is where a component writes to.
func (c *Cluster) LogFile(component string) string { return c.path("logs", component+".log") }

// AuditLog has one line for each request that changed something in
// resource.k8s.io.
func (c *Cluster) AuditLog() string { return c.path("logs", "audit.log") }

// HasRealNode returns whether there is one and, if not, the reason.
func (c *Cluster) HasRealNode() (bool, string) {
	return c.state.RealNode, c.state.NoRealNode
}

// KubernetesVersion is that of the API server.
func (c *Cluster) KubernetesVersion() string { return c.Version }

// MinorVersion is that of the API server, 36 for example.
func (c *Cluster) MinorVersion() int { return ledger.Minor(c.Facts.Name) }

// id distinguishes clusters on one machine.
func (c *Cluster) id() string { return "kubernetes-dra-" + strconv.Itoa(c.Ports[APIServer]) }

// Running tells whether the cluster was started and which of its components
// do not run any more.
func (c *Cluster) Running() (started bool, dead []string) {
	for _, p := range c.Processes {
		if p.alive() {
			started = true
		} else {
			dead = append(dead, p.Name)
		}
	}
	return started, dead
}

// Up starts the cluster and waits until it is healthy. A cluster that runs
// already is left alone; what remains of one that does not is removed first.
func (c *Cluster) Up(ctx context.Context) (started bool, err error) {
	if err := os.MkdirAll(c.Options.Dir, 0o755); err != nil {
		return false, err
	}
	unlock, err := c.lock(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	if err := c.load(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}

	switch running, dead := c.Running(); {
	case running && len(dead) == 0 && c.Ready:
		return false, nil
	case running && c.Ready:
		return false, fmt.Errorf("the cluster in %s was started, but %s ended since; take it down first (make down).%s",
			c.Options.Dir, strings.Join(dead, ", "), c.logEnd(dead[0]))
	case len(c.Processes) > 0 || len(c.Removables) > 0:
		c.Log("removing what an earlier cluster left")
		if err := c.down(ctx); err != nil {
			return false, err
		}
	}

	start := time.Now()
	if err := c.up(ctx); err != nil {
		// Whatever runs would be in the way of the next attempt.
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if downErr := c.down(cleanup); downErr != nil {
			err = errors.Join(err, fmt.Errorf("and taking down what was started: %w", downErr))
		}
		return false, err
	}
	c.Log("up after %s", time.Since(start).Round(100*time.Millisecond))
	return true, nil
}

func (c *Cluster) up(ctx context.Context) error {
	opts := c.Options
	c.state = state{Options: opts, Ports: map[string]int{}}
	if err := c.findVersion(ctx); err != nil {
		return err
	}
	if err := os.RemoveAll(c.path("logs")); err != nil {
		return err
	}
	for _, dir := range []string{"logs", "pki", "config"} {
		if err := os.MkdirAll(c.path(dir), 0o755); err != nil {
			return err
		}
	}

	wanted := slices.Clone(tools.ControlPlane)
	reason, err := c.prepareMachine(ctx)
	if err != nil {
		return err
	}
	c.state.RealNode, c.state.NoRealNode = reason == "", reason
	if c.state.RealNode {
		wanted = append(wanted, tools.Node...)
		if opts.Services {
			wanted = append(wanted, DNS)
		}
	} else if opts.Kubeadm != nil {
		return fmt.Errorf("kubeadm needs a real node: %s", reason)
	} else if opts.Bare {
		return fmt.Errorf("there is no real node: %s", reason)
	} else {
		c.Log("no real node: %s", reason)
	}
	if err := tools.Build(ctx, opts.Repo, wanted, c.Log); err != nil {
		return err
	}
	if c.state.RealNode {
		if err := c.buildPrograms(ctx); err != nil {
			return err
		}
	}
	if err := c.choosePorts(); err != nil {
		return err
	}
	if err := c.choosePodSubnet(ctx); err != nil {
		return err
	}
	ours := opts.Kubeadm == nil && !opts.Bare
	if ours {
		if err := c.writeIdentities(); err != nil {
			return fmt.Errorf("certificates: %w", err)
		}
	}
	if err := c.save(); err != nil {
		return err
	}
	if ours {
		if err := c.startControlPlane(ctx); err != nil {
			return err
		}
	}
	if c.state.RealNode {
		if err := c.startRealNodes(ctx); err != nil {
			return err
		}
	}
	if opts.Bare {
		c.Ready = true
		return c.save()
	}
	if c.state.RealNode && opts.Services {
		if err := c.startServices(ctx); err != nil {
			return err
		}
	}
	if err := c.startSimulatedNodes(ctx); err != nil {
		return err
	}
	if err := c.waitForNodes(ctx); err != nil {
		return err
	}
	c.Ready = true
	return c.save()
}

var versionPattern = regexp.MustCompile(`^v(1\.[1-9]\d*)\.\S+`)

func (c *Cluster) findVersion(ctx context.Context) error {
	programs := []string{APIServer, ControllerManager, Scheduler, "kubectl"}
	if !c.Options.NoRealNode {
		programs = append(programs, Kubelet)
	}
	for _, program := range programs {
		if _, err := os.Stat(filepath.Join(c.Options.Bin, program)); err != nil {
			return fmt.Errorf("%s is not built (make build): %w", program, err)
		}
	}
	var err error
	if c.Version, err = VersionOf(ctx, c.Options.Bin); err != nil {
		return err
	}
	// A developer's build has no stamp, and says v0.0.0 or so.
	release := c.Options.Release
	if match := versionPattern.FindStringSubmatch(c.Version); match != nil {
		release = match[1]
	}
	l, err := ledger.Load(c.Options.Repo)
	if err != nil {
		return err
	}
	facts, err := l.Known(release)
	if err != nil {
		return fmt.Errorf("%s --version says %q: %w", APIServer, c.Version, err)
	}
	c.Facts = *facts
	return nil
}

// VersionOf is the version of the API server in a folder of programs.
func VersionOf(ctx context.Context, bin string) (string, error) {
	out, err := exec.CommandContext(ctx, filepath.Join(bin, APIServer), "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", APIServer, err)
	}
	return strings.TrimPrefix(strings.TrimSpace(string(out)), "Kubernetes "), nil
}

// IsPatched is true for versions with the carry.
func IsPatched(version string) bool { return strings.Contains(version, "+dra.") }

// Patched is true if the components that get started have the carry.
func (c *Cluster) Patched() bool { return IsPatched(c.Version) }

// choosePorts finds one for each component: those that were asked for, else
// the usual ones where they are free.
func (c *Cluster) choosePorts() error {
	for _, asked := range []struct {
		component, variable string
		port                int
	}{
		{APIServer, "API_PORT", c.Options.APIPort},
		{Etcd, "ETCD_PORT", c.Options.EtcdPort},
	} {
		if asked.port == 0 {
			continue
		}
		if err := c.reserve(asked.component, asked.port); err != nil {
			return fmt.Errorf("%s wants port %d: %w; set %s to another one", asked.component, asked.port, err, asked.variable)
		}
	}
	if c.Options.Kubeadm != nil {
		if err := c.reserveKubeadmPorts(); err != nil {
			return err
		}
	}
	type component struct {
		component string
		port      int
	}
	usual := []component{
		{APIServer, 0}, {Etcd, 0}, {"etcd-peer", 0},
		{ControllerManager, 10257}, {Scheduler, 10259}, {Kwok, 10247}, {Kubelet, 10250}, {kubeletHealth, 10248},
	}
	for _, n := range c.realNodes() {
		usual = append(usual, component{n.of(kubeletHealth), 0})
	}
	// Not its usual one: nobody listens there yet, and another cluster would take it, too.
	usual = append(usual, component{NetworkDaemonSet, 0})
	if c.Options.Bare {
		// Nothing listens. One number tells clusters apart.
		usual = []component{{APIServer, 0}}
	}
	if c.Options.Services {
		usual = append(usual, component{proxyHealth, 0}, component{proxyMetrics, 0}, component{dnsReady, 0})
	}
	for _, u := range usual {
		if c.Ports[u.component] != 0 {
			continue
		}
		if u.port != 0 && c.reserve(u.component, u.port) == nil {
			continue
		}
		for c.Ports[u.component] == 0 {
			l, err := net.Listen("tcp4", "127.0.0.1:0")
			if err != nil {
				return err
			}
			port := l.Addr().(*net.TCPAddr).Port
			_ = l.Close()
			_ = c.reserve(u.component, port)
		}
	}
	return nil
}

func (c *Cluster) reserve(component string, port int) error {
	for other, taken := range c.Ports {
		if taken == port {
			return fmt.Errorf("%s has it", other)
		}
	}
	// Any address: the kubelet has one of its own, and something that
	// listens on all of them is in the way.
	l, err := net.Listen("tcp4", ":"+strconv.Itoa(port))
	if err != nil {
		return err
	}
	c.Ports[component] = port
	return l.Close()
}

// address is where a component listens.
func (c *Cluster) address(component string) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Ports[component]))
}

// lock waits until no other process starts or stops the cluster.
func (c *Cluster) lock(ctx context.Context) (func(), error) {
	return sys.Lock(ctx, c.Options.Dir+".lock", func() { c.Log("another process starts or stops this cluster, waiting for it") })
}

// poll calls check every quarter of a second until it returns no error. The
// last error is returned with what was waited for.
func poll(ctx context.Context, timeout time.Duration, what string, check func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not after %s", timeout))
	defer cancel()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		var stop stopError
		if errors.As(err, &stop) {
			return fmt.Errorf("%s: %w", what, stop.error)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %w", what, context.Cause(ctx), err)
		case <-time.After(250 * time.Millisecond):
		}
	}
}

// stopError ends poll.
type stopError struct{ error }
