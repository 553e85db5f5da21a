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

package port

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"kubernetes-dra/hack/pkg/git"
	"kubernetes-dra/hack/pkg/sys"
	"kubernetes-dra/hack/pkg/tree/overlay"
)

// sign is a file in a work tree which says what it is for.
const sign = "_output/port.txt"

// conflictsDir is the folder for conflicts in a work tree; git ignores it.
const conflictsDir = "_output/conflicts"

// WorkTree makes a git work tree of the repository, in which the overlay can change
// without a change in the repository. One that was made for the same two releases is
// used again. It returns the work tree, and the folder for conflicts in it.
func WorkTree(ctx context.Context, repo, dir, from, to string) (work, conflicts string, err error) {
	if work, err = filepath.Abs(dir); err != nil {
		return "", "", err
	}
	conflicts = filepath.Join(work, filepath.FromSlash(conflictsDir))
	purpose := from + " to " + to
	content, err := os.ReadFile(filepath.Join(work, filepath.FromSlash(sign)))
	switch {
	case err == nil && strings.TrimSpace(string(content)) == purpose:
		return work, conflicts, nil
	case err == nil:
		return "", "", fmt.Errorf("%s is for porting from %s: name another folder with --out", work, strings.TrimSpace(string(content)))
	case !errors.Is(err, fs.ErrNotExist):
		return "", "", err
	}
	if _, err := os.Lstat(work); err == nil {
		return "", "", fmt.Errorf("%s is there already, and was not made by carry port: name another folder with --out", work)
	}
	if err := checkCommitted(ctx, repo); err != nil {
		return "", "", err
	}
	// What is left of one that was removed by hand is in the way.
	if _, err := git.Dir(repo).Run(ctx, "worktree", "prune"); err != nil {
		return "", "", err
	}
	if _, err := git.Dir(repo).Run(ctx, "worktree", "add", "--quiet", "--detach", "--", work, "HEAD"); err != nil {
		return "", "", err
	}
	return work, conflicts, sys.WriteFile(filepath.Join(work, filepath.FromSlash(sign)), []byte(purpose+"\n"), 0o644)
}

// checkCommitted refuses a repository with an overlay that the work tree would not get.
func checkCommitted(ctx context.Context, repo string) error {
	roots, err := overlay.Roots(repo)
	if err != nil {
		return err
	}
	out, err := git.Dir(repo).Run(ctx, append([]string{"status", "--porcelain", "--untracked-files=all", "--"}, roots...)...)
	if err != nil {
		return err
	}
	if out != "" {
		return fmt.Errorf("the overlay has changes that are not committed, and the work tree is made from what is:\n%s", out)
	}
	return nil
}
