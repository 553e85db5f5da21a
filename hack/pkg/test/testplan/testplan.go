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

// Package testplan decides which packages of a Kubernetes tree get tested, how, and on what
// each result depends.
package testplan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"kubernetes-dra/hack/pkg/sys"
	"kubernetes-dra/hack/pkg/test/testrun"
	"kubernetes-dra/hack/pkg/tree/ledger"
	"kubernetes-dra/hack/pkg/tree/overlay"
)

// upstreamUnit are packages whose tests must stay green although we do not
// necessarily have a file or a seam in them. "/..." includes everything below.
var upstreamUnit = []string{
	"cmd/kube-controller-manager/app",
	"pkg/api/resourceclaimspec",
	"pkg/api/testing",
	"pkg/apis/resource/...",
	"pkg/controller/devicetainteviction",
	"pkg/controller/resourceclaim",
	"pkg/features",
	"pkg/kubelet/cm/dra/...",
	"pkg/printers/internalversion",
	"pkg/quota/v1/evaluator/core",
	"pkg/registry/resource/...",
	"pkg/scheduler/framework/plugins/dynamicresources/...",
	"plugin/pkg/admission/noderestriction",
	"plugin/pkg/auth/authorizer/node",
	"plugin/pkg/auth/authorizer/rbac/bootstrappolicy",
	"staging/src/k8s.io/api",
	"staging/src/k8s.io/dynamic-resource-allocation/...",
}

// upstreamIntegration is the same for tests with a real API server.
var upstreamIntegration = []string{
	"test/integration/dra/...",
	"test/integration/scheduler_perf/dra",
}

// raced are packages with logic of ours that runs in several goroutines. They
// are tested with the race detector.
var raced = []string{
	"pkg/apis/resource/validation",
	"pkg/controller/devicetainteviction",
	"pkg/controller/resourceclaim",
	"pkg/kubelet/cm/dra/...",
	"pkg/scheduler/framework/plugins/dynamicresources",
	"staging/src/k8s.io/dynamic-resource-allocation/resourceclaim",
}

// forced are the constructors which do not look at the feature gate: they get
// told by their caller, and upstream's unit tests tell them explicitly what is on. When
// those tests shall run with a feature on, then the constructor has to insist. The
// names are those of all releases.
var forced = []struct {
	gate, path string
	functions  []string
	parameter  string
	fields     []string
}{
	{reservedFor, "pkg/controller/resourceclaim/controller.go", []string{"NewController", "newControllerWithFeatures"}, "features", []string{"ReservedForWorkloads"}},
	{reservedFor, "pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go", []string{"New"}, "fts", []string{"EnableDRASharedClaims", "EnableDRAReservedForWorkloads"}},
}

const reservedFor = "DRAReservedForWorkloads"

// Exceptions are those of upstream's tests that do not run with the gates on, as the ledger
// has them for the release. Each must still exist, but for the names of sub-tests, which
// only a run knows.
func (p *Plan) Exceptions() ([]ledger.UpstreamTest, error) {
	targets := slices.Concat(p.Unit, p.Integration)
	for _, e := range p.exceptions {
		function, _, _ := strings.Cut(e.Test, "/")
		i := slices.IndexFunc(targets, func(t Target) bool { return t.Dir == filepath.Join(p.Tree, e.Dir) })
		if i < 0 || !slices.Contains(targets[i].Tests, function) {
			return nil, fmt.Errorf("release %s has no test %s in %s any more, which was not to run with the feature gates on: remove it from failsWithGates in %s", p.Release, function, e.Dir, ledger.Path)
		}
	}
	return p.exceptions, nil
}

// exceptionsIn are the names of those in one package.
func (p *Plan) exceptionsIn(t Target) []string {
	var names []string
	for _, e := range p.exceptions {
		if t.Dir == filepath.Join(p.Tree, e.Dir) {
			names = append(names, e.Test)
		}
	}
	return names
}

// Plan is what gets tested in a tree.
type Plan struct {
	// Tree is the directory of the tree.
	Tree string
	// Release is the name of the release that it is a tree of.
	Release string
	// Env is the environment for go commands and tests in the tree.
	Env []string
	// Gates are the feature gates of the features in the tree.
	Gates []string
	// needed are those of them on which others depend.
	needed []string
	// emulated is the oldest version which tests may emulate with the gates on.
	emulated   string
	exceptions []ledger.UpstreamTest
	files      []File
	// Unit has the packages with unit tests.
	Unit []Target
	// Integration has the packages with integration tests.
	Integration []Target
	// Absent are packages on the list of this program that the release does
	// not have.
	Absent []string
}

