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
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2/types"

	"kubernetes-dra/hack/pkg/cluster"
	"kubernetes-dra/hack/pkg/sys"
	"kubernetes-dra/hack/pkg/tree/ledger"
)

const (
	// draLabels select the specs about DRA. Up to 1.32 they have no label of
	// their own, but require the feature.
	draLabels         = "DRA || /^Feature:DynamicResourceAllocation$/"
	conformanceLabels = "Conformance"
)

// Programs that are built from a tree: the suite, what runs it in parallel, and what runs in containers.
const (
	suiteProgram    = "e2e.test"
	ginkgoProgram   = "ginkgo"
	agnhost         = "agnhost"
	devicePlugin    = "sample-device-plugin"
	hostPathProgram = "hostpathplugin"
	pauseProgram    = "pause"
	sampleAPIServer = "sample-apiserver"
)

// again has ginkgo run a spec twice if it fails. Specs have deadlines, which a busy machine may miss.
const again = "flake-attempts=2"

// Suite is upstream's end-to-end suite in a tree.
type Suite struct {
	// Repo is the root of this repository, Tree the Kubernetes tree.
	Repo, Tree string
	// Bin gets the programs that are built, Cache what is downloaded.
	Bin, Cache string
	// LDFlags are those for the suite: some specs ask it for its version.
	LDFlags string
	// Conformance selects the specs of conformance in place of those about DRA.
	Conformance bool
	// Content is the git tree object of the tree. Only keeps specs out whose name does not have this text.
	Content, Only string
	// Output is a folder for clusters, Logs one for what is found on them.
	Output, Logs string
	// Log tells the user what is going on, and Out gets what ginkgo says meanwhile.
	Log func(format string, args ...any)
	Out io.Writer

	// specs are those with the labels, as the suite itself lists them.
	specs types.SpecReports
}

func (s *Suite) filter() string {
	if s.Conformance {
		return conformanceLabels
	}
	return draLabels
}

func (s *Suite) program(name string) string { return filepath.Join(s.Bin, name) }

// Build builds the suite and the other programs, and lists the specs.
func (s *Suite) Build(ctx context.Context) error {
	if err := os.MkdirAll(s.Bin, 0o755); err != nil {
		return err
	}
	into := []string{"build", "-ldflags=-s -w", "-o", s.Bin + string(filepath.Separator)}
	fromTree := append(slices.Clone(into), "github.com/onsi/ginkgo/v2/ginkgo", "./test/images/"+agnhost, "./test/images/"+devicePlugin)
	if s.Conformance {
		fromTree = append(fromTree, "k8s.io/"+sampleAPIServer)
	}
	own := sys.Without([]string{"GOFLAGS"}, sys.GoFlags(), "GOWORK=off", "CGO_ENABLED=0")
	for _, b := range []struct {
		what, dir string
		env, args []string
	}{
		{"the suite", s.Tree, sys.GoEnviron(), []string{"test", "-c", "-ldflags=" + s.LDFlags, "-o", s.program(suiteProgram), "./test/e2e"}},
		{"what it runs with", s.Tree, sys.GoEnviron(), fromTree},
		{"our own part", s.Repo, own, append(into, "./test/upstream/"+hostPathProgram, "./test/cluster/"+pauseProgram)},
	} {
		s.Log("compile %s", b.what)
		if err := sys.Run(ctx, sys.Command(ctx, b.dir, b.env, "go", b.args...)); err != nil {
			return fmt.Errorf("compile %s, in %s: %w", b.what, b.dir, err)
		}
	}
	report := s.program("specs.json")
	if _, err := s.ask(ctx, "--ginkgo.dry-run", "--ginkgo.label-filter="+s.filter(), "--ginkgo.json-report="+report); err != nil {
		return err
	}
	all, err := reported(report)
	if err != nil {
		return err
	}
	s.specs = slices.DeleteFunc(all, func(r types.SpecReport) bool { return r.State != types.SpecStatePassed })
	if len(s.specs) == 0 {
		return fmt.Errorf("%s has no specs with the labels %s", s.program(suiteProgram), s.filter())
	}
	s.Log("the suite has %d such specs", len(s.specs))
	return nil
}

