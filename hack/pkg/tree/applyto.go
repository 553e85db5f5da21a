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
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"kubernetes-dra/hack/pkg/git"
	"kubernetes-dra/hack/pkg/tree/overlay"
)

// Applied is what ApplyTo did to a checkout.
type Applied struct {
	// From and To are the commits before and after.
	From, To string
	// Commits are those in between, oldest first.
	Commits []AppliedCommit
	// Generated says that the last one is the generated code.
	Generated bool
}

// AppliedCommit is one commit that ApplyTo made.
type AppliedCommit struct {
	Hash, Subject string
}

// ApplyTo commits the overlay of the release on top of what is checked out: one
// commit for each feature, and one with the generated code, the same as in the
// tree. Everything is prepared in a repository of its own, which borrows the
// objects of the checkout; the checkout itself changes in the last step only,
// so an error or an interrupt before leaves it as it was.
func (t *Tree) ApplyTo(ctx context.Context, c *Checkout) (*Applied, error) {
	unlock, err := t.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := c.checkIdle(ctx); err != nil {
		return nil, err
	}

	// The release as it is there. Messages and errors name the version.
	release := *t.Release
	if c.Version != "" {
		release.Version = c.Version
	}
	when, err := c.date(ctx)
	if err != nil {
		return nil, err
	}
	if when.After(release.Date()) {
		release.Released = when.Format(time.RFC3339)
	}

	features, err := overlay.Apply(t.Repo, t.Ledger, &release, checkoutBase{c, ctx})
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("the overlay does not fit %s (%s); nothing was changed there:\n%w", c.Dir, c.Describe(), errors.Join(err, t.appliedBefore(ctx, c)))
	}
	var paths []string
	for _, f := range features {
		for i := range f.Changes {
			change := &f.Changes[i]
			if change.Seam {
				change.Executable = c.files[change.Path].mode == mode(true)
			}
			paths = append(paths, change.Path)
		}
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("release %s carries nothing: nothing to apply", release.Name)
	}
	if err := c.checkFree(ctx, paths); err != nil {
		return nil, err
	}

	b, remove, err := t.applyBuild(ctx, c)
	if err != nil {
		return nil, err
	}
	defer remove()
	b.Release = &release
	if err := b.commitFeatures(ctx, features); err != nil {
		return nil, err
	}
	if err := b.takeGenerated(ctx, c, features); err != nil {
		return nil, err
	}
	if err := b.commitGenerated(ctx, features); err != nil {
		return nil, err
	}
	if err := b.handOver(ctx, c); err != nil {
		return nil, err
	}
	return b.applied(ctx, c)
}

// date is the time of the commit that is checked out. No commit on top of it
// should be older, or git takes longer to find its way through the history.
func (c *Checkout) date(ctx context.Context) (time.Time, error) {
	out, err := c.git().Run(ctx, "show", "--no-patch", "--no-show-signature", "--format=%cI", c.Head)
	if err != nil {
		return time.Time{}, err
	}
	when, err := time.Parse(time.RFC3339, out)
	return when.UTC(), err
}

// appliedBefore looks for our commits in the history, if the overlay does not fit.
func (t *Tree) appliedBefore(ctx context.Context, c *Checkout) error {
	args := []string{"log", "--max-count=1", "--format=%h %s", "--no-show-signature", "--fixed-strings"}
	for _, f := range t.Ledger.FeaturesOf(t.Release.Name) {
		args = append(args, "--grep="+subject(f))
	}
	if len(args) == 5 {
		return nil
	}
	// It is only a hint: without it, the error is still the right one.
	out, err := c.git().Run(ctx, append(args, c.Head)...)
	if err != nil || out == "" {
		return nil
	}
	return fmt.Errorf("the history has commit %s: it seems that the overlay was applied before", out)
}

// applyBuild prepares the repository in which the commits are made. Remove deletes it.
func (t *Tree) applyBuild(ctx context.Context, c *Checkout) (b *build, remove func(), err error) {
	tmp, err := os.MkdirTemp("", "carry-apply-")
	if err != nil {
		return nil, nil, err
	}
	remove = func() {
		if err := os.RemoveAll(tmp); err != nil {
			t.Log("removing %s: %v", tmp, err)
		}
	}
	copied := *t
	b = &build{
		Tree:  &copied,
		old:   &State{},
		dir:   filepath.Join(tmp, "kubernetes"),
		state: &State{Base: c.Head},
	}
	if err := b.borrow(ctx, c); err != nil {
		remove()
		return nil, nil, err
	}
	return b, remove, nil
}

// borrow makes a repository that has no objects but those of the checkout, and of
// the tree if there is one.
func (b *build) borrow(ctx context.Context, c *Checkout) error {
	format, err := c.git().Run(ctx, "rev-parse", "--show-object-format")
	if err != nil {
		return err
	}
	if err := b.init(ctx, "--object-format="+format); err != nil {
		return err
	}
	repos := []git.Dir{c.git()}
	if state, err := b.State(); err == nil && state != nil {
		repos = append(repos, b.git())
	}
	var alternates strings.Builder
	for _, repo := range repos {
		if other, err := repo.Run(ctx, "rev-parse", "--show-object-format"); err != nil || other != format {
			continue
		}
		objects, err := gitPath(ctx, repo, "objects")
		if err != nil {
			return err
		}
		fmt.Fprintln(&alternates, objects)
	}
	info := filepath.Join(b.dir, ".git", "objects", "info")
	if err := os.MkdirAll(info, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(info, "alternates"), []byte(alternates.String()), 0o644)
}

