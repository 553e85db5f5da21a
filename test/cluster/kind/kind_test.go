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

// Package kind tests a release as the author of a driver takes it: as a node image of kind, in a
// cluster of two nodes. KIND_RELEASE is the folder of the release; without it nothing is tested.
package kind

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"kubernetes-dra/hack/pkg/cluster"
	"kubernetes-dra/hack/pkg/cluster/demo"
	"kubernetes-dra/hack/pkg/dist/image"
	"kubernetes-dra/hack/pkg/dist/kindbase"
	"kubernetes-dra/hack/pkg/dist/nodeimage"
	"kubernetes-dra/hack/pkg/dist/release"
	"kubernetes-dra/hack/pkg/sys"
	"kubernetes-dra/hack/pkg/tools"
	"kubernetes-dra/hack/pkg/tree/ledger"
	"kubernetes-dra/test/upstream"
)

const (
	// clusterName is that of kind's cluster: nobody else's.
	clusterName = "kubernetes-dra-test"
	nodes       = 2
	// driverImage is that of the DRA driver.
	driverImage = "dra.example.com/driver:1"
)

// driverManifest is what runs the DRA driver.
//
//go:embed driver.yaml
var driverManifest string

// subject is what gets tested, and what for.
type subject struct {
	*testing.T
	ctx context.Context
	// repo is the root of this repository, folder that of this test, dir one for files, and output that
	// of the release.
	repo, folder, dir, output string
	// release is the folder with tarball and configuration.
	release string
	stamp   string
	kind    string
	// offline is true if there is no registry, and kind's own base image could not be had.
	offline             bool
	kubeconfig, kubectl string
}

func logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

func (s *subject) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// run runs a command whose environment has Go modules of this repository alone.
func (s *subject) run(name string, args ...string) string {
	s.Helper()
	out, err := sys.Output(s.ctx, sys.Command(s.ctx, s.repo, sys.Without([]string{"GOFLAGS"}, sys.GoFlags(), "GOWORK=off", "CGO_ENABLED=0"), name, args...))
	s.must(err)
	return out
}

// onCluster runs kubectl.
func (s *subject) onCluster(args ...string) string {
	s.Helper()
	return s.run(s.kubectl, append([]string{"--kubeconfig=" + s.kubeconfig}, args...)...)
}

// atEnd does something when the test has ended, also if somebody stopped it.
func (s *subject) atEnd(what string, f func(ctx context.Context) error) {
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		if err := f(ctx); err != nil {
			s.Errorf("%s: %v", what, err)
		}
	})
}

// removeAtEnd removes an image.
func (s *subject) removeAtEnd(name string) {
	s.atEnd("remove an image", func(ctx context.Context) error {
		return sys.Run(ctx, sys.Command(ctx, "", nil, "docker", "image", "rm", "--force", name))
	})
}

// TestKind builds a node image and a cluster, in which the pods of a Job share a claim on both nodes. It
// installs the network driver, and removes it. Then it runs our specs of upstream's suite.
func TestKind(t *testing.T) {
	s := newSubject(t)
	s.offline = s.startEngine()
	base := s.baseImage()
	name := nodeimage.DefaultImage(s.stamp) + "-test"
	s.must(nodeimage.Build(s.ctx, nodeimage.Options{
		Release:   os.Getenv("RELEASE"),
		Tarball:   s.tarball(),
		Version:   s.stamp,
		Arch:      runtime.GOARCH,
		Image:     name,
		BaseImage: base,
		Kind:      func(context.Context) (string, error) { return s.kind, nil },
		Scratch:   s.dir,
		Output:    s.create("node-image.log"),
		Log:       logf,
	}))
	s.removeAtEnd(name)

	s.createCluster(name)
	s.load(image.Image{Names: []string{cluster.ShellImage}, Shell: true, Command: []string{"sh"}})
	s.startDriver()
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	s.must(err)
	config.QPS, config.Burst = 50, 100
	client, err := cluster.ClientFor(s.ctx, config)
	s.must(err)
	var out strings.Builder
	// With control groups of version 1 on two CPUs, runc fails for some of 60 that start at once: "unable to freeze".
	if err := demo.RunOn(s.ctx, client, demo.Options{Pods: 30, Timeout: 10 * time.Minute, Out: &out}); err != nil {
		s.Errorf("%v after\n%s", err, out.String())
	}
	t.Logf("the demo:\n%s", out.String())
	s.networkDriver(client.Version)
	s.runSpecs()
}

