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

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"kubernetes-dra/hack/pkg/test/testplan"
	"kubernetes-dra/hack/pkg/test/testrun"
	"kubernetes-dra/hack/pkg/tools"
)

func verifyPart(ctx context.Context, r *testRun) error {
	r.Do("verify", func() error { return subcommand(ctx, "verify") })
	return context.Cause(ctx)
}

func lintPart(ctx context.Context, r *testRun) error {
	r.Do("lint", func() error { return subcommand(ctx, "lint", "--release", r.release) })
	return context.Cause(ctx)
}

// hackPart tests the root module, except for what needs a cluster. All tests are
// ours: none of them gets a second chance.
func hackPart(ctx context.Context, r *testRun) error {
	targets, err := rootTargets(ctx, r.repo, func(dir string) bool { return !strings.HasPrefix(dir, "test/cluster") })
	if err != nil {
		return err
	}
	return r.Run(ctx, testrun.Step{Name: "hack", Dir: r.repo, Packages: targets, Flags: []string{"-timeout=15m"}})
}

// rootTargets lists packages of the root module. Everything in them is ours.
func rootTargets(ctx context.Context, repo string, wanted func(dir string) bool) ([]testrun.Package, error) {
	targets, err := testplan.Root(ctx, repo)
	if err != nil {
		return nil, err
	}
	var packages []testrun.Package
	for _, t := range targets {
		dir, err := filepath.Rel(repo, t.Dir)
		if err != nil {
			return nil, err
		}
		if wanted(filepath.ToSlash(dir)) {
			packages = append(packages, t.Package)
		}
	}
	return packages, nil
}

// wanted applies --only.
func (r *testRun) wanted(condition func(testplan.Target) bool) func(testplan.Target) bool {
	return func(t testplan.Target) bool { return strings.Contains(t.Path, r.only) && condition(t) }
}

