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
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"kubernetes-dra/hack/pkg/tree/codegen"
	"kubernetes-dra/hack/pkg/tree/ledger"
	"kubernetes-dra/hack/pkg/tree/patch"
	"kubernetes-dra/hack/pkg/tree/upstream"
)

// Base is the untouched tree of a release. *upstream.Source is one.
type Base interface {
	// ReadFile returns the content of a file, fs.ErrNotExist if there is none.
	ReadFile(path string) ([]byte, error)
}

// Change is a file that a feature adds to the tree or changes in it.
type Change struct {
	Entry
	// Before is the content before, nil for a new file.
	Before []byte
	// Content is the content with the feature.
	Content []byte
	// Executable is the mode of the file.
	Executable bool
}

// Applied is a feature with its changes.
type Applied struct {
	Feature *ledger.Feature
	Changes []Change
}

// Apply computes what the overlay makes of the untouched tree, feature by
// feature. It reports every file that does not fit, not only the first one. Files for
// which one of the functions returns true are left out.
func Apply(repo string, l *ledger.Ledger, release *ledger.Release, base Base, leave ...func(Entry) bool) ([]Applied, error) {
	entries, err := Scan(repo, l)
	if err != nil {
		return nil, err
	}
	stages, err := Resolve(entries, l, release.Name)
	if err != nil {
		return nil, err
	}
	a := &applier{repo: repo, release: release, base: base, entries: entries, ours: map[string]Entry{}, content: map[string][]byte{}}
	var result []Applied
	var errs []error
	for _, stage := range stages {
		applied := Applied{Feature: stage.Feature}
		for _, e := range stage.Entries {
			if slices.ContainsFunc(leave, func(leave func(Entry) bool) bool { return leave(e) }) {
				continue
			}
			change, err := a.apply(e)
			if err != nil {
				// A line for each hunk, which says all that there is to say.
				for _, err := range each(err) {
					errs = append(errs, fmt.Errorf("%s: release %s (%s): %w", e.Source, release.Name, release.Version, err))
				}
				continue
			}
			applied.Changes = append(applied.Changes, *change)
		}
		result = append(result, applied)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return result, nil
}

// NoCode says whether a seam is in a file that Go does not compile. The lists of feature
// gates are the only ones, and gates of several features stand beside each other there.
func NoCode(e Entry) bool {
	return e.Seam && path.Ext(e.Path) != ".go"
}

// each returns the errors that were joined.
func each(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

type applier struct {
	repo    string
	release *ledger.Release
	base    Base
	// entries are those of all releases.
	entries []Entry
	// ours are the whole files so far, by path in the tree.
	ours map[string]Entry
	// content are the upstream files that were changed so far.
	content map[string][]byte
}

func (a *applier) apply(e Entry) (*Change, error) {
	name := filepath.Join(a.repo, filepath.FromSlash(e.Source))
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if other, ok := a.ours[e.Path]; ok {
		return nil, fmt.Errorf("%s is our own file already (%s)", e.Path, other.Source)
	}
	upstreamFile, err := a.base.ReadFile(e.Path)
	exists := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if IsGenerated(e.Path, upstreamFile) {
		return nil, fmt.Errorf("%s is a generated file: it is never in the overlay, but generated when the tree is built", e.Path)
	}
	if !e.Seam {
		if exists {
			return nil, fmt.Errorf("upstream has a file %s: ours would stand where it is", e.Path)
		}
		if IsGenerated(e.Path, data) {
			return nil, errors.New("a generated file is never in the overlay")
		}
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		if data, err = substitute(e.Path, data, a.release.Imports); err != nil {
			return nil, err
		}
		a.ours[e.Path] = e
		return &Change{Entry: e, Content: data, Executable: info.Mode()&0o100 != 0}, nil
	}
	if !exists {
		return nil, fmt.Errorf("upstream has no file %s", e.Path)
	}
	before, ok := a.content[e.Path]
	if !ok {
		before = upstreamFile
	}
	after, err := applySeam(e, data, before)
	if err != nil {
		return nil, a.elsewhere(e, before, err)
	}
	a.content[e.Path] = after
	return &Change{Entry: e, Before: before, Content: after, Executable: upstream.Executable(after)}, nil
}

// applySeam returns the content of an upstream file with a seam.
func applySeam(e Entry, seam, before []byte) ([]byte, error) {
	p, err := patch.Parse(seam)
	if err != nil {
		return nil, err
	}
	if p.Path != e.Path {
		return nil, fmt.Errorf("it is a patch of %s", p.Path)
	}
	after, err := p.Apply(before)
	if err != nil {
		var misfits []error
		for _, err := range each(err) {
			misfits = append(misfits, fmt.Errorf("the seam does not apply to %s: %w", e.Path, err))
		}
		return nil, errors.Join(misfits...)
	}
	return after, nil
}

// elsewhere looks for a seam that fits in place of one that does not: the same seam of
// another release. Later seams are judged as if it was in its place.
func (a *applier) elsewhere(e Entry, before []byte, misfit error) error {
	for _, other := range a.entries {
		if !other.Seam || other.Path != e.Path || other.Slug != e.Slug || other.Source == e.Source {
			continue
		}
		seam, err := os.ReadFile(filepath.Join(a.repo, filepath.FromSlash(other.Source)))
		if err != nil {
			continue // reported where it is used
		}
		if after, err := applySeam(other, seam, before); err == nil {
			a.content[e.Path] = after
			return errors.Join(append(each(misfit), fmt.Errorf("but %s applies", other.Source))...)
		}
	}
	return misfit
}

var generatedHeader = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// IsGenerated says whether a file of the tree is written by a generator: by
// one of those that run when the tree is built, or according to the line in
// it that says so.
func IsGenerated(p string, content []byte) bool {
	return codegen.IsGenerated(p) || path.Ext(p) == ".go" && generatedHeader.Match(content)
}

// substitute replaces import paths in a Go file: what our file imports by
// what stands in for it in the release.
func substitute(p string, content []byte, imports map[string]string) ([]byte, error) {
	if len(imports) == 0 || path.Ext(p) != ".go" {
		return content, nil
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, p, content, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	present := map[string]bool{}
	for _, spec := range file.Imports {
		if ip, err := strconv.Unquote(spec.Path.Value); err == nil {
			present[ip] = true
		}
	}
	// From the last to the first, so that positions stay what they are.
	for _, spec := range slices.Backward(file.Imports) {
		from, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		to, ok := imports[from]
		if !ok {
			continue
		}
		if spec.Name == nil && path.Base(from) != path.Base(to) {
			return nil, fmt.Errorf("the import of %s needs a name, because %s stands in for it", from, to)
		}
		if present[to] {
			return nil, fmt.Errorf("it imports both %s and %s, which stands in for it: the file has to be qualified", from, to)
		}
		start, end := fset.Position(spec.Path.Pos()).Offset, fset.Position(spec.Path.End()).Offset
		content = slices.Concat(content[:start], []byte(strconv.Quote(to)), content[end:])
	}
	return content, nil
}

// Substitute does with a file of ours what Apply does in the release.
func Substitute(p string, content []byte, release *ledger.Release) ([]byte, error) {
	return substitute(p, content, release.Imports)
}

// Restore undoes the substitution of imports in a file of the tree.
func Restore(p string, content []byte, release *ledger.Release) ([]byte, error) {
	back := map[string]string{}
	for from, to := range release.Imports {
		back[to] = from
	}
	return substitute(p, content, back)
}