func newSubject(t *testing.T) *subject {
	t.Helper()
	s := &subject{T: t, release: os.Getenv("KIND_RELEASE"), dir: t.TempDir()}
	if s.release == "" {
		t.Skip("it needs a release, and a Docker engine: make test-kind")
	}
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	t.Cleanup(stop)
	s.ctx = ctx
	var err error
	s.folder, err = filepath.Abs(".")
	s.must(err)
	s.repo = filepath.Join(s.folder, "..", "..", "..")
	l, err := ledger.Load(s.repo)
	s.must(err)
	pin, err := l.Release(os.Getenv("RELEASE"))
	s.must(err)
	s.stamp, s.output = l.Stamp(pin), filepath.Join(s.repo, "_output", pin.Name)
	s.kind = filepath.Join(tools.Dir(s.repo), "kind")
	s.kubeconfig, s.kubectl = filepath.Join(s.dir, "kubeconfig"), filepath.Join(s.dir, "kubectl")
	return s
}

func (s *subject) tarball() string {
	return filepath.Join(s.release, release.TarballName(runtime.GOARCH))
}

func (s *subject) create(name string) *os.File {
	s.Helper()
	dir := filepath.Join(s.output, "logs")
	s.must(os.MkdirAll(dir, 0o755))
	f, err := os.Create(filepath.Join(dir, name))
	s.must(err)
	s.Cleanup(func() { _ = f.Close() })
	return f
}

// baseImage returns kind's own base image, or makes one if that is not to be had.
func (s *subject) baseImage() string {
	s.Helper()
	if !s.offline {
		theirs, err := nodeimage.DefaultBaseImage(s.ctx, s.kind)
		s.must(err)
		short, cancel := context.WithTimeout(s.ctx, 10*time.Minute)
		defer cancel()
		logf("docker pull %s", theirs)
		if sys.Run(short, sys.Command(short, "", nil, "docker", "pull", "--quiet", theirs)) == nil {
			return theirs
		}
		s.must(s.ctx.Err())
		s.offline = true
	}
	logf("kind's base image is not to be had: it is made here, of packages of Debian")
	images := map[string]string{}
	for _, img := range s.offlineImages() {
		name, _, _ := strings.Cut(filepath.Base(img.Names[0]), ":")
		images[name] = filepath.Join(s.dir, name+".tar")
		s.must(img.Write(s.ctx, images[name]))
	}
	archive := filepath.Join(s.dir, "base.tar")
	s.must(kindbase.Options{
		Files:  filepath.Join(strings.TrimSpace(s.run("go", "-C", filepath.Join("hack", "tools", "kind"), "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kind")), "images", "base", "files"),
		Tools:  tools.Dir(s.repo),
		Images: images,
	}.Write(s.ctx, archive))
	name := "kubernetes-dra/kind-base:test"
	args := []string{"import"}
	for _, change := range kindbase.Docker {
		args = append(args, "--change", change)
	}
	s.run("docker", append(args, archive, name)...)
	s.removeAtEnd(name)
	s.must(os.Remove(archive))
	return name
}