// Target is one package.
type Target struct {
	// Path is the import path, and Dir the folder.
	Path, Dir string
	// Name is the name in the package clause.
	Name string
	// Own has the test functions which are ours.
	Own []string
	// Tests are all test functions.
	Tests []string
	// Race says that it gets tested with the race detector.
	Race bool
	// Gated packages belong to the main module. Only those know about feature
	// gates.
	Gated bool
}

// OnlyOurs returns true if no test of the package is upstream's.
func (t Target) OnlyOurs() bool {
	return !slices.ContainsFunc(t.Tests, func(name string) bool { return !slices.Contains(t.Own, name) })
}

// File is a file of the overlay in a tree.
type File struct {
	Path string
	Seam bool
}

// Files lists what the overlay has for a release.
func Files(repo string, l *ledger.Ledger, release string) ([]File, error) {
	entries, err := overlay.Scan(repo, l)
	if err != nil {
		return nil, err
	}
	stages, err := overlay.Resolve(entries, l, release)
	if err != nil {
		return nil, err
	}
	var files []File
	for _, stage := range stages {
		for _, e := range stage.Entries {
			files = append(files, File{Path: e.Path, Seam: e.Seam})
		}
	}
	return files, nil
}

// Gates returns the feature gate of each feature in a release that is off by default
// there, and those which they depend on: also the gates of features that they need, because a
// test may turn off all gates that are not set.
func Gates(l *ledger.Ledger, release string) []string {
	var gates []string
	if r, err := l.Release(release); err == nil {
		gates = append(gates, r.Gates...)
	}
	gates = append(gates, neededGates(l, release)...)
	for _, f := range l.FeaturesOf(release) {
		if toSet := f.GatesToSet(release); len(toSet) > 0 {
			gates = append(gates, toSet[0])
		}
	}
	return gates
}

// neededGates are the gates, on by default, on which gates depend that are not.
func neededGates(l *ledger.Ledger, release string) []string {
	var gates []string
	for _, f := range l.FeaturesOf(release) {
		if len(f.GatesToSet(release)) == 0 {
			continue
		}
		for _, n := range f.Needs {
			needed := l.Feature(n.Slug)
			onByDefault := len(needed.Gates) > 0 && len(needed.GatesToSet(release)) == 0
			if onByDefault && !slices.Contains(gates, needed.Gates[0]) {
				gates = append(gates, needed.Gates[0])
			}
		}
	}
	return gates
}

// New determines what there is to test.
func New(ctx context.Context, tree string, l *ledger.Ledger, release string, files []File) (*Plan, error) {
	r, err := l.Known(release)
	if err != nil {
		return nil, err
	}
	env, err := sys.TestEnviron(tree)
	if err != nil {
		return nil, err
	}
	plan := &Plan{
		Tree: tree, Release: release, Env: env,
		Gates: Gates(l, release), needed: neededGates(l, release), emulated: l.OldestEmulated(r), exceptions: r.FailsWithGates, files: files,
	}
	unit := map[string]bool{}
	integration := map[string]bool{}
	add := func(patterns []string, to map[string]bool) {
		for _, pattern := range patterns {
			if _, err := os.Stat(filepath.Join(tree, strings.TrimSuffix(pattern, "/..."))); err != nil {
				plan.Absent = append(plan.Absent, pattern)
				continue
			}
			to[pattern] = true
		}
	}
	add(upstreamUnit, unit)
	add(upstreamIntegration, integration)

	own := map[string][]string{}
	for _, f := range files {
		if path.Ext(f.Path) != ".go" {
			continue
		}
		dir := path.Dir(f.Path)
		if !f.Seam && strings.HasSuffix(f.Path, "_test.go") {
			own[dir] = append(own[dir], filepath.Join(tree, f.Path))
		}
		switch {
		case strings.HasPrefix(f.Path, "test/integration/"):
			// A helper for integration tests has no tests of its own, and whether
			// it works shows when those run.
			if slices.Contains(own[dir], filepath.Join(tree, f.Path)) {
				integration[dir] = true
			}
		case strings.HasPrefix(f.Path, "test/"):
			// End-to-end tests need a cluster.
		default:
			unit[dir] = true
		}
	}

	if plan.Unit, err = plan.targets(ctx, unit, own); err != nil {
		return nil, err
	}
	if plan.Integration, err = plan.targets(ctx, integration, own); err != nil {
		return nil, err
	}
	return plan, nil
}

// listed is what we need to know from "go list".
type listed struct {
	ImportPath, Dir, Name     string
	TestGoFiles, XTestGoFiles []string
	Module                    *struct{ Path string }
	Error                     *struct{ Err string }
}

