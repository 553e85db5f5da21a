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

package testplan

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"kubernetes-dra/hack/pkg/sys"
	"kubernetes-dra/hack/pkg/test/results"
	"kubernetes-dra/hack/pkg/test/testrun"
)

// The modes in which a package is tested.
const (
	// Vet compiles and vets a package with its tests.
	Vet = "vet"
	// UnitTests run as they are: gates have their defaults, except where a test sets them.
	UnitTests = "unit"
	// Race is the same with the race detector, for packages with goroutines of ours.
	Race = "race"
	// GatesOn runs upstream's unit tests with our feature gates on.
	GatesOn = "gates-on"
	// Integration tests have a real API server and etcd. The gates are off.
	Integration = "integration"
	// IntegrationGatesOn runs upstream's with the gates on.
	IntegrationGatesOn = "integration-gates-on"
	// Cluster tests the binaries of the release in real clusters.
	Cluster = "cluster"
	// Generators runs the release's generators, and compares.
	Generators = "generators"
	// Tool tests the programs of this repository. No release has it.
	Tool = "tool"
)

// What generators are checked on: they change nothing in the untouched release, and make of
// the features what is recorded.
const (
	GeneratorsBase  = "base"
	GeneratorsPatch = "generated.patch"
)

// Modes are all of them.
var Modes = []string{Vet, UnitTests, Race, GatesOn, Integration, IntegrationGatesOn, Cluster, Generators, Tool}

// OwnPrefix marks a mode that leaves upstream's tests out. Such results never leave a clone.
const OwnPrefix = "own-"

// scheme is part of all keys. It changes when keys have to have something else in them.
const scheme = "keys 1"

// The flags of test binaries, part of the keys.
var (
	unitFlags        = []string{"timeout=20m"}
	integrationFlags = []string{"timeout=40m"}
	clusterFlags     = []string{"timeout=60m"}
)

// A Unit is what a recorded result is about: a package in a mode.
type Unit struct {
	Release, Mode string
	// Target is the package.
	Target
	// Key identifies all that the result depends on, but for what tests read that nobody
	// knows before.
	Key string
	// Only and Skip are tests, as in [testrun.Job].
	Only, Skip []string
	// Env is what tests get beside the environment of the plan.
	Env   []string
	Proof string
	Flags []string
}

// Name is the unit for people.
func (u Unit) Name() string {
	return strings.TrimSpace(u.Release + " " + u.Mode + " " + strings.TrimPrefix(u.Path, "k8s.io/kubernetes/"))
}

// IsOwn says whether upstream's tests in the package are left out.
func (u Unit) IsOwn() bool { return strings.HasPrefix(u.Mode, OwnPrefix) }

// Whole is the mode of the unit with upstream's tests.
func (u Unit) Whole() string { return strings.TrimPrefix(u.Mode, OwnPrefix) }

// Prepared is the plan of a release with all that is needed to judge results, and to run tests.
type Prepared struct {
	*Plan
	// Content is that of the tree, as it is compiled.
	Content *results.Content
	// Units are the units of the release, and Own those without upstream's tests.
	Units, Own []Unit
	// plain and race are how tests are compiled.
	plain, race *testrun.Build
}

// Inputs are what keys depend on beside the tree.
type Inputs struct {
	// Go is the version of Go.
	Go string
	// Etcd and Cluster identify the third-party programs that tests start.
	Etcd, Cluster string
	// Base identifies the untouched release, and Generated the recorded output of its
	// generators and what that was made from.
	Base, Generated string
	// Root is this repository, for the cluster tests. Nil leaves them out.
	Root *Root
}

