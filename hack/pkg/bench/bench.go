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

// Package bench measures pods that share a claim, patched beside unpatched, with
// upstream's scheduler_perf and the workloads in the overlay.
package bench

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"sigs.k8s.io/yaml"

	"kubernetes-dra/hack/pkg/sys"
)

// Package is the directory with the workloads in a tree.
const Package = "test/integration/scheduler_perf/dra/reservedfor"

// hook are the files of a tree through which scheduler_perf tells the workloads that
// there are nodes now. Newer releases of Kubernetes can do that without us: the
// first file is not there, and the other one is upstream's.
var hook = []string{
	"test/integration/scheduler_perf/reservedfor.go",
	"test/integration/scheduler_perf/scheduler_perf.go",
}

// Names of the workloads' cases.
const (
	NoClaim                = "NoClaim"
	SharedClaim            = "SharedClaim"
	SharedClaimForWorkload = "SharedClaimForWorkload"
	SharedClaimFull        = "SharedClaimFull"
	Release                = "Release"
	NoClaimOneNode         = "NoClaimOneNode"
	SharedClaimOneNode     = "SharedClaimOneNode"
	NoClaimRack            = "NoClaimRack"
	SharedClaimRack        = "SharedClaimRack"

	// Those with groups are for releases in which pods know theirs: see groupsConfig.
	NoClaimInGroups          = "NoClaimInGroups"
	SharedClaimsForWorkloads = "SharedClaimsForWorkloads"
	SharedClaimsForPodGroups = "SharedClaimsForPodGroups"
	ReleaseWorkloads         = "ReleaseWorkloads"
	ReleasePodGroups         = "ReleasePodGroups"

	// These are upstream's.
	ClaimTemplate = "SchedulingWithResourceClaimTemplate"
	Claim         = "SchedulingWithResourceClaim"
)

// groupsConfig is there in a tree whose scheduler_perf has what groups need.
const groupsConfig = Package + "/groups-config.yaml"

// upstreamConfig has upstream's workloads for DRA.
const upstreamConfig = "test/integration/scheduler_perf/dra/performance-config.yaml"

// Run is one workload in one tree.
type Run struct {
	Case string `json:"case"`
	// Groups, Pods and Nodes select the workload. Groups is 0 for a case without any.
	Groups int `json:"groups,omitempty"`
	Pods   int `json:"pods"`
	Nodes  int `json:"nodes"`
	// Patched is true for the tree with our features.
	Patched bool `json:"patched"`
	// Gate is true if the feature gate is on although the workload does not ask for it.
	Gate bool `json:"gate,omitempty"`
	// Repeat is how often to run. The median counts.
	Repeat int `json:"-"`
	// Timeout for each of them.
	Timeout time.Duration `json:"-"`
}

func (r Run) workload() string {
	if r.Groups > 0 {
		return fmt.Sprintf("%dgroups_%dpods_%dnodes", r.Groups, r.Pods, r.Nodes)
	}
	return fmt.Sprintf("%dpods_%dnodes", r.Pods, r.Nodes)
}

// function is the benchmark with the case.
func (r Run) function() string {
	switch {
	case r.Case == ClaimTemplate || r.Case == Claim:
		return "BenchmarkPerfSchedulingUpstream"
	case r.Groups > 0:
		return "BenchmarkPerfSchedulingGroups"
	}
	return "BenchmarkPerfScheduling"
}

// size is for people.
func (r Run) size() string {
	size := fmt.Sprintf("%s pods, %s nodes", thousands(r.Pods), thousands(r.Nodes))
	if r.Groups > 1 {
		size = fmt.Sprintf("%s claims, %s", thousands(r.Groups), size)
	}
	return size
}

func (r Run) tree() string {
	tree := "unpatched"
	if r.Patched {
		tree = "patched"
	}
	if r.Gate {
		tree += ", gate on"
	}
	return tree
}

func (r Run) String() string { return fmt.Sprintf("%s/%s (%s)", r.Case, r.workload(), r.tree()) }

