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
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"kubernetes-dra/hack/pkg/tree/ledger"
	"kubernetes-dra/hack/pkg/tree/overlay"
	"kubernetes-dra/hack/pkg/tree/patch"
)

// share finds out for which other releases the files that get saved hold. A
// seam without a release in its name gets one if it does not fit all of them.
func (s *save) share(ctx context.Context) error {
	var others []*otherRelease
	for _, r := range s.Ledger.Carried() {
		if r.Name == s.Release.Name {
			continue
		}
		stages, err := overlay.Resolve(s.entries, s.Ledger, r.Name)
		if err != nil {
			return err
		}
		others = append(others, &otherRelease{save: s, release: r, stages: stages})
	}
	var errs []error
	for i, f := range s.files {
		var holding []*otherRelease
		for _, r := range others {
			if r.holds(f) {
				holding = append(holding, r)
			}
		}
		misfit, err := s.shareFile(ctx, i, holding)
		switch unqualified := f.Qualified(nil).Source; {
		case err != nil:
			return err
		case misfit == nil:
		case f.Source != unqualified:
			errs = append(errs, fmt.Errorf("%s also holds for release %s, which the edit does not fit: %w\nRename it so that it holds for the other releases, build the tree, and edit again", f.Source, misfit.release, misfit))
		default:
			only := alone(s.Ledger, s.Release)
			f.Entry = f.Qualified(&only)
			s.Log("%s does not fit release %s (%v): saved for %s alone", unqualified, misfit.release, misfit, only)
		}
	}
	return errors.Join(errs...)
}

// shareFile makes a file one that fits the other releases, a seam with less context if
// need be. It returns why that cannot be.
func (s *save) shareFile(ctx context.Context, at int, others []*otherRelease) (*misfitError, error) {
	f := s.files[at]
	var first *misfitError
	forms := f.forms
	if len(forms) == 0 {
		forms = [][]byte{f.content} // a whole file, or a seam that goes away
	}
	for _, f.content = range forms {
		f.others = nil
		var misfit *misfitError
		for _, r := range others {
			err := r.fits(ctx, at)
			if err != nil && !errors.As(err, &misfit) {
				return nil, err
			}
			if misfit != nil {
				break
			}
			f.others = append(f.others, r.release.Name)
		}
		if misfit == nil {
			return nil, nil
		}
		if first == nil {
			first = misfit
		}
	}
	f.others, f.content = nil, forms[0]
	return first, nil
}

// alone is the qualifier of what holds for a release alone. That of the newest
// one has no end: what comes next is more like it than like the ones before.
func alone(l *ledger.Ledger, r *ledger.Release) ledger.Range {
	if newest, err := l.Newest(); err == nil && ledger.Compare(newest.Name, r.Name) <= 0 {
		return ledger.Range{From: r.Name}
	}
	return ledger.Range{From: r.Name, To: r.Name}
}

// otherRelease is one whose tree is not the one that was edited.
type otherRelease struct {
	*save
	release *ledger.Release
	stages  []overlay.Stage
	// upstream gets opened when it is needed.
	upstream Upstream
}

// holds says whether a file is, or will be, built into the release.
func (r *otherRelease) holds(f *output) bool {
	for _, e := range at(r.stages, f.Path) {
		if e.IsSibling(f.Entry) {
			return e.Source == f.Source
		}
	}
	// What is new is for all releases, if they have the feature.
	isNew := !slices.ContainsFunc(r.entries, func(e overlay.Entry) bool { return e.Source == f.Source })
	return isNew && (!f.Seam || slices.ContainsFunc(r.stages, func(stage overlay.Stage) bool { return stage.Feature.Slug == f.Slug }))
}

// misfitError is the reason why a seam does not fit a release.
type misfitError struct {
	error
	release string
}

// fits checks whether a seam that gets saved applies in the release, on top of the seams of
// earlier features.
func (r *otherRelease) fits(ctx context.Context, index int) (err error) {
	f := r.files[index]
	if !f.Seam || f.remove {
		return nil
	}
	if r.upstream == nil {
		if r.upstream, err = r.Open(ctx, r.release); err != nil {
			return err
		}
	}
	content, err := r.upstream.ReadFile(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return &misfitError{fmt.Errorf("upstream has no file %s there", f.Path), r.release.Name}
	} else if err != nil {
		return err
	}
	for _, stage := range r.stages {
		own := stage.Feature.Slug == f.Slug
		seams := at([]overlay.Stage{stage}, f.Path)
		if own {
			seams = []overlay.Entry{f.Entry}
		}
		for _, e := range seams {
			seam, err := r.seam(e.Source, index)
			if err != nil {
				return err
			}
			p, err := patch.Parse(seam)
			if err != nil {
				return err
			}
			if content, err = p.Apply(content); err != nil {
				return &misfitError{err, r.release.Name}
			}
		}
		if own {
			return nil
		}
	}
	return nil
}

// seam returns a seam as it is after saving the files up to the index.
func (r *otherRelease) seam(source string, index int) ([]byte, error) {
	for _, f := range r.files[:index+1] {
		if f.Source == source && !f.remove {
			return f.content, nil
		}
	}
	return os.ReadFile(filepath.Join(r.Repo, filepath.FromSlash(source)))
}
