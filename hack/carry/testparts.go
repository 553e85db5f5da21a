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
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"kubernetes-dra/hack/pkg/test/testplan"
	"kubernetes-dra/hack/pkg/test/testrun"
	"kubernetes-dra/hack/pkg/tools"
	"kubernetes-dra/hack/pkg/tree"
)

// testRun is a release in one of the special parts.
type testRun struct {
	*tree.Tree
	root *testplan.Root
}

// specialPart is a kind of test that "make test" leaves out: each takes long, or needs something
// that not every machine has. Nothing of it is recorded.
type specialPart struct {
	name, help string
	jobs       func(ctx context.Context, r *testRun) ([]testrun.Job, error)
}

func specialParts(through *string) []specialPart {
	return []specialPart{
		{"kubeadm", "test of a release with kubeadm; it needs the machine for itself", kubeadmPart},
		{"kind", "test of a release with kind; it needs a Docker engine", kindPart},
		{"modules", "a Go program with the modules of a release", modulesPart},
		{"upgrade", "test that replaces the binaries of a cluster that runs", func(ctx context.Context, r *testRun) ([]testrun.Job, error) {
			return upgradePart(ctx, r, strings.Fields(*through))
		}},
		{"control-planes", "test of three control planes: leaders killed, members that hang, programs replaced", controlPlanesPart},
		{"drivers", "drivers of ours and upstream's against dra-driver-check", driversPart},
		{"faults", "test that breaks what a cluster consists of, and one that looks for leaks", faultsPart},
		{"kubectl-dra", "the cases of kubectl dra on a cluster without the patches", kubectlPart},
		{"e2e-dra", "upstream's own tests that upgrade a cluster and go back", e2eDRAPart},
		{"e2e-node", "upstream's node specs about DRA", e2eNodePart},
	}
}

// runSpecial runs special parts, one after the other.
func runSpecial(ctx context.Context, release string, parts []func(context.Context, *testRun) ([]testrun.Job, error)) error {
	t, err := openTree(release)
	if err != nil {
		return err
	}
	output := filepath.Join(t.Output, "test-special")
	r := &testRun{Tree: t}
	if r.root, err = testplan.RootUnits(ctx, t.Repo, output, runtime.Version()); err != nil {
		return err
	}
	var jobs []testrun.Job
	for _, part := range parts {
		more, err := part(ctx, r)
		if err != nil {
			return err
		}
		jobs = append(jobs, more...)
	}
	runner := &testrun.Runner{Out: os.Stdout, LogDir: filepath.Join(output, "logs")}
	runErr := runner.Run(ctx, jobs, nil)
	if err := downTestClusters(context.WithoutCancel(ctx), t.Output); err != nil {
		t.Log("taking down the clusters of tests: %v", err)
	}
	if runErr != nil {
		return runErr
	}
	failed := runner.Summary()
	total := runner.Total()
	fmt.Printf("%d passed, %d failed, %d skipped\n", total.Passed, total.Failed, total.Skipped)
	if failed != nil {
		return exitError(1)
	}
	return nil
}

// kubeadmPart tests a release for this machine: kubeadm init with it and reset, and kubeadm upgrade from the
// unpatched one.
func kubeadmPart(_ context.Context, r *testRun) ([]testrun.Job, error) {
	unpatched := programs{Tree: r.Tree}
	return r.releaseTests(unpatched.build, testplan.ClusterPackage, testrun.Job{
		Env:   []string{"KUBEADM_RELEASE=" + r.releaseDir(), "UNPATCHED_BIN=" + unpatched.bin()},
		Flags: []string{"timeout=40m"}, Only: []string{"TestKubeadm", "TestKubeadmUpgrade"},
	})
}

// kindPart tests a release for this machine as a node image of kind.
func kindPart(_ context.Context, r *testRun) ([]testrun.Job, error) {
	needed := append([]string{"coredns", "etcd", "kind"}, tools.Node...)
	build := func(ctx context.Context) error { return tools.Build(ctx, r.Repo, needed, r.Log) }
	return r.releaseTests(build, testplan.ClusterPackage+"/kind", testrun.Job{
		Env:   []string{"KIND_RELEASE=" + r.releaseDir()},
		Flags: []string{"timeout=60m"},
	})
}

// modulesPart builds a program with the Go modules of a release.
func modulesPart(_ context.Context, r *testRun) ([]testrun.Job, error) {
	return r.clusterTests(testplan.ClusterPackage+"/modules", testrun.Job{Env: []string{"GO_MODULES=" + r.modulesDir()}, Flags: []string{"timeout=30m"}},
		func(ctx context.Context) error {
			return subcommand(ctx, "modules", "--release", r.Release.Name, "--output", r.modulesDir())
		})
}

// modulesDir is not that of modules that somebody made with "make modules".
func (r *testRun) modulesDir() string { return filepath.Join(r.Output, "modules-test") }

// releaseDir is not that of a release that somebody made with "make release".
func (r *testRun) releaseDir() string { return filepath.Join(r.Output, "release-test") }