// Report is what one run measured. The fields are described in the test
// package which writes it.
type Report struct {
	Name                 string   `json:"name"`
	Pods                 int      `json:"pods"`
	Scheduled            int      `json:"scheduled"`
	WallSeconds          float64  `json:"wallSeconds"`
	PodsPerSecond        float64  `json:"podsPerSecond"`
	P50Seconds           float64  `json:"p50Seconds"`
	P99Seconds           float64  `json:"p99Seconds"`
	CPUSeconds           float64  `json:"cpuSeconds"`
	CallsPerPod          float64  `json:"callsPerPod"`
	ClaimWrites          int      `json:"claimWrites"`
	ClaimWritesAttempted int      `json:"claimWritesAttempted"`
	ClaimConflicts       int      `json:"claimConflicts"`
	ClaimBytes           int      `json:"claimBytes"`
	MaxMemoryMiB         int      `json:"maxMemoryMiB"`
	RestCores            *float64 `json:"restCores,omitempty"`
	IdleCores            *float64 `json:"idleCores,omitempty"`
	FreeAfterSeconds     *float64 `json:"freeAfterSeconds,omitempty"`
	DeleteSeconds        *float64 `json:"deleteSeconds,omitempty"`
	CallsPerRelease      *float64 `json:"callsPerRelease,omitempty"`
}

// Burned returns how much CPU pods need that cannot be scheduled: the difference
// to the time before there were such pods.
func (r *Report) Burned() (cores float64, ok bool) {
	if r == nil || r.RestCores == nil || r.IdleCores == nil {
		return 0, false
	}
	return max(0, *r.RestCores-*r.IdleCores), true
}

// Result is a run with its reports.
type Result struct {
	Run
	Reports []Report `json:"reports"`
	// Error says why there are fewer reports than there should be.
	Error string `json:"error,omitempty"`
}

// Median returns the report with the median throughput, nil if there is none.
func (r *Result) Median() *Report {
	if r == nil || len(r.Reports) == 0 {
		return nil
	}
	sorted := slices.Clone(r.Reports)
	slices.SortFunc(sorted, func(a, b Report) int { return cmp.Compare(a.PodsPerSecond, b.PodsPerSecond) })
	return &sorted[(len(sorted)-1)/2]
}

// Spread returns the lowest and the highest throughput.
func (r *Result) Spread() (low, high float64) {
	for i, report := range r.Reports {
		if i == 0 || report.PodsPerSecond < low {
			low = report.PodsPerSecond
		}
		high = max(high, report.PodsPerSecond)
	}
	return low, high
}

// QuickPlan is what fits into five minutes.
func QuickPlan() []Run {
	const timeout = 3 * time.Minute
	var runs []Run
	add := func(c string, pods int, patched bool) {
		nodes := 100
		if c == ClaimTemplate {
			nodes = 200
		}
		runs = append(runs, Run{Case: c, Pods: pods, Nodes: nodes, Patched: patched, Repeat: 1, Timeout: timeout})
	}
	add(NoClaim, 64, false)
	add(SharedClaim, 64, false)
	// With 240 pods, unpatched takes more than a minute.
	add(NoClaim, 240, true)
	add(SharedClaim, 240, true)
	add(SharedClaimForWorkload, 240, true)
	add(NoClaim, 1000, true)
	add(SharedClaimForWorkload, 1000, true)
	add(Release, 1000, true)
	add(ClaimTemplate, 2000, false)
	add(ClaimTemplate, 2000, true)
	return runs
}

// FullPlan is everything that a tree can run.
func FullPlan(groups bool) []Run {
	const timeout = 30 * time.Minute
	var runs []Run
	add := func(c string, groups, pods, nodes int, patched bool) {
		repeat := 1
		switch {
		case pods <= 240:
			// Less than two seconds, in which other programs on the machine count for much.
			repeat = 7
		case groups == 1000:
			// Minutes, most of them for the release of claims.
		case pods <= 2000:
			repeat = 3
		case pods <= 10000 && c != SharedClaimsForPodGroups:
			// Goals are close to 1 here, and the median of three was off by 0.1.
			repeat = 5
		}
		runs = append(runs, Run{Case: c, Groups: groups, Pods: pods, Nodes: nodes, Patched: patched, Repeat: repeat, Timeout: timeout})
	}
	for _, patched := range []bool{false, true} {
		for _, pods := range []int{64, 240} {
			add(NoClaim, 0, pods, 100, patched)
			add(SharedClaim, 0, pods, 100, patched)
		}
	}
	// Unpatched, they take a long time.
	runs[1].Repeat, runs[3].Repeat = 1, 1
	for _, size := range []struct{ pods, nodes int }{
		{240, 100}, {1000, 100}, {5000, 100}, {10000, 100}, {1000, 500}, {10000, 500}, {10000, 5000}, {50000, 5000},
	} {
		if size.pods > 240 {
			add(NoClaim, 0, size.pods, size.nodes, true)
		}
		add(SharedClaimForWorkload, 0, size.pods, size.nodes, true)
		if groups && size.pods < 50000 {
			add(SharedClaimsForPodGroups, 1, size.pods, size.nodes, false)
		}
	}
	add(NoClaimOneNode, 0, 100, 5000, true)
	add(SharedClaimOneNode, 0, 100, 5000, true)
	add(NoClaimRack, 0, 100, 5000, true)
	add(SharedClaimRack, 0, 100, 5000, true)
	add(Release, 0, 1000, 100, true)
	if groups {
		add(NoClaimInGroups, 100, 5000, 50, true)
		add(SharedClaimsForWorkloads, 100, 5000, 50, true)
		add(SharedClaimsForPodGroups, 100, 5000, 50, false)
		for _, size := range []struct{ groups, pods int }{{1, 1000}, {1000, 10000}} {
			add(ReleaseWorkloads, size.groups, size.pods, 100, true)
			add(ReleasePodGroups, size.groups, size.pods, 100, false)
		}
	}
	for _, upstream := range []struct {
		name  string
		nodes int
	}{{ClaimTemplate, 200}, {Claim, 200}} {
		add(upstream.name, 0, 2000, upstream.nodes, false)
		add(upstream.name, 0, 2000, upstream.nodes, true)
	}
	gate := runs[len(runs)-3]
	gate.Gate = true
	runs = append(runs, gate)
	add(SharedClaimFull, 0, 100, 100, false)
	add(SharedClaimFull, 0, 100, 100, true)
	// They wait for a fixed time.
	runs[len(runs)-2].Repeat, runs[len(runs)-1].Repeat = 1, 1
	return runs
}

