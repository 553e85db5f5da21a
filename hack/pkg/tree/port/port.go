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

// Package port brings the overlay from one release to another: what holds for the
// first one as it is, what a three-way merge can do, and what is left for people.
package port

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"kubernetes-dra/hack/pkg/tree/ledger"
	"kubernetes-dra/hack/pkg/tree/overlay"
	"kubernetes-dra/hack/pkg/tree/patch"
	"kubernetes-dra/hack/pkg/tree/upstream"
)

// Outcome says what became of a file of the overlay.
type Outcome string

const (
	// Clean files fit the new release as they are.
	Clean Outcome = "clean"
	// Merged seams were written anew by a three-way merge, or out of a conflict
	// that somebody has resolved.
	Merged Outcome = "merged"
	// Upstream has all of what the seam does.
	Upstream Outcome = "upstream has it"
	// Conflict is what people have to look at.
	Conflict Outcome = "conflict"
)

// Result is what became of one file of the overlay.
type Result struct {
	// Source is the file that holds for the old release.
	Source string
	// Seam says that it is a seam.
	Seam bool
	// Outcome of porting it.
	Outcome Outcome
	// Target is the file that holds for the new release, empty if none does.
	Target string
	// Why is the reason of an outcome that needs one.
	Why string
}

// Port is one run.
type Port struct {
	// Repo is the repository whose overlay gets changed.
	Repo   string
	Ledger *ledger.Ledger
	// From is a release that is carried, To another one, which need not be.
	From, To *ledger.Release
	// Bases are the untouched trees of To and of all carried releases.
	Bases map[string]overlay.Base
	// Conflicts is a folder for files with conflict markers.
	Conflicts string

	// ledger is one that carries To.
	ledger *ledger.Ledger
	// entries is the overlay as it is now.
	entries []overlay.Entry
	// effects is what the seams did before, by name and release.
	effects map[string]map[string]patch.Change
	// folders are those with files of upstream, by release; nil if that is not known.
	folders map[string]map[string]bool
	// theirs are upstream's files in To with the seams that were ported so far.
	theirs  map[string][]byte
	results []Result
}

// Run ports everything. It can run again, in the same overlay: what was ported
// before stays as it is, and conflicts that somebody has resolved get seams.
func (p *Port) Run(ctx context.Context) ([]Result, error) {
	p.ledger = carrying(p.Ledger, p.From, p.To)
	p.effects, p.theirs, p.results = map[string]map[string]patch.Change{}, map[string][]byte{}, nil
	if err := errors.Join(p.scan(), p.list()); err != nil {
		return nil, err
	}
	features, err := p.apply()
	if err != nil {
		return nil, err
	}
	for _, f := range features {
		if !p.ledger.Feature(f.Feature.Slug).In(p.To.Name) {
			continue // upstream has the feature
		}
		for _, c := range f.Changes {
			if err := ctx.Err(); err != nil {
				return nil, context.Cause(ctx)
			}
			if err := p.one(ctx, c); err != nil {
				return nil, fmt.Errorf("%s: %w", c.Source, err)
			}
		}
		if err := p.others(f); err != nil {
			return nil, err
		}
	}
	return p.results, nil
}

// carrying returns a ledger in which the new release is carried, with the features of
// the old one that are not in its base.
func carrying(l *ledger.Ledger, from, to *ledger.Release) *ledger.Ledger {
	c := &ledger.Ledger{Revision: l.Revision, DefaultRelease: l.DefaultRelease, Releases: slices.Clone(l.Releases), Features: slices.Clone(l.Features)}
	for i := range c.Releases {
		if c.Releases[i].Name == to.Name {
			c.Releases[i].State = ledger.Carried
		}
	}
	for i := range c.Features {
		f := &c.Features[i]
		if _, ok := f.Releases[to.Name]; ok || !f.In(from.Name) {
			continue
		}
		releases := map[string]string{to.Name: f.Releases[from.Name]}
		for name, what := range f.Releases {
			releases[name] = what
		}
		f.Releases = releases
	}
	return c
}

func (p *Port) scan() (err error) {
	p.entries, err = overlay.Scan(p.Repo, p.ledger)
	return err
}

// list finds out which folders the two releases have.
func (p *Port) list() error {
	p.folders = map[string]map[string]bool{}
	for _, r := range []*ledger.Release{p.From, p.To} {
		lister, ok := p.Bases[r.Name].(interface {
			Files() ([]upstream.File, error)
		})
		if !ok {
			return nil
		}
		files, err := lister.Files()
		if err != nil {
			return err
		}
		folders := map[string]bool{}
		for _, f := range files {
			folders[path.Dir(f.Path)] = true
		}
		p.folders[r.Name] = folders
	}
	return nil
}

