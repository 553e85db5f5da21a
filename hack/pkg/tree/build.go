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
	"strings"

	"kubernetes-dra/hack/pkg/git"
	"kubernetes-dra/hack/pkg/ledger"
	"kubernetes-dra/hack/pkg/overlay"
	"kubernetes-dra/hack/pkg/upstream"
)

// Build makes the tree what the overlay, the ledger and the pin say. It does
// nothing if they did not change. Everything is prepared beside the tree, in
// its object store and in a second work tree; the tree itself changes in the
// last step only, so an error or an interrupt before leaves it as it was.
func (t *Tree) Build(ctx context.Context) (*State, error) {
	unlock, err := t.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := t.recover(ctx); err != nil {
		return nil, err
	}
	inputs, err := t.inputs()
	if err != nil {
		return nil, err
	}
	old, err := t.State()
	if err != nil {
		return nil, err
	}
	if old != nil && old.Inputs == inputs {
		edits, err := t.edits(ctx, old)
		if err != nil {
			return nil, err
		}
		if len(edits) > 0 {
			t.Log("the tree has edits that the overlay does not have yet (%s); make save takes them back", summary(edits))
		}
		t.Log("%s is up to date", t.Dir())
		return old, nil
	}

	up, err := t.Open(ctx)
	if err != nil {
		return nil, err
	}
	features, err := overlay.Apply(t.Repo, t.Ledger, t.Release, up, t.Leave...)
	if err != nil {
		return nil, err
	}
	b := &build{Tree: t, old: old, dir: t.Dir(), state: &State{Inputs: inputs}}
	if old == nil {
		b.dir, b.old = b.fresh(), &State{}
		if err := b.init(ctx); err != nil {
			return nil, err
		}
	}
	if err := b.commitBase(ctx, up); err != nil {
		return nil, err
	}
	if err := b.commitFeatures(ctx, features); err != nil {
		return nil, err
	}
	if old != nil {
		// Before the long part: would the result replace edits?
		if err := b.checkEdits(ctx); err != nil {
			return nil, err
		}
	}
	if err := b.commitGenerated(ctx, features); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if err := b.publish(ctx); err != nil {
		return nil, err
	}
	t.Log("%s is at %s", t.Dir(), describe(b.state))
	return b.state, nil
}

func describe(s *State) string {
	names := []string{"base"}
	for _, f := range s.Features {
		names = append(names, f.Slug)
	}
	if s.Head != s.Written() {
		names = append(names, "generated code")
	}
	return fmt.Sprintf("%.12s: %s", s.Head, strings.Join(names, ", "))
}

// build is one run of Build that has something to do.
type build struct {
	*Tree
	// dir is the folder with the repository: the tree, or what becomes it.
	dir string
	// old is the state before; empty for a fresh tree.
	old *State
	// state is what becomes the state.
	state *State
}

// fresh is where a tree that does not exist yet is prepared.
func (t *Tree) fresh() string { return filepath.Join(t.Output, ".kubernetes.new") }

// scratch is the second work tree, in which generators run.
func (t *Tree) scratch() string { return filepath.Join(t.Output, ".kubernetes.gen") }

// isFresh says whether the tree did not exist before.
func (b *build) isFresh() bool { return b.dir != b.Dir() }

func (b *build) repo() git.Dir { return git.Dir(b.dir) }

// init makes the empty repository of a fresh tree.
func (b *build) init(ctx context.Context, args ...string) error {
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return err
	}
	if _, err := b.repo().Run(ctx, append([]string{"init", "--quiet", "--template=", "--initial-branch=" + Branch}, args...)...); err != nil {
		return err
	}
	// Upstream's .gitattributes would have git change line ends. A tree
	// holds the bytes that upstream published, whoever runs git in it.
	attributes := filepath.Join(b.dir, ".git", "info", "attributes")
	if err := os.MkdirAll(filepath.Dir(attributes), 0o755); err != nil {
		return err
	}
	return os.WriteFile(attributes, []byte("* -text !eol !ident !filter\n"), 0o644)
}

