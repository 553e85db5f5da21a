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
// tree back to the overlay, and writes the commits out as a patch series.
package tree

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

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
	// Cache is a folder for what other clones can use as well, empty for none.
	Cache string

	// Leave says which files of the overlay are left out. Those that change no file
	// which Go compiles can be left out of a tree that is only compiled.
	Leave []func(overlay.Entry) bool

	// Log tells the user what is going on. Each call is a line.
	Log func(format string, args ...any)
	// Generate runs the code generators in a complete tree. Nil runs none.
	Generate func(ctx context.Context, dir string) error
	// Open downloads and verifies the untouched tree.
	Open func(ctx context.Context) (Upstream, error)
	// OpenOther does so for another release.
	OpenOther func(ctx context.Context, r *ledger.Release) (Upstream, error)
}

// New returns the tree of a release of the repository. The release must be
// one that is carried.
func New(repo string, l *ledger.Ledger, release string) (*Tree, error) {
	r, err := l.Release(release)
	if err != nil {
		return nil, err
	}
	t := &Tree{
		Repo:    repo,
		Ledger:  l,
		Release: r,
		Output:  filepath.Join(repo, "_output", r.Name),
		Log:     func(string, ...any) {},
	}
	t.Open = func(ctx context.Context) (Upstream, error) { return t.download(ctx, t.Release) }
	t.OpenOther = t.download
	return t, nil
}

// download is what Open is unless a test replaces it.
func (t *Tree) download(ctx context.Context, r *ledger.Release) (Upstream, error) {
	source, err := upstream.Open(ctx, t.Repo, r)
	if err != nil {
		return nil, err
	}
	return source, nil
}

// Dir is the work tree.
func (t *Tree) Dir() string { return filepath.Join(t.Output, "kubernetes") }

// git runs in the work tree.
func (t *Tree) git() git.Dir { return git.Dir(t.Dir()) }

// own is a file in the folder which carry keeps in the tree's repository.
func own(dir, name string) string { return filepath.Join(dir, ".git", "carry", name) }

const (
	stateFile   = "state.json"
	journalFile = "publish.json"
)

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
	// GeneratedKey identifies what the generated code was made from.
	GeneratedKey string `json:"generatedKey,omitempty"`
	// Head is the last commit.
	Head string `json:"head"`
	// Sources are the overlay files in the tree.
	Sources []Source `json:"sources"`
}

// FeatureCommit is the commit of a feature.
type FeatureCommit struct {
	Slug   string `json:"slug"`
	Commit string `json:"commit"`
}

