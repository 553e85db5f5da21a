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
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"kubernetes-dra/hack/pkg/git"
	"kubernetes-dra/hack/pkg/sys"
	"kubernetes-dra/hack/pkg/tree/ledger"
	"kubernetes-dra/hack/pkg/tree/overlay"
	"kubernetes-dra/hack/pkg/tree/patch"
)

// Save takes the edits that were made in the tree back to the overlay: new
// files and changed files of our own are copied, deleted ones removed, and
// edits of upstream files go into seams. It writes nothing unless all edits
// can be saved. Generated code is left out.
//
// An edit of an upstream file belongs to the feature given by slug, and else
// to the last one that has a seam there, or to the only one there is.
//
// A file that other releases share stays shared, unless it is a seam that
// does not fit one of them: then it is saved for this release alone.
func (t *Tree) Save(ctx context.Context, slug string) error {
	unlock, err := t.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	state, err := t.State()
	if err != nil {
		return err
	}
	if state == nil {
		return fmt.Errorf("there is no tree of release %s: nothing to save", t.Release.Name)
	}
	s := &save{Tree: t, state: state, slug: slug, features: t.Ledger.FeaturesOf(t.Release.Name)}
	if slug != "" && index(s.features, slug) < 0 {
		return fmt.Errorf("no feature %q is carried in release %s", slug, t.Release.Name)
	}
	if s.entries, err = overlay.Scan(t.Repo, t.Ledger); err != nil {
		return err
	}
	if s.stages, err = overlay.Resolve(s.entries, t.Ledger, t.Release.Name); err != nil {
		return err
	}
	edits, err := t.edits(ctx, state)
	if err != nil {
		return err
	}
	generated, err := pathsOf(diffTrees(ctx, t.git(), state.Written(), state.Head))
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range edits {
		var now []byte
		if e.regular() {
			if now, err = t.git().Output(ctx, nil, nil, "cat-file", "blob", e.Hash); err != nil {
				return err
			}
		}
		if slices.Contains(generated, e.Path) || overlay.IsGenerated(e.Path, now) {
			t.Log("generated, not saved: %s", e.Path)
		} else if err := s.edit(ctx, e, now); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", e.Path, err))
		}
	}
	if errs == nil {
		errs = append(errs, s.share(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("nothing was saved:\n%w", err)
	}
	return s.write()
}

// save is one run of Save.
type save struct {
	*Tree
	state    *State
	slug     string
	features []*ledger.Feature
	// entries are all of the overlay, stages those of the release.
	entries []overlay.Entry
	stages  []overlay.Stage
	// files is what to write.
	files []*output
}

// output is an overlay file to write, or to remove.
type output struct {
	overlay.Entry
	content []byte
	// forms of a seam, the one with the most context first.
	forms      [][]byte
	executable bool
	remove     bool
	// others are the other carried releases that the file holds for.
	others []string
}

// at lists the files of a release that make a file of the tree.
func at(stages []overlay.Stage, path string) []overlay.Entry {
	var found []overlay.Entry
	for _, stage := range stages {
		for _, e := range stage.Entries {
			if e.Path == path {
				found = append(found, e)
			}
		}
	}
	return found
}

// show returns the content of a file in a commit, nil if there is none.
func show(ctx context.Context, repo git.Dir, commit, path string) ([]byte, error) {
	entry, err := repo.Output(ctx, nil, nil, "ls-tree", "-z", commit, "--", path)
	if err != nil || len(entry) == 0 {
		return nil, err
	}
	content, err := repo.Output(ctx, nil, nil, "cat-file", "blob", commit+":"+path)
	if content == nil && err == nil {
		content = []byte{} // empty, but there
	}
	return content, err
}

func (s *save) edit(ctx context.Context, e edit, now []byte) error {
	if !e.gone() && !e.regular() {
		return errors.New("only regular files can be saved")
	}
	inBase, err := show(ctx, s.git(), s.state.Base, e.Path)
	if err != nil {
		return err
	}
	entries := at(s.stages, e.Path)
	switch {
	case inBase != nil:
		return s.editSeams(ctx, e, entries, inBase, now)
	case len(entries) > 0:
		return s.editWhole(e, entries[0], now)
	default:
		return s.addWhole(e, now)
	}
}

// addWhole takes a new file into the overlay.
func (s *save) addWhole(e edit, now []byte) error {
	if _, built := s.state.Sums[e.Path]; built && e.gone() {
		return nil // saved before
	}
	roots, err := overlay.Roots(s.Repo)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(roots, func(root string) bool { return strings.HasPrefix(e.Path, root+"/") }) {
		return fmt.Errorf("the overlay has no folder for it: it consists of those in the ignore directive of go.mod (%s)", strings.Join(roots, ", "))
	}
	if _, err := overlay.Owners(e.Path, s.Ledger); err != nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(s.Repo, filepath.FromSlash(e.Path))); err == nil {
		return errors.New("the overlay has such a file, which this release does not get: choose another name")
	}
	content, err := overlay.Restore(e.Path, now, s.Release)
	if err != nil {
		return err
	}
	s.files = append(s.files, &output{Entry: overlay.Entry{Source: e.Path, Path: e.Path}, content: content, executable: e.Mode == "100755"})
	return nil
}

