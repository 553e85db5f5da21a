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
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"kubernetes-dra/hack/pkg/git"
	"kubernetes-dra/hack/pkg/sys"
)

// writeFiles writes files below a directory.
func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// gitRepo creates a repository with some files in one commit.
func gitRepo(t *testing.T, files map[string]string) git.Dir {
	t.Helper()
	dir := git.Dir(t.TempDir())
	writeFiles(t, string(dir), files)
	runGit(t, dir, "init", "--quiet")
	commitAll(t, dir)
	return dir
}

func runGit(t *testing.T, dir git.Dir, args ...string) string {
	t.Helper()
	out, err := dir.Run(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func commitAll(t *testing.T, dir git.Dir) string {
	t.Helper()
	runGit(t, dir, "add", "--all")
	runGit(t, dir, "-c", "user.name=test", "-c", "user.email=test@example.com", "commit", "--quiet", "--allow-empty", "-m", "files")
	return runGit(t, dir, "rev-parse", "HEAD")
}

func TestFindPackages(t *testing.T) {
	const doc = "// +k8s:deepcopy-gen=package\n// +k8s:openapi-gen=true\n// +k8s:protobuf-gen=package\npackage x\n"
	files := map[string]string{
		"staging/src/k8s.io/api/resource/v1/doc.go":                   doc,
		"staging/src/k8s.io/api/resource/v1/types.go":                 "package v1\n",
		"staging/src/k8s.io/api/resource/v1/generated.proto":          "",
		"staging/src/k8s.io/api/apps/v1/doc.go":                       doc,
		"staging/src/k8s.io/api/apps/v1/types.go":                     "package v1\n",
		"staging/src/k8s.io/apimachinery/pkg/runtime/doc.go":          "package runtime\n",
		"staging/src/k8s.io/apimachinery/pkg/runtime/generated.proto": "",
		"pkg/apis/resource/doc.go":                                    "// +k8s:deepcopy-gen=package\npackage resource\n",
		"pkg/apis/resource/v1/doc.go":                                 "// +k8s:conversion-gen=k8s.io/kubernetes/pkg/apis/resource\n//  +k8s:validation-gen=TypeMeta\n// +k8s:defaulter-gen=TypeMeta\npackage v1\n",
		"pkg/apis/apps/v1/doc.go":                                     "// +k8s:conversion-gen=k8s.io/kubernetes/pkg/apis/apps\npackage v1\n",
		// Uses the API.
		"pkg/kubelet/cm/dra/state.go": "package dra\n\nimport _ \"k8s.io/api/resource/v1\"\n\ntype X struct {\n\t// +k8s:deepcopy-gen=false\n\tfield int\n}\n// +k8s:deepcopy-gen=true\n",
		// Only its test does.
		"pkg/other/other.go":      "// +k8s:deepcopy-gen=package\npackage other\n",
		"pkg/other/other_test.go": "package other\n\nimport _ \"k8s.io/api/resource/v1\"\n",
		// Conversion needs the tag at the beginning of a line, others don't.
		"pkg/inner/types.go": "// +k8s:x\npackage inner\n\nimport _ \"k8s.io/api/resource/v1\"\n\ntype X struct {\n\t// +k8s:conversion-gen=false\n\t// +k8s:defaulter-gen=false\n\tfield int\n}\n",
		// To be ignored.
		"vendor/k8s.io/api/resource/v1/types.go":                  doc,
		"pkg/x/testdata/y/doc.go":                                 doc,
		"staging/src/k8s.io/sub/module/go.work":                   "",
		"staging/src/k8s.io/sub/module/a/doc.go":                  doc,
		"staging/src/k8s.io/code-generator/_codegenignore/doc.go": doc,
		".gitignore":     "/_output\n",
		"_output/doc.go": doc,
		// Known to upstream's script, but not part of OpenAPI.
		"staging/src/k8s.io/sample-apiserver/pkg/apis/doc.go": doc,
	}
	dir := gitRepo(t, files)
	// Not committed, but would be.
	writeFiles(t, string(dir), map[string]string{
		"staging/src/k8s.io/api/resource/v2/doc.go":   doc,
		"staging/src/k8s.io/api/resource/v2/types.go": "package v2\n",
	})

	external := []string{
		"staging/src/k8s.io/api/apps/v1",
		"staging/src/k8s.io/api/resource/v1",
		"staging/src/k8s.io/api/resource/v2",
	}
	for name, tc := range map[string]struct {
		all  bool
		want map[string][]string
	}{
		"affected": {
			want: map[string][]string{
				"deepcopy-gen":   {"pkg/apis/resource", "pkg/kubelet/cm/dra", "staging/src/k8s.io/api/resource/v1", "staging/src/k8s.io/api/resource/v2"},
				"protobuf-gen":   {"staging/src/k8s.io/api/resource/v1", "staging/src/k8s.io/api/resource/v2"},
				"conversion-gen": {"pkg/apis/resource/v1"},
				"defaulter-gen":  {"pkg/apis/resource/v1", "pkg/inner"},
				"validation-gen": {"pkg/apis/resource/v1"},
			},
		},
		"all": {
			all: true,
			want: map[string][]string{
				"deepcopy-gen": {"pkg/apis/resource", "pkg/kubelet/cm/dra", "pkg/other",
					"staging/src/k8s.io/api/apps/v1", "staging/src/k8s.io/api/resource/v1", "staging/src/k8s.io/api/resource/v2",
					"staging/src/k8s.io/sample-apiserver/pkg/apis"},
				"protobuf-gen": {"staging/src/k8s.io/api/apps/v1", "staging/src/k8s.io/api/resource/v1", "staging/src/k8s.io/api/resource/v2",
					"staging/src/k8s.io/sample-apiserver/pkg/apis"},
				"conversion-gen": {"pkg/apis/apps/v1", "pkg/apis/resource/v1"},
				"defaulter-gen":  {"pkg/apis/resource/v1", "pkg/inner"},
				"validation-gen": {"pkg/apis/resource/v1"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pkgs, err := findPackages(t.Context(), dir, tc.all)
			if err != nil {
				t.Fatal(err)
			}
			for tag, want := range tc.want {
				if got := pkgs.with(tag); !slices.Equal(got, want) {
					t.Errorf("%s, expected:\n%q\ngot:\n%q", tag, want, got)
				}
			}
			if !slices.Equal(pkgs.external, external) {
				t.Errorf("external types, expected:\n%q\ngot:\n%q", external, pkgs.external)
			}
			// All of them, because they end up in one file.
			if !slices.Equal(pkgs.openapi, external) {
				t.Errorf("OpenAPI, expected:\n%q\ngot:\n%q", external, pkgs.openapi)
			}
			if want := []string{"staging/src/k8s.io/api/resource/v1", "staging/src/k8s.io/apimachinery/pkg/runtime"}; !slices.Equal(pkgs.proto, want) {
				t.Errorf("messages, expected:\n%q\ngot:\n%q", want, pkgs.proto)
			}
		})
	}

	if _, err := findPackages(t.Context(), gitRepo(t, map[string]string{"a": ""}), false); err == nil || !strings.Contains(err.Error(), "not a complete tree") {
		t.Errorf("expected an error for a tree without API, got %v", err)
	}
	if _, err := findPackages(t.Context(), git.Dir(t.TempDir()), false); err == nil {
		t.Error("expected an error for a directory without repository")
	}
}

func TestImportPath(t *testing.T) {
	for dir, want := range map[string]string{
		"staging/src/k8s.io/api/resource/v1": "k8s.io/api/resource/v1",
		"pkg/apis/resource":                  "k8s.io/kubernetes/pkg/apis/resource",
	} {
		if got := importPath(dir); got != want {
			t.Errorf("%s: expected %s, got %s", dir, want, got)
		}
	}
}

func TestRunErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		opts    Options
		wantErr string
	}{
		"unknown-step":  {opts: Options{Repo: "x", Steps: []string{"deepcopy", "magic"}}, wantErr: `unknown step "magic", want one of protobuf, deepcopy`},
		"no-repository": {wantErr: "root of the repository is not set"},
		"no-tree":       {opts: Options{Repo: "x"}, wantErr: "is not a Kubernetes tree"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Run(t.Context(), t.TempDir(), "1.36", tc.opts)
			if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("expected error %q, got %v", tc.wantErr, err)
			}
		})
	}
}

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"a/zz.go": "old", "b/zz.go": "old", "c/other.go": "old", "d/zz.go": "old"})
	var files []string
	for _, name := range []string{"a", "b", "c"} {
		files = append(files, filepath.Join(dir, name, "zz.go"))
	}
	generate := func() error {
		// The same content, and still it was written.
		return errors.Join(os.WriteFile(files[0], []byte("old"), 0o644), os.WriteFile(files[2], []byte("new"), 0o644))
	}
	if err := replace(files, generate); err != nil {
		t.Fatal(err)
	}
	got, err := ReadDelta(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"a/zz.go", "c/other.go", "c/zz.go", "d/zz.go"}
	if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, want) {
		t.Errorf("expected %q, got %q", want, names)
	}

	// After an error nothing gets removed.
	failing := errors.New("no ink")
	if err := replace(files, func() error { return failing }); !errors.Is(err, failing) {
		t.Errorf("expected %v, got %v", failing, err)
	}
	if _, err := os.Stat(files[0]); err != nil {
		t.Error(err)
	}
}

