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
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kubernetes-dra/hack/pkg/git"
	"kubernetes-dra/hack/pkg/test/testrun"
	"kubernetes-dra/hack/pkg/tree/ledger"
)

// fakeTree is a tree with the same layout as Kubernetes, and with just enough of
// what the generated files import.
func fakeTree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"go.mod":                        "module k8s.io/kubernetes\n\ngo 1.26\n\nrequire (\n\tk8s.io/api v0.0.0\n\tk8s.io/apimachinery v0.0.0\n\tk8s.io/apiserver v0.0.0\n\tk8s.io/component-base v0.0.0\n)\n",
		"go.work":                       "go 1.26\n\nuse (\n\t.\n\t./staging/src/k8s.io/api\n\t./staging/src/k8s.io/apimachinery\n\t./staging/src/k8s.io/apiserver\n\t./staging/src/k8s.io/component-base\n)\n",
		"staging/src/k8s.io/api/go.mod": "module k8s.io/api\n\ngo 1.26\n",
		"staging/src/k8s.io/api/api.go": "package api\n",
		"staging/src/k8s.io/api/roundtrip_test.go": "package api\n\nimport \"testing\"\n\nfunc TestRoundTrip(t *testing.T) {}\n",
		"staging/src/k8s.io/component-base/go.mod": "module k8s.io/component-base\n\ngo 1.26\n\nrequire k8s.io/apimachinery v0.0.0\n",
		"staging/src/k8s.io/apiserver/go.mod":      "module k8s.io/apiserver\n\ngo 1.26\n\nrequire k8s.io/component-base v0.0.0\n",
		"staging/src/k8s.io/component-base/featuregate/feature_gate.go": `package featuregate

import "strings"

type Feature string

type FeatureGate interface{ Enabled(f Feature) bool }

type Gate map[Feature]bool

func (g Gate) Enabled(f Feature) bool { return g[f] }
func (g Gate) Set(s string) error {
	name, value, _ := strings.Cut(s, "=")
	g[Feature(name)] = value == "true"
	return nil
}
`,
		"staging/src/k8s.io/component-base/featuregate/testing/feature_gate.go": `package testing

import (
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-base/featuregate"
)

type TB interface {
	Helper()
	Cleanup(func())
	Errorf(string, ...any)
}

type FeatureOverrides map[featuregate.Feature]bool

func SetFeatureGatesDuringTest(tb TB, gate featuregate.FeatureGate, features FeatureOverrides) {
	for f, on := range features {
		g, old := gate.(featuregate.Gate), gate.Enabled(f)
		g[f] = on
		tb.Cleanup(func() { g[f] = old })
	}
}

func SetFeatureGateVersionsDuringTest(tb TB, gate featuregate.FeatureGate, emuVer, minCompatVer *version.Version) {
}
`,
		"staging/src/k8s.io/apimachinery/go.mod": "module k8s.io/apimachinery\n\ngo 1.26\n",
		"staging/src/k8s.io/apimachinery/pkg/util/version/version.go": `package version

type Version struct{ v string }

func MustParse(s string) *Version { return &Version{s} }

func (v *Version) AtLeast(min *Version) bool { return v.v >= min.v }
`,
		"staging/src/k8s.io/apiserver/pkg/util/feature/gate.go": `package feature

import "k8s.io/component-base/featuregate"

var (
	DefaultMutableFeatureGate = featuregate.Gate{}
	DefaultFeatureGate        = DefaultMutableFeatureGate
)
`,
		"pkg/features/features.go": "package features\n",
		"pkg/features/features_test.go": `package features_test

import (
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/util/version"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
)

func TestFeatures(t *testing.T) {
	for v, possible := range map[string]bool{"1.33": false, "1.34": true} {
		t.Run(v, func(t *testing.T) {
			featuregatetesting.SetFeatureGateVersionsDuringTest(t, utilfeature.DefaultFeatureGate, version.MustParse(v), nil)
			want := possible && os.Getenv("WANT_ON") == "true"
			if on := utilfeature.DefaultFeatureGate.Enabled("DRAReservedForWorkloads"); on != want {
				t.Errorf("on: %t", on)
			}
		})
	}
}
`,
		"pkg/controller/resourceclaim/controller.go": `package resourceclaim

type Features struct{ ReservedForWorkloads bool }

func NewController(features Features) bool { return features.ReservedForWorkloads }
`,
		"pkg/controller/resourceclaim/controller_test.go": `package resourceclaim

import (
	"os"
	"testing"
)

func TestController(t *testing.T) {
	if on := NewController(Features{}); on != (os.Getenv("WANT_ON") == "true") {
		t.Errorf("on: %t", on)
	}
}
`,
		"pkg/controller/resourceclaim/reservedfor.go":      "package resourceclaim\n",
		"pkg/controller/resourceclaim/reservedfor_test.go": "package resourceclaim\n\nimport \"testing\"\n\nfunc TestReservedFor(t *testing.T) {}\n\nfunc FuzzReservedFor(f *testing.F) {}\n",
		"pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go": `package dynamicresources

type features struct{ EnableDRASharedClaims, EnableDRAReservedForWorkloads bool }

func New(fts features) bool { return fts.EnableDRASharedClaims && fts.EnableDRAReservedForWorkloads }
`,
		"pkg/registry/resource/rest/notests.go":                        "package rest\n",
		"pkg/kubelet/other/other.go":                                   "package other\n",
		"pkg/kubelet/other/other_test.go":                              "package other\n\nimport \"testing\"\n\nfunc TestOther(t *testing.T) {}\n",
		"pkg/unrelated/unrelated_test.go":                              "package unrelated\n\nimport \"testing\"\n\nfunc TestUnrelated(t *testing.T) {}\n",
		"test/integration/dra/main_test.go":                            "package dra\n\nimport \"testing\"\n\nfunc TestUpstream(t *testing.T) {}\n",
		"test/integration/dra/reservedfor/main_test.go":                "package reservedfor\n\nimport \"testing\"\n\nfunc TestOurs(t *testing.T) {}\n",
		"test/integration/util/util.go":                                "package util\n",
		"test/integration/scheduler_perf/dra/reservedfor/perf_test.go": "package perf\n\nimport \"testing\"\n\nfunc BenchmarkOurs(b *testing.B) {}\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