// commitBase makes the commit of the untouched release, unless it is there.
func (b *build) commitBase(ctx context.Context, up Upstream) error {
	key, err := b.baseKey()
	if err != nil {
		return err
	}
	b.state.BaseKey, b.state.Base = key, b.old.Base
	if b.old.BaseKey == key {
		return nil
	}
	version := b.Release.Version
	b.Log("base: %s", version)
	if err := up.Verify(); err != nil {
		return fmt.Errorf("release %s: %w", b.Release.Name, err)
	}
	files, err := up.Files()
	if err != nil {
		return err
	}
	commits, err := importCommits(ctx, b.repo(), b.Release.Date(), func(im *importer) error {
		base := im.commit("refs/carry/base", "", baseMessage(b.Release))
		for _, f := range files {
			content, err := up.ReadFile(f.Path)
			if err != nil {
				return err
			}
			im.file(f.Path, upstream.Executable(content), content)
		}
		im.tag(version, base, "Kubernetes "+version+"\n")
		return ctx.Err()
	})
	if err != nil {
		return fmt.Errorf("committing the base: %w", err)
	}
	b.state.Base = commits[0]
	b.Log("base: %d files", len(files))
	return nil
}

// baseMessage says which modules the untouched release is made of.
func baseMessage(r *ledger.Release) string {
	var m strings.Builder
	fmt.Fprintf(&m, `Kubernetes %[1]s

The files of the Go modules that make up the release: k8s.io/kubernetes
%[1]s and its staging modules %[2]s.
`, r.Version, r.StagingVersion())
	if len(r.StandIns) > 0 {
		fmt.Fprintf(&m, "\nOther versions stand in for %s of modules which cannot be had at it.\n\n", r.StagingVersion())
	}
	for _, s := range r.StandIns {
		m.WriteString(wrap("", fmt.Sprintf("%s %s: %s", s.Module, s.Version, s.Why)))
	}
	return m.String()
}

// commitFeatures makes a commit for each feature that changes something.
func (b *build) commitFeatures(ctx context.Context, features []overlay.Applied) error {
	var slugs []string
	commits, err := importCommits(ctx, b.repo(), b.Release.Date(), func(im *importer) error {
		parent := b.state.Base
		for _, f := range features {
			if len(f.Changes) == 0 {
				continue
			}
			slugs = append(slugs, f.Feature.Slug)
			parent = im.commit("refs/carry/features", parent, message(f.Feature, b.Release))
			for _, c := range f.Changes {
				im.file(c.Path, c.Executable, c.Content)
				sum, err := fileDigest(filepath.Join(b.Repo, filepath.FromSlash(c.Source)))
				if err != nil {
					return err
				}
				b.state.Sources = append(b.state.Sources, Source{Source: c.Source, Path: c.Path, Slug: c.Slug, Seam: c.Seam, SHA256: sum})
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("committing the features: %w", err)
	}
	for i, commit := range commits {
		b.state.Features = append(b.state.Features, FeatureCommit{Slug: slugs[i], Commit: commit})
	}
	for _, f := range features {
		whole, seams := 0, 0
		for _, c := range f.Changes {
			if c.Seam {
				seams++
			} else {
				whole++
			}
		}
		b.Log("%s: %d files of our own, %d seams", f.Feature.Slug, whole, seams)
	}
	return nil
}

// fileDigest identifies the content of an overlay file; empty if it is gone.
func fileDigest(name string) (string, error) {
	content, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return digest(string(content)), err
}

// subject is the first line of the message of a feature's commit.
func subject(f *ledger.Feature) string {
	if f.KEP == 0 {
		return f.Slug + ": " + f.Title
	}
	return fmt.Sprintf("%s: %s (KEP-%d)", f.Slug, f.Title, f.KEP)
}

// message is the message of a feature's commit.
func message(f *ledger.Feature, r *ledger.Release) string {
	var m strings.Builder
	m.WriteString(subject(f) + "\n\n" + wrap("", f.Why) + "\n")
	for _, c := range f.CarriesOf(r.Name) {
		m.WriteString(wrap("", c.Name+": "+c.Why) + wrap("  Upstream: ", c.Upstream) + wrap("  Drop when: ", c.DropWhen) + "\n")
	}
	if f.KEP != 0 {
		fmt.Fprintf(&m, "KEP: https://kep.k8s.io/%d\n", f.KEP)
	}
	if len(f.Gates) > 0 {
		m.WriteString(wrap("Feature gate: ", strings.Join(f.Gates, ", ")))
	}
	fmt.Fprintf(&m, "Release: %s (%s)\n", r.Version, f.Releases[r.Name])
	m.WriteString(wrap("Upstream: ", f.Upstream))
	m.WriteString(wrap("Drop when: ", f.DropWhen))
	return m.String()
}

// wrap fills the words of text into lines of at most 72 columns.
func wrap(prefix, text string) string {
	const width = 72
	indent := strings.Repeat(" ", len(prefix)-len(strings.TrimLeft(prefix, " ")))
	var out strings.Builder
	line := strings.TrimRight(prefix, " ")
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = indent + word
		case len(line)+1+len(word) > width:
			out.WriteString(line + "\n")
			line = indent + word
		default:
			line += " " + word
		}
	}
	return out.String() + line + "\n"
}

// commitGenerated runs the generators on the features' commit, and commits
// what they change. What they made before is taken again if nothing that
// they read has changed.
func (b *build) commitGenerated(ctx context.Context, features []overlay.Applied) error {
	written := b.state.Written()
	b.state.Head = written
	if b.Generate == nil || len(b.state.Features) == 0 {
		return nil
	}
	key, err := b.generatedKey(b.state, features)
	if err != nil {
		return err
	}
	b.state.GeneratedKey = key
	if b.old.GeneratedKey == key {
		return b.repeatGenerated(ctx)
	}
	if done, err := b.useGenerated(ctx, key); err != nil || done {
		return err
	}

	dir := b.scratch()
	if b.isFresh() {
		dir = b.dir
		_, err = b.repo().Run(ctx, "read-tree", "-m", "-u", written)
	} else {
		// Twice, because git leaves the place locked when it is killed here.
		_, err = b.repo().Run(ctx, "worktree", "add", "--quiet", "--force", "--force", "--detach", dir, written)
		defer b.removeScratch(ctx)
	}
	if err != nil {
		return fmt.Errorf("preparing the generators: %w", err)
	}
	// A checkout of upstream has it, a tree does not. Generators are built from
	// the module cache in both.
	if err := os.RemoveAll(filepath.Join(dir, "vendor")); err != nil {
		return err
	}
	if err := b.Generate(ctx, dir); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("generating code for release %s: %w", b.Release.Name, err)
	}
	// What upstream's .gitignore names can be generated code, too. Only
	// its _output is a place for leftovers.
	if err := os.RemoveAll(filepath.Join(dir, "_output")); err != nil {
		return err
	}
	work := git.Dir(dir)
	if _, err := work.Run(ctx, "add", "--all", "--force", "--", ".", ":(exclude)vendor"); err != nil {
		return err
	}
	tree, err := work.Run(ctx, "write-tree")
	if err != nil {
		return err
	}
	changed, err := diffTrees(ctx, work, written, tree)
	if err != nil {
		return err
	}
	for _, s := range b.state.Sources {
		if slices.ContainsFunc(changed, func(e edit) bool { return e.Path == s.Path }) {
			return fmt.Errorf("%s: release %s: the generators change it, so it cannot be in the overlay", s.Source, b.Release.Name)
		}
	}
	b.Log("generated code: %d files", len(changed))
	if err := b.keepGenerated(ctx, key, changed); err != nil {
		b.Log("the generated code cannot be kept for other clones: %v", err)
	}
	return b.commitGeneratedTree(ctx, tree, len(changed))
}

