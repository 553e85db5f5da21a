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
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-dra/hack/pkg/sys"
	"kubernetes-dra/hack/pkg/tools"
)

// A real node has namespaces of its own for mounts and processes, like a
// container, but with the host's network. All its processes end with process 1
// of it, and its mounts with them. What a kubelet and a container runtime keep
// at fixed paths is invisible outside; a container runtime that this machine has
// already, another real node, or a second cluster, is not disturbed.

// realNode is one of the nodes with a kubelet.
type realNode struct {
	*Cluster
	// index of it, from 0 on.
	index int
}

// realNodes are all of them. There is one where nobody asked for more.
func (c *Cluster) realNodes() []*realNode {
	var nodes []*realNode
	for i := range max(1, c.Options.RealNodes) {
		nodes = append(nodes, &realNode{c, i})
	}
	return nodes
}

// node is the first of them, which tests and demos use.
func (c *Cluster) node() *realNode { return &realNode{c, 0} }

// of is the name of what each node has one of: its components, their logs and files. The first node
// has the name itself.
func (n *realNode) of(name string) string {
	if n.index == 0 {
		return name
	}
	return name + "-" + strconv.Itoa(n.index+1)
}

// dir is a path in the folder of the node.
func (n *realNode) dir(elem ...string) string {
	return n.path(append([]string{n.of("node")}, elem...)...)
}

// address is that of the node, on the loopback interface: 127.0.0.1 cannot be the
// address of a node.
func (n *realNode) address() string { return n.PodSubnet + ".127." + strconv.Itoa(n.index+1) }

// maxRealNodes is how many there are subnets for.
const maxRealNodes = 4

// podSubnet has the addresses of its pods.
func (n *realNode) podSubnet() string {
	return fmt.Sprintf("%s.%d.0/20", n.PodSubnet, 16*n.index)
}

// private are the folders which the real node does not share with the host.
var private = []string{
	"/run/containerd",
	cdiDir,
	"/var/lib/cni",
	"/var/lib/kubelet",
	"/var/log/containers",
	"/var/log/pods",
	networkConfigs,
}

func (c *Cluster) private() []string {
	dirs := append(slices.Clone(private), c.Options.Private...)
	if c.Options.Kubeadm != nil {
		dirs = append(dirs, kubeadmPrivate...)
	}
	return dirs
}

// sysctls are those that a kubelet, kube-proxy, CNI plugins and this program set.
var sysctls = []string{
	"kernel/keys/root_maxbytes",
	"kernel/keys/root_maxkeys",
	"kernel/panic",
	"kernel/panic_on_oops",
	"net/ipv4/ip_forward",
	"net/ipv6/conf/all/forwarding",
	"vm/overcommit_memory",
	"vm/panic_on_oom",
}

// neededSysctls are those that a machine has only if it ran containers before, or if its
// administrator made it a node: kubeadm refuses one that does not forward, and pods could not reach
// each other.
var neededSysctls = map[string]string{"net/ipv4/ip_forward": "1"}

// sysctlRoot is where the kernel has them.
var sysctlRoot = "/proc/sys"

const (
	kubeletHealth = "kubelet-healthz"

	cdiDir           = "/run/cdi"
	nriSocket        = "/run/containerd/nri/nri.sock"
	netNSDir         = "/run/containerd/io.containerd.grpc.v1.cri/netns" // of pods
	containerdSocket = "/run/containerd/containerd.sock"
	driverReady      = "/var/lib/kubelet/plugins/" + DriverName + "/ready"
)

func (c *Cluster) startRealNodes(ctx context.Context) error {
	if err := c.rememberSysctls(); err != nil {
		return err
	}
	if !c.Options.Bare {
		if err := setSysctls(neededSysctls); err != nil {
			return err
		}
	}
	if err := c.makeMountPoints(); err != nil {
		return err
	}
	start := time.Now()
	archives, err := c.archives(ctx)
	if err != nil {
		return err
	}
	c.Log("%d images are written after %s", len(archives), time.Since(start).Round(100*time.Millisecond))
	for _, n := range c.realNodes() {
		if err := n.up(ctx, archives); err != nil {
			return err
		}
	}
	return os.RemoveAll(c.path(imagesDir))
}

