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

package tree

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kubernetes-dra/hack/pkg/git"
)

// clone is somebody's clone of the fake release.
type clone struct {
	*fixture
	dir string
}

// generatedLog is a file that the generators of the fixture write anew.
const generatedLog = "pkg/testdata/generated.log"

// newClone commits the files of a release, and tags them.
func (f *fixture) newClone(tag string, files fakeUpstream) *clone {
	f.Helper()
	c := &clone{f, filepath.Join(f.TempDir(), "check out")}
	writeFile(f.T, filepath.Join(c.dir, ".git", "info", "attributes"), "* -text\n")
	c.git("init", "--quiet", "--initial-branch=release")
	writeFile(f.T, filepath.Join(c.dir, ".git", "info", "attributes"), "* -text\n")
	c.commit("release", files)
	if tag != "" {
		c.git("tag", tag)
	}
	return c
}

// commit replaces files, and commits.
func (c *clone) commit(message string, files fakeUpstream) {
	c.Helper()
	for p, content := range files {
		writeFile(c.T, filepath.Join(c.dir, p), content)
		if strings.HasPrefix(content, "#!") {
			if err := os.Chmod(filepath.Join(c.dir, p), 0o755); err != nil {
				c.Fatal(err)
			}
		}
	}
	c.git("add", "--all", "--force")
	c.git("-c", "user.name=x", "-c", "user.email=x@x", "commit", "--quiet", "--allow-empty", "-m", message)
}

func (c *clone) git(args ...string) string {
	c.Helper()
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		c.Fatal(err)
	}
	out, err := git.Dir(c.dir).Run(c.Context(), args...)
	if err != nil {
		c.Fatal(err)
	}
	return out
}

// apply opens the checkout, and applies the overlay.
func (c *clone) apply(ctx context.Context) (*Applied, error) {
	c.Helper()
	opened, err := OpenCheckout(ctx, c.dir)
	if err != nil {
		c.Fatal(err)
	}
	return c.ApplyTo(ctx, opened)
}

func (c *clone) mustApply() *Applied {
	c.Helper()
	applied, err := c.apply(c.Context())
	if err != nil {
		c.Fatal(err)
	}
	return applied
}

// state is everything that a user can see: files, index, refs, commits.
func (c *clone) state() map[string]string {
	c.Helper()
	state := snapshot(c.T, c.dir)
	for _, command := range []string{"for-each-ref", "rev-parse HEAD", "reflog", "status --porcelain --ignored", "ls-files --stage"} {
		state["git "+command] = c.git(strings.Fields(command)...)
	}
	files, err := os.ReadDir(filepath.Join(c.dir, ".git"))
	if err != nil {
		c.Fatal(err)
	}
	for _, f := range files {
		state[".git/"+f.Name()] = "exists"
	}
	return state
}

// unchanged fails if something of what a user can see is not as it was, or if
// something was left in the folder for temporary files.
func (c *clone) unchanged(before map[string]string) {
	c.Helper()
	wantSame(c.T, "checkout", c.state(), before)
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "carry-*"))
	if err != nil || len(left) > 0 {
		c.Errorf("left behind: %q, %v", left, err)
	}
}

// newFixtureToApply is a fixture whose release says what it is.
func newFixtureToApply(t *testing.T) *fixture {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	f := newFixture(t)
	f.upstream["go.mod"] = "module k8s.io/kubernetes\n"
	f.upstream["go.work"] = "go 1.26.0\n"
	f.upstream[versionFile] = "package version\n\nconst (\n\tDefaultKubeBinaryVersion = \"1.36\"\n)\n"
	return f
}

// more is what a checkout of upstream has and the modules do not.
func more() fakeUpstream {
	return fakeUpstream{
		"go.work":                          "go 1.26.0\n\nuse ./staging/src/k8s.io/sample\n",
		".github/OWNERS":                   "nobody\n",
		"vendor/modules.txt":               "# x\n",
		"vendor/x/zz_generated.x.go":       "package x\n",
		"hack/tools/go.mod":                "module tools\n",
		"hack/tools/tools.go":              "package tools\n",
		"staging/src/k8s.io/sample/s.go":   "package sample\n",
		"staging/src/k8s.io/sample/go.mod": "module k8s.io/sample\n",
		"pkg/testdata/a \"b\": c\td/ü":     "odd\n",
		"CHANGELOG/CHANGELOG-1.36.md":      "changes\n",
	}
}

