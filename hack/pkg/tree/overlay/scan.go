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

// Package overlay knows the files of this repository which are built into a
// Kubernetes tree: which stand where, for which feature and release, and what
// they make of an upstream file.
package overlay

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"

	"kubernetes-dra/hack/pkg/tree/ledger"
)

// Entry is a file of the overlay.
type Entry struct {
	// Source is the path in the repository.
	Source string
	// Path is the path in the Kubernetes tree: of the file itself, or of the
	// upstream file that a seam changes.
	Path string
	// Slug of the feature.
	Slug string
	// With are the slugs of other features which the name of the file has, too: it
	// is built only where all of them are.
	With []string
	// Seam says that this is a patch and not a whole file.
	Seam bool
	// Only are the releases that the file is qualified for, nil if any: one
	// (name.1.32.go), a range with both ends included (name.1.32-1.34.go), or one
	// without end (name.1.34+.go), which holds for the releases to come. A
	// qualified file stands in for the unqualified one.
	Only *ledger.Range
}

var (
	// The qualifier is the last part that looks like a release, before the
	// last extension: name.1.32.go, name.1.32-1.33.go, name.1.34+.go.
	qualifiedFile = regexp.MustCompile(`^(.+)\.(` + ledger.Qualifier + `)(\.[^.]+)$`)
	// name.go.slug.patch, name.go.slug.1.32.patch, name.go.slug.1.34+.patch.
	seamFile = regexp.MustCompile(`^(.+)\.([^.0-9][^.]*)(?:\.(` + ledger.Qualifier + `))?\.patch$`)
)

// apiDelta is a folder at its place in the tree which is not built into it:
// it holds the reviewed difference of what is generated there.
const apiDelta = "api"

// Roots returns the folders of the overlay: those which the root module's
// ignore directive leaves out, but for what is built and for the API delta.
func Roots(repo string) ([]string, error) {
	name := filepath.Join(repo, "go.mod")
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	mod, err := modfile.Parse(name, data, nil)
	if err != nil {
		return nil, err
	}
	var roots []string
	for _, ignore := range mod.Ignore {
		root := path.Clean(ignore.Path)
		if root != apiDelta && !strings.HasPrefix(root, "_") {
			roots = append(roots, root)
		}
	}
	slices.Sort(roots)
	return roots, nil
}

