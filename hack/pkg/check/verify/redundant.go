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

// redundant finds seams that another seam makes redundant: it fits in place of
// them and gives the same result, if need be with less context; and whole files
// with the same content as a sibling.
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
	gone := map[string]bool{}
	for i, a := range entries {
		for _, b := range entries[i+1:] {
			if gone[a.Source] || gone[b.Source] || !a.IsSibling(b) {
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
			gone[a.Source], gone[b.Source] = true, true
			if err := v.join(a, b, joined, content); err != nil {
				errs = append(errs, err)
			}
		}
	}
	if v.Update && len(gone) > 0 && len(errs) == 0 {
		return v.redundant(ctx) // three can be one
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
	var both []seamChanges
	for _, s := range seams {
		if s.Source == a.Source || s.Source == b.Source {
			both = append(both, s)
		}
	}
	if len(both) < 2 {
		return nil, nil // one is for planned releases: nobody knows what it does
	}
	return v.shared(ctx, both...)
}

// join says how two files become one, or makes them one.
func (v *Verifier) join(a, b, joined overlay.Entry, content []byte) error {
	if !v.Update {
		if joined.Source == a.Source {
			a, b = b, a
		}
		if joined.Source == b.Source {
			return fmt.Errorf("%s: it is redundant, %s does the same in its place: delete %[1]s; \"make update\" does it", a.Source, b.Source)
		}
		return fmt.Errorf("%s: it is redundant, %s does the same in its place: delete %[1]s and rename %[2]s to %s; \"make update\" does both",
			a.Source, b.Source, joined.Source)
	}
	name := func(e overlay.Entry) string { return filepath.Join(v.Repo, filepath.FromSlash(e.Source)) }
	info, err := os.Stat(name(b))
	if err != nil {
		return err
	}
	for _, old := range []overlay.Entry{a, b} {
		if err := os.Remove(name(old)); err != nil {
			return err
		}
	}
	v.Log("updated %s: %s and %s are one", joined.Source, a.Source, b.Source)
	v.files = slices.DeleteFunc(v.files, func(f string) bool { return f == a.Source || f == b.Source })
	v.files = append(v.files, joined.Source)
	slices.Sort(v.files)
	return os.WriteFile(name(joined), content, info.Mode().Perm())
}
