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
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"kubernetes-dra/hack/pkg/sys"
)

// module is one that is in a binary.
type module struct {
	// path and version are those of the source: a replacement's, if there is one. sum is the one of go.sum.
	path, version, sum string
	// users are the names of the binaries.
	users []string
}

// modulesOf reads out of binaries which modules they consist of: those from
// elsewhere, sorted, each once. Those of the tree have no sum, and are left out.
func modulesOf(bin string, names []string) ([]*module, error) {
	var modules []*module
	for _, name := range names {
		info, err := buildinfo.ReadFile(filepath.Join(bin, name))
		if err != nil {
			return nil, err
		}
		for _, dep := range info.Deps {
			if dep.Replace != nil {
				dep = dep.Replace
			}
			if dep.Sum == "" {
				continue
			}
			i := slices.IndexFunc(modules, func(m *module) bool { return m.path == dep.Path && m.version == dep.Version })
			if i < 0 {
				i = len(modules)
				modules = append(modules, &module{path: dep.Path, version: dep.Version, sum: dep.Sum})
			}
			modules[i].users = append(modules[i].users, name)
		}
	}
	slices.SortFunc(modules, func(a, b *module) int { return strings.Compare(a.path+"@"+a.version, b.path+"@"+b.version) })
	return modules, nil
}

var licenceName = regexp.MustCompile(`(?i)^(licen[sc]e|copying|notice|patents)([.-].*)?$`)

// copyLicences copies the licence of Kubernetes, and those at the top of all modules in the
// binaries, which most of them ask for.
func copyLicences(ctx context.Context, root, tree string, modules []*module) error {
	const format = `{{with .Replace}}{{.Path}}@{{.Version}}{{else}}{{.Path}}@{{.Version}}{{end}}{{"\t"}}{{.Dir}}`
	out, err := sys.Output(ctx, sys.Command(ctx, tree, sys.GoEnviron(), "go", "list", "-m", "-f", format, "all"))
	if err != nil {
		return fmt.Errorf("in %s: %w", tree, err)
	}
	folders := map[string]string{}
	for line := range strings.Lines(out) {
		name, dir, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		folders[name] = dir
	}
	if err := place(filepath.Join(tree, "LICENSE"), filepath.Join(root, "kubernetes/LICENSES/LICENSE")); err != nil {
		return err
	}
	for _, m := range modules {
		dir := folders[m.path+"@"+m.version]
		if dir == "" {
			return fmt.Errorf("the licence of %s %s: go list -m all in %s does not know where that module is", m.path, m.version, tree)
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		found := false
		for _, e := range entries {
			if !licenceName.MatchString(e.Name()) || !e.Type().IsRegular() {
				continue
			}
			found = true
			if err := place(filepath.Join(dir, e.Name()), filepath.Join(root, "kubernetes/LICENSES/vendor", m.path, e.Name())); err != nil {
				return err
			}
		}
		if !found {
			return fmt.Errorf("%s %s has no licence in %s: it must not be distributed", m.path, m.version, dir)
		}
	}
	return nil
}