// The commits are those of the tree, and so is what they lead to.
func TestApplyTo(t *testing.T) {
	for _, built := range []bool{false, true} {
		t.Run(fmt.Sprintf("tree was built %v", built), func(t *testing.T) {
			f := newFixtureToApply(t)
			if built {
				f.mustBuild()
			}
			c := f.newClone("v1.36.3", f.upstream)
			from := c.git("rev-parse", "HEAD")
			before := c.state()
			applied := c.mustApply()
			if f.generated != 1 {
				t.Errorf("generated %d times, expected 1", f.generated)
			}
			f.mustBuild()

			if got, want := c.git("rev-parse", "HEAD^{tree}"), f.gitOutput("rev-parse", "HEAD^{tree}"); got != want {
				t.Errorf("the checkout has tree %s, built was %s:\n%s", got, want, c.git("show", "--stat"))
			}
			const format = "--format=%an|%ae|%B"
			if got, want := c.git("log", format, "release~3..release"), f.gitOutput("log", format, "v1.36.3..HEAD"); got != want {
				t.Errorf("commits:\n%s\nwant:\n%s", got, want)
			}
			var subjects []string
			for _, commit := range applied.Commits {
				subjects = append(subjects, commit.Subject)
			}
			if got, want := strings.Join(subjects, "|"), "fixes: bugs|reservedfor: workloads (KEP-5194)|Generated code"; got != want {
				t.Errorf("commits: %s, want %s", got, want)
			}
			if applied.From != from || applied.To != c.git("rev-parse", "HEAD") || applied.Commits[2].Hash != applied.To || !applied.Generated {
				t.Errorf("from %s: %+v", from, applied)
			}
			if got := c.git("status", "--porcelain", "--ignored"); got != "" {
				t.Errorf("not clean:\n%s", got)
			}
			if got, want := c.git("for-each-ref", "--format=%(refname)"), "refs/heads/release\nrefs/tags/v1.36.3"; got != want {
				t.Errorf("refs: %s", got)
			}
			// Undone as carry says, nothing is left.
			c.git("reset", "--quiet", "--hard", applied.From)
			after := c.state()
			for _, state := range []map[string]string{before, after} {
				delete(state, "git reflog")
				delete(state, ".git/ORIG_HEAD")
			}
			wantSame(t, "undone", after, before)
		})
	}
}

// A checkout has files that are in no module. They are no reason to generate code
// again; what generators may read is one.
func TestApplyToChecksWhatGeneratorsRead(t *testing.T) {
	for name, tt := range map[string]struct {
		files     fakeUpstream
		generated int
	}{
		"more than the modules have": {more(), 1},
		"read by no generator":       {fakeUpstream{"pkg/kubelet/new.go": "package kubelet\n", "pkg/scheduler/s_test.go": "package scheduler\n"}, 1},
		"new file":                   {fakeUpstream{"staging/src/k8s.io/api/new.go": "package api\n"}, 2},
		"changed file":               {fakeUpstream{"go.mod": "module k8s.io/kubernetes\n\ngo 1.26.0\n"}, 2},
		"other seams":                {fakeUpstream{types: "type 0\n" + numbered("type", 30)}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixtureToApply(t)
			f.mustBuild()
			files := maps.Clone(f.upstream)
			maps.Copy(files, tt.files)
			c := f.newClone("v1.36.3", files)
			if name == "more than the modules have" {
				if err := os.Symlink("../go.mod", filepath.Join(c.dir, "pkg/link")); err != nil {
					t.Fatal(err)
				}
				c.commit("link", nil)
			}
			c.mustApply()
			if f.generated != tt.generated {
				t.Errorf("generated %d times, expected %d", f.generated, tt.generated)
			}
			var want []string
			for p := range maps.Keys(files) {
				want = append(want, p)
			}
			// Nothing but the overlay differs.
			for p := range strings.SplitSeq(c.git("diff", "-z", "--name-only", "HEAD~3", "HEAD"), "\x00") {
				if p != "" && !slices.Contains([]string{plugin, types, deepcopy, generatedLog, "pkg/reservedfor.go", "pkg/plugin_fixes.go"}, p) {
					t.Errorf("%s was changed", p)
				}
			}
			for _, p := range want {
				if readFile(t, filepath.Join(c.dir, p)) == "-" {
					t.Errorf("%s is gone", p)
				}
			}
		})
	}
	t.Run("old tree", func(t *testing.T) {
		f := newFixtureToApply(t)
		f.mustBuild()
		f.write("pkg/apis/reservedfor.go", "package apis\n")
		f.newClone("v1.36.3", f.upstream).mustApply()
		if f.generated != 2 {
			t.Errorf("generated %d times, expected 2: the tree was built from something else", f.generated)
		}
	})
}

