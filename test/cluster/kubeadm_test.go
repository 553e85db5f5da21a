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
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"kubernetes-dra/hack/pkg/cluster"
	"kubernetes-dra/hack/pkg/cluster/demo"
	"kubernetes-dra/hack/pkg/dist/image"
	"kubernetes-dra/hack/pkg/tools"
)

const (
	// kubeadmRelease is the environment variable with the folder of a release.
	kubeadmRelease = "KUBEADM_RELEASE"
	// kubeadmAdmin is the kubeconfig that kubeadm makes, on the node.
	kubeadmAdmin = "/etc/kubernetes/admin.conf"
)

// kubeadmNode is a node with a network of its own, on which kubeadm starts a control plane.
type kubeadmNode struct {
	*testing.T
	*cluster.Cluster
	release string
	// bin has the programs of the release.
	bin string
	// before is the machine as it was.
	before string
}

// TestKubeadm takes a release home: kubeadm init with its binaries, images and configuration, a Job whose
// pods share a claim, and kubeadm reset, after which the machine is as before.
func TestKubeadm(t *testing.T) {
	k := newKubeadmNode(t)
	k.use(k.bin)
	client := k.init(stamp)
	version, err := client.Discovery().ServerVersion()
	if err != nil || version.GitVersion != stamp {
		t.Errorf("want an API server of version %s, got %v, %v", stamp, version, err)
	}
	checkStaticPods(t, client, stamp, "")
	k.checkProxy(client)
	checkImport(t, k.Cluster)
	k.startDriver()
	k.startNodes(client, 20)
	k.demo(client)
	k.end()
}

// TestKubeadmUpgrade takes a node from upstream to a release with kubeadm upgrade, and turns the gates on after
// that, as the documents say. A pod with a claim keeps running.
func TestKubeadmUpgrade(t *testing.T) {
	unpatched := os.Getenv(unpatchedBin)
	upstream, _, _ := strings.Cut(stamp, "+")
	var images []image.Image
	for _, name := range components[:3] {
		images = append(images, image.Image{
			Names:    []string{"registry.k8s.io/" + name + ":" + upstream},
			Programs: map[string]string{"/usr/local/bin/" + name: filepath.Join(unpatched, name)},
		})
	}
	k := newKubeadmNode(t, images...)
	k.use(unpatched)
	// The image of kube-proxy needs more than that program, and no pod here needs kube-proxy.
	client := k.init(upstream, "--skip-phases=addon/kube-proxy")
	checkStaticPods(t, client, upstream, "")
	k.startDriver()
	e := &env{T: t, Client: client, ctx: t.Context(), namespace: "kubeadm-upgrade"}
	must(t, client.NewNamespace(e.ctx, e.namespace))
	e.claim("early", e.devices(1, "real"), nil)
	e.job("early", 1, cluster.PodSpec("early", ""), nil)
	e.running("early", 1)
	before := e.podUIDs(map[string]int{"early": 1})
	unchanged := func() {
		t.Helper()
		e.keepRunning(before, nil)
		for name, pod := range e.pods("early") {
			if n := pod.Status.ContainerStatuses[0].RestartCount; n > 0 {
				t.Errorf("pod %s was restarted %d times", name, n)
			}
		}
	}

	k.use(k.bin)
	file := filepath.Join(k.Options.Dir, "config", "upgrade.yaml")
	must(t, os.WriteFile(file, []byte(`apiVersion: kubeadm.k8s.io/v1beta4
kind: UpgradeConfiguration
apply:
  kubernetesVersion: `+stamp+`
  imagePullPolicy: Never
  ignorePreflightErrors: [SystemVerification, CreateJob, CoreDNSMigration, CoreDNSUnsupportedPlugins]
  skipPhases: [addon]
`), 0o600))
	// The Job that it would create has an image that is not made from Kubernetes, and there is no CoreDNS.
	k.kubeadm("upgrade", "apply", "--yes", "--config="+file)
	k.restartKubelet(client)
	checkStaticPods(t, client, stamp, "")
	unchanged()

	file = k.writeConfig(stamp)
	k.kubeadm("init", "phase", "upload-config", "all", "--config="+file)
	k.kubeadm("upgrade", "node", "phase", "kubelet-config")
	k.restartKubelet(client)
	k.kubeadm("init", "phase", "control-plane", "all", "--config="+file)
	checkStaticPods(t, client, stamp, gate+"=true")
	unchanged()
	// Not before: kubeadm refuses nodes whose kubelet has no version.
	k.startNodes(client, 20)
	k.demo(client)
	unchanged()
	k.end()
}

