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
	"path/filepath"
	"strings"

	"kubernetes-dra/hack/pkg/git"
	"kubernetes-dra/hack/pkg/sys"
	"kubernetes-dra/hack/pkg/tree/ledger"
	"kubernetes-dra/hack/pkg/tree/overlay"
	"kubernetes-dra/hack/pkg/tree/patch"
)

// Port brings the features of the release to another one: it cherry-picks their commits
// onto the untouched other release, in a repository of its own. Git stops at a conflict;
// whoever resolved all of them calls Port again. Then it writes what is not in the overlay
// yet, seams and files for the other release.
func (t *Tree) Port(ctx context.Context, to *ledger.Release) error {
	repo := git.Dir(filepath.Join(t.Repo, "_output", "port", t.Release.Name+"-"+to.Name))
	if _, err := os.Stat(string(repo)); err != nil {
		if err := t.startPort(ctx, repo, to); err != nil {
			return err
		}
	}
	if head, err := repo.Run(ctx, "rev-parse", "--verify", "--quiet", "CHERRY_PICK_HEAD"); err == nil {
		conflicts, err := repo.Run(ctx, "diff", "--name-only", "--diff-filter=U")
		if err != nil {
			return err
		}
		return fmt.Errorf("commit %.12s does not fit %s. In %s, resolve the conflicts and git add the files, then git cherry-pick --continue until all commits are there, and run the same make port again:\n\t%s",
			head, to.Version, repo, strings.ReplaceAll(conflicts, "\n", "\n\t"))
	}
	if _, err := os.Stat(filepath.Join(string(repo), ".git", "sequencer")); err == nil {
		return fmt.Errorf("%s is in the middle of a cherry-pick: run git cherry-pick --continue there until all commits are there, and the same make port again", repo)
	}
	entries, err := overlay.Scan(t.Repo, t.Ledger)
	if err != nil {
		return err
	}
	log, err := repo.Run(ctx, "log", "--reverse", "--format=%H %s", "refs/carry/base..HEAD")
	if err != nil {
		return err
	}
	// A feature that was skipped would look as if it was not needed.
	carried, err := repo.Run(ctx, "log", "--min-parents=1", "--format=%H %s", carriedRef)
	if err != nil {
		return err
	}
	for line := range strings.Lines(carried) {
		commit, subject, _ := strings.Cut(line, " ")
		if slug, _, _ := strings.Cut(subject, ":"); !strings.Contains(log, " "+slug+":") {
			return fmt.Errorf("%s has no commit of %s: run git cherry-pick --keep-redundant-commits %.12s there, and the same make port again", repo, slug, commit)
		}
	}
	var errs []error
	seen := map[string]bool{}
	for line := range strings.Lines(log) {
		commit, subject, _ := strings.Cut(line, " ")
		slug, _, _ := strings.Cut(subject, ":")
		edits, err := diffTrees(ctx, repo, commit+"^", commit)
		if err != nil {
			return err
		}
		for _, e := range edits {
			if e.gone() || t.Ledger.Feature(slug) == nil {
				return fmt.Errorf("%s: commit %.12s (%s): it must be one of a feature, and cannot delete %s", repo, commit, slug, e.Path)
			}
			after, err := show(ctx, repo, commit, e.Path)
			if err != nil {
				return err
			}
			before, err := show(ctx, repo, commit+"^", e.Path)
			if err != nil {
				return err
			}
			seen[slug+" "+e.Path] = true
			entry := overlay.Entry{Path: e.Path, Slug: slug, Seam: before != nil}
			if err := t.portFile(ctx, to, entries, entry, patch.Change{Before: before, After: after}); err != nil {
				errs = append(errs, fmt.Errorf("%s: commit %.12s: %s: %w", repo, commit, e.Path, err))
			}
		}
	}
	for _, e := range entries {
		if e.Seam && (e.Only == nil || e.Only.Contains(to.Name)) && !seen[e.Slug+" "+e.Path] {
			t.Log("%s: not needed in %s: give it a name that ends before", e.Source, to.Name)
		}
	}
	return errors.Join(errs...)
}

// carriedRef is the last commit that was to be picked.
const carriedRef = "refs/carry/carried"

// startPort makes the repository, with the objects of the tree, and picks its commits.
func (t *Tree) startPort(ctx context.Context, final git.Dir, to *ledger.Release) error {
	s, err := t.Build(ctx)
	if err != nil {
		return err
	}
	up, err := t.Open(ctx, to)
	if err != nil {
		return err
	}
	// Prepared beside it, where an interrupted run may have left something.
	repo := final + ".new"
	if err := os.RemoveAll(string(repo)); err != nil {
		return err
	}
	if err := initRepository(ctx, string(repo)); err != nil {
		return err
	}
	objects := filepath.Join(t.Dir(), ".git", "objects")
	if err := sys.WriteFile(filepath.Join(string(repo), ".git/objects/info/alternates"), []byte(objects+"\n"), 0o644); err != nil {
		return err
	}
	other := *t
	other.Release = to
	base, err := other.commitFiles(ctx, repo, up)
	if err != nil {
		return err
	}
	for _, args := range [][]string{
		{"config", "user.name", authorName}, {"config", "user.email", authorMail},
		{"update-ref", carriedRef, s.Written()}, {"checkout", "--quiet", "-B", Branch, base},
	} {
		if _, err := repo.Run(ctx, args...); err != nil {
			return err
		}
	}
	// It exits with 1 at a conflict.
	if _, err := repo.Run(ctx, "cherry-pick", "--keep-redundant-commits", s.Base+".."+s.Written()); err != nil && git.ExitCode(err) != 1 {
		return err
	}
	return os.Rename(string(repo), string(final))
}

// portFile writes a file for another release, unless the one that it gets does the same.
func (t *Tree) portFile(ctx context.Context, to *ledger.Release, entries []overlay.Entry, e overlay.Entry, c patch.Change) error {
	holder, err := overlay.Holder(overlay.Siblings(entries, e), to.Name)
	if err != nil {
		return err
	}
	content, err := overlay.Restore(e.Path, c.After, t.Release)
	if e.Seam && err == nil {
		content, err = patch.Diff(ctx, e.Path, c.Before, c.After)
	}
	if err != nil {
		return err
	}
	only := alone(t.Ledger, to)
	if holder != nil {
		has, err := os.ReadFile(filepath.Join(t.Repo, filepath.FromSlash(holder.Source)))
		if e.Seam {
			content = patch.WithIntentionOf(has, content)
		}
		if err != nil || bytes.Equal(has, content) {
			return err
		}
		if p, err := patch.Parse(has); e.Seam && err == nil {
			if after, err := p.Apply(c.Before); err == nil && bytes.Equal(after, c.After) {
				return nil
			}
		}
		if holder.Only != nil {
			advice := "give it a name that does not"
			if *holder.Only == only {
				advice = "remove it to have it written anew, or change the commit"
			}
			return fmt.Errorf("%s holds for %s, too, but does something else: %s, and run this again", holder.Source, to.Name, advice)
		}
	}
	t.Log("written: %s", e.Qualified(&only).Source)
	return sys.WriteFile(filepath.Join(t.Repo, filepath.FromSlash(e.Qualified(&only).Source)), content, 0o644)
}