// nested are packages of this repository that are in a module of their own, which the
// root module requires: go list finds them by their import paths only.
const nested = "kubernetes-dra/cnistatus/..."

// targets finds all packages with tests.
func (p *Plan) targets(ctx context.Context, patterns map[string]bool, own map[string][]string) ([]Target, error) {
	args := []string{"list", "-e", "-json=ImportPath,Dir,Name,TestGoFiles,XTestGoFiles,Module,Error"}
	for pattern := range patterns {
		if pattern != nested {
			pattern = "./" + pattern
		}
		args = append(args, pattern)
	}
	slices.Sort(args[3:])
	if len(args) == 3 {
		return nil, nil
	}
	out, err := sys.Output(ctx, sys.Command(ctx, p.Tree, p.Env, "go", args...))
	if err != nil {
		return nil, err
	}
	var targets []Target
	var errs []error
	for decoder := json.NewDecoder(strings.NewReader(out)); ; {
		var l listed
		if err := decoder.Decode(&l); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		testFiles := slices.Concat(l.TestGoFiles, l.XTestGoFiles)
		if len(testFiles) == 0 {
			continue
		}
		rel, err := filepath.Rel(p.Tree, l.Dir)
		if err != nil {
			return nil, err
		}
		rel = filepath.ToSlash(rel)
		t := Target{
			Path: l.ImportPath, Dir: l.Dir,
			Name:  l.Name,
			Race:  slices.ContainsFunc(raced, func(pattern string) bool { return match(pattern, rel) }),
			Gated: l.Module != nil && l.Module.Path == "k8s.io/kubernetes",
		}
		for i := range testFiles {
			testFiles[i] = filepath.Join(l.Dir, testFiles[i])
		}
		if t.Tests, err = testrun.TestFunctions(testFiles...); err != nil {
			errs = append(errs, err)
		}
		if t.Own, err = testrun.TestFunctions(own[rel]...); err != nil {
			errs = append(errs, err)
		}
		if len(t.Tests) == 0 {
			// Only helpers or benchmarks.
			continue
		}
		targets = append(targets, t)
	}
	slices.SortFunc(targets, func(a, b Target) int { return strings.Compare(a.Path, b.Path) })
	return targets, errors.Join(errs...)
}

// RootTargets lists the packages of the root module of this repository which have
// tests, and of the one in it. All of these tests are ours.
func RootTargets(ctx context.Context, repo string, env []string) ([]Target, error) {
	p := &Plan{Tree: repo, Env: env}
	targets, err := p.targets(ctx, map[string]bool{"...": true, nested: true}, nil)
	for i := range targets {
		targets[i].Own = targets[i].Tests
	}
	return targets, err
}

// match compares a directory with a pattern.
func match(pattern, dir string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "/..."); ok {
		return dir == prefix || strings.HasPrefix(dir, prefix+"/")
	}
	return dir == pattern
}

// GatesVariable is the environment variable which says what the tests of [Plan.Overlay] find.
const GatesVariable = "CARRY_FEATURE_GATES"

// What GatesVariable can be. Without it, all is as upstream's tests expect.
const (
	// gatesOff turns off those gates that are on by default.
	gatesOff = "off"
	// gatesOn turns the gates on.
	gatesOn = "on"
	// gatesForced turns them on also where a constructor is told otherwise.
	gatesForced = "forced"
)

// Overlay prepares the replacements with which all tests of the tree are compiled, in a
// folder. One binary serves for all ways to run a package: linking takes long.
func (p *Plan) Overlay(dir string) (*testrun.Overlay, error) {
	o, err := testrun.NewOverlay(dir)
	if err != nil || len(p.Gates) == 0 {
		return o, err
	}
	for _, t := range slices.Concat(p.Unit, p.Integration) {
		if !t.Gated || t.OnlyOurs() {
			continue
		}
		if err := o.GateFile(t.Dir, t.Name, GatesVariable, p.Gates); err != nil {
			return nil, err
		}
	}
	if err := o.GatesOffBefore(p.Tree, GatesVariable, p.emulated, p.Gates, p.needed); err != nil {
		return nil, err
	}
	for _, f := range forced {
		if !slices.Contains(p.Gates, f.gate) {
			continue
		}
		condition := fmt.Sprintf("os.Getenv(%q) == %q", GatesVariable, gatesForced)
		if err := o.SetFields(filepath.Join(p.Tree, f.path), condition, f.functions, f.parameter, f.fields...); err != nil {
			return nil, fmt.Errorf("turning on %s: %w", f.gate, err)
		}
	}
	return o, nil
}
