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
	"path"
	"path/filepath"

	"kubernetes-dra/hack/pkg/git"
	"kubernetes-dra/hack/pkg/tree/overlay"
	"kubernetes-dra/hack/pkg/tree/patch"
)

// Files with conflict markers stand in a git repository: <slug>/<path in the tree>.
// What is committed there is the file that the seam is to be applied to, so that
// "git diff" shows what becomes of the seam.

// conflict leaves the file with markers. If it was there and somebody has resolved it,
// the result is the file as it should be, nil if not.
func (p *Port) conflict(ctx context.Context, c overlay.Change, theirs, marked []byte, places int, result *Result) ([]byte, error) {
	name := path.Join(c.Slug, c.Path)
	merged, err := p.resolved(ctx, name, theirs)
	if err != nil || merged != nil {
		return merged, err
	}
	file := filepath.Join(p.Conflicts, filepath.FromSlash(name))
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		err = p.commit(ctx, name, theirs)
		if err == nil {
			err = os.WriteFile(file, marked, 0o644)
		}
		if err != nil {
			return nil, err
		}
	}
	result.Outcome, result.Why = Conflict, fmt.Sprintf("%d %s in %s", places, plural(places, "place"), file)
	if other := p.fitting(c.Entry, theirs); other != "" {
		result.Why += "; but " + other + " applies"
	}
	// For the seams of later features, as if upstream was right.
	p.theirs[c.Path], err = patch.MergeCurrent(ctx, theirs, c.Before, c.Content)
	return nil, err
}

// resolved returns what somebody made of a file with conflict markers, nil if there are
// still some.
func (p *Port) resolved(ctx context.Context, name string, theirs []byte) ([]byte, error) {
	content, err := os.ReadFile(filepath.Join(p.Conflicts, filepath.FromSlash(name)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil || patch.HasMarkers(content) {
		return nil, err
	}
	before, err := git.Dir(p.Conflicts).Output(ctx, nil, nil, "show", "HEAD:"+name)
	if err != nil {
		return nil, err
	}
	// What stands below the seam is another one if a conflict of an earlier
	// feature was resolved at the same time.
	merged, err := patch.Merge(ctx, theirs, before, content)
	if errors.Is(err, patch.ErrConflict) {
		return nil, fmt.Errorf("%s and the resolution for an earlier feature touch the same lines: remove the file, and resolve the conflict again", filepath.Join(p.Conflicts, name))
	}
	return merged, err
}

// commit puts a file into the repository of conflicts, as it is without the seam.
func (p *Port) commit(ctx context.Context, name string, content []byte) error {
	file := filepath.Join(p.Conflicts, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file, content, 0o644); err != nil {
		return err
	}
	repo := git.Dir(p.Conflicts)
	if _, err := os.Stat(filepath.Join(p.Conflicts, ".git")); errors.Is(err, fs.ErrNotExist) {
		if _, err := repo.Run(ctx, "init", "--quiet", "--template=", "--initial-branch=conflicts"); err != nil {
			return err
		}
	}
	if _, err := repo.Run(ctx, "add", "--force", "--", name); err != nil {
		return err
	}
	_, err := repo.Run(ctx, "-c", "user.name=carry", "-c", "user.email=carry@kubernetes-dra.invalid",
		"commit", "--quiet", "--allow-empty", "--message", name+" of "+p.To.Version, "--", name)
	return err
}

// fitting finds a seam of another release that applies.
func (p *Port) fitting(e overlay.Entry, theirs []byte) string {
	for _, other := range overlay.Siblings(p.entries, e) {
		if _, err := p.applied(other, theirs); err == nil {
			return other.Source
		}
	}
	return ""
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}
