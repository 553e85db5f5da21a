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

package port

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kubernetes-dra/hack/pkg/git"
	"kubernetes-dra/hack/pkg/tree/ledger"
	"kubernetes-dra/hack/pkg/tree/overlay"
	"kubernetes-dra/hack/pkg/tree/patch"
	"kubernetes-dra/hack/pkg/tree/upstream"
)

const fixtureLedger = `
revision: 1
releases:
- {name: "1.32", version: v1.32.1, state: carried, released: "2025-07-22T18:07:38Z"}
- {name: "1.33", version: v1.33.1, state: planned, imports: {k8s.io/api/resource/v1: k8s.io/api/resource/v1beta1}}
- {name: "1.34", version: v1.34.1, state: carried, released: "2026-01-22T18:07:38Z"}
- {name: "1.36", version: v1.36.3, state: carried, released: "2026-07-22T18:07:38Z"}
- {name: "1.37", version: v1.37.1, state: planned}
features:
- {slug: fixes, title: t, state: carried, releases: {"1.32": carried, "1.34": carried, "1.36": carried}, why: w, upstream: u, dropWhen: d}
- {slug: reservedfor, title: t, state: carried, releases: {"1.32": carried, "1.34": carried, "1.36": carried}, why: w, upstream: u, dropWhen: d}
- {slug: done, title: t, state: carried, releases: {"1.36": carried, "1.37": base}, why: w, upstream: u, dropWhen: d}
`

// files is a fake release.
type files map[string]string

func (f files) ReadFile(p string) ([]byte, error) {
	content, ok := f[p]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return []byte(content), nil
}

// listed is a release that tells its files.
type listed struct{ files }

func (f listed) Files() ([]upstream.File, error) {
	var list []upstream.File
	for p := range f.files {
		list = append(list, upstream.File{Path: p})
	}
	return list, nil
}

// text has a line for each word of it.
func text(words string) string { return strings.ReplaceAll(words, " ", "\n") + "\n" }

const a = "pkg/a.go"

// The file a, and what our features make of it.
const (
	plain    = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20"
	fixed    = "1 2 3 4 5 fix 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20"
	reserved = "1 2 3 4 5 fix 6 7 8 9 10 11 12 13 14 15 reserved 16 17 18 19 20"
)

// fixture is a repository with an overlay of three releases, which are the same.
type fixture struct {
	*testing.T
	*Port
}

func newFixture(t *testing.T, from, to string) *fixture {
	t.Helper()
	l, err := ledger.Parse([]byte(fixtureLedger))
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{T: t, Port: &Port{Repo: t.TempDir(), Ledger: l, Bases: map[string]overlay.Base{}, Conflicts: filepath.Join(t.TempDir(), "conflicts")}}
	if f.From, err = l.Release(from); err != nil {
		t.Fatal(err)
	}
	if f.To, err = l.Known(to); err != nil {
		t.Fatal(err)
	}
	for _, r := range l.Releases {
		f.Bases[r.Name] = files{a: text(plain)}
	}
	f.add("go.mod", "module x\n\nignore ./pkg\n")
	return f
}

func (f *fixture) add(name, content string) {
	f.Helper()
	name = filepath.Join(f.Repo, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		f.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		f.Fatal(err)
	}
}

// seam adds a seam of the file a.
func (f *fixture) seam(qualified, from, to string) {
	f.Helper()
	content, err := patch.Diff(f.Context(), a, []byte(text(from)), []byte(text(to)))
	if err != nil {
		f.Fatal(err)
	}
	f.add(a+"."+qualified+".patch", string(content))
}

// upstream is what the new release has in place of the file a.
func (f *fixture) upstream(words string) { f.Bases[f.To.Name].(files)[a] = text(words) }

