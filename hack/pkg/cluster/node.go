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
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-dra/hack/pkg/dist/image"
	"kubernetes-dra/hack/pkg/tools"
)

// realNode is one of the nodes with a kubelet. It has namespaces of its own for mounts and processes, like a
// container, but with the host's network unless it is bare. All its processes end with process 1 of it, and
// its mounts with them. What a kubelet and a container runtime keep at fixed paths is invisible outside; a
// container runtime that this machine has already, another real node, or a second cluster, is not disturbed.
type realNode struct {
	c *Cluster
	// index of it, from 0 on.
	index int
}

// maxRealNodes is how many there are subnets for.
const maxRealNodes = 4

// realNodes are all of them. There is one where nobody asked for more.
func (c *Cluster) realNodes() []realNode {
	var nodes []realNode
	for i := range max(1, c.Options.RealNodes) {
		nodes = append(nodes, realNode{c, i})
	}
	return nodes
}

// node is the first of them, which tests and demos use.
func (c *Cluster) node() realNode { return realNode{c, 0} }

// of is the name of what each node has one of: its components, their logs and files. The first node has the
// name itself.
func (n realNode) of(name string) string {
	return numbered(name, n.index)
}

func (n realNode) name() string { return n.of(RealNode) }

// dir is a path in the folder of the node.
func (n realNode) dir(elem ...string) string {
	return n.c.path(append([]string{n.of("node")}, elem...)...)
}

// address is that of the node, on the loopback interface: 127.0.0.1 cannot be the address of a node.
func (n realNode) address() string { return n.c.PodSubnet + ".127." + strconv.Itoa(n.index+1) }

const (
	kubeletHealth = "kubelet-healthz"

	cdiDir           = "/run/cdi"
	nriSocket        = "/run/containerd/nri/nri.sock"
	netNSDir         = "/run/containerd/io.containerd.grpc.v1.cri/netns" // of pods
	containerdSocket = "/run/containerd/containerd.sock"
	driverReady      = "/var/lib/kubelet/plugins/" + DriverName + "/ready"

	// pauseImage keeps the namespaces of a pod.
	pauseImage = "dra.example.com/pause:1"
)

// private are the folders which the real node does not share with the host.
func (c *Cluster) private() []string {
	return append([]string{
		"/run/containerd",
		cdiDir,
		"/var/lib/cni",
		"/var/lib/kubelet",
		"/var/log/containers",
		"/var/log/pods",
		networkConfigs,
	}, c.Options.Private...)
}

func (c *Cluster) startRealNodes(ctx context.Context) error {
	if !c.state.RealNode {
		return nil
	}
	if err := c.Traces.leave(ctx, c, c.private()); err != nil {
		return err
	}
	start := time.Now()
	archives, err := c.archives(ctx)
	if err != nil {
		return err
	}
	c.Log("%d images are written after %s", len(archives), since(start))
	for _, n := range c.realNodes() {
		start := time.Now()
		steps := []func(context.Context) error{n.prepare, n.startContainerd, func(ctx context.Context) error { return n.importImages(ctx, archives) }}
		if !c.Options.Bare {
			steps = append(steps, func(ctx context.Context) error { return n.startKubelet(ctx, nil) }, n.startDriver)
		}
		for _, step := range steps {
			if err := step(ctx); err != nil {
				return fmt.Errorf("node %s: %w", n.name(), err)
			}
		}
		c.Log("node %s is up after %s", n.name(), since(start))
	}
	return os.RemoveAll(c.path(imagesDir))
}

// imagesDir is the folder in that of the cluster with images until all nodes have them.
const imagesDir = "images"

