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
	"slices"
	"strings"
	"time"

	"kubernetes-dra/hack/pkg/sys"
	"kubernetes-dra/hack/pkg/test/buildcache"
	"kubernetes-dra/hack/pkg/test/tested"
	"kubernetes-dra/hack/pkg/test/testplan"
	"kubernetes-dra/hack/pkg/test/testrun"
	"kubernetes-dra/hack/pkg/tree"
)

func init() {
	register(command{
		name:  "test",
		args:  "[--release 1.36] [--others changed|short|long] [--verify] [--lint] [--hack] [--unit] [--integration] [--cluster] [--kubeadm] [--kind] [--upgrade [--through releases]] [--faults] [--e2e-dra] [--e2e-node] [--only text] [--tree dir]",
		short: "run tests: all of them, or only some parts",
		run:   runTest,
	})
}

// testRun is what "carry test" does for one release.
type testRun struct {
	*testrun.Runner
	source        *tree.Tree
	repo, release string
	// build brings the tree of the source up to date.
	build func(context.Context) error
	// given is a tree to test instead of the one that gets built.
	given, output string
	// tree and plan are set by prepare.
	tree  string
	plan  *testplan.Plan
	only  string
	files []testplan.File
	// built is the git tree object of the tree that prepare built, empty if it has
	// edits or was given.
	built string
	// cache is for what only one part compiles.
	cache buildcache.Cache
	// env is for all go commands in the tree.
	env []string
	// short leaves out what takes long and says little that is not known from
	// another release: upstream's tests, the race detector.
	short bool
	// onlyChanged leaves out other releases whose tree is the tested one.
	onlyChanged bool
}

