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

package release

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"kubernetes-dra/hack/pkg/sys"
)

// module is one that is in a binary.
type module struct {
	// path and version are those of the source: a replacement's, if there is one.
	path, version string
	// sum is the one of go.sum. Modules of the tree itself have none.
	sum string
	// users are the names of the binaries.
	users []string
}

// modulesOf reads out of binaries which modules they consist of: those from
// elsewhere, sorted, each once. Those of the tree are left out.
func modulesOf(bin string, names []string) ([]*module, error) {
	found := map[string]*module{}
	for _, name := range names {
		info, err := buildinfo.ReadFile(filepath.Join(bin, name))
		if err != nil {
			return nil, err
		}
		for _, dep := range info.Deps {
			if m := moduleOf(dep); m.sum != "" {
				key := m.path + "@" + m.version
				if found[key] == nil {
					found[key] = m
				}
				found[key].users = append(found[key].users, name)
			}
		}
	}
	modules := make([]*module, 0, len(found))
	for _, m := range found {
		modules = append(modules, m)
	}
	slices.SortFunc(modules, func(a, b *module) int {
		return strings.Compare(a.path+"@"+a.version, b.path+"@"+b.version)
	})
	return modules, nil
}

func moduleOf(dep *debug.Module) *module {
	if dep.Replace != nil {
		dep = dep.Replace
	}
	return &module{path: dep.Path, version: dep.Version, sum: dep.Sum}
}

var licenceName = regexp.MustCompile(`(?i)^(licen[sc]e|copying|notice|patents)([.-].*)?$`)

// addLicences adds the licence of Kubernetes, and those of all modules in the
// binaries, which most of them ask for.
func (c *contents) addLicences(ctx context.Context, tree string, modules []*module) error {
	c.add("kubernetes/LICENSES/LICENSE", entry{source: filepath.Join(tree, "LICENSE")})
	folders, err := moduleFolders(ctx, tree)
	if err != nil {
		return err
	}
	for _, m := range modules {
		dir := folders[m.path+"@"+m.version]
		if dir == "" {
			return fmt.Errorf("the licence of %s %s: go list -m all in %s does not know where that module is", m.path, m.version, tree)
		}
		found, err := licencesIn(dir)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return fmt.Errorf("%s %s has no licence in %s: it must not be distributed", m.path, m.version, dir)
		}
		for name, source := range found {
			c.add(path.Join("kubernetes/LICENSES/vendor", m.path, name), entry{source: source})
		}
	}
	return nil
}

// licencesIn finds the files with licences at the top of a module, or of the
// repository of which it is a part, as far as the module cache has that.
func licencesIn(dir string) (map[string]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, e := range entries {
		if licenceName.MatchString(e.Name()) && e.Type()&fs.ModeType == 0 {
			found[e.Name()] = filepath.Join(dir, e.Name())
		}
	}
	return found, nil
}

// moduleFolders are the folders of all modules that the tree is built from, by
// path@version.
func moduleFolders(ctx context.Context, tree string) (map[string]string, error) {
	const format = `{{with .Replace}}{{.Path}}@{{.Version}}{{else}}{{.Path}}@{{.Version}}{{end}}{{"\t"}}{{.Dir}}`
	out, err := sys.Output(ctx, sys.Command(ctx, tree, sys.GoEnviron(), "go", "list", "-m", "-f", format, "all"))
	if err != nil {
		return nil, fmt.Errorf("in %s: %w", tree, err)
	}
	folders := map[string]string{}
	for line := range strings.Lines(out) {
		name, dir, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		folders[name] = dir
	}
	return folders, nil
}