// The generators get no vendor folder, and cannot change it.
func TestApplyToGenerators(t *testing.T) {
	f := newFixtureToApply(t)
	files := maps.Clone(f.upstream)
	maps.Copy(files, more())
	c := f.newClone("v1.36.3", files)
	generate := f.Generate
	f.Generate = func(ctx context.Context, dir string) error {
		if _, err := os.Stat(filepath.Join(dir, "vendor")); err == nil {
			t.Error("there is a vendor folder")
		}
		if readFile(t, filepath.Join(dir, plugin)) != wholePlugin || readFile(t, filepath.Join(dir, "CHANGELOG/CHANGELOG-1.36.md")) != "changes\n" {
			t.Error("it is not the patched checkout")
		}
		return generate(ctx, dir)
	}
	c.mustApply()
	if got := c.git("diff", "--name-only", "HEAD~1", "HEAD"); got != generatedLog+"\n"+deepcopy {
		t.Errorf("the generated code is in:\n%s", got)
	}

	// Without generators, there is no such commit.
	f.Generate = nil
	d := f.newClone("v1.36.3", f.upstream)
	if applied := d.mustApply(); applied.Generated || len(applied.Commits) != 2 {
		t.Errorf("got %+v", applied)
	}
}

func TestApplyToLaterPatchRelease(t *testing.T) {
	f := newFixtureToApply(t)
	f.mustBuild()
	files := maps.Clone(f.upstream)
	files[plugin] = "// new\n// lines\n" + change(files[plugin], "plugin 25\n", "plugin twenty-five\n")
	c := f.newClone("v1.36.3", f.upstream)
	c.commit("later", files)
	c.git("tag", "v1.36.4")
	// Not every executable is a script.
	if err := os.Chmod(filepath.Join(c.dir, plugin), 0o755); err != nil {
		t.Fatal(err)
	}
	c.commit("the next candidate", nil)
	c.git("tag", "v1.36.5-rc.0")
	c.mustApply()
	want := "// new\n// lines\n" + change(wholePlugin, "plugin 25\n", "plugin twenty-five\n")
	if got := readFile(t, filepath.Join(c.dir, plugin)); got != want {
		t.Errorf("got:\n%s", got)
	}
	if got := c.git("ls-files", "--stage", plugin); !strings.HasPrefix(got, "100755 ") {
		t.Errorf("the mode is lost: %s", got)
	}
	if got := c.git("log", "-1", "--format=%B", "HEAD~1"); !strings.Contains(got, "Release: v1.36.4 (carried)") {
		t.Errorf("message:\n%s", got)
	}
	// Time does not run backwards.
	var last string
	for _, date := range strings.Fields(c.git("log", "--reverse", "--format=%ct")) {
		if date < last {
			t.Errorf("a commit of %s is on top of one of %s", date, last)
		}
		last = date
	}
}