// Source is an overlay file as it was when the tree was built.
type Source struct {
	Source string `json:"source"`
	Path   string `json:"path"`
	Slug   string `json:"slug"`
	Seam   bool   `json:"seam,omitempty"`
	SHA256 string `json:"sha256"`
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

// State returns what is known about the built tree, nil if there is none.
func (t *Tree) State() (*State, error) {
	if _, err := os.Lstat(t.Dir()); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	data, err := os.ReadFile(own(t.Dir(), stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s was not made by carry: move it away", t.Dir())
	} else if err != nil {
		return nil, err
	}
	var s State
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("%s: %w: remove the tree to have it built anew", own(t.Dir(), stateFile), err)
	}
	return &s, nil
}

// writeJSON replaces the file at once.
func writeJSON(name string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return sys.WriteFile(name, append(data, '\n'), 0o644)
}

// lock makes sure that one process at a time works on the release's tree.
func (t *Tree) lock(ctx context.Context) (unlock func(), err error) {
	return sys.Lock(ctx, filepath.Join(t.Output, ".lock"), func() {
		t.Log("waiting for another carry to be done with %s", t.Dir())
	})
}

// The packages whose code decides, beside the data, what a tree looks like, and those of
// them that write generated code. What they import counts as well.
var (
	generatorPackages = []string{"hack/pkg/tree/codegen"}
	treePackages      = append([]string{"hack/pkg/tree"}, generatorPackages...)
)

// inputs identifies everything that the tree is built from.
func (t *Tree) inputs() (string, error) {
	h := sha256.New()
	for _, f := range t.Ledger.FeaturesOf(t.Release.Name) {
		fmt.Fprintln(h, f.Slug)
	}
	roots, err := overlay.Roots(t.Repo)
	if err != nil {
		return "", err
	}
	code, err := sourceFiles(t.Repo, treePackages)
	if err != nil {
		return "", err
	}
	pin := upstream.PinDir(t.Release.Name)
	if err := hashFiles(h, t.Repo, slices.Concat(code, roots, []string{pin, ledger.Path})); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// hashFiles adds the names, modes and contents of all files under the roots, each of which
// may be missing, to the hash. What tests and checks found does not count.
func hashFiles(h io.Writer, repo string, roots []string) error {
	for _, root := range roots {
		if err := hashRoot(h, repo, root); err != nil {
			return err
		}
	}
	return nil
}

func hashRoot(h io.Writer, repo, root string) error {
	err := filepath.WalkDir(filepath.Join(repo, filepath.FromSlash(root)), func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(repo, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if strings.HasPrefix(rel, "hack/releases/") && slices.Contains([]string{upstream.TestedFile, upstream.GeneratorsFile, upstream.TreeFile}, path.Base(rel)) {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		content := sha256.New()
		if _, err := io.Copy(content, f); err != nil {
			return err
		}
		_, err = fmt.Fprintf(h, "%q %v %x\n", rel, info.Mode()&0o111 != 0, content.Sum(nil))
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// baseKey identifies what the base commit is made from.
func (t *Tree) baseKey() (string, error) {
	sums, err := os.ReadFile(filepath.Join(t.Repo, upstream.PinDir(t.Release.Name), "go.sum"))
	if err != nil {
		return "", fmt.Errorf("release %s has no pin: %w", t.Release.Name, err)
	}
	parts := []string{"base 1", t.Release.Version, t.Release.Released, strings.Join(t.Release.MissingModules, " "), string(sums)}
	if len(t.Release.StandIns) > 0 {
		parts = append(parts, baseMessage(t.Release))
	}
	return digest(parts...), nil
}

// GeneratorsKey identifies the generators, and the base that they run on.
func (t *Tree) GeneratorsKey(s *State) (string, error) {
	h := sha256.New()
	// The generators format what they write with the go command's packages.
	fmt.Fprintf(h, "%s\n%s\n", s.Base, runtime.Version())
	code, err := sourceFiles(t.Repo, generatorPackages)
	if err != nil {
		return "", err
	}
	if err := hashFiles(h, t.Repo, code); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// generatedKey identifies what the generated code is made from: the
// generators, the base, and those files of the features that they may read.
func (t *Tree) generatedKey(s *State, features []overlay.Applied) (string, error) {
	generators, err := t.GeneratorsKey(s)
	if err != nil {
		return "", err
	}
	parts := []string{generators}
	for _, f := range features {
		for _, c := range f.Changes {
			if readByGenerators(c.Path) || bytes.Contains(c.Content, []byte("featuregate.VersionedSpecs")) {
				parts = append(parts, c.Path, string(c.Content))
			}
		}
	}
	return digest(parts...), nil
}

// readByGenerators says whether generated code can depend on a file. That is
// so unless it is known that it cannot. The lists of feature gates depend on every file
// with gates; upstream has none in these folders.
func readByGenerators(p string) bool {
	if strings.HasSuffix(p, "_test.go") {
		return false
	}
	for _, dir := range []string{"pkg/scheduler/", "pkg/controller/", "pkg/kubelet/", "pkg/printers/", "plugin/", "staging/src/k8s.io/kubectl/pkg/describe/", "test/integration/", "test/e2e/", "test/e2e_node/"} {
		if strings.HasPrefix(p, dir) {
			return false
		}
	}
	return path.Ext(p) != ".md"
}

// has returns a predicate for the feature with a slug.
func has(slug string) func(*ledger.Feature) bool {
	return func(f *ledger.Feature) bool { return f.Slug == slug }
}

// digest is a hash of strings that tells their borders.
func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))
}