// releaseTests is clusterTests with a release for this machine, and what build makes besides.
func (r *testRun) releaseTests(build func(context.Context) error, pkg string, j testrun.Job) ([]testrun.Job, error) {
	return r.clusterTests(pkg, j, func(ctx context.Context) error {
		if err := build(ctx); err != nil {
			return err
		}
		return subcommand(ctx, "release", "--release", r.Release.Name, "--arch", runtime.GOARCH, "--output", r.releaseDir(), "--untested")
	})
}

const (
	// upstreamPrefix is in front of a release without the patches, offPrefix in front of one
	// whose feature gates are not set.
	upstreamPrefix, offPrefix = "upstream-", "off-"
)

// upgradePart replaces the binaries of a cluster that runs: those of the release by unpatched ones and
// back, or those of one release after the other.
func upgradePart(_ context.Context, r *testRun, through []string) ([]testrun.Job, error) {
	j := testrun.Job{Flags: []string{"timeout=60m"}, Only: []string{"TestUpgrade"}}
	if len(through) == 0 {
		through = []string{r.Release.Name, upstreamPrefix + r.Release.Name}
	} else {
		j.Only = []string{"TestMinors"}
	}
	var all []programs
	var bins, path []string
	for _, name := range through {
		release, unpatched := strings.CutPrefix(name, upstreamPrefix)
		release, off := strings.CutPrefix(release, offPrefix)
		t, err := openTree(release)
		if err != nil {
			return nil, err
		}
		p := programs{Tree: t, patched: !unpatched}
		bin := p.bin()
		all, bins = append(all, p), append(bins, bin)
		if off {
			bin += "#off"
		}
		path = append(path, bin)
	}
	j.Env = []string{"BIN=" + bins[0], "UNPATCHED_BIN=" + bins[1], "UPGRADE_PATH=" + strings.Join(path, string(filepath.ListSeparator))}
	return r.clusterTests(testplan.ClusterPackage, j, func(ctx context.Context) error {
		for _, p := range all {
			if err := p.build(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// controlPlanesPart runs three control planes, and replaces their programs by unpatched ones and back.
func controlPlanesPart(_ context.Context, r *testRun) ([]testrun.Job, error) {
	unpatched := programs{Tree: r.Tree}
	return r.clusterTests(testplan.ClusterPackage, testrun.Job{
		Env:   []string{"CONTROL_PLANES=3", "UNPATCHED_BIN=" + unpatched.bin()},
		Flags: []string{"timeout=60m"}, Only: []string{"TestControlPlanes"},
	}, func(ctx context.Context) error {
		return errors.Join(subcommand(ctx, "build", "--release", r.Release.Name), unpatched.build(ctx))
	})
}

// kubectlPart asks kubectl dra about its cases on a cluster of upstream's programs. With the patches, that is one
// of the tests of clusters.
func kubectlPart(_ context.Context, r *testRun) ([]testrun.Job, error) {
	p := programs{Tree: r.Tree}
	return r.clusterTests(testplan.ClusterPackage, testrun.Job{
		Env:   []string{"BIN=" + p.bin()},
		Flags: []string{"timeout=20m"}, Only: []string{"TestKubectlDRA"},
	}, p.build)
}

// faultsPart breaks the components of a cluster, and keeps them busy to see whether they leak.
func faultsPart(_ context.Context, r *testRun) ([]testrun.Job, error) {
	return r.clusterTests(testplan.ClusterPackage, testrun.Job{
		Env:   []string{"FAULTS=true", "SOAK=10m"},
		Flags: []string{"timeout=60m"}, Only: []string{"TestFaults", "TestSoak"},
	}, func(ctx context.Context) error { return subcommand(ctx, "build", "--release", r.Release.Name) })
}

// driversPart runs dra-driver-check against several drivers, and measures what pods of one driver cost others.
func driversPart(_ context.Context, r *testRun) ([]testrun.Job, error) {
	return r.clusterTests(testplan.ClusterPackage, testrun.Job{
		Env:   []string{"DRIVER_CHECK=true"},
		Flags: []string{"timeout=90m"}, Only: []string{"TestDriverCheck", "TestNetworkBystander", "TestDowngradeIdle"},
	}, func(ctx context.Context) error { return subcommand(ctx, "build", "--release", r.Release.Name) })
}

// clusterTests builds what tests of clusters need, and runs them. The job says what is special about it.
func (r *testRun) clusterTests(pkg string, j testrun.Job, build func(context.Context) error) ([]testrun.Job, error) {
	i := slices.IndexFunc(r.root.ClusterTests, func(t testplan.Target) bool { return t.Path == pkg })
	if i < 0 {
		return nil, fmt.Errorf("there are no tests in %s", pkg)
	}
	t := r.root.ClusterTests[i]
	j.Name, j.Package, j.Dir, j.Build = r.Release.Name+" "+pkg, t.Path, t.Dir, r.root.Build
	j.Tests, j.Own, j.Lane = t.Tests, t.Own, testrun.Apart
	j.Env = slices.Concat(r.root.Build.Env, j.Env, []string{"RELEASE=" + r.Release.Name})
	built := errors.New("what they need was not built")
	j.Ready = func() error { return built }
	return []testrun.Job{{Name: r.Release.Name + " build", Do: func(ctx context.Context) error {
		built = build(ctx)
		return built
	}}, j}, nil
}
