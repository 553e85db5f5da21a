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
)

const (
	apiGroup    = "resource"
	stagingDir  = "staging/src/"
	externalDir = stagingDir + "k8s.io/api/"
	boilerplate = "hack/boilerplate/boilerplate.generatego.txt"
	zz          = "zz_generated."
)

type step struct {
	name string
	run  func(g *generation, ctx context.Context) error
}

// steps lists the steps in the order in which they have to run. No two of them
// run at once: since 1.37 both validation and openapi write into packages of
// k8s.io/api, which most others read.
var steps = []step{
	{"programs", (*generation).programs},
	// Modifies types.go if a field has no protobuf tag yet, therefore first.
	{"protobuf", (*generation).protobuf},
	{"deepcopy", perPackage("deepcopy-gen", "deepcopy.go")},
	{"swagger", (*generation).swagger},
	{"prerelease", perPackage("prerelease-lifecycle-gen", "prerelease-lifecycle.go")},
	{"defaults", perPackage("defaulter-gen", "defaults.go")},
	{"validation", (*generation).validation},
	{"conversions", perPackage("conversion-gen", "conversion.go",
		"--extra-peer-dirs", "k8s.io/kubernetes/pkg/apis/core,k8s.io/kubernetes/pkg/apis/core/v1,k8s.io/api/core/v1")},
	{"openapi", (*generation).openAPI},
	{"fixtures", (*generation).fixtures},
	// These depend on zz_generated.openapi.go.
	{"openapispec", (*generation).openAPISpec},
	{"applyconfigs", (*generation).applyConfigs},
	// Reads all Go files of the tree, therefore last.
	{"featuregates", (*generation).featureGates},
}

// findAffected finds out what is affected by a change of the API: what defines it
// and what uses its types directly. The latter is a question of imports, not of
// the kind of use: also an assignment becomes wrong when a type gets its first pointer.
func (g *generation) findAffected(ctx context.Context) error {
	definitions, err := g.dirs(ctx, `.`, ":(glob)"+externalDir+apiGroup+"/**/*.go", ":(glob)pkg/apis/"+apiGroup+"/**/*.go")
	if err != nil {
		return err
	}
	if len(definitions) == 0 {
		return fmt.Errorf("no API types in %s: not a complete tree", externalDir+apiGroup)
	}
	users, err := g.dirs(ctx, `"k8s.io/(api/`+apiGroup+`/|kubernetes/pkg/apis/`+apiGroup+`|dynamic-resource-allocation/api)`)
	g.affected = append(definitions, users...)
	return err
}

// ignored matches what no generator looks at. The examples are a workspace of their own.
var ignored = regexp.MustCompile(`_test\.go$|(^|/)(testdata|_codegenignore|vendor|code-generator/examples)/`)