// editWhole takes a changed, or deleted, file of our own back.
func (s *save) editWhole(e edit, entry overlay.Entry, content []byte) error {
	if err := s.unchanged(entry.Source); err != nil {
		return err
	}
	if !e.gone() {
		// Imports that were replaced are put back, if our file has them.
		before, err := os.ReadFile(filepath.Join(s.Repo, filepath.FromSlash(entry.Source)))
		if err != nil {
			return err
		}
		if replaced, err := overlay.Substitute(e.Path, before, s.Release); err != nil {
			return err
		} else if !bytes.Equal(replaced, before) {
			if content, err = overlay.Restore(e.Path, content, s.Release); err != nil {
				return err
			}
		}
	}
	s.files = append(s.files, &output{Entry: entry, content: content, remove: e.gone(), executable: e.Mode == "100755"})
	return nil
}

// unchanged makes sure that an overlay file is still what the tree was built
// from, so that saving does not replace an edit made in the overlay.
func (s *save) unchanged(source string) error {
	sum, err := s.fileDigest(source)
	if err == nil && sum != s.state.Sums[source] {
		err = fmt.Errorf("it was edited in the tree, and %s was changed in the overlay since the tree was built: undo one of them", source)
	}
	return err
}

// editSeams brings an edit of an upstream file into its feature's seam. The
// seams of later features are written anew on top of it.
func (s *save) editSeams(ctx context.Context, e edit, seams []overlay.Entry, base, now []byte) error {
	if e.gone() {
		return errors.New("the overlay cannot delete a file of upstream")
	}
	if e.Mode != e.OldMode {
		return errors.New("the overlay cannot change the mode of a file of upstream")
	}
	slug, err := s.attribute(seams)
	if err != nil {
		return err
	}
	last, err := show(ctx, s.git(), s.state.Written(), e.Path)
	if err != nil {
		return err
	}
	// The file after each feature, as it was and as it will be.
	was, becomes := base, base
	for i, f := range s.features {
		for _, c := range s.state.Features {
			if c.Slug == f.Slug {
				if was, err = show(ctx, s.git(), c.Commit, e.Path); err != nil {
					return err
				}
			}
		}
		if i < index(s.features, slug) {
			becomes = was
			continue
		}
		before := becomes
		if becomes, err = patch.Merge(ctx, was, last, now); err != nil {
			return fmt.Errorf("as an edit of %s: %w: make it one of another feature with FEATURE=<slug>", slug, err)
		}
		forms, err := patch.Forms(ctx, e.Path, patch.Change{Before: before, After: becomes})
		if err != nil {
			return err
		}
		entry := overlay.Entry{Path: e.Path, Slug: f.Slug, Seam: true}.Qualified(nil)
		if at := slices.IndexFunc(seams, func(s overlay.Entry) bool { return s.Slug == f.Slug }); at >= 0 {
			entry = seams[at]
		} else if forms == nil {
			continue
		}
		if err := s.unchanged(entry.Source); err != nil {
			return err
		}
		s.files = append(s.files, &output{Entry: entry, forms: forms, remove: forms == nil})
	}
	return nil
}

// attribute decides which feature an edit of an upstream file belongs to.
func (s *save) attribute(seams []overlay.Entry) (string, error) {
	if s.slug != "" {
		return s.slug, nil
	}
	if len(seams) > 0 {
		return seams[len(seams)-1].Slug, nil
	}
	if len(s.features) == 1 {
		return s.features[0].Slug, nil
	}
	var slugs []string
	for _, f := range s.features {
		slugs = append(slugs, f.Slug)
	}
	return "", fmt.Errorf("it has no seam yet: say for which feature with FEATURE=<slug>, one of %s", strings.Join(slugs, ", "))
}

// write writes what was collected, and notes what an overlay file is now, so that
// more edits of the tree can be saved before it is built again.
func (s *save) write() error {
	saved := 0
	for _, f := range s.files {
		changed, err := f.write(filepath.Join(s.Repo, filepath.FromSlash(f.Source)))
		if err != nil {
			return err
		}
		verb, tense := "saved", "is"
		if f.remove {
			verb, tense = "removed", "was"
		}
		if changed {
			also := ""
			if len(f.others) > 0 {
				also = ", which " + tense + " also in " + strings.Join(f.others, ", ")
			}
			s.Log("%s: %s%s", verb, f.Source, also)
			saved++
		}
		if s.state.Sums[f.Source], err = s.fileDigest(f.Source); err != nil {
			return err
		}
	}
	if saved == 0 {
		s.Log("the overlay has everything that is in the tree")
	}
	return s.state.write(s.Dir())
}

// write writes or removes the file, and says whether that changed anything.
func (f *output) write(name string) (bool, error) {
	info, err := os.Stat(name)
	exists := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if f.remove {
		if exists {
			err = os.Remove(name)
		}
		return exists, err
	}
	mode := fs.FileMode(0o644)
	if f.executable {
		mode = 0o755
	}
	if exists {
		old, err := os.ReadFile(name)
		if f.Seam {
			f.content = patch.WithIntentionOf(old, f.content)
		}
		if err != nil || bytes.Equal(old, f.content) && info.Mode()&0o100 == mode&0o100 {
			return false, err
		}
	}
	return true, sys.WriteFile(name, f.content, mode)
}