// takeGenerated makes commitGenerated take the generated code of the tree, if there
// is one and everything that generators may read is the same in the checkout.
func (b *build) takeGenerated(ctx context.Context, c *Checkout, features []overlay.Applied) error {
	if b.Generate == nil {
		return nil
	}
	state, err := b.State()
	if err != nil || state == nil || state.GeneratedKey == "" {
		return nil // no tree, or none that is worth anything
	}
	key, err := b.generatedKey(state, features)
	if err != nil {
		return err
	}
	if key != state.GeneratedKey {
		return nil
	}
	base, err := listTree(ctx, b.git(), state.Base)
	if err != nil {
		return err
	}
	if differs := differsForGenerators(base, c.files); differs != "" {
		b.Log("generated code: made anew, because %s is not as in %s", differs, b.git())
		return nil
	}
	b.old = state
	// Then it is the same input: the key has to be, too.
	if b.old.GeneratedKey, err = b.generatedKey(b.state, features); err != nil {
		return err
	}
	return nil
}

// differsForGenerators compares a checkout with the base of a tree. It returns a
// file that generators may read and that differs, empty if there is none. The
// checkout has more files than the tree, which is made from modules: vendor, other
// modules, and what is no part of a module.
func differsForGenerators(base, checkout map[string]checkoutFile) string {
	var found []string
	modules := map[string]bool{"vendor": true}
	for p := range checkout {
		if _, ok := base[p]; !ok && path.Base(p) == "go.mod" {
			modules[path.Dir(p)] = true
		}
	}
	for p, f := range base {
		// It names modules, fewer in a tree because some are not to be had.
		if p != "go.work" && readByGenerators(p) && checkout[p].hash != f.hash {
			found = append(found, p)
		}
	}
	for p := range checkout {
		if _, ok := base[p]; ok || !readByGenerators(p) || !slices.Contains([]string{".go", ".proto", ".json"}, path.Ext(p)) {
			continue
		}
		other := false
		for dir := path.Dir(p); dir != "." && !other; dir = path.Dir(dir) {
			other = modules[dir]
		}
		if !other {
			found = append(found, p)
		}
	}
	if len(found) == 0 {
		return ""
	}
	return slices.Min(found)
}

// handOver gives the commits to the checkout, and moves it there. From here on, it is
// not interrupted any more.
func (b *build) handOver(ctx context.Context, c *Checkout) error {
	paths, err := pathsOf(diffTrees(ctx, b.repo(), c.Head, b.state.Head))
	if err != nil {
		return err
	}
	// Again: someone may have worked there while the generators ran.
	now, err := OpenCheckout(ctx, c.Dir)
	if err != nil {
		return err
	}
	if now.Head != c.Head || now.Branch != c.Branch {
		return fmt.Errorf("%s: something else was checked out in the meantime; nothing was changed there", c.Dir)
	}
	if err := c.checkIdle(ctx); err != nil {
		return err
	}
	if err := c.checkFree(ctx, paths); err != nil {
		return err
	}
	pack, err := b.repo().Output(ctx, strings.NewReader(b.state.Head+"\n^"+c.Head+"\n"), nil, "pack-objects", "--quiet", "--revs", "--stdout")
	if err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	// Objects that no ref leads to are no change; git removes them some day.
	if _, err := c.git().Output(ctx, bytes.NewReader(pack), nil, "unpack-objects", "-q"); err != nil {
		return err
	}
	// It has checks of its own, and makes them before it changes anything.
	_, err = c.git().Run(ctx, "merge", "--ff-only", "--quiet", "--no-stat", "--no-autostash", "--no-verify-signatures", "--no-overwrite-ignore", b.state.Head)
	if err != nil {
		return fmt.Errorf("moving %s to the new commits: %w; if git left something there, \"git -C %s reset --hard %s\" undoes it", c.Dir, err, c.Dir, c.Head)
	}
	return nil
}

// applied tells what was done.
func (b *build) applied(ctx context.Context, c *Checkout) (*Applied, error) {
	out, err := c.git().Run(context.WithoutCancel(ctx), "log", "--reverse", "--no-show-signature", "--format=%H %s", c.Head+".."+b.state.Head)
	if err != nil {
		return nil, err
	}
	a := &Applied{From: c.Head, To: b.state.Head, Generated: b.state.Head != b.state.Written()}
	for line := range strings.Lines(out) {
		hash, subject, _ := strings.Cut(strings.TrimSpace(line), " ")
		a.Commits = append(a.Commits, AppliedCommit{Hash: hash, Subject: subject})
	}
	return a, nil
}