// newKubeadmNode is a node with the images of a release and more, on which nothing of Kubernetes runs.
func newKubeadmNode(t *testing.T, more ...image.Image) *kubeadmNode {
	t.Helper()
	release := os.Getenv(kubeadmRelease)
	if release == "" {
		t.Skip("it needs a release: make test-kubeadm")
	}
	ctx := t.Context()
	opts := shared.Options
	opts.Dir += "-2"
	unpacked := filepath.Join(filepath.Dir(opts.Dir), "kubeadm-test")
	must(t, os.RemoveAll(unpacked))
	t.Cleanup(func() { must(t, os.RemoveAll(unpacked)) })
	must(t, os.MkdirAll(unpacked, 0o755))
	tarball := filepath.Join(release, "kubernetes-server-linux-"+runtime.GOARCH+".tar.gz")
	if out, err := exec.CommandContext(ctx, "tar", "--extract", "--file="+tarball, "--directory="+unpacked).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", tarball, err, out)
	}
	opts.Bin = filepath.Join(unpacked, "kubernetes", "server", "bin")
	archives, err := filepath.Glob(filepath.Join(opts.Bin, "*.tar"))
	if err != nil || len(archives) != 4 {
		t.Fatalf("want the archives of four images, got %q, %v", archives, err)
	}
	opts.Bare, opts.SimulatedNodes, opts.Archives = true, 0, archives
	opts.Private = []string{"/etc/kubernetes", "/usr/libexec/kubernetes", "/var/lib/etcd"}
	opts.Images = append([]image.Image{
		{Names: []string{cluster.ShellImage}, Shell: true, Command: []string{"sh"}},
		{Names: []string{"registry.k8s.io/etcd:" + etcdTag(t)}, Programs: map[string]string{"/usr/local/bin/etcd": filepath.Join(tools.Dir(repo), "etcd")}},
	}, more...)

	before := machine(t)
	c, err := cluster.New(opts, logf)
	must(t, err)
	must(t, c.Down(ctx))
	_, err = c.Up(ctx)
	must(t, err)
	t.Cleanup(func() { must(t, c.Down(context.Background())) })
	return &kubeadmNode{t, c, release, opts.Bin, before}
}

// demo tells the story of "make demo".
func (k *kubeadmNode) demo(client *cluster.Client) {
	k.Helper()
	var out strings.Builder
	if err := demo.RunOn(k.Context(), client, demo.Options{Pods: 100, Timeout: 10 * time.Minute, Out: &out}); err != nil {
		k.Errorf("%v after\n%s", err, out.String())
	}
	k.Logf("the demo:\n%s", out.String())
}

// end undoes all of it.
func (k *kubeadmNode) end() {
	k.Helper()
	k.reset()
	must(k.T, k.Down(k.Context()))
	if after := machine(k.T); after != k.before {
		k.Errorf("the machine is not as before:\n%s", difference(k.before, after))
	}
}

// programs is the folder of the programs that are installed.
func (k *kubeadmNode) programs() string { return filepath.Join(k.Options.Dir, "programs") }

