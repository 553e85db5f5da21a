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
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
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
	// Dir is its root, Head the commit that is checked out.
	Dir, Head string
	// Minor is the minor release that it is of, like "1.36".
	Minor string
	// Version is the last upstream version of the minor release in the history
	// of Head, like "v1.36.4". It is empty if no tag says that.
	Version string
}

// versionFile has the minor release that a tree is of, also in a copy without tags.
const versionFile = "staging/src/k8s.io/component-base/version/base.go"

var (
	minorInFile = regexp.MustCompile(`(?m)^\s*DefaultKubeBinaryVersion\s*=\s*"([0-9]+\.[0-9]+)"`)
	// upstreamTag is what upstream calls its releases. Distributions add tags of their own.
	upstreamTag = regexp.MustCompile(`^v1\.[0-9]+\.[0-9]+$`)
)

// OpenCheckout looks at the work tree in a folder, and finds out which version of
// Kubernetes it is.
func OpenCheckout(ctx context.Context, dir string) (*Checkout, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	c := &Checkout{Dir: dir}
	root, err := git.Dir(dir).Run(ctx, "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, fmt.Errorf("%s is not a git work tree: %w", dir, err)
	}
	if root != dir {
		return nil, fmt.Errorf("%s is inside of the git work tree %s: name its root", dir, root)
	}
	if c.Head, err = git.Dir(dir).Run(ctx, "rev-parse", "--verify", "--quiet", "HEAD^{commit}"); err != nil {
		return nil, fmt.Errorf("%s has no commit: %w", dir, err)
	}
	mod, _ := os.ReadFile(filepath.Join(dir, "go.mod"))
	if modfile.ModulePath(mod) != "k8s.io/kubernetes" {
		return nil, fmt.Errorf("%s is not a checkout of Kubernetes: its go.mod is not that of the module k8s.io/kubernetes", dir)
	}
	version, _ := os.ReadFile(filepath.Join(dir, filepath.FromSlash(versionFile)))
	if m := minorInFile.FindSubmatch(version); m != nil {
		c.Minor = string(m[1])
	}
	// All tags in the history, and not only the nearest: the branch of a release
	// has tags of the next release's alpha versions in it.
	out, err := git.Dir(dir).Run(ctx, "tag", "--list", "v1.*", "--merged", c.Head)
	if err != nil {
		return nil, err
	}
	tags := slices.DeleteFunc(strings.Fields(out), func(tag string) bool {
		return !upstreamTag.MatchString(tag) || c.Minor != "" && semver.MajorMinor(tag) != "v"+c.Minor
	})
	if len(tags) > 0 {
		c.Version = slices.MaxFunc(tags, semver.Compare)
		c.Minor = strings.TrimPrefix(semver.MajorMinor(c.Version), "v")
	}
	return c, nil
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
		return nil, fmt.Errorf("%s is at %s: %w; %s", c.Dir, c.Minor, err, override)
	}
	if c.Version != "" && semver.Compare(c.Version, r.Version) < 0 {
		return nil, fmt.Errorf("%s is at %s: the overlay is for %s and what comes after it; check that out, or %s", c.Dir, c.Version, r.Version, override)
	}
	return r, nil
}

// ApplyTo commits the patch series of the release on top of what is checked out, with
// git am, and returns the new commits. If that fails, the checkout is as it was.
func (t *Tree) ApplyTo(ctx context.Context, c *Checkout, skipGenerated bool) ([]string, error) {
	if err := t.checkCheckout(ctx, c); err != nil {
		return nil, err
	}
	files, err := t.Patches(ctx)
	if err != nil {
		return nil, err
	}
	if skipGenerated {
		files = slices.DeleteFunc(files, func(name string) bool { return strings.HasSuffix(name, "-Generated-code.patch") })
	}
	var series bytes.Buffer
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		series.Write(content)
	}
	if err := t.lend(ctx, c); err != nil {
		return nil, err
	}
	// All of that can take minutes, in which the user may have gone on there.
	if err := t.checkCheckout(ctx, c); err != nil {
		return nil, err
	}
	// Where git is killed half-way, am --abort does not bring back what was there.
	ctx = context.WithoutCancel(ctx)
	if err := c.am(ctx, &series, "--quiet", "--3way"); err != nil {
		conflicts, _ := git.Dir(c.Dir).Run(ctx, "diff", "--name-only", "--diff-filter=U")
		advice := "nothing was changed there"
		if strings.Contains(conflicts, "api/openapi-spec/") || strings.Contains(conflicts, "generated") {
			advice += "; --skip-generated leaves generated code to hack/update-codegen.sh of the checkout"
		}
		if abortErr := c.am(ctx, nil, "--abort"); abortErr != nil {
			advice = fmt.Sprintf("undoing it: %v; \"git -C %s reset --hard %s\" does it", abortErr, c.Dir, c.Head)
		}
		return nil, fmt.Errorf("the series for %s does not fit %s: %w\n%s\n%s", t.Release.Version, c.Dir, err, conflicts, advice)
	}
	out, err := git.Dir(c.Dir).Run(ctx, "log", "--reverse", "--no-show-signature", "--format=%h %s", c.Head+"..")
	return strings.Split(out, "\n"), err
}

