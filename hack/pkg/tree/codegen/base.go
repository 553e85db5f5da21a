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

package codegen

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"kubernetes-dra/hack/pkg/git"
	"kubernetes-dra/hack/pkg/sys"
)

// CheckBase checks that the generators change nothing in the untouched base: runs
// them in a copy of the given revision of the tree. If that fails, generated
// code of a patched tree cannot be trusted either.
func CheckBase(ctx context.Context, tree, revision, release string, opts Options) (finalErr error) {
	tmp, err := os.MkdirTemp("", "codegen-base-")
	if err != nil {
		return err
	}
	defer func() {
		finalErr = errors.Join(finalErr, os.RemoveAll(tmp))
	}()

	// A clone which shares the objects, not a work tree: it leaves nothing in
	// the tree's repository, also if it gets interrupted.
	base := filepath.Join(tmp, "kubernetes")
	if tree, err = filepath.Abs(tree); err != nil {
		return err
	}
	commit, err := git.Dir(tree).Run(ctx, "rev-parse", "--verify", "--quiet", revision+"^{commit}")
	if err != nil {
		return fmt.Errorf("%s has no revision %q: %w", tree, revision, err)
	}
	if _, err := git.Dir(tmp).Run(ctx, "clone", "--quiet", "--shared", "--no-checkout", "--", tree, base); err != nil {
		return err
	}
	if _, err := git.Dir(base).Run(ctx, "checkout", "--quiet", "--detach", commit); err != nil {
		return err
	}
	if err := dropMissingModules(base); err != nil {
		return err
	}
	before, err := changes(ctx, base)
	if err != nil {
		return err
	}

	if err := Run(ctx, base, release, opts); err != nil {
		return err
	}

	after, err := changes(ctx, base)
	if err != nil {
		return err
	}
	if before != after {
		// The checks of the tree itself need not be clean for this to be found.
		diff, err := git.Dir(base).Run(ctx, "diff", "--stat", "HEAD")
		if err != nil {
			return err
		}
		return fmt.Errorf("generators change the untouched %s:%s%s", revision, sys.Indented(after), sys.Indented(diff))
	}
	return nil
}

// dropMissingModules removes those modules from go.work which are not in the
// tree. A base that carry laid out has none of those.
func dropMissingModules(tree string) error {
	file := filepath.Join(tree, "go.work")
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var kept strings.Builder
	for line := range strings.Lines(string(content)) {
		if dir := strings.TrimSpace(line); strings.HasPrefix(dir, "./staging/") {
			if _, err := os.Stat(filepath.Join(tree, filepath.FromSlash(dir), "go.mod")); errors.Is(err, os.ErrNotExist) {
				continue
			} else if err != nil {
				return err
			}
		}
		kept.WriteString(line)
	}
	if kept.String() == string(content) {
		return nil
	}
	return os.WriteFile(file, []byte(kept.String()), 0o644)
}

// changes lists the files that differ from the commit which is checked out.
func changes(ctx context.Context, tree string) (string, error) {
	out, err := git.Dir(tree).Run(ctx, "status", "--porcelain", "--untracked-files=all")
	if err != nil {
		return "", err
	}
	return out, nil
}