// offlineImages are those that kind fetches. Nothing here uses volumes or kind's CNI, so what does
// nothing stands for them.
func (s *subject) offlineImages() []image.Image {
	s.Helper()
	pause := s.program("pause")
	tool := func(name string) string { return filepath.Join(tools.Dir(s.repo), name) }
	idle := func(name string) image.Image {
		return image.Image{Names: []string{kindbase.Name(name)}, Programs: map[string]string{"/usr/local/bin/" + name: pause}, Entrypoint: []string{"/usr/local/bin/" + name}}
	}
	return []image.Image{
		{Names: []string{kindbase.Name("pause")}, Programs: map[string]string{"/pause": pause}, Entrypoint: []string{"/pause"}},
		{Names: []string{kindbase.Name("etcd")}, Programs: map[string]string{"/usr/local/bin/etcd": tool("etcd")}},
		{Names: []string{kindbase.Name("coredns")}, Programs: map[string]string{"/coredns": tool("coredns")}, Entrypoint: []string{"/coredns"}},
		idle("kindnetd"),
		idle("local-path-provisioner"),
		idle("local-path-helper"),
	}
}

// program builds one of this repository's.
func (s *subject) program(name string) string {
	s.Helper()
	path := filepath.Join(s.dir, name)
	s.run("go", "build", "-o", path, "./test/cluster/"+name)
	return path
}

// createCluster lets kind make a cluster, with the configuration of the release and what this machine
// needs. Its nodes are ready afterwards.
func (s *subject) createCluster(nodeImage string) {
	s.Helper()
	s.must(os.WriteFile(s.kubectl, []byte(s.run("tar", "--extract", "--to-stdout", "--file="+s.tarball(), "kubernetes/server/bin/kubectl")), 0o755))
	content, err := os.ReadFile(filepath.Join(s.release, "kind.yaml"))
	s.must(err)
	var config map[string]any
	s.must(yaml.Unmarshal(content, &config))
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		// Version 1 of control groups: as docs/install.md says.
		config["kubeadmConfigPatches"] = []string{"kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\nfailCgroupV1: false\n"}
	}
	if len(s.lacking()) > 0 {
		// Nobody may make it less likely there that the kernel kills a process for its memory.
		config["containerdConfigPatches"] = []string{"[plugins.\"io.containerd.grpc.v1.cri\"]\nrestrict_oom_score_adj = true\n"}
	}
	if s.offline {
		config["networking"] = map[string]any{"disableDefaultCNI": true}
	}
	content, err = yaml.Marshal(config)
	s.must(err)
	file := filepath.Join(s.dir, "kind.yaml")
	s.must(os.WriteFile(file, content, 0o644))

	remove := func(ctx context.Context) error {
		return sys.Run(ctx, sys.Command(ctx, "", nil, s.kind, "delete", "cluster", "--name="+clusterName, "--kubeconfig="+s.kubeconfig))
	}
	// What an interrupted run left.
	s.must(remove(s.ctx))
	s.atEnd("delete the cluster", remove)
	s.Cleanup(func() {
		if s.Failed() {
			logs := filepath.Join(s.output, "logs", "kind-nodes")
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			err := sys.Run(ctx, sys.Command(ctx, "", nil, s.kind, "export", "logs", "--name="+clusterName, logs))
			s.Logf("kind export logs %s: %v", logs, err)
		}
	})
	logf("kind create cluster")
	s.run(s.kind, "create", "cluster", "--name="+clusterName, "--image="+nodeImage, "--config="+file, "--kubeconfig="+s.kubeconfig, "--retain")
	s.onCluster("wait", "nodes", "--all", "--for=jsonpath={.spec.podCIDR}", "--timeout=5m")
	list := strings.Split(strings.TrimSpace(s.onCluster("get", "nodes",
		`--output=jsonpath={range .items[*]}{.metadata.name} {.spec.podCIDR} {.status.addresses[?(@.type=="InternalIP")].address}{"\n"}{end}`)), "\n")
	if len(list) != nodes {
		s.Fatalf("want %d nodes, got %q", nodes, list)
	}
	if s.offline {
		s.configureNetwork(list)
	}
	s.onCluster("wait", "nodes", "--all", "--for=condition=Ready", "--timeout=5m")
}

