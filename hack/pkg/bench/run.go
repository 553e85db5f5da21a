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

package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"kubernetes-dra/hack/pkg/sys"
)

// Folders of a tree: with the workloads, and with the API servers that answer requests.
const (
	Package       = "test/integration/scheduler_perf/dra/reservedfor"
	ClaimsPackage = "test/integration/dra/adminaccess"
	StatusPackage = "test/integration/dra/devicestatus"

	ThrottledPackage = "test/integration/dra/reservedfor"
)

// gate is the feature gate of a [Run] with Gate.
const gate = "DRAReservedForWorkloads"

// hook are the files of a tree through which scheduler_perf tells the workloads that
// there are nodes now. Newer releases of Kubernetes can do that without us: the
// first file is not there, and the other one is upstream's.
var hook = []string{
	"test/integration/scheduler_perf/reservedfor.go",
	"test/integration/scheduler_perf/scheduler_perf.go",
}

// Tree is the folder of a Kubernetes tree.
type Tree string

func (t Tree) path(name string) string { return filepath.Join(string(t), filepath.FromSlash(name)) }

// HasGroups says whether the workloads with groups can run in the tree.
func (t Tree) HasGroups() bool {
	_, err := os.Stat(t.path(Package + "/groups-config.yaml"))
	return err == nil
}

// CopyWorkloads adds to an unpatched tree what it needs for the benchmark, and nothing
// else of the patched one.
func (t Tree) CopyWorkloads(patched Tree) error {
	for _, pkg := range []string{Package, ClaimsPackage} {
		if err := os.RemoveAll(t.path(pkg)); err != nil {
			return err
		}
		if err := os.CopyFS(t.path(pkg), os.DirFS(patched.path(pkg))); err != nil {
			return err
		}
	}
	for _, file := range hook {
		data, err := os.ReadFile(patched.path(file))
		if file == hook[0] && errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return err
		}
		if err := os.WriteFile(t.path(file), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Bench runs benchmarks.
type Bench struct {
	Patched, Unpatched Tree
	// Path is the folder with etcd.
	Path string
	// Output is the folder for compiled benchmarks, and LogDir the one for what each says.
	Output, LogDir string
	// Log tells the user what is going on.
	Log func(format string, args ...any)
}

// compile builds the tests of a package in a tree, and returns the path of the program.
func (b *Bench) compile(ctx context.Context, tree Tree, pkg string) (string, error) {
	name := "unpatched"
	if tree == b.Patched {
		name = "patched"
	}
	b.Log("compile %s, %s", pkg, name)
	binary := filepath.Join(b.Output, name+"-"+filepath.Base(pkg)+".test")
	env, err := sys.TestEnviron(string(tree))
	if err != nil {
		return "", err
	}
	if err := sys.Run(ctx, sys.Command(ctx, string(tree), env, "go", "test", "-c", "-o", binary, "./"+pkg)); err != nil {
		return "", fmt.Errorf("build the benchmark %s in %s: %w", pkg, tree, err)
	}
	return binary, nil
}

// program is a test binary, and how it is run.
type program struct {
	tree        Tree
	pkg, binary string
	// log is the name of the file for what it says.
	log string
	// variable has the name of the file with JSON that it is to write.
	variable  string
	env, args []string
}

// process is a program that runs.
type process struct {
	file, log string
	ended     chan error
	// stop ends it: by closing its input, and after a while for sure.
	stop func(patience time.Duration)
}

// start starts a program, which has an etcd that must not survive it.
func (b *Bench) start(ctx context.Context, run program) (_ *process, err error) {
	if err := os.MkdirAll(b.LogDir, 0o755); err != nil {
		return nil, err
	}
	// For etcd, whose socket must have a short path.
	temp, err := os.MkdirTemp("", "carry-")
	if err != nil {
		return nil, err
	}
	p := &process{file: filepath.Join(temp, "written.json"), log: filepath.Join(b.LogDir, run.log+".log"), ended: make(chan error, 1)}
	output, err := os.Create(p.log)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(temp))
	}
	clean := func() error { return errors.Join(output.Close(), os.RemoveAll(temp)) }
	env, err := sys.TestEnviron(string(run.tree), append(run.env, run.variable+"="+p.file, "TMPDIR="+temp,
		"PATH="+b.Path+string(filepath.ListSeparator)+os.Getenv("PATH"), "KUBE_CACHE_MUTATION_DETECTOR=false")...)
	if err != nil {
		return nil, errors.Join(err, clean())
	}
	cmd := sys.Command(ctx, run.tree.path(run.pkg), env, run.binary, run.args...)
	cmd.Stdout, cmd.Stderr = output, output
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(err, clean())
	}
	done := make(chan struct{})
	go func() {
		p.ended <- cmd.Wait()
		close(done)
	}()
	p.stop = func(patience time.Duration) {
		_ = stdin.Close()
		select {
		case <-done:
		case <-time.After(patience):
		}
		_ = sys.Signal(cmd, syscall.SIGKILL)
		<-done
		_ = clean()
	}
	return p, nil
}

