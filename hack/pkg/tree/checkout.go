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
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"

	"kubernetes-dra/hack/pkg/git"
	"kubernetes-dra/hack/pkg/tree/ledger"
)

// Checkout is a git work tree of Kubernetes that is not carry's.
type Checkout struct {
	// Dir is its root.
	Dir string
	// Head is the commit that is checked out.
	Head string
	// Branch is the branch that is checked out, empty if HEAD is detached.
	Branch string
	// Minor is the minor release that Head is of, like "1.36".
	Minor string
	// Version is the last upstream version of the minor release in the history
	// of Head, like "v1.36.4". It is empty if no tag says that.
	Version string

	// files are the files of Head by path, folders their folders.
	files   map[string]checkoutFile
	folders map[string]bool
}

// checkoutFile is an entry of a git tree.
type checkoutFile struct{ mode, hash string }

const (
	kubernetesModule = "k8s.io/kubernetes"
	// versionFile has the minor release that a tree is of, also in a copy without tags.
	versionFile = "staging/src/k8s.io/component-base/version/base.go"
)

var (
	minorInFile = regexp.MustCompile(`(?m)^\s*DefaultKubeBinaryVersion\s*=\s*"([0-9]+\.[0-9]+)"`)
	// upstreamTag is what upstream calls its versions. Distributions add tags
	// of their own, which say nothing about where they started.
	upstreamTag = regexp.MustCompile(`^v1\.[0-9]+\.[0-9]+(-(alpha|beta|rc)\.[0-9]+)?$`)
)

// OpenCheckout looks at the work tree in a folder, and finds out which version of
// Kubernetes it is.
func OpenCheckout(ctx context.Context, dir string) (*Checkout, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(dir); err != nil {
		return nil, err
	}
	c := &Checkout{Dir: dir}
	root, err := c.git().Run(ctx, "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, fmt.Errorf("%s is not a git work tree: %w", dir, err)
	}
	if same, err := sameFolder(dir, root); err != nil {
		return nil, err
	} else if !same {
		return nil, fmt.Errorf("%s is inside of the git work tree %s: name its root", dir, root)
	}
	if c.Head, err = c.git().Run(ctx, "rev-parse", "--verify", "--quiet", "HEAD^{commit}"); err != nil {
		return nil, fmt.Errorf("%s has no commit: %w", dir, err)
	}
	// It exits with 1 if HEAD is detached.
	if c.Branch, err = c.git().Run(ctx, "symbolic-ref", "--quiet", "--short", "HEAD"); err != nil && git.ExitCode(err) != 1 {
		return nil, err
	}
	if err := c.list(ctx); err != nil {
		return nil, err
	}
	return c, c.findVersion(ctx)
}

func sameFolder(a, b string) (bool, error) {
	infoA, err := os.Stat(a)
	if err != nil {
		return false, err
	}
	infoB, err := os.Stat(b)
	return err == nil && os.SameFile(infoA, infoB), err
}

func (c *Checkout) git() git.Dir { return git.Dir(c.Dir) }

// list reads the names of the files in Head.
func (c *Checkout) list(ctx context.Context) error {
	files, err := listTree(ctx, c.git(), c.Head)
	if err != nil {
		return err
	}
	c.files, c.folders = files, map[string]bool{}
	for p := range files {
		for dir := path.Dir(p); dir != "." && !c.folders[dir]; dir = path.Dir(dir) {
			c.folders[dir] = true
		}
	}
	return nil
}

// listTree lists the files of a commit.
func listTree(ctx context.Context, repo git.Dir, commit string) (map[string]checkoutFile, error) {
	out, err := repo.Output(ctx, nil, nil, "ls-tree", "-r", "-z", "--full-tree", commit)
	if err != nil {
		return nil, err
	}
	files := map[string]checkoutFile{}
	for _, line := range git.SplitZ(out) {
		// mode type hash<tab>path
		meta, p, ok := strings.Cut(line, "\t")
		fields := strings.Fields(meta)
		if !ok || len(fields) != 3 {
			return nil, fmt.Errorf("git ls-tree: unexpected %q", line)
		}
		files[p] = checkoutFile{mode: fields[0], hash: fields[2]}
	}
	return files, nil
}

// read returns a file of Head, fs.ErrNotExist if there is none.
func (c *Checkout) read(ctx context.Context, p string) ([]byte, error) {
	for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
		if _, ok := c.files[dir]; ok {
			return nil, fmt.Errorf("%s is in the way: it is a file there, not a folder", dir)
		}
	}
	if c.folders[p] {
		return nil, fmt.Errorf("%s is a folder there, not a file", p)
	}
	f, ok := c.files[p]
	if !ok {
		return nil, fmt.Errorf("%s: %w", p, fs.ErrNotExist)
	}
	if f.mode != mode(false) && f.mode != mode(true) {
		return nil, fmt.Errorf("%s is not a regular file there", p)
	}
	return c.git().Output(ctx, nil, nil, "cat-file", "blob", f.hash)
}

// checkoutBase is a checkout as what the overlay is applied to.
type checkoutBase struct {
	*Checkout
	ctx context.Context
}

// ReadFile returns the content of a file in the commit that is checked out.
func (b checkoutBase) ReadFile(p string) ([]byte, error) { return b.read(b.ctx, p) }