// configureNetwork gives pods of each node addresses of its range, and each node a route to the pods of
// the other one. A node is its name, range and addresses.
func (s *subject) configureNetwork(list []string) {
	s.Helper()
	for _, line := range list {
		node := strings.Fields(line)
		config := fmt.Sprintf(`{"cniVersion":"0.4.0","name":"pods","plugins":[
{"type":"ptp","ipMasq":false,"ipam":{"type":"host-local","ranges":[[{"subnet":%q}]],"routes":[{"dst":"0.0.0.0/0"}]}},
{"type":"portmap","capabilities":{"portMappings":true}}]}`, node[1])
		cmd := sys.Command(s.ctx, "", nil, "docker", "exec", "--interactive", node[0], "sh", "-c", "mkdir -p /etc/cni/net.d && cat >/etc/cni/net.d/10-pods.conflist")
		cmd.Stdin = strings.NewReader(config)
		s.must(sys.Run(s.ctx, cmd))
		for _, line := range list {
			if other := strings.Fields(line); other[0] != node[0] {
				s.run("docker", "exec", node[0], "ip", "route", "replace", other[1], "via", other[2])
			}
		}
	}
}

// load brings images to all nodes.
func (s *subject) load(images ...image.Image) {
	s.Helper()
	for _, img := range images {
		archive := filepath.Join(s.dir, "image.tar")
		s.must(img.Write(s.ctx, archive))
		logf("kind load image-archive: %s", strings.Join(img.Names, ", "))
		s.run(s.kind, "load", "image-archive", "--name="+clusterName, archive)
		s.must(os.Remove(archive))
	}
}

// startDriver runs a DRA driver on each node, as a DaemonSet.
func (s *subject) startDriver() {
	s.Helper()
	s.load(image.Image{Names: []string{driverImage}, Programs: map[string]string{"/driver": s.program("driver")}, Entrypoint: []string{"/driver"}})
	file := filepath.Join(s.dir, "driver.yaml")
	s.must(os.WriteFile(file, []byte(strings.NewReplacer("DRIVER_IMAGE", driverImage, "DRIVER_NAME", cluster.DriverName).Replace(driverManifest)), 0o644))
	s.onCluster("apply", "--filename="+file)
	s.onCluster("rollout", "status", "daemonset/dra-driver", "--namespace=kube-system", "--timeout=5m")
}

// runSpecs runs our specs, which bring a driver of their own.
func (s *subject) runSpecs() {
	s.Helper()
	suite := &upstream.Suite{
		Repo:  s.repo,
		Tree:  filepath.Join(s.output, "kubernetes"),
		Bin:   filepath.Join(s.output, "e2e", "bin"),
		Cache: s.dir,
		// Specs of ours have this in their names.
		Only: "DRAReservedForWorkloads",
		Log:  logf,
		Out:  os.Stderr,
	}
	s.must(suite.Build(s.ctx))
	images, err := suite.Images(s.ctx)
	s.must(err)
	s.load(images...)
	logs := filepath.Join(s.output, "logs", "kind")
	result, err := suite.Run(s.ctx, upstream.Run{Name: "kind", Kubeconfig: s.kubeconfig, Kubectl: s.kubectl, Procs: 2, Nodes: nodes, Logs: logs})
	s.must(err)
	if result.Version != s.stamp {
		s.Errorf("want an API server of version %s, got %s", s.stamp, result.Version)
	}
	passed, failed := result.Count(upstream.Passed), result.Count(upstream.Failed)
	s.Logf("%d specs passed, %d failed, %d were skipped", passed, failed, result.Count(upstream.Skipped))
	if failed > 0 || passed == 0 {
		s.Errorf("want all specs with %s in their names to pass; see %s", suite.Only, logs)
	}
}