// apply finds out what the overlay does in the carried releases, and returns it for
// the old one.
func (p *Port) apply() (old []overlay.Applied, err error) {
	for _, r := range p.Ledger.Carried() {
		if r.Name == p.To.Name {
			continue
		}
		features, err := overlay.Apply(p.Repo, p.Ledger, r, p.Bases[r.Name])
		if err != nil {
			return nil, err
		}
		if r.Name == p.From.Name {
			old = features
		}
		for _, f := range features {
			for _, c := range f.Changes {
				if !c.Seam {
					continue
				}
				if p.effects[c.Source] == nil {
					p.effects[c.Source] = map[string]patch.Change{}
				}
				p.effects[c.Source][r.Name] = patch.Change{Before: c.Before, After: c.Content}
			}
		}
	}
	return old, nil
}

// one ports one file.
func (p *Port) one(ctx context.Context, c overlay.Change) (err error) {
	result := Result{Source: c.Source, Seam: c.Seam}
	if c.Seam {
		err = p.seam(ctx, c, &result)
	} else {
		err = p.whole(c.Entry, &result)
	}
	p.results = append(p.results, result)
	return err
}

// others looks at what holds for the new release, but not for the old one.
func (p *Port) others(f overlay.Applied) error {
	stages, err := overlay.Resolve(p.entries, p.ledger, p.To.Name)
	if err != nil {
		return err
	}
	for _, stage := range stages {
		for _, e := range stage.Entries {
			isKnown := slices.ContainsFunc(f.Changes, func(c overlay.Change) bool { return c.IsSibling(e) })
			if e.Slug != f.Feature.Slug || isKnown {
				continue
			}
			result := Result{Source: e.Source, Seam: e.Seam}
			if e.Seam {
				_, err = p.fits(e, &result)
			} else {
				err = p.whole(e, &result)
			}
			if err != nil {
				return err
			}
			p.results = append(p.results, result)
		}
	}
	return nil
}