// archives are the images of the real nodes: those that are made here out of what is on this machine, and
// those that somebody made before.
func (c *Cluster) archives(ctx context.Context) ([]string, error) {
	images := []image.Image{{Names: []string{pauseImage}, Programs: map[string]string{"/pause": c.Own("pause")}, Command: []string{"/pause"}}}
	if !c.Options.Bare {
		images = append(images,
			image.Image{Names: []string{ShellImage}, Shell: true, Command: []string{"sh"}},
			image.Image{Names: []string{NetworkImage}, Programs: map[string]string{"/" + NetworkDaemonSet: c.Own(NetworkDaemonSet)}},
		)
	}
	archives := slices.Clone(c.Options.Archives)
	if err := os.MkdirAll(c.path(imagesDir), 0o755); err != nil {
		return nil, err
	}
	for i, img := range append(images, c.Options.Images...) {
		archive := c.path(imagesDir, fmt.Sprintf("image-%d.tar", i))
		if err := img.Write(ctx, archive); err != nil {
			return nil, err
		}
		archives = append(archives, archive)
	}
	return archives, nil
}

// prepare makes what has to be there before the first process of the node.
func (n realNode) prepare(ctx context.Context) error {
	dirs := []string{n.dir("cni"), n.dir("containerd"), n.dir("nri")}
	for _, dir := range n.c.private() {
		dirs = append(dirs, n.dir("root", dir))
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := createCgroup(n.of(n.c.id())); err != nil || n.c.Options.Bare {
		return err
	}
	return n.c.addAddress(ctx, n.address())
}

// writeConfig writes a file of the folder config for this node.
func (n realNode) writeConfig(name, file string, values map[string]any) error {
	text, err := render(name, values)
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text), 0o600)
}