// up starts everything of the node, with the images in archives.
func (n *realNode) up(ctx context.Context, archives []string) error {
	start := time.Now()
	for _, dir := range []string{"cni", "containerd", "nri"} {
		if err := os.MkdirAll(n.dir(dir), 0o755); err != nil {
			return err
		}
	}
	if err := createCgroup(n.of(n.id())); err != nil {
		return err
	}
	if !n.Options.Bare {
		if err := n.addAddress(ctx, n.address()); err != nil {
			return err
		}
	}
	if err := n.startContainerd(ctx); err != nil {
		return err
	}
	if err := n.importImages(ctx, archives); err != nil {
		return err
	}
	if n.Options.Bare {
		n.Log("a node with containerd alone is up after %s", time.Since(start).Round(100*time.Millisecond))
		return nil
	}
	if n.Options.Kubeadm != nil {
		if err := n.kubeadmInit(ctx); err != nil {
			return err
		}
	} else if err := n.startKubelet(ctx, nil); err != nil {
		return err
	}
	if err := n.startDriver(ctx); err != nil {
		return err
	}
	n.Log("node %s with containerd, kubelet and a DRA driver is up after %s", n.of(RealNode), time.Since(start).Round(100*time.Millisecond))
	return nil
}

// buildPrograms builds our own programs that run on the node, as carry is
// built: most of what they need is in the build cache then.
func (c *Cluster) buildPrograms(ctx context.Context) error {
	start := time.Now()
	type program struct{ program, pkg string }
	programs := []program{{"pause", "./test/cluster/pause"}}
	if !c.Options.Bare {
		programs = append(programs, program{"dra-driver", "./test/cluster/driver"}, program{NetworkDaemonSet, "./cmd/dra-network-driver"})
	}
	for _, p := range programs {
		// Images have no C library.
		env := append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
		if err := sys.Run(ctx, sys.Command(ctx, c.Options.Repo, env, "go", "build", "-o", c.own(p.program), p.pkg)); err != nil {
			return fmt.Errorf("%s: %w", p.pkg, err)
		}
	}
	c.Log("programs of the real node are built after %s", time.Since(start).Round(100*time.Millisecond))
	return nil
}

// own is a program of ours. It is not in the cluster's folder, so that it is
// built only once.
func (c *Cluster) own(program string) string {
	return filepath.Join(c.Options.Repo, "_output", "bin", program)
}

func (c *Cluster) rememberSysctls() error {
	values := map[string]string{}
	for _, name := range sysctls {
		if c.Options.Bare && strings.HasPrefix(name, "net/") {
			// Its node has its own.
			continue
		}
		content, err := os.ReadFile(filepath.Join(sysctlRoot, name))
		if err == nil {
			values[name] = strings.TrimSpace(string(content))
		}
	}
	for _, other := range c.otherMarks() {
		for name := range values {
			if before, found := other.Sysctls[name]; found {
				values[name] = before
			}
		}
	}
	c.Sysctls = values
	return c.save()
}

// restoreSysctls sets them to what they were, whoever changed them. If other clusters
// need them still, the last one does that.
func (c *Cluster) restoreSysctls() error {
	if len(c.otherMarks()) > 0 {
		return nil
	}
	return setSysctls(c.Sysctls)
}

// setSysctls sets those that have another value.
func setSysctls(values map[string]string) error {
	var errs []error
	for name, value := range values {
		file := filepath.Join(sysctlRoot, name)
		if content, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(content)) == value {
			continue
		}
		if err := os.WriteFile(file, []byte(value+"\n"), 0); err != nil {
			errs = append(errs, fmt.Errorf("set sysctl %s to %s: %w", strings.ReplaceAll(name, "/", "."), value, err))
		}
	}
	return errors.Join(errs...)
}

