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
	"bufio"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"kubernetes-dra/hack/pkg/git"
)

// packages are those directories of the tree for which generators have to run.
// All paths are relative to the tree, with slashes.
type packages struct {
	// tagged maps the name of a tag ("deepcopy-gen") to the directories which ask
	// for the generator with that tag.
	tagged map[string][]string
	// openapi are all directories with types that are part of OpenAPI.
	openapi []string
	// proto are all directories with generated protobuf messages. Some of them
	// have no tag.
	proto []string
	// external are the directories k8s.io/api/<group>/<version>, all of them.
	external []string
	// affected are the directories which have to be generated again when
	// the API changed. Nil stands for all directories.
	affected map[string]bool
}

const (
	stagingDir  = "staging/src/"
	externalDir = stagingDir + "k8s.io/api/"
	internalDir = "pkg/apis/"
)

// packageTag matches the tags for which upstream's script looks. Like there,
// all but one may be anywhere in a line.
var packageTag = regexp.MustCompile(`(?:^// *\+k8s:(conversion-gen)|\+k8s:(deepcopy-gen|defaulter-gen|openapi-gen|prerelease-lifecycle-gen|protobuf-gen|validation-gen))=`)

// findPackages determines what there is to generate. The files are those which
// are in git or could get added to it.
func findPackages(ctx context.Context, tree git.Dir, all bool) (*packages, error) {
	p := &packages{tagged: map[string][]string{}}

	// Same as in upstream's script: nothing in vendor and in modules with a
	// workspace of their own. Paths get filtered here because git ls-files (2.39)
	// finds nothing when a pattern is combined with an excluded path.
	avoid := []string{"vendor"}
	filtered := func(out []byte) []string {
		return slices.DeleteFunc(git.SplitZ(out), func(file string) bool {
			return slices.ContainsFunc(avoid, func(dir string) bool { return strings.HasPrefix(file, dir+"/") })
		})
	}
	find := func(globs ...string) ([]string, error) {
		args := []string{"ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"}
		for _, glob := range globs {
			args = append(args, ":(glob)"+glob)
		}
		out, err := tree.Output(ctx, nil, nil, args...)
		if err != nil {
			return nil, err
		}
		var dirs []string
		for _, file := range filtered(out) {
			dirs = append(dirs, path.Dir(file))
		}
		slices.Sort(dirs)
		return slices.Compact(dirs), nil
	}
	grep := func(args ...string) ([]string, error) {
		out, err := tree.Output(ctx, nil, nil, append([]string{"grep", "--untracked", "-z", "-l"}, args...)...)
		if err != nil && git.ExitCode(err) != 1 { // 1 is "nothing found"
			return nil, err
		}
		return filtered(out), nil
	}

	separate, err := find("*/**/go.work", "**/_codegenignore/**")
	if err != nil {
		return nil, err
	}
	avoid = append(avoid, separate...)

	files, err := grep("-e", `^// *+k8s:`, "--", ":(glob)**/*.go")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if strings.Contains("/"+file, "/testdata/") {
			continue
		}
		if err := p.readTags(string(tree), file); err != nil {
			return nil, err
		}
	}
	for tag := range p.tagged {
		slices.Sort(p.tagged[tag])
		p.tagged[tag] = slices.Compact(p.tagged[tag])
	}
	slices.Sort(p.openapi)
	p.openapi = slices.Compact(p.openapi)

	if p.external, err = find(externalDir + "**/types.go"); err != nil {
		return nil, err
	}
	if p.proto, err = find("**/generated.proto"); err != nil {
		return nil, err
	}

	if len(p.external) == 0 || len(p.openapi) == 0 {
		return nil, fmt.Errorf("no API types in %s and %d packages with OpenAPI: not a complete tree", externalDir, len(p.openapi))
	}
	if all {
		return p, nil
	}

	// Affected is what defines the API and what uses its types directly.
	// The latter is a question of imports, not of the kind of use: also an
	// assignment becomes wrong when a type gets its first pointer.
	files, err = grep(
		"-e", `"k8s.io/api/`+apiGroup+`/`,
		"-e", `"k8s.io/kubernetes/pkg/apis/`+apiGroup,
		"-e", `"k8s.io/dynamic-resource-allocation/api`,
		"--", ":(glob)**/*.go")
	if err != nil {
		return nil, err
	}
	p.affected = map[string]bool{}
	for _, file := range files {
		if !strings.HasSuffix(file, "_test.go") {
			p.affected[path.Dir(file)] = true
		}
	}
	for _, dirs := range p.tagged {
		for _, dir := range dirs {
			if definesAPI(dir) {
				p.affected[dir] = true
			}
		}
	}
	return p, nil
}

// definesAPI says whether the types of the API group are in a directory.
func definesAPI(dir string) bool {
	return strings.HasPrefix(dir, externalDir+apiGroup+"/") ||
		dir == internalDir+apiGroup || strings.HasPrefix(dir, internalDir+apiGroup+"/")
}

// readTags adds the directory of the file for all tags that are in it.
func (p *packages) readTags(tree, file string) error {
	f, err := os.Open(filepath.Join(tree, filepath.FromSlash(file)))
	if err != nil {
		return err
	}
	defer f.Close()
	dir := path.Dir(file)
	notOpenAPI := slices.ContainsFunc([]string{"code-generator", "sample-apiserver", "sample-controller"}, func(module string) bool {
		return strings.HasPrefix(file, stagingDir+"k8s.io/"+module+"/")
	})
	scanner := bufio.NewScanner(f)
	scanner.Buffer(nil, 16*1024*1024)
	for scanner.Scan() {
		line := scanner.Text()
		if !strings.Contains(line, "+k8s:") {
			continue
		}
		if strings.Contains(line, "+k8s:openapi") && !notOpenAPI {
			p.openapi = append(p.openapi, dir)
		}
		if m := packageTag.FindStringSubmatch(line); m != nil {
			tag := m[1] + m[2]
			p.tagged[tag] = append(p.tagged[tag], dir)
		}
	}
	if err := scanner.Err(); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// with returns the directories for which the generator with the tag has to run.
func (p *packages) with(tag string) []string {
	var dirs []string
	for _, dir := range p.tagged[tag] {
		if p.affected == nil || p.affected[dir] {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// importPath returns under which path the package in a directory of the tree
// gets imported.
func importPath(dir string) string {
	if staging, ok := strings.CutPrefix(dir, stagingDir); ok {
		return staging
	}
	return "k8s.io/kubernetes/" + dir
}

// relative turns directories into arguments for tools which also
// accept import paths.
func relative(dirs []string) []string {
	args := make([]string, len(dirs))
	for i, dir := range dirs {
		args[i] = "./" + dir
	}
	return args
}
