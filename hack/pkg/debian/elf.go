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
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
)

// machines are the architectures as programs have them.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// dropUnneeded leaves out the programs and libraries that no program of a root
// needs. It is an error if one that is needed is not there.
func (t *tree) dropUnneeded() error {
	needed := map[string]bool{}
	var todo []string
	want := func(name string) {
		if !needed[name] {
			needed[name] = true
			todo = append(todo, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.nodes)) {
		if n := t.nodes[name]; n.isELF() && n.wanted {
			want(name)
		}
	}
	var errs []error
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		libraries, err := t.nodes[name].needs(t.arch)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, library := range libraries {
			if found := t.library(library); found != "" {
				want(found)
			} else {
				errs = append(errs, fmt.Errorf("%s needs %s, which no package in the lock file has", name, library))
			}
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	for _, name := range slices.Collect(maps.Keys(t.nodes)) {
		if t.nodes[name].isELF() && !needed[name] {
			t.drop(name)
		}
	}
	return nil
}

func (n *node) isELF() bool {
	return n.kind == regular && bytes.HasPrefix(n.content, []byte(elf.ELFMAG))
}

// needs are the names of the libraries of a program or library, and the path of
// what loads them.
func (n *node) needs(arch string) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(n.content))
	if err != nil {
		return nil, err
	}
	if f.Machine != machines[arch] {
		return nil, fmt.Errorf("it is for %s, not for %s", f.Machine, arch)
	}
	names, err := f.ImportedLibraries()
	if err != nil {
		return nil, err
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		name, err := io.ReadAll(p.Open())
		if err != nil {
			return nil, err
		}
		names = append(names, strings.TrimRight(string(name), "\x00"))
	}
	return names, nil
}

// library is the path of the file with a library, empty if there is none. Like
// Debian's loader without a cache it looks into the folder of the architecture
// first.
func (t *tree) library(name string) string {
	candidates := []string{path.Join(libraryFolders[t.arch], name), path.Join("usr/lib", name)}
	if strings.Contains(name, "/") {
		candidates = []string{name}
	}
	for _, candidate := range candidates {
		found := t.resolve(candidate)
		if n := t.nodes[found]; n != nil && n.isELF() {
			return found
		}
	}
	return ""
}
