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
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"kubernetes-dra/hack/pkg/git"
	"kubernetes-dra/hack/pkg/sys"
	"kubernetes-dra/hack/pkg/tree/overlay"
	"kubernetes-dra/hack/pkg/tree/upstream"
)

// Generators take minutes, and what they make depends on nothing but the base and
// those files of the overlay that they read. So it is recorded in the repository, as
// upstream does it, with a key of what it was made from.

const (
	generatedFile = "generated.patch"
	// generatedFormat grows when an older carry cannot read the file any more.
	generatedFormat = "1"
	generatedHead   = `# What the code generators of Kubernetes %s make of our changes. Nobody edits this file:
# "make update" writes it, also in place of a merge conflict.
# format: %s
# key: %s
# sha256: %x
`
)

var (
	markers        = regexp.MustCompile(`(?m)^(<<<<<<<|>>>>>>>) `)
	generatedLines = regexp.MustCompile(`\A# [^\n]*\n# [^\n]*\n# format: (\S+)\n(?:# key: ([0-9a-f]{64})\n# sha256: ([0-9a-f]{64})\n)?`)
)

// GeneratedFile is where the generated code of a release is recorded, relative to the
// repository.
func GeneratedFile(release string) string { return path.Join(upstream.PinDir(release), generatedFile) }

func (t *Tree) generatedName() string {
	return filepath.Join(t.Repo, filepath.FromSlash(GeneratedFile(t.Release.Name)))
}

// errNewer is the error of a file that must not be written anew.
var errNewer = errors.New("it was written by a newer carry")

// readGenerated returns the patch with the generated code, if it was made from what has the
// key.
func (t *Tree) readGenerated(key string) ([]byte, error) {
	data, err := os.ReadFile(t.generatedName())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("it is missing")
	} else if err != nil {
		return nil, err
	}
	if markers.Match(data) {
		return nil, errors.New("it has the conflict of a merge")
	}
	head := generatedLines.FindSubmatch(data)
	if head == nil {
		return nil, errors.New("it is damaged: it does not start as carry writes it")
	}
	body := data[len(head[0]):]
	switch {
	case string(head[1]) != generatedFormat:
		return nil, fmt.Errorf("%w: it has the format %s, this one knows %s", errNewer, head[1], generatedFormat)
	case fmt.Sprintf("%x", sha256.Sum256(body)) != string(head[3]):
		return nil, errors.New("it is damaged, or was edited: it does not have the checksum that it says")
	case string(head[2]) != key:
		return nil, errors.New("it was made from something else than what the pin and the overlay have now")
	}
	return body, nil
}

// writeGenerated records a tree with generated code, which is on top of a commit.
func (t *Tree) writeGenerated(ctx context.Context, repo git.Dir, key, commit, tree string) error {
	body, err := repo.Output(ctx, nil, nil, "diff", "--binary", "--full-index", "--no-renames", "--no-color",
		"--no-ext-diff", "--no-textconv", "--unified=3", "--diff-algorithm=myers", commit, tree)
	if err != nil {
		return err
	}
	head := fmt.Sprintf(generatedHead, t.Release.Version, generatedFormat, key, sha256.Sum256(body))
	t.Log("updated %s", GeneratedFile(t.Release.Name))
	return sys.WriteFile(t.generatedName(), append([]byte(head), body...), 0o644)
}

// generatedKey identifies what the generated code is made from: the base, and those
// files of the features that generators may read.
func (t *Tree) generatedKey(features []overlay.Applied) (string, error) {
	sums, err := os.ReadFile(filepath.Join(t.Repo, upstream.PinDir(t.Release.Name), "go.sum"))
	parts := append([]string{string(sums)}, t.Release.MissingModules...)
	for _, f := range features {
		for _, c := range f.Changes {
			if readByGenerators(c.Path) || bytes.Contains(c.Content, []byte("featuregate.VersionedSpecs")) {
				parts = append(parts, c.Path, string(c.Content))
			}
		}
	}
	return digest(parts...), err
}

// unread are folders in which generators read nothing but feature gates. Upstream has none
// there.
var unread = []string{
	"cmd/kube-controller-manager/", "pkg/apis/resource/validation/", "pkg/controller/", "pkg/kubelet/", "pkg/printers/",
	"pkg/registry/rbac/", "pkg/registry/resource/", "pkg/scheduler/", "plugin/", "staging/src/k8s.io/dynamic-resource-allocation/structured/",
	"staging/src/k8s.io/kubectl/pkg/describe/", "test/integration/", "test/e2e/", "test/e2e_node/",
}

// readByGenerators says whether generated code can depend on a file. That is
// so unless it is known that it cannot.
func readByGenerators(p string) bool {
	return !strings.HasSuffix(p, "_test.go") && path.Ext(p) != ".md" &&
		!slices.ContainsFunc(unread, func(dir string) bool { return strings.HasPrefix(p, dir) })
}

