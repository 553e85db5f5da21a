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
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"kubernetes-dra/hack/pkg/sys"
)

// Sources knows what packages of a work tree are compiled from.
type Sources struct {
	content  *Content
	packages map[string]*listed
	hashes   map[string]string
}

// listed is what we need to know from "go list".
type listed struct {
	ImportPath, Dir, ForTest, Name string
	Standard                       bool
	Module                         *struct{ Path, Version, Sum, Dir string }
	Imports                        []string
	ImportMap                      map[string]string
	Error                          *struct{ Err string }

	GoFiles, CgoFiles, CFiles, CXXFiles, HFiles, SFiles, SysoFiles, EmbedFiles []string
}

const listedFields = "ImportPath,Dir,ForTest,Name,Standard,Module,Imports,ImportMap,Error,GoFiles,CgoFiles,CFiles,CXXFiles,HFiles,SFiles,SysoFiles,EmbedFiles"

// List asks the go command about packages, their tests, and everything that they import.
// Content is that of the work tree in which it runs, as the flags (-overlay) show it.
func List(ctx context.Context, content *Content, env, flags, patterns []string) (*Sources, error) {
	args := slices.Concat([]string{"list", "-deps", "-test", "-json=" + listedFields}, flags, patterns)
	out, err := sys.Output(ctx, sys.Command(ctx, content.Dir, env, "go", args...))
	if err != nil {
		return nil, err
	}
	s := &Sources{content: content, packages: map[string]*listed{}, hashes: map[string]string{}}
	for decoder := json.NewDecoder(strings.NewReader(out)); ; {
		l := &listed{}
		if err := decoder.Decode(l); errors.Is(err, io.EOF) {
			return s, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		s.packages[l.ImportPath] = l
	}
}

// InFolder returns the import path of the package in a folder of the work tree, empty if there
// is none for this platform.
func (s *Sources) InFolder(dir string) string {
	for _, p := range s.packages {
		if rel, inside := sys.Within(s.content.Dir, p.Dir); inside && rel == dir && p.ForTest == "" && !strings.HasSuffix(p.ImportPath, ".test") {
			return p.ImportPath
		}
	}
	return ""
}

// Mains are the programs among the packages of the work tree.
func (s *Sources) Mains() []string {
	var mains []string
	for _, p := range s.packages {
		if _, inside := sys.Within(s.content.Dir, p.Dir); inside && p.Name == "main" && p.ForTest == "" && !strings.HasSuffix(p.ImportPath, ".test") {
			mains = append(mains, p.ImportPath)
		}
	}
	slices.Sort(mains)
	return mains
}

// Tests identifies what the test of a package is made of: the sources of all that is compiled
// into it, and the other files in its folder and below, testdata for example. ignore, if any,
// leaves packages out.
func (s *Sources) Tests(pkg string, ignore func(dir string) bool) (string, error) {
	compiled := pkg + ".test"
	if s.packages[compiled] == nil {
		compiled = pkg // it has no tests
	}
	sum, err := s.closure(compiled, ignore)
	if err != nil {
		return "", err
	}
	p := s.packages[pkg]
	if p == nil {
		return "", fmt.Errorf("go list does not know package %s", pkg)
	}
	dir, inside := sys.Within(s.content.Dir, p.Dir)
	if !inside {
		return "", fmt.Errorf("package %s is in %s, not in %s", pkg, p.Dir, s.content.Dir)
	}
	parts := []string{sum}
	for _, file := range s.content.under(dir, s.content.hasGo) {
		parts = append(parts, file, s.content.files[file])
	}
	return Digest(parts...), nil
}

// Program identifies what a program is made of.
func (s *Sources) Program(pkg string) (string, error) { return s.closure(pkg, nil) }

func (s *Sources) closure(pkg string, ignore func(dir string) bool) (string, error) {
	if ignore != nil {
		// Such a hash is of no use for others.
		s = &Sources{content: s.content, packages: s.packages, hashes: map[string]string{}}
	}
	return s.hash(pkg, ignore)
}

// hash is that of a package and all that it imports.
func (s *Sources) hash(pkg string, ignore func(dir string) bool) (string, error) {
	if sum, done := s.hashes[pkg]; done {
		return sum, nil
	}
	p := s.packages[pkg]
	switch {
	case pkg == "C" || pkg == "unsafe" || p != nil && p.Standard:
		// The version of Go says what it is.
		return "", nil
	case p == nil:
		return "", fmt.Errorf("go list does not know package %s", pkg)
	case p.Error != nil:
		return "", fmt.Errorf("package %s: %s", pkg, p.Error.Err)
	}
	parts := []string{pkg}
	dir, inside := sys.Within(s.content.Dir, p.Dir)
	switch {
	case inside && ignore != nil && ignore(dir):
		s.hashes[pkg] = ""
		return "", nil
	case inside:
		for _, file := range slices.Concat(p.GoFiles, p.CgoFiles, p.CFiles, p.CXXFiles, p.HFiles, p.SFiles, p.SysoFiles, p.EmbedFiles) {
			if strings.HasSuffix(p.ImportPath, ".test") {
				continue // the main function, made by the go command
			}
			object, found := s.content.files[join(dir, file)]
			if !found {
				return "", fmt.Errorf("package %s: %s is not in %s, or git ignores it", pkg, join(dir, file), s.content.Dir)
			}
			parts = append(parts, file, object)
		}
	case p.Module != nil:
		parts = append(parts, p.Module.Path, p.Module.Version, p.Module.Sum)
	default:
		return "", fmt.Errorf("package %s is in %s, which is no module", pkg, p.Dir)
	}
	for _, imported := range p.Imports {
		if actual, mapped := p.ImportMap[imported]; mapped {
			imported = actual
		}
		sum, err := s.hash(imported, ignore)
		if err != nil {
			return "", err
		}
		parts = append(parts, sum)
	}
	sum := Digest(parts...)
	s.hashes[pkg] = sum
	return sum, nil
}

func join(dir, file string) string {
	if dir == "." {
		return file
	}
	return dir + "/" + file
}
