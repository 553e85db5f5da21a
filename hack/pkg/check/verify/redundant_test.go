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
	"io/fs"
	"strings"
	"testing"

	"kubernetes-dra/hack/pkg/tree"
	"kubernetes-dra/hack/pkg/tree/ledger"
	"kubernetes-dra/hack/pkg/tree/overlay"
	"kubernetes-dra/hack/pkg/tree/patch"
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

// files is a release with these files.
type files map[string]string

// oneFile is a release of which only the content of pkg/a.go matters.
type oneFile struct {
	tree.Upstream
	files
}

func (f oneFile) ReadFile(p string) ([]byte, error) {
	if content, ok := f.files[p]; ok {
		return []byte(content), nil
	}
	return nil, fs.ErrNotExist
}

func TestRedundant(t *testing.T) {
	// The place is in the middle; what stands around it differs.
	file := func(above, below string) string {
		return "head\n1\n2\n" + above + "\n4\nhere\n5\n" + below + "\n7\n8\nfoot\n"
	}
	same, other, far := file("3", "6"), file("three", "six"), "new\n"+file("3", "6")
	const in = "hook\n"
	hook := func(content string) string { return strings.Replace(content, "here\n", "here\n"+in, 1) }
	for name, tt := range map[string]struct {
		// content of the file in 1.32, 1.34 and 1.36.
		content [3]string
		// seams by qualifier, with the index of the release that they are written for.
		seams map[string]int
		// lines that the seam for the release adds, if not the hook.
		differ map[int]string
		want   string // an error, or nothing to complain about
		after  string // the seams after an update
	}{
		"all shared": {content: [3]string{same, same, far}, seams: map[string]int{"": 2}, after: "pkg/a.go.fixes.patch"},
		"sibling of the unqualified one": {
			content: [3]string{same, same, far}, seams: map[string]int{"": 2, ".1.32": 0},
			want: "pkg/a.go.fixes.1.32.patch: it is redundant, pkg/a.go.fixes.patch does the same in its place: delete pkg/a.go.fixes.1.32.patch; \"make update\"", after: "pkg/a.go.fixes.patch",
		},
		"siblings of two releases": {
			content: [3]string{same, same, far}, seams: map[string]int{".1.32": 0, ".1.34+": 1},
			want: "delete pkg/a.go.fixes.1.32.patch and rename pkg/a.go.fixes.1.34+.patch to pkg/a.go.fixes.patch", after: "pkg/a.go.fixes.patch",
		},
		"three are one": {
			content: [3]string{same, same, far}, seams: map[string]int{".1.32": 0, ".1.34": 1, ".1.36+": 2},
			want: "it is redundant", after: "pkg/a.go.fixes.patch",
		},
		"siblings of some releases": {
			content: [3]string{same, same, far}, seams: map[string]int{".1.32": 0, ".1.34": 1, "": 2}, differ: map[int]string{2: "other hook\n"},
			want: "delete pkg/a.go.fixes.1.32.patch and rename pkg/a.go.fixes.1.34.patch to pkg/a.go.fixes.1.32-1.34.patch", after: "pkg/a.go.fixes.1.32-1.34.patch pkg/a.go.fixes.patch",
		},
		"with less context": {
			content: [3]string{same, other, same}, seams: map[string]int{"": 2, ".1.34": 1},
			want: "pkg/a.go.fixes.1.34.patch: it is redundant", after: "pkg/a.go.fixes.patch",
		},
		"another change": {
			content: [3]string{same, same, same}, seams: map[string]int{"": 2, ".1.34": 1}, differ: map[int]string{1: "other hook\n"},
			after: "pkg/a.go.fixes.1.34.patch pkg/a.go.fixes.patch",
		},
		"not the only place with less context": {
			content: [3]string{same, strings.Replace(other, "head\n", "4\nhere\n5\n", 1), same}, seams: map[string]int{"": 2, ".1.34": 1},
			after: "pkg/a.go.fixes.1.34.patch pkg/a.go.fixes.patch",
		},
		"no name for both": {
			content: [3]string{same, same, same}, seams: map[string]int{".1.32": 0, ".1.34": 1, ".1.36": 2}, differ: map[int]string{1: "other hook\n"},
			want: "delete pkg/a.go.fixes.1.32.patch and rename pkg/a.go.fixes.1.36.patch to pkg/a.go.fixes.patch", after: "pkg/a.go.fixes.1.34.patch pkg/a.go.fixes.patch",
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := &Verifier{Repo: t.TempDir(), sources: map[string]tree.Upstream{}, Log: t.Logf}
			var err error
			if v.Ledger, err = ledger.Parse([]byte(manyReleases)); err != nil {
				t.Fatal(err)
			}
			write(t, v, "go.mod", "module x\n\nignore ./pkg\n")
			write(t, v, "pkg/fixes.go", "package pkg\n")
			for i, r := range []string{"1.32", "1.34", "1.36"} {
				v.sources[r] = oneFile{files: files{"pkg/a.go": tt.content[i]}}
			}
			for qualifier, i := range tt.seams {
				after := hook(tt.content[i])
				if line, ok := tt.differ[i]; ok {
					after = strings.Replace(after, in, line, 1)
				}
				seam, err := patch.Diff(t.Context(), "pkg/a.go", []byte(tt.content[i]), []byte(after))
				if err != nil {
					t.Fatal(err)
				}
				write(t, v, "pkg/a.go.fixes"+qualifier+".patch", string(seam))
			}
			results := func() map[string]string {
				result := map[string]string{}
				for _, r := range v.Ledger.Carried() {
					features, err := overlay.Apply(v.Repo, v.Ledger, r, v.sources[r.Name])
					if err != nil {
						t.Fatal(err)
					}
					for _, c := range features[0].Changes {
						result[r.Name] += string(c.Content)
					}
				}
				return result
			}
			want := results()
			err = v.redundant(t.Context())
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			// What gets updated is right, and remains so.
			for _, update := range []bool{true, false} {
				v.Update = update
				if err := v.redundant(t.Context()); err != nil {
					t.Errorf("update %v: %v", update, err)
				}
				if err := v.seams(t.Context()); err != nil {
					t.Errorf("update %v: %v", update, err)
				}
			}
			entries, err := overlay.Scan(v.Repo, v.Ledger)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range entries {
				if e.Seam {
					got = append(got, e.Source)
				}
			}
			if got := strings.Join(got, " "); got != tt.after {
				t.Errorf("got %s, want %s", got, tt.after)
			}
			for r, got := range results() {
				if got != want[r] {
					t.Errorf("%s: got:\n%s\nwant:\n%s", r, got, want[r])
				}
			}
		})
	}
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
	const want = "delete pkg/fixes.1.35.go and rename pkg/fixes.1.36+.go to pkg/fixes.go"
	if err := v.redundant(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// A seam that does not apply on one release leaves those that this release shares with others alone.
func TestUpdateSharedSeam(t *testing.T) {
	const above, below = "1\n2\n3\n", "4\n5\n6\n"
	v := &Verifier{Repo: t.TempDir(), Update: true, Log: t.Logf, sources: map[string]tree.Upstream{
		"1.32": oneFile{files: files{"pkg/a.go": "one\n2\n3\n" + below, "pkg/b.go": "other\n"}},
		"1.34": oneFile{files: files{"pkg/a.go": above + below, "pkg/b.go": above + below}},
		"1.36": oneFile{files: files{"pkg/a.go": above + below, "pkg/b.go": above + below}},
	}}
	var err error
	if v.Ledger, err = ledger.Parse([]byte(manyReleases)); err != nil {
		t.Fatal(err)
	}
	write(t, v, "go.mod", "module x\n\nignore ./pkg\n")
	seam := func(file, context string) string {
		return "diff --git a/" + file + " b/" + file + "\n--- a/" + file + "\n+++ b/" + file + "\n" + context
	}
	const shared, broken = "pkg/a.go.fixes.patch", "pkg/b.go.fixes.patch"
	text := seam("pkg/a.go", "@@ -2,4 +2,5 @@\n 2\n 3\n+hook\n 4\n 5\n")
	write(t, v, shared, text)
	write(t, v, broken, seam("pkg/b.go", "@@ -1,6 +1,7 @@\n 1\n 2\n 3\n+hook\n 4\n 5\n 6\n"))
	if err := v.seams(t.Context()); err == nil || !strings.Contains(err.Error(), broken+": release 1.32") {
		t.Errorf("%v", err)
	}
	if got, err := v.read(shared); err != nil || string(got) != text {
		t.Errorf("%s, %v:\n%s", shared, err, got)
	}
}