// commitGenerated commits the generated code that the repository has on top of the
// features.
func (b *build) commitGenerated(ctx context.Context, _ Upstream, features []overlay.Applied) error {
	written := b.state.Written()
	if b.state.Head = written; len(b.state.Features) == 0 {
		return nil
	}
	key, err := b.generatedKey(features)
	if err != nil {
		return err
	}
	name := GeneratedFile(b.Release.Name)
	tree, err := b.applyGenerated(ctx, key)
	switch {
	case errors.Is(err, errNewer):
		return fmt.Errorf("%s: %w: bring this clone up to date", name, err)
	case err != nil && b.Regenerate:
		b.Log("%s: %v: running the generators", name, err)
		if tree, err = b.generate(ctx, b.repo(), written, features); err != nil {
			return err
		}
		var inputs string
		if inputs, err = b.inputs(); err != nil {
			return err
		}
		if b.record {
			err = b.writeGenerated(ctx, b.repo(), key, written, tree)
		}
		// If the overlay was edited in these minutes, then the tree is not what the next build wants.
		if err == nil && inputs == b.state.Inputs {
			b.state.Inputs, err = b.inputs()
		}
	case err != nil:
		err = fmt.Errorf("%s: %w.\nRun \"make update\", which writes it for all releases in minutes each, or \"hack/carry.sh generate --release %s\" for this one alone",
			name, err, b.Release.Name)
	}
	if err != nil {
		return err
	}
	changed, err := diffTrees(ctx, b.repo(), written, tree)
	if err != nil || len(changed) == 0 {
		return err
	}
	b.Log("generated code: %d files", len(changed))
	b.state.Head, err = commitTree(ctx, b.repo(), b.Release, tree, written, generatedMessage)
	return err
}

// applyGenerated applies generated.patch to the features, and returns the tree.
func (b *build) applyGenerated(ctx context.Context, key string) (string, error) {
	body, err := b.readGenerated(key)
	if err != nil {
		return "", err
	}
	return inIndex(ctx, b.repo(), b.state.Written(), func(env []string) error {
		if len(body) == 0 {
			return nil // git takes it for an accident
		}
		_, err := b.repo().Output(ctx, bytes.NewReader(body), env, "apply", "--cached", "--whitespace=nowarn")
		return err
	})
}

// inIndex changes a commit in an index of its own, and returns the tree.
func inIndex(ctx context.Context, repo git.Dir, commit string, change func(env []string) error) (string, error) {
	tmp, err := os.MkdirTemp("", "carry-index-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	env := []string{"GIT_INDEX_FILE=" + filepath.Join(tmp, "index")}
	if _, err := repo.Output(ctx, nil, env, "read-tree", commit); err != nil {
		return "", err
	}
	if err := change(env); err != nil {
		return "", err
	}
	out, err := repo.Output(ctx, nil, env, "write-tree")
	return strings.TrimSpace(string(out)), err
}

// generate runs the generators on a commit, in a second work tree, and returns the tree with
// what they make. The features have files that they must leave alone.
func (t *Tree) generate(ctx context.Context, repo git.Dir, commit string, features []overlay.Applied) (tree string, err error) {
	dir := filepath.Join(t.Output, ".kubernetes.gen")
	remove := func() error {
		err := os.RemoveAll(dir)
		_, pruneErr := repo.Run(context.WithoutCancel(ctx), "worktree", "prune")
		return errors.Join(err, pruneErr)
	}
	if err := remove(); err != nil { // what a killed run left
		return "", err
	}
	// Twice, because git leaves the place locked when it is killed here.
	if _, err := repo.Run(ctx, "worktree", "add", "--quiet", "--force", "--force", "--detach", dir, commit); err != nil {
		return "", fmt.Errorf("preparing the generators: %w", err)
	}
	defer func() { err = errors.Join(err, remove()) }()
	if err := t.Generate(ctx, dir); ctx.Err() != nil {
		return "", context.Cause(ctx)
	} else if err != nil {
		return "", fmt.Errorf("generating code for release %s: %w", t.Release.Name, err)
	}
	// What upstream's .gitignore names can be generated code, too. Only
	// its _output is a place for leftovers.
	if err := os.RemoveAll(filepath.Join(dir, "_output")); err != nil {
		return "", err
	}
	if _, err := git.Dir(dir).Run(ctx, "add", "--all", "--force"); err != nil {
		return "", err
	}
	if tree, err = git.Dir(dir).Run(ctx, "write-tree"); err != nil {
		return "", err
	}
	changed, err := pathsOf(diffTrees(ctx, repo, commit, tree))
	for _, f := range features {
		for _, c := range f.Changes {
			if slices.Contains(changed, c.Path) {
				return "", fmt.Errorf("%s: release %s: the generators change it, so it cannot be in the overlay", c.Source, t.Release.Name)
			}
		}
	}
	return tree, err
}

// UpdateGenerated is Build, and writes generated.patch anew if it is not what belongs to
// the overlay.
func (t *Tree) UpdateGenerated(ctx context.Context) (*State, error) {
	copied := *t
	copied.Regenerate, copied.record = true, true
	return copied.Build(ctx)
}

// CheckGenerated builds the tree, runs the generators, and fails if they make something
// else than what generated.patch has.
func (t *Tree) CheckGenerated(ctx context.Context) error {
	unlock, err := t.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	s, err := t.build(ctx)
	if err != nil {
		return err
	}
	tree, err := t.generate(ctx, t.git(), s.Written(), nil)
	if err != nil {
		return err
	}
	differ, err := diffTrees(ctx, t.git(), s.Head, tree)
	if err == nil && len(differ) > 0 {
		err = fmt.Errorf("%s: the generators make something else of %s: remove it, and run \"make update\"", GeneratedFile(t.Release.Name), summary(differ))
	}
	return err
}
