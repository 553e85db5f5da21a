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

	"kubernetes-dra/hack/pkg/cluster"
	"kubernetes-dra/hack/pkg/cluster/demo"
	"kubernetes-dra/hack/pkg/dist/image"
	"kubernetes-dra/hack/pkg/dist/kindbase"
	"kubernetes-dra/hack/pkg/dist/nodeimage"
	"kubernetes-dra/hack/pkg/dist/release"
	"kubernetes-dra/hack/pkg/sys"
	"kubernetes-dra/hack/pkg/test/e2e"
	"kubernetes-dra/hack/pkg/test/engine"
	"kubernetes-dra/hack/pkg/tools"
	"kubernetes-dra/hack/pkg/tree/ledger"
)

const (
	releaseVariable = "KIND_RELEASE"
	// clusterName is that of kind's cluster: nobody else's.
	clusterName = "kubernetes-dra-test"
	nodes       = 2
	// specs of ours in upstream's suite have this in their names.
	specs = "DRAReservedForWorkloads"
)

// subject is what gets tested, and what for.
type subject struct {
	*testing.T
	ctx context.Context
	// repo is the root of this repository, dir a folder for files, output that of the release.
	repo, dir, output string
	// release is the folder with tarball and configuration.
	release string
	ledger  *ledger.Ledger
	pin     *ledger.Release
	kind    string
	// offline is true if there is no registry, and kind's own base image could not be had.
	offline bool
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

// command is one whose environment has Go modules of this repository alone.
func (s *subject) run(name string, args ...string) string {
	s.Helper()
	out, err := sys.Output(s.ctx, sys.Command(s.ctx, s.repo, sys.Without([]string{"GOFLAGS"}, sys.GoFlags(), "GOWORK=off", "CGO_ENABLED=0"), name, args...))
	s.must(err)
	return out
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

func TestMain(m *testing.M) {
	engine.RunIfRuntime()
	os.Exit(m.Run())
}

// TestKind builds a node image and a cluster, in which the pods of a Job share a claim on both nodes. Then
// it runs our specs of upstream's suite.
func TestKind(t *testing.T) {
	s := newSubject(t)
	e, err := engine.Start(s.ctx, filepath.Join(s.output, "docker"))
	s.must(err)
	s.atEnd("stop the Docker engine", e.Stop)
	if e != nil {
		logf("no Docker engine answered: this one is for the test alone")
	}

	base := s.baseImage()
	name := nodeimage.DefaultImage(s.ledger.Stamp(s.pin)) + "-test"
	log := s.create("node-image.log")
	s.must(nodeimage.Build(s.ctx, nodeimage.Options{
		Release:   s.pin.Name,
		Tarball:   s.tarball(),
		Version:   s.ledger.Stamp(s.pin),
		Arch:      runtime.GOARCH,
		Image:     name,
		BaseImage: base,
		Kind:      func(context.Context) (string, error) { return s.kind, nil },
		Scratch:   s.dir,
		Output:    log,
		Log:       logf,
	}))
	s.atEnd("remove the node image", func(ctx context.Context) error {
		return sys.Run(ctx, sys.Command(ctx, "", nil, "docker", "image", "rm", "--force", name))
	})

	c := s.newCluster(name)
	client, err := c.NewClient(s.ctx)
	s.must(err)
	c.waitForNodes(client)
	version, err := client.Discovery().ServerVersion()
	s.must(err)
	if c.version = version.GitVersion; c.version != s.ledger.Stamp(s.pin) {
		s.Errorf("want an API server of version %s, got %s", s.ledger.Stamp(s.pin), c.version)
	}
	c.load(image.Image{Names: []string{cluster.ShellImage}, Shell: true, Command: []string{"sh"}})
	c.startDriver(client)

	var out strings.Builder
	if err := demo.RunOn(s.ctx, client, demo.Options{Pods: 60, Timeout: 10 * time.Minute, Out: &out}); err != nil {
		s.Errorf("%v after\n%s", err, out.String())
	}
	t.Logf("the demo:\n%s", out.String())
	s.runSpecs(c)
}

func newSubject(t *testing.T) *subject {
	t.Helper()
	s := &subject{T: t, release: os.Getenv(releaseVariable)}
	if s.release == "" {
		t.Skip("it needs a release, and a Docker engine: make test-kind")
	}
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	t.Cleanup(stop)
	s.ctx, s.dir = ctx, t.TempDir()
	var err error
	s.repo, err = filepath.Abs(filepath.Join("..", "..", ".."))
	s.must(err)
	s.ledger, err = ledger.Load(s.repo)
	s.must(err)
	s.pin, err = s.ledger.Release(os.Getenv("RELEASE"))
	s.must(err)
	s.output = filepath.Join(s.repo, "_output", s.pin.Name)
	s.kind = filepath.Join(tools.Dir(s.repo), "kind")
	return s
}

func (s *subject) tarball() string {
	return filepath.Join(s.release, release.TarballName(runtime.GOARCH))
}

func (s *subject) create(name string) *os.File {
	s.Helper()
	f, err := os.Create(filepath.Join(s.output, "logs", name))
	s.must(err)
	s.Cleanup(func() { _ = f.Close() })
	return f
}

// baseImage returns kind's own base image, or makes one if that is not to be had.
func (s *subject) baseImage() string {
	s.Helper()
	theirs, err := nodeimage.DefaultBaseImage(s.ctx, s.kind)
	s.must(err)
	short, cancel := context.WithTimeout(s.ctx, 10*time.Minute)
	defer cancel()
	logf("docker pull %s", theirs)
	err = sys.Run(short, sys.Command(short, "", nil, "docker", "pull", "--quiet", theirs))
	if err == nil {
		return theirs
	}
	s.must(s.ctx.Err())
	logf("it cannot be pulled: the base image is made here, of packages of Debian")
	s.offline = true

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
	s.atEnd("remove the base image", func(ctx context.Context) error {
		return sys.Run(ctx, sys.Command(ctx, "", nil, "docker", "image", "rm", "--force", name))
	})
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

// runSpecs runs our specs, which bring a driver of their own.
func (s *subject) runSpecs(c *kindCluster) {
	s.Helper()
	suite := &e2e.Suite{
		Repo:  s.repo,
		Tree:  filepath.Join(s.output, "kubernetes"),
		Bin:   filepath.Join(s.output, "e2e", "bin"),
		Cache: s.dir,
		Log:   logf,
	}
	s.must(suite.Build(s.ctx))
	all, err := suite.Specs(s.ctx)
	s.must(err)
	images, err := suite.Images(s.ctx)
	s.must(err)
	c.load(images...)
	run := e2e.Run{
		Suite: suite, Name: "kind", Specs: all, Only: specs, Procs: 2, Nodes: nodes, LogDir: filepath.Join(s.output, "logs", "kind"),
	}
	result, err := run.On(s.ctx, c)
	s.must(err)
	s.Logf("%d specs passed, %d failed, %d were skipped", result.Count(e2e.Passed), result.Count(e2e.Failed), result.Count(e2e.Skipped))
	if result.Count(e2e.Failed) > 0 || result.Count(e2e.Passed) == 0 {
		s.Errorf("want all specs with %s in their names to pass; see %s", specs, run.LogDir)
	}
}

// NewClient implements [e2e.Cluster].
func (c *kindCluster) NewClient(ctx context.Context) (*cluster.Client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 50, 100
	return cluster.ClientFor(ctx, config)
}

// Kubeconfig implements [e2e.Cluster].
func (c *kindCluster) Kubeconfig() string { return c.kubeconfig }

// Kubectl implements [e2e.Cluster].
func (c *kindCluster) Kubectl() string { return c.kubectl }

// KubernetesVersion implements [e2e.Cluster].
func (c *kindCluster) KubernetesVersion() string { return c.version }