// whole ports a file of our own.
func (p *Port) whole(e overlay.Entry, result *Result) error {
	if other, err := p.inPlaceOf(e); err != nil {
		return err
	} else if other != nil {
		e = *other
	}
	switch _, err := p.Bases[p.To.Name].ReadFile(e.Path); {
	case err == nil:
		return p.byHand(e, result, "%s has a file %s of its own: ours would stand where it is", p.To.Version, e.Path)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if dir := path.Dir(e.Path); p.folders[p.From.Name][dir] && !p.folders[p.To.Name][dir] {
		return p.byHand(e, result, "%s has no files in its folder, and %s has", p.To.Version, p.From.Version)
	}
	content, err := p.read(e.Source)
	if err != nil {
		return err
	}
	if _, err := overlay.Substitute(e.Path, content, p.To); err != nil {
		return p.byHand(e, result, "%w", err)
	}
	result.Outcome = Clean
	result.Target, err = p.hold(e)
	return err
}

// byHand is a conflict that no merge can help with.
func (p *Port) byHand(e overlay.Entry, result *Result, format string, args ...any) error {
	result.Outcome, result.Why = Conflict, fmt.Errorf(format, args...).Error()
	holder, err := overlay.Holder(overlay.Siblings(p.entries, e), p.To.Name)
	if err != nil {
		return err
	}
	if holder == nil {
		result.Why += "; it is left out there"
	} else {
		result.Why += "; by its name, " + holder.Source + " holds there"
	}
	return nil
}

// inPlaceOf returns the file which was written for the new release alone, in place of
// the one that holds for the old release; nil if there is none.
func (p *Port) inPlaceOf(e overlay.Entry) (*overlay.Entry, error) {
	holder, err := overlay.Holder(overlay.Siblings(p.entries, e), p.To.Name)
	if err != nil || holder == nil || holder.Only == nil || holder.Source == e.Source {
		return nil, err
	}
	return holder, nil
}

// seam ports a seam.
func (p *Port) seam(ctx context.Context, c overlay.Change, result *Result) error {
	e := c.Entry
	other, err := p.inPlaceOf(e)
	if err != nil {
		return err
	} else if other != nil {
		e = *other
	}
	if ok, err := p.fits(e, result); ok || err != nil {
		return err
	}
	theirs, ok := p.theirs[c.Path]
	if !ok {
		return nil // there is nothing to merge with, fits says why
	}
	merged, conflicts, err := p.merge(ctx, c, theirs)
	if err != nil {
		return err
	}
	result.Why = ""
	if conflicts > 0 {
		merged, err = p.conflict(ctx, c, theirs, merged, conflicts, result)
		if err != nil || merged == nil {
			return err
		}
	}
	return p.take(ctx, c, theirs, merged, result)
}

// merge brings what a seam did in the old release into the file of the new one.
func (p *Port) merge(ctx context.Context, c overlay.Change, theirs []byte) (merged []byte, conflicts int, err error) {
	labels := patch.Labels{Current: p.To.Version, Base: p.From.Version, Other: p.From.Version + " with " + c.Slug}
	merged, conflicts, err = patch.MergeMarked(ctx, theirs, c.Before, c.Content, labels)
	if err != nil || conflicts == 0 || path.Ext(c.Path) != ".go" {
		return merged, conflicts, err
	}
	base, ours := patch.Realign(c.Before, c.Content, theirs)
	again, fewer, err := patch.MergeMarked(ctx, theirs, base, ours, labels)
	if err != nil || fewer >= conflicts {
		return merged, conflicts, err
	}
	if formatted, err := format.Source(again); err == nil {
		again = formatted
	}
	return again, fewer, nil
}

// take makes the overlay one that gives the merged file.
func (p *Port) take(ctx context.Context, c overlay.Change, theirs, merged []byte, result *Result) (err error) {
	p.theirs[c.Path] = merged
	if bytes.Equal(theirs, merged) {
		result.Outcome = Upstream
		return p.drop(c.Entry)
	}
	result.Outcome = Merged
	if other, err := p.inPlaceOf(c.Entry); err != nil {
		return err
	} else if other != nil {
		return p.replaceSeam(ctx, c, theirs, merged, result)
	}
	if shared, err := p.shared(ctx, c, patch.Change{Before: theirs, After: merged}); err != nil {
		return err
	} else if shared != nil {
		result.Why = "with less context, the one for all its releases"
		if err := p.write(c.Source, shared); err != nil {
			return err
		}
		result.Target, err = p.hold(c.Entry)
		return err
	}
	return p.replaceSeam(ctx, c, theirs, merged, result)
}

// replaceSeam writes a seam for the new release.
func (p *Port) replaceSeam(ctx context.Context, c overlay.Change, theirs, merged []byte, result *Result) error {
	seam, err := patch.Diff(ctx, c.Path, theirs, merged)
	if err != nil {
		return err
	}
	result.Target, err = p.replace(c.Entry, seam)
	return err
}

// shared returns a seam that does in the new release what it should, and in the others
// what the old one does; nil if there is none.
func (p *Port) shared(ctx context.Context, c overlay.Change, here patch.Change) ([]byte, error) {
	var changes []patch.Change
	for i := range slices.Backward(p.ledger.Releases) {
		name := p.ledger.Releases[i].Name
		if name == p.To.Name {
			changes = append(changes, here)
		} else if change, ok := p.effects[c.Source][name]; ok {
			changes = append(changes, change)
		}
	}
	return patch.Shared(ctx, c.Path, changes)
}

// fits tries a seam as it is. The result says why it does not fit.
func (p *Port) fits(e overlay.Entry, result *Result) (bool, error) {
	result.Outcome = Conflict
	theirs, ok := p.theirs[e.Path]
	if !ok {
		var err error
		theirs, err = p.Bases[p.To.Name].ReadFile(e.Path)
		if errors.Is(err, fs.ErrNotExist) {
			return false, p.byHand(e, result, "%s has no file %s", p.To.Version, e.Path)
		} else if err != nil {
			return false, err
		}
		if overlay.IsGenerated(e.Path, theirs) {
			return false, p.byHand(e, result, "%s is a generated file in %s", e.Path, p.To.Version)
		}
		p.theirs[e.Path] = theirs
	}
	after, err := p.applied(e, theirs)
	if err != nil {
		result.Why = err.Error()
		return false, nil
	}
	p.theirs[e.Path] = after
	result.Outcome, result.Why = Clean, ""
	result.Target, err = p.hold(e)
	return true, err
}

// applied returns a file with a seam.
func (p *Port) applied(e overlay.Entry, before []byte) ([]byte, error) {
	content, err := p.read(e.Source)
	if err != nil {
		return nil, err
	}
	seam, err := patch.Parse(content)
	if err != nil {
		return nil, err
	}
	return seam.Apply(before)
}

func (p *Port) file(source string) string {
	return filepath.Join(p.Repo, filepath.FromSlash(source))
}

func (p *Port) read(source string) ([]byte, error) { return os.ReadFile(p.file(source)) }

func (p *Port) write(source string, content []byte) error {
	return os.WriteFile(p.file(source), content, 0o644)
}
