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
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"kubernetes-dra/hack/pkg/sys"
	"kubernetes-dra/hack/pkg/tree/overlay"
	"kubernetes-dra/hack/pkg/tree/upstream"
)

// What a build makes depends on nothing but what goes in. So the repository can remember
// it: whoever only has to know whether a tree is the tested one need not run its
// generators, which take minutes.

// KnownFile is where the repository remembers the tree of a release, relative to it.
func KnownFile(release string) string { return path.Join(upstream.PinDir(release), upstream.TreeFile) }

// Known returns the git tree object that Build would make, if the repository remembers it
// for the same input, and nothing otherwise. A tree that is already there gets no answer:
// it may have edits. Files that checks compare with a tree count as input, too; they are
// given relative to the repository.
func (t *Tree) Known(ctx context.Context, compared ...string) (string, error) {
	if _, err := os.Lstat(t.Dir()); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	key, content, err := t.known()
	if err != nil || key == "" {
		return "", err
	}
	now, err := t.knownKey(ctx, compared)
	if err != nil || now != key {
		return "", err
	}
	return content, nil
}

// CheckKnown says whether the repository remembers a tree that was built. It fails if the
// repository remembers another one for the same input.
func (t *Tree) CheckKnown(ctx context.Context, content string, compared ...string) (bool, error) {
	key, known, err := t.known()
	if err != nil {
		return false, err
	}
	now, err := t.knownKey(ctx, compared)
	if err != nil || now != key {
		return false, err
	}
	if known != content {
		return false, fmt.Errorf("%s says that this input gives the tree %s, but it is %s; remove the file, and run \"make update\"", KnownFile(t.Release.Name), known, content)
	}
	return true, nil
}

// RememberKnown writes the file that Known reads.
func (t *Tree) RememberKnown(ctx context.Context, content string, compared ...string) error {
	key, err := t.knownKey(ctx, compared)
	if err != nil {
		return err
	}
	return sys.WriteFile(filepath.Join(t.Repo, filepath.FromSlash(KnownFile(t.Release.Name))), []byte(key+" "+content+"\n"), 0o644)
}

// known reads the file. It returns nothing if there is none.
func (t *Tree) known() (key, content string, err error) {
	name := KnownFile(t.Release.Name)
	text, err := os.ReadFile(filepath.Join(t.Repo, filepath.FromSlash(name)))
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", nil
	} else if err != nil {
		return "", "", err
	}
	fields := strings.Fields(string(text))
	if len(fields) != 2 {
		return "", "", fmt.Errorf("%s must have the checksum of an input and a git tree object; remove it, and run \"make update\"", name)
	}
	return fields[0], fields[1], nil
}

// knownKey identifies what a tree is built from. Unlike the inputs of a build, it has
// nothing of other releases, and takes seconds: all seams are applied.
func (t *Tree) knownKey(ctx context.Context, compared []string) (string, error) {
	up, err := t.Open(ctx)
	if err != nil {
		return "", err
	}
	features, err := overlay.Apply(t.Repo, t.Ledger, t.Release, up, t.Leave...)
	if err != nil {
		return "", err
	}
	base, err := t.baseKey()
	if err != nil {
		return "", err
	}
	code, err := sourceFiles(t.Repo, treePackages)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintln(h, base, runtime.Version())
	for _, f := range features {
		for _, c := range f.Changes {
			fmt.Fprintf(h, "%q %q %v %x\n", f.Feature.Slug, c.Path, c.Executable, sha256.Sum256(c.Content))
		}
	}
	// The generators are compiled with what go.mod says.
	if err := hashFiles(h, t.Repo, slices.Concat(code, compared, []string{"go.mod"})); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
