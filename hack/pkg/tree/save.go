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
	if err := t.recover(ctx); err != nil {
		return err
	}
	state, err := t.State()
	if err != nil {
		return err
	}
	if state == nil {
		return fmt.Errorf("there is no tree of release %s: nothing to save", t.Release.Name)
	}
	if slug != "" && !slices.ContainsFunc(t.Ledger.FeaturesOf(t.Release.Name), has(slug)) {
		return fmt.Errorf("no feature %q is carried in release %s", slug, t.Release.Name)
	}
	s := &save{Tree: t, state: state, slug: slug}
	if s.roots, err = overlay.Roots(t.Repo); err != nil {
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
		if slices.Contains(generated, e.Path) || overlay.IsGenerated(e.Path, s.now(ctx, e)) {
			t.Log("generated, not saved: %s", e.Path)
			continue
		}
		if err := s.edit(ctx, e); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", e.Path, err))
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("nothing was saved:\n%w", errors.Join(errs...))
	}
	if err := s.share(ctx); err != nil {
		return fmt.Errorf("nothing was saved:\n%w", err)
	}
	return s.write()
}

// save is one run of Save.
type save struct {
	*Tree
	state *State
	slug  string
	roots []string
	// files is what to write.
	files []output
}

// output is an overlay file to write, or to remove.
type output struct {
	Source
	content []byte
	// forms of a seam, the one with the most context first.
	forms      [][]byte
	executable bool
	remove     bool
	// others are the other carried releases that the file holds for.
	others []string
}

// sharedWith says which other releases a change of the file concerns.
func (f *output) sharedWith(verb string) string {
	if len(f.others) == 0 {
		return ""
	}
	return ", which " + verb + " also in " + strings.Join(f.others, ", ")
}

// now returns the content of an edited file as it is now, nil if it is gone.
func (s *save) now(ctx context.Context, e edit) []byte {
	if e.gone() || !e.regular() {
		return nil
	}
	content, err := s.git().Output(ctx, nil, nil, "cat-file", "blob", e.Hash)
	if err != nil {
		return nil
	}
	return content
}

func (s *save) edit(ctx context.Context, e edit) error {
	if !e.gone() && !e.regular() {
		return errors.New("only regular files can be saved")
	}
	inBase, err := s.show(ctx, s.state.Base, e.Path)
	if err != nil {
		return err
	}
	if inBase != nil {
		return s.editSeams(ctx, e, inBase)
	}
	for _, source := range s.state.Sources {
		if source.Path == e.Path {
			return s.editWhole(e, source, s.now(ctx, e))
		}
	}
	return s.addWhole(ctx, e)
}

// addWhole takes a new file into the overlay.
func (s *save) addWhole(ctx context.Context, e edit) error {
	if !slices.ContainsFunc(s.roots, func(root string) bool { return strings.HasPrefix(e.Path, root+"/") }) {
		return fmt.Errorf("the overlay has no folder for it: it consists of those in the ignore directive of go.mod (%s)", strings.Join(s.roots, ", "))
	}
	if _, err := overlay.Owners(e.Path, s.Ledger); err != nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(s.Repo, filepath.FromSlash(e.Path))); err == nil {
		return errors.New("the overlay has such a file, but the tree was built without it: build the tree first, or move it away")
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	content, err := overlay.Restore(e.Path, s.now(ctx, e), s.Release)
	if err != nil {
		return err
	}
	s.files = append(s.files, output{
		Source:  Source{Source: e.Path, Path: e.Path},
		content: content, executable: e.Mode == "100755",
	})
	return nil
}

// editWhole takes a changed, or deleted, file of our own back.
func (s *save) editWhole(e edit, source Source, content []byte) error {
	if err := s.unchanged(source); err != nil {
		return err
	}
	if e.gone() {
		s.files = append(s.files, output{Source: source, remove: true})
		return nil
	}
	// Imports that were replaced are put back, if our file has them.
	before, err := os.ReadFile(filepath.Join(s.Repo, filepath.FromSlash(source.Source)))
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
	s.files = append(s.files, output{Source: source, content: content, executable: e.Mode == "100755"})
	return nil
}

// unchanged makes sure that an overlay file is still what the tree was built
// from, so that saving does not replace an edit made in the overlay.
func (s *save) unchanged(source Source) error {
	sum, err := fileDigest(filepath.Join(s.Repo, filepath.FromSlash(source.Source)))
	if err != nil {
		return err
	}
	if sum != source.SHA256 {
		return fmt.Errorf("it was edited in the tree, and %s was changed in the overlay since the tree was built: undo one of them", source.Source)
	}
	return nil
}

