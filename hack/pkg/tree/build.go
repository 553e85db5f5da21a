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
	"strings"

	"kubernetes-dra/hack/pkg/git"
	"kubernetes-dra/hack/pkg/tree/overlay"
	"kubernetes-dra/hack/pkg/tree/upstream"
)

// Build makes the tree what the overlay, the ledger and the pin say. It does
// nothing if they did not change. Everything is prepared in the object store of
// the tree; its files change in the last step only, so an error or an interrupt
// before leaves them as they were.
func (t *Tree) Build(ctx context.Context) (*State, error) {
	unlock, err := t.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return t.build(ctx)
}

func (t *Tree) build(ctx context.Context) (*State, error) {
	inputs, err := t.inputs()
	if err != nil {
		return nil, err
	}
	old, err := t.State()
	if err != nil {
		return nil, err
	}
	if old != nil && old.Inputs == inputs && old.Next == "" {
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

	up, err := t.Open(ctx, t.Release)
	if err != nil {
		return nil, err
	}
	features, err := overlay.Apply(t.Repo, t.Ledger, t.Release, up, t.Leave...)
	if err != nil {
		return nil, err
	}
	b := &build{Tree: t, old: old, dir: t.Dir(), state: &State{Inputs: inputs, Sums: map[string]string{}}}
	if old == nil {
		// Prepared beside the tree, where a run that was killed may have left something.
		b.dir, b.old = filepath.Join(t.Output, ".kubernetes.new"), &State{}
		if err := os.RemoveAll(b.dir); err != nil {
			return nil, err
		}
		if err := initRepository(ctx, b.dir); err != nil {
			return nil, err
		}
	}
	for _, step := range []func(context.Context, Upstream, []overlay.Applied) error{
		b.commitBase, b.commitFeatures, b.commitGenerated, b.publish,
	} {
		if err := step(ctx, up, features); err != nil {
			return nil, err
		}
	}
	names := []string{"base"}
	for _, f := range b.state.Features {
		names = append(names, f.Slug)
	}
	if b.state.Head != b.state.Written() {
		names = append(names, "generated code")
	}
	t.Log("%s is at %.12s: %s", t.Dir(), b.state.Head, strings.Join(names, ", "))
	return b.state, nil
}

// build is one run of Build that has something to do.
type build struct {
	*Tree
	// dir is the folder with the repository: the tree, or what becomes it.
	dir string
	// old is the state before, empty if there is no tree yet; state is what becomes it.
	old, state *State
}

func (b *build) repo() git.Dir { return git.Dir(b.dir) }

// initRepository makes an empty repository.
func initRepository(ctx context.Context, dir string) error {
	// Upstream's .gitattributes would have git change line ends. A tree
	// holds the bytes that upstream published, whoever runs git in it.
	info := filepath.Join(dir, ".git", "info")
	if err := os.MkdirAll(info, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(info, "attributes"), []byte("* -text !eol !ident !filter\n"), 0o644); err != nil {
		return err
	}
	_, err := git.Dir(dir).Run(ctx, "init", "--quiet", "--template=", "--initial-branch="+Branch)
	return err
}

// baseKey identifies what the base commit is made from.
func (t *Tree) baseKey() (string, error) {
	sums, err := os.ReadFile(filepath.Join(t.Repo, upstream.PinDir(t.Release.Name), "go.sum"))
	if err != nil {
		return "", fmt.Errorf("release %s has no pin: %w", t.Release.Name, err)
	}
	return digest("base 2", t.Release.Released, strings.Join(t.Release.MissingModules, " "), string(sums), baseMessage(t.Release)), nil
}

// commitBase makes the commit of the untouched release, unless it is there.
func (b *build) commitBase(ctx context.Context, up Upstream, _ []overlay.Applied) (err error) {
	if b.state.BaseKey, err = b.baseKey(); err != nil {
		return err
	}
	if b.state.Base = b.old.Base; b.old.BaseKey == b.state.BaseKey {
		return nil
	}
	// What is in the module cache is hashed while it is read: both take seconds.
	verified := make(chan error, 1)
	go func() { verified <- up.Verify() }()
	base, err := b.commitFiles(ctx, b.repo(), up)
	if err := errors.Join(<-verified, err); err != nil {
		return fmt.Errorf("release %s: committing the base: %w", b.Release.Name, err)
	}
	b.state.Base = base
	return nil
}

// commitFiles commits the files of the untouched release, and tags them with its version.
func (t *Tree) commitFiles(ctx context.Context, repo git.Dir, up Upstream) (string, error) {
	files, err := up.Files()
	if err != nil {
		return "", err
	}
	const ref = "refs/carry/base"
	err = importCommits(ctx, repo, t.Release, func(im *importer) error {
		im.commit(ref, "", baseMessage(t.Release))
		for _, f := range files {
			content, err := up.ReadFile(f.Path)
			if err != nil {
				return err
			}
			im.file(f.Path, upstream.Executable(content), content)
		}
		im.tag(t.Release.Version, ref, "Kubernetes "+t.Release.Version+"\n")
		return ctx.Err()
	})
	if err != nil {
		return "", err
	}
	t.Log("base: %d files of %s", len(files), t.Release.Version)
	return repo.Run(ctx, "rev-parse", ref)
}

// commitFeatures makes a commit for each feature that changes something.
func (b *build) commitFeatures(ctx context.Context, _ Upstream, features []overlay.Applied) error {
	err := importCommits(ctx, b.repo(), b.Release, func(im *importer) error {
		parent := b.state.Base
		for _, f := range features {
			if len(f.Changes) == 0 {
				continue
			}
			ref := "refs/carry/" + f.Feature.Slug
			im.commit(ref, parent, message(f.Feature, b.Release))
			for _, c := range f.Changes {
				im.file(c.Path, c.Executable, c.Content)
			}
			parent = ref
			b.state.Features = append(b.state.Features, FeatureCommit{Slug: f.Feature.Slug, Commit: ref})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("committing the features: %w", err)
	}
	for i := range b.state.Features {
		f := &b.state.Features[i]
		if f.Commit, err = b.repo().Run(ctx, "rev-parse", f.Commit); err != nil {
			return err
		}
	}
	for _, f := range features {
		seams := 0
		for _, c := range f.Changes {
			if c.Seam {
				seams++
			}
			if b.state.Sums[c.Source], err = b.fileDigest(c.Source); err != nil {
				return err
			}
		}
		b.Log("%s: %d files of our own, %d seams", f.Feature.Slug, len(f.Changes)-seams, seams)
	}
	return nil
}

// publish makes the new state the state of the tree, writing only the files that differ.
func (b *build) publish(ctx context.Context, _ Upstream, _ []overlay.Applied) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	// It is not interrupted. Should the process be killed all the same, the next run
	// knows what was written, and goes on.
	ctx = context.WithoutCancel(ctx)
	if b.dir != b.Dir() {
		if err := b.checkout(ctx); err != nil {
			return err
		}
		return os.Rename(b.dir, b.Dir())
	}
	if err := b.checkEdits(ctx); err != nil {
		return err
	}
	if b.old.Next != "" {
		// Killed together with git. Nobody else works here: there is a lock of our own.
		if err := os.Remove(filepath.Join(b.dir, ".git", "index.lock")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	b.old.Next = b.state.Head
	if err := b.old.write(b.dir); err != nil {
		return err
	}
	return b.checkout(ctx)
}

// checkout brings the files to the new state.
func (b *build) checkout(ctx context.Context) error {
	// Otherwise, files that were touched but not changed would be written.
	// It exits with 1 if it finds changes.
	if _, err := b.repo().Run(ctx, "update-index", "-q", "--refresh"); err != nil && git.ExitCode(err) != 1 {
		return err
	}
	if _, err := b.repo().Run(ctx, "checkout", "--quiet", "--force", "--no-track", "-B", Branch, b.state.Head); err != nil {
		return err
	}
	return b.state.write(b.dir)
}
