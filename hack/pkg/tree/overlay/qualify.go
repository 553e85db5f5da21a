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

package overlay

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"kubernetes-dra/hack/pkg/tree/ledger"
)

// Siblings are the files of the overlay of which one stands at a path, or changes
// it for a feature, in a release.
func Siblings(entries []Entry, e Entry) []Entry {
	var group []Entry
	for _, other := range entries {
		if e.IsSibling(other) {
			group = append(group, other)
		}
	}
	return group
}

// IsSibling says whether two files are siblings.
func (e Entry) IsSibling(other Entry) bool { return e.key() == other.key() }

// key is what siblings have in common.
type key struct {
	path, slug string
	seam       bool
}

func (e Entry) key() key {
	k := key{path: e.Path, seam: e.Seam}
	if e.Seam {
		k.slug = e.Slug
	}
	return k
}

// Holder returns the one of siblings that holds for a release, nil if none does: a
// qualified one in place of the unqualified one. Two that are qualified for it are
// an error.
func Holder(siblings []Entry, release string) (*Entry, error) {
	var holder *Entry
	for i, e := range siblings {
		switch {
		case e.Only != nil && !e.Only.Contains(release):
		case holder == nil, holder.Only == nil && e.Only != nil:
			holder = &siblings[i]
		case holder.Only != nil && e.Only != nil:
			return nil, fmt.Errorf("%s and %s both hold for release %s", holder.Source, e.Source, release)
		}
	}
	return holder, nil
}

// Qualified returns the entry under the name for a range of releases, or for all
// of them if there is none.
func (e Entry) Qualified(only *ledger.Range) Entry {
	qualifier := ""
	if only != nil {
		qualifier = "." + only.String()
	}
	if e.Only = only; e.Seam {
		e.Source = e.Path + "." + e.Slug + qualifier + ".patch"
	} else {
		ext := path.Ext(e.Path)
		e.Source = strings.TrimSuffix(e.Path, ext) + qualifier + ext
	}
	return e
}

// Join returns the name under which one file holds where two siblings hold now. It
// is false if there is none, because others hold for releases between them.
func Join(siblings []Entry, a, b Entry, l *ledger.Ledger) (Entry, bool) {
	rest := slices.DeleteFunc(slices.Clone(siblings), func(e Entry) bool { return e.Source == a.Source || e.Source == b.Source })
	candidates := []Entry{a.Qualified(nil)}
	if a.Only != nil && b.Only != nil {
		only := a.Only.Join(*b.Only)
		candidates = append(candidates, a.Qualified(&only))
		if only.From != l.Releases[0].Name || only.To != "" {
			slices.Reverse(candidates) // a range that is not just everything
		}
	}
	for _, joined := range candidates {
		if !slices.ContainsFunc(rest, func(e Entry) bool { return e.Source == joined.Source }) &&
			joins(siblings, append(slices.Clone(rest), joined), a, b, joined, l) {
			return joined, true
		}
	}
	return Entry{}, false
}

// joins says whether a name is one for both files: everywhere holds what held there.
// A release that is only planned gets it also in place of nothing, and of the file
// for all releases.
func joins(before, after []Entry, a, b, joined Entry, l *ledger.Ledger) bool {
	feature := l.Feature(a.Slug)
	for i := range l.Releases {
		r := &l.Releases[i]
		old, oldErr := Holder(before, r.Name)
		now, nowErr := Holder(after, r.Name)
		if oldErr != nil || nowErr != nil {
			return false
		}
		was, is := source(old), source(now)
		if was == a.Source || was == b.Source {
			was = joined.Source
		}
		carried := r.State == ledger.Carried && feature != nil && feature.In(r.Name)
		if was != is && (carried || is != joined.Source) {
			return false
		}
	}
	return true
}

// source is the name of a file, empty if there is none.
func source(e *Entry) string {
	if e == nil {
		return ""
	}
	return e.Source
}
