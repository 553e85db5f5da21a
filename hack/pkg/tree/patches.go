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
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Patches writes the commits of the tree as a series for "git am", into the
// folder patches beside the tree, and returns the names of the files. What
// people wrote comes first, generated code last.
func (t *Tree) Patches(ctx context.Context) ([]string, error) {
	unlock, err := t.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	state, err := t.build(ctx)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(t.Output, "patches")
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	files, err := t.series(ctx, state, dir)
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("release %s carries nothing: no patches", t.Release.Name)
	}
	return files, err
}

// series writes the commits as files into a folder, and returns their names.
func (t *Tree) series(ctx context.Context, state *State, dir string) ([]string, error) {
	// The same commits give the same files: no version of git, no hashes.
	out, err := t.git().Run(ctx, "format-patch", "--output-directory", dir, "--no-signature", "--zero-commit",
		"--no-numbered", "--no-renames", "--binary", "--full-index", "--unified=3", "--diff-algorithm=myers",
		state.Base+".."+state.Head)
	if err != nil || out == "" {
		return nil, err
	}
	return strings.Split(out, "\n"), nil
}

// CheckPatches applies the series to the untouched release, and fails if that does not give
// the very tree that was built.
func (t *Tree) CheckPatches(ctx context.Context, state *State) error {
	tmp, err := os.MkdirTemp("", "carry-series-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	files, err := t.series(ctx, state, tmp)
	if err != nil {
		return err
	}
	tree, err := inIndex(ctx, t.git(), state.Base, func(env []string) error {
		for _, name := range files {
			if _, err := t.git().Output(ctx, nil, env, "apply", "--cached", "--whitespace=nowarn", name); err != nil {
				return fmt.Errorf("release %s: the series does not apply: %w", t.Release.Name, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	different, err := diffTrees(ctx, t.git(), state.Head, tree)
	if err == nil && len(different) > 0 {
		err = fmt.Errorf("release %s: the series does not give the tree that was built: %s differ", t.Release.Name, summary(different))
	}
	return err
}