// editSeams brings an edit of an upstream file into its feature's seam. The
// seams of later features are written anew on top of it.
func (s *save) editSeams(ctx context.Context, e edit, base []byte) error {
	if e.gone() {
		return errors.New("the overlay cannot delete a file of upstream")
	}
	if e.Mode != e.OldMode {
		return errors.New("the overlay cannot change the mode of a file of upstream")
	}
	features := s.Ledger.FeaturesOf(s.Release.Name)
	var seams []Source
	for _, source := range s.state.Sources {
		if source.Path == e.Path {
			seams = append(seams, source)
		}
	}
	slug, err := s.attribute(seams)
	if err != nil {
		return err
	}
	last, err := s.show(ctx, s.state.Written(), e.Path)
	if err != nil {
		return err
	}
	target := slices.IndexFunc(features, has(slug))
	// The file before and after each feature, as it was and as it will be.
	was, becomes := base, base
	for i, f := range features {
		for _, c := range s.state.Features {
			if c.Slug == f.Slug {
				if was, err = s.show(ctx, c.Commit, e.Path); err != nil {
					return err
				}
			}
		}
		before := becomes
		if becomes = was; i >= target {
			if becomes, err = patch.Merge(ctx, was, last, s.now(ctx, e)); err != nil {
				return fmt.Errorf("as an edit of %s: %w: make it one of another feature with FEATURE=<slug>", slug, err)
			}
		}
		if i < target {
			continue
		}
		forms, err := patch.Forms(ctx, e.Path, patch.Change{Before: before, After: becomes})
		if err != nil {
			return err
		}
		old := Source{Source: e.Path + "." + f.Slug + ".patch", Path: e.Path, Slug: f.Slug, Seam: true}
		if at := slices.IndexFunc(seams, func(s Source) bool { return s.Slug == f.Slug }); at >= 0 {
			old = seams[at]
		} else if forms == nil {
			continue
		}
		if err := s.unchanged(old); err != nil {
			return err
		}
		f := output{Source: old, forms: forms, remove: forms == nil}
		if !f.remove {
			f.content = forms[0]
		}
		s.files = append(s.files, f)
	}
	return nil
}

// attribute decides which feature an edit of an upstream file belongs to.
func (s *save) attribute(seams []Source) (string, error) {
	if s.slug != "" {
		return s.slug, nil
	}
	features := s.Ledger.FeaturesOf(s.Release.Name)
	for _, f := range slices.Backward(features) {
		if slices.ContainsFunc(seams, func(s Source) bool { return s.Slug == f.Slug }) {
			return f.Slug, nil
		}
	}
	if len(features) == 1 {
		return features[0].Slug, nil
	}
	var slugs []string
	for _, f := range features {
		slugs = append(slugs, f.Slug)
	}
	return "", fmt.Errorf("it has no seam yet: say for which feature with FEATURE=<slug>, one of %s", strings.Join(slugs, ", "))
}

// write writes what was collected, and remembers it.
func (s *save) write() error {
	saved := 0
	for _, f := range s.files {
		name := filepath.Join(s.Repo, filepath.FromSlash(f.Source.Source))
		old, err := os.ReadFile(name)
		exists := err == nil
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		switch {
		case f.remove && !exists:
		case f.remove:
			if err := os.Remove(name); err != nil {
				return err
			}
			s.Log("removed: %s%s", f.Source.Source, f.sharedWith("was"))
			saved++
		default:
			mode := fs.FileMode(0o644)
			if f.executable {
				mode = 0o755
			}
			if info, err := os.Stat(name); exists && err == nil && bytes.Equal(old, f.content) &&
				(f.Seam || info.Mode()&0o100 != 0 == f.executable) {
				break
			}
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(name, f.content, mode); err != nil {
				return err
			}
			if err := os.Chmod(name, mode); err != nil {
				return err
			}
			s.Log("saved: %s%s", f.Source.Source, f.sharedWith("is"))
			saved++
		}
		if err := s.remember(f); err != nil {
			return err
		}
	}
	if saved == 0 {
		s.Log("the overlay has everything that is in the tree")
	}
	return writeJSON(own(s.Dir(), stateFile), s.state)
}

// remember notes what an overlay file is now, so that more edits of the tree
// can be saved before it is built again.
func (s *save) remember(f output) error {
	sum, err := fileDigest(filepath.Join(s.Repo, filepath.FromSlash(f.Source.Source)))
	if err != nil {
		return err
	}
	f.SHA256 = sum
	at := slices.IndexFunc(s.state.Sources, func(old Source) bool { return old.Source == f.Source.Source })
	if at < 0 {
		s.state.Sources = append(s.state.Sources, f.Source)
	} else {
		s.state.Sources[at] = f.Source
	}
	return nil
}