func TestDifference(t *testing.T) {
	for name, tc := range map[string]struct {
		old, updated   string
		added, missing []string
	}{
		"same":    {old: "a\nb\n", updated: "a\nb\n"},
		"order":   {old: "a\nb\n", updated: "b\na\n"},
		"added":   {old: "a\n", updated: "a\nb\n", added: []string{"b"}},
		"missing": {old: "a\nb\n", updated: "b\n", missing: []string{"a"}},
		"changed": {old: "a\nb\n", updated: "a\nc\n", added: []string{"c"}, missing: []string{"b"}},
		"empty":   {},
	} {
		t.Run(name, func(t *testing.T) {
			added, missing := difference([]byte(tc.old), []byte(tc.updated))
			if !slices.Equal(added, tc.added) || !slices.Equal(missing, tc.missing) {
				t.Errorf("expected %q and %q, got %q and %q", tc.added, tc.missing, added, missing)
			}
		})
	}
}

func TestIsGenerated(t *testing.T) {
	for file, want := range map[string]bool{
		"pkg/apis/resource/types.go":                                                            false,
		"pkg/apis/resource/zz_generated.deepcopy.go":                                            true,
		"pkg/apis/resource/v1/zz_generated.validations.go":                                      true,
		"pkg/generated/openapi/zz_generated.openapi.go":                                         true,
		"staging/src/k8s.io/api/resource/v1/types.go":                                           false,
		"staging/src/k8s.io/api/resource/v1/generated.pb.go":                                    true,
		"staging/src/k8s.io/api/resource/v1/generated.proto":                                    true,
		"staging/src/k8s.io/api/resource/v1/types_swagger_doc_generated.go":                     true,
		"staging/src/k8s.io/api/testdata/HEAD/resource.k8s.io.v1.ResourceClaim.pb":              true,
		"staging/src/k8s.io/api/testdata/v1.35.0/resource.k8s.io.v1.ResourceClaim.pb":           false,
		"staging/src/k8s.io/client-go/applyconfigurations/resource/v1/allocationresult.go":      true,
		"staging/src/k8s.io/client-go/applyconfigurations/utils.go":                             true,
		"staging/src/k8s.io/client-go/applyconfigurations/doc.go":                               false,
		"staging/src/k8s.io/client-go/applyconfigurations/meta/v1/unstructured.go":              false,
		"api/openapi-spec/v3/apis__resource.k8s.io__v1_openapi.json":                            true,
		"api/openapi-spec/swagger.json":                                                         true,
		"api/openapi-spec/README.md":                                                            false,
		"api/discovery/apis__resource.k8s.io__v1.json":                                          true,
		"api/api-rules/violation_exceptions.list":                                               false,
		"staging/src/k8s.io/dynamic-resource-allocation/api/v1beta1/zz_generated.conversion.go": true,
	} {
		if got := IsGenerated(file); got != want {
			t.Errorf("%s: expected %v, got %v", file, want, got)
		}
	}
	if patterns := Generated("1.36"); len(patterns) == 0 || !slices.Equal(patterns, generatedPatterns) {
		t.Errorf("unexpected patterns: %q", patterns)
	}
}