var fakeFiles = []File{
	{Path: "pkg/controller/resourceclaim/controller.go", Seam: true},
	{Path: "pkg/controller/resourceclaim/reservedfor.go"},
	{Path: "pkg/controller/resourceclaim/reservedfor_test.go"},
	{Path: "pkg/kubelet/other/other.go", Seam: true},
	{Path: "pkg/registry/resource/rest/notests.go", Seam: true},
	{Path: "test/integration/dra/reservedfor/main_test.go"},
	{Path: "test/integration/util/util.go", Seam: true},
	{Path: "test/integration/scheduler_perf/dra/reservedfor/perf_test.go"},
	{Path: "test/e2e/dra/reservedfor.go"},
	{Path: "test/compatibility_lifecycle/reference/feature_list.md", Seam: true},
}

// fakeLedger has a release with one gate, and one that it depends on.
func fakeLedger(t *testing.T) *ledger.Ledger {
	t.Helper()
	l, err := ledger.Parse([]byte(`
revision: 1
releases:
- {name: "1.34", version: v1.34.4, state: planned}
- {name: "1.36", version: v1.36.3, state: carried, released: "2026-07-22T18:07:38Z"}
features:
- {slug: base, title: t, state: carried, gates: [DRASharedClaims], defaults: {DRASharedClaims: {since: "1.36"}}, releases: {"1.36": carried}, why: w, upstream: u, dropWhen: d}
- {slug: one, title: t, state: carried, needs: [{slug: base, why: w}], gates: [DRAReservedForWorkloads], releases: {"1.36": carried}, why: w, upstream: u, dropWhen: d}
`))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func newPlan(t *testing.T) *Plan {
	t.Helper()
	t.Setenv("GOWORK", "")
	t.Setenv("GOFLAGS", "-mod=readonly")
	t.Setenv("GOPROXY", "off")
	p, err := New(context.Background(), fakeTree(t), fakeLedger(t), "1.36", fakeFiles)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func find(t *testing.T, targets []Target, path string) Target {
	t.Helper()
	i := slices.IndexFunc(targets, func(t Target) bool { return t.Path == path })
	if i < 0 {
		t.Fatalf("no %s in %v", path, targets)
	}
	return targets[i]
}

func paths(targets []Target) []string {
	var paths []string
	for _, t := range targets {
		paths = append(paths, t.Path)
	}
	return paths
}

func TestPlan(t *testing.T) {
	p := newPlan(t)
	if got, want := paths(p.Unit), []string{
		"k8s.io/api",
		"k8s.io/kubernetes/pkg/controller/resourceclaim",
		"k8s.io/kubernetes/pkg/features",
		"k8s.io/kubernetes/pkg/kubelet/other",
	}; !slices.Equal(got, want) {
		t.Errorf("unit:\nwant %v\ngot  %v", want, got)
	}
	if got, want := paths(p.Integration), []string{
		"k8s.io/kubernetes/test/integration/dra",
		"k8s.io/kubernetes/test/integration/dra/reservedfor",
	}; !slices.Equal(got, want) {
		t.Errorf("integration:\nwant %v\ngot  %v", want, got)
	}
	if !slices.Contains(p.Absent, "pkg/kubelet/cm/dra/...") {
		t.Errorf("absent: %v", p.Absent)
	}

	controller := find(t, p.Unit, "k8s.io/kubernetes/pkg/controller/resourceclaim")
	if !controller.Race || !controller.Gated || controller.OnlyOurs() || !slices.Equal(controller.Own, []string{"FuzzReservedFor", "TestReservedFor"}) {
		t.Errorf("unexpected: %+v", controller)
	}
	if api := find(t, p.Unit, "k8s.io/api"); api.Race || api.Gated || len(api.Own) > 0 {
		t.Errorf("unexpected: %+v", api)
	}
	if !find(t, p.Integration, "k8s.io/kubernetes/test/integration/dra/reservedfor").OnlyOurs() {
		t.Error("all tests in our directory are ours")
	}
}

// prepare makes a git repository of the tree, as each tree is one, and prepares the plan.
func prepare(t *testing.T, p *Plan, in Inputs) *Prepared {
	t.Helper()
	repo := git.Dir(p.Tree)
	for _, args := range [][]string{{"init", "--quiet"}, {"add", "--all"}} {
		if _, err := repo.Run(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	r, err := p.Prepare(t.Context(), filepath.Join(t.TempDir(), "test"), in)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// run runs units, and returns what the screen shows.
func run(t *testing.T, r *Prepared, units []Unit, env ...string) (passed int, out string, err error) {
	t.Helper()
	var b bytes.Buffer
	runner := &testrun.Runner{Out: &b, LogDir: t.TempDir()}
	var jobs []testrun.Job
	for _, u := range units {
		jobs = append(jobs, testrun.Job{
			Name: u.Name(), Package: u.Path, Dir: u.Dir, Build: r.Build(u), Env: slices.Concat(r.Env, u.Env, env),
			Tests: u.Tests, Own: u.Target.Own, Only: u.Only, Skip: u.Skip, Proof: u.Proof, Flags: u.Flags,
		})
	}
	if err := runner.Run(t.Context(), jobs, nil); err != nil {
		t.Fatal(err)
	}
	err = runner.Summary()
	return runner.Total().Passed, b.String(), err
}

func inMode(units []Unit, mode string, paths ...string) []Unit {
	return slices.DeleteFunc(slices.Clone(units), func(u Unit) bool {
		return u.Mode != mode || len(paths) > 0 && !slices.Contains(paths, u.Path)
	})
}

// Each package has its units: ours is tested for races, upstream's once more with the gates on,
// ours alone as well.
func TestUnits(t *testing.T) {
	r := prepare(t, newPlan(t), Inputs{})
	var got []string
	for _, u := range slices.Concat(r.Units, r.Own) {
		got = append(got, u.Name())
	}
	slices.Sort(got)
	want := []string{
		"1.36 gates-on pkg/controller/resourceclaim", "1.36 gates-on pkg/features", "1.36 gates-on pkg/kubelet/other",
		"1.36 generators base", "1.36 generators generated.patch",
		"1.36 integration test/integration/dra", "1.36 integration test/integration/dra/reservedfor",
		"1.36 integration-gates-on test/integration/dra",
		"1.36 own-integration test/integration/dra/reservedfor", "1.36 own-race pkg/controller/resourceclaim",
		"1.36 race pkg/controller/resourceclaim",
		"1.36 unit k8s.io/api", "1.36 unit pkg/features", "1.36 unit pkg/kubelet/other",
		"1.36 vet k8s.io/api", "1.36 vet pkg/controller/resourceclaim", "1.36 vet pkg/features", "1.36 vet pkg/kubelet/other",
		"1.36 vet pkg/registry/resource/rest", "1.36 vet test/integration/dra", "1.36 vet test/integration/dra/reservedfor",
		"1.36 vet test/integration/scheduler_perf/dra/reservedfor", "1.36 vet test/integration/util",
	}
	if !slices.Equal(got, want) {
		t.Errorf("units:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if own := inMode(r.Own, "own-race")[0]; !slices.Equal(own.Only, []string{"FuzzReservedFor", "TestReservedFor"}) || own.Key != inMode(r.Units, Race)[0].Key {
		t.Errorf("unexpected: %+v", own)
	}
}

// TestKeys changes one thing after the other, and looks which results are owed: those, and no
// others, that depend on it.
func TestKeys(t *testing.T) {
	const controller, features, api, ours = "pkg/controller/resourceclaim", "pkg/features", "k8s.io/api", "test/integration/dra/reservedfor"
	write := func(name, content string) func(*testing.T, *Plan, *Inputs) {
		return func(t *testing.T, p *Plan, _ *Inputs) {
			name := filepath.Join(p.Tree, filepath.FromSlash(name))
			old, _ := os.ReadFile(name)
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, append(old, content...), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	only := func(names ...string) func(Unit) bool {
		return func(u Unit) bool { return slices.Contains(names, strings.TrimPrefix(u.Path, "k8s.io/kubernetes/")) }
	}
	modes := func(modes ...string) func(Unit) bool {
		return func(u Unit) bool { return slices.Contains(modes, u.Whole()) }
	}
	for name, tc := range map[string]struct {
		change func(*testing.T, *Plan, *Inputs)
		owed   func(Unit) bool
	}{
		"nothing":    {func(*testing.T, *Plan, *Inputs) {}, only()},
		"a document": {write("docs/x.md", "x"), only()},
		"our file":   {write(controller+"/reservedfor.go", "\nvar X int\n"), only(controller)},
		"our test":   {write(controller+"/reservedfor_test.go", "\nvar x int\n"), only(controller)},
		"seam":       {write(controller+"/controller.go", "\nvar X int\n"), only(controller)},
		"testdata":   {write("staging/src/k8s.io/api/testdata/x.json", "{}"), only(api)},
		"what many import": {write("staging/src/k8s.io/component-base/featuregate/feature_gate.go", "\nvar X int\n"), func(u Unit) bool {
			return only(controller, features, "pkg/kubelet/other", "test/integration/dra")(u)
		}},
		"Go":          {func(_ *testing.T, _ *Plan, in *Inputs) { in.Go = "go1.27" }, func(u Unit) bool { return u.Mode != Generators }},
		"etcd":        {func(_ *testing.T, _ *Plan, in *Inputs) { in.Etcd = "v4" }, modes(Integration, IntegrationGatesOn)},
		"generators":  {func(_ *testing.T, _ *Plan, in *Inputs) { in.Generated = "x" }, only(GeneratorsPatch)},
		"the release": {func(_ *testing.T, _ *Plan, in *Inputs) { in.Base = "x" }, only(GeneratorsBase)},
		"a flag": {func(t *testing.T, _ *Plan, _ *Inputs) {
			old := integrationFlags
			integrationFlags = []string{"timeout=1h"}
			t.Cleanup(func() { integrationFlags = old })
		}, modes(Integration, IntegrationGatesOn)},
		"a test that is left out": {func(_ *testing.T, p *Plan, _ *Inputs) {
			p.exceptions = []ledger.UpstreamTest{{Dir: features, Test: "TestFeatures", Why: "w"}}
		}, func(u Unit) bool { return u.Mode == GatesOn && only(features)(u) }},
		// All that have upstream's tests know the gates, which are compiled into them.
		"a gate": {func(_ *testing.T, p *Plan, _ *Inputs) { p.Gates = append(p.Gates, "DRAOther") }, func(u Unit) bool {
			return only(controller, features, "pkg/kubelet/other", "test/integration/dra")(u) || modes(Integration)(u)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p, in := newPlan(t), Inputs{Go: "go1.26", Etcd: "v3", Generated: "sum"}
			before := prepare(t, p, in)
			tc.change(t, p, &in)
			after := prepare(t, p, in)
			units, changed := slices.Concat(before.Units, before.Own), slices.Concat(after.Units, after.Own)
			if len(units) != len(changed) {
				t.Fatalf("%d units, and %d after it", len(units), len(changed))
			}
			byName := func(a, b Unit) int { return strings.Compare(a.Name(), b.Name()) }
			slices.SortFunc(units, byName)
			slices.SortFunc(changed, byName)
			for i, u := range units {
				if owed := u.Key != changed[i].Key; owed != tc.owed(u) {
					t.Errorf("%s: owed %t, want %t", u.Name(), owed, tc.owed(u))
				}
			}
		})
	}
}

// TestGatesOn runs tests of upstream with the gate on, including the one which
// depends on a constructor, and as they are, with the same binaries.
func TestGatesOn(t *testing.T) {
	p := newPlan(t)
	r := prepare(t, p, Inputs{})
	if units := inMode(r.Units, GatesOn, "k8s.io/api"); len(units) > 0 {
		t.Error("a staging module does not know about feature gates")
	}
	passed, out, err := run(t, r, inMode(r.Units, GatesOn), "WANT_ON=true")
	if err != nil || passed != 5 {
		t.Errorf("expected the three tests of upstream, and two sub-tests: %d, %v\n%s", passed, err, out)
	}
	if _, out, err := run(t, r, inMode(r.Units, UnitTests)); err != nil {
		t.Errorf("the gates are on although nobody asked for that: %v\n%s", err, out)
	}

	// The proof fails if some test turns the gate off for good.
	features := filepath.Join(p.Tree, "pkg/features/features_test.go")
	content := "package features_test\n\nimport (\n\t\"testing\"\n\n\tutilfeature \"k8s.io/apiserver/pkg/util/feature\"\n)\n\nfunc TestFeatures(t *testing.T) { _ = utilfeature.DefaultMutableFeatureGate.Set(\"DRAReservedForWorkloads=false\") }\n"
	if err := os.WriteFile(features, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, out, err := run(t, r, inMode(r.Units, GatesOn, "k8s.io/kubernetes/pkg/features")); err == nil {
		t.Errorf("expected the proof to fail:\n%s", out)
	}

	// A constructor that cannot be found is an error.
	if err := os.WriteFile(filepath.Join(p.Tree, "pkg/controller/resourceclaim/controller.go"), []byte("package resourceclaim\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Overlay(filepath.Join(t.TempDir(), "overlay")); err == nil {
		t.Error("expected an error")
	}
}

// A test that sets AllBeta, which overrides even gates that were set, must not turn off what
// one of the gates depends on.
func TestGatesOnWithoutBeta(t *testing.T) {
	const test = `package features_test

import (
	"testing"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
)

func TestFeatures(t *testing.T) {
	SET
	if !utilfeature.DefaultFeatureGate.Enabled("DRASharedClaims") || utilfeature.DefaultFeatureGate.Enabled("DRAReservedForWorkloads") {
		t.Errorf("got %v", utilfeature.DefaultFeatureGate)
	}
}
`
	for name, tc := range map[string]struct {
		older           bool
		call, loop, all string
	}{
		"1.36": {false, `featuregatetesting.SetFeatureGatesDuringTest(t, utilfeature.DefaultFeatureGate, featuregatetesting.FeatureOverrides{"AllBeta": false})`,
			"\tfor f, on := range features {\n", `	if on, all := features["AllBeta"]; all {
		for f := range gate.(featuregate.Gate) {
			if _, set := features[f]; !set {
				features[f] = on
			}
		}
	}
`},
		"1.34": {true, `featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, "AllBeta", false)`,
			"\t{\n\t\tg, old", `	if f == "AllBeta" {
		for f := range gate.(featuregate.Gate) {
			SetFeatureGateDuringTest(tb, gate, f, on)
		}
		return
	}
`},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlan(t)
			if tc.older {
				makeOlder(t, p)
			}
			gates := filepath.Join(p.Tree, filepath.FromSlash(gateTesting))
			content, err := os.ReadFile(gates)
			if err != nil || !strings.Contains(string(content), tc.loop) {
				t.Fatalf("%v: no %q in %s", err, tc.loop, content)
			}
			for name, content := range map[string]string{
				gates: strings.Replace(string(content), tc.loop, tc.all+tc.loop, 1),
				filepath.Join(p.Tree, "pkg/features/features_test.go"): strings.Replace(test, "SET", tc.call, 1),
			} {
				if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			testFeaturesWithGatesOn(t, p)
		})
	}
}

const gateTesting = "staging/src/k8s.io/component-base/featuregate/testing/feature_gate.go"

// testFeaturesWithGatesOn runs the tests of pkg/features.
func testFeaturesWithGatesOn(t *testing.T, p *Plan) {
	t.Helper()
	r := prepare(t, p, Inputs{})
	passed, out, err := run(t, r, inMode(r.Units, GatesOn, "k8s.io/kubernetes/pkg/features"), "WANT_ON=true")
	if err != nil || passed == 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestGatesOnOlderRelease does the same in a tree whose package for tests of
// feature gates is that of 1.34 and older.
func TestGatesOnOlderRelease(t *testing.T) {
	p := newPlan(t)
	makeOlder(t, p)
	testFeaturesWithGatesOn(t, p)
}

func makeOlder(t *testing.T, p *Plan) {
	t.Helper()
	older := strings.NewReplacer(
		"type FeatureOverrides map[featuregate.Feature]bool\n", "",
		"func SetFeatureGatesDuringTest(tb TB, gate featuregate.FeatureGate, features FeatureOverrides) {\n\tfor f, on := range features {",
		"func SetFeatureGateDuringTest(tb TB, gate featuregate.FeatureGate, f featuregate.Feature, on bool) {\n\t{",
		"SetFeatureGateVersionsDuringTest(tb TB, gate featuregate.FeatureGate, emuVer, minCompatVer *version.Version)",
		"SetFeatureGateEmulationVersionDuringTest(tb TB, gate featuregate.FeatureGate, ver *version.Version)",
		"SetFeatureGateVersionsDuringTest(t, utilfeature.DefaultFeatureGate, version.MustParse(v), nil)",
		"SetFeatureGateEmulationVersionDuringTest(t, utilfeature.DefaultFeatureGate, version.MustParse(v))",
	)
	for _, name := range []string{gateTesting, "pkg/features/features_test.go"} {
		name = filepath.Join(p.Tree, name)
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(older.Replace(string(content))), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Upstream's tests that cannot pass with the gates on are left out, where they exist.
func TestExceptions(t *testing.T) {
	p := newPlan(t)
	if got, err := p.Exceptions(); err != nil || len(got) > 0 {
		t.Errorf("none in the ledger: got %v, %v", got, err)
	}
	const dirInTree = "pkg/x"
	p.exceptions = []ledger.UpstreamTest{{Dir: dirInTree, Test: "TestFails", Why: "w"}}
	if _, err := p.Exceptions(); err == nil || !strings.Contains(err.Error(), "TestFails") {
		t.Errorf("a test that is gone must be an error, got: %v", err)
	}
	// It may be a sub-test, of an integration test as well.
	p.exceptions = []ledger.UpstreamTest{{Dir: "pkg/features", Test: "TestFeatures/1.33", Why: "w"}, {Dir: "test/integration/dra", Test: "TestUpstream", Why: "w"}}
	r := prepare(t, p, Inputs{})
	for _, tc := range []struct {
		mode, path string
		skip       []string
	}{
		{UnitTests, "pkg/features", []string{testrun.GateProof}},
		{GatesOn, "pkg/features", []string{"TestFeatures/1.33"}},
		{GatesOn, "pkg/controller/resourceclaim", []string{"FuzzReservedFor", "TestReservedFor"}},
		{Integration, "test/integration/dra", nil},
		{IntegrationGatesOn, "test/integration/dra", []string{"TestUpstream"}},
	} {
		units := inMode(r.Units, tc.mode, "k8s.io/kubernetes/"+tc.path)
		if len(units) != 1 || !slices.Equal(units[0].Skip, tc.skip) {
			t.Errorf("%s %s: got %+v, want to skip %q", tc.mode, tc.path, units, tc.skip)
		}
	}
}

// Gates that features depend on are turned on as well where they are off by default.
func TestGates(t *testing.T) {
	l, err := ledger.Parse([]byte(`
revision: 1
releases:
- {name: "1.32", version: v1.32.2, state: carried, released: "2025-02-12T21:19:46Z", gates: [DynamicResourceAllocation]}
- {name: "1.36", version: v1.36.3, state: carried, released: "2026-07-22T18:07:38Z"}
features:
- {slug: base, title: t, state: carried, gates: [DRABase], defaults: {DRABase: {since: "1.32"}}, releases: {"1.32": carried, "1.36": carried}, why: w, upstream: u, dropWhen: d}
- {slug: one, title: t, state: carried, needs: [{slug: base, why: w}], gates: [DRAOne, DRAOther], releases: {"1.32": carried, "1.36": carried}, why: w, upstream: u, dropWhen: d}
`))
	if err != nil {
		t.Fatal(err)
	}
	for release, want := range map[string][]string{"1.32": {"DynamicResourceAllocation", "DRABase", "DRAOne"}, "1.36": {"DRABase", "DRAOne"}} {
		if got := Gates(l, release); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", release, got, want)
		}
	}
}

// One binary serves for both states of the gates. A package that does not compile does not
// keep others from running.
func TestIntegration(t *testing.T) {
	p := newPlan(t)
	r := prepare(t, p, Inputs{})
	units := slices.Concat(inMode(r.Units, Integration), inMode(r.Units, IntegrationGatesOn))
	if passed, out, err := run(t, r, units); err != nil || passed != 3 {
		t.Errorf("%d passed, %v\n%s", passed, err, out)
	}
	if err := os.WriteFile(filepath.Join(p.Tree, "test/integration/dra/main_test.go"), []byte("package dra\n\nvar x int = \"\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if passed, out, err := run(t, r, units); err == nil || passed != 1 || !strings.Contains(out, "dra: does not build") {
		t.Errorf("%d passed, %v\n%s", passed, err, out)
	}
}