// PinOf identifies a third-party program in hack/tools.
func PinOf(repo string, tools ...string) (string, error) {
	h := sha256.New()
	for _, tool := range tools {
		for _, name := range []string{"go.mod", "go.sum"} {
			content, err := os.ReadFile(filepath.Join(repo, "hack", "tools", tool, name))
			if err != nil {
				return "", err
			}
			_, _ = fmt.Fprintf(h, "%s %s %d\n%s", tool, name, len(content), content)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

// kubernetesPrograms are those which cluster tests start.
var kubernetesPrograms = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl", "kubeadm"}

// ClusterPackage has the tests of the binaries.
const ClusterPackage = "kubernetes-dra/test/cluster"

// Prepare determines the units of a plan. What tests are compiled from and into stands in dir.
func (p *Plan) Prepare(ctx context.Context, dir string, in Inputs) (*Prepared, error) {
	content, err := results.Scan(ctx, p.Tree)
	if err != nil {
		return nil, err
	}
	o, err := p.Overlay(filepath.Join(dir, "overlay"))
	if err != nil {
		return nil, err
	}
	flag, err := o.Flag()
	if err != nil {
		return nil, err
	}
	if content, err = content.Replaced(o.Replaced()); err != nil {
		return nil, err
	}
	r := &Prepared{Plan: p, Content: content}
	r.plain = &testrun.Build{Dir: p.Tree, Env: p.Env, Flags: []string{flag}, Out: filepath.Join(dir, "plain")}
	// The race detector is written in C++.
	r.race = &testrun.Build{Dir: p.Tree, Env: append(slices.Clone(p.Env), "CGO_ENABLED=1"), Flags: []string{flag, "-race"}, Out: filepath.Join(dir, "race")}

	vetted, err := p.vetted()
	if err != nil {
		return nil, err
	}
	patterns := slices.Clone(vetted)
	var programs []string
	for _, name := range kubernetesPrograms {
		if _, err := os.Stat(filepath.Join(p.Tree, "cmd", name)); errors.Is(err, fs.ErrNotExist) {
			continue // a tree of a test
		}
		patterns = append(patterns, "./cmd/"+name)
		programs = append(programs, "k8s.io/kubernetes/cmd/"+name)
	}
	sources, err := results.List(ctx, content, p.Env, []string{flag}, patterns)
	if err != nil {
		return nil, fmt.Errorf("release %s: %w", p.Release, err)
	}
	if _, err := p.Exceptions(); err != nil {
		return nil, err
	}
	if err := r.units(sources, in, vetted, programs); err != nil {
		return nil, fmt.Errorf("release %s: %w", p.Release, err)
	}
	return r, nil
}

// vetted are the folders of all packages that we touch or test.
func (p *Plan) vetted() ([]string, error) {
	var folders []string
	for _, t := range slices.Concat(p.Unit, p.Integration) {
		rel, inside := sys.Within(p.Tree, t.Dir)
		if !inside {
			return nil, fmt.Errorf("%s is not in %s", t.Dir, p.Tree)
		}
		folders = append(folders, "./"+rel)
	}
	touched, err := Touched(p.Tree, p.files)
	if err != nil {
		return nil, err
	}
	folders = append(folders, touched...)
	slices.Sort(folders)
	return slices.Compact(folders), nil
}

// Touched lists the folders with Go files of the overlay that are in a tree, in the form in
// which the go command takes them for packages.
func Touched(tree string, files []File) ([]string, error) {
	var folders []string
	for _, f := range files {
		folder := path.Dir(f.Path)
		if path.Ext(f.Path) != ".go" {
			continue
		}
		found, err := filepath.Glob(filepath.Join(tree, filepath.FromSlash(folder), "*.go"))
		if err != nil {
			return nil, err
		}
		if len(found) > 0 {
			folders = append(folders, "./"+folder)
		}
	}
	slices.Sort(folders)
	return slices.Compact(folders), nil
}

func (r *Prepared) units(sources *results.Sources, in Inputs, vetted, programs []string) error {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	var errs []error
	add := func(mode string, t Target, u Unit, parts ...string) {
		sum, err := sources.Tests(t.Path, nil)
		if err != nil {
			errs = append(errs, err)
			return
		}
		u.Release, u.Mode, u.Target = r.Release, mode, t
		u.Key = results.Digest(slices.Concat([]string{scheme, mode, t.Path, in.Go, platform, sum}, u.Env, u.Skip, u.Flags, parts)...)
		r.Units = append(r.Units, u)
		if len(t.Own) > 0 && mode != GatesOn && mode != IntegrationGatesOn && mode != Vet {
			u.Mode, u.Only = OwnPrefix+mode, t.Own
			if u.Proof != "" {
				u.Only = append(slices.Clone(t.Own), u.Proof)
			}
			r.Own = append(r.Own, u)
		}
	}
	setting := func(value string) []string { return []string{GatesVariable + "=" + value} }
	gates := strings.Join(r.Gates, ",")
	for _, t := range r.Unit {
		proof := ""
		if t.Gated && !t.OnlyOurs() && len(r.Gates) > 0 {
			proof = testrun.GateProof
		}
		mode := UnitTests
		if t.Race {
			mode = Race
		}
		u := Unit{Flags: unitFlags}
		if proof != "" {
			// It is of use in the other mode.
			u.Skip = []string{proof}
		}
		add(mode, t, u)
		if proof != "" {
			add(GatesOn, t, Unit{Flags: unitFlags, Skip: slices.Concat(t.Own, r.exceptionsIn(t)), Env: setting(gatesForced), Proof: proof}, gates)
		}
	}
	for _, t := range r.Integration {
		u := Unit{Flags: integrationFlags}
		if !t.OnlyOurs() && len(r.Gates) > 0 {
			u.Env, u.Proof = setting(gatesOff), testrun.GateProof
		}
		add(Integration, t, u, in.Etcd, gates)
		if u.Proof != "" {
			add(IntegrationGatesOn, t, Unit{Flags: integrationFlags, Skip: r.exceptionsIn(t), Env: setting(gatesOn), Proof: u.Proof}, in.Etcd, gates)
		}
	}
	for _, folder := range vetted {
		pkg := sources.InFolder(strings.TrimPrefix(folder, "./"))
		if pkg == "" {
			continue // nothing for this platform
		}
		sum, err := sources.Tests(pkg, nil)
		errs = append(errs, err)
		r.Units = append(r.Units, Unit{
			Release: r.Release, Mode: Vet, Target: Target{Path: pkg, Dir: filepath.Join(r.Tree, folder)},
			Key: results.Digest(scheme, Vet, pkg, in.Go, platform, sum),
		})
	}
	for what, input := range map[string]string{GeneratorsBase: in.Base, GeneratorsPatch: in.Generated} {
		r.Units = append(r.Units, Unit{
			Release: r.Release, Mode: Generators, Target: Target{Path: what, Dir: r.Tree}, Key: results.Digest(scheme, Generators, what, input),
		})
	}
	cluster, err := r.cluster(sources, in, programs, platform)
	r.Units = append(r.Units, cluster...)
	return errors.Join(append(errs, err)...)
}

// cluster has the unit of the cluster tests twice: the own one, which is repeated when the tool
// that starts clusters changes, and the one that gets recorded. The tool is no part of the
// product, and each change of it is tested with the default release.
func (r *Prepared) cluster(sources *results.Sources, in Inputs, programs []string, platform string) ([]Unit, error) {
	if in.Root == nil {
		return nil, nil
	}
	parts := []string{scheme, Cluster, in.Go, platform, in.Cluster, in.Etcd, strings.Join(r.Gates, ",")}
	for _, program := range programs {
		sum, err := sources.Program(program)
		if err != nil {
			return nil, err
		}
		parts = append(parts, sum)
	}
	for _, program := range in.Root.programs() {
		sum, err := in.Root.Sources.Program(program)
		if err != nil {
			return nil, err
		}
		parts = append(parts, sum)
	}
	u := Unit{Release: r.Release, Mode: Cluster, Target: in.Root.Cluster, Flags: clusterFlags, Env: []string{"RELEASE=" + r.Release}}
	all, err := in.Root.Sources.Tests(ClusterPackage, nil)
	if err != nil {
		return nil, err
	}
	product, err := in.Root.Sources.Tests(ClusterPackage, func(dir string) bool { return strings.HasPrefix(dir, "hack/") })
	if err != nil {
		return nil, err
	}
	u.Key = results.Digest(append(parts, product)...)
	own := u
	own.Mode, own.Key = OwnPrefix+Cluster, results.Digest(append(parts, all)...)
	r.Own = append(r.Own, own)
	return []Unit{u}, nil
}

// Build says how a unit is compiled.
func (r *Prepared) Build(u Unit) *testrun.Build {
	if u.Whole() == Race {
		return r.race
	}
	return r.plain
}

// Root are the units of this repository's programs, without the cluster tests.
type Root struct {
	Content *results.Content
	Sources *results.Sources
	Units   []Unit
	// ClusterTests are the packages with tests of clusters, Cluster the one that is part of
	// all tests.
	ClusterTests []Target
	Cluster      Target
	Build        *testrun.Build
}

// programs are those of this repository that cluster tests run.
func (r *Root) programs() []string {
	return slices.DeleteFunc(r.Sources.Mains(), func(pkg string) bool {
		return !strings.HasPrefix(pkg, "kubernetes-dra/cmd/") && !strings.HasPrefix(pkg, ClusterPackage+"/")
	})
}

// RootUnits determines what to test in the root module of this repository.
func RootUnits(ctx context.Context, repo, dir, goVersion string) (*Root, error) {
	env := sys.Without([]string{"GOFLAGS", "GOWORK", "CGO_ENABLED", "GOOS", "GOARCH"}, "GOWORK=off", sys.GoFlags(), "CGO_ENABLED=0")
	content, err := results.Scan(ctx, repo)
	if err != nil {
		return nil, err
	}
	targets, err := RootTargets(ctx, repo, env)
	if err != nil {
		return nil, err
	}
	sources, err := results.List(ctx, content, env, nil, []string{"./...", nested})
	if err != nil {
		return nil, err
	}
	r := &Root{Content: content, Sources: sources, Build: &testrun.Build{Dir: content.Dir, Env: env, Out: filepath.Join(dir, "root")}}
	for _, t := range targets {
		if t.Path == ClusterPackage {
			r.Cluster = t
		}
		if strings.HasPrefix(t.Path, ClusterPackage) {
			r.ClusterTests = append(r.ClusterTests, t)
			continue
		}
		sum, err := sources.Tests(t.Path, nil)
		if err != nil {
			return nil, err
		}
		u := Unit{Mode: Tool, Target: t, Flags: unitFlags}
		u.Key = results.Digest(scheme, Tool, t.Path, goVersion, runtime.GOOS+"/"+runtime.GOARCH, sum)
		r.Units = append(r.Units, u)
	}
	return r, nil
}

// Guess is how long a unit takes of which nothing is known.
func Guess(mode string) time.Duration {
	switch strings.TrimPrefix(mode, OwnPrefix) {
	case Integration, IntegrationGatesOn:
		return 2 * time.Minute
	case Cluster:
		return 15 * time.Minute
	case Generators:
		return 8 * time.Minute
	case Vet:
		return 2 * time.Second
	case Race:
		return 40 * time.Second
	}
	return 15 * time.Second
}