// use installs programs. Those that run go on.
func (k *kubeadmNode) use(bin string) {
	k.Helper()
	must(k.T, os.RemoveAll(k.programs()))
	must(k.T, os.Symlink(bin, k.programs()))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// etcdTag is the tag of an image with the etcd of this machine, as kubeadm wants it.
func etcdTag(t *testing.T) string {
	t.Helper()
	version, err := tools.Version(repo, cluster.Etcd)
	must(t, err)
	return strings.TrimPrefix(version, "v") + "-0"
}

// root is where a path of the node is on this machine.
func (k *kubeadmNode) root(path string) string {
	return filepath.Join(k.Options.Dir, "node", "root", path)
}

// kubeadm runs it on the node.
func (k *kubeadmNode) kubeadm(args ...string) {
	k.Helper()
	// It asks the kubelet for its version.
	command := append([]string{"env", "PATH=" + k.programs() + ":" + os.Getenv("PATH"), filepath.Join(k.programs(), "kubeadm")}, args...)
	if out, err := k.RunInNode(k.Context(), command...); err != nil {
		k.Fatalf("%v\n%s", err, out)
	}
}

// init starts the control plane, and returns a client of its administrator.
func (k *kubeadmNode) init(version string, flags ...string) *cluster.Client {
	k.Helper()
	// What a service manager does on other nodes: it starts the kubelet as soon as kubeadm has configured
	// it, and whenever it ends.
	args, err := k.InNode("sh", "-c", `while true; do
  if [ -s /var/lib/kubelet/config.yaml ] && [ -s /var/lib/kubelet/kubeadm-flags.env ]; then
    . /var/lib/kubelet/kubeadm-flags.env
    `+k.programs()+`/kubelet --config=/var/lib/kubelet/config.yaml --kubeconfig=/etc/kubernetes/kubelet.conf \
      --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf $KUBELET_KUBEADM_ARGS || true
  fi
  sleep 0.5
done`)
	must(k.T, err)
	must(k.T, k.StartOther(cluster.Kubelet, args))
	// It checks the bridge of a network that this node does not have, and version 1 of control groups is
	// something to which the kubelet's configuration agrees, but it wants to hear it, too.
	k.kubeadm(append([]string{"init", "--config=" + k.writeConfig(version), "--ignore-preflight-errors=SystemVerification"}, flags...)...)

	config, err := clientcmd.BuildConfigFromFlags("", k.root(kubeadmAdmin))
	must(k.T, err)
	config.QPS, config.Burst = 1000, 2000
	config.Dial = func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		err = k.InNetwork(func() error {
			conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
			return err
		})
		return conn, err
	}
	client, err := cluster.ClientFor(k.Context(), config)
	must(k.T, err)
	return client
}

// restartKubelet ends the kubelet, which starts again, and waits until the node has the installed one.
func (k *kubeadmNode) restartKubelet(client *cluster.Client) {
	k.Helper()
	start := metav1.Now()
	if out, err := k.RunInNode(k.Context(), "pkill", "-x", "kubelet"); err != nil {
		k.Fatalf("%v\n%s", err, out)
	}
	e := &env{T: k.T, Client: client, ctx: k.Context()}
	e.eventually("the node has the kubelet of "+stamp, func() error {
		node, err := client.CoreV1().Nodes().Get(e.ctx, cluster.RealNode, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if version := node.Status.NodeInfo.KubeletVersion; version != stamp {
			return fmt.Errorf("it has %s", version)
		}
		if !readySince(node, start) {
			return fmt.Errorf("conditions %v", node.Status.Conditions)
		}
		return nil
	})
}

// readySince is true if a node said at that time or later that it is ready.
func readySince(node *corev1.Node, start metav1.Time) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && !c.LastHeartbeatTime.Before(&start)
	})
}

