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
	// Those that take longest come first.
	if got, want := paths(p.Integration), []string{
		"k8s.io/kubernetes/test/integration/dra/reservedfor",
		"k8s.io/kubernetes/test/integration/dra",
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
	if got := controller.FuzzTests(); !slices.Equal(got, []string{"FuzzReservedFor"}) {
		t.Errorf("fuzz targets: %v", got)
	}
	ours := p.OwnUnit()
	if len(ours) != 1 || ours[0].Path != controller.Path || !slices.Equal(ours[0].Skip, []string{"TestController"}) {
		t.Errorf("our tests alone: %+v", ours)
	}
	if api := find(t, p.Unit, "k8s.io/api"); api.Race || api.Gated || len(api.Own) > 0 {
		t.Errorf("unexpected: %+v", api)
	}
	if !find(t, p.Integration, "k8s.io/kubernetes/test/integration/dra/reservedfor").OnlyOurs() {
		t.Error("all tests in our directory are ours")
	}
}

// TestGatesOn runs tests of upstream with the gate on, including the one which
// depends on a constructor.
func TestGatesOn(t *testing.T) {
	p := newPlan(t)
	t.Setenv("WANT_ON", "true")
	targets, flag, err := p.GatesOn(filepath.Join(t.TempDir(), "overlay"))
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(paths(targets), "k8s.io/api") {
		t.Error("a staging module does not know about feature gates")
	}
	var out bytes.Buffer
	r := &testrun.Runner{Out: &out, LogDir: t.TempDir()}
	if err := r.Run(context.Background(), testrun.Step{Name: "on", Dir: p.Tree, Flags: []string{flag},
		Packages: Packages(targets, func(Target) bool { return true })}); err != nil {
		t.Fatal(err)
	}
	if err := r.Summary(); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
	if !bytes.HasSuffix(out.Bytes(), []byte("\n5 passed, 0 failed, 0 skipped\n")) {
		t.Errorf("expected the three tests of upstream:\n%s", out.String())
	}

	// The proof fails if some test turns the gate off for good.
	features := filepath.Join(p.Tree, "pkg/features/features_test.go")
	content := "package features_test\n\nimport (\n\t\"testing\"\n\n\tutilfeature \"k8s.io/apiserver/pkg/util/feature\"\n)\n\nfunc TestFeatures(t *testing.T) { _ = utilfeature.DefaultMutableFeatureGate.Set(\"DRAReservedForWorkloads=false\") }\n"
	if err := os.WriteFile(features, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	r = &testrun.Runner{Out: &out, LogDir: t.TempDir()}
	if err := r.Run(context.Background(), testrun.Step{Name: "on", Dir: p.Tree, Flags: []string{flag},
		Packages: Packages(targets, func(t Target) bool { return t.Path == "k8s.io/kubernetes/pkg/features" })}); err != nil {
		t.Fatal(err)
	}
	if err := r.Summary(); err == nil {
		t.Errorf("expected the proof to fail:\n%s", out.String())
	}

	// A constructor that cannot be found is an error.
	if err := os.WriteFile(filepath.Join(p.Tree, "pkg/controller/resourceclaim/controller.go"), []byte("package resourceclaim\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.GatesOn(filepath.Join(t.TempDir(), "overlay")); err == nil {
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
	targets, flag, err := p.GatesOn(filepath.Join(t.TempDir(), "overlay"))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	r := &testrun.Runner{Out: &out, LogDir: t.TempDir()}
	if err := r.Run(context.Background(), testrun.Step{Name: "on", Dir: p.Tree, Flags: []string{flag},
		Packages: Packages(targets, func(t Target) bool { return t.Path == "k8s.io/kubernetes/pkg/features" })}); err != nil {
		t.Fatal(err)
	}
	if err := r.Summary(); err != nil || strings.Contains(out.String(), "\n0 passed") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// TestGatesOnOlderRelease does the same in a tree whose package for tests of
// feature gates is that of 1.34 and older.
func TestGatesOnOlderRelease(t *testing.T) {
	p := newPlan(t)
	t.Setenv("WANT_ON", "true")
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
	dir := filepath.Join(p.Tree, filepath.FromSlash(dirInTree))
	p.Unit = []Target{{
		Package: testrun.Package{Path: "k8s.io/kubernetes/" + dirInTree, Dir: dir, Own: []string{"TestOurs"}},
		Name:    "x",
		Tests:   []string{"TestFails", "TestOther", "TestOurs"},
		Gated:   true,
	}}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	p.Gates = nil
	targets, _, err := p.GatesOn(filepath.Join(t.TempDir(), "overlay"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"TestOurs", "TestFails"}
	if len(targets) != 1 || !slices.Equal(targets[0].Skip, want) {
		t.Errorf("got %+v, want to skip %q", targets, want)
	}
	if len(p.Unit[0].Own) != 1 {
		t.Errorf("what is ours changed: %q", p.Unit[0].Own)
	}
}

// The same for integration tests, where it may be a sub-test.
func TestExceptionsIntegration(t *testing.T) {
	const subTest = "TestAll/default/Pod"
	p := &Plan{Tree: "/tree", exceptions: []ledger.UpstreamTest{{Dir: "test/integration/x", Test: subTest, Why: "w"}}}
	p.Integration = []Target{
		{Package: testrun.Package{Dir: "/tree/test/integration/x"}, Tests: []string{"TestAll"}},
		{Package: testrun.Package{Dir: "/tree/test/integration/y"}, Tests: []string{"TestAll"}},
		{Package: testrun.Package{Dir: "/tree/test/integration/z", Own: []string{"TestOurs"}}, Tests: []string{"TestOurs"}},
	}
	if got, err := p.Exceptions(); err != nil || len(got) != 1 {
		t.Errorf("got %v, %v, want one", got, err)
	}
	got := p.UpstreamIntegration(p.Integration)
	if len(got) != 2 || !slices.Equal(got[0].Skip, []string{subTest}) || len(got[1].Skip) > 0 {
		t.Errorf("got %+v, want two packages, the first without %s", got, subTest)
	}
	if len(p.Integration) != 3 || len(p.Integration[0].Skip) > 0 {
		t.Errorf("what runs with the gates off changed: %+v", p.Integration)
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

// TestCompile builds a binary for both states of the gates.
func TestCompile(t *testing.T) {
	p := newPlan(t)
	targets, err := p.Compile(context.Background(), t.TempDir(), func(Target) {}, func(target Target, err error) { t.Errorf("%s: %v", target.Path, err) })
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"true", "false"} {
		var out bytes.Buffer
		r := &testrun.Runner{Out: &out, LogDir: t.TempDir()}
		if err := r.Run(context.Background(), testrun.Step{Name: value, Env: []string{GatesVariable + "=" + value},
			Packages: Packages(targets, func(t Target) bool { return !t.OnlyOurs() })}); err != nil {
			t.Fatal(err)
		}
		if err := r.Summary(); err != nil {
			t.Errorf("%v\n%s", err, out.String())
		}
		if !bytes.HasSuffix(out.Bytes(), []byte("\n1 passed, 0 failed, 0 skipped\n")) {
			t.Errorf("unexpected result:\n%s", out.String())
		}
	}

	if err := os.WriteFile(filepath.Join(p.Tree, "test/integration/dra/broken_test.go"), []byte("package dra\n\nvar x int = \"\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	failed := 0
	if _, err := p.Compile(context.Background(), t.TempDir(), func(Target) {}, func(Target, error) { failed++ }); err != nil {
		t.Fatal(err)
	}
	if failed != 1 {
		t.Errorf("expected one package that does not build, got %d", failed)
	}
}
