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

// Package verify checks what a change of this repository can break without
// any test noticing: that every file belongs somewhere, that seams apply and
// are written in the one way in which carry writes them, that what is derived
// from the ledger or from generated code is up to date.
package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/format"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"kubernetes-dra/hack/pkg/git"
	"kubernetes-dra/hack/pkg/sys"
	"kubernetes-dra/hack/pkg/tree"
	"kubernetes-dra/hack/pkg/tree/codegen"
	"kubernetes-dra/hack/pkg/tree/ledger"
	"kubernetes-dra/hack/pkg/tree/overlay"
	"kubernetes-dra/hack/pkg/tree/patch"
	"kubernetes-dra/hack/pkg/tree/upstream"
)

// Verifier runs checks.
type Verifier struct {
	// Repo is the root of the repository.
	Repo   string
	Ledger *ledger.Ledger
	// Update writes what is derived instead of complaining about it.
	Update bool
	// Tree returns the tree of a release, ready to be built.
	Tree func(release string) (*tree.Tree, error)
	// Log tells the user what is going on.
	Log func(format string, args ...any)

	// files are all files of the repository that are not ignored.
	files []string
	// sources are the untouched trees of the carried releases.
	sources map[string]tree.Upstream
}

// Run runs all checks, and returns what they found.
func (v *Verifier) Run(ctx context.Context) error {
	if err := v.list(ctx); err != nil {
		return err
	}
	var failed []error
	for _, check := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"pins", v.pins},
		{"overlay", v.overlay},
		{"redundant files", v.redundant},
		{"seams", v.seams},
		{"seams without each of the features", v.drops},
		{"tests of upstream in the ledger", v.tests},
		{"format", v.format},
		{"licence headers", v.licences},
		{"documents", v.documents},
		{"shell scripts", v.shell},
		{"go vet", v.vet},
		{"trees, API delta and patch series", v.trees},
	} {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := check.run(ctx); err != nil {
			v.Log("FAIL %s", check.name)
			failed = append(failed, fmt.Errorf("%s:\n%w", check.name, err))
		} else {
			v.Log("ok   %s", check.name)
		}
	}
	return errors.Join(failed...)
}

// list finds the files of the repository.
func (v *Verifier) list(ctx context.Context) error {
	out, err := git.Dir(v.Repo).Output(ctx, nil, nil, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return err
	}
	v.files = nil
	for _, name := range git.SplitZ(out) {
		if _, err := os.Lstat(filepath.Join(v.Repo, name)); err == nil { // not removed
			v.files = append(v.files, name)
		}
	}
	slices.Sort(v.files)
	return nil
}

func (v *Verifier) read(name string) ([]byte, error) {
	return os.ReadFile(filepath.Join(v.Repo, filepath.FromSlash(name)))
}