func TestApplyToMisfits(t *testing.T) {
	f := newFixtureToApply(t)
	f.mustBuild()
	files := maps.Clone(f.upstream)
	files[plugin] = change("new\n"+files[plugin], "plugin 8\n", "plugin eight\n", "plugin 41\n", "plugin forty-one\n")
	files[types] = "something else\n"
	files["pkg/reservedfor.go"] = "package pkg // upstream's\n"
	files["pkg/plugin_fixes.go/README.md"] = "a folder\n"
	c := f.newClone("v1.36.4", files)
	before := c.state()
	_, err := c.apply(t.Context())
	f.wantError(err, "does not fit "+c.dir+" (v1.36.4); nothing was changed there",
		"pkg/plugin.go.fixes.patch: release 1.36 (v1.36.4): the seam does not apply to pkg/plugin.go: hunk 1 (@@ -7,7 +7,7 @@ plugin 6): its lines are not in the file; "+
			`the most similar place is line 8, where 6 of its 7 lines match: line 9 is "plugin eight" instead of "plugin 8"`,
		"pkg/plugin.go.reservedfor.patch: release 1.36 (v1.36.4): the seam does not apply to pkg/plugin.go: hunk 1 (@@ -38,6 +38,7 @@ plugin 37): ",
		`the most similar place is line 39, where 5 of its 6 lines match: line 42 is "plugin forty-one" instead of "plugin 41"`,
		types+".reservedfor.patch: release 1.36 (v1.36.4): the seam does not apply to "+types+": hunk 1 (@@ -13,6 +13,7 @@ type 12): none of its lines is in the file",
		"pkg/reservedfor.go: release 1.36 (v1.36.4): upstream has a file pkg/reservedfor.go: ours would stand where it is",
		"pkg/plugin_fixes.go is a folder there",
	)
	c.unchanged(before)

	// A file where ours needs a folder.
	f.write("pkg/sub/dir/reservedfor.go", "package dir\n")
	files = maps.Clone(f.upstream)
	files["pkg/sub"] = "a file\n"
	_, err = f.newClone("v1.36.3", files).apply(t.Context())
	f.wantError(err, "pkg/sub/dir/reservedfor.go", "pkg/sub is in the way")
}

func TestApplyToTwice(t *testing.T) {
	f := newFixtureToApply(t)
	c := f.newClone("v1.36.3", f.upstream)
	c.mustApply()
	before := c.state()
	_, err := c.apply(t.Context())
	f.wantError(err, "upstream has a file pkg/reservedfor.go", "the overlay was applied before", "reservedfor: workloads (KEP-5194)")
	c.unchanged(before)
}

func TestApplyToRefuses(t *testing.T) {
	write := func(p, content string) func(c *clone) {
		return func(c *clone) { writeFile(c.T, filepath.Join(c.dir, p), content) }
	}
	for name, tt := range map[string]struct {
		prepare func(c *clone)
		want    []string
	}{
		"changed file":                     {write(crlf, "changed\n"), []string{"changes that are not committed: " + crlf}},
		"staged file":                      {func(c *clone) { write("new", "new\n")(c); c.git("add", "new") }, []string{"changes that are not committed: new"}},
		"removed file":                     {func(c *clone) { c.remove(filepath.Join(c.dir, script)) }, []string{"changes that are not committed: " + script}},
		"untracked file where ours stands": {write("pkg/reservedfor.go", "mine\n"), []string{"not in git where ours would stand: pkg/reservedfor.go"}},
		"untracked file for a folder":      {write("pkg/sub", "mine\n"), []string{"not in git where ours would stand: pkg/sub"}},
		"untracked folder for a file":      {write("pkg/reservedfor.go/mine", "mine\n"), []string{"not in git where ours would stand: pkg/reservedfor.go"}},
		"link for a folder": {
			func(c *clone) {
				if err := os.Symlink(c.TempDir(), filepath.Join(c.dir, "pkg/sub")); err != nil {
					c.Fatal(err)
				}
			}, []string{"not in git where ours would stand: pkg/sub"},
		},
		"ignored file where generated code stands": {write(generatedLog, "mine\n"), []string{"not in git where ours would stand: " + generatedLog}},
		"in the middle of a merge":                 {func(c *clone) { write(".git/MERGE_HEAD", c.git("rev-parse", "HEAD"))(c) }, []string{"in the middle of a merge"}},
		"in the middle of a rebase":                {write(".git/rebase-merge/done", ""), []string{"in the middle of a rebase"}},
		"change that git does not look for": {
			func(c *clone) {
				c.git("update-index", "--assume-unchanged", plugin)
				write(plugin, "mine\n")(c)
			}, []string{"assume that " + plugin + " is unchanged"},
		},
		"index is locked": {write(".git/index.lock", ""), []string{"index.lock exists"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixtureToApply(t)
			f.write("pkg/sub/reservedfor.go", "package sub\n")
			c := f.newClone("v1.36.3", f.upstream)
			tt.prepare(c)
			before := c.state()
			_, err := c.apply(t.Context())
			f.wantError(err, tt.want...)
			c.unchanged(before)
			// Nobody waits for generators to hear that.
			if f.generated > 0 && !strings.Contains(name, "generated code") {
				t.Error("generators ran")
			}
		})
	}
	// What is in nobody's way stays.
	f := newFixtureToApply(t)
	c := f.newClone("v1.36.3", f.upstream)
	writeFile(t, filepath.Join(c.dir, "pkg/notes.txt"), "mine\n")
	c.mustApply()
	if got := c.git("status", "--porcelain"); got != "?? pkg/notes.txt" {
		t.Errorf("status: %q", got)
	}
}