// ask runs the suite without a cluster.
func (s *Suite) ask(ctx context.Context, args ...string) (string, error) {
	return sys.Output(ctx, sys.Command(ctx, s.Bin, nil, s.program(suiteProgram), args...))
}

// labels are those of all the specs.
func (s *Suite) labels() []string {
	labels := map[string]bool{}
	for _, spec := range s.specs {
		for _, label := range spec.Labels() {
			labels[label] = true
		}
	}
	return slices.Sorted(maps.Keys(labels))
}

var (
	servedAPI = regexp.MustCompile(`"?([a-z0-9.]+/v\w+)"?(?:: "|=)true`)
	kindGate  = regexp.MustCompile(`(?m)^  ([A-Z]\w*): true$`)
)

// config is what a cluster must have for the specs: APIs for the API server's --runtime-config, and
// feature gates. Upstream's configuration for kind beside the specs has both, before 1.34 with the APIs
// in a patch for kubeadm. The gates that a spec has as labels have to be on, too: it could not run
// otherwise. Conformance is that of a cluster as it comes.
func (s *Suite) config() (runtimeConfig string, gates []string, err error) {
	if s.Conformance {
		return "", nil, nil
	}
	content, err := os.ReadFile(filepath.Join(s.Tree, "test", "e2e", "dra", "kind.yaml"))
	if err != nil {
		return "", nil, fmt.Errorf("upstream's configuration for the specs: %w", err)
	}
	var apis []string
	for _, match := range servedAPI.FindAllSubmatch(content, -1) {
		if api := string(match[1]) + "=true"; !slices.Contains(apis, api) {
			apis = append(apis, api)
		}
	}
	for _, match := range kindGate.FindAllSubmatch(content, -1) {
		gates = append(gates, string(match[1]))
	}
	for _, label := range s.labels() {
		if gate := gateOf(label); gate != "" {
			gates = append(gates, gate)
		}
	}
	return strings.Join(apis, ","), gates, nil
}

// Run are the specs to run on a cluster with nodes that have a kubelet.
type Run struct {
	// Name of the run, for messages.
	Name string
	// Kubeconfig is the path of the administrator's, Kubectl that of the program.
	Kubeconfig, Kubectl string
	// Procs is how many specs run at the same time. They mostly wait. Nodes is how many nodes there are.
	Procs, Nodes int
	// Logs is a folder for the output and the reports. What is there is removed.
	Logs string
	// Kubelet is the minor release of an older kubelet, empty if it is none, and Lacks are feature
	// gates that it does not have although the API server does.
	Kubelet string
	Lacks   []string
}

// greedy ends the name of a spec that stores 80 MiB of ResourceSlices and lists them every two
// seconds, up to 1.35. It runs after the others: they would miss their deadlines on a small machine.
const greedy = "ResourceSlice Controller creates slices"

var gateMetric = regexp.MustCompile(`(?m)^kubernetes_feature_enabled\{name="(\w+)",[^}]*\} 1$`)

