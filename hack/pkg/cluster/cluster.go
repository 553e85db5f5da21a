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

// Package cluster runs a Kubernetes cluster on this machine from binaries. Up, in up.go, lists what it
// consists of, and each part has a file:
//
//   - processes: the programs that run in the background
//   - identity: who everybody is: certificates and kubeconfigs
//   - controlPlane: etcd, API server, controller manager and scheduler, with RBAC and the node authorizer
//   - realNode: as root, a node with containerd, a kubelet and a DRA driver
//   - simulatedNodes: any number of nodes without containers, by kwok
//   - services: what makes Services work, for those who want them
//   - traces: what is changed outside of the cluster's folder, and how it was before
//
// Everything listens on addresses of the loopback interface only.
//
// A cluster survives the process that started it. Its folder holds all that later processes need to look
// at it, to restart a component of it and to take it down again.
package cluster

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"text/template"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"kubernetes-dra/hack/pkg/dist/image"
	"kubernetes-dra/hack/pkg/sys"
	"kubernetes-dra/hack/pkg/tools"
	"kubernetes-dra/hack/pkg/tree/ledger"
)

// Names of the components, as Start and the logs call them.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kwok              = "kwok"
	Containerd        = "containerd"
	Kubelet           = "kubelet"
	Driver            = "dra-driver"
	Proxy             = "kube-proxy"
	DNS               = "coredns"
)

const (
	// RealNode is the name of the node with a kubelet.
	RealNode = "real"
	// DriverName is the DRA driver that runs on the real node. It serves whatever devices a
	// ResourceSlice lists under its name.
	DriverName = "shared.dra.example.com"
	// ShellImage has a shell and the usual commands. Pods on the real node can use no other image but
	// those in Options.Images.
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
	// APIPort and EtcdPort are taken as they are, or any free ones if they are 0.
	APIPort, EtcdPort int
	// SimulatedNodes is the number of nodes that kwok simulates.
	SimulatedNodes int
	// ControlPlanes is the number of control planes, 0 for one. See [Member].
	ControlPlanes int
	// RealNodes is the number of nodes with a kubelet, 0 for one.
	RealNodes int
	// NoRealNode leaves them out even where they could run.
	NoRealNode bool
	// RuntimeConfig is the API server's --runtime-config.
	RuntimeConfig string
	// PodSubnet is the first two numbers of the IPv4 addresses of pods, Services and real nodes,
	// "10.200" for example. It is taken as it is, or any free one if it is empty.
	PodSubnet string
	// Images are for pods on the real node, besides ShellImage, and Archives files with more of them.
	Images   []image.Image
	Archives []string
	// Private are folders of which the real node has its own, besides those of containerd and the
	// kubelet.
	Private []string
	// Services makes Services work on real nodes, with a kube-proxy and a DNS server.
	Services bool
	// Bare leaves out everything but a real node with containerd. It has a network of its own, so
	// that somebody else's cluster can start there with whatever ports it wants.
	Bare bool
}

// WantsRealNode is false if there is certainly no real node.
func (o *Options) WantsRealNode() bool { return !o.NoRealNode && os.Geteuid() == 0 }

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
	Ports ports
	// PodSubnet is the one that was taken.
	PodSubnet string
	Processes processes
	Traces    traces
	// RealNode is true if there is one, NoRealNode says why not.
	RealNode   bool
	NoRealNode string
	// Ready is true after everything was healthy once.
	Ready bool
}

const stateFile = "cluster.json"

// New returns the cluster in opts.Dir: the one that was started there, or one that can be started.
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
	if opts.Bare && (opts.RealNodes > 1 || opts.NoRealNode || opts.SimulatedNodes > 0 || opts.Services) {
		return nil, errors.New("a bare cluster is one real node with containerd: leave out the other options")
	}
	if err := opts.checkControlPlanes(); err != nil {
		return nil, err
	}
	c := inFolder(opts, log)
	if err := c.load(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return c, nil
}

// Open returns the cluster that was started in a folder.
func Open(dir string, log func(format string, args ...any)) (*Cluster, error) {
	c := inFolder(Options{Dir: dir}, log)
	if err := c.load(); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no cluster was started in %s", dir)
	} else if err != nil {
		return nil, err
	}
	return c, nil
}

func inFolder(opts Options, log func(format string, args ...any)) *Cluster {
	if log == nil {
		log = func(string, ...any) {}
	}
	return &Cluster{Log: log, state: state{Options: opts, Processes: processes{dir: opts.Dir}}}
}

// load reads the state, if there is one.
func (c *Cluster) load() error {
	s, err := readState(c.Options.Dir)
	if err == nil {
		c.state = s
	}
	return err
}

func readState(dir string) (s state, err error) {
	content, err := os.ReadFile(filepath.Join(dir, stateFile))
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(content, &s); err != nil {
		return s, fmt.Errorf("%s: %w; end what runs of the cluster, and remove the file", filepath.Join(dir, stateFile), err)
	}
	// The folder may have been moved.
	s.Options.Dir, s.Processes.dir = dir, dir
	return s, nil
}

func (c *Cluster) save() error {
	content, err := json.MarshalIndent(c.state, "", "  ")
	if err != nil {
		return err
	}
	return sys.WriteFile(c.path(stateFile), append(content, '\n'), 0o600)
}