// run ports, and returns the outcomes in a line each.
func (f *fixture) run() string {
	f.Helper()
	results, err := f.Port.Run(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	var lines []string
	for _, r := range results {
		why := strings.ReplaceAll(r.Why, f.Conflicts, "CONFLICTS")
		lines = append(lines, strings.TrimRight(fmt.Sprintf("%s %s -> %s %s", r.Outcome, r.Source, r.Target, why), " "))
	}
	return strings.Join(lines, "\n")
}

func (f *fixture) want(want ...string) {
	f.Helper()
	if got, want := f.run(), strings.Join(want, "\n"); got != want {
		f.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// wantOverlay compares the names of the overlay, without those of go.mod.
func (f *fixture) wantOverlay(want ...string) {
	f.Helper()
	entries, err := overlay.Scan(f.Repo, f.Ledger)
	if err != nil {
		f.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Source)
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		f.Errorf("overlay: got %q, want %q", got, want)
	}
}

// wantFile compares the file a with all seams, in the old releases with what it was, in
// the new one with the words, or with an error.
func (f *fixture) wantFile(old, now string) {
	f.Helper()
	l := carrying(f.Ledger, f.From, f.To)
	for _, r := range l.Carried() {
		want := old
		if r.Name == f.To.Name {
			want = now
		}
		features, err := overlay.Apply(f.Repo, l, r, f.Bases[r.Name])
		if err != nil {
			f.Errorf("%s: %v", r.Name, err)
			continue
		}
		got := f.Bases[r.Name].(files)[a]
		for _, feature := range features {
			for _, c := range feature.Changes {
				if c.Path == a {
					got = string(c.Content)
				}
			}
		}
		if got != text(want) {
			f.Errorf("%s: got %q, want %q", r.Name, strings.Fields(got), want)
		}
	}
}

func TestClean(t *testing.T) {
	f := newFixture(t, "1.36", "1.37")
	f.seam("fixes", plain, fixed)
	f.seam("reservedfor.1.32+", fixed, reserved)
	f.add("pkg/fixes.go", "package pkg\n")
	f.add("pkg/done.go", "package pkg\n")
	f.upstream("new new new " + plain)
	f.want(
		"clean pkg/a.go.fixes.patch -> pkg/a.go.fixes.patch",
		"clean pkg/fixes.go -> pkg/fixes.go",
		"clean pkg/a.go.reservedfor.1.32+.patch -> pkg/a.go.reservedfor.1.32+.patch",
	)
	f.wantFile(reserved, "new new new "+reserved)
	f.wantOverlay("pkg/a.go.fixes.patch", "pkg/a.go.reservedfor.1.32+.patch", "pkg/done.go", "pkg/fixes.go")
}

// A name that ends with the old release, or starts with it, gets a wider range.
func TestRanges(t *testing.T) {
	for name, tt := range map[string]struct {
		from, to          string
		file, want, extra string
	}{
		"newer":               {"1.36", "1.37", "pkg/fixes.1.36.go", "pkg/fixes.1.36+.go", "pkg/fixes.1.34.go"},
		"newer, a range":      {"1.36", "1.37", "pkg/fixes.1.34-1.36.go", "pkg/fixes.1.34+.go", "pkg/fixes.1.32.go"},
		"open":                {"1.36", "1.37", "pkg/fixes.1.36+.go", "pkg/fixes.1.36+.go", "pkg/fixes.1.32.go"},
		"older":               {"1.34", "1.33", "pkg/fixes.1.34.go", "pkg/fixes.1.33-1.34.go", "pkg/fixes.1.32.go"},
		"older, open":         {"1.34", "1.33", "pkg/fixes.1.34+.go", "pkg/fixes.1.33+.go", "pkg/fixes.1.32.go"},
		"has it":              {"1.34", "1.33", "pkg/fixes.1.32-1.34.go", "pkg/fixes.1.32-1.34.go", "pkg/fixes.go"},
		"another in its way":  {"1.34", "1.37", "pkg/fixes.1.34.go", "pkg/fixes.1.37+.go", "pkg/fixes.1.36.go"},
		"in place of the one": {"1.34", "1.33", "pkg/fixes.1.34.go", "pkg/fixes.1.33-1.34.go", "pkg/fixes.go"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, tt.from, tt.to)
			f.add(tt.file, "package pkg\n")
			f.add(tt.extra, "package pkg // other\n")
			f.want("clean " + tt.file + " -> " + tt.want)
			if content, err := f.read(tt.want); err != nil || string(content) != "package pkg\n" {
				t.Errorf("got %s, %v", content, err)
			}
			// Once more, that changes nothing.
			if got := f.run(); !strings.HasPrefix(got, "clean ") || !strings.HasSuffix(got, " -> "+tt.want) {
				t.Errorf("again: %s", got)
			}
		})
	}
}

