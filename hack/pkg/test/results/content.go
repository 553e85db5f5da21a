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

package results

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"kubernetes-dra/hack/pkg/git"
	"kubernetes-dra/hack/pkg/sys"
)

// Content knows what is in each file of a git work tree, edits and new files included.
// What git ignores is not there.
type Content struct {
	// Dir is the folder of the work tree.
	Dir string
	// Tree is the git tree object of all of it.
	Tree string
	// files maps paths to the object that git would store, and folders the names in them.
	files   map[string]string
	folders map[string][]string
}

// Scan reads a work tree. Files that did not change since the last commit are not read, so
// it takes a moment.
func Scan(ctx context.Context, dir string) (*Content, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	repo := git.Dir(dir)
	// The go command completes the checksums of some workspaces by itself, whatever it is
	// asked to do.
	tree, err := repo.WorkTree(ctx, ".", ":(top,exclude)go.work.sum")
	if err != nil {
		return nil, err
	}
	out, err := repo.Output(ctx, nil, nil, "ls-tree", "-r", "-z", "--full-tree", tree)
	if err != nil {
		return nil, err
	}
	c := &Content{Dir: dir, Tree: tree, files: map[string]string{}, folders: map[string][]string{}}
	for _, entry := range git.SplitZ(out) {
		// mode type object TAB path
		meta, name, found := strings.Cut(entry, "\t")
		fields := strings.Fields(meta)
		if !found || len(fields) != 3 {
			return nil, fmt.Errorf("git ls-tree: unexpected %q", entry)
		}
		c.add(name, fields[0]+" "+fields[2])
	}
	return c, nil
}

// TreeKey is the key of a line about the whole tree.
func (c *Content) TreeKey() string { return c.Tree[:32] }

func (c *Content) add(name, object string) {
	if _, known := c.files[name]; !known {
		for child := name; child != "."; {
			parent := path.Dir(child)
			if slices.Contains(c.folders[parent], path.Base(child)) {
				break
			}
			c.folders[parent] = append(c.folders[parent], path.Base(child))
			child = parent
		}
	}
	c.files[name] = object
}

// Replaced returns the content as the go command sees it with an overlay: paths of files,
// absolute or not, and the files that stand in for them.
func (c *Content) Replaced(replace map[string]string) (*Content, error) {
	r := &Content{Dir: c.Dir, Tree: c.Tree, files: map[string]string{}, folders: map[string][]string{}}
	for name, object := range c.files {
		r.add(name, object)
	}
	for name, file := range replace {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		rel, inside := sys.Within(c.Dir, name)
		if !inside {
			return nil, fmt.Errorf("%s is not in %s", name, c.Dir)
		}
		r.add(rel, fmt.Sprintf("overlay %x", sha256.Sum256(data)))
	}
	return r, nil
}

// describe says what is at a path: the object of a file, the names in a folder, or nothing.
func (c *Content) describe(name string) string {
	if object, found := c.files[name]; found {
		return object
	}
	if names, found := c.folders[name]; found {
		names = slices.Sorted(slices.Values(names))
		return "folder " + strings.Join(names, " ")
	}
	return none
}

// under lists the files below a folder, ordered by path. Folders for which skip returns true
// are left out.
func (c *Content) under(dir string, skip func(dir string) bool) []string {
	var files []string
	for _, name := range slices.Sorted(slices.Values(c.folders[dir])) {
		name = path.Join(dir, name)
		if _, isFile := c.files[name]; isFile {
			files = append(files, name)
		} else if skip == nil || !skip(name) {
			files = append(files, c.under(name, skip)...)
		}
	}
	return files
}

// hasGo says whether a folder has Go files, so that it is a package of its own.
func (c *Content) hasGo(dir string) bool {
	return slices.ContainsFunc(c.folders[dir], func(name string) bool { return strings.HasSuffix(name, ".go") })
}

// Digest is a hash of strings that tells their borders.
func Digest(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		_, _ = fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
