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

package verify

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kubernetes-dra/hack/pkg/check/bugs"
	"kubernetes-dra/hack/pkg/git"
	"kubernetes-dra/hack/pkg/test/results"
	"kubernetes-dra/hack/pkg/tree"
	"kubernetes-dra/hack/pkg/tree/ledger"
	"kubernetes-dra/hack/pkg/tree/patch"
	"kubernetes-dra/hack/pkg/tree/upstream"
)

// header is the licence of this very package.
var header = func() string {
	own, err := os.ReadFile("verify.go")
	if err != nil {
		panic(err)
	}
	text, _, _ := strings.Cut(string(own), "*/")
	return text + "*/\n\n"
}()

const ledgerText = `
revision: 1
releases:
- {name: "1.35", version: v1.35.4, state: planned}
- {name: "1.36", version: v1.36.3, state: carried, released: "2026-07-22T18:07:38Z"}
- {name: "1.37", version: v1.37.0, state: planned}
features:
- slug: fixes
  title: bugs
  state: carried
  releases: {"1.36": carried}
  why: w
  upstream: u
  dropWhen: d
  carries:
  - {name: one, why: w, upstream: u, dropWhen: d, tests: ["pkg/fixes_test.go:TestIt"]}
- slug: reservedfor
  title: workloads
  state: carried
  kep: 5194
  gates: [A, B]
  releases: {"1.35": carried, "1.36": carried, "1.37": base}
  why: w
  upstream: u
  dropWhen: d
  tests:
  - {path: pkg/a_test.go, why: because}
`

const notTested = "| release | version | results | passed | skipped | first | last |\n|---|---|---:|---:|---:|---|---|\n| 1.36 | v1.36.3 | 0 | 0 | 0 | – | – |\n"

const mixedTable = "| a | b |\n|---|---|\n| on | refused by the kubelet |\n"

const bugsTable = "| what you see | upstream | component | 1.36 | why | how to check |\n|---|---|---|---|---|---|\n" +
	"| It hangs. | [7](https://github.com/kubernetes/kubernetes/issues/7) | kubelet | **carried** | 1.36: “one” in the ledger. | a.go: f |\n"

// fakeUpstream has two files.
type fakeUpstream struct{ tree.Upstream }

const before, after = "1\n2\n3\n4\n5\n", "1\n2\n3\nx\n4\n5\n"

func (fakeUpstream) ReadFile(p string) ([]byte, error) {
	if p == "pkg/a.go" || p == "pkg/a_test.go" {
		return []byte(before), nil
	}
	return nil, fs.ErrNotExist
}

// repository is one in which everything is as it should be.
func repository(t *testing.T) *Verifier {
	t.Helper()
	v := &Verifier{
		Repo:    t.TempDir(),
		sources: map[string]tree.Upstream{"1.36": fakeUpstream{}},
		Log:     t.Logf,
	}
	var err error
	if v.Ledger, err = ledger.Parse([]byte(ledgerText)); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		".gitignore":              "/_output\n",
		"go.mod":                  "module x\n\nignore (\n\t./_output\n\t./api\n\t./pkg\n\t./test/integration\n)\n",
		"README.md":               "# Title\n\n<!-- BEGIN features: by carry -->\n\n" + Table(v.Ledger) + "\n<!-- END features -->\n\n[More](docs/x.md).\n",
		"docs/x.md":               "# X\n\n<!-- BEGIN releases -->\n\n" + Releases(v.Ledger) + "\n<!-- END releases -->\n\n<!-- BEGIN mixed gates -->\n\n" + mixedTable + "\n<!-- END mixed gates -->\n\n<!-- BEGIN tested -->\n\n" + notTested + "\n<!-- END tested -->\n\n<!-- BEGIN upstream's bugs -->\n\n" + bugsTable + "\n<!-- END upstream's bugs -->\n\n<!-- BEGIN file hack/x.yaml -->\n\n```yaml\na: b\n```\n\n<!-- END file hack/x.yaml -->\n",
		"hack/x.yaml":             "a: b\n",
		mixedGatesFile:            mixedTable,
		bugs.Path:                 "bugs:\n- {upstream: [7], component: kubelet, symptom: It hangs., check: \"a.go: f\", verdicts: {\"1.36\": {carried: one}}}\n",
		"_output/ignored.go":      "not formatted",
		"hack/x.go":               header + "package hack\n",
		"hack/x.sh":               "#!/usr/bin/env bash\n# " + shellHeader() + "\necho \"$@\"\n",
		"pkg/fixes_test.go":       header + "package pkg\n\nfunc TestIt() {}\n",
		"pkg/reservedfor.go":      "//go:build linux\n\n" + header + "package pkg\n",
		"test/cluster/x.go":       header + "package cluster\n",
		"test/thirdparty/x.go":    header + "package thirdparty\n",
		"test/upstream/x.go":      header + "package upstream\n",
		"test/integration/fixes":  "",
		"hack/pkg/testdata/x.rej": "",
	} {
		write(t, v, name, content)
	}
	for _, p := range []string{"pkg/a.go", "pkg/a_test.go"} {
		writeSeam(t, v, p, "reservedfor", before, after)
	}
	if _, err := git.Dir(v.Repo).Run(t.Context(), "init", "--quiet"); err != nil {
		t.Fatal(err)
	}
	return v
}

