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

package debian

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"pault.ag/go/debian/deb"

	"kubernetes-dra/hack/pkg/image"
)

// Base gets the packages of an architecture, and returns what they consist of,
// sorted by path: without documentation, but with all licences, and without
// programs and libraries that the roots do not need. All of it belongs to root.
func (l *Lock) Base(ctx context.Context, arch string, source Source) ([]image.File, error) {
	packages := l.Packages[arch]
	if len(packages) == 0 {
		return nil, fmt.Errorf("the lock file has no packages for %s", arch)
	}
	t := &tree{arch: arch, nodes: map[string]*node{}, dropped: map[string]bool{}, thinned: map[string]bool{}}
	for _, p := range packages {
		content, err := source.fetch(ctx, l, p)
		if err != nil {
			return nil, err
		}
		if err := t.unpack(p, content, l.isRoot(p.Name)); err != nil {
			return nil, fmt.Errorf("package %s %s: %w", p.Name, p.Version, err)
		}
	}
	for _, link := range l.Links {
		if err := t.add(strings.TrimPrefix(link.Path, "/"), &node{kind: symlink, mode: 0o777, target: link.Target}); err != nil {
			return nil, err
		}
	}
	t.addParents()
	if err := t.reduce(); err != nil {
		return nil, err
	}
	if err := t.check(l, packages); err != nil {
		return nil, err
	}
	var files []image.File
	for _, name := range slices.Sorted(maps.Keys(t.nodes)) {
		n := t.nodes[name]
		files = append(files, image.File{
			Path: "/" + name, Mode: n.mode, Folder: n.kind == folder, Content: n.content, Target: n.target,
		})
	}
	return files, nil
}

type kind int

const (
	regular kind = iota
	folder
	symlink
)

// node is what a path stands for.
type node struct {
	kind    kind
	mode    int64
	content []byte
	target  string
	// wanted is true for what comes from a root.
	wanted bool
}

// tree has the files of packages, by their paths without the first slash.
type tree struct {
	arch  string
	nodes map[string]*node
	// dropped are paths that were left out, thinned the folders where that was.
	dropped, thinned map[string]bool
}

// merged are the folders that are links into usr. Packages may still have files
// there.
var merged = []string{"bin", "lib", "lib64", "sbin"}

// inTree is the path in the tree for a name in an archive.
func inTree(name string) (string, error) {
	clean := path.Clean(strings.TrimPrefix(name, "./"))
	if !filepath.IsLocal(clean) {
		return "", fmt.Errorf("the path %q leaves the image", name)
	}
	if first, _, deeper := strings.Cut(clean, "/"); deeper && slices.Contains(merged, first) {
		clean = "usr/" + clean
	}
	return clean, nil
}

// unpack adds the files of a package.
func (t *tree) unpack(p Package, content []byte, wanted bool) error {
	d, err := deb.Load(bytes.NewReader(content), p.Path)
	if err != nil {
		return err
	}
	defer d.Close()
	for field, want := range map[string]string{"Package": p.Name, "Version": p.Version, "Architecture": p.Architecture} {
		if got := d.Control.Values[field]; got != want {
			return fmt.Errorf("its field %s is %q, but the lock file says %q", field, got, want)
		}
	}
	// Programs that look for packages with vulnerabilities know this place.
	var status bytes.Buffer
	if err := d.Control.WriteTo(&status); err != nil {
		return err
	}
	// The library adds a line with a space.
	fields := append(bytes.TrimRight(status.Bytes(), " \n"), '\n')
	if err := t.add("var/lib/dpkg/status.d/"+p.Name, &node{mode: 0o644, content: fields}); err != nil {
		return err
	}

	// Hard links name files that came before, also such as are left out.
	files := map[string]*node{}
	for {
		header, err := d.Data.Next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		name, err := inTree(header.Name)
		if err != nil {
			return err
		}
		// Nobody changes into another user in the image.
		n := &node{mode: header.Mode & 0o777, wanted: wanted}
		switch header.Typeflag {
		case tar.TypeDir:
			n.kind, n.mode = folder, header.Mode&0o1777
			if slices.Contains(merged, name) {
				name = "usr/" + name
			}
		case tar.TypeSymlink:
			n.kind, n.target = symlink, header.Linkname
			if !path.IsAbs(n.target) && !filepath.IsLocal(path.Join(path.Dir(name), n.target)) {
				return fmt.Errorf("the link %q to %q leaves the image", header.Name, n.target)
			}
		case tar.TypeReg:
			if n.content, err = io.ReadAll(d.Data); err != nil {
				return fmt.Errorf("%s: %w", header.Name, err)
			}
		case tar.TypeLink:
			other, err := inTree(header.Linkname)
			if err != nil {
				return err
			}
			if files[other] == nil {
				return fmt.Errorf("%q is a hard link to %q, which does not come before it", header.Name, header.Linkname)
			}
			n = files[other]
		default:
			return fmt.Errorf("%q is neither a file nor a folder nor a link", header.Name)
		}
		files[name] = n
		if name == "." {
			continue
		}
		if unwanted(name) {
			t.drop(name)
			continue
		}
		if err := t.add(name, n); err != nil {
			return err
		}
	}
}

// add puts a node into the tree. Several packages may have the same folder.
func (t *tree) add(name string, n *node) error {
	if old := t.nodes[name]; old != nil {
		if old.kind == folder && n.kind == folder {
			return nil
		}
		return fmt.Errorf("%q is there already, from another package or as another link", name)
	}
	t.nodes[name] = n
	return nil
}

