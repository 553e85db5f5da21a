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

package upstream

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"kubernetes-dra/hack/pkg/cluster"
	"kubernetes-dra/hack/pkg/sys"
	"kubernetes-dra/hack/pkg/test/testrun"
	"kubernetes-dra/hack/pkg/tools"
)

// Bare runs tests that start what they need themselves, on a node that has a container runtime alone, and
// a network of its own in which nobody listens.
type Bare struct {
	// Repo is the root of this repository.
	Repo string
	// Output is a folder for the node and files of a run, Logs one for what tests and components say.
	Output, Logs string
	// Log tells the user what is going on.
	Log func(format string, args ...any)
}

var (
	//go:embed sudo.sh
	sudo []byte
	//go:embed systemd.sh
	systemd []byte
)

// dir is a folder for files of a run, logs one for its output.
func (b Bare) dir(run string) string  { return filepath.Join(b.Output, filepath.Base(b.Logs), run) }
func (b Bare) logs(run string) string { return filepath.Join(b.Logs, run) }

// prepare makes the folders of a run, with what stands in for programs of a machine.
func (b Bare) prepare(run string) error {
	dir := b.dir(run)
	for _, d := range []string{dir, b.logs(run)} {
		if err := errors.Join(os.RemoveAll(d), os.MkdirAll(d, 0o755)); err != nil {
			return err
		}
	}
	return errors.Join(
		sys.WriteFile(filepath.Join(dir, "shims", "sudo"), sudo, 0o755),
		sys.WriteFile(filepath.Join(dir, "shims", "systemd-run"), systemd, 0o755),
		sys.WriteFile(filepath.Join(dir, "shims", "systemctl"), systemd, 0o755),
	)
}

// on calls a function with a node, which has the images that tests in a tree want.
func (b Bare) on(ctx context.Context, run string, p Programs, f func(c *cluster.Cluster) error) error {
	if err := tools.Build(ctx, b.Repo, []string{"cfssl", "etcd"}, b.Log); err != nil {
		return err
	}
	images, err := nodeImages(p.Tree)
	if err != nil {
		return err
	}
	return onCluster(ctx, cluster.Options{
		Repo: b.Repo, Release: p.Release, Bin: p.Bin, Dir: filepath.Join(b.Output, "cluster-"+filepath.Base(b.Logs)+"-"+run),
		Bare: true, Images: images, Private: []string{"/tmp", "/run/kubernetes", "/opt/cni"},
	}, b.Log, f)
}