// pins checks that each carried release has a pin and no other has one.
func (v *Verifier) pins(ctx context.Context) error {
	var errs []error
	v.sources = map[string]tree.Upstream{}
	for _, r := range v.Ledger.Carried() {
		source, err := upstream.Open(ctx, v.Repo, r)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		v.sources[r.Name] = source
	}
	// What belongs to a release must not outlive it.
	for _, parent := range []string{"hack/releases", "api"} {
		dirs, err := os.ReadDir(filepath.Join(v.Repo, filepath.FromSlash(parent)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, d := range dirs {
			if d.Name() == "README.md" {
				continue
			}
			if _, err := v.Ledger.Release(d.Name()); err != nil {
				errs = append(errs, fmt.Errorf("%s/%s: %w", parent, d.Name(), err))
			}
		}
	}
	return errors.Join(errs...)
}

// overlay checks that every file which looks like one of the overlay is one,
// and is built into some release.
func (v *Verifier) overlay(context.Context) error {
	var errs []error
	entries, err := overlay.Scan(v.Repo, v.Ledger)
	if err != nil {
		errs = append(errs, err)
	}
	for _, e := range overlay.Unused(entries, v.Ledger) {
		errs = append(errs, fmt.Errorf("%s: it is built into no release: its feature %s is not carried where it would hold, or others stand in its place", e.Source, e.Slug))
	}
	roots, err := overlay.Roots(v.Repo)
	if err != nil {
		return err
	}
	for _, name := range v.files {
		inside := slices.ContainsFunc(roots, func(root string) bool { return strings.HasPrefix(name, root+"/") })
		switch {
		case inside, strings.HasPrefix(name, "api/"), strings.HasPrefix(name, "test/cluster/"), strings.HasPrefix(name, "test/thirdparty/"), strings.HasPrefix(name, "test/upstream/"):
		case strings.HasPrefix(name, "test/"), strings.HasPrefix(name, "pkg/"), strings.HasPrefix(name, "plugin/"),
			strings.HasPrefix(name, "staging/"), path.Ext(name) == ".patch" && !strings.Contains(name, "/testdata/") && !strings.HasPrefix(name, "hack/releases/"):
			errs = append(errs, fmt.Errorf("%s: it is not in the overlay: go.mod's ignore directive does not name a folder with it", name))
		}
	}
	for _, r := range v.Ledger.Carried() {
		stages, err := overlay.Resolve(entries, v.Ledger, r.Name)
		if err != nil {
			errs = append(errs, err)
		}
		for _, s := range stages {
			if len(s.Entries) == 0 {
				errs = append(errs, fmt.Errorf("%s: feature %s is carried in %s, but has no files there", ledger.Path, s.Feature.Slug, r.Name))
			}
		}
	}
	return errors.Join(errs...)
}

// seams checks that the overlay fits each carried release, and that seams are
// canonical: those of the newest of the releases that they hold for, with as much
// context as the others allow.
func (v *Verifier) seams(ctx context.Context) error {
	seams, err := v.changes()
	if err != nil {
		// What is known of some of the releases must not decide how a seam of all is written.
		return err
	}
	var errs []error
	for _, s := range seams {
		if err := v.canonical(ctx, s); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// drops checks that the seams which are left apply when a feature is dropped, together with
// those that need it. Whether that compiles is for "carry drop".
func (v *Verifier) drops(context.Context) error {
	var errs []error
	for _, r := range v.Ledger.Carried() {
		source, ok := v.sources[r.Name]
		if !ok {
			continue // reported as a pin
		}
		for _, f := range v.Ledger.FeaturesOf(r.Name) {
			l, dropped := v.Ledger.Drop(f.Slug, r.Name)
			if _, err := overlay.Apply(v.Repo, l, r, source, overlay.NoCode); err != nil {
				errs = append(errs, fmt.Errorf("without %s: %w\n(mend these seams, or let the ledger say that their features need %s)", strings.Join(dropped, " and "), err, f.Slug))
			}
		}
	}
	return errors.Join(errs...)
}

// canonical checks that a seam is what carry would write.
func (v *Verifier) canonical(ctx context.Context, s seamChanges) error {
	want, err := v.shared(ctx, s)
	if err != nil {
		return err
	}
	if want == nil {
		return fmt.Errorf("%s: it fits the releases that it holds for as it is written, but not as carry writes seams: give one of them a seam of its own", s.Source)
	}
	got, err := v.read(s.Source)
	if err != nil {
		return err
	}
	if err := patch.CheckIntention(got); err != nil {
		return fmt.Errorf("%s: %w", s.Source, err)
	}
	return v.derived(s.Source, got, patch.WithIntentionOf(got, want), "it is not written as carry writes seams (context, line numbers)")
}

// derived compares a file with what it has to be, or updates it.
func (v *Verifier) derived(name string, got, want []byte, complaint string) error {
	if bytes.Equal(got, want) {
		return nil
	}
	if !v.Update {
		return fmt.Errorf("%s: %s; \"make update\" writes it", name, complaint)
	}
	file := filepath.Join(v.Repo, filepath.FromSlash(name))
	v.Log("updated %s", name)
	if len(want) == 0 {
		return os.Remove(file)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, want, 0o644)
}

// tests compares seams of upstream's tests with the reasons in the ledger.
func (v *Verifier) tests(context.Context) error {
	entries, err := overlay.Scan(v.Repo, v.Ledger)
	if err != nil {
		return err
	}
	var errs []error
	fail := func(f *ledger.Feature, format string, args ...any) {
		errs = append(errs, fmt.Errorf("feature %s: %w", f.Slug, fmt.Errorf(format, args...)))
	}
	for i := range v.Ledger.Features {
		f := &v.Ledger.Features[i]
		changed := map[string]bool{}
		for _, e := range entries {
			if e.Seam && e.Slug == f.Slug && testCode(e.Path) {
				changed[e.Path] = true
			}
		}
		for _, t := range f.Tests {
			if !changed[t.Path] {
				fail(f, "%s is listed under tests, but no seam changes it", t.Path)
			}
			delete(changed, t.Path)
		}
		for _, p := range slices.Sorted(maps.Keys(changed)) {
			fail(f, "a seam changes upstream's test %s: say under tests why", p)
		}
		if f.State == ledger.Carried && f.KEP == 0 && len(f.Carries) == 0 {
			fail(f, "it has no KEP: list its changes under carries")
		}
		for _, c := range f.Carries {
			for _, t := range c.Tests {
				if err := v.testExists(t, entries); err != nil {
					fail(f, "carry %q: %w", c.Name, err)
				}
			}
		}
	}
	for _, r := range v.Ledger.Carried() {
		// An overlap is reported when the release is built.
		stages, _ := overlay.Resolve(entries, v.Ledger, r.Name)
		var built []overlay.Entry
		for _, s := range stages {
			built = append(built, s.Entries...)
		}
		for _, f := range v.Ledger.FeaturesOf(r.Name) {
			for _, c := range f.CarriesOf(r.Name) {
				if !slices.ContainsFunc(c.Tests, func(t string) bool { return v.testExists(t, built) == nil }) {
					fail(f, "carry %q: none of its tests is built into release %s: add one, or say under releases where it is carried", c.Name, r.Name)
				}
			}
		}
	}
	return errors.Join(errs...)
}

// testCode returns true for Go files which are tests of upstream or help them:
// a change there could hide one of behaviour.
func testCode(name string) bool {
	return path.Ext(name) == ".go" &&
		(strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "test/") || strings.HasSuffix(path.Dir(name), "testing"))
}

// testExists checks a test that the ledger names: a file of the overlay, or
// of upstream's with a seam, and after a colon a function in our file.
func (v *Verifier) testExists(test string, entries []overlay.Entry) error {
	file, function, _ := strings.Cut(test, ":")
	for _, e := range entries {
		if e.Path != file {
			continue
		}
		content, err := v.read(e.Source)
		if err != nil {
			return err
		}
		if function == "" || bytes.Contains(content, []byte("func "+function+"(")) {
			return nil
		}
	}
	return fmt.Errorf("the overlay has no test %s", test)
}

// format checks that Go files are formatted.
func (v *Verifier) format(context.Context) error {
	var errs []error
	for _, name := range v.files {
		if path.Ext(name) != ".go" {
			continue
		}
		content, err := v.read(name)
		if err != nil {
			return err
		}
		formatted, err := format.Source(content)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
			continue
		}
		if err := v.derived(name, content, formatted, "it is not formatted by gofmt"); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

var commentSigns = regexp.MustCompile(`(?m)^# ?`)

// licence is what the header of Kubernetes has.
var licence = regexp.MustCompile(`Copyright ([0-9]{4} )?The Kubernetes Authors\.\s+Licensed under the Apache License, Version 2\.0 \(the "License"\);[^\0]*` +
	`"AS IS" BASIS,\s+WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND[^\0]*limitations under the License\.\n`)

// licences checks the header of Go files and of scripts.
func (v *Verifier) licences(context.Context) error {
	var errs []error
	for _, name := range v.files {
		if ext := path.Ext(name); ext != ".go" && ext != ".sh" {
			continue
		}
		content, err := v.read(name)
		if err != nil {
			return err
		}
		if !licence.MatchString(commentSigns.ReplaceAllString(string(content), "")) {
			errs = append(errs, fmt.Errorf("%s: the licence header of Kubernetes is missing", name))
		}
	}
	return errors.Join(errs...)
}

// Shell does nothing but check the shell scripts.
func (v *Verifier) Shell(ctx context.Context) error {
	if err := v.list(ctx); err != nil {
		return err
	}
	return v.shell(ctx)
}

// shell runs shellcheck on scripts of our own.
func (v *Verifier) shell(ctx context.Context) error {
	var scripts []string
	for _, name := range v.files {
		content, err := v.read(name)
		if err != nil {
			return err
		}
		first, _, _ := strings.Cut(string(content), "\n")
		if path.Ext(name) == ".sh" || strings.HasPrefix(first, "#!") && strings.HasSuffix(first, "sh") {
			scripts = append(scripts, name)
		}
	}
	if len(scripts) == 0 {
		return nil
	}
	err := sys.Run(ctx, sys.Command(ctx, v.Repo, nil, "shellcheck", append([]string{"--external-sources", "--source-path=SCRIPTDIR"}, scripts...)...))
	if errors.Is(err, exec.ErrNotFound) {
		return errors.New("shellcheck is not installed: \"make deps\" installs it when it is root, otherwise run apt-get install shellcheck")
	}
	return err
}

// vet runs go vet on the root module, and on those in it.
func (v *Verifier) vet(ctx context.Context) error {
	env := append(os.Environ(), "GOWORK=off", sys.GoFlags("-mod=readonly"))
	return errors.Join(
		sys.Run(ctx, sys.Command(ctx, v.Repo, env, "go", "vet", "./...", "kubernetes-dra/cnistatus/...")),
		sys.Run(ctx, sys.Command(ctx, filepath.Join(v.Repo, "test", "thirdparty"), env, "go", "vet", "./...")),
	)
}

// trees builds the tree of each carried release, which fails if generated.patch is not what
// belongs to it, and compares the API delta in the repository with the generated one. An
// update runs the generators where they are needed.
func (v *Verifier) trees(ctx context.Context) error {
	// Generators use one CPU for a large part of their time.
	const parallel = 2
	releases := v.Ledger.Carried()
	errs, made := make([]error, len(releases)), make([]published, len(releases))
	var all sync.WaitGroup
	slots := make(chan struct{}, parallel)
	for i, r := range releases {
		slots <- struct{}{}
		all.Go(func() {
			made[i], errs[i] = v.tree(ctx, r)
			<-slots
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return v.published(made)
}

// releasesFile has a table of what was published. The rows of this revision are checked.
const releasesFile = "docs/releases.md"

// published is a version, with the commit and the files of its tree.
type published struct{ version, commit, tree string }

// published compares the table of releases with the trees.
func (v *Verifier) published(made []published) error {
	got, err := v.read(releasesFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	want := string(got)
	for _, p := range made {
		row := regexp.MustCompile(`(?m)^(\| ` + regexp.QuoteMeta(p.version) + ` \|[^|]*\|)[^|]*\|[^|]*\|`)
		if !row.MatchString(want) {
			return fmt.Errorf("%s: the table has no row for %s: add one that begins with | %[2]s | date | | |", releasesFile, p.version)
		}
		want = row.ReplaceAllString(want, fmt.Sprintf("$1 `%.12s` | `%s` |", p.commit, p.tree))
	}
	return v.derived(releasesFile, got, []byte(want), "a commit or tree in it is not what is built here: if the revision was published, count up revision in "+ledger.Path)
}

// tree builds the tree of a release, and checks it.
func (v *Verifier) tree(ctx context.Context, r *ledger.Release) (published, error) {
	t, err := v.Tree(r.Name)
	if err != nil {
		return published{}, err
	}
	build := t.Build
	if v.Update {
		build = t.UpdateGenerated
	}
	state, err := build(ctx)
	if err != nil {
		return published{}, fmt.Errorf("release %s: %w", r.Name, err)
	}
	files, err := t.Content(ctx, state)
	return published{v.Ledger.Stamp(r), state.Head, files}, errors.Join(err, v.apiDelta(ctx, t, state), t.CheckPatches(ctx, state))
}

// apiDelta checks the reviewed difference between the API that upstream serves
// and the one that the tree serves.
func (v *Verifier) apiDelta(ctx context.Context, t *tree.Tree, s *tree.State) error {
	delta, err := codegen.APIDelta(ctx, t.Dir(), s.Base, s.Head)
	if err != nil {
		return err
	}
	dir := codegen.DeltaDir(v.Repo, t.Release.Name)
	reviewed, err := codegen.ReadDelta(dir)
	if err != nil {
		return err
	}
	problems := delta.Compare(reviewed)
	switch {
	case len(problems) == 0:
		return nil
	case v.Update:
		v.Log("updated %s: to be reviewed", dir)
		return delta.Write(dir)
	default:
		return fmt.Errorf("release %s: the reviewed API delta is not what the tree has (\"make update\" writes it):\n%s",
			t.Release.Name, strings.Join(problems, "\n"))
	}
}