// HasGroups says whether the workloads with groups can run in the tree.
func (t Tree) HasGroups() bool {
	_, err := os.Stat(filepath.Join(t.Dir, filepath.FromSlash(groupsConfig)))
	return err == nil
}

// Check returns an error if upstream's configuration in the tree lacks a workload of the plan. All other
// workloads are ours.
func (t Tree) Check(plan []Run) error {
	file := filepath.Join(t.Dir, filepath.FromSlash(upstreamConfig))
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	configured, err := workloads(data)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for _, r := range plan {
		if name := r.Case + "/" + r.workload(); (r.Case == ClaimTemplate || r.Case == Claim) && !slices.Contains(configured, name) {
			return fmt.Errorf("%s has no workload %s: choose another one in hack/pkg/bench", file, name)
		}
	}
	return nil
}

// workloads are the names of those in a configuration of scheduler_perf, each after that of its case.
func workloads(config []byte) ([]string, error) {
	var cases []struct {
		Name      string
		Workloads []struct{ Name string }
	}
	if err := yaml.Unmarshal(config, &cases); err != nil {
		return nil, err
	}
	var names []string
	for _, c := range cases {
		for _, w := range c.Workloads {
			names = append(names, c.Name+"/"+w.Name)
		}
	}
	return names, nil
}

// Tree is a Kubernetes tree with the compiled benchmark.
type Tree struct {
	Dir    string
	Binary string
}

