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
	"fmt"
	"go/format"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"kubernetes-dra/hack/pkg/git"
	"kubernetes-dra/hack/pkg/sys"
)

// boilerplate is the licence header for generated Go code.
const boilerplate = "hack/boilerplate/boilerplate.generatego.txt"

// zz is the beginning of the names of most generated files.
const zz = "zz_generated."

// generate runs a generator which looks at some directories and writes one file
// into each of those that need it.
func (g *generation) generate(ctx context.Context, tool, file string, dirs []string, args ...string) error {
	if len(dirs) == 0 {
		return nil
	}
	all := append([]string{"--go-header-file", boilerplate, "--output-file", file}, args...)
	return replace(g.files(dirs, file), func() error {
		return g.tools.run(ctx, tool, append(all, relative(dirs)...)...)
	})
}

// path turns a path inside of the tree into one that can be opened.
func (g *generation) path(name string) string {
	return filepath.Join(g.tree, filepath.FromSlash(name))
}

// files returns the paths of the files with the same name in some directories.
func (g *generation) files(dirs []string, name string) []string {
	files := make([]string, len(dirs))
	for i, dir := range dirs {
		files[i] = g.path(path.Join(dir, name))
	}
	return files
}

// dependencies returns the import paths of everything that the packages in
// some directories depend on, including themselves.
func (g *generation) dependencies(ctx context.Context, dirs []string) (map[string]bool, error) {
	out, err := g.tools.output(ctx, "go", append([]string{"list", "-e", "-deps", "--"}, relative(dirs)...)...)
	if err != nil {
		return nil, err
	}
	deps := map[string]bool{}
	for pkg := range strings.FieldsSeq(out) {
		deps[pkg] = true
	}
	return deps, nil
}