// makeMountPoints makes the private folders, and remembers those that were not
// there. Each cluster has a mark in each folder: one that another cluster removes
// is not mounted over any more, in whatever namespace, so the last one does that.
func (c *Cluster) makeMountPoints() error {
	content, err := json.Marshal(mark{c.Options.Dir, c.Sysctls})
	if err != nil {
		return err
	}
	remember := func(path string) error {
		c.Removables = append(c.Removables, path)
		return c.save()
	}
	for _, dir := range c.private() {
		for _, n := range c.realNodes() {
			if err := os.MkdirAll(n.dir("root", dir), 0o755); err != nil {
				return err
			}
		}
		var missing []string
		for d := dir; ; d = filepath.Dir(d) {
			theirs, err := onlyMarks(d)
			if err == nil && !theirs {
				break
			} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			missing = append(missing, d)
		}
		for _, d := range slices.Backward(missing) {
			if err := remember(d); err != nil {
				return err
			}
			if err := os.Mkdir(d, 0o755); err != nil && !os.IsExist(err) {
				return err
			}
		}
		name := filepath.Join(dir, markPrefix+c.id())
		if err := remember(name); err != nil {
			return err
		}
		if err := os.WriteFile(name, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// markPrefix is the beginning of the name of a cluster's mark.
const markPrefix = ".mounted-by-"

// mark says whose it is, and what the machine was set to before its cluster was there.
type mark struct {
	Dir     string
	Sysctls map[string]string
}

// otherMarks are those of other clusters on this machine that have not been taken down.
func (c *Cluster) otherMarks() []mark {
	var others []mark
	names, _ := filepath.Glob(filepath.Join(private[0], markPrefix+"*"))
	for _, name := range names {
		content, err := os.ReadFile(name)
		var m mark
		if filepath.Base(name) == markPrefix+c.id() || err != nil || json.Unmarshal(content, &m) != nil {
			continue
		}
		// Somebody may have removed the folder of a cluster, and left its mark.
		if _, err := os.Stat(filepath.Join(m.Dir, stateFile)); err == nil {
			others = append(others, m)
		}
	}
	return others
}

// onlyMarks returns true for a folder which clusters made for themselves.
func onlyMarks(dir string) (bool, error) {
	entries, err := os.ReadDir(dir)
	return len(entries) > 0 && !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return !strings.HasPrefix(e.Name(), markPrefix) }), err
}

func (n *realNode) containerdConfig(snapshotter string) string {
	return fmt.Sprintf(`version = 3
root = %q
state = '/run/containerd'
disabled_plugins = [
  'io.containerd.internal.v1.tracing',
  'io.containerd.snapshotter.v1.blockfile',
  'io.containerd.snapshotter.v1.btrfs',
  'io.containerd.snapshotter.v1.devmapper',
  'io.containerd.snapshotter.v1.erofs',
  'io.containerd.snapshotter.v1.zfs',
  'io.containerd.tracing.processor.v1.otlp',
]

[grpc]
  address = %q

[plugins.'io.containerd.internal.v1.opt']
  path = %q

# Plugins connect to the socket. The machine's own are not for this node. The time limit
# is the one that containerd has by default: who takes longer is not asked any more.
# The validator only looks at pods that name the plugins which they need.
[plugins.'io.containerd.nri.v1.nri']
  disable = false
  socket_path = %q
  plugin_path = %q
  plugin_config_path = %q
  plugin_request_timeout = '2s'

  [plugins.'io.containerd.nri.v1.nri'.default_validator]
    enable = true

[plugins.'io.containerd.cri.v1.images']
  snapshotter = %q

  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = %q

[plugins.'io.containerd.grpc.v1.cri']
  stream_server_address = '127.0.0.1'
  stream_server_port = '0'

[plugins.'io.containerd.cri.v1.runtime']
  enable_cdi = true
  cdi_spec_dirs = [%q]
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true

  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = 'runc'

    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
      runtime_type = 'io.containerd.runc.v2'

      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
        BinaryName = %q
        SystemdCgroup = false

  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = [%q]
    conf_dir = %q
`, n.dir("containerd"), containerdSocket, n.dir("opt"), nriSocket, n.dir("nri"), n.dir("nri"), snapshotter, pauseImage,
		cdiDir, n.tool("runc"), tools.Dir(n.Options.Repo), n.dir("cni"))
}

// cniConfig connects each pod to this machine, which forwards between them: also between nodes, and
// to what kube-proxy makes of the address of a Service.
func (n *realNode) cniConfig() string {
	hostPorts := ""
	if n.Options.Services {
		// It executes iptables.
		hostPorts = `,
    {
      "type": "portmap",
      "capabilities": {"portMappings": true}
    }`
	}
	return fmt.Sprintf(`{
  "cniVersion": "1.0.0",
  "name": %q,
  "plugins": [
    {
      "type": "ptp",
      "ipMasq": false,
      "ipam": {
        "type": "host-local",
        "dataDir": "/var/lib/cni/networks",
        "ranges": [[{"subnet": %q}]],
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    }%s
  ]
}
`, n.id(), n.podSubnet(), hostPorts)
}

// snapshotter is the fast one, if the file system allows it.
func (n *realNode) snapshotter(ctx context.Context) string {
	dir, err := os.MkdirTemp(n.dir(), "overlay-")
	if err != nil {
		return "native"
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for _, sub := range []string{"lower", "upper", "work", "merged"} {
		_ = os.Mkdir(filepath.Join(dir, sub), 0o755)
	}
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "mount", "-t", "overlay", "-o", "lowerdir=lower,upperdir=upper,workdir=work", "overlay", "merged")
	cmd.Dir = dir
	if cmd.Run() != nil {
		return "native"
	}
	return "overlayfs"
}

func (n *realNode) startContainerd(ctx context.Context) error {
	start := time.Now()
	config, script := n.path("config", n.of("containerd")+".toml"), n.path("config", n.of("node")+".sh")
	snapshotter := n.snapshotter(ctx)
	if err := os.WriteFile(config, []byte(n.containerdConfig(snapshotter)), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(n.dir("cni", "10-ptp.conflist"), []byte(n.cniConfig()), 0o644); err != nil {
		return err
	}
	// The shell is process 1 of the node: it waits for the children of those
	// that ended.
	var b strings.Builder
	b.WriteString("set -e\nmount --make-rshared /\n")
	for _, dir := range n.private() {
		fmt.Fprintf(&b, "mount --bind %s %s\n", quote(n.dir("root", dir)), quote(dir))
	}
	if n.Options.Bare {
		fmt.Fprintf(&b, "ip link set lo up\nip address add %s/32 dev lo\n", n.address())
		for _, name := range slices.Sorted(maps.Keys(neededSysctls)) {
			fmt.Fprintf(&b, "echo %s >/proc/sys/%s\n", neededSysctls[name], name)
		}
	}
	// A containerd that was killed is started again, as a service manager would. What
	// it does itself, like ending because its configuration is wrong, ends the node.
	fmt.Fprintf(&b, "while true; do\n  %s --config %s &\n  status=0\n  wait $! || status=$?\n  [ $status -gt 128 ] || exit $status\ndone\n", quote(n.tool("containerd")), quote(config))
	if err := os.WriteFile(script, []byte(b.String()), 0o644); err != nil {
		return err
	}
	unshare := []string{"unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation=slave"}
	if n.Options.Bare {
		unshare = append(unshare, "--net")
	}
	p, err := n.start(n.of(Containerd), append(unshare, "sh", script), tools.Dir(n.Options.Repo))
	if err != nil {
		return err
	}
	if err := n.waitForContainerd(ctx, p); err != nil {
		return err
	}
	n.Log("containerd (%s) is healthy after %s", snapshotter, time.Since(start).Round(100*time.Millisecond))
	return nil
}

func (n *realNode) waitForContainerd(ctx context.Context, p *process) error {
	return n.waitHealthy(ctx, p, time.Minute, func(ctx context.Context) error {
		init, err := n.init()
		if err != nil {
			return err
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", fmt.Sprintf("/proc/%d/root%s", init, containerdSocket))
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// containerd is the process of the container runtime of the real node.
func (c *Cluster) containerd() (int, error) {
	init, err := c.node().init()
	if err != nil {
		return 0, err
	}
	for _, pid := range allProcesses() {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if stat, statErr := readStat(pid); err == nil && statErr == nil && stat.parent == init && filepath.Base(exe) == Containerd {
			return pid, nil
		}
	}
	return 0, errors.New("containerd does not run")
}

// KillContainerd ends the container runtime of the real node like a crash does. Pods
// keep running. It returns when the next one answers.
func (c *Cluster) KillContainerd(ctx context.Context) error {
	before, err := c.containerd()
	if err != nil {
		return err
	}
	killPID(before)
	err = poll(ctx, time.Minute, "start containerd again", func(context.Context) error {
		if now, err := c.containerd(); err != nil || now == before {
			return errors.New("it has not begun")
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.node().waitForContainerd(ctx, c.process(Containerd))
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// init is process 1 of the node, as the host knows it.
func (n *realNode) init() (int, error) {
	p := n.process(n.of(Containerd))
	if p == nil || !p.alive() {
		return 0, errors.New("containerd does not run")
	}
	for _, pid := range allProcesses() {
		if stat, err := readStat(pid); err == nil && stat.parent == p.PID {
			return pid, nil
		}
	}
	return 0, errors.New("containerd has not begun")
}

// inside is a command line that runs another one on the node.
func (n *realNode) inside(args ...string) ([]string, error) {
	init, err := n.init()
	if err != nil {
		return nil, err
	}
	nsenter := []string{"nsenter", "--target=" + strconv.Itoa(init), "--mount", "--pid"}
	if n.Options.Bare {
		nsenter = append(nsenter, "--net")
	}
	return slices.Concat(nsenter, []string{"--"}, args), nil
}

// RunInNode runs a command on the first real node, and returns its output. What it says
// besides is part of the error, if there is one.
func (c *Cluster) RunInNode(ctx context.Context, args ...string) (string, error) {
	return c.node().run(ctx, args...)
}

func (n *realNode) run(ctx context.Context, args ...string) (string, error) {
	full, err := n.inside(args...)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, full[0], full[1:]...)
	cmd.Env = append(os.Environ(), "CONTAINERD_ADDRESS="+containerdSocket)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)+stderr.String()))
	}
	return string(out), nil
}

func (n *realNode) importImages(ctx context.Context, archives []string) error {
	for _, archive := range archives {
		// The socket is there before everything behind it is.
		err := poll(ctx, time.Minute, "import "+archive, func(ctx context.Context) error {
			_, err := n.run(ctx, n.tool("ctr"), "--namespace=k8s.io", "images", "import", archive)
			return err
		})
		if err != nil {
			return fmt.Errorf("%w%s", err, n.logEnd(n.of(Containerd)))
		}
	}
	return nil
}

func (n *realNode) kubeletConfig() string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %[1]s
port: %[2]d
healthzBindAddress: 127.0.0.1
healthzPort: %[3]d
readOnlyPort: 0
tlsCertFile: %[4]q
tlsPrivateKeyFile: %[5]q
authentication:
  anonymous:
    enabled: false
  webhook:
    enabled: true
  x509:
    clientCAFile: %[6]q
authorization:
  mode: Webhook
containerRuntimeEndpoint: unix://%[7]s
cgroupDriver: cgroupfs
cgroupRoot: /%[8]s
failCgroupV1: false
failSwapOn: false
makeIPTablesUtilChains: false
volumePluginDir: /var/lib/kubelet/volume-plugins
clusterDomain: cluster.local
clusterDNS: [%[9]s]
resolvConf: ""
nodeStatusUpdateFrequency: 5s
# The disk is the user's own business.
imageGCHighThresholdPercent: 100
evictionHard:
  memory.available: 50Mi
  nodefs.available: 0%%
  nodefs.inodesFree: 0%%
  imagefs.available: 0%%
  imagefs.inodesFree: 0%%
`, n.address(), n.Ports[Kubelet], n.Ports[n.of(kubeletHealth)], n.pki(n.of(Kubelet)+".crt"), n.pki(n.of(Kubelet)+".key"), n.pki("ca.crt"),
		containerdSocket, n.of(n.id()), n.dnsServiceIP())
}

func (n *realNode) startKubelet(ctx context.Context, gates map[string]bool) error {
	start := time.Now()
	config := n.path("config", n.of(Kubelet)+".yaml")
	if err := os.WriteFile(config, []byte(n.kubeletConfig()), 0o644); err != nil {
		return err
	}
	args, err := n.inside(slices.Concat(n.common(Kubelet, gates), []string{
		"--config=" + config,
		"--kubeconfig=" + n.kubeconfig(n.of(Kubelet)),
		"--hostname-override=" + n.of(RealNode),
		"--node-ip=" + n.address(),
		"--node-labels=" + TypeLabel + "=real",
	})...)
	if err != nil {
		return err
	}
	if err := n.waitForPort(ctx, Kubelet, n.address()); err != nil {
		return err
	}
	p, err := n.start(n.of(Kubelet), args, tools.Dir(n.Options.Repo))
	if err != nil {
		return err
	}
	if err := n.waitForAnswer(ctx, p, "http://"+n.Cluster.address(n.of(kubeletHealth))+"/healthz"); err != nil {
		return err
	}
	// Healthy it is before it registers.
	api, err := n.clientset()
	if err != nil {
		return err
	}
	err = n.waitHealthy(ctx, p, 2*time.Minute, func(ctx context.Context) error {
		_, err := api.CoreV1().Nodes().Get(ctx, n.of(RealNode), metav1.GetOptions{})
		return err
	})
	if err != nil {
		return err
	}
	n.Log("kubelet on %s:%d is healthy after %s", n.address(), n.Ports[Kubelet], time.Since(start).Round(100*time.Millisecond))
	return nil
}

func (n *realNode) startDriver(ctx context.Context) error {
	args, err := n.inside(
		n.own("dra-driver"),
		"--driver-name="+DriverName,
		"--node-name="+n.of(RealNode),
		"--kubeconfig="+n.kubeconfig(Driver),
		"--data-dir="+filepath.Dir(driverReady),
		"--registry-dir=/var/lib/kubelet/plugins_registry",
		"--cdi-dir="+cdiDir,
		"--ready-file="+driverReady,
		"-v="+strconv.Itoa(max(2, n.Options.LogLevel)),
	)
	if err != nil {
		return err
	}
	ready := n.dir("root", driverReady)
	if err := os.Remove(ready); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	p, err := n.start(n.of(Driver), args)
	if err != nil {
		return err
	}
	return n.waitHealthy(ctx, p, time.Minute, func(context.Context) error {
		_, err := os.Stat(ready)
		return err
	})
}
