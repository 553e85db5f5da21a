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
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"kubernetes-dra/hack/pkg/sys"
	"kubernetes-dra/hack/pkg/tree/overlay"
	"kubernetes-dra/hack/pkg/tree/patch"
)

// seamChanges is what a seam does, by carried release that it holds for.
type seamChanges struct {
	overlay.Entry
	in map[string]patch.Change
}

// shared is the one seam that does what several do.
func (v *Verifier) shared(ctx context.Context, seams ...seamChanges) ([]byte, error) {
	var changes []patch.Change
	for _, r := range slices.Backward(v.Ledger.Carried()) {
		for _, s := range seams {
			if c, ok := s.in[r.Name]; ok {
				changes = append(changes, c)
			}
		}
	}
	return patch.Shared(ctx, seams[0].Path, changes)
}

// changes finds out what seams do. Errors are those of releases which the overlay
// does not fit.
func (v *Verifier) changes() ([]seamChanges, error) {
	var seams []seamChanges
	var errs []error
	for _, r := range slices.Backward(v.Ledger.Carried()) {
		source, ok := v.sources[r.Name]
		if !ok {
			continue // reported as a pin
		}
		features, err := overlay.Apply(v.Repo, v.Ledger, r, source)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, f := range features {
			for _, c := range f.Changes {
				if !c.Seam {
					continue
				}
				at := slices.IndexFunc(seams, func(s seamChanges) bool { return s.Source == c.Source })
				if at < 0 {
					at, seams = len(seams), append(seams, seamChanges{Entry: c.Entry, in: map[string]patch.Change{}})
				}
				seams[at].in[r.Name] = patch.Change{Before: c.Before, After: c.Content}
			}
		}
	}
	return seams, errors.Join(errs...)
}

// redundant finds siblings that one file can replace: seams that one seam does the work of,
// if need be with less context, and whole files with the same content. An update joins them.
func (v *Verifier) redundant(ctx context.Context) error {
	entries, err := overlay.Scan(v.Repo, v.Ledger)
	if err != nil {
		return nil // reported as overlay
	}
	seams, err := v.changes()
	if err != nil {
		return nil // reported as seams
	}
	var errs []error
	for i, a := range entries {
		for _, b := range entries[i+1:] {
			if !a.IsSibling(b) {
				continue
			}
			content, err := v.inPlaceOfBoth(ctx, a, b, seams)
			if err != nil {
				return err
			}
			joined, ok := overlay.Join(overlay.Siblings(entries, a), a, b, v.Ledger)
			if content == nil || !ok {
				continue
			}
			if v.Update {
				if err := v.join(ctx, a, b, joined, content); err != nil {
					return err
				}
				return v.redundant(ctx) // three can be one
			}
			errs = append(errs, fmt.Errorf("%s and %s do the same: \"make update\" makes %s of both", a.Source, b.Source, joined.Source))
		}
	}
	return errors.Join(errs...)
}

// inPlaceOfBoth is the content of one file that does what two siblings do, nil if
// there is none.
func (v *Verifier) inPlaceOfBoth(ctx context.Context, a, b overlay.Entry, seams []seamChanges) ([]byte, error) {
	if !a.Seam {
		contentA, errA := v.read(a.Source)
		contentB, errB := v.read(b.Source)
		if err := errors.Join(errA, errB); err != nil || !bytes.Equal(contentA, contentB) {
			return nil, err
		}
		return contentA, nil
	}
	both := slices.DeleteFunc(slices.Clone(seams), func(s seamChanges) bool { return s.Source != a.Source && s.Source != b.Source })
	if len(both) < 2 {
		return nil, nil // one is for planned releases: nobody knows what it does
	}
	content, err := v.shared(ctx, both...)
	if err != nil {
		return nil, err
	}
	newer, err := v.read(b.Source)
	return patch.WithIntentionOf(newer, content), err
}

// join makes one file of two.
func (v *Verifier) join(ctx context.Context, a, b, joined overlay.Entry, content []byte) error {
	for _, old := range []overlay.Entry{a, b} {
		if err := os.Remove(filepath.Join(v.Repo, filepath.FromSlash(old.Source))); err != nil {
			return err
		}
	}
	if err := sys.WriteFile(filepath.Join(v.Repo, filepath.FromSlash(joined.Source)), content, 0o644); err != nil {
		return err
	}
	v.Log("updated %s: %s and %s are one", joined.Source, a.Source, b.Source)
	return v.list(ctx)
}