// findVersion sets Minor and Version.
func (c *Checkout) findVersion(ctx context.Context) error {
	mod, err := c.read(ctx, "go.mod")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", c.Dir, err)
	}
	if name := modfile.ModulePath(mod); name != kubernetesModule {
		return fmt.Errorf("%s is not a checkout of Kubernetes: its go.mod is not that of the module %s", c.Dir, kubernetesModule)
	}
	version, err := c.read(ctx, versionFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", c.Dir, err)
	}
	if m := minorInFile.FindSubmatch(version); m != nil {
		c.Minor = string(m[1])
	}
	// All tags in the history, and not only the nearest: the branch of a release
	// has tags of the next release's alpha versions in it.
	out, err := c.git().Run(ctx, "tag", "--list", "v1.*", "--merged", c.Head)
	if err != nil {
		return err
	}
	var tags []string
	for tag := range strings.FieldsSeq(out) {
		if upstreamTag.MatchString(tag) && (c.Minor == "" || semver.MajorMinor(tag) == "v"+c.Minor) {
			tags = append(tags, tag)
		}
	}
	// After a release comes the first candidate of the next one, in which nothing
	// has changed: a candidate counts only where there is no release.
	if releases := slices.DeleteFunc(slices.Clone(tags), func(tag string) bool { return semver.Prerelease(tag) != "" }); len(releases) > 0 {
		tags = releases
	}
	if len(tags) > 0 {
		c.Version = slices.MaxFunc(tags, semver.Compare)
		c.Minor = strings.TrimPrefix(semver.MajorMinor(c.Version), "v")
	}
	return nil
}

// Describe says which version is checked out.
func (c *Checkout) Describe() string {
	switch {
	case c.Version != "":
		return c.Version
	case c.Minor != "":
		return "some version of " + c.Minor
	default:
		return "an unknown version"
	}
}

// Release finds the release of the ledger whose overlay is for the checkout: one of
// the same minor release that is not newer.
func (c *Checkout) Release(l *ledger.Ledger) (*ledger.Release, error) {
	const override = "--release says which overlay to try all the same"
	if c.Minor == "" {
		return nil, fmt.Errorf("%s: neither a tag nor %s says which version of Kubernetes it is: %s", c.Dir, versionFile, override)
	}
	r, err := l.Release(c.Minor)
	if err != nil {
		return nil, fmt.Errorf("%s is at %s: %w; %s", c.Dir, c.Describe(), err, override)
	}
	if c.Version != "" && semver.Compare(c.Version, r.Version) < 0 {
		return nil, fmt.Errorf("%s is at %s: the overlay is for %s and what comes after it; check that out, or %s",
			c.Dir, c.Version, r.Version, override)
	}
	return r, nil
}

// gitPath returns where a repository, or a linked work tree, keeps something.
func gitPath(ctx context.Context, repo git.Dir, name string) (string, error) {
	p, err := repo.Run(ctx, "rev-parse", "--git-path", name)
	if err == nil && !filepath.IsAbs(p) {
		p = filepath.Join(string(repo), p)
	}
	return p, err
}

// checkIdle refuses a work tree with changes, or in the middle of something.
func (c *Checkout) checkIdle(ctx context.Context) error {
	for _, sign := range []struct{ file, of string }{
		{"MERGE_HEAD", "a merge"}, {"CHERRY_PICK_HEAD", "a cherry-pick"}, {"REVERT_HEAD", "a revert"},
		{"rebase-merge", "a rebase"}, {"rebase-apply", "a rebase, or git am"}, {"index.lock", "another git command"},
	} {
		name, err := gitPath(ctx, c.git(), sign.file)
		if err != nil {
			return err
		}
		if _, err := os.Lstat(name); err == nil {
			return fmt.Errorf("%s is in the middle of %s (%s exists): finish or abort it first", c.Dir, sign.of, name)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	out, err := c.git().Output(ctx, nil, nil, "status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=no", "--ignore-submodules=none")
	if err != nil {
		return err
	}
	var changed []edit
	for _, line := range git.SplitZ(out) {
		if len(line) > 3 {
			changed = append(changed, edit{Path: line[3:]})
		}
	}
	if len(changed) > 0 {
		return fmt.Errorf("%s has changes that are not committed: %s; commit or stash them first", c.Dir, summary(changed))
	}
	return nil
}

// checkFree refuses to go on if something that is not in git stands where one of
// the files would be written, or if git was told not to look at one of them.
func (c *Checkout) checkFree(ctx context.Context, paths []string) error {
	var inTheWay []edit
	for _, p := range paths {
		if _, ok := c.files[p]; ok {
			continue
		}
		at, err := c.obstacle(p)
		if err != nil {
			return err
		}
		if at != "" && !slices.Contains(inTheWay, edit{Path: at}) {
			inTheWay = append(inTheWay, edit{Path: at})
		}
	}
	if len(inTheWay) > 0 {
		return fmt.Errorf("%s has files that are not in git where ours would stand: %s; move them away first", c.Dir, summary(inTheWay))
	}
	out, err := c.git().Output(ctx, nil, nil, "ls-files", "-v", "-z")
	if err != nil {
		return err
	}
	var hidden []edit
	for _, line := range git.SplitZ(out) {
		// A lower case letter stands for "assume unchanged".
		tag, p, ok := strings.Cut(line, " ")
		if ok && tag != strings.ToUpper(tag) && slices.Contains(paths, p) {
			hidden = append(hidden, edit{Path: p})
		}
	}
	if len(hidden) > 0 {
		return fmt.Errorf("%s: git was told to assume that %s is unchanged: \"git update-index --no-assume-unchanged\" first", c.Dir, summary(hidden))
	}
	return nil
}

// obstacle returns what stands in the work tree where a file is to be written: the
// file itself, or something else in place of one of its folders.
func (c *Checkout) obstacle(p string) (string, error) {
	parts := strings.Split(p, "/")
	for i := range parts {
		at := strings.Join(parts[:i+1], "/")
		info, err := os.Lstat(filepath.Join(c.Dir, filepath.FromSlash(at)))
		if errors.Is(err, fs.ErrNotExist) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		if !info.IsDir() || i == len(parts)-1 {
			return at, nil
		}
	}
	return "", nil
}