// protobuf generates generated.proto and generated.pb.go. Upstream:
// hack/_update-generated-protobuf-dockerized.sh.
func (g *generation) protobuf(ctx context.Context) error {
	outputs := g.pkgs.with("protobuf-gen")
	if len(outputs) == 0 {
		return errors.New("no packages with protobuf code found")
	}

	// gogo.proto comes from a module. The directory has its version in its
	// name, but the name that gets imported doesn't.
	gogo, err := g.tools.output(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/gogo/protobuf")
	if err != nil {
		return err
	}
	if gogo = strings.TrimSpace(gogo); gogo == "" {
		return errors.New("the module github.com/gogo/protobuf is not in the module cache")
	}
	imports := filepath.Join(g.tmp, "proto")
	if err := os.MkdirAll(filepath.Join(imports, "github.com/gogo"), 0o755); err != nil {
		return err
	}
	if err := os.Symlink(gogo, filepath.Join(imports, "github.com/gogo/protobuf")); err != nil {
		return err
	}

	args := []string{
		"--go-header-file", g.path(boilerplate),
		"--output-dir", g.path(stagingDir),
		"--proto-import", g.path(stagingDir),
		"--proto-import", imports,
		"--proto-import", g.path("third_party/protobuf"),
	}
	if g.opts.All {
		return g.tools.run(ctx, "go-to-protobuf", append(args, "--packages", strings.Join(importPaths(outputs), ","))...)
	}

	// Messages in other packages have to be known, but those
	// packages don't get generated.
	deps, err := g.dependencies(ctx, outputs)
	if err != nil {
		return err
	}
	var list []string
	for _, dir := range g.pkgs.proto {
		if pkg := importPath(dir); deps[pkg] && !slices.Contains(outputs, dir) {
			list = append(list, "-"+pkg)
		}
	}
	list = append(list, importPaths(outputs)...)
	return g.tools.run(ctx, "go-to-protobuf", append(args, "--apimachinery-packages", "", "--packages", strings.Join(list, ","))...)
}

func importPaths(dirs []string) []string {
	var pkgs []string
	for _, dir := range dirs {
		pkgs = append(pkgs, importPath(dir))
	}
	return pkgs
}

func (g *generation) deepcopy(ctx context.Context) error {
	return g.generate(ctx, "deepcopy-gen", zz+"deepcopy.go", g.pkgs.with("deepcopy-gen"))
}

func (g *generation) prerelease(ctx context.Context) error {
	return g.generate(ctx, "prerelease-lifecycle-gen", zz+"prerelease-lifecycle.go", g.pkgs.with("prerelease-lifecycle-gen"))
}

func (g *generation) defaults(ctx context.Context) error {
	return g.generate(ctx, "defaulter-gen", zz+"defaults.go", g.pkgs.with("defaulter-gen"))
}

// swaggerHeader follows the package clause of the generated file. It is what
// upstream's script writes there.
const swaggerHeader = `
// This file contains a collection of methods that can be used from go-restful to
// generate Swagger API documentation for its models. Please read this PR for more
// information on the implementation: https://github.com/emicklei/go-restful/pull/215
//
// TODOs are ignored from the parser (e.g. TODO(andronat):... || TODO:...) if and only if
// they are on one line! For multiple line or blocks that you want to ignore use ---.
// Any context after a --- is ignored.
//
// Those methods can be generated by using hack/update-codegen.sh

// AUTO-GENERATED FUNCTIONS START HERE. DO NOT EDIT.
`

// featureGates writes the lists of all feature gates, which upstream keeps to see how
// they change from release to release. The second one exists since 1.36.
func (g *generation) featureGates(ctx context.Context) error {
	lists := "test/compatibility_lifecycle"
	if _, err := os.Stat(g.path(lists)); errors.Is(err, os.ErrNotExist) {
		lists = "test/featuregates_linter" // Until 1.32.
	}
	// The list of 1.32 is right, but not indented like what the program writes.
	if err := g.tools.run(ctx, "go", "run", lists+"/main.go", "feature-gates", "verify"); err != nil {
		if err := g.tools.run(ctx, "go", "run", lists+"/main.go", "feature-gates", "update"); err != nil {
			return err
		}
	}
	table := "cmd/genfeaturegates/genfeaturegates.go"
	if _, err := os.Stat(g.path(table)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return g.tools.run(ctx, "go", "run", table, "-output="+lists+"/reference/feature_list.md")
}

// swagger generates the documentation of fields that objects return at
// runtime. Upstream's script adds header, footer and format to the output of the generator.
func (g *generation) swagger(ctx context.Context) error {
	header, err := os.ReadFile(g.path(boilerplate))
	if err != nil {
		return err
	}
	for _, dir := range g.pkgs.external {
		// Not all packages have such a file. Adding one is not our business.
		target := path.Join(dir, "types_swagger_doc_generated.go")
		if _, err := os.Stat(g.path(target)); errors.Is(err, os.ErrNotExist) || !g.opts.All && !definesAPI(dir) {
			continue
		} else if err != nil {
			return err
		}
		functions, err := g.tools.output(ctx, "genswaggertypedocs", "-s", path.Join(dir, "types.go"), "-f", "-")
		if err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
		var content bytes.Buffer
		content.Write(header)
		fmt.Fprintf(&content, "\npackage %s\n%s%s// AUTO-GENERATED FUNCTIONS END HERE\n", path.Base(dir), swaggerHeader, functions)
		formatted, err := format.Source(content.Bytes())
		if err != nil {
			return fmt.Errorf("formatting %s: %w", target, err)
		}
		if err := os.WriteFile(g.path(target), formatted, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// readOnlyList is where upstream's script names the packages with types that are
// used by the API, but not subject to validation-gen.
var readOnlyList = regexp.MustCompile(`(?s)local readonly_pkgs=\((.*?)\)`)

// readOnly returns those packages.
func (g *generation) readOnly() ([]string, error) {
	const script = "hack/update-codegen.sh"
	content, err := os.ReadFile(g.path(script))
	if err != nil {
		return nil, err
	}
	m := readOnlyList.FindSubmatch(content)
	if m == nil {
		return nil, fmt.Errorf("%s: found no list readonly_pkgs, which validation-gen needs", g.path(script))
	}
	return strings.Fields(string(m[1])), nil
}

// metaV1 has types that all APIs use.
const metaV1 = "k8s.io/apimachinery/pkg/apis/meta/v1"

var validationInput = regexp.MustCompile(`(?m)^// *\+k8s:validation-gen-input=(\S+)$`)

// validation generates the declarative validation, in releases which have it.
func (g *generation) validation(ctx context.Context) error {
	if !g.tools.validationGen {
		return nil
	}
	dirs := g.pkgs.with("validation-gen")
	var args []string
	add := func(pkg string) {
		args = append(args, "--readonly-pkg", pkg)
	}
	readOnly, err := g.readOnly()
	if err != nil {
		return err
	}
	for _, pkg := range readOnly {
		add(pkg)
	}
	if !g.opts.All {
		// Types of packages for which validation gets generated by
		// upstream's script and not here may also be used.
		deps, err := g.dependencies(ctx, dirs)
		if err != nil {
			return err
		}
		for _, dir := range g.pkgs.tagged["validation-gen"] {
			if slices.Contains(dirs, dir) {
				continue
			}
			inputs, err := g.validationInputs(dir)
			if err != nil {
				return err
			}
			for _, pkg := range inputs {
				switch {
				case !deps[pkg]:
				case pkg == metaV1 && !slices.Contains(readOnly, pkg):
					// Some of these types have hand-written functions, which
					// the generator finds only where it generates.
					dirs = append(slices.Clip(dirs), dir)
				default:
					add(pkg)
				}
			}
		}
	}
	return g.generate(ctx, "validation-gen", zz+"validations.go", dirs, args...)
}

// validationInputs returns the packages whose types get validated by the
// package in the directory.
func (g *generation) validationInputs(dir string) ([]string, error) {
	doc, err := os.ReadFile(g.path(path.Join(dir, "doc.go")))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var inputs []string
	for _, m := range validationInput.FindAllSubmatch(doc, -1) {
		inputs = append(inputs, string(m[1]))
	}
	return inputs, nil
}

func (g *generation) conversions(ctx context.Context) error {
	return g.generate(ctx, "conversion-gen", zz+"conversion.go", g.pkgs.with("conversion-gen"),
		"--extra-peer-dirs", "k8s.io/kubernetes/pkg/apis/core",
		"--extra-peer-dirs", "k8s.io/kubernetes/pkg/apis/core/v1",
		"--extra-peer-dirs", "k8s.io/api/core/v1",
	)
}

// openapi generates the definitions of all types. It writes
// one file for all packages and therefore has to look at all of them. In newer
// releases, it also writes the names of the types into each of them.
func (g *generation) openapi(ctx context.Context) error {
	const output = "pkg/generated/openapi"
	report := filepath.Join(g.tmp, "api_violations.report")
	args := []string{
		"--output-dir", output,
		"--output-pkg", "k8s.io/kubernetes/" + output,
		"--report-filename", report,
	}
	script, err := os.ReadFile(g.path("hack/update-codegen.sh"))
	if err != nil {
		return err
	}
	files := []string{g.path(output + "/" + zz + "openapi.go")}
	if bytes.Contains(script, []byte("--output-model-name-file")) {
		// Those files are not removed before, as upstream's script does not do that either:
		// 1.37 has some in packages which are not subject to openapi-gen anymore.
		args = append(args, "--output-model-name-file", zz+"model_name.go")
	}
	args = append(args, "--go-header-file", boilerplate, "--output-file", zz+"openapi.go")
	err = replace(files, func() error {
		return g.tools.run(ctx, "openapi-gen", append(args, relative(g.pkgs.openapi)...)...)
	})
	if err != nil {
		return err
	}

	// The generator also checks whether the API follows conventions.
	const exceptions = "api/api-rules/violation_exceptions.list"
	known, err := os.ReadFile(g.path(exceptions))
	if err != nil {
		return err
	}
	found, err := os.ReadFile(report)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if added, missing := difference(known, found); len(added)+len(missing) > 0 {
		return fmt.Errorf("violations of API rules differ from %s:%s", exceptions,
			sys.Indented(strings.Join(append(prefixed("+ ", added), prefixed("- ", missing)...), "\n")))
	}
	return nil
}

// difference compares two lists of lines.
func difference(old, updated []byte) (added, missing []string) {
	lines := func(content []byte) []string {
		lines := strings.Split(strings.TrimSuffix(string(content), "\n"), "\n")
		slices.Sort(lines)
		return lines
	}
	oldLines, newLines := lines(old), lines(updated)
	for _, line := range newLines {
		if _, found := slices.BinarySearch(oldLines, line); !found {
			added = append(added, line)
		}
	}
	for _, line := range oldLines {
		if _, found := slices.BinarySearch(newLines, line); !found {
			missing = append(missing, line)
		}
	}
	return added, missing
}

func prefixed(prefix string, lines []string) []string {
	var out []string
	for _, line := range lines {
		out = append(out, prefix+line)
	}
	return out
}

// applyConfigs generates the apply configurations in client-go. They
// include the schema of all types.
func (g *generation) applyConfigs(ctx context.Context) error {
	if err := g.buildSchemaPrograms(ctx); err != nil {
		return err
	}
	schema, err := g.tools.output(ctx, g.program(modelsSchema))
	if err != nil {
		return err
	}
	schemaFile := filepath.Join(g.tmp, "schema.json")
	if err := os.WriteFile(schemaFile, []byte(schema), 0o644); err != nil {
		return err
	}
	const output = "k8s.io/client-go/applyconfigurations"
	args := []string{
		"--openapi-schema", schemaFile,
		"--go-header-file", boilerplate,
		"--output-dir", g.path(stagingDir + output),
		"--output-pkg", output,
	}
	args = append(append(args, importPaths(g.pkgs.external)...), "k8s.io/apimachinery/pkg/apis/meta/v1")
	out, err := git.Dir(g.tree).Output(ctx, nil, nil, "grep", "--untracked", "-l", "-z",
		"-e", "^// Code generated by applyconfiguration-gen. DO NOT EDIT.$", "--", ":(glob)"+stagingDir+output+"/**/*.go")
	if err != nil {
		return err
	}
	var files []string
	for _, file := range git.SplitZ(out) {
		files = append(files, g.path(file))
	}
	return replace(files, func() error {
		return g.tools.run(ctx, "applyconfiguration-gen", args...)
	})
}

// fixtures writes the encoded objects with which upstream checks that a later
// release still reads them. Upstream: hack/update-generated-api-compatibility-data.sh.
func (g *generation) fixtures(ctx context.Context) error {
	test := g.program("api.test")
	if err := g.tools.run(ctx, "go", "test", "-c", "-o", test, "k8s.io/api"); err != nil {
		return err
	}
	cases := "//HEAD"
	if !g.opts.All {
		cases = `/^` + regexp.QuoteMeta(apiGroup+".k8s.io.") + `/HEAD`
	}
	run := func(env ...string) error {
		cmd := g.tools.command(ctx, test, "-test.run", cases)
		cmd.Dir = g.path(externalDir)
		cmd.Env = append(slices.Clone(cmd.Env), env...)
		return sys.Run(ctx, cmd)
	}
	// It fails if it had to write something. The second run decides.
	if err := run("UPDATE_COMPATIBILITY_FIXTURE_DATA=true"); err != nil && ctx.Err() != nil {
		return err
	}
	return run()
}