// A seam that does not fit is merged, and the other releases keep what they have.
func TestMerged(t *testing.T) {
	for name, tt := range map[string]struct {
		from, to  string
		qualifier string
		upstream  string
		now       string
		outcome   string
		overlay   string
	}{
		"next to it": {
			from: "1.36", to: "1.37", upstream: strings.Replace(plain, " 7 ", " seven ", 1), now: strings.Replace(fixed, " 7 ", " seven ", 1),
			outcome: "merged pkg/a.go.fixes.patch -> pkg/a.go.fixes.patch with less context, the one for all its releases",
			overlay: "pkg/a.go.fixes.patch",
		},
		"not the only place": {
			from: "1.36", to: "1.37", upstream: strings.Replace(plain, " 7 ", " seven ", 1) + " 5 6", now: strings.Replace(fixed, " 7 ", " seven ", 1) + " 5 6",
			outcome: "merged pkg/a.go.fixes.patch -> pkg/a.go.fixes.1.37+.patch",
			overlay: "pkg/a.go.fixes.1.37+.patch pkg/a.go.fixes.patch",
		},
		"of an open range": {
			from: "1.36", to: "1.37", qualifier: ".1.34+", upstream: strings.Replace(plain, " 7 ", " seven ", 1) + " 5 6", now: strings.Replace(fixed, " 7 ", " seven ", 1) + " 5 6",
			outcome: "merged pkg/a.go.fixes.1.34+.patch -> pkg/a.go.fixes.1.37+.patch",
			overlay: "pkg/a.go.fixes.1.34-1.36.patch pkg/a.go.fixes.1.37+.patch",
		},
		"in the middle of a range": {
			from: "1.34", to: "1.33", qualifier: ".1.32+", upstream: strings.Replace(plain, " 7 ", " seven ", 1) + " 5 6", now: strings.Replace(fixed, " 7 ", " seven ", 1) + " 5 6",
			outcome: "merged pkg/a.go.fixes.1.32+.patch -> pkg/a.go.fixes.1.33.patch",
			overlay: "pkg/a.go.fixes.1.32.patch pkg/a.go.fixes.1.33.patch pkg/a.go.fixes.1.34+.patch",
		},
		"done upstream": {
			from: "1.36", to: "1.37", upstream: strings.Replace(fixed, " 12 ", " twelve ", 1), now: strings.Replace(fixed, " 12 ", " twelve ", 1),
			outcome: "upstream has it pkg/a.go.fixes.patch ->",
			overlay: "pkg/a.go.fixes.1.32-1.36.patch",
		},
		"done upstream in an older release": {
			from: "1.34", to: "1.33", upstream: fixed, now: fixed,
			outcome: "upstream has it pkg/a.go.fixes.patch ->",
			overlay: "pkg/a.go.fixes.1.32.patch pkg/a.go.fixes.1.34+.patch",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, tt.from, tt.to)
			f.seam("fixes"+tt.qualifier, plain, fixed)
			if tt.qualifier == ".1.34+" {
				f.seam("fixes.1.32", plain, fixed)
				tt.overlay = "pkg/a.go.fixes.1.32.patch " + tt.overlay
			}
			f.upstream(tt.upstream)
			f.want(tt.outcome)
			f.wantFile(fixed, tt.now)
			f.wantOverlay(strings.Fields(tt.overlay)...)
			// Once more, that changes nothing.
			f.run()
			f.wantFile(fixed, tt.now)
			f.wantOverlay(strings.Fields(tt.overlay)...)
		})
	}
}

// A part of a seam that upstream has is left out.
func TestPartlyUpstream(t *testing.T) {
	f := newFixture(t, "1.36", "1.37")
	f.seam("fixes", plain, reserved)
	f.upstream(fixed)
	f.want("merged pkg/a.go.fixes.patch -> pkg/a.go.fixes.1.37+.patch")
	f.wantFile(reserved, reserved)
}