// snapshotter is the fast one, if the file system allows it.
func (n realNode) snapshotter(ctx context.Context) string {
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

func (n realNode) startContainerd(ctx context.Context) error {
	start, c := time.Now(), n.c
	snapshotter := n.snapshotter(ctx)
	// Each pod is connected to this machine, which forwards between them: also between nodes, and to what
	// kube-proxy makes of the address of a Service.
	err := n.writeConfig("ptp.conflist", n.dir("cni", "10-ptp.conflist"), map[string]any{
		"Name": c.id(), "Subnet": fmt.Sprintf("%s.%d.0/20", c.PodSubnet, 16*n.index), "HostPorts": c.Options.Services,
	})
	if err != nil {
		return err
	}
	config, script := c.path("config", n.of("containerd")+".toml"), c.path("config", n.of("node")+".sh")
	err = n.writeConfig("containerd.toml", config, map[string]any{
		"Root": n.dir("containerd"), "Socket": containerdSocket, "Opt": n.dir("opt"), "NRISocket": nriSocket, "NRI": n.dir("nri"),
		"Snapshotter": snapshotter, "Pause": pauseImage, "CDI": cdiDir, "Runc": c.tool("runc"), "Tools": tools.Dir(c.Options.Repo), "CNI": n.dir("cni"),
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(script, []byte(n.script(config)), 0o600); err != nil {
		return err
	}
	unshare := []string{"unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation=slave"}
	if c.Options.Bare {
		unshare = append(unshare, "--net")
	}
	if _, err := c.run(n.of(Containerd), append(unshare, "sh", script), tools.Dir(c.Options.Repo)); err != nil {
		return err
	}
	if err := n.waitForContainerd(ctx); err != nil {
		return err
	}
	c.Log("containerd (%s) is healthy after %s", snapshotter, since(start))
	return nil
}

// boot starts a node that has ended with its containerd. As on a machine that was rebooted, what was in
// memory only is gone.
func (n realNode) boot(ctx context.Context) error {
	for _, dir := range n.c.private() {
		if !strings.HasPrefix(dir, "/run/") {
			continue
		}
		if err := os.RemoveAll(n.dir("root", dir)); err != nil {
			return err
		}
	}
	// The kubelet takes seconds for each control group whose container is gone.
	if err := RemoveCgroup(ctx, n.of(n.c.id())); err != nil {
		return err
	}
	if err := n.prepare(ctx); err != nil {
		return err
	}
	return n.startContainerd(ctx)
}

// script is that of process 1 of the node: it waits for the children of those that ended.
func (n realNode) script(config string) string {
	var b strings.Builder
	b.WriteString("set -e\nmount --make-rshared /\n")
	for _, dir := range n.c.private() {
		fmt.Fprintf(&b, "mount --bind %s %s\n", quote(n.dir("root", dir)), quote(dir))
	}
	if n.c.Options.Bare {
		fmt.Fprintf(&b, "ip link set lo up\nip address add %s/32 dev lo\n", n.address())
		for _, name := range slices.Sorted(maps.Keys(neededSysctls)) {
			fmt.Fprintf(&b, "echo %s >/proc/sys/%s\n", neededSysctls[name], name)
		}
	}
	// A containerd that was killed is started again, as a service manager would. What it does itself, like
	// ending because its configuration is wrong, ends the node.
	fmt.Fprintf(&b, "while true; do\n  %s --config %s &\n  status=0\n  wait $! || status=$?\n  [ $status -gt 128 ] || exit $status\ndone\n", quote(n.c.tool("containerd")), quote(config))
	return b.String()
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// WaitForContainerd waits until the container runtime of the first real node answers.
func (c *Cluster) WaitForContainerd(ctx context.Context) error {
	return c.node().waitForContainerd(ctx)
}

func (n realNode) waitForContainerd(ctx context.Context) error {
	return n.c.Processes.waitHealthy(ctx, n.c.Processes.find(n.of(Containerd)), time.Minute, func(ctx context.Context) error {
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

// init is process 1 of the node, as the host knows it.
func (n realNode) init() (int, error) {
	p := n.c.Processes.find(n.of(Containerd))
	if p == nil || !p.alive() {
		return 0, errors.New("containerd does not run")
	}
	for _, stat := range allStats() {
		if stat.PPID == p.PID {
			return stat.PID, nil
		}
	}
	return 0, errors.New("containerd has not begun")
}

// inside is a command line that runs another one on the node.
func (n realNode) inside(args ...string) ([]string, error) {
	init, err := n.init()
	if err != nil {
		return nil, err
	}
	nsenter := []string{"nsenter", "--target=" + strconv.Itoa(init), "--mount", "--pid"}
	if n.c.Options.Bare {
		nsenter = append(nsenter, "--net")
	}
	return slices.Concat(nsenter, []string{"--"}, args), nil
}

func (n realNode) run(ctx context.Context, args ...string) (string, error) {
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

func (n realNode) importImages(ctx context.Context, archives []string) error {
	for _, archive := range archives {
		// The socket is there before everything behind it is.
		err := poll(ctx, time.Minute, "import "+archive, func(ctx context.Context) error {
			_, err := n.run(ctx, n.c.tool("ctr"), "--namespace=k8s.io", "images", "import", archive)
			return err
		})
		if err != nil {
			return fmt.Errorf("%w%s", err, n.c.Processes.logEnd(n.of(Containerd)))
		}
	}
	return nil
}

// kubeletConfig are the values for a KubeletConfiguration.
func (n realNode) kubeletConfig() map[string]any {
	c := n.c
	return map[string]any{
		"Address": n.address(), "Port": c.Ports[Kubelet], "HealthPort": c.Ports[n.of(kubeletHealth)], "Certificate": c.pki(n.of(Kubelet)),
		"CA": c.pki("ca.crt"), "Socket": containerdSocket, "Cgroup": n.of(c.id()), "DNS": c.dnsServiceIP(),
	}
}

func (n realNode) startKubelet(ctx context.Context, gates map[string]bool) error {
	start, c := time.Now(), n.c
	config := c.path("config", n.of(Kubelet)+".yaml")
	if err := n.writeConfig("kubelet.yaml", config, n.kubeletConfig()); err != nil {
		return err
	}
	args, err := n.inside(append(c.Program(Kubelet, gates),
		"--config="+config,
		"--kubeconfig="+c.ComponentKubeconfig(n.of(Kubelet)),
		"--hostname-override="+n.name(),
		"--node-ip="+n.address(),
		"--node-labels="+TypeLabel+"=real",
	)...)
	if err != nil {
		return err
	}
	if err := c.waitForPort(ctx, Kubelet, n.address()); err != nil {
		return err
	}
	p, err := c.run(n.of(Kubelet), args, tools.Dir(c.Options.Repo))
	if err != nil {
		return err
	}
	if err := c.waitForAnswer(ctx, p, "http://"+c.Ports.address(n.of(kubeletHealth))+"/healthz"); err != nil {
		return err
	}
	// Healthy it is before it registers.
	api, err := c.clientset()
	if err != nil {
		return err
	}
	err = c.Processes.waitHealthy(ctx, p, 2*time.Minute, func(ctx context.Context) error {
		_, err := api.CoreV1().Nodes().Get(ctx, n.name(), metav1.GetOptions{})
		return err
	})
	if err != nil {
		return err
	}
	c.Log("kubelet on %s:%d is healthy after %s", n.address(), c.Ports[Kubelet], since(start))
	return nil
}

// DriverArgs are the command line of the DRA driver, on the first real node.
func (c *Cluster) DriverArgs(kubeconfig string) ([]string, error) {
	return c.node().driverArgs(kubeconfig)
}

func (n realNode) driverArgs(kubeconfig string) ([]string, error) {
	return n.inside(
		n.c.Own("driver"),
		"--driver-name="+DriverName,
		"--node-name="+n.name(),
		"--kubeconfig="+kubeconfig,
		"--data-dir="+filepath.Dir(driverReady),
		"--registry-dir=/var/lib/kubelet/plugins_registry",
		"--cdi-dir="+cdiDir,
		"--ready-file="+driverReady,
		"-v="+strconv.Itoa(max(2, n.c.Options.LogLevel)),
	)
}

func (n realNode) startDriver(ctx context.Context) error {
	args, err := n.driverArgs(n.c.ComponentKubeconfig(Driver))
	if err != nil {
		return err
	}
	ready := n.dir("root", driverReady)
	if err := os.Remove(ready); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	p, err := n.c.run(n.of(Driver), args)
	if err != nil {
		return err
	}
	return n.c.Processes.waitHealthy(ctx, p, time.Minute, func(context.Context) error {
		_, err := os.Stat(ready)
		return err
	})
}

// InNode is a command line that runs another one on the first real node, with its processes and files, and
// its network if it has its own. All of it ends with the node.
func (c *Cluster) InNode(args ...string) ([]string, error) { return c.node().inside(args...) }

// RunInNode runs a command on the first real node, and returns its output. What it says besides is part of
// the error, if there is one.
func (c *Cluster) RunInNode(ctx context.Context, args ...string) (string, error) {
	return c.node().run(ctx, args...)
}

// NodeAddress is the address of the first real node, NodeCgroup the control group for its pods.
func (c *Cluster) NodeAddress() string { return c.node().address() }

// NodeCgroup is the control group for the pods of the first real node.
func (c *Cluster) NodeCgroup() string { return c.node().of(c.id()) }

// ListenInNode listens in the network of the first real node. Whoever accepts is this process.
func (c *Cluster) ListenInNode(address string) (l net.Listener, err error) {
	err = c.InNetwork(func() error {
		l, err = net.Listen("tcp4", address)
		return err
	})
	return l, err
}

// InNetwork calls f in the network of the first real node. A socket stays in the network in which it was made.
func (c *Cluster) InNetwork(f func() error) error {
	init, err := c.node().init()
	if err != nil {
		return err
	}
	done := make(chan error)
	go func() { done <- inNetwork(fmt.Sprintf("/proc/%d/ns/net", init), f) }()
	return <-done
}

// inNetwork calls f on a thread that is in a network namespace meanwhile.
func inNetwork(namespace string, f func() error) error {
	runtime.LockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer func() { _ = own.Close() }()
	other, err := os.Open(namespace)
	if err != nil {
		return err
	}
	defer func() { _ = other.Close() }()
	if err := unix.Setns(int(other.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the network of %s: %w", namespace, err)
	}
	err = f()
	if back := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); back != nil {
		// Without UnlockOSThread, the thread ends with its goroutine.
		return errors.Join(err, fmt.Errorf("go back to the network of this machine: %w", back))
	}
	runtime.UnlockOSThread()
	return err
}