// writeConfig writes the configuration of the release with what this machine needs: its addresses, and a node
// without systemd whose images cannot be pulled. That for a version of upstream's has no gates.
func (k *kubeadmNode) writeConfig(version string) (file string) {
	k.Helper()
	content, err := os.ReadFile(filepath.Join(k.release, "kubeadm.yaml"))
	must(k.T, err)
	const socket = "unix:///run/containerd/containerd.sock"
	additions := map[string]map[string]any{
		"InitConfiguration": {
			"apiVersion":       "kubeadm.k8s.io/v1beta4",
			"localAPIEndpoint": map[string]any{"advertiseAddress": k.NodeAddress()},
			"nodeRegistration": map[string]any{
				"name":            cluster.RealNode,
				"criSocket":       socket,
				"imagePullPolicy": "Never",
				// It is the only node that runs pods.
				"taints": []any{},
				"kubeletExtraArgs": []any{
					map[string]any{"name": "node-ip", "value": k.NodeAddress()},
					map[string]any{"name": "node-labels", "value": cluster.TypeLabel + "=real"},
				},
			},
		},
		"ClusterConfiguration": {
			"kubernetesVersion": version,
			"networking":        map[string]any{"serviceSubnet": k.PodSubnet + ".128.0/17"},
			"etcd":              map[string]any{"local": map[string]any{"imageTag": etcdTag(k.T)}},
			// Nothing in here asks for names, and its image is not made from Kubernetes.
			"dns": map[string]any{"disabled": true},
		},
		"KubeletConfiguration": {
			"containerRuntimeEndpoint": socket, "cgroupDriver": "cgroupfs", "cgroupRoot": "/" + k.NodeCgroup(),
			"failCgroupV1": false, "failSwapOn": false, "resolvConf": "", "volumePluginDir": "/var/lib/kubelet/volume-plugins",
			"imageGCHighThresholdPercent": 100,
			"evictionHard": map[string]any{
				"memory.available": "50Mi", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%", "imagefs.inodesFree": "0%",
			},
		},
		// The limits of the machine's connection tracking are not for a node in it to change.
		"KubeProxyConfiguration": {
			"conntrack": map[string]any{"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
			"iptables":  map[string]any{"localhostNodePorts": false},
		},
	}
	var documents []string
	add := func(document map[string]any) {
		text, err := yaml.Marshal(document)
		must(k.T, err)
		documents = append(documents, string(text))
	}
	for text := range strings.SplitSeq(string(content), "\n---\n") {
		document := map[string]any{}
		must(k.T, yaml.UnmarshalStrict([]byte(text), &document))
		if version != stamp {
			maps.DeleteFunc(document, func(field string, _ any) bool {
				return slices.Contains([]string{"apiServer", "controllerManager", "scheduler", "featureGates"}, field)
			})
		}
		kind, _ := document["kind"].(string)
		merge(document, additions[kind])
		delete(additions, kind)
		add(document)
	}
	for kind, document := range additions {
		document["kind"] = kind
		add(document)
	}
	file = filepath.Join(k.Options.Dir, "config", "kubeadm.yaml")
	must(k.T, os.WriteFile(file, []byte(strings.Join(documents, "---\n")), 0o600))
	return file
}

// merge sets the fields of an object. Those of objects in it are set one by one, lists as a whole.
func merge(object, fields map[string]any) {
	for name, value := range fields {
		inner, isObject := object[name].(map[string]any)
		if more, ok := value.(map[string]any); ok && isObject {
			merge(inner, more)
		} else {
			object[name] = value
		}
	}
}

func (k *kubeadmNode) startDriver() {
	k.Helper()
	driver, err := k.DriverArgs(kubeadmAdmin)
	must(k.T, err)
	must(k.T, k.StartOther(cluster.Driver, driver))
}

// startNodes starts simulated nodes besides.
func (k *kubeadmNode) startNodes(client *cluster.Client, simulated int) {
	k.Helper()
	kwok, err := k.KwokArgs(kubeadmAdmin, "127.0.0.1:10247")
	must(k.T, err)
	kwok, err = k.InNode(kwok...)
	must(k.T, err)
	must(k.T, k.StartOther(cluster.Kwok, kwok))
	must(k.T, cluster.CreateSimulatedNodes(k.Context(), client, simulated, true))
	e := &env{T: k.T, Client: client, ctx: k.Context()}
	e.eventually("all nodes are ready", func() error {
		list, err := client.CoreV1().Nodes().List(e.ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		ready := 0
		for _, node := range list.Items {
			if readySince(&node, metav1.Time{}) {
				ready++
			}
		}
		if ready != simulated+1 {
			return fmt.Errorf("%d of %d", ready, simulated+1)
		}
		return nil
	})
}

// reset undoes what kubeadm did, as the administrator of a node would, and checks that it leaves nothing.
func (k *kubeadmNode) reset() {
	k.Helper()
	for _, name := range []string{cluster.Kwok, cluster.Driver, cluster.Kubelet} {
		must(k.T, k.Stop(k.Context(), name, 3*time.Second))
	}
	k.kubeadm("reset", "--force", "--cri-socket=unix:///run/containerd/containerd.sock")
	containers, err := k.RunInNode(k.Context(), filepath.Join(tools.Dir(repo), "ctr"), "--namespace=k8s.io", "containers", "list", "--quiet")
	if err != nil || containers != "" {
		k.Errorf("kubeadm reset left containers: %s %v", strings.Join(strings.Fields(containers), ", "), err)
	}
	for _, dir := range []string{"/etc/kubernetes/manifests", "/etc/kubernetes/pki", "/var/lib/etcd", "/var/lib/kubelet"} {
		_ = filepath.WalkDir(k.root(dir), func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				k.Errorf("kubeadm reset left %s", path)
			}
			return nil
		})
	}
}