// A conflict stays what it is until somebody resolves it. Then the seams of later
// features are those for the result.
func TestConflict(t *testing.T) {
	f := newFixture(t, "1.36", "1.37")
	const other = "1 2 3 4 5 fix 6 later 7 8 9 10 11 12 13 14 15 16 17 18 19 20"
	f.seam("fixes.1.34+", plain, fixed)
	f.seam("fixes.1.32", plain, fixed)
	f.seam("reservedfor", fixed, other)
	f.upstream(strings.Replace(plain, "5 6", "5 theirs 6", 1))
	conflict := "conflict pkg/a.go.fixes.1.34+.patch ->  1 place in CONFLICTS/fixes/pkg/a.go"
	merged := "merged pkg/a.go.reservedfor.patch -> pkg/a.go.reservedfor.patch with less context, the one for all its releases"
	f.want(conflict, merged)
	f.wantOverlay("pkg/a.go.fixes.1.32.patch", "pkg/a.go.fixes.1.34+.patch", "pkg/a.go.reservedfor.patch")
	name := filepath.Join(f.Conflicts, "fixes", a)
	marked, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	const marks = "5\n<<<<<<< v1.37.1\ntheirs\n||||||| v1.36.3\n=======\nfix\n>>>>>>> v1.36.3 with fixes\n6\n"
	if !strings.Contains(string(marked), marks) {
		t.Errorf("got:\n%s", marked)
	}
	// Work that has begun is not lost.
	begun := "begun\n" + string(marked)
	if err := os.WriteFile(name, []byte(begun), 0o644); err != nil {
		t.Fatal(err)
	}
	f.want(conflict, "clean pkg/a.go.reservedfor.patch -> pkg/a.go.reservedfor.patch")
	if content, err := os.ReadFile(name); err != nil || string(content) != begun {
		t.Errorf("got %s, %v", content, err)
	}
	if diff, err := git.Dir(f.Conflicts).Run(t.Context(), "diff", "--stat"); err != nil || !strings.Contains(diff, "fixes/pkg/a.go") {
		t.Errorf("git diff: %s, %v", diff, err)
	}
	now := strings.Replace(plain, "5 6", "5 theirs fix 6", 1)
	if err := os.WriteFile(name, []byte(text(now)), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := f.run(); strings.Contains(got, "conflict") {
			t.Errorf("resolved: %s", got)
		}
		f.wantOverlay("pkg/a.go.fixes.1.32.patch", "pkg/a.go.fixes.1.34-1.36.patch", "pkg/a.go.fixes.1.37+.patch", "pkg/a.go.reservedfor.patch")
		f.wantFile(other, strings.Replace(now, "6 7", "6 later 7", 1))
	}
}

// What a conflict leaves undone is no reason for another one in a later feature.
func TestConflictInPart(t *testing.T) {
	f := newFixture(t, "1.36", "1.37")
	const later = "1 2 3 4 5 fix 6 7 8 9 10 11 12 13 14 15 reserved later 16 17 18 19 20"
	f.seam("fixes", plain, reserved)
	f.seam("reservedfor", reserved, later)
	f.upstream(strings.Replace(plain, "5 6", "5 theirs 6", 1))
	f.want(
		"conflict pkg/a.go.fixes.patch ->  1 place in CONFLICTS/fixes/pkg/a.go",
		"clean pkg/a.go.reservedfor.patch -> pkg/a.go.reservedfor.patch",
	)
}