// environ has programs of a run before those of the machine.
func (b Bare) environ(run string, extra ...string) []string {
	path := []string{b.dir(run), filepath.Join(b.dir(run), "shims"), tools.Dir(b.Repo), os.Getenv("PATH")}
	// A proxy of this machine is not for a node that has a network of its own.
	foreign := []string{"PATH", "HOME", "USER", "TMPDIR", "KUBECONFIG", "GOFLAGS", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"}
	return sys.Without(foreign, append([]string{
		"PATH=" + strings.Join(path, string(filepath.ListSeparator)), "HOME=" + b.dir(run), "USER=root",
	}, extra...)...)
}

// compiling is held by the run that compiles: the tests have an API server in them.
var compiling sync.Mutex

// compile compiles tests of a tree.
func (b Bare) compile(ctx context.Context, tree, folder, binary string, flags ...string) error {
	if _, err := os.Stat(filepath.Join(tree, folder)); err != nil {
		return fmt.Errorf("this release has no such tests: %w", err)
	}
	compiling.Lock()
	defer compiling.Unlock()
	b.Log("compile %s of %s", folder, tree)
	args := append([]string{"test", "-c", "-ldflags=-s -w", "-o", binary}, flags...)
	return sys.Run(ctx, sys.Command(ctx, tree, sys.GoEnviron(), "go", append(args, "./"+folder)...))
}

// nodeConfig is what the node suite's kubelet begins with. It is this repository's usual one where the
// machine matters.
const nodeConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
cgroupRoot: /%s
failCgroupV1: false
# The disk is the user's own business.
imageGCHighThresholdPercent: 100
evictionHard:
  memory.available: 50Mi
`

// nodeLabels select the specs in test/e2e_node about DRA. Others that need the feature want a
// kube-controller-manager, and run in the suite for clusters.
const nodeLabels = "DRA"

// NodeSpecs runs upstream's node specs about DRA. The suite has etcd and the API server in it, and
// starts a kubelet, which it looks for beside itself.
func (b Bare) NodeSpecs(ctx context.Context, run string, p Programs) (*Result, error) {
	if err := b.prepare(run); err != nil {
		return nil, err
	}
	dir, logs := b.dir(run), b.logs(run)
	binary, config, report := filepath.Join(dir, "e2e_node.test"), filepath.Join(dir, "kubeletconfig.yaml"), filepath.Join(logs, "report.json")
	if err := b.compile(ctx, p.Tree, "test/e2e_node", binary); err != nil {
		return nil, err
	}
	if err := os.Symlink(filepath.Join(p.Bin, cluster.Kubelet), filepath.Join(dir, cluster.Kubelet)); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(logs, "output.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	result := &Result{Name: run, Version: p.Version}
	return result, b.on(ctx, run, p, func(c *cluster.Cluster) error {
		group, address := c.NodeCgroup(), c.NodeAddress()
		if err := os.WriteFile(config, fmt.Appendf(nil, nodeConfig, group), 0o644); err != nil {
			return err
		}
		// The API server wants to know where it is reached, and goes by the default route.
		link := "ip link add up0 type veth peer name up1; ip address add " + address + "/32 dev up0; " +
			"ip link set up0 up; ip link set up1 up; ip route add default dev up0"
		if _, err := c.RunInNode(ctx, "sh", "-e", "-c", link); err != nil {
			return err
		}
		args := []string{
			"env", "--chdir=" + dir, binary, "--ginkgo.v", "--ginkgo.no-color", "--ginkgo.timeout=2h", "--ginkgo." + again,
			"--ginkgo.label-filter=" + nodeLabels, "--ginkgo.json-report=" + report, "--ginkgo.junit-report=" + filepath.Join(logs, "report.xml"),
			"--report-dir=" + logs, "--node-name=node",
			// They are on the node already, those that the specs need.
			"--prepull-images=false",
			"--container-runtime-endpoint=unix:///run/containerd/containerd.sock", "--kubelet-config-file=" + config,
			// The suite sets the control group of the kubelet itself, outside that of the node.
			"--kubelet-flags=--kubelet-cgroups=/" + group + "/kubelet --node-ip=" + address,
		}
		if gates := p.setting(); gates != "" {
			args = append(args, "--feature-gates="+gates, "--service-feature-gates="+gates)
		}
		command, err := c.InNode(args...)
		if err != nil {
			return err
		}
		b.Log("%s: run the specs, see %s", run, log.Name())
		cmd := sys.Command(ctx, dir, b.environ(run, "NODE_UNITS="+filepath.Join(dir, "units")), command[0], command[1:]...)
		cmd.Stdout, cmd.Stderr = log, log
		if err := runReported(ctx, cmd, report, log.Name()); err != nil {
			return err
		}
		reports, err := reported(report)
		if err == nil {
			result.Specs, err = outcomes(reports, nodeLabels, "", nil)
		}
		if err != nil {
			return fmt.Errorf("%w; see %s", err, log.Name())
		}
		return nil
	})
}

const upgradeFolder = "test/e2e_dra"

// The test functions there.
const (
	UpgradeTest   = "TestUpgradeDowngrade"
	GateCycleTest = "TestFeatureGateCycle"
)

// upgradeBinary is what [Bare.CompileUpgrade] makes.
func (b Bare) upgradeBinary() string { return b.dir("e2e_dra.test") }

// CompileUpgrade compiles the tests of a tree for [Bare.Upgrade].
func (b Bare) CompileUpgrade(ctx context.Context, tree string) error {
	// They ask upstream which version of the release before is the newest. A file of ours answers.
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(tree, upgradeFolder, "newest_test.go"): filepath.Join(b.Repo, "test", "upstream", "testdata", "newest_test.go"),
	}})
	if err != nil {
		return err
	}
	file := b.dir("overlay.json")
	if err := sys.WriteFile(file, overlay, 0o644); err != nil {
		return err
	}
	return b.compile(ctx, tree, upgradeFolder, b.upgradeBinary(), "-overlay="+file)
}

// Upgrade runs upstream's tests that upgrade a cluster, go back, and turn feature gates off and on, which
// are in a tree. They start the cluster themselves, with hack/local-up-cluster.sh of their tree.
func (b Bare) Upgrade(ctx context.Context, run, tree string, from, to Programs, functions ...string) (*Result, error) {
	if err := b.prepare(run); err != nil {
		return nil, err
	}
	dir, logs := b.dir(run), b.logs(run)
	current, previous := filepath.Join(dir, "current"), filepath.Join(dir, "previous")
	// What is there need not be downloaded.
	if err := errors.Join(to.writeTo(current), from.writeTo(filepath.Join(previous, from.Version))); err != nil {
		return nil, err
	}
	etcd, err := tools.Version(b.Repo, "etcd")
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(logs, "output.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	result := &Result{Name: run, Version: to.Version}
	to.Tree = tree
	return result, b.on(ctx, run, to, func(c *cluster.Cluster) error {
		// Upstream's script looks for it, and would download the plugins.
		if _, err := c.RunInNode(ctx, "install", "-D", "-t", "/opt/cni/bin", filepath.Join(tools.Dir(b.Repo), "loopback")); err != nil {
			return err
		}
		command, err := c.InNode("env", "--chdir="+filepath.Join(tree, upgradeFolder), b.upgradeBinary(),
			"-test.v=test2json", "-test.timeout=90m", "-test.run=^("+strings.Join(functions, "|")+")$")
		if err != nil {
			return err
		}
		b.Log("%s: run %v, see %s", run, functions, log.Name())
		cmd := sys.Command(ctx, dir, b.environ(run,
			"PATH="+strings.Join([]string{current, filepath.Join(dir, "shims"), tools.Dir(b.Repo), os.Getenv("PATH")}, ":"),
			"ARTIFACTS="+logs,
			"NEWEST_URL=https://dl.k8s.io/release/stable-"+from.Release+".txt", "NEWEST_VERSION="+from.Version,
			"KUBERNETES_SERVER_BIN_DIR="+current,
			"KUBERNETES_SERVER_CACHE_DIR="+previous,
			"CONTROLPLANE_SUDO=", "KUBELET_SUDO=", "PROXY_SUDO=",
			"ADVERTISE_ADDRESS="+c.NodeAddress(),
			// The one that clusters of this repository have. Upstream may ask for a newer one.
			"ETCD_VERSION="+strings.TrimPrefix(etcd, "v"),
			// Its image would have to be pulled, and no test asks for names.
			"KUBE_ENABLE_CLUSTER_DNS=false",
			"CGROUP_DRIVER=cgroupfs", "CGROUP_ROOT=/"+c.NodeCgroup(), "KUBELET_FLAGS=--fail-cgroupv1=false",
			// The disk is the user's own business.
			"EVICTION_HARD=memory.available<50Mi",
		), "go", append([]string{"tool", "test2json", "-t", "-p", upgradeFolder}, command...)...)
		out, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		cmd.Stderr = log
		if err := cmd.Start(); err != nil {
			return err
		}
		tests, err := testrun.Read(out, log, func(t testrun.Test) {
			// All that failed, and of others the first two levels.
			if t.Status == "fail" || strings.Count(t.Name, "/") < 2 {
				b.Log("%s: %s %s", run, t.Status, t.Name)
			}
		})
		err = errors.Join(err, cmd.Wait())
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if len(tests) == 0 {
			return fmt.Errorf("no test of %s ran: %w; see %s", upgradeFolder, errors.Join(err, errors.New("nothing was reported")), log.Name())
		}
		for _, t := range tests {
			result.Specs = append(result.Specs, fromTest(t))
		}
		return nil
	})
}

// writeTo makes a folder with these programs, as upstream's tests want them. They know no way to set
// gates of others, therefore a script stands before each program that gets some.
func (p Programs) writeTo(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range []string{cluster.APIServer, cluster.ControllerManager, cluster.Scheduler, cluster.Kubelet, cluster.Proxy, "kubectl"} {
		program, file := filepath.Join(p.Bin, name), filepath.Join(dir, name)
		if _, err := os.Stat(program); err != nil {
			return fmt.Errorf("%s is not built: %w", name, err)
		}
		var err error
		if len(p.On) == 0 || name == cluster.Proxy || name == "kubectl" {
			err = os.Symlink(program, file)
		} else {
			err = os.WriteFile(file, fmt.Appendf(nil, "#!/bin/sh\nexec '%s' \"$@\" '--feature-gates=%s'\n", program, p.setting()), 0o755)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fromTest is a test in the terms of upstream's other suites.
func fromTest(t testrun.Test) Spec {
	s := Spec{Name: t.Name, Outcome: Failed, Reason: "it does not say why"}
	// That is the last thing that it says itself.
	for _, line := range slices.Backward(t.Output) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "---") && !strings.HasPrefix(line, "===") {
			s.Reason = line
			break
		}
	}
	switch t.Status {
	case "pass":
		s.Outcome, s.Reason = Passed, ""
	case "skip":
		s.Outcome = Skipped
	case "":
		s.Reason = "it did not end"
	}
	return s
}