// unitPart vets, and runs unit tests.
func unitPart(ctx context.Context, r *testRun) error {
	if err := r.prepare(ctx); err != nil {
		return err
	}
	r.Do("vet", func() error { return r.vet(ctx) })
	steps, err := r.unitSteps()
	if err != nil {
		return err
	}
	for _, step := range steps {
		if len(step.Packages) == 0 {
			continue
		}
		step.Dir = r.tree
		step.Env = r.plan.Env
		// Packages of which tests get skipped have a go command each.
		step.Parallel = 3
		run := func(env []string) error {
			step.Env = append(step.Env, env...)
			return r.Run(ctx, step)
		}
		if slices.Contains(step.Flags, "-race") {
			// The race detector is written in C++.
			step.Env = append(slices.Clone(step.Env), "CGO_ENABLED=1")
			err = r.apart("race", run)
		} else {
			err = run(nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// apart calls a function with the environment of a part of the run that compiles what no
// other part needs.
func (r *testRun) apart(name string, f func(env []string) error) error {
	return r.cache.Apart(filepath.Join(r.output, "gocache-"+name), f)
}

func anyTarget(testplan.Target) bool { return true }

// unitSteps run the unit tests as they are, that is with the feature gates off
// except where a test says otherwise. Then upstream's tests run again with the gates
// on. They do so without the race detector: what runs concurrently because of a
// feature is covered by our own tests, which turn it on themselves. A short run has
// nothing but those.
func (r *testRun) unitSteps() ([]testrun.Step, error) {
	// The same order of flags everywhere, for the test cache. All was vetted before.
	timeout, noVet := "-timeout=20m", "-vet=off"
	if r.short {
		return []testrun.Step{{Name: "our unit tests", Packages: testplan.Packages(r.plan.OwnUnit(), r.wanted(anyTarget)), Flags: []string{timeout, noVet}}}, nil
	}
	gatesOn, overlay, err := r.plan.GatesOn(filepath.Join(r.output, "test", "gates-on"))
	if err != nil {
		return nil, err
	}
	if len(r.plan.Gates) == 0 {
		gatesOn = nil
	} else if err := r.explainExceptions(); err != nil {
		return nil, err
	}
	race := func(t testplan.Target) bool { return t.Race }
	noRace := func(t testplan.Target) bool { return !t.Race }
	// Upstream's tests of the scheduler plugin wait for a second in each of a
	// hundred cases: more at the same time than there are CPUs.
	waiting := "-p=4"
	return []testrun.Step{
		{Name: "unit", Packages: testplan.Packages(r.plan.Unit, r.wanted(noRace)), Flags: []string{timeout, noVet}},
		{Name: "unit, race detector", Packages: testplan.Packages(r.plan.Unit, r.wanted(race)), Flags: []string{timeout, noVet, "-race", waiting}},
		{Name: "unit, gates on", Packages: testplan.Packages(gatesOn, r.wanted(anyTarget)), Flags: []string{timeout, noVet, overlay}},
	}, nil
}

// vet compiles and vets what we touch and what we test, with all tests in it.
func (r *testRun) vet(ctx context.Context) error {
	packages, err := touchedPackages(r.tree, r.files)
	if err != nil {
		return err
	}
	for _, t := range slices.Concat(r.plan.Unit, r.plan.Integration) {
		rel, err := filepath.Rel(r.tree, t.Dir)
		if err != nil {
			return err
		}
		packages = append(packages, "./"+filepath.ToSlash(rel))
	}
	slices.Sort(packages)
	packages = slices.DeleteFunc(slices.Compact(packages), func(p string) bool { return !strings.Contains(p, r.only) })
	if len(packages) == 0 {
		return nil
	}
	if r.short {
		return vetAlone(ctx, r.repo, r.tree, slices.DeleteFunc(packages, isE2E), r.env...)
	}
	return vet(ctx, r.tree, packages)
}

// explainExceptions says what does not run with the gates on.
func (r *testRun) explainExceptions() error {
	exceptions, err := r.plan.Exceptions()
	for _, e := range exceptions {
		fmt.Printf("not run with the gates on: %s %s %s\n", e.Dir, e.Test, e.Why)
	}
	return err
}

// integrationPart runs all integration tests, upstream's once more with the gates
// on.
func integrationPart(ctx context.Context, r *testRun) error {
	if err := r.prepare(ctx); err != nil {
		return err
	}
	if err := tools.Build(ctx, r.repo, []string{"etcd"}, progress()); err != nil {
		return fmt.Errorf("build etcd: %w", err)
	}
	r.plan.Integration = slices.DeleteFunc(r.plan.Integration, func(t testplan.Target) bool {
		return !strings.Contains(t.Path, r.only) || r.short && !t.OnlyOurs()
	})
	targets, err := r.plan.Compile(ctx, filepath.Join(r.output, "test"),
		func(t testplan.Target) { fmt.Printf("  build %s%s\n", r.Prefix, t.Path) },
		func(t testplan.Target, err error) { r.Fail(t.Path+" (integration): does not build", err) })
	if err != nil {
		return err
	}
	// Tests put the data of etcd there, and its socket, whose path must be short.
	temp, err := os.MkdirTemp("", "carry-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temp) }()

	env := []string{"PATH=" + tools.Dir(r.repo) + string(filepath.ListSeparator) + os.Getenv("PATH"), "TMPDIR=" + temp}
	flags := []string{"timeout=40m", fmt.Sprintf("short=%t", r.short)}
	for _, step := range []testrun.Step{
		{Name: "integration", Packages: testplan.Packages(targets, anyTarget)},
		{Name: "integration, gates on", Packages: testplan.Packages(r.plan.UpstreamIntegration(targets), anyTarget), Env: []string{testplan.GatesVariable + "=true"}},
	} {
		if len(step.Packages) == 0 {
			continue
		}
		step.Env = slices.Concat(r.plan.Env, step.Env, env)
		step.Flags = flags
		// They mostly wait. Beside the default release, fewer are enough.
		step.Parallel = 3
		if r.short {
			step.Parallel = 2
		}
		if err := r.Run(ctx, step); err != nil {
			return err
		}
	}
	return nil
}

// clusterPart tests the binaries of the release.
func clusterPart(ctx context.Context, r *testRun) error {
	build := func() error { return subcommand(ctx, "build", "--release", r.release) }
	return r.clusterTests(ctx, "build", build, func(dir string) bool { return strings.HasPrefix(dir, "test/cluster") }, testrun.Step{
		Name:  "cluster",
		Flags: []string{"-timeout=40m", "-count=1", "-p=1"},
	})
}

// kubeadmPart tests a release for this machine: kubeadm init with it, and reset.
func kubeadmPart(ctx context.Context, r *testRun) error {
	return r.releaseTests(ctx, nil, isClusterTest, testrun.Step{
		Name:  "kubeadm",
		Env:   []string{"KUBEADM_RELEASE=" + r.releaseDir()},
		Flags: []string{"-timeout=20m", "-count=1", "-run=^TestKubeadm$"},
	})
}

// kindPart tests a release for this machine as a node image of kind.
func kindPart(ctx context.Context, r *testRun) error {
	needed := append([]string{"coredns", "etcd", "kind"}, tools.Node...)
	return r.releaseTests(ctx, needed, func(dir string) bool { return dir == "test/cluster/kind" }, testrun.Step{
		Name:  "kind",
		Env:   []string{"KIND_RELEASE=" + r.releaseDir()},
		Flags: []string{"-timeout=60m", "-count=1"},
	})
}

// releaseDir is not that of a release that somebody made with "make release".
func (r *testRun) releaseDir() string { return filepath.Join(r.output, "release-test") }

// releaseTests is clusterTests with a release for this machine, and tools.
func (r *testRun) releaseTests(ctx context.Context, needed []string, wanted func(dir string) bool, step testrun.Step) error {
	build := func() error {
		if len(needed) > 0 {
			if err := tools.Build(ctx, r.repo, needed, progress()); err != nil {
				return err
			}
		}
		return subcommand(ctx, "release", "--release", r.release, "--arch", runtime.GOARCH, "--output", r.releaseDir(), "--untested")
	}
	return r.clusterTests(ctx, "release", build, wanted, step)
}

const (
	// upstreamPrefix is in front of a release without the patches, offPrefix in front of one
	// whose feature gates are not set.
	upstreamPrefix, offPrefix = "upstream-", "off-"
)

// upgradePart replaces the binaries of a cluster that runs: those of the release by unpatched ones and
// back, or those of one release after the other.
func upgradePart(ctx context.Context, r *testRun, through []string) error {
	step := testrun.Step{Name: "upgrade", Flags: []string{"-timeout=60m", "-count=1", "-run=^TestUpgrade$"}}
	if len(through) == 0 {
		through = []string{r.release, upstreamPrefix + r.release}
	} else {
		step.Flags[2] = "-run=^TestMinors$"
	}
	var all []programs
	var bins, path []string
	for _, name := range through {
		release, unpatched := strings.CutPrefix(name, upstreamPrefix)
		release, off := strings.CutPrefix(release, offPrefix)
		t, err := openTree(release)
		if err != nil {
			return err
		}
		p := programs{Tree: t, patched: !unpatched}
		bin := p.bin()
		all, bins = append(all, p), append(bins, bin)
		if off {
			bin += "#off"
		}
		path = append(path, bin)
	}
	step.Env = []string{"BIN=" + bins[0], "UNPATCHED_BIN=" + bins[1], "UPGRADE_PATH=" + strings.Join(path, string(filepath.ListSeparator))}
	build := func() error {
		for _, p := range all {
			if err := p.build(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	return r.clusterTests(ctx, "build", build, isClusterTest, step)
}

// faultsPart breaks the components of a cluster, and keeps them busy to see whether they leak.
func faultsPart(ctx context.Context, r *testRun) error {
	build := func() error { return subcommand(ctx, "build", "--release", r.release) }
	return r.clusterTests(ctx, "build", build, isClusterTest, testrun.Step{
		Name:  "faults",
		Env:   []string{"FAULTS=true", "SOAK=10m"},
		Flags: []string{"-timeout=60m", "-count=1", "-run=^(TestFaults|TestSoak)$"},
	})
}

func isClusterTest(dir string) bool { return dir == "test/cluster" }

// clusterTests builds what a step of tests needs, and runs it. What they test are other programs,
// so a result from the cache means nothing: the flags of the step have to say so.
func (r *testRun) clusterTests(ctx context.Context, what string, build func() error, wanted func(dir string) bool, step testrun.Step) error {
	built := true
	r.Do(what, func() error {
		err := build()
		built = err == nil
		return err
	})
	if err := context.Cause(ctx); err != nil || !built {
		return err
	}
	targets, err := rootTargets(ctx, r.repo, wanted)
	if err != nil {
		return err
	}
	// A test that is killed cannot do it.
	defer downTestClusters(ctx, r)
	step.Dir, step.Packages = r.repo, targets
	step.Env = append(step.Env, "RELEASE="+r.release)
	return r.Run(ctx, step)
}