// Scan lists the overlay of the repository, ordered by source.
func Scan(repo string, l *ledger.Ledger) ([]Entry, error) {
	roots, err := Roots(repo)
	if err != nil {
		return nil, err
	}
	var entries []Entry
	var errs []error
	for _, root := range roots {
		err := filepath.WalkDir(filepath.Join(repo, root), func(name string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) && path.Base(root) == filepath.Base(name) {
				return nil // no overlay here
			}
			if err != nil {
				return err
			}
			if d.IsDir() {
				return nil
			}
			rel, err := filepath.Rel(repo, name)
			if err != nil {
				return err
			}
			source := filepath.ToSlash(rel)
			if !d.Type().IsRegular() {
				errs = append(errs, fmt.Errorf("%s: not a regular file", source))
				return nil
			}
			entry, err := parseName(source, l)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", source, err))
				return nil
			}
			entries = append(entries, *entry)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return entries, errors.Join(errs...)
}

// parseName reads what the name of an overlay file says.
func parseName(source string, l *ledger.Ledger) (*Entry, error) {
	dir, base := path.Split(source)
	e := &Entry{Source: source}
	qualifier := ""
	switch ext := path.Ext(base); ext {
	case ".orig", ".rej", ".swp":
		return nil, fmt.Errorf("a %s file is a leftover of another program", ext)
	case ".patch":
		m := seamFile.FindStringSubmatch(base)
		if m == nil {
			return nil, errors.New("a seam is named <file>.<slug>.patch, or <file>.<slug>.<releases>.patch where the releases are like 1.32, 1.32-1.34 or 1.34+")
		}
		e.Seam, e.Path, e.Slug, qualifier = true, dir+m[1], m[2], m[3]
		if l.Feature(e.Slug) == nil {
			return nil, fmt.Errorf("unknown slug %q: the ledger has %s", e.Slug, strings.Join(l.Slugs(), ", "))
		}
	default:
		e.Path = source
		if m := qualifiedFile.FindStringSubmatch(base); m != nil {
			e.Path, qualifier = dir+m[1]+m[3], m[2]
		}
		slugs, err := Owners(e.Path, l)
		if err != nil {
			return nil, err
		}
		last := len(slugs) - 1
		e.Slug, e.With = slugs[last], slugs[:last]
	}
	if qualifier != "" {
		only, err := ledger.ParseRange(qualifier)
		if err != nil {
			return nil, err
		}
		for _, release := range []string{only.From, only.To} {
			if _, err := l.Known(release); release != "" && err != nil {
				return nil, err
			}
		}
		e.Only = &only
	}
	return e, nil
}

// Owners finds the feature of a whole file: the one with the file in its list
// in the ledger, or the one whose slug is a word of the file's name, or of
// the innermost folder that names one. If that has several slugs, like the name of a test for
// how features work together, then the file needs all of them. It belongs to
// the one that is built last, and that is the last one here.
func Owners(p string, l *ledger.Ledger) ([]string, error) {
	for _, f := range l.Features {
		for _, pattern := range f.Files {
			if ok, _ := path.Match(pattern, p); ok {
				return []string{f.Slug}, nil
			}
		}
	}
	parts := strings.Split(p, "/")
	for i := len(parts) - 1; i >= 0; i-- {
		words := strings.FieldsFunc(parts[i], func(r rune) bool { return strings.ContainsRune("._-", r) })
		slugs := slices.DeleteFunc(l.Slugs(), func(slug string) bool { return !slices.Contains(words, slug) })
		if len(slugs) > 0 {
			return slugs, nil
		}
	}
	return nil, fmt.Errorf("belongs to no feature: neither its name nor a folder has one of the words %s, and no feature lists it under files in %s",
		strings.Join(l.Slugs(), ", "), ledger.Path)
}

// Stage is what one feature brings into the tree of one release.
type Stage struct {
	Feature *ledger.Feature
	// Entries, ordered by path.
	Entries []Entry
}

// Resolve picks the files for a release: a qualified one in place of the
// unqualified one, grouped by feature in the ledger's order.
func Resolve(entries []Entry, l *ledger.Ledger, release string) ([]Stage, error) {
	var keys []key
	siblings := map[key][]Entry{}
	for _, e := range entries {
		if siblings[e.key()] == nil {
			keys = append(keys, e.key())
		}
		siblings[e.key()] = append(siblings[e.key()], e)
	}
	var chosen []Entry
	var errs []error
	for _, k := range keys {
		holder, err := Holder(siblings[k], release)
		if err != nil {
			errs = append(errs, err)
		} else if holder != nil {
			chosen = append(chosen, *holder)
		}
	}
	var stages []Stage
	missing := func(slug string) bool { return !l.Feature(slug).In(release) }
	for _, f := range l.FeaturesOf(release) {
		stage := Stage{Feature: f}
		for _, e := range chosen {
			if e.Slug == f.Slug && !slices.ContainsFunc(e.With, missing) {
				stage.Entries = append(stage.Entries, e)
			}
		}
		slices.SortFunc(stage.Entries, func(a, b Entry) int { return strings.Compare(a.Source, b.Source) })
		stages = append(stages, stage)
	}
	return stages, errors.Join(errs...)
}

// Unused lists the files that are built into no release of the ledger,
// carried or planned: their feature is carried in none of the releases that
// they are qualified for, or qualified files stand in for them everywhere.
func Unused(entries []Entry, l *ledger.Ledger) []Entry {
	used := map[string]bool{}
	for _, r := range l.Releases {
		// An overlap is reported when the release is built.
		stages, _ := Resolve(entries, l, r.Name)
		for _, s := range stages {
			for _, e := range s.Entries {
				used[e.Source] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(entries), func(e Entry) bool { return used[e.Source] })
}