// Two features in conflict are resolved at once.
func TestConflictsOfTwo(t *testing.T) {
	f := newFixture(t, "1.34", "1.33")
	f.seam("fixes", plain, fixed)
	f.seam("reservedfor", fixed, reserved)
	f.upstream(strings.Replace(strings.Replace(plain, "5 6", "5 theirs 6", 1), "15 16", "15 too 16", 1))
	f.want(
		"conflict pkg/a.go.fixes.patch ->  1 place in CONFLICTS/fixes/pkg/a.go",
		"conflict pkg/a.go.reservedfor.patch ->  1 place in CONFLICTS/reservedfor/pkg/a.go",
	)
	f.wantOverlay("pkg/a.go.fixes.patch", "pkg/a.go.reservedfor.patch")
	// One drops its change, the other keeps both.
	without := strings.Replace(strings.Replace(plain, "5 6", "5 theirs 6", 1), "15 16", "15 too 16", 1)
	both := strings.Replace(without, "too 16", "too reserved 16", 1)
	for name, words := range map[string]string{"fixes": without, "reservedfor": both} {
		if err := os.WriteFile(filepath.Join(f.Conflicts, name, a), []byte(text(words)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f.want(
		"upstream has it pkg/a.go.fixes.patch ->",
		"merged pkg/a.go.reservedfor.patch -> pkg/a.go.reservedfor.1.33.patch",
	)
	f.wantOverlay("pkg/a.go.fixes.1.32.patch", "pkg/a.go.fixes.1.34+.patch", "pkg/a.go.reservedfor.1.33.patch", "pkg/a.go.reservedfor.patch")
	f.wantFile(reserved, both)
}

// What a merge cannot do.
func TestByHand(t *testing.T) {
	f := newFixture(t, "1.34", "1.33")
	f.seam("fixes", plain, fixed)
	f.add("pkg/fixes_new.go", "package pkg\n")
	f.add("pkg/fixes_import.go", "package pkg\n\nimport \"k8s.io/api/resource/v1\"\n")
	now := f.Bases["1.33"].(files)
	delete(now, a)
	now["pkg/fixes_new.go"] = "package pkg\n"
	f.seam("reservedfor.1.34", fixed, reserved)
	f.want(
		"conflict pkg/a.go.fixes.patch ->  v1.33.1 has no file pkg/a.go; by its name, pkg/a.go.fixes.patch holds there",
		"conflict pkg/fixes_import.go ->  the import of k8s.io/api/resource/v1 needs a name, because k8s.io/api/resource/v1beta1 stands in for it; by its name, pkg/fixes_import.go holds there",
		"conflict pkg/fixes_new.go ->  v1.33.1 has a file pkg/fixes_new.go of its own: ours would stand where it is; by its name, pkg/fixes_new.go holds there",
		"conflict pkg/a.go.reservedfor.1.34.patch ->  v1.33.1 has no file pkg/a.go; it is left out there",
	)
	f.wantOverlay("pkg/a.go.fixes.patch", "pkg/a.go.reservedfor.1.34.patch", "pkg/fixes_import.go", "pkg/fixes_new.go")
}

// A file of ours in a folder that upstream has no more, or not yet, is not one that fits.
func TestFolderOfUpstream(t *testing.T) {
	f := newFixture(t, "1.34", "1.33")
	f.Bases["1.34"] = listed{files{"pkg/gone/a.go": "", "pkg/a.go": ""}}
	f.Bases["1.33"] = listed{files{"pkg/a.go": ""}}
	for _, dir := range []string{"pkg", "pkg/gone", "pkg/ours"} {
		f.add(dir+"/fixes.1.34.go", "package p\n")
	}
	f.want(
		"clean pkg/fixes.1.34.go -> pkg/fixes.1.33-1.34.go",
		"conflict pkg/gone/fixes.1.34.go ->  v1.33.1 has no files in its folder, and v1.34.1 has; it is left out there",
		"clean pkg/ours/fixes.1.34.go -> pkg/ours/fixes.1.33-1.34.go",
	)
}

// What was aligned anew is no conflict, and what comes out is formatted.
func TestAligned(t *testing.T) {
	const before, after = "package p\n\ntype T struct {\n\tA bool\n\tB bool\n\tC bool\n}\n", "package p\n\ntype T struct {\n\tA bool\n\tB bool\n\tX bool\n\tC bool\n}\n"
	const theirs = "package p\n\ntype T struct {\n\tA    bool\n\tB    bool\n\tC    bool\n\tLong bool\n}\n"
	f := newFixture(t, "1.36", "1.37")
	for _, r := range f.Ledger.Releases {
		f.Bases[r.Name] = files{a: before}
	}
	f.Bases["1.37"] = files{a: theirs}
	seam, err := patch.Diff(t.Context(), a, []byte(before), []byte(after))
	if err != nil {
		t.Fatal(err)
	}
	f.add(a+".fixes.patch", string(seam))
	f.want("merged pkg/a.go.fixes.patch -> pkg/a.go.fixes.1.37+.patch")
	if got, want := string(f.theirs[a]), strings.Replace(theirs, "\tC", "\tX    bool\n\tC", 1); got != want {
		t.Errorf("got:\n%s", got)
	}
}

// Of another release, there may be a seam that fits. One for the new release alone is
// what somebody wrote for it.
func TestSiblings(t *testing.T) {
	f := newFixture(t, "1.34", "1.33")
	older := strings.Replace(plain, "5 6", "5 older 6", 1)
	f.Bases["1.32"] = files{a: text(older)}
	f.seam("fixes", plain, fixed)
	f.seam("fixes.1.32", older, strings.Replace(older, "older", "fix older", 1))
	f.upstream(older)
	f.want("conflict pkg/a.go.fixes.patch ->  1 place in CONFLICTS/fixes/pkg/a.go; but pkg/a.go.fixes.1.32.patch applies")
	if err := os.Rename(f.file("pkg/a.go.fixes.1.32.patch"), f.file("pkg/a.go.fixes.1.32-1.33.patch")); err != nil {
		t.Fatal(err)
	}
	f.add("pkg/fixes_older.1.32-1.33.go", "package pkg\n")
	f.want("clean pkg/a.go.fixes.patch -> pkg/a.go.fixes.1.32-1.33.patch", "clean pkg/fixes_older.1.32-1.33.go -> pkg/fixes_older.1.32-1.33.go")
}

func TestReport(t *testing.T) {
	const want = `clean: 1 seam, 2 files of our own
  b.1.36.go -> b.1.36+.go
merged: 0 seams, 0 files of our own
upstream has it: 0 seams, 0 files of our own
conflict: 1 seam, 0 files of our own
  d: because
`
	results := []Result{
		{Source: "a", Target: "a", Outcome: Clean, Seam: true},
		{Source: "b.1.36.go", Target: "b.1.36+.go", Outcome: Clean},
		{Source: "c", Target: "c", Outcome: Clean},
		{Source: "d", Outcome: Conflict, Seam: true, Why: "because"},
	}
	if got := Report(results); got != want {
		t.Errorf("got:\n%s", got)
	}
	p := &Port{Repo: "/work", Conflicts: "/conflicts", To: &ledger.Release{Name: "1.37"}}
	if got := p.NextSteps(results); !strings.Contains(got, "git -C /conflicts diff") || !strings.Contains(got, "git worktree remove --force /work") {
		t.Errorf("got:\n%s", got)
	}
	if got := p.NextSteps(results[:3]); strings.Contains(got, "/conflicts") {
		t.Errorf("without conflicts:\n%s", got)
	}
}

func TestWorkTree(t *testing.T) {
	f := newFixture(t, "1.36", "1.37")
	f.add("pkg/fixes.go", "package pkg\n")
	f.add(".gitignore", "/_output\n")
	repo := git.Dir(f.Repo)
	for _, args := range [][]string{
		{"init", "--quiet"}, {"add", "."}, {"-c", "user.name=n", "-c", "user.email=e", "commit", "--quiet", "--message=m"},
	} {
		if _, err := repo.Run(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(f.Repo, "_output", "port")
	f.add("pkg/fixes.go", "package pkg // not committed\n")
	if _, _, err := WorkTree(t.Context(), f.Repo, dir, "1.36", "1.37"); err == nil || !strings.Contains(err.Error(), "not committed") || !strings.Contains(err.Error(), "pkg/fixes.go") {
		t.Errorf("not committed: %v", err)
	}
	f.add("pkg/fixes.go", "package pkg\n")
	for range 2 {
		work, conflicts, err := WorkTree(t.Context(), f.Repo, dir, "1.36", "1.37")
		if err != nil {
			t.Fatal(err)
		}
		if content, err := os.ReadFile(filepath.Join(work, "pkg/fixes.go")); err != nil || string(content) != "package pkg\n" {
			t.Errorf("got %s, %v", content, err)
		}
		if out, err := git.Dir(work).Run(t.Context(), "status", "--porcelain"); err != nil || out != "" {
			t.Errorf("got %s, %v", out, err)
		}
		if !strings.HasPrefix(conflicts, work) {
			t.Errorf("conflicts in %s", conflicts)
		}
	}
	for dir, want := range map[string]string{dir: "is for porting from 1.36 to 1.37", f.Repo: "was not made by carry port"} {
		if _, _, err := WorkTree(t.Context(), f.Repo, dir, "1.34", "1.33"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	// One that was removed by hand.
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, _, err := WorkTree(t.Context(), f.Repo, dir, "1.34", "1.33"); err != nil {
		t.Error(err)
	}
}