func (b *build) commitGeneratedTree(ctx context.Context, tree string, files int) error {
	if files == 0 {
		return nil
	}
	commit, err := commitTree(ctx, b.repo(), b.Release.Date(), tree, b.state.Written(), generatedMessage)
	if err != nil {
		return err
	}
	b.state.Head = commit
	return nil
}

const generatedMessage = `Generated code

What the release's own code generators make of the commits before. Nothing
in this commit was written by hand; run the generators again rather than
resolving a conflict in it.
`

// repeatGenerated puts the old generated files on top of the new commits.
func (b *build) repeatGenerated(ctx context.Context) error {
	changed, err := diffTrees(ctx, b.repo(), b.old.Written(), b.old.Head)
	if err != nil {
		return err
	}
	b.Log("generated code: %d files, unchanged", len(changed))
	return b.importGenerated(ctx, len(changed), func(im *importer) {
		for _, e := range changed {
			if e.gone() {
				im.remove(e.Path)
			} else {
				im.entry(e.Mode, e.Hash, e.Path)
			}
		}
	})
}

// importGenerated commits generated files that are known already.
func (b *build) importGenerated(ctx context.Context, files int, write func(*importer)) error {
	if files == 0 {
		return nil
	}
	commits, err := importCommits(ctx, b.repo(), b.Release.Date(), func(im *importer) error {
		im.commit("refs/carry/generated", b.state.Written(), generatedMessage)
		write(im)
		return nil
	})
	if err != nil {
		return fmt.Errorf("committing the generated code: %w", err)
	}
	b.state.Head = commits[0]
	return nil
}

// removeScratch removes the second work tree, also after an interrupt.
func (b *build) removeScratch(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	if err := os.RemoveAll(b.scratch()); err != nil {
		b.Log("removing %s: %v", b.scratch(), err)
	}
	if _, err := b.repo().Run(ctx, "worktree", "prune"); err != nil {
		b.Log("%v", err)
	}
}