// lend gives a checkout the contents of files before and after each patch, which a merge
// looks for. Where no merge needs them, git removes them some day.
func (t *Tree) lend(ctx context.Context, c *Checkout) error {
	s, err := t.State()
	if err != nil {
		return err
	}
	raw, err := t.git().Run(ctx, "log", "--raw", "--no-abbrev", "--no-renames", "--format=", s.Base+".."+s.Head)
	if err != nil {
		return err
	}
	var blobs strings.Builder
	for line := range strings.Lines(raw) {
		for _, hash := range strings.Fields(line)[2:4] {
			if strings.Trim(hash, "0") != "" {
				fmt.Fprintln(&blobs, hash)
			}
		}
	}
	pack, err := t.git().Output(ctx, strings.NewReader(blobs.String()), nil, "pack-objects", "--quiet", "--stdout")
	if err != nil {
		return err
	}
	_, err = git.Dir(c.Dir).Output(ctx, bytes.NewReader(pack), nil, "unpack-objects", "-q")
	return err
}

// am runs git am there.
func (c *Checkout) am(ctx context.Context, stdin io.Reader, args ...string) error {
	args = append([]string{"-c", "user.name=" + authorName, "-c", "user.email=" + authorMail, "am"}, args...)
	_, err := git.Dir(c.Dir).Output(ctx, stdin, nil, args...)
	return err
}

// checkCheckout refuses a checkout in which git am cannot work, or has worked before, or that is not
// where it was.
func (t *Tree) checkCheckout(ctx context.Context, c *Checkout) error {
	repo := git.Dir(c.Dir)
	for _, sign := range []struct{ file, of string }{
		{"MERGE_HEAD", "a merge"}, {"CHERRY_PICK_HEAD", "a cherry-pick"}, {"REVERT_HEAD", "a revert"},
		{"rebase-merge", "a rebase"}, {"rebase-apply", "a rebase, or git am"}, {"index.lock", "another git command"},
	} {
		name, err := repo.Run(ctx, "rev-parse", "--path-format=absolute", "--git-path", sign.file)
		if err != nil {
			return err
		}
		if _, err := os.Lstat(name); err == nil {
			return fmt.Errorf("%s is in the middle of %s (%s exists): finish or abort it first", c.Dir, sign.of, name)
		}
	}
	changed, err := repo.Run(ctx, "status", "--porcelain", "--untracked-files=no", "--ignore-submodules=none")
	if err == nil && changed != "" {
		err = fmt.Errorf("%s has changes that are not committed: %s; commit or stash them first", c.Dir, strings.ReplaceAll(strings.TrimSpace(changed), "\n", ", "))
	}
	if err != nil {
		return err
	}
	if head, err := repo.Run(ctx, "rev-parse", "HEAD"); err != nil || head != c.Head {
		return cmp.Or(err, fmt.Errorf("%s was at the commit %.12s, and is at %.12s now: nothing was changed there, run this again", c.Dir, c.Head, head))
	}
	args := []string{"log", "--max-count=1", "--format=%h %s", "--no-show-signature", "--fixed-strings"}
	features := t.Ledger.FeaturesOf(t.Release.Name)
	for _, f := range features {
		args = append(args, "--grep="+subject(f))
	}
	found, err := repo.Run(ctx, append(args, c.Head)...)
	if err == nil && len(features) > 0 && found != "" {
		err = fmt.Errorf("%s has the overlay already: its history has the commit %s", c.Dir, found)
	}
	return err
}