func TestApplyToInterrupted(t *testing.T) {
	f := newFixtureToApply(t)
	c := f.newClone("v1.36.3", f.upstream)
	before := c.state()
	generate := f.Generate
	ctx, cancel := context.WithCancelCause(t.Context())
	f.Generate = func(ctx context.Context, dir string) error {
		cancel(errors.New("stopped by a signal"))
		<-ctx.Done()
		return ctx.Err()
	}
	_, err := c.apply(ctx)
	f.wantError(err, "stopped by a signal")
	c.unchanged(before)

	// After the generators.
	ctx, cancel = context.WithCancelCause(t.Context())
	f.Generate = func(ctx context.Context, dir string) error {
		defer cancel(errors.New("stopped by a signal"))
		return generate(ctx, dir)
	}
	_, err = c.apply(ctx)
	f.wantError(err, "stopped by a signal")
	c.unchanged(before)

	// Somebody works there in the meantime.
	for want, work := range map[string]func(){
		"changes that are not committed: pkg/plugin.go": func() { writeFile(t, filepath.Join(c.dir, plugin), "mine\n") },
		"where ours would stand: pkg/reservedfor.go":    func() { writeFile(t, filepath.Join(c.dir, "pkg/reservedfor.go"), "mine\n") },
		"something else was checked out":                func() { c.commit("mine", nil) },
	} {
		f.Generate = func(ctx context.Context, dir string) error {
			work()
			before = c.state()
			return generate(ctx, dir)
		}
		_, err = c.apply(t.Context())
		f.wantError(err, want)
		c.unchanged(before)
		c.git("reset", "--quiet", "--hard")
		c.git("clean", "--quiet", "-fd")
	}

	f.Generate = generate
	c.mustApply()
}

// Clones come in many kinds.
func TestApplyToOtherClones(t *testing.T) {
	f := newFixtureToApply(t)
	s := f.mustBuild()
	want := f.gitOutput("rev-parse", s.Head+"^{tree}")
	// Two commits that a shallow clone does not have.
	origin := f.newClone("", f.upstream)
	origin.commit("readme", fakeUpstream{"README": "hello\n"})
	origin.git("rm", "--quiet", "README")
	origin.commit("release", nil)
	origin.git("tag", "v1.36.3")
	for name, prepare := range map[string]func(c *clone){
		"shallow": func(c *clone) {
			origin.git("clone", "--quiet", "--depth=1", "--branch=v1.36.3", "file://"+origin.dir, c.dir)
		},
		"detached": func(c *clone) {
			origin.git("clone", "--quiet", origin.dir, c.dir)
			c.git("checkout", "--quiet", "--detach")
		},
		"shared": func(c *clone) { origin.git("clone", "--quiet", "--shared", origin.dir, c.dir) },
		"linked": func(c *clone) { origin.git("worktree", "add", "--quiet", "-b", "linked", c.dir, "v1.36.3") },
	} {
		t.Run(name, func(t *testing.T) {
			c := &clone{f, filepath.Join(t.TempDir(), `"cl#one"`)}
			prepare(c)
			c.mustApply()
			if got := c.git("rev-parse", "HEAD^{tree}"); got != want {
				t.Errorf("the checkout has tree %s, built was %s", got, want)
			}
			// It is whole without the folder in which it was made.
			c.git("fsck", "--connectivity-only")
			if got := c.git("rev-parse", "--is-shallow-repository"); (got == "true") != (name == "shallow") {
				t.Errorf("shallow: %s", got)
			}
		})
	}
}