func TestDelta(t *testing.T) {
	const name = "openapi-spec/v3/apis__resource.k8s.io__v1_openapi.json"
	dir := gitRepo(t, map[string]string{
		"api/" + name:                   "{\n  \"a\": 1\n}\n",
		"api/openapi-spec/swagger.json": "{}\n",
		"api/discovery/apis.json":       "{}\n",
		"pkg/index.go":                  "package index\n",
	})
	base := runGit(t, dir, "rev-parse", "HEAD")
	writeFiles(t, string(dir), map[string]string{
		"api/" + name:                   "{\n  \"a\": 1,\n  \"b\": \"index 123\"\n}\n",
		"api/openapi-spec/swagger.json": "{1}\n",
		"pkg/index.go":                  "package changed\n",
	})
	head := commitAll(t, dir)

	delta, err := APIDelta(t.Context(), string(dir), base, head)
	if err != nil {
		t.Fatal(err)
	}
	want := Delta{name + ".diff": []byte(`diff --git a/api/` + name + ` b/api/` + name + `
--- a/api/` + name + `
+++ b/api/` + name + `
@@ -1,3 +1,4 @@
 {
-  "a": 1
+  "a": 1,
+  "b": "index 123"
 }
`)}
	if !reflect.DeepEqual(delta, want) {
		t.Fatalf("expected:\n%s\ngot:\n%s", want, delta)
	}
	if none, err := APIDelta(t.Context(), string(dir), base, base); err != nil || len(none) > 0 {
		t.Errorf("expected no difference and no error, got %s, %v", none, err)
	}
	if _, err := APIDelta(t.Context(), string(dir), "missing", head); err == nil {
		t.Error("expected an error for an unknown commit")
	}

	reviewed := filepath.Join(t.TempDir(), "1.36")
	read := func() Delta {
		t.Helper()
		got, err := ReadDelta(reviewed)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if problems := delta.Compare(read()); !slices.Equal(problems, []string{name + ".diff: missing, although the API changes"}) {
		t.Errorf("unexpected problems without delta: %q", problems)
	}
	writeFiles(t, reviewed, map[string]string{"discovery/apis.json.diff": "x", name + ".diff": "y"})
	if problems, want := delta.Compare(read()), []string{
		name + ".diff: differs from the tree",
		"discovery/apis.json.diff: left over, the tree has no such change",
	}; !slices.Equal(problems, want) {
		t.Errorf("expected %q, got %q", want, problems)
	}
	if err := delta.Write(reviewed); err != nil {
		t.Fatal(err)
	}
	if got := read(); !reflect.DeepEqual(got, want) {
		t.Errorf("expected after update:\n%s\ngot:\n%s", want, got)
	}
	if problems := delta.Compare(read()); len(problems) > 0 {
		t.Errorf("unexpected problems after update: %q", problems)
	}
}

func TestDropMissingModules(t *testing.T) {
	dir := t.TempDir()
	const complete = "go 1.26.0\n\nuse (\n\t.\n\t./staging/src/k8s.io/api\n)\n"
	writeFiles(t, dir, map[string]string{
		"go.work":                           strings.Replace(complete, ")", "\t./staging/src/k8s.io/sample\n)", 1),
		"staging/src/k8s.io/api/go.mod":     "",
		"staging/src/k8s.io/sample/main.go": "",
	})
	for range 2 {
		if err := dropMissingModules(dir); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(dir, "go.work"))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != complete {
			t.Errorf("expected:\n%s\ngot:\n%s", complete, got)
		}
	}
}

