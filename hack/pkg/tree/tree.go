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

// Package tree builds the Kubernetes tree of a release: a git repository
// whose first commit is the untouched base, followed by one commit for each
// feature and one with the generated code. It also takes edits made in the
// tree back to the overlay, writes the commits out as a patch series, and
// applies that to other checkouts.
package tree

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"kubernetes-dra/hack/pkg/git"
	"kubernetes-dra/hack/pkg/sys"
	"kubernetes-dra/hack/pkg/tree/ledger"
	"kubernetes-dra/hack/pkg/tree/overlay"
	"kubernetes-dra/hack/pkg/tree/upstream"
)

// Branch is the branch of the tree that carry writes.
const Branch = "dra"

// Upstream is where the untouched tree comes from. *upstream.Source is one.
type Upstream interface {
	overlay.Base
	// Files lists the tree, ordered by path.
	Files() ([]upstream.File, error)
	// Verify hashes all files, and compares with what was pinned.
	Verify() error
}

// Tree is the tree of a release, built or not.
type Tree struct {
	// Repo is the root of this repository.
	Repo    string
	Ledger  *ledger.Ledger
	Release *ledger.Release
	// Output is the folder of everything that is built for the release.
	Output string
	// Cache is a folder for downloads that other clones can use as well.
	Cache string

	// Leave says which files of the overlay are left out. Those that change no file
	// which Go compiles can be left out of a tree that is only compiled.
	Leave []func(overlay.Entry) bool
	// Regenerate runs the generators where generated.patch is not what belongs to
	// the overlay, instead of failing. It takes minutes.
	Regenerate bool
	// record has the result of that written to generated.patch.
	record bool

	// Log tells the user what is going on. Each call is a line.
	Log func(format string, args ...any)
	// Generate runs the code generators in a complete tree.
	Generate func(ctx context.Context, dir string) error
	// Open downloads and verifies the untouched tree of a release.
	Open func(ctx context.Context, r *ledger.Release) (Upstream, error)
}

// New returns the tree of a release of the repository. The release must be
// one that is carried.
func New(repo string, l *ledger.Ledger, release string) (*Tree, error) {
	r, err := l.Release(release)
	if err != nil {
		return nil, err
	}
	return &Tree{
		Repo:    repo,
		Ledger:  l,
		Release: r,
		Output:  filepath.Join(repo, "_output", r.Name),
		Log:     func(string, ...any) {},
		Open: func(ctx context.Context, r *ledger.Release) (Upstream, error) {
			source, err := upstream.Open(ctx, repo, r)
			if err != nil {
				return nil, err
			}
			return source, nil
		},
	}, nil
}

// Dir is the work tree.
func (t *Tree) Dir() string { return filepath.Join(t.Output, "kubernetes") }

// git runs in the work tree.
func (t *Tree) git() git.Dir { return git.Dir(t.Dir()) }

// State is what carry remembers about a tree that it built.
type State struct {
	// Inputs identifies everything that the tree was built from.
	Inputs string `json:"inputs"`
	// BaseKey identifies what the base commit was made from.
	BaseKey string `json:"baseKey"`
	// Base is the commit of the untouched release.
	Base string `json:"base"`
	// Features are the commits of the features that change something.
	Features []FeatureCommit `json:"features"`
	// Head is the last commit.
	Head string `json:"head"`
	// Next is the commit that the work tree was about to become. It is there only if
	// that was interrupted: some files may be those of Next.
	Next string `json:"next,omitempty"`
	// Sums are the checksums of the overlay files in the tree, by their names.
	Sums map[string]string `json:"sums"`
}

// FeatureCommit is the commit of a feature.
type FeatureCommit struct {
	Slug   string `json:"slug"`
	Commit string `json:"commit"`
}

// Written is the last commit of what people wrote: everything but the
// generated code.
func (s *State) Written() string {
	if len(s.Features) == 0 {
		return s.Base
	}
	return s.Features[len(s.Features)-1].Commit
}

// Content is the git tree object of what was built: its files, whatever messages say.
func (t *Tree) Content(ctx context.Context, s *State) (string, error) {
	return t.git().Run(ctx, "rev-parse", "--verify", s.Head+"^{tree}")
}

// stateFile is where the state of the tree in a folder stands.
func stateFile(dir string) string { return filepath.Join(dir, ".git", "carry", "state.json") }

// State returns what is known about the built tree, nil if there is none.
func (t *Tree) State() (*State, error) {
	if _, err := os.Lstat(t.Dir()); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	data, err := os.ReadFile(stateFile(t.Dir()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s was not made by carry: move it away", t.Dir())
	} else if err != nil {
		return nil, err
	}
	var s State
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("%s: %w: remove the tree to have it built anew", stateFile(t.Dir()), err)
	}
	return &s, nil
}

// write replaces the state of the tree in a folder.
func (s *State) write(dir string) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return sys.WriteFile(stateFile(dir), append(data, '\n'), 0o644)
}

// lock makes sure that one process at a time works on the release's tree.
func (t *Tree) lock(ctx context.Context) (unlock func(), err error) {
	return sys.Lock(ctx, filepath.Join(t.Output, ".lock"), func() {
		t.Log("waiting for another carry to be done with %s", t.Dir())
	})
}

// inputs identifies everything that the tree is built from, so that a tree which is up to
// date is found so without a look at upstream's files.
func (t *Tree) inputs() (string, error) {
	// The number grows when the same input gives another tree.
	parts := []string{"tree 2"}
	for _, f := range t.Ledger.FeaturesOf(t.Release.Name) {
		parts = append(parts, f.Slug)
	}
	roots, err := overlay.Roots(t.Repo)
	if err != nil {
		return "", err
	}
	pin := upstream.PinDir(t.Release.Name)
	for _, name := range []string{"version", "go.mod", "go.sum", generatedFile} {
		roots = append(roots, path.Join(pin, name))
	}
	for _, root := range append(roots, ledger.Path) {
		err := filepath.WalkDir(filepath.Join(t.Repo, filepath.FromSlash(root)), func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			content, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			info, err := d.Info()
			parts = append(parts, name, fmt.Sprint(info.Mode()&0o100), string(content))
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return digest(parts...), nil
}

// digest is a hash of strings that tells their borders.
func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// fileDigest identifies the content of an overlay file; empty if it is gone.
func (t *Tree) fileDigest(source string) (string, error) {
	content, err := os.ReadFile(filepath.Join(t.Repo, filepath.FromSlash(source)))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return digest(string(content)), err
}

// index returns where the feature with a slug is built, -1 if it is not.
func index(features []*ledger.Feature, slug string) int {
	return slices.IndexFunc(features, func(f *ledger.Feature) bool { return f.Slug == slug })
}
