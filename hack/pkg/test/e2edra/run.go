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

// Package e2edra runs upstream's test/e2e_dra with given programs: tests that upgrade a cluster, go back, and
// turn feature gates off and on. They start the cluster themselves, with hack/local-up-cluster.sh of
// their tree, on a node that has nothing but a container runtime.
package e2edra

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"kubernetes-dra/hack/pkg/sys"
	"kubernetes-dra/hack/pkg/test/e2e"
	"kubernetes-dra/hack/pkg/test/testrun"
	"kubernetes-dra/hack/pkg/tools"
)

// Folder has the tests in a tree.
const Folder = "test/e2e_dra"

// The test functions.
const (
	Upgrade   = "TestUpgradeDowngrade"
	GateCycle = "TestFeatureGateCycle"
)

// Run is one run of the tests.
type Run struct {
	// Name of the run, for messages.
	Name string
	// Repo is the root of this repository, Tree the Kubernetes tree with the tests, Binary what was
	// compiled from them.
	Repo, Tree, Binary string
	// Current are the programs to upgrade to, and those for tests of gates. Previous are those to upgrade
	// from and to go back to.
	Current, Previous Programs
	// PreviousRelease is the minor release of Previous, and PreviousVersion what upstream calls the newest
	// of it.
	PreviousRelease, PreviousVersion string
	// Tests are the test functions to run.
	Tests []string
	// Dir is for files of this run, and the node must see it. LogDir gets the output of tests and
	// components.
	Dir, LogDir string
	// Timeout of all tests.
	Timeout time.Duration
	// Log tells the user what is going on.
	Log func(format string, args ...any)
}

// Node has a container runtime, and nothing listens on its ports.
type Node interface {
	InNode(args ...string) ([]string, error)
	RunInNode(ctx context.Context, args ...string) (string, error)
	ListenInNode(address string) (net.Listener, error)
	NodeAddress() string
	NodeCgroup() string
	KubernetesVersion() string
}

// Compile compiles the tests of a tree.
func Compile(ctx context.Context, tree, binary string) error {
	if _, err := os.Stat(filepath.Join(tree, Folder)); err != nil {
		return fmt.Errorf("this release has no such tests: %w", err)
	}
	if err := sys.Run(ctx, sys.Command(ctx, tree, sys.GoEnviron(), "go", "test", "-c", "-ldflags=-s -w", "-o", binary, "./"+Folder)); err != nil {
		return fmt.Errorf("compile %s of %s: %w", Folder, tree, err)
	}
	return nil
}

// On runs the tests on a node that is up, and returns what came of each.
func (r *Run) On(ctx context.Context, node Node) (*e2e.Result, error) {
	if err := r.prepare(); err != nil {
		return nil, err
	}
	l, err := r.serve(ctx, node)
	if err != nil {
		return nil, err
	}
	defer func() { _ = l.Close() }()
	env, err := r.environ(node)
	if err != nil {
		return nil, err
	}
	command, err := node.InNode("env", "--chdir="+filepath.Join(r.Tree, Folder), r.Binary,
		"-test.v=test2json", "-test.timeout="+r.Timeout.String(), "-test.run=^("+strings.Join(r.Tests, "|")+")$")
	if err != nil {
		return nil, err
	}
	log, err := os.Create(r.LogFile())
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	cmd := sys.Command(ctx, r.Dir, env, "go", append([]string{"tool", "test2json", "-t", "-p", Folder}, command...)...)
	tests, err := read(cmd, log, r.tell)
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if len(tests) == 0 {
		return nil, fmt.Errorf("no test of %s ran: %w; see %s", Folder, errors.Join(err, errors.New("nothing was reported")), r.LogFile())
	}
	return &e2e.Result{Name: r.Name, Version: node.KubernetesVersion(), Specs: specs(tests)}, nil
}

// LogFile has all that the tests print.
func (r *Run) LogFile() string { return filepath.Join(r.LogDir, "output.log") }

func (r *Run) path(elem ...string) string { return filepath.Join(append([]string{r.Dir}, elem...)...) }

// The folders of a run.
const (
	currentDir  = "current"
	previousDir = "previous"
	servedDir   = "served"
	shimDir     = "shims"
)

// prepare makes the folders.
func (r *Run) prepare() error {
	for _, dir := range []string{r.Dir, r.LogDir} {
		if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
			return err
		}
	}
	if err := r.Current.writeTo(r.path(currentDir)); err != nil {
		return err
	}
	// What is there need not be downloaded.
	if err := r.Previous.writeTo(r.path(previousDir, r.PreviousVersion)); err != nil {
		return err
	}
	if err := writeStable(r.path(servedDir), r.PreviousRelease, r.PreviousVersion); err != nil {
		return err
	}
	return e2e.WriteSudo(r.path(shimDir))
}