func TestEnviron(t *testing.T) {
	t.Setenv("GOFLAGS", "-mod=vendor")
	t.Setenv("GOWORK", "off")
	t.Setenv("LANG", "de_DE")
	t.Setenv("UPDATE_COMPATIBILITY_FIXTURE_DATA", "true")
	t.Setenv("SOMETHING_ELSE", "kept")
	env := environ("GOWORK=/tree/go.work")
	count := map[string]int{}
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		count[name]++
	}
	for _, want := range []string{"GOWORK=/tree/go.work", sys.GoFlags("-buildvcs=false", "-trimpath"), "LC_ALL=C", "SOMETHING_ELSE=kept"} {
		name, _, _ := strings.Cut(want, "=")
		if !slices.Contains(env, want) || count[name] != 1 {
			t.Errorf("expected %s once, got %d times: %q", want, count[name], env)
		}
	}
	for _, name := range []string{"LANG", "UPDATE_COMPATIBILITY_FIXTURE_DATA"} {
		if count[name] > 0 {
			t.Errorf("%s is still set", name)
		}
	}
}

func ExampleSteps() {
	fmt.Println(strings.Join(Steps(), " "))
	// Output: protobuf deepcopy swagger prerelease defaults validation conversions openapi fixtures openapispec applyconfigs featuregates
}

// TestKeepFile checks that what the generators' go commands do to a file is undone.
func TestKeepFile(t *testing.T) {
	for name, tc := range map[string]struct{ before, after []byte }{
		"changed":   {[]byte("a\n"), []byte("a\nb\n")},
		"unchanged": {[]byte("a\n"), []byte("a\n")},
		"removed":   {[]byte("a\n"), nil},
		"added":     {nil, []byte("a\n")},
		"never":     {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "go.work.sum")
			write := func(content []byte) {
				t.Helper()
				err := os.RemoveAll(file)
				if content != nil && err == nil {
					err = os.WriteFile(file, content, 0o644)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			write(tc.before)
			restore, err := keepFile(file)
			if err != nil {
				t.Fatal(err)
			}
			write(tc.after)
			if err := restore(); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(file)
			if err != nil && tc.before != nil || err == nil && tc.before == nil || string(got) != string(tc.before) {
				t.Errorf("want %q, got %q, %v", tc.before, got, err)
			}
		})
	}
}
