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
	"bytes"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"kubernetes-dra/hack/pkg/git"
	"kubernetes-dra/hack/pkg/tree"
	"kubernetes-dra/hack/pkg/tree/ledger"
	"kubernetes-dra/hack/pkg/tree/overlay"
)

const manyReleases = `
revision: 1
releases:
- {name: "1.32", version: v1.32.1, state: carried, released: "2025-07-22T18:07:38Z"}
- {name: "1.33", version: v1.33.1, state: planned}
- {name: "1.34", version: v1.34.1, state: carried, released: "2026-01-22T18:07:38Z"}
- {name: "1.36", version: v1.36.3, state: carried, released: "2026-07-22T18:07:38Z"}
features:
- {slug: fixes, title: t, state: carried, releases: {"1.32": carried, "1.34": carried, "1.36": carried}, why: w, upstream: u, dropWhen: d}
`

// oneFile is a release of which only the content of pkg/a.go matters.
type oneFile struct {
	tree.Upstream
	content string
}

func (f oneFile) ReadFile(p string) ([]byte, error) {
	if p == "pkg/a.go" && f.content != "" {
		return []byte(f.content), nil
	}
	return nil, fs.ErrNotExist
}

func TestRedundant(t *testing.T) {
	// The place is in the middle; what stands around it differs.
	file := func(above, below string) string {
		return "head\n1\n2\n" + above + "\n4\nhere\n5\n" + below + "\n7\n8\nfoot\n"
	}
	same, other, far := file("3", "6"), file("three", "six"), "new\n"+file("3", "6")
	for name, tt := range map[string]struct {
		// content of the file in 1.32, 1.34 and 1.36.
		content [3]string
		// seams by qualifier: the index of the release that they are written for, and what they add.
		seams map[string]seamFor
		want  string // an error, or nothing to complain about
		after string // the seams after an update
	}{
		"all shared": {[3]string{same, same, far}, map[string]seamFor{"": {2, "hook"}}, "", "pkg/a.go.fixes.patch"},
		"sibling of the unqualified one": {[3]string{same, same, far}, map[string]seamFor{"": {2, "hook"}, ".1.32": {0, "hook"}},
			"pkg/a.go.fixes.1.32.patch and pkg/a.go.fixes.patch do the same: \"make update\" makes pkg/a.go.fixes.patch of both", "pkg/a.go.fixes.patch"},
		"three are one": {[3]string{same, same, far}, map[string]seamFor{".1.32": {0, "hook"}, ".1.34": {1, "hook"}, ".1.36+": {2, "hook"}},
			"do the same", "pkg/a.go.fixes.patch"},
		"siblings of some releases": {[3]string{same, same, far}, map[string]seamFor{".1.32": {0, "hook"}, ".1.34": {1, "hook"}, "": {2, "other"}},
			"makes pkg/a.go.fixes.1.32-1.34.patch of both", "pkg/a.go.fixes.1.32-1.34.patch pkg/a.go.fixes.patch"},
		"with less context": {[3]string{same, other, same}, map[string]seamFor{"": {2, "hook"}, ".1.34": {1, "hook"}},
			"makes pkg/a.go.fixes.patch of both", "pkg/a.go.fixes.patch"},
		"another change": {[3]string{same, same, same}, map[string]seamFor{"": {2, "hook"}, ".1.34": {1, "other"}},
			"", "pkg/a.go.fixes.1.34.patch pkg/a.go.fixes.patch"},
		"not the only place with less context": {[3]string{same, strings.Replace(other, "head\n", "4\nhere\n5\n", 1), same},
			map[string]seamFor{"": {2, "hook"}, ".1.34": {1, "hook"}}, "", "pkg/a.go.fixes.1.34.patch pkg/a.go.fixes.patch"},
	} {
		t.Run(name, func(t *testing.T) {
			v := seamRepository(t, tt.content[:])
			for qualifier, s := range tt.seams {
				after := strings.Replace(tt.content[s.release], "here\n", "here\n"+s.adds+"\n", 1)
				writeSeam(t, v, "pkg/a.go", "fixes"+qualifier, tt.content[s.release], after)
			}
			want := applied(t, v)
			err := v.redundant(t.Context())
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			// What gets updated is right, and remains so.
			for _, update := range []bool{true, false} {
				v.Update = update
				if err := errors.Join(v.redundant(t.Context()), v.seams(t.Context())); err != nil {
					t.Errorf("update %v: %v", update, err)
				}
			}
			seams, err := filepath.Glob(filepath.Join(v.Repo, "pkg", "*.patch"))
			if got := strings.ReplaceAll(strings.Join(seams, " "), v.Repo+"/", ""); err != nil || got != tt.after {
				t.Errorf("got %s, %v, want %s", got, err, tt.after)
			}
			if got := applied(t, v); got != want {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

type seamFor struct {
	release int
	adds    string
}

// seamRepository has releases with these contents of pkg/a.go.
func seamRepository(t *testing.T, contents []string) *Verifier {
	t.Helper()
	v := &Verifier{Repo: t.TempDir(), sources: map[string]tree.Upstream{}, Log: t.Logf}
	var err error
	if v.Ledger, err = ledger.Parse([]byte(manyReleases)); err != nil {
		t.Fatal(err)
	}
	if _, err := git.Dir(v.Repo).Run(t.Context(), "init", "--quiet"); err != nil {
		t.Fatal(err)
	}
	write(t, v, "go.mod", "module x\n\nignore ./pkg\n")
	write(t, v, "pkg/fixes.go", "package pkg\n")
	for i, r := range v.Ledger.Carried() {
		v.sources[r.Name] = oneFile{content: contents[i]}
	}
	return v
}

// applied is what the seams make of pkg/a.go in all releases.
func applied(t *testing.T, v *Verifier) string {
	t.Helper()
	var result string
	for _, r := range v.Ledger.Carried() {
		features, err := overlay.Apply(v.Repo, v.Ledger, r, v.sources[r.Name])
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range features[0].Changes {
			result += r.Name + ":\n" + string(c.Content)
		}
	}
	return result
}

// A whole file with the content of a sibling is one too many.
func TestRedundantFile(t *testing.T) {
	v := repository(t)
	write(t, v, "pkg/fixes.1.35.go", "package pkg\n")
	write(t, v, "pkg/fixes.1.36+.go", "package pkg // other\n")
	if err := v.redundant(t.Context()); err != nil {
		t.Error(err)
	}
	write(t, v, "pkg/fixes.1.36+.go", "package pkg\n")
	const want = "makes pkg/fixes.go of both"
	if err := v.redundant(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// A seam that does not apply on one release is not written for the others.
func TestUpdateSharedSeam(t *testing.T) {
	const content = "1\n2\n3\n4\n5\n6\n"
	v := seamRepository(t, []string{"other\n", content, content})
	v.Update = true
	writeSeam(t, v, "pkg/a.go", "fixes", content, strings.Replace(content, "3\n", "3\nhook\n", 1))
	replace(t, v, "pkg/a.go.fixes.patch", "@@ -1,6 +1,7 @@\n 1\n", "@@ -2,5 +2,6 @@\n")
	before, _ := v.read("pkg/a.go.fixes.patch")
	if err := v.seams(t.Context()); err == nil || !strings.Contains(err.Error(), "pkg/a.go.fixes.patch: release 1.32") {
		t.Errorf("%v", err)
	}
	if after, err := v.read("pkg/a.go.fixes.patch"); err != nil || !bytes.Equal(before, after) {
		t.Errorf("%v:\n%s", err, after)
	}
}