func runTest(ctx context.Context, args []string) error {
	flags := newFlags("test")
	release := flags.String("release", "", "release to test (default: that of the ledger)")
	others := flags.String("others", "", "test the other releases as well: short (compile and vet what we touch, our unit tests), changed (the same for releases whose tree is not the tested one) or long (our integration tests, too)")
	given := flags.String("tree", "", "Kubernetes tree to test as it is (default: the one that gets built for the release)")
	through := flags.String("through", "", "releases that the upgrade goes through: \"1.36 upstream-1.37\", or \"off-1.37 1.37\" for no gates at first (default: patched, unpatched and patched again)")
	only := flags.String("only", "", "test only packages whose import path has this text")
	parts := []struct {
		name, help string
		run        func(ctx context.Context, r *testRun) error
		wanted     *bool
	}{
		{name: "verify", help: "check the repository, for all releases", run: verifyPart},
		{name: "lint", help: "lint all that is ours; beside other releases it is no part of all, because the linter has to be compiled first", run: lintPart},
		{name: "hack", help: "tests of the programs in this repository", run: hackPart},
		{name: "unit", help: "unit tests of all packages that we touch, ours and upstream's", run: unitPart},
		{name: "integration", help: "tests with a real API server and etcd", run: integrationPart},
		{name: "cluster", help: "tests of the binaries in real clusters", run: clusterPart},
		{name: "kubeadm", help: "test of a release with kubeadm; it needs the machine for itself, and is no part of all", run: kubeadmPart},
		{name: "kind", help: "test of a release with kind; it needs a Docker engine, and is no part of all", run: kindPart},
		{name: "upgrade", help: "test that replaces the binaries of a cluster that runs; it is no part of all", run: func(ctx context.Context, r *testRun) error { return upgradePart(ctx, r, strings.Fields(*through)) }},
		{name: "faults", help: "test that breaks what a cluster consists of, and one that looks for leaks; it is no part of all", run: faultsPart},
		{name: "e2e-dra", help: "upstream's own tests that upgrade a cluster and go back; it is no part of all", run: e2eDRAPart},
		{name: "e2e-node", help: "upstream's node specs about DRA; it is no part of all", run: e2eNodePart},
	}
	apart := []string{"kubeadm", "kind", "upgrade", "faults", "e2e-dra", "e2e-node"}
	all := true
	for i := range parts {
		parts[i].wanted = flags.Bool(parts[i].name, false, parts[i].help)
	}
	flags.BoolVar(parts[5].wanted, "e2e", false, "the same as --cluster")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	for _, part := range parts {
		all = all && !*part.wanted
	}
	path := strings.Fields(*through)
	if len(path) == 1 {
		return fmt.Errorf("--through %s: an upgrade needs two releases", path[0])
	}
	if len(path) > 0 {
		// The cluster starts with it.
		*release = strings.TrimPrefix(strings.TrimPrefix(path[0], upstreamPrefix), offPrefix)
	}

	// What the other releases get. It has to fit into the time that CI has.
	shortParts, ok := map[string][]func(context.Context, *testRun) error{
		"":        nil,
		"changed": {unitPart},
		"short":   {unitPart},
		"long":    {unitPart, integrationPart},
	}[*others]
	if !ok {
		return fmt.Errorf("--others must be changed, short or long, not %q", *others)
	}

	t, err := openTree(*release)
	if err != nil {
		return err
	}
	cache, err := openCache(ctx)
	if err != nil {
		return err
	}
	// Runs go on at the same time, therefore each has results of its own.
	r, clusters := newTestRun(t, *only), newTestRun(t, *only)
	var short []*testRun
	if *others != "" {
		for _, other := range t.Ledger.Carried() {
			if other.Name == t.Release.Name {
				continue
			}
			t, err := openTree(other.Name)
			if err != nil {
				return err
			}
			o := newTestRun(t, *only)
			o.cache, o.short, o.onlyChanged, o.Prefix = cache, true, *others == "changed", other.Name+": "
			short = append(short, o)
		}
	}
	r.cache, r.given, r.onlyChanged = cache, *given, *others == "changed"
	run := func(r *testRun, names ...string) error {
		for _, part := range parts {
			left := slices.Contains(apart, part.name) || part.name == "lint" && *others != ""
			if !slices.Contains(names, part.name) || (!all || left) && !*part.wanted {
				continue
			}
			if err := part.run(ctx, r); err != nil {
				return err
			}
		}
		return nil
	}
	if err := run(r, "verify", "lint", "hack"); err != nil {
		return err
	}
	// A large part of the other tests mostly waits. Together they use the CPUs.
	waitForShort := inBackground(func() error { return testShort(ctx, short, shortParts) })
	err = run(r, "unit")
	waitForClusters := func() error { return nil }
	if err == nil {
		waitForClusters = inBackground(func() error { return run(clusters, "cluster") })
		err = errors.Join(run(r, "integration"), run(r, apart...))
	}
	if err := errors.Join(err, waitForClusters(), waitForShort()); err != nil {
		return err
	}
	if err := r.record(ctx, all, clusters.Runner); err != nil {
		r.Fail("write what passed", err)
	}
	runners := []*testrun.Runner{clusters.Runner}
	for _, o := range short {
		runners = append(runners, o.Runner)
	}
	if r.Summary(runners...) != nil {
		// It was printed already, and must remain the last line.
		return exitError(1)
	}
	return nil
}

// openCache says how much room there is for what gets compiled.
func openCache(ctx context.Context) (buildcache.Cache, error) {
	dir, err := sys.Output(ctx, sys.Command(ctx, "", nil, "go", "env", "GOCACHE"))
	if err != nil {
		return buildcache.Cache{}, err
	}
	dir = strings.TrimSpace(dir)
	free, err := buildcache.Free(dir)
	if err != nil {
		return buildcache.Cache{}, err
	}
	cache := buildcache.Cache{Frugal: free < buildcache.Plenty}
	fmt.Printf("disk: %s free at %s\n", buildcache.Size(free), dir)
	if cache.Frugal {
		fmt.Printf("disk: less than %s. What is compiled for other releases, and for the race detector, is removed after its tests. That costs some minutes.\n", buildcache.Size(buildcache.Plenty))
	}
	return cache, nil
}

