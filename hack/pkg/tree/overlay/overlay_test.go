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

package overlay

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kubernetes-dra/hack/pkg/tree/ledger"
)

const ledgerText = `
revision: 1
releases:
- {name: "1.32", version: v1.32.2, state: planned}
- {name: "1.33", version: v1.33.1, state: planned}
- {name: "1.36", version: v1.36.3, state: carried, released: "2026-07-22T18:07:38Z"}
features:
- {slug: fixes, title: t, state: carried, releases: {"1.32": carried, "1.33": carried, "1.36": carried}, why: w, upstream: u, dropWhen: d, files: ["pkg/plain*.go", "pkg/reservedfor_really_fixes.go"]}
- {slug: reservedfor, title: t, state: carried, releases: {"1.33": carried, "1.36": carried}, why: w, upstream: u, dropWhen: d}
- {slug: later, title: t, state: planned, releases: {"1.36": carried}, why: w, upstream: u, dropWhen: d}
`

func parse(t *testing.T, text string) *ledger.Ledger {
	t.Helper()
	l, err := ledger.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestParseName(t *testing.T) {
	l := parse(t, ledgerText)
	for source, want := range map[string]string{
		"pkg/reservedfor.go":                      "pkg/reservedfor.go reservedfor",
		"pkg/reservedfor_test.go":                 "pkg/reservedfor_test.go reservedfor",
		"pkg/a_reservedfor_linux.go":              "pkg/a_reservedfor_linux.go reservedfor",
		"test/reservedfor/main.go":                "test/reservedfor/main.go reservedfor",
		"test/reservedfor/fixes.go":               "test/reservedfor/fixes.go fixes",
		"pkg/plain.go":                            "pkg/plain.go fixes",
		"pkg/plain_test.go":                       "pkg/plain_test.go fixes",
		"pkg/plain.1.32.go":                       "pkg/plain.go fixes 1.32",
		"pkg/reservedfor_really_fixes.go":         "pkg/reservedfor_really_fixes.go fixes",
		"pkg/reservedfor.1.32.go":                 "pkg/reservedfor.go reservedfor 1.32",
		"pkg/reservedfor.1.32-1.33.go":            "pkg/reservedfor.go reservedfor 1.32-1.33",
		"pkg/reservedfor.1.33+.go":                "pkg/reservedfor.go reservedfor 1.33+",
		"pkg/a.go.reservedfor.1.33+.patch":        "pkg/a.go reservedfor seam 1.33+",
		"pkg/a.go.reservedfor.1.31+.patch":        `error: unknown release "1.31"`,
		"pkg/a.go.reservedfor.1.33-1.36+.patch":   "error: a seam is named",
		"pkg/testdata/reservedfor/x-1.32.yaml":    "pkg/testdata/reservedfor/x-1.32.yaml reservedfor",
		"pkg/testdata/reservedfor/v1.36.0/x.yaml": "pkg/testdata/reservedfor/v1.36.0/x.yaml reservedfor",
		"pkg/a.go.fixes.patch":                    "pkg/a.go fixes seam",
		"pkg/a.go.reservedfor.1.32.patch":         "pkg/a.go reservedfor seam 1.32",
		"pkg/a.go.reservedfor.1.32-1.36.patch":    "pkg/a.go reservedfor seam 1.32-1.36",
		"pkg/Makefile.fixes.patch":                "pkg/Makefile fixes seam",
		"pkg/reservedfork.go":                     "error: belongs to no feature",
		"pkg/other.go":                            "error: belongs to no feature",
		"pkg/fixes_reservedfor.go":                "pkg/fixes_reservedfor.go reservedfor with fixes",
		"pkg/a.go.patch":                          `error: unknown slug "go"`,
		"pkg/a.patch":                             "error: a seam is named",
		"pkg/a.go.1.32.patch":                     `error: unknown slug "go"`,
		"pkg/a.go.nope.patch":                     `error: unknown slug "nope"`,
		"pkg/a.go.fixes.1.31.patch":               `error: unknown release "1.31"`,
		"pkg/a.go.fixes.1.32-1.40.patch":          `error: unknown release "1.40"`,
		"pkg/a.go.fixes.1.33-1.32.patch":          "error: the first release must be older",
		"pkg/reservedfor.go.orig":                 "error: leftover",
	} {
		e, err := parseName(source, l)
		if text, isError := strings.CutPrefix(want, "error: "); isError {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: got %v, %v; want error with %q", source, e, err, text)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		got := e.Path + " " + e.Slug
		if len(e.With) > 0 {
			got += " with " + strings.Join(e.With, " ")
		}
		if e.Seam {
			got += " seam"
		}
		if e.Only != nil {
			got += " " + e.Only.String()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", source, got, want)
		}
	}
}

func entries(t *testing.T, l *ledger.Ledger, sources ...string) []Entry {
	t.Helper()
	var es []Entry
	for _, source := range sources {
		e, err := parseName(source, l)
		if err != nil {
			t.Fatal(err)
		}
		es = append(es, *e)
	}
	return es
}

func TestResolve(t *testing.T) {
	l := parse(t, ledgerText)
	es := entries(t, l,
		"pkg/a.go.fixes.patch",
		"pkg/a.go.reservedfor.patch",
		"pkg/a.go.reservedfor.1.33.patch",
		"pkg/later.go",
		"pkg/plain.1.32-1.33.go",
		"pkg/plain.go",
		"pkg/reservedfor.1.36.go",
		"pkg/reservedfor_and_fixes.go",
		"pkg/reservedfor_and_later.go",
	)
	for release, want := range map[string]string{
		"1.32": "fixes: pkg/a.go.fixes.patch pkg/plain.1.32-1.33.go",
		"1.33": "fixes: pkg/a.go.fixes.patch pkg/plain.1.32-1.33.go; reservedfor: pkg/a.go.reservedfor.1.33.patch pkg/reservedfor_and_fixes.go",
		"1.36": "fixes: pkg/a.go.fixes.patch pkg/plain.go; reservedfor: pkg/a.go.reservedfor.patch pkg/reservedfor.1.36.go pkg/reservedfor_and_fixes.go",
	} {
		stages, err := Resolve(es, l, release)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range stages {
			var sources []string
			for _, e := range s.Entries {
				sources = append(sources, e.Source)
			}
			got = append(got, s.Feature.Slug+": "+strings.Join(sources, " "))
		}
		if got := strings.Join(got, "; "); got != want {
			t.Errorf("%s: got %q, want %q", release, got, want)
		}
	}
	without, _ := l.Drop("fixes", "1.36")
	if stages, err := Resolve(es, without, "1.36"); err != nil || len(stages) != 1 || len(stages[0].Entries) != 2 {
		t.Errorf("without fixes: got %+v, %v; want the two files of reservedfor alone", stages, err)
	}
	open := entries(t, l, "pkg/plain.1.33+.go", "pkg/plain.go")
	for release, want := range map[string]string{"1.32": "pkg/plain.go", "1.33": "pkg/plain.1.33+.go", "1.36": "pkg/plain.1.33+.go"} {
		if stages, err := Resolve(open, l, release); err != nil || stages[0].Entries[0].Source != want {
			t.Errorf("%s: got %v, %v; want %s", release, stages, err, want)
		}
	}
	if _, err := Resolve(entries(t, l, "pkg/plain.1.33+.go", "pkg/plain.1.36.go"), l, "1.36"); err == nil || !strings.Contains(err.Error(), "both hold for release 1.36") {
		t.Errorf("overlap with an open range: %v", err)
	}
	overlap := entries(t, l, "pkg/plain.1.32-1.33.go", "pkg/plain.1.33-1.36.go", "pkg/plain.go")
	if _, err := Resolve(overlap, l, "1.32"); err != nil {
		t.Errorf("1.32 does not overlap: %v", err)
	}
	if _, err := Resolve(overlap, l, "1.33"); err == nil || !strings.Contains(err.Error(), "both hold for release 1.33") {
		t.Errorf("overlap: %v", err)
	}
}

func TestUnused(t *testing.T) {
	l := parse(t, ledgerText)
	es := entries(t, l,
		"pkg/plain.go",                    // replaced everywhere by the next two
		"pkg/plain.1.32-1.33.go",          //
		"pkg/plain.1.36.go",               //
		"pkg/a.go.reservedfor.1.32.patch", // not carried there
		"pkg/later.go",                    // planned
		"pkg/reservedfor.go",
	)
	var got []string
	for _, e := range Unused(es, l) {
		got = append(got, e.Source)
	}
	if got, want := strings.Join(got, " "), "pkg/plain.go pkg/a.go.reservedfor.1.32.patch pkg/later.go"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestScan(t *testing.T) {
	l := parse(t, ledgerText)
	repo := t.TempDir()
	for name, content := range map[string]string{
		"go.mod":                         "module x\n\nignore (\n\t./_output\n\t./api\n\t./pkg\n\t./staging\n\t./test/integration\n)\n",
		"pkg/reservedfor.go":             "",
		"test/integration/fixes/x.go":    "",
		"test/cluster/reservedfor.go":    "",
		"api/x.json.1.36.patch":          "",
		"_output/1.36/pkg/x.orig":        "",
		"hack/pkg/reservedfor/fixes.go":  "",
		"test/integration/fixes/data.gz": "",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(repo, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(repo, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	es, err := Scan(repo, l)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range es {
		got = append(got, e.Source)
	}
	if got, want := strings.Join(got, " "), "pkg/reservedfor.go test/integration/fixes/data.gz test/integration/fixes/x.go"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := os.Symlink("reservedfor.go", filepath.Join(repo, "pkg/link_reservedfor.go")); err != nil {
		t.Fatal(err)
	}
	if _, err := Scan(repo, l); err == nil || !strings.Contains(err.Error(), "pkg/link_reservedfor.go: not a regular file") {
		t.Errorf("symbolic link: %v", err)
	}
}

func TestSubstitute(t *testing.T) {
	r := &ledger.Release{Imports: map[string]string{"k8s.io/api/resource/v1": "k8s.io/api/resource/v1beta1"}}
	const ours = `package p

// k8s.io/api/resource/v1 stays in comments.
import (
	"fmt"
	resourceapi "k8s.io/api/resource/v1" // here, too: "k8s.io/api/resource/v1"
	other "k8s.io/api/resource/v1/other"
)

const s = "k8s.io/api/resource/v1"
`
	theirs := strings.Replace(ours, `resourceapi "k8s.io/api/resource/v1"`, `resourceapi "k8s.io/api/resource/v1beta1"`, 1)
	got, err := Substitute("p.go", []byte(ours), r)
	if err != nil || string(got) != theirs {
		t.Errorf("got %s, %v", got, err)
	}
	if back, err := Restore("p.go", got, r); err != nil || string(back) != ours {
		t.Errorf("back: got %s, %v", back, err)
	}
	if same, err := Substitute("p.yaml", []byte(ours), r); err != nil || string(same) != ours {
		t.Errorf("a file that is not Go was changed: %s, %v", same, err)
	}
	moved := &ledger.Release{Name: "1.36", Imports: map[string]string{"k8s.io/new/ktesting": "k8s.io/ktesting"}}
	if got, err := Substitute("p.go", []byte("package p\n\nimport \"k8s.io/new/ktesting\"\n"), moved); err != nil || !strings.Contains(string(got), `import "k8s.io/ktesting"`) {
		t.Errorf("a package that moved and kept its name: got %s, %v", got, err)
	}
	for text, want := range map[string]string{
		`import "k8s.io/api/resource/v1"`:                                              "needs a name",
		"import (\na \"k8s.io/api/resource/v1\"\nb \"k8s.io/api/resource/v1beta1\"\n)": "has to be qualified",
		"import }": "missing import path",
	} {
		if _, err := Substitute("p.go", []byte("package p\n\n"+text+"\n"), r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

func TestIsGenerated(t *testing.T) {
	for p, want := range map[string]bool{
		"staging/src/k8s.io/api/resource/v1/generated.pb.go":                 true,
		"staging/src/k8s.io/api/resource/v1/zz_generated.deepcopy.go":        true,
		"staging/src/k8s.io/api/testdata/HEAD/resource.k8s.io.v1.pb":         true,
		"api/openapi-spec/v3/apis__resource.k8s.io__v1_openapi.json":         true,
		"staging/src/k8s.io/api/resource/v1/types.go":                        false,
		"pkg/apis/resource/validation/validation.go":                         false,
		"test/compatibility_lifecycle/reference/versioned_feature_list.yaml": true,
		"test/compatibility_lifecycle/reference/OWNERS":                      false,
	} {
		if got := IsGenerated(p, []byte("package p\n")); got != want {
			t.Errorf("%s: %v", p, got)
		}
	}
	if !IsGenerated("pkg/mock.go", []byte("// License\n\n// Code generated by mockery. DO NOT EDIT.\n\npackage p\n")) {
		t.Error("the line in the file does not count")
	}
	if IsGenerated("pkg/doc.go", []byte("// It says:\n//\n//\tCode generated by x. DO NOT EDIT.\npackage p\n")) {
		t.Error("a comment about the line counts")
	}
}

// noUpstream has no files.
type noUpstream struct{}

func (noUpstream) ReadFile(string) ([]byte, error) { return nil, fs.ErrNotExist }

func TestOurFileTwice(t *testing.T) {
	l := parse(t, ledgerText)
	r, err := l.Release("1.36")
	if err != nil {
		t.Fatal(err)
	}
	repo := t.TempDir()
	for name, content := range map[string]string{
		"go.mod":                         "module x\n\nignore ./pkg\n",
		"pkg/fixes.go":                   "package p\n",
		"pkg/fixes.go.reservedfor.patch": "",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(repo, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(repo, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	_, err = Apply(repo, l, r, noUpstream{})
	if err == nil || !strings.Contains(err.Error(), "pkg/fixes.go is our own file already (pkg/fixes.go)") {
		t.Errorf("a seam of our own file: %v", err)
	}
}

func TestNoCode(t *testing.T) {
	for _, tt := range []struct {
		path       string
		seam, want bool
	}{{"pkg/a.go", true, false}, {"test/list.yaml", true, true}, {"test/list.yaml", false, false}} {
		if got := NoCode(Entry{Path: tt.path, Seam: tt.seam}); got != tt.want {
			t.Errorf("%s: %t", tt.path, got)
		}
	}
}
