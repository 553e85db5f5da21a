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
	"errors"
	gobuild "go/build"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// modulePrefix begins the import paths of this repository's packages.
const modulePrefix = "kubernetes-dra/"

// sourceFiles lists the files that packages of this repository are compiled from,
// without their tests, and those of what they import from it. A package that is not
// there has none.
func sourceFiles(repo string, packages []string) ([]string, error) {
	var files []string
	for todo, seen := slices.Clone(packages), map[string]bool{}; len(todo) > 0; {
		folder := todo[0]
		todo = todo[1:]
		if seen[folder] {
			continue
		}
		seen[folder] = true
		dir := filepath.Join(repo, filepath.FromSlash(folder))
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		p, err := gobuild.ImportDir(dir, 0)
		if err != nil {
			return nil, err
		}
		for _, pattern := range slices.Concat(p.GoFiles, p.EmbedPatterns) {
			found, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(pattern)))
			if err != nil {
				return nil, err
			}
			for _, file := range found {
				rel, err := filepath.Rel(dir, file)
				if err != nil {
					return nil, err
				}
				files = append(files, path.Join(folder, filepath.ToSlash(rel)))
			}
		}
		for _, imported := range p.Imports {
			if local, ok := strings.CutPrefix(imported, modulePrefix); ok {
				todo = append(todo, local)
			}
		}
	}
	slices.Sort(files)
	return files, nil
}