// Which release is it?
func TestCheckoutRelease(t *testing.T) {
	for name, tt := range map[string]struct {
		tags []string
		// minor in the version file; empty for no file.
		minor string
		// version and release, or error.
		version, want string
	}{
		"pinned":                  {[]string{"v1.36.3"}, "1.36", "v1.36.3", "1.36"},
		"later":                   {[]string{"v1.36.0-alpha.1", "v1.36.3", "v1.36.12", "v1.36.9"}, "1.36", "v1.36.12", "1.36"},
		"older minor":             {[]string{"v1.32.2"}, "1.32", "v1.32.2", "1.32"},
		"next candidate":          {[]string{"v1.36.3", "v1.36.4-rc.0"}, "1.36", "v1.36.3", "1.36"},
		"alpha of the next minor": {[]string{"v1.36.3", "v1.37.0-alpha.0"}, "1.36", "v1.36.3", "1.36"},
		"tags of a distribution":  {[]string{"v1.36.3", "v1.36.9-gke.100", "v1.36.9+k3s1", "vendor-1.36.10"}, "1.36", "v1.36.3", "1.36"},
		"no tag":                  {nil, "1.36", "some version of 1.36", "1.36"},
		"no version file":         {[]string{"v1.36.3"}, "", "v1.36.3", "1.36"},
		"neither":                 {nil, "", "an unknown version", "neither a tag nor"},
		"earlier":                 {[]string{"v1.36.1"}, "1.36", "v1.36.1", "the overlay is for v1.36.3 and what comes after it"},
		"candidate":               {[]string{"v1.36.0-alpha.1", "v1.36.0-rc.1"}, "1.36", "v1.36.0-rc.1", "the overlay is for v1.36.3"},
		"old release in history":  {[]string{"v1.0.3", "v1.36.0-rc.1"}, "1.36", "v1.36.0-rc.1", "the overlay is for v1.36.3"},
		"planned minor":           {[]string{"v1.33.13"}, "1.33", "v1.33.13", "release 1.33 (v1.33.13) is planned, it is not carried yet"},
		"unknown minor":           {[]string{"v1.37.0"}, "1.37", "v1.37.0", `unknown release "1.37"`},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixtureToApply(t)
			files := maps.Clone(f.upstream)
			delete(files, versionFile)
			if tt.minor != "" {
				files[versionFile] = strings.Replace(f.upstream[versionFile], "1.36", tt.minor, 1)
			}
			c := f.newClone("", files)
			for _, tag := range tt.tags {
				c.git("tag", tag)
			}
			c.git("checkout", "--quiet", "-b", "mine")
			c.commit("mine", nil)
			// Not in the history.
			c.git("checkout", "--quiet", "--orphan", "other")
			c.commit("other", nil)
			c.git("tag", "v1.36.20")
			c.git("checkout", "--quiet", "mine")

			opened, err := OpenCheckout(t.Context(), c.dir)
			if err != nil {
				t.Fatal(err)
			}
			if got := opened.Describe(); got != tt.version {
				t.Errorf("got %s, want %s", got, tt.version)
			}
			r, err := opened.Release(f.Ledger)
			switch {
			case err != nil:
				f.wantError(err, tt.want, c.dir, "--release")
			case r.Name != tt.want:
				t.Errorf("got %s, want %s", r.Name, tt.want)
			}
		})
	}
}

func TestOpenCheckoutErrors(t *testing.T) {
	f := newFixtureToApply(t)
	_, err := OpenCheckout(t.Context(), filepath.Join(t.TempDir(), "missing"))
	f.wantError(err, "missing", "no such file")
	_, err = OpenCheckout(t.Context(), t.TempDir())
	f.wantError(err, "is not a git work tree")
	c := f.newClone("v1.36.3", f.upstream)
	_, err = OpenCheckout(t.Context(), filepath.Join(c.dir, "pkg"))
	f.wantError(err, "is inside of the git work tree", "name its root")
	c.commit("no module", fakeUpstream{"go.mod": "module example.com\n"})
	_, err = OpenCheckout(t.Context(), c.dir)
	f.wantError(err, "is not a checkout of Kubernetes")
	empty := &clone{f, t.TempDir()}
	empty.git("init", "--quiet")
	_, err = OpenCheckout(t.Context(), empty.dir)
	f.wantError(err, "has no commit")
}