// serve makes the node take this machine for the one with upstream's downloads.
func (r *Run) serve(ctx context.Context, node Node) (net.Listener, error) {
	hosts, err := os.ReadFile("/etc/hosts")
	if err != nil {
		return nil, err
	}
	file := r.path("hosts")
	if err := os.WriteFile(file, fmt.Appendf(nil, "127.0.0.1 %s\n%s", downloadHost, hosts), 0o644); err != nil {
		return nil, err
	}
	if _, err := node.RunInNode(ctx, "mount", "--bind", file, "/etc/hosts"); err != nil {
		return nil, err
	}
	l, err := node.ListenInNode("127.0.0.1:443")
	if err != nil {
		return nil, err
	}
	if err := serveDownloads(l, r.path(servedDir), r.certFile()); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (r *Run) certFile() string { return r.path("downloads.crt") }

// environ is what the tests and hack/local-up-cluster.sh go by.
func (r *Run) environ(node Node) ([]string, error) {
	etcd, err := tools.Version(r.Repo, "etcd")
	if err != nil {
		return nil, err
	}
	path := []string{r.path(currentDir), r.path(shimDir), tools.Dir(r.Repo), os.Getenv("PATH")}
	// A proxy of this machine is not for a node that has a network of its own.
	foreign := []string{"PATH", "HOME", "USER", "TMPDIR", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "KUBECONFIG", "GOFLAGS"}
	return sys.Without(foreign,
		"PATH="+strings.Join(path, string(filepath.ListSeparator)),
		"HOME="+r.Dir,
		"USER=root",
		"ARTIFACTS="+r.LogDir,
		"SSL_CERT_FILE="+r.certFile(),
		"KUBERNETES_SERVER_BIN_DIR="+r.path(currentDir),
		"KUBERNETES_SERVER_CACHE_DIR="+r.path(previousDir),
		"CONTROLPLANE_SUDO=", "KUBELET_SUDO=", "PROXY_SUDO=",
		"ADVERTISE_ADDRESS="+node.NodeAddress(),
		// The one that clusters of this repository have. Upstream may ask for a newer one.
		"ETCD_VERSION="+strings.TrimPrefix(etcd, "v"),
		// Its image would have to be pulled, and no test asks for names.
		"KUBE_ENABLE_CLUSTER_DNS=false",
		"CGROUP_DRIVER=cgroupfs",
		"CGROUP_ROOT=/"+node.NodeCgroup(),
		"KUBELET_FLAGS=--fail-cgroupv1=false",
		// The disk is the user's own business.
		"EVICTION_HARD=memory.available<50Mi",
	), nil
}

// tell shows tests that are done: all that failed, and of others the first two levels.
func (r *Run) tell(t testrun.Test) {
	if t.Status == "fail" || strings.Count(t.Name, "/") < 2 {
		r.Log("%s: %s %s", r.Name, t.Status, t.Name)
	}
}

// read runs a command, and reads what it says about tests.
func read(cmd *exec.Cmd, log io.Writer, ended func(testrun.Test)) ([]testrun.Test, error) {
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	tests, err := testrun.Read(out, log, ended)
	return tests, errors.Join(err, cmd.Wait())
}

// specs are tests in the terms of upstream's other suites.
func specs(tests []testrun.Test) []e2e.SpecResult {
	var all []e2e.SpecResult
	for _, t := range tests {
		s := e2e.SpecResult{Spec: e2e.Spec{Name: t.Name}}
		switch t.Status {
		case "pass":
			s.Outcome = e2e.Passed
		case "skip":
			s.Outcome, s.Reason = e2e.Skipped, reason(t.Output)
		case "fail":
			s.Outcome, s.Reason = e2e.Failed, reason(t.Output)
		default:
			s.Outcome, s.Reason = e2e.Failed, "it did not end"
		}
		all = append(all, s)
	}
	return all
}

// reason is the last thing that a test says itself.
func reason(output []string) string {
	for _, line := range slices.Backward(output) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "---") && !strings.HasPrefix(line, "===") {
			return line
		}
	}
	return "it does not say why"
}

// Only is a result with the tests that another one has, too.
func Only(result, other *e2e.Result) *e2e.Result {
	only := *result
	only.Specs = slices.DeleteFunc(slices.Clone(result.Specs), func(s e2e.SpecResult) bool {
		function, _, _ := strings.Cut(s.Name, "/")
		return !slices.ContainsFunc(other.Specs, func(o e2e.SpecResult) bool { return o.Name == function })
	})
	return &only
}