// run starts a program in the background, and remembers it.
func (c *Cluster) run(name string, args []string, path ...string) (*process, error) {
	p, err := c.Processes.start(name, args, path...)
	if err != nil {
		return nil, err
	}
	return p, c.save()
}

// path is below the cluster's folder.
func (c *Cluster) path(elem ...string) string {
	return filepath.Join(append([]string{c.Options.Dir}, elem...)...)
}

//go:embed config
var configs embed.FS

// render fills in one of the files in the folder config.
func render(name string, values map[string]any) (string, error) {
	content, err := configs.ReadFile("config/" + name)
	if err != nil || values == nil {
		return string(content), err
	}
	t, err := template.New(name).Option("missingkey=error").Parse(string(content))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = t.Execute(&b, values)
	return b.String(), err
}

// writeConfig writes a file of the folder config for a component, and returns its path.
func (c *Cluster) writeConfig(name string, values map[string]any) (string, error) {
	text, err := render(name, values)
	if err != nil {
		return "", err
	}
	name = c.path("config", name)
	return name, os.WriteFile(name, []byte(text), 0o600)
}

// apply applies a manifest of the folder config. Right after the start of the API server, not all that it
// needs may be there.
func (c *Cluster) apply(ctx context.Context, name string, values map[string]any) error {
	file, err := c.writeConfig(name, values)
	if err != nil {
		return err
	}
	return poll(ctx, time.Minute, "apply "+name, func(ctx context.Context) error {
		return sys.Run(ctx, c.KubectlCommand(ctx, "apply", "--cache-dir="+c.path("kubectl-cache"), "-f", file))
	})
}

func (c *Cluster) tool(name string) string { return filepath.Join(tools.Dir(c.Options.Repo), name) }

// Own is a program of ours for the real node. It is not in the cluster's folder, so that it is built only
// once.
func (c *Cluster) Own(program string) string {
	return filepath.Join(c.Options.Repo, "_output", "bin", program)
}

// Kubeconfig is that of the administrator, for the first API server.
func (c *Cluster) Kubeconfig() string { return c.MemberKubeconfig(1) }

// MemberKubeconfig is that of the administrator for the API server of one of several control planes, counted
// from 1.
func (c *Cluster) MemberKubeconfig(number int) string {
	return c.path(Member("admin", number) + ".kubeconfig")
}

// ComponentKubeconfig has the identity of a component.
func (c *Cluster) ComponentKubeconfig(component string) string {
	return c.path("config", component+".kubeconfig")
}

// Kubectl is the program.
func (c *Cluster) Kubectl() string { return filepath.Join(c.Options.Bin, "kubectl") }

// KubectlCommand is a call of it by the administrator, that has not been started.
func (c *Cluster) KubectlCommand(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, c.Kubectl(), append([]string{"--kubeconfig=" + c.Kubeconfig()}, args...)...)
}

// Config returns a client configuration of the administrator's, for the first API server.
func (c *Cluster) Config() (*rest.Config, error) { return c.MemberConfig(1) }

// MemberConfig returns one for the API server of one of several control planes, counted from 1.
func (c *Cluster) MemberConfig(number int) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.MemberKubeconfig(number))
	if err != nil {
		return nil, err
	}
	// The caller knows what it wants to send.
	config.QPS, config.Burst = 1000, 2000
	return config, nil
}

// clientset is one of the administrator's for what all releases have.
func (c *Cluster) clientset() (*kubernetes.Clientset, error) {
	config, err := c.Config()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// AuditLog has one line for each request that changed something in resource.k8s.io.
func (c *Cluster) AuditLog() string { return c.Processes.logFile("audit") }

// HasRealNode returns whether there is one and, if not, the reason.
func (c *Cluster) HasRealNode() (bool, string) { return c.state.RealNode, c.state.NoRealNode }

// KubernetesVersion is that of the API server.
func (c *Cluster) KubernetesVersion() string { return c.Version }

// MinorVersion is that of the API server, 36 for example.
func (c *Cluster) MinorVersion() int { return ledger.Minor(c.Facts.Name) }

// id distinguishes clusters on one machine.
func (c *Cluster) id() string { return "kubernetes-dra-" + strconv.Itoa(c.Ports[APIServer]) }

// Running tells whether the cluster was started and which of its components do not run any more.
func (c *Cluster) Running() (started bool, dead []string) {
	dead = c.Processes.dead()
	return len(dead) < len(c.Processes.Started), dead
}

// Use lets components that get started from now on be those of another folder, with other feature gates.
// They may be of another release. Nothing gets restarted.
func (c *Cluster) Use(ctx context.Context, bin string, gates map[string]bool) error {
	c.Options.Bin = bin
	if err := c.findVersion(ctx); err != nil {
		return err
	}
	c.Options.Gates = withGates(c.neededGates(), gates)
	return nil
}

var versionPattern = regexp.MustCompile(`^v(1\.[1-9]\d*)\.\S+`)

func (c *Cluster) findVersion(ctx context.Context) error {
	programs := []string{APIServer, ControllerManager, Scheduler, "kubectl"}
	if c.Options.WantsRealNode() {
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
