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
	state, err := t.Build(ctx)
	if err != nil {
		return nil, err
	}
	unlock, err := t.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	dir, tmp := filepath.Join(t.Output, "patches"), filepath.Join(t.Output, ".patches.new")
	if err := os.RemoveAll(tmp); err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	// The same commits give the same files: no version of git, no hashes.
	out, err := t.git().Run(ctx, "format-patch", "--output-directory", tmp, "--no-signature", "--zero-commit",
		"--no-numbered", "--no-renames", "--binary", "--full-index", "--unified=3", "--diff-algorithm=myers",
		state.Base+".."+state.Head)
	if err != nil {
		return nil, err
	}
	if out == "" {
		return nil, fmt.Errorf("release %s carries nothing: no patches", t.Release.Name)
	}
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return nil, err
	}
	var files []string
	for name := range strings.Lines(out) {
		files = append(files, filepath.Join(dir, filepath.Base(strings.TrimSpace(name))))
	}
	return files, nil
}