// Run runs the specs.
func (s *Suite) Run(ctx context.Context, r Run) (*Result, error) {
	metrics, err := r.kubectl(ctx, "", "get", "--raw", "/metrics")
	if err != nil {
		return nil, err
	}
	on := map[string]bool{}
	for _, match := range gateMetric.FindAllStringSubmatch(metrics, -1) {
		on[match[1]] = true
	}
	if len(on) == 0 {
		return nil, errors.New("the metrics of the API server say of no feature gate that it is on")
	}
	out, err := r.kubectl(ctx, "", "get", "--raw", "/version")
	if err != nil {
		return nil, err
	}
	var version struct{ GitVersion string }
	if err := json.Unmarshal([]byte(out), &version); err != nil {
		return nil, fmt.Errorf("version of the API server: %w", err)
	}
	if !s.Conformance && ledger.Minor(version.GitVersion) <= 35 {
		if _, err := r.kubectl(ctx, statusRole, "apply", "--filename=-"); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(os.RemoveAll(r.Logs), os.MkdirAll(r.Logs, 0o755)); err != nil {
		return nil, err
	}
	excluded := exclusions(s.labels(), func(gate string) bool { return on[gate] && !slices.Contains(r.Lacks, gate) }, r.Kubelet, runtime.NumCPU())
	filter := "--label-filter=" + without(s.filter(), excluded)
	together := []string{"--skip=" + greedy + "$", filter}
	if s.Only != "" {
		together = append(together, "--focus="+regexp.QuoteMeta(s.Only))
	}
	if err := s.ginkgo(ctx, r, "report", r.Procs, together...); err != nil {
		return nil, err
	}
	files := []string{filepath.Join(r.Logs, "report.json")}
	if slices.ContainsFunc(s.specs, func(spec types.SpecReport) bool {
		return strings.HasSuffix(spec.FullText(), greedy) && strings.Contains(spec.FullText(), s.Only)
	}) {
		if err := s.ginkgo(ctx, r, "alone", 1, "--focus="+greedy+"$", filter); err != nil {
			return nil, err
		}
		files = append(files, filepath.Join(r.Logs, "alone.json"))
	}
	reports, err := reported(files...)
	if err != nil {
		return nil, fmt.Errorf("%w; see %s", err, r.Logs)
	}
	result := &Result{Name: r.Name, Version: version.GitVersion}
	result.Specs, err = outcomes(reports, s.filter(), s.Only, excluded)
	return result, err
}

// ginkgo runs some of the specs, and writes reports of that name.
func (s *Suite) ginkgo(ctx context.Context, r Run, name string, procs int, filters ...string) error {
	log, err := os.Create(filepath.Join(r.Logs, name+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	temp, err := os.MkdirTemp("", "carry-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	args := append([]string{
		"run", "--no-color", "--timeout=4h", "--" + again, fmt.Sprintf("--procs=%d", procs),
		"--output-dir=" + r.Logs, "--json-report=" + name + ".json", "--junit-report=" + name + ".xml",
	}, filters...)
	args = append(args, s.program(suiteProgram), "--", "--kubeconfig="+r.Kubeconfig, "--kubectl-path="+r.Kubectl,
		"--provider=skeleton", fmt.Sprintf("--num-nodes=%d", r.Nodes), "--disable-log-dump=true")
	s.Log("%s: run the specs, see %s", r.Name, log.Name())
	cmd := sys.Command(ctx, r.Logs, append(os.Environ(), "TMPDIR="+temp), s.program(ginkgoProgram), args...)
	cmd.Stdout = io.MultiWriter(log, s.Out)
	cmd.Stderr = log
	return runReported(ctx, cmd, filepath.Join(r.Logs, name+".json"), log.Name())
}

func (r Run) kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := sys.Command(ctx, "", nil, r.Kubectl, append([]string{"--kubeconfig=" + r.Kubeconfig}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	return sys.Output(ctx, cmd)
}

// statusRole is what an administrator grants before turning DRAResourceClaimGranularStatusAuthorization
// on, for a suite whose driver knows nothing of it: up to 1.35, only the carry has that gate. In 1.34 and
// 1.35, a spec lets the driver of a node report devices that all nodes share, which takes the wider
// permission.
const statusRole = `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: carry-e2e-device-status}, rules: [{
  apiGroups: [resource.k8s.io], resources: [resourceclaims/driver],
  verbs: ["associated-node:update", "associated-node:patch", "arbitrary-node:update", "arbitrary-node:patch"]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: carry-e2e-device-status},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: carry-e2e-device-status},
  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:serviceaccounts"}]}
`

// Programs are those of a release in a folder.
type Programs struct {
	// Release is the minor one, and Version what upstream calls it.
	Release, Version string
	// Tree is the Kubernetes tree that they are from.
	Tree, Bin string
	// On are feature gates to turn on, those of our features for example.
	On []string
}

var gateHelp = regexp.MustCompile(`(?:^|\s|:)(\w+)=true\|false \(`)

// gates are those to turn on, and others as far as a program says that they can be set.
func (p Programs) gates(ctx context.Context, program string, others []string) (map[string]bool, error) {
	program = filepath.Join(p.Bin, program)
	help, err := sys.Output(ctx, sys.Command(ctx, "", nil, program, "--help"))
	if err != nil {
		return nil, err
	}
	known := gateHelp.FindAllStringSubmatch(help, -1)
	if len(known) == 0 {
		return nil, fmt.Errorf("%s --help lists no feature gate", program)
	}
	gates := map[string]bool{}
	for _, match := range known {
		if slices.Contains(others, match[1]) {
			gates[match[1]] = true
		}
	}
	for _, gate := range p.On {
		gates[gate] = true
	}
	return gates, nil
}

// setting is the value of --feature-gates.
func (p Programs) setting() string {
	var list []string
	for _, gate := range slices.Sorted(slices.Values(p.On)) {
		list = append(list, gate+"=true")
	}
	return strings.Join(list, ",")
}

// Variant is what the suite runs on. The kubelet may be of an older release than the rest.
type Variant struct {
	Name          string
	Rest, Kubelet Programs
}

const (
	// nodes is how many a cluster has: some specs need three.
	nodes = 3
	procs = 8
)

func (s *Suite) key() string { return fmt.Sprintf("%s %q %d", s.Content, s.Only, nodes) }

// Found is what a run on the variant found before with the same tree, nil if there was none.
func (s *Suite) Found(v Variant) (*Result, error) {
	return load(filepath.Join(s.Logs, v.Name), s.key())
}

// On runs the suite on a cluster of its own, and saves what it found.
func (s *Suite) On(ctx context.Context, v Variant) (*Result, error) {
	images, err := s.Images(ctx)
	if err != nil {
		return nil, err
	}
	runtimeConfig, wanted, err := s.config()
	if err != nil {
		return nil, err
	}
	gates, err := v.Rest.gates(ctx, cluster.APIServer, wanted)
	if err != nil {
		return nil, err
	}
	s.Log("%s: feature gates that are set: %s", v.Name, strings.Join(slices.Sorted(maps.Keys(gates)), ", "))
	run := Run{
		Name: v.Name, Kubectl: filepath.Join(v.Rest.Bin, "kubectl"), Procs: procs, Nodes: nodes, Logs: filepath.Join(s.Logs, v.Name),
	}
	options := cluster.Options{
		Repo: s.Repo, Release: v.Rest.Release, Bin: v.Rest.Bin, Dir: filepath.Join(s.Output, "cluster-"+filepath.Base(s.Logs)+"-"+v.Name),
		RealNodes: nodes, Gates: gates, LogLevel: 4, RuntimeConfig: runtimeConfig, Services: s.Conformance, Images: images,
		// Where upstream's sample device plugin makes its devices.
		Private: []string{"/tmp"},
	}
	if v.Kubelet.Release != v.Rest.Release {
		older, err := v.Kubelet.gates(ctx, cluster.Kubelet, wanted)
		if err != nil {
			return nil, err
		}
		run.Kubelet = v.Kubelet.Release
		run.Lacks = slices.DeleteFunc(slices.Clone(v.Rest.On), func(gate string) bool { return older[gate] })
		options.Kubelet = &cluster.Programs{Bin: v.Kubelet.Bin, Gates: older}
	}
	var result *Result
	err = onCluster(ctx, options, s.Log, func(up *cluster.Cluster) (err error) {
		if real, reason := up.HasRealNode(); !real {
			return fmt.Errorf("the specs need a node with a kubelet: %s", reason)
		}
		run.Kubeconfig = up.Kubeconfig()
		result, err = s.Run(ctx, run)
		return err
	})
	if err != nil {
		return nil, err
	}
	result.Key = s.key()
	return result, result.save(run.Logs)
}

// onCluster calls a function with a cluster that exists as long as that.
func onCluster(ctx context.Context, options cluster.Options, log func(string, ...any), run func(c *cluster.Cluster) error) (err error) {
	// What an interrupted run left has its own options.
	left, err := cluster.New(options, log)
	if err != nil {
		return err
	}
	if err := left.Down(ctx); err != nil {
		return err
	}
	c, err := cluster.New(options, log)
	if err != nil {
		return err
	}
	if _, err := c.Up(ctx); err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
		defer cancel()
		err = errors.Join(err, c.Down(ctx))
	}()
	start := time.Now()
	err = run(c)
	log("done after %s", time.Since(start).Round(time.Second))
	return err
}

// runReported runs a command that writes a report. If it does, whatever the command ended with is in it.
func runReported(ctx context.Context, cmd *exec.Cmd, report, log string) error {
	err := cmd.Run()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if _, missing := os.Stat(report); missing != nil {
		return fmt.Errorf("%w; see %s", errors.Join(err, missing), log)
	}
	return nil
}