func newTestRun(t *tree.Tree, only string) *testRun {
	return &testRun{
		Runner:  &testrun.Runner{Out: os.Stdout, LogDir: filepath.Join(t.Output, "logs")},
		source:  t,
		build:   func(ctx context.Context) error { _, err := t.Build(ctx); return err },
		repo:    t.Repo,
		release: t.Release.Name,
		output:  t.Output,
		only:    only,
	}
}

// prepare builds the tree, unless one is given, and determines what to test in it. It
// does so once.
func (r *testRun) prepare(ctx context.Context) error {
	if r.plan != nil {
		return nil
	}
	if r.tree = r.given; r.tree == "" {
		if err := r.build(ctx); err != nil {
			return err
		}
		var err error
		if r.built, err = r.content(ctx); err != nil {
			return err
		}
		r.tree = r.source.Dir()
	}
	var err error
	if r.tree, err = filepath.Abs(r.tree); err != nil {
		return err
	}
	if r.files, err = testplan.Files(r.repo, r.source.Ledger, r.release); err != nil {
		return err
	}
	if r.plan, err = testplan.New(ctx, r.tree, r.source.Ledger, r.release, r.files); err != nil {
		return err
	}
	r.plan.Env = append(r.plan.Env, r.env...)
	for _, pattern := range r.plan.Absent {
		fmt.Printf("release %s has no %s\n", r.release, pattern)
	}
	return nil
}

// content is the git tree object of the tree that was built, empty if there are edits.
func (r *testRun) content(ctx context.Context) (string, error) {
	state, err := r.source.State()
	if err != nil {
		return "", err
	}
	edited, err := r.source.Edited(ctx)
	if err != nil || len(edited) > 0 {
		return "", err
	}
	return r.source.Content(ctx, state)
}

// record writes down what a run of all parts found, together with other runners of the
// release, if it was whole and all of it passed on one tree.
func (r *testRun) record(ctx context.Context, all bool, others ...*testrun.Runner) error {
	total, steps := r.Counts(others...)
	if !all || r.only != "" || r.given != "" || total.Failed > 0 {
		return nil
	}
	content, err := r.content(ctx)
	if err != nil {
		return err
	}
	name := tested.File(r.release)
	if content == "" || content != r.built {
		fmt.Printf("%s is not written: the tree has edits, or changed while its tests ran\n", name)
		return nil
	}
	fmt.Printf("%s is written: run \"make update\" for the table in the documents, and commit both\n", name)
	return tested.Write(r.repo, r.release, &tested.Record{
		Version: r.source.Release.Version, Tree: content, Date: time.Now().UTC().Format(time.DateOnly), Count: total, Steps: steps,
	})
}

// testShort tests releases one after the other.
func testShort(ctx context.Context, runs []*testRun, parts []func(context.Context, *testRun) error) error {
	for _, r := range runs {
		if r.onlyChanged {
			if record, err := r.passedBefore(ctx); err != nil {
				return err
			} else if record != nil {
				r.PassedBefore(record.String())
				continue
			}
		}
		err := r.apart("tests", func(env []string) error {
			r.env = env
			for _, part := range parts {
				if err := part(ctx, r); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// passedBefore returns the record of a whole run with the tree of the release, nil if there
// is none or if that tree has edits.
func (r *testRun) passedBefore(ctx context.Context) (*tested.Record, error) {
	if err := r.build(ctx); err != nil {
		return nil, err
	}
	content, err := r.content(ctx)
	if err != nil {
		return nil, err
	}
	record, err := tested.Load(r.repo, r.release)
	if err != nil || record.Matches(r.source.Release.Version, content) != nil {
		return nil, err
	}
	return record, nil
}

// inBackground starts a function, and returns one that waits for its result.
func inBackground(f func() error) func() error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return func() error { return <-done }
}

// subcommand runs another command of this program.
func subcommand(ctx context.Context, name string, args ...string) error {
	for _, c := range commands {
		if c.name == name {
			return c.run(ctx, args)
		}
	}
	return fmt.Errorf("there is no command %q", name)
}