func shellHeader() string {
	return strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(header, "/*\n"), "\n*/\n\n"), "\n", "\n# ") + "\n"
}

func write(t *testing.T, v *Verifier, name, content string) {
	t.Helper()
	name = filepath.Join(v.Repo, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func writeSeam(t *testing.T, v *Verifier, name, slug, before, after string) {
	t.Helper()
	seam, err := patch.Diff(t.Context(), name, []byte(before), []byte(after))
	if err != nil {
		t.Fatal(err)
	}
	write(t, v, name+"."+slug+".patch", "Call it.\n"+string(seam))
}

// run runs a check after listing the files.
func run(t *testing.T, v *Verifier, check func(context.Context) error) error {
	t.Helper()
	v.files = nil
	if err := v.list(t.Context()); err != nil {
		t.Fatal(err)
	}
	return check(t.Context())
}

type check func(*Verifier) func(context.Context) error

var checks = map[string]check{
	"overlay":   func(v *Verifier) func(context.Context) error { return v.overlay },
	"seams":     func(v *Verifier) func(context.Context) error { return v.seams },
	"tests":     func(v *Verifier) func(context.Context) error { return v.tests },
	"format":    func(v *Verifier) func(context.Context) error { return v.format },
	"licences":  func(v *Verifier) func(context.Context) error { return v.licences },
	"documents": func(v *Verifier) func(context.Context) error { return v.documents },
}

func TestNothingToComplainAbout(t *testing.T) {
	v := repository(t)
	for name, check := range checks {
		if err := run(t, v, check(v)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestComplaints(t *testing.T) {
	for name, tt := range map[string]struct {
		check   string
		prepare func(t *testing.T, v *Verifier)
		want    string
	}{
		"file of no feature": {"overlay", func(t *testing.T, v *Verifier) { write(t, v, "pkg/x.go", "") }, "pkg/x.go: belongs to no feature"},
		"file outside": {"overlay", func(t *testing.T, v *Verifier) { write(t, v, "test/e2e/fixes.go", "") },
			"test/e2e/fixes.go: it is not in the overlay"},
		"seam outside": {"overlay", func(t *testing.T, v *Verifier) { write(t, v, "cmd/x/a.go.fixes.patch", "") },
			"cmd/x/a.go.fixes.patch: it is not in the overlay"},
		"used nowhere": {"overlay", func(t *testing.T, v *Verifier) { write(t, v, "pkg/fixes.1.35.go", "") },
			"pkg/fixes.1.35.go: it is built into no release"},
		"feature without files": {"overlay", func(t *testing.T, v *Verifier) {
			remove(t, v, "pkg/fixes_test.go")
			remove(t, v, "test/integration/fixes")
		}, "feature fixes is carried in 1.36, but has no files there"},
		"seam does not apply": {"seams", func(t *testing.T, v *Verifier) { replace(t, v, "pkg/a.go.reservedfor.patch", "\n 3\n", "\n three\n") },
			"pkg/a.go.reservedfor.patch: release 1.36 (v1.36.3): the seam does not apply"},
		"seam moved": {"seams", func(t *testing.T, v *Verifier) {
			replace(t, v, "pkg/a.go.reservedfor.patch", "@@ -1,5 +1,6 @@", "@@ -2,5 +2,6 @@")
		},
			"pkg/a.go.reservedfor.patch: it is not written as carry writes seams"},
		"seam without intention": {"seams", func(t *testing.T, v *Verifier) { replace(t, v, "pkg/a.go.reservedfor.patch", "Call it.\n", "") },
			"pkg/a.go.reservedfor.patch: write a line before its diff that says what it is for"},
		"intention without end": {"seams", func(t *testing.T, v *Verifier) { replace(t, v, "pkg/a.go.reservedfor.patch", "Call it.", "Call it") },
			`pkg/a.go.reservedfor.patch: what it is for is a sentence of at most 120 characters that ends with a full stop: "Call it"`},
		"test changed without reason": {"tests", func(t *testing.T, v *Verifier) { v.Ledger.Features[1].Tests = nil },
			"feature reservedfor: a seam changes upstream's test pkg/a_test.go: say under tests why"},
		"test helper changed without reason": {"tests", func(t *testing.T, v *Verifier) {
			for _, dir := range []string{"pkg/atesting", "test/integration/a"} {
				write(t, v, dir+"/a.go.reservedfor.patch", "")
			}
		}, "feature reservedfor: a seam changes upstream's test pkg/atesting/a.go: say under tests why\nfeature reservedfor: a seam changes upstream's test test/integration/a/a.go: say under tests why"},
		"reason without seam": {"tests", func(t *testing.T, v *Verifier) { remove(t, v, "pkg/a_test.go.reservedfor.patch") },
			"pkg/a_test.go is listed under tests, but no seam changes it"},
		"carry without test": {"tests", func(t *testing.T, v *Verifier) { replace(t, v, "pkg/fixes_test.go", "TestIt", "TestThat") },
			`feature fixes: carry "one": the overlay has no test pkg/fixes_test.go:TestIt`},
		"carry without test in a release": {"tests", func(t *testing.T, v *Verifier) {
			remove(t, v, "pkg/fixes_test.go")
			write(t, v, "pkg/fixes_test.1.35.go", header+"package pkg\n\nfunc TestIt() {}\n")
		}, `feature fixes: carry "one": none of its tests is built into release 1.36`},
		"no carries": {"tests", func(t *testing.T, v *Verifier) { v.Ledger.Features[0].Carries = nil },
			"feature fixes: it has no KEP"},
		"not formatted": {"format", func(t *testing.T, v *Verifier) { write(t, v, "hack/x.go", "package  hack\n") }, "hack/x.go: it is not formatted"},
		"not Go":        {"format", func(t *testing.T, v *Verifier) { write(t, v, "pkg/reservedfor.go", "}\n") }, "pkg/reservedfor.go: 4:1: expected declaration"},
		"no licence":    {"licences", func(t *testing.T, v *Verifier) { write(t, v, "hack/x.go", "package hack\n") }, "hack/x.go: the licence header"},
		"licence of a script": {"licences", func(t *testing.T, v *Verifier) { replace(t, v, "hack/x.sh", "Version 2.0", "Version 3.0") },
			"hack/x.sh: the licence header"},
		"table":    {"documents", func(t *testing.T, v *Verifier) { v.Ledger.Features[0].Title = "other" }, "README.md: a table or file in it is not"},
		"no table": {"documents", func(t *testing.T, v *Verifier) { write(t, v, "README.md", "# Title\n") }, `no document has the comments "BEGIN features"`},
		"pasted file": {"documents", func(t *testing.T, v *Verifier) { write(t, v, "hack/x.yaml", "a: c\n") },
			"docs/x.md: a table or file in it is not"},
		"pasted file is gone": {"documents", func(t *testing.T, v *Verifier) { remove(t, v, "hack/x.yaml") }, "docs/x.md: open "},
		"unknown block": {"documents", func(t *testing.T, v *Verifier) { write(t, v, "docs/y.md", "<!-- BEGIN it -->\n<!-- END it -->\n") },
			`docs/y.md: nothing knows what stands between "BEGIN it" and its end: want features, mixed gates, releases, tested, upstream's bugs, or file`},
		"broken link": {"documents", func(t *testing.T, v *Verifier) { replace(t, v, "README.md", "docs/x.md", "docs/y.md") },
			`README.md:12: link to "docs/y.md": there is no docs/y.md`},
	} {
		t.Run(name, func(t *testing.T) {
			v := repository(t)
			tt.prepare(t, v)
			err := run(t, v, checks[tt.check](v))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func remove(t *testing.T, v *Verifier, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(v.Repo, name)); err != nil {
		t.Fatal(err)
	}
}

func replace(t *testing.T, v *Verifier, name, from, to string) {
	t.Helper()
	content, err := v.read(name)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(content), from, to, 1)
	if changed == string(content) {
		t.Fatalf("%s has no %q", name, from)
	}
	write(t, v, name, changed)
}

// What is derived gets updated, and then is right.
func TestUpdate(t *testing.T) {
	v := repository(t)
	replace(t, v, "pkg/a.go.reservedfor.patch", "@@ -1,5 +1,6 @@", "@@ -2,5 +2,6 @@")
	replace(t, v, "hack/x.go", "package hack", "package   hack")
	v.Ledger.Features[0].Title = "other"
	write(t, v, "hack/x.yaml", "a: c\n")
	for _, update := range []bool{true, false} {
		v.Update = update
		for _, name := range []string{"seams", "format", "documents"} {
			if err := run(t, v, checks[name](v)); err != nil {
				t.Errorf("%s, update %v: %v", name, update, err)
			}
		}
	}
	readme, err := v.read("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(readme), "# Title\n") || !strings.HasSuffix(string(readme), "<!-- END features -->\n\n[More](docs/x.md).\n") || !strings.Contains(string(readme), "other") {
		t.Errorf("README:\n%s", readme)
	}
	if doc, err := v.read("docs/x.md"); err != nil || !strings.Contains(string(doc), "```yaml\na: c\n```\n") {
		t.Errorf("docs/x.md, %v:\n%s", err, doc)
	}
}

func TestTable(t *testing.T) {
	v := repository(t)
	// There is nothing to tell about a release that no feature names.
	v.Ledger.Releases = append(v.Ledger.Releases, ledger.Release{Name: "1.38", Version: "v1.38.0", State: ledger.Planned})
	const want = "| feature | KEP | gate | 1.35 | 1.36 | 1.37 |\n" +
		"|---|---|---|---|---|---|\n" +
		"| `fixes`: bugs | – | – | – | **carried** (v1.36.3) | – |\n" +
		"| `reservedfor`: workloads | [5194](https://kep.k8s.io/5194) | `A`, `B` | planned | **carried** (v1.36.3) | upstream |\n"
	if got := Table(v.Ledger); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestReleases(t *testing.T) {
	v := repository(t)
	r, err := v.Ledger.Release("1.36")
	if err != nil {
		t.Fatal(err)
	}
	r.MissingModules = []string{"k8s.io/sample"}
	r.StandIns = []ledger.StandIn{{Module: "a", Version: "v0.36.1", Why: "same\n"}, {Module: "b", Version: "v0.36.0", Why: "other"}}
	v.Ledger.Releases = append(v.Ledger.Releases, ledger.Release{Name: "1.38", Version: "v1.38.0", Released: r.Released, State: ledger.Carried})
	const want = "| release | version | of | modules left out |\n|---|---|---|---|\n" +
		"| 1.36 | v1.36.3 | 2026-07-22 | `k8s.io/sample` |\n| 1.38 | v1.38.0 | 2026-07-22 | – |\n" +
		"\n| release | module | stands in at | because |\n|---|---|---|---|\n" +
		"| 1.36 | `a` | v0.36.1 | same |\n| 1.36 | `b` | v0.36.0 | other |\n"
	if got := Releases(v.Ledger); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestPins(t *testing.T) {
	v := repository(t)
	write(t, v, upstream.PinDir("1.35")+"/version", "v1.35.4\n")
	write(t, v, "api/1.34/x.diff", "")
	write(t, v, "api/README.md", "")
	write(t, v, "hack/releases/stray", "")
	write(t, v, results.File("1.37"), "")
	err := run(t, v, v.pins)
	for _, want := range []string{"release 1.36 has no pin", "hack/releases/1.35: release 1.35 (v1.35.4) is planned", "hack/releases/stray: ", "hack/releases/1.37: release 1.37 (v1.37.0) is planned", "api/1.34: "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestShell(t *testing.T) {
	if _, err := exec.LookPath("shellcheck"); err != nil {
		t.Skip("shellcheck is not installed")
	}
	v := repository(t)
	if err := run(t, v, v.shell); err != nil {
		t.Error(err)
	}
	write(t, v, "hack/y.sh", "#!/bin/sh\necho $1\n")
	if err := run(t, v, v.shell); err == nil || !strings.Contains(err.Error(), "SC2086") {
		t.Errorf("got %v", err)
	}
}

// Seams that stand on those of another feature are a reason to say that it is needed.
func TestDrops(t *testing.T) {
	v := repository(t)
	if err := v.drops(t.Context()); err != nil {
		t.Errorf("seams that do not touch: %v", err)
	}
	fixed := strings.Replace(before, "4\n", "4, fixed\n", 1)
	for slug, change := range map[string][2]string{"fixes": {before, fixed}, "reservedfor": {fixed, strings.Replace(fixed, "3\n", "3\nx\n", 1)}} {
		writeSeam(t, v, "pkg/a.go", slug, change[0], change[1])
	}
	err := v.drops(t.Context())
	if err == nil || !strings.Contains(err.Error(), "without fixes: pkg/a.go.reservedfor.patch: release 1.36") || strings.Contains(err.Error(), "without reservedfor") {
		t.Errorf("got %v", err)
	}
	v.Ledger.Feature("reservedfor").Needs = []ledger.Need{{Slug: "fixes", Why: "w"}}
	if err := v.drops(t.Context()); err != nil {
		t.Errorf("although it is needed: %v", err)
	}
}

// Rows of other revisions stay as they are.
func TestPublished(t *testing.T) {
	v := repository(t)
	made := []published{{"v1.36.3+dra.2", "0123456789abcdef", "fedcba"}}
	if err := v.published(made); err != nil {
		t.Errorf("a repository without the table: %v", err)
	}
	old := "| version | of | commit | tree | has |\n|---|---|---|---|---|\n| v1.36.3+dra.1 | 2026-01-01 | `1` | `2` | x |\n"
	write(t, v, releasesFile, old)
	if err := v.published(made); err == nil || !strings.Contains(err.Error(), "no row for v1.36.3+dra.2") {
		t.Errorf("got %v", err)
	}
	write(t, v, releasesFile, old+"| v1.36.3+dra.2 | 2026-02-02 | | `3` | y |\n")
	if err := v.published(made); err == nil || !strings.Contains(err.Error(), "count up revision") {
		t.Errorf("got %v", err)
	}
	v.Update = true
	if err := v.published(made); err != nil {
		t.Fatal(err)
	}
	v.Update = false
	want := old + "| v1.36.3+dra.2 | 2026-02-02 | `0123456789ab` | `fedcba` | y |\n"
	if got, err := v.read(releasesFile); err != nil || string(got) != want || v.published(made) != nil {
		t.Errorf("got\n%s, %v", got, err)
	}
}
