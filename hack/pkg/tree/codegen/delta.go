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
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"kubernetes-dra/hack/pkg/git"
)

// Delta is how the published API differs from upstream: unified diffs by name
// of the file in api/<release>, where they get reviewed.
type Delta map[string][]byte

// deltaSuffix is what a diff is called, in addition to the name of the file
// in the tree. It is not ".patch" because it does not get applied.
const deltaSuffix = ".diff"

// deltaPaths are the parts of the tree which describe the published API and the
// feature gates completely. OpenAPI v2 says the same as v3 again.
var deltaPaths = []string{
	"api/openapi-spec/v3", "api/discovery",
	"test/compatibility_lifecycle/reference/versioned_feature_list.yaml", "test/featuregates_linter/test_data/versioned_feature_list.yaml",
}

// hashes matches a line in the head of a diff. Lines in its body begin otherwise.
var hashes = regexp.MustCompile(`(?m)^index .*\n`)

// DeltaDir returns the folder in the repository with the API delta of a
// release.
func DeltaDir(repo, release string) string {
	return filepath.Join(repo, "api", release)
}

// APIDelta determines the delta between two commits of a tree.
func APIDelta(ctx context.Context, tree, base, head string) (Delta, error) {
	dir := git.Dir(tree)
	args := []string{"diff", "--no-color", "--no-ext-diff", "--no-renames", "--name-only", "-z", base, head, "--"}
	out, err := dir.Output(ctx, nil, nil, append(args, deltaPaths...)...)
	if err != nil {
		return nil, err
	}
	delta := Delta{}
	for _, file := range git.SplitZ(out) {
		diff, err := dir.Output(ctx, nil, nil, "diff", "--no-color", "--no-ext-diff", "--no-renames", "-U3", base, head, "--", file)
		if err != nil {
			return nil, err
		}
		name, ok := strings.CutPrefix(file, "api/")
		if !ok {
			name = path.Base(file)
		}
		// Hashes of blobs say nothing to a reviewer.
		delta[name+deltaSuffix] = hashes.ReplaceAll(diff, nil)
	}
	return delta, nil
}

// ReadDelta reads the delta that is in a folder, which may be missing.
func ReadDelta(dir string) (Delta, error) {
	delta := Delta{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		delta[filepath.ToSlash(rel)] = content
		return err
	})
	if _, missing := os.Stat(dir); errors.Is(missing, fs.ErrNotExist) {
		return delta, nil
	}
	return delta, err
}

// Write replaces the delta in a folder.
func (d Delta) Write(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	for name, diff := range d {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, diff, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Compare returns what is wrong with the reviewed delta if this one is what a
// tree has.
func (d Delta) Compare(reviewed Delta) []string {
	var problems []string
	for _, name := range slices.Sorted(maps.Keys(d)) {
		if old, ok := reviewed[name]; !ok {
			problems = append(problems, name+": missing, although the API changes")
		} else if !bytes.Equal(old, d[name]) {
			problems = append(problems, name+": differs from the tree")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(reviewed)) {
		if _, ok := d[name]; !ok {
			problems = append(problems, name+": left over, the tree has no such change")
		}
	}
	return problems
}