// dirs returns the directories with files, other than tests, in which a line matches
// the expression; Go files by default. They are in git or could get added to it.
func (g *generation) dirs(ctx context.Context, expression string, paths ...string) ([]string, error) {
	if len(paths) == 0 {
		paths = []string{":(glob)**/*.go"}
	}
	out, err := g.tree.Output(ctx, nil, nil, append([]string{"grep", "--untracked", "-z", "-l", "-E", "-e", expression, "--"}, paths...)...)
	if err != nil && git.ExitCode(err) != 1 { // 1 is "nothing found"
		return nil, err
	}
	var dirs []string
	for _, file := range git.SplitZ(out) {
		if !ignored.MatchString(file) {
			dirs = append(dirs, path.Dir(file))
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs), nil
}

// tagged returns the affected directories that ask for a generator with a tag.
func (g *generation) tagged(ctx context.Context, tag string) ([]string, error) {
	expression := `\+k8s:` + tag + `=`
	if tag == "conversion-gen" {
		expression = `^// *` + expression // The tags of types are something else.
	}
	dirs, err := g.dirs(ctx, expression)
	return slices.DeleteFunc(dirs, func(dir string) bool { return !slices.Contains(g.affected, dir) }), err
}

// importPath returns under which path the package in a directory of the tree
// gets imported.
func importPath(dir string) string {
	if staging, ok := strings.CutPrefix(dir, stagingDir); ok {
		return staging
	}
	return "k8s.io/kubernetes/" + dir
}

// perPackage is a step with a generator which looks at the affected directories with its
// tag and writes one file into each of those that need it.
func perPackage(tool, file string, args ...string) func(*generation, context.Context) error {
	return func(g *generation, ctx context.Context) error {
		dirs, err := g.tagged(ctx, tool)
		if err != nil || len(dirs) == 0 {
			return err
		}
		return g.generate(ctx, tool, file, dirs, args...)
	}
}

// generate runs a generator. Like in upstream's script, what an earlier run wrote is removed first.
func (g *generation) generate(ctx context.Context, tool, file string, dirs []string, args ...string) error {
	args = append([]string{"--go-header-file", boilerplate, "--output-file", zz + file}, args...)
	for _, dir := range dirs {
		if err := os.RemoveAll(g.path(path.Join(dir, zz+file))); err != nil {
			return err
		}
		args = append(args, "./"+dir)
	}
	return g.run(ctx, tool, args...)
}

// programs builds the generators from the tree, openapi-gen and goimports in the
// versions of its go.mod.
func (g *generation) programs(ctx context.Context) error {
	args := []string{"build", "-o", g.tmp + "/", "k8s.io/kube-openapi/cmd/openapi-gen", "./cmd/genswaggertypedocs",
		"golang.org/x/tools/cmd/goimports", "cmd/gofmt"} // go-to-protobuf runs these and protoc-gen-gogo.
	for _, name := range []string{"applyconfiguration-gen", "conversion-gen", "deepcopy-gen", "defaulter-gen",
		"go-to-protobuf", "go-to-protobuf/protoc-gen-gogo", "prerelease-lifecycle-gen", "validation-gen"} {
		dir := stagingDir + "k8s.io/code-generator/cmd/" + name
		if exists(g.path(dir)) { // Older releases have no validation-gen.
			args = append(args, "./"+dir)
		}
	}
	return g.run(ctx, "go", args...)
}

// protobuf generates generated.proto and generated.pb.go. Upstream:
// hack/_update-generated-protobuf-dockerized.sh.
func (g *generation) protobuf(ctx context.Context) error {
	outputs, err := g.tagged(ctx, "protobuf-gen")
	if err != nil {
		return err
	}
	messages, err := g.dirs(ctx, ".", ":(glob)**/generated.proto")
	if err != nil {
		return err
	}
	// Messages in other packages, with a minus, have to be known, but are not generated.
	var packages []string
	for _, dir := range messages {
		if !slices.Contains(outputs, dir) {
			packages = append(packages, "-"+importPath(dir))
		}
	}
	for _, dir := range outputs {
		packages = append(packages, importPath(dir))
	}
	// gogo.proto comes from a module. The directory has its version in its
	// name, but the name that gets imported doesn't.
	gogo, err := g.output(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/gogo/protobuf")
	if err != nil {
		return err
	}
	imports := filepath.Join(g.tmp, "proto")
	link := filepath.Join(imports, "github.com/gogo/protobuf")
	if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink(strings.TrimSpace(gogo), link)); err != nil {
		return err
	}
	return g.run(ctx, "go-to-protobuf",
		"--go-header-file", g.path(boilerplate),
		"--output-dir", g.path(stagingDir),
		"--proto-import", g.path(stagingDir),
		"--proto-import", imports,
		"--proto-import", g.path("third_party/protobuf"),
		"--apimachinery-packages", "",
		"--packages", strings.Join(packages, ","))
}

// fromScript returns what the only group of the expression matches in upstream's script.
func (g *generation) fromScript(expression string) (string, error) {
	name := g.path("hack/update-codegen.sh")
	content, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	m := regexp.MustCompile(expression).FindSubmatch(content)
	if m == nil {
		return "", fmt.Errorf("%s: nothing is like %s, which a generator needs", name, expression)
	}
	return string(m[1]), nil
}

// swagger generates the documentation of fields that objects return at
// runtime. Upstream's script adds header, footer and format to the output of the generator.
func (g *generation) swagger(ctx context.Context) error {
	license, err := os.ReadFile(g.path(boilerplate))
	if err != nil {
		return err
	}
	header, err := g.fromScript(`(?s)<<EOF\n(.*?)\n *EOF\n`)
	if err != nil {
		return err
	}
	files, err := filepath.Glob(g.path(externalDir + apiGroup + "/*/types.go"))
	if err != nil {
		return err
	}
	for _, file := range files {
		dir := filepath.Dir(file)
		functions, err := g.output(ctx, "genswaggertypedocs", "-s", file, "-f", "-")
		if err != nil {
			return err
		}
		formatted, err := format.Source(fmt.Appendf(nil, "%s\npackage %s\n%s\n%s// AUTO-GENERATED FUNCTIONS END HERE\n", license, filepath.Base(dir), header, functions))
		if err != nil {
			return fmt.Errorf("formatting: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, "types_swagger_doc_generated.go"), formatted, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// validation generates the declarative validation, in releases which have it. It is
// done for all packages: validation of a type calls that of types of other packages,
// which has to be known.
func (g *generation) validation(ctx context.Context) error {
	dirs, err := g.dirs(ctx, `\+k8s:validation-gen=`)
	if err != nil || len(dirs) == 0 {
		return err
	}
	// Types of these are used by the API, and nothing is generated for them.
	readOnly, err := g.fromScript(`(?s)local readonly_pkgs=\((.*?)\)`)
	if err != nil {
		return err
	}
	return g.generate(ctx, "validation-gen", "validations.go", dirs, "--readonly-pkg", strings.Join(strings.Fields(readOnly), ","))
}

// openAPI generates the definitions of all types. It writes
// one file for all packages and therefore has to look at all of them. In newer
// releases, it also writes the names of the types into each of them.
func (g *generation) openAPI(ctx context.Context) error {
	const output = "pkg/generated/openapi"
	report := filepath.Join(g.tmp, "api_violations.report")
	args := []string{"--output-dir", output, "--output-pkg", importPath(output), "--report-filename", report,
		"--go-header-file", boilerplate, "--output-file", zz + "openapi.go"}
	if _, err := g.fromScript(`(--output-model-name-file)`); err == nil {
		args = append(args, "--output-model-name-file", zz+"model_name.go")
	}
	dirs, err := g.dirs(ctx, `\+k8s:openapi`)
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		switch module, _, _ := strings.Cut(strings.TrimPrefix(dir, stagingDir+"k8s.io/"), "/"); module {
		case "code-generator", "sample-apiserver", "sample-controller":
		default:
			args = append(args, "./"+dir)
		}
	}
	if err := g.run(ctx, "openapi-gen", args...); err != nil {
		return err
	}
	// The generator also checks whether the API follows conventions.
	err = g.run(ctx, "git", "diff", "--no-index", "--no-color", "api/api-rules/violation_exceptions.list", report)
	if err != nil {
		return fmt.Errorf("violations of API rules differ from the exceptions: %w", err)
	}
	return nil
}

// applyConfigs generates the apply configurations in client-go. They
// include the schema of all types.
func (g *generation) applyConfigs(ctx context.Context) error {
	schema, err := g.output(ctx, "go", "run", "k8s.io/kubernetes/pkg/generated/openapi/cmd/models-schema")
	if err != nil {
		return err
	}
	schemaFile := filepath.Join(g.tmp, "schema.json")
	if err := os.WriteFile(schemaFile, []byte(schema), 0o644); err != nil {
		return err
	}
	const output = "k8s.io/client-go/applyconfigurations"
	out, err := g.tree.Output(ctx, nil, nil, "grep", "--untracked", "-l", "-z",
		"-e", "^// Code generated by applyconfiguration-gen. DO NOT EDIT.$", "--", stagingDir+output)
	if err != nil {
		return err
	}
	for _, file := range git.SplitZ(out) {
		if err := os.Remove(g.path(file)); err != nil {
			return err
		}
	}
	dirs, err := g.dirs(ctx, ".", ":(glob)"+externalDir+"**/types.go")
	if err != nil {
		return err
	}
	args := []string{"--openapi-schema", schemaFile, "--go-header-file", boilerplate,
		"--output-dir", g.path(stagingDir + output), "--output-pkg", output}
	for _, dir := range dirs {
		args = append(args, importPath(dir))
	}
	return g.run(ctx, "applyconfiguration-gen", append(args, "k8s.io/apimachinery/pkg/apis/meta/v1")...)
}

// fixtures writes the encoded objects with which upstream checks that a later
// release still reads them. Upstream: hack/update-generated-api-compatibility-data.sh.
func (g *generation) fixtures(ctx context.Context) error {
	test := filepath.Join(g.tmp, "api.test")
	if err := g.run(ctx, "go", "test", "-c", "-o", test, "k8s.io/api"); err != nil {
		return err
	}
	run := []string{"-C", externalDir, test, "-test.run", `/^` + regexp.QuoteMeta(apiGroup+".k8s.io.") + `/HEAD`}
	// It fails if it had to write something. The second run decides.
	if err := g.run(ctx, "env", slices.Insert(slices.Clone(run), 2, "UPDATE_COMPATIBILITY_FIXTURE_DATA=true")...); err != nil && ctx.Err() != nil {
		return err
	}
	return g.run(ctx, "env", run...)
}

// featureGates writes the lists of all feature gates, which upstream keeps to see how
// they change from release to release. The second one exists since 1.36.
func (g *generation) featureGates(ctx context.Context) error {
	lists := "test/compatibility_lifecycle"
	if !exists(g.path(lists)) {
		lists = "test/featuregates_linter" // Until 1.32.
	}
	// The list of 1.32 is right, but not indented like what the program writes.
	if err := g.run(ctx, "go", "run", lists+"/main.go", "feature-gates", "verify"); err != nil {
		if err := g.run(ctx, "go", "run", lists+"/main.go", "feature-gates", "update"); err != nil {
			return err
		}
	}
	const table = "cmd/genfeaturegates/genfeaturegates.go"
	if !exists(g.path(table)) {
		return nil
	}
	return g.run(ctx, "go", "run", table, "-output="+lists+"/reference/feature_list.md")
}