// checkStaticPods waits until the control plane runs in pods, of the images of a version and with an argument
// that contains something. The API server has such a pod some time after it began.
func checkStaticPods(t *testing.T, client *cluster.Client, version, argument string) {
	t.Helper()
	want := map[string]string{}
	for _, name := range components[:3] {
		want[name] = "registry.k8s.io/" + name + ":" + strings.ReplaceAll(version, "+", "_")
	}
	var seen []string
	for deadline := time.Now().Add(patience); len(want) > 0 && time.Now().Before(deadline); time.Sleep(time.Second) {
		pods, err := client.CoreV1().Pods(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + cluster.RealNode})
		if err != nil {
			// The API server may be one of those that start.
			seen = []string{err.Error()}
			continue
		}
		seen = nil
		for _, pod := range pods.Items {
			name, container := strings.TrimSuffix(pod.Name, "-"+cluster.RealNode), pod.Spec.Containers[0]
			seen = append(seen, fmt.Sprintf("%s %s %s %v", pod.Name, pod.Status.Phase, container.Image, container.Command))
			ready := len(pod.Status.ContainerStatuses) > 0 && pod.Status.ContainerStatuses[0].Ready
			if ready && pod.Annotations[corev1.MirrorPodAnnotationKey] != "" && container.Image == want[name] && strings.Contains(strings.Join(container.Command, " "), argument) {
				delete(want, name)
			}
		}
	}
	if len(want) > 0 {
		t.Fatalf("no static pods run with these images and %q: %v; there are:\n%s", argument, want, strings.Join(seen, "\n"))
	}
}

// checkProxy waits until kube-proxy, which needs more in its image than itself, has
// made rules for the one Service that there is.
func (k *kubeadmNode) checkProxy(client *cluster.Client) {
	t := k.T
	t.Helper()
	rules, state := "", ""
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Second) {
		pods, err := client.CoreV1().Pods(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{
			LabelSelector: "k8s-app=kube-proxy", FieldSelector: "spec.nodeName=" + cluster.RealNode,
		})
		if err != nil {
			t.Fatal(err)
		}
		rules, err = k.RunInNode(t.Context(), "iptables-save", "--table=nat")
		state = ""
		for _, pod := range pods.Items {
			for _, container := range pod.Status.ContainerStatuses {
				state = fmt.Sprintf("%s ready=%t restarts=%d %+v", pod.Name, container.Ready, container.RestartCount, container.State)
				if container.Ready && container.RestartCount == 0 && err == nil && strings.Contains(rules, "default/kubernetes:https") {
					return
				}
			}
		}
	}
	t.Errorf("kube-proxy has made no rules for the Service default/kubernetes: %s\n%s", state, rules)
}

// checkImport checks the names that the container runtime has for the images: those
// of upstream's tarballs, and those of kubeadm.
func checkImport(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	ctr := filepath.Join(repo, "_output", "tools", "bin", "ctr")
	images, err := c.RunInNode(t.Context(), ctr, "--namespace=k8s.io", "images", "list", "--quiet")
	if err != nil {
		t.Fatal(err)
	}
	tag := ":" + strings.ReplaceAll(stamp, "+", "_") + "\n"
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler"} {
		for _, suffix := range []string{"", "-" + runtime.GOARCH} {
			if !strings.Contains(images, "registry.k8s.io/"+name+suffix+tag) {
				t.Errorf("containerd has no image %s%s%s", name, suffix, tag)
			}
		}
	}
	if t.Failed() {
		t.Logf("it has\n%s", images)
	}
}