func (t *tree) drop(name string) {
	delete(t.nodes, name)
	t.dropped[name], t.thinned[path.Dir(name)] = true, true
}

// unwantedFolders are left out: what people or other programs read, and what only
// works on a whole system.
var unwantedFolders = []string{
	"etc/init.d",
	"etc/update-motd.d",
	"usr/lib/systemd",
	"usr/share/base-files",
	"usr/share/bash-completion",
	"usr/share/bug",
	"usr/share/fish",
	"usr/share/info",
	"usr/share/initramfs-tools",
	"usr/share/lintian",
	"usr/share/locale",
	"usr/share/man",
	"usr/share/zsh",
	// Conversions of character sets, which glibc loads when a program asks for one.
	"usr/lib/*/gconv",
}

// unwanted is true for what is left out because of its path.
func unwanted(name string) bool {
	parts := strings.Split(name, "/")
	for _, pattern := range unwantedFolders {
		n := strings.Count(pattern, "/") + 1
		if len(parts) < n {
			continue
		}
		if ok, _ := path.Match(pattern, path.Join(parts[:n]...)); ok {
			return true
		}
	}
	// Of the documentation, the licences remain.
	const doc = "usr/share/doc/"
	if rest, ok := strings.CutPrefix(name, doc); ok {
		_, file, deeper := strings.Cut(rest, "/")
		return deeper && file != "copyright"
	}
	return false
}

// reduce leaves out what no root needs, and then what that leaves behind.
func (t *tree) reduce() error {
	if err := t.dropUnneeded(); err != nil {
		return err
	}
	t.dropScripts()
	// A link may lead to a folder, and folders and links may be alone in another one.
	for before := -1; before != len(t.nodes); {
		before = len(t.nodes)
		t.dropLinks()
		t.dropFolders()
	}
	return nil
}

// dropScripts leaves out the scripts whose interpreter is not in the tree.
func (t *tree) dropScripts() {
	for name, n := range t.nodes {
		if n.kind != regular || n.mode&0o111 == 0 || !bytes.HasPrefix(n.content, []byte("#!")) {
			continue
		}
		line, _, _ := bytes.Cut(n.content[2:], []byte("\n"))
		fields := strings.Fields(string(line))
		if len(fields) == 0 || t.find(fields[0]) == nil {
			t.drop(name)
		}
	}
}

// dropLinks leaves out the links to what was left out.
func (t *tree) dropLinks() {
	for name, n := range t.nodes {
		if n.kind == symlink && t.dropped[t.resolve(name)] {
			t.drop(name)
		}
	}
}

// dropFolders leaves out the folders that got empty. Those that a package has as
// empty ones are for something, like tmp.
func (t *tree) dropFolders() {
	used := map[string]bool{}
	for name := range t.nodes {
		used[path.Dir(name)] = true
	}
	for name, n := range t.nodes {
		if n.kind == folder && t.thinned[name] && !used[name] {
			t.drop(name)
		}
	}
}

// addParents adds the folders that no package has.
func (t *tree) addParents() {
	for _, name := range slices.Collect(maps.Keys(t.nodes)) {
		for dir := path.Dir(name); dir != "." && t.nodes[dir] == nil; dir = path.Dir(dir) {
			t.nodes[dir] = &node{kind: folder, mode: 0o755}
		}
	}
}

// check finds what would not work, or must not be distributed.
func (t *tree) check(l *Lock, packages []Package) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(t.nodes)) {
		if dir := path.Dir(name); dir != "." && (t.nodes[dir] == nil || t.nodes[dir].kind != folder) {
			errs = append(errs, fmt.Errorf("%q is in %q, which is no folder", name, dir))
		}
	}
	for _, link := range l.Links {
		if t.find(link.Path) == nil {
			errs = append(errs, fmt.Errorf("the link %s to %s in the lock file leads to nothing", link.Path, link.Target))
		}
	}
	for _, p := range packages {
		if n := t.find("usr/share/doc/" + p.Name + "/copyright"); n == nil || n.kind != regular {
			errs = append(errs, fmt.Errorf("package %s has no licence: usr/share/doc/%s/copyright", p.Name, p.Name))
		}
	}
	return errors.Join(errs...)
}

// find returns the file or folder at a path, nil if there is none.
func (t *tree) find(name string) *node {
	n := t.nodes[t.resolve(name)]
	if n == nil || n.kind == symlink {
		return nil
	}
	return n
}

// resolve follows the links in a path as the kernel does when the tree is its
// root. What does not exist is taken as it is. It gives up when links lead in a
// circle, and returns one of them.
func (t *tree) resolve(name string) string {
	const most = 40 // as in Linux
	todo := strings.Split(name, "/")
	at := ""
	for links := 0; len(todo) > 0; {
		next := todo[0]
		todo = todo[1:]
		switch next {
		case "", ".":
			continue
		case "..":
			if at = path.Dir(at); at == "." {
				at = ""
			}
			continue
		}
		at = path.Join(at, next)
		n := t.nodes[at]
		if n == nil || n.kind != symlink {
			continue
		}
		if links++; links > most {
			return at
		}
		todo = append(strings.Split(n.target, "/"), todo...)
		if at = path.Dir(at); path.IsAbs(n.target) || at == "." {
			at = ""
		}
	}
	return at
}