// wait waits until the process wrote its file, and decodes that.
func (p *process) wait(ctx context.Context, found any) error {
	for {
		var err error
		ended := false
		select {
		case err = <-p.ended:
			ended = true
		case <-time.After(100 * time.Millisecond):
		}
		// It may have written a part of it only.
		if data, readErr := os.ReadFile(p.file); readErr == nil && json.Unmarshal(data, found) == nil {
			return nil
		}
		switch said, _ := os.ReadFile(p.log); {
		case ctx.Err() != nil:
			return fmt.Errorf("%w, see %s", context.Cause(ctx), p.log)
		case ended && err != nil:
			return fmt.Errorf("%w, see %s\n%s", err, p.log, said[max(0, len(said)-4096):])
		case ended:
			return fmt.Errorf("it ended without a result, so there is no such workload: see %s", p.log)
		}
	}
}

// Run goes through a plan. A run that fails is part of the result, the error is only
// for not being able to continue.
func (b *Bench) Run(ctx context.Context, plan []Run) (Results, error) {
	binaries := map[bool]string{}
	total, n := 0, 0
	var results Results
	for _, run := range plan {
		total += run.Repeat
		results = append(results, &Result{Run: run})
	}
	for patched, tree := range map[bool]Tree{false: b.Unpatched, true: b.Patched} {
		var err error
		if binaries[patched], err = b.compile(ctx, tree, Package); err != nil {
			return nil, err
		}
	}
	// One of each instead of repeating each immediately, and each round the other way round: what
	// else the machine does then does not hit only one of those which get compared.
	for round := 0; n < total; round++ {
		for i := range results {
			result := results[i]
			if round%2 > 0 {
				result = results[len(results)-1-i]
			}
			if result.Repeat <= round {
				continue
			}
			n++
			start := time.Now()
			report, err := b.one(ctx, result.Run, binaries[result.Patched], fmt.Sprintf("%02d-%s", n, result.Case))
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

func (b *Bench) one(ctx context.Context, run Run, binary, log string) (*Report, error) {
	tree := b.Unpatched
	if run.Patched {
		tree = b.Patched
	}
	p := program{tree: tree, pkg: Package, binary: binary, log: log, variable: "RESERVEDFOR_BENCH_REPORT", args: []string{
		"-test.run=^$", "-test.bench=" + run.pattern(), "-test.benchtime=1x", "-test.timeout=0",
		"-perf-scheduling-label-filter=", "-data-items-dir=" + b.LogDir,
	}}
	if run.Gate {
		p.env = []string{"RESERVEDFOR_BENCH_GATES=" + gate + "=true"}
	}
	// The limit of the testing package does not hold for benchmarks.
	ctx, cancel := context.WithTimeoutCause(ctx, run.Timeout, fmt.Errorf("not done after %s", run.Timeout))
	defer cancel()
	running, err := b.start(ctx, p)
	if err != nil {
		return nil, err
	}
	// The benchmark writes a report when all is measured that went well. What it does
	// then is to shut down an API server, for many seconds.
	defer running.stop(0)
	var report Report
	if err := running.wait(ctx, &report); err != nil {
		return nil, err
	}
	if report.Pods == 0 {
		return nil, fmt.Errorf("no pods were seen, see %s", running.log)
	}
	return &report, nil
}