// CopyWorkloads adds to an unpatched tree what it needs for the benchmark, and nothing
// else of the patched one.
func (t Tree) CopyWorkloads(patched string) error {
	for _, pkg := range []string{Package, ClaimsPackage} {
		source, target := filepath.Join(patched, filepath.FromSlash(pkg)), filepath.Join(t.Dir, filepath.FromSlash(pkg))
		if err := os.RemoveAll(target); err != nil {
			return err
		}
		if err := os.CopyFS(target, os.DirFS(source)); err != nil {
			return err
		}
	}
	for _, file := range hook {
		data, err := os.ReadFile(filepath.Join(patched, filepath.FromSlash(file)))
		if file == hook[0] && errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(t.Dir, filepath.FromSlash(file)), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Compile builds the benchmark in a package of a tree.
func (t Tree) Compile(ctx context.Context, pkg string) error {
	env, err := sys.TestEnviron(t.Dir)
	if err != nil {
		return err
	}
	if err := sys.Run(ctx, sys.Command(ctx, t.Dir, env, "go", "test", "-c", "-o", t.Binary, "./"+pkg)); err != nil {
		return fmt.Errorf("build the benchmark in %s: %w", t.Dir, err)
	}
	return nil
}

// Bench runs benchmarks.
type Bench struct {
	Patched, Unpatched Tree
	// Gate is the name of the feature gate.
	Gate string
	// Path is the directory with etcd.
	Path string
	// LogDir gets the output of each run.
	LogDir string
	// Log tells the user what is going on.
	Log func(format string, args ...any)
}

// Run goes through a plan. A run that fails is part of the result, the error is only
// for not being able to continue.
func (b *Bench) Run(ctx context.Context, plan []Run) (Results, error) {
	if err := os.MkdirAll(b.LogDir, 0o755); err != nil {
		return nil, err
	}
	total, n := 0, 0
	var results Results
	for _, run := range plan {
		total += run.Repeat
		results = append(results, &Result{Run: run})
	}
	// One of each instead of repeating each immediately: what else the machine does
	// then does not hit only one of those which get compared.
	for round := 0; n < total; round++ {
		for _, result := range results {
			if result.Repeat <= round {
				continue
			}
			n++
			start := time.Now()
			report, err := b.one(ctx, result.Run, fmt.Sprintf("%02d", n))
			if ctx.Err() != nil {
				return results, context.Cause(ctx)
			}
			if err != nil {
				result.Error = err.Error()
				b.Log("%d/%d %s: %s", n, total, result.Run, firstLine(result.Error))
				continue
			}
			result.Reports = append(result.Reports, *report)
			b.Log("%d/%d %s: %d of %d pods, %.1f pods/s, took %s", n, total, result.Run, report.Scheduled, report.Pods, report.PodsPerSecond, time.Since(start).Round(100*time.Millisecond))
		}
	}
	return results, nil
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// environ returns the environment of a test binary of the tree, which keeps its files,
// also those of etcd, in the folder temp.
func (b *Bench) environ(tree Tree, temp string) ([]string, error) {
	return sys.TestEnviron(tree.Dir,
		"PATH="+b.Path+string(filepath.ListSeparator)+os.Getenv("PATH"),
		"TMPDIR="+temp,
		"KUBE_CACHE_MUTATION_DETECTOR=false",
	)
}

func (b *Bench) one(ctx context.Context, run Run, number string) (*Report, error) {
	tree := b.Unpatched
	if run.Patched {
		tree = b.Patched
	}
	// For etcd, whose socket must have a short path.
	temp, err := os.MkdirTemp("", "carry-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(temp) }()
	reportFile := filepath.Join(temp, "report.json")

	env, err := b.environ(tree, temp)
	if err != nil {
		return nil, err
	}
	// The limit of the testing package does not hold for benchmarks.
	ctx, cancel := context.WithTimeoutCause(ctx, run.Timeout, fmt.Errorf("not done after %s", run.Timeout))
	defer cancel()
	cmd := sys.Command(ctx, filepath.Join(tree.Dir, Package), append(env, "RESERVEDFOR_BENCH_REPORT="+reportFile), tree.Binary,
		"-test.run=^$",
		fmt.Sprintf("-test.bench=^%s$/^%s$/^%s$", run.function(), run.Case, run.workload()),
		"-test.benchtime=1x",
		"-test.timeout=0",
		"-perf-scheduling-label-filter=",
		"-data-items-dir="+temp,
	)
	if run.Gate {
		cmd.Env = append(cmd.Env, "RESERVEDFOR_BENCH_GATES="+b.Gate+"=true")
	}
	log, err := os.Create(filepath.Join(b.LogDir, strings.NewReplacer("/", "-", " ", "-", "(", "", ")", "", ",", "").Replace(number+"-"+run.String())+".log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	var end tailBuffer
	cmd.Stdout = io.MultiWriter(log, &end)
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var report *Report
	running := true
	for running && report == nil {
		select {
		case err = <-ended:
			running = false
		case <-time.After(100 * time.Millisecond):
		}
		// The benchmark writes a report when all is measured that went well. What
		// it does then is to shut down an API server, for many seconds.
		report = readReport(reportFile)
	}
	// etcd must not survive.
	_ = sys.Signal(cmd, syscall.SIGKILL)
	if running {
		<-ended
	}
	if report == nil && err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("%w, see %s\n%s", err, log.Name(), end.String())
	}
	if report == nil {
		return nil, fmt.Errorf("there is no such workload, see %s", log.Name())
	}
	if report.Pods == 0 {
		return nil, fmt.Errorf("no pods were seen, see %s", log.Name())
	}
	return report, nil
}

// readReport returns nil if there is no report, or only part of one yet.
func readReport(name string) *Report {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil
	}
	var report Report
	if err := json.Unmarshal(data, &report); err != nil {
		return nil
	}
	return &report
}

// tailBuffer keeps the end of what is written to it.
type tailBuffer struct{ bytes.Buffer }

func (t *tailBuffer) Write(p []byte) (int, error) {
	const limit = 4096
	n, err := t.Buffer.Write(p)
	if extra := t.Len() - limit; extra > 0 {
		t.Next(extra)
	}
	return n, err
}
