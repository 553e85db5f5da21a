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

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"kubernetes-dra/hack/pkg/sys"
	"kubernetes-dra/hack/pkg/tools"
)

const (
	// nodeProgram is upstream's suite for one node.
	nodeProgram = "e2e_node.test"
	// nodeLabels select the specs in test/e2e_node about DRA. Others that need the feature want a
	// kube-controller-manager, and run in the suite for clusters.
	nodeLabels = "DRA"
)

// NodeRun runs upstream's node specs about DRA on a node with a container runtime alone. The suite has etcd
// and the API server in it, and starts a kubelet.
type NodeRun struct {
	// Name of the run, for messages and files.
	Name string
	// Repo is the root of this repository, Binary what [CompileNode] made, Kubelet the program.
	Repo, Binary, Kubelet string
	// Gates are feature gates of API server and kubelet.
	Gates map[string]bool
	// Dir is for files of this run, and the node must see it. LogDir gets the output, and the report.
	Dir, LogDir string
	// Log tells the user what is going on.
	Log func(format string, args ...any)
}

// BareNode has a container runtime, and a network of its own in which nobody listens.
type BareNode interface {
	InNode(args ...string) ([]string, error)
	RunInNode(ctx context.Context, args ...string) (string, error)
	NodeCgroup() string
	NodeAddress() string
	KubernetesVersion() string
}

// CompileNode compiles the node suite of a tree.
func CompileNode(ctx context.Context, tree, binary string) error {
	const folder = "test/e2e_node"
	if err := sys.Run(ctx, sys.Command(ctx, tree, sys.GoEnviron(), "go", "test", "-c", "-ldflags=-s -w", "-o", binary, "./"+folder)); err != nil {
		return fmt.Errorf("compile %s of %s: %w", folder, tree, err)
	}
	return nil
}

// On runs the specs on a node that is up.
func (r *NodeRun) On(ctx context.Context, node BareNode) (*Result, error) {
	if err := r.prepare(node); err != nil {
		return nil, err
	}
	specs, err := dryRun(ctx, r.path(workDir), r.Binary, nodeLabels)
	if err != nil {
		return nil, err
	}
	// The API server wants to know where it is reached, and goes by the default route.
	link := "ip link add up0 type veth peer name up1; ip address add " + node.NodeAddress() + "/32 dev up0; " +
		"ip link set up0 up; ip link set up1 up; ip route add default dev up0"
	if _, err := node.RunInNode(ctx, "sh", "-e", "-c", link); err != nil {
		return nil, err
	}
	command, err := node.InNode(append([]string{"env", "--chdir=" + r.path(workDir), r.path(programDir, nodeProgram)}, r.args(node)...)...)
	if err != nil {
		return nil, err
	}
	log, err := os.Create(r.LogFile())
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	cmd := sys.Command(ctx, r.Dir, r.environ(), command[0], command[1:]...)
	runErr := follow(cmd, log, r.Name, len(specs), r.Log)
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	reports, err := readReport(r.report())
	if err != nil {
		// The suite could not even start.
		return nil, fmt.Errorf("%w; see %s", errors.Join(runErr, err), r.LogFile())
	}
	result := &Result{Name: r.Name, Version: node.KubernetesVersion()}
	if err := result.read(reports, specs, nil); err != nil {
		return nil, fmt.Errorf("%w; see %s", err, r.LogFile())
	}
	return result, nil
}

// LogFile has what the suite prints.
func (r *NodeRun) LogFile() string { return filepath.Join(r.LogDir, "output.log") }

func (r *NodeRun) report() string { return filepath.Join(r.LogDir, "report.json") }

func (r *NodeRun) path(elem ...string) string {
	return filepath.Join(append([]string{r.Dir}, elem...)...)
}

// The folders of a run.
const (
	programDir = "bin"
	unitDir    = "units"
	workDir    = "work"
)

// nodeConfig is what the suite's kubelet begins with. It is this repository's usual one where the machine
// matters.
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

// prepare makes the folders. The suite looks for a kubelet beside itself.
func (r *NodeRun) prepare(node BareNode) error {
	if err := errors.Join(os.RemoveAll(r.Dir), os.RemoveAll(r.LogDir)); err != nil {
		return err
	}
	for _, dir := range []string{r.LogDir, r.path(programDir), r.path(unitDir), r.path(workDir)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for name, program := range map[string]string{nodeProgram: r.Binary, "kubelet": r.Kubelet} {
		if err := os.Symlink(program, r.path(programDir, name)); err != nil {
			return err
		}
	}
	if err := errors.Join(WriteSudo(r.path(programDir)), writeSystemd(r.path(programDir))); err != nil {
		return err
	}
	return os.WriteFile(r.path(workDir, "kubeletconfig.yaml"), fmt.Appendf(nil, nodeConfig, node.NodeCgroup()), 0o644)
}

func (r *NodeRun) args(node BareNode) []string {
	args := []string{
		"--ginkgo.v", "--ginkgo.no-color", "--ginkgo.timeout=2h",
		"--ginkgo.flake-attempts=" + strconv.Itoa(attempts),
		"--ginkgo.label-filter=" + nodeLabels,
		"--ginkgo.json-report=" + r.report(), "--ginkgo.junit-report=" + filepath.Join(r.LogDir, "junit.xml"),
		"--report-dir=" + r.LogDir,
		// They are on the node already, those that the specs need.
		"--prepull-images=false",
		"--node-name=node",
		"--container-runtime-endpoint=unix:///run/containerd/containerd.sock",
		"--kubelet-config-file=" + r.path(workDir, "kubeletconfig.yaml"),
		// The suite sets the control group of the kubelet itself, outside that of the node.
		"--kubelet-flags=--kubelet-cgroups=/" + node.NodeCgroup() + "/kubelet --node-ip=" + node.NodeAddress(),
	}
	var gates []string
	for _, gate := range slices.Sorted(maps.Keys(r.Gates)) {
		gates = append(gates, fmt.Sprintf("%s=%t", gate, r.Gates[gate]))
	}
	if len(gates) > 0 {
		list := strings.Join(gates, ",")
		args = append(args, "--feature-gates="+list, "--service-feature-gates="+list)
	}
	return args
}

func (r *NodeRun) environ() []string {
	path := strings.Join([]string{r.path(programDir), tools.Dir(r.Repo), os.Getenv("PATH")}, string(filepath.ListSeparator))
	return sys.Without([]string{"PATH", "HOME", "TMPDIR", "KUBECONFIG"}, "PATH="+path, "HOME="+r.Dir, "NODE_UNITS="+r.path(unitDir))
}
