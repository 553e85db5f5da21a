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
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"kubernetes-dra/hack/pkg/git"
	"kubernetes-dra/hack/pkg/sys"
)

// write writes files below a directory.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
}

// commit commits everything in a repository and returns the commit.
func commit(t *testing.T, dir git.Dir) string {
	t.Helper()
	run(t, dir, "add", "--all")
	run(t, dir, "-c", "user.name=test", "-c", "user.email=test@example.com", "commit", "--quiet", "-m", "files")
	return run(t, dir, "rev-parse", "HEAD")
}

func run(t *testing.T, dir git.Dir, args ...string) string {
	t.Helper()
	out, err := dir.Run(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// repository creates a repository with some files in one commit.
func repository(t *testing.T, files map[string]string) (dir git.Dir, head string) {
	t.Helper()
	dir = git.Dir(t.TempDir())
	write(t, string(dir), files)
	run(t, dir, "init", "--quiet")
	return dir, commit(t, dir)
}

func TestTagged(t *testing.T) {
	const doc = "// +k8s:deepcopy-gen=package\npackage x\n"
	const uses = "import _ \"k8s.io/api/resource/v1\"\n"
	dir, _ := repository(t, map[string]string{
		"staging/src/k8s.io/api/resource/v1/doc.go": doc,
		"staging/src/k8s.io/api/apps/v1/doc.go":     doc,
		"pkg/apis/resource/doc.go":                  doc,
		"pkg/apis/resource/v1/doc.go":               "// +k8s:conversion-gen=k8s.io/kubernetes/pkg/apis/resource\npackage v1\n",
		"pkg/apis/apps/v1/doc.go":                   "// +k8s:conversion-gen=k8s.io/kubernetes/pkg/apis/apps\npackage v1\n",
		// Uses the API.
		"pkg/kubelet/cm/dra/state.go": "package dra\n" + uses + "\t// +k8s:deepcopy-gen=true\n",
		// Only its test does.
		"pkg/other/other.go":      doc,
		"pkg/other/other_test.go": "package other\n" + uses,
		// Conversion needs the tag at the beginning of a line, others don't.
		"pkg/inner/types.go": "package inner\n" + uses + "\t// +k8s:conversion-gen=false\n\t// +k8s:deepcopy-gen=false\n",
		// To be ignored.
		"pkg/x/testdata/y/doc.go":                                 doc + uses,
		"staging/src/k8s.io/code-generator/_codegenignore/doc.go": doc + uses,
		"staging/src/k8s.io/code-generator/examples/doc.go":       doc + uses,
		".gitignore":     "/_output\n",
		"_output/doc.go": doc + uses,
	})
	// Not committed, but would be.
	write(t, string(dir), map[string]string{"staging/src/k8s.io/api/resource/v2/doc.go": doc})
	g := &generation{tree: dir}
	if err := g.findAffected(t.Context()); err != nil {
		t.Fatal(err)
	}
	for tag, want := range map[string][]string{
		"deepcopy-gen": {"pkg/apis/resource", "pkg/inner", "pkg/kubelet/cm/dra",
			"staging/src/k8s.io/api/resource/v1", "staging/src/k8s.io/api/resource/v2"},
		"conversion-gen": {"pkg/apis/resource/v1"},
		"validation-gen": nil,
	} {
		if got, err := g.tagged(t.Context(), tag); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s, want:\n%q\ngot:\n%q, %v", tag, want, got, err)
		}
	}
	if got, want := importPath("pkg/x"), "k8s.io/kubernetes/pkg/x"; got != want {
		t.Errorf("want %s, got %s", want, got)
	}
}

// TestRun checks what is done around the generators.
func TestRun(t *testing.T) {
	dir, base := repository(t, map[string]string{
		"go.work.sum": "a\n",
		"staging/src/k8s.io/api/resource/v1/zz_generated.deepcopy.go": "package v1\n",
		"staging/src/k8s.io/api/resource/v1/generated.proto":          "x\n",
	})
	bin := t.TempDir()
	write(t, bin, map[string]string{"protoc": "#!/bin/sh\n"})
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))

	defer func(before []step) { steps = before }(steps)
	for name, tc := range map[string]struct {
		base    string
		write   map[string]string
		err     error
		wantErr []string
	}{
		"same":     {base: base, write: map[string]string{"staging/src/k8s.io/api/resource/v1/generated.proto": "x\n"}},
		"sums":     {base: base, write: map[string]string{"go.work.sum": "a\nb\n"}},
		"changed":  {base: base, write: map[string]string{"staging/src/k8s.io/api/resource/v1/generated.proto": "y\n"}, wantErr: []string{"change the untouched " + base, "M staging/src/k8s.io/api/resource/v1/generated.proto", "+y"}},
		"added":    {base: base, write: map[string]string{"pkg/b/new.go": "package b\n"}, wantErr: []string{"?? pkg/b/new.go"}},
		"failed":   {base: base, err: errors.New("no ink"), wantErr: []string{"generating print: no ink"}},
		"revision": {base: "missing", wantErr: []string{"missing"}},
	} {
		t.Run(name, func(t *testing.T) {
			steps = []step{{"print", func(g *generation, _ context.Context) error {
				write(t, string(g.tree), tc.write)
				return tc.err
			}}}
			err := CheckBase(t.Context(), string(dir), tc.base, "1.36", Options{})
			if (err != nil) != (tc.wantErr != nil) {
				t.Fatalf("want %q, got %v", tc.wantErr, err)
			}
			for _, want := range tc.wantErr {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("want %q in the error, got %v", want, err)
				}
			}
		})
	}
	if err := Run(t.Context(), t.TempDir(), "1.36", Options{}); err == nil || !strings.Contains(err.Error(), "is not a tree of Kubernetes 1.36") {
		t.Errorf("want an error for a folder without a tree, got %v", err)
	}
}

// TestNeedProtoc checks that a missing compiler is installed, or named.
func TestNeedProtoc(t *testing.T) {
	bin, repo := t.TempDir(), t.TempDir()
	t.Setenv("PATH", bin)
	write(t, repo, map[string]string{"hack/install-deps.sh": "#!/bin/sh\n"})
	opts := Options{Repo: repo, Log: t.Logf}
	if err := needProtoc(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "apt-get install protobuf-compiler") {
		t.Errorf("want an error that names the package, got %v", err)
	}
	write(t, repo, map[string]string{"hack/install-deps.sh": "#!/bin/sh\n[ $1 = generators ] && echo >" + bin + "/protoc && /bin/chmod +x " + bin + "/protoc\n"})
	if err := needProtoc(t.Context(), opts); err != nil {
		t.Error(err)
	}
}

func TestEnviron(t *testing.T) {
	for name, value := range map[string]string{"GOFLAGS": "-mod=vendor", "GOWORK": "off", "LANG": "de_DE", "UPDATE_COMPATIBILITY_FIXTURE_DATA": "true", "OTHER": "kept"} {
		t.Setenv(name, value)
	}
	env := environ("/tree", "/bin")
	for name, want := range map[string]string{
		"GOWORK": "/tree/go.work", "GOFLAGS": strings.TrimPrefix(sys.GoFlags("-buildvcs=false", "-trimpath"), "GOFLAGS="), "LC_ALL": "C", "OTHER": "kept",
		"LANG": "", "UPDATE_COMPATIBILITY_FIXTURE_DATA": "", "PATH": "/bin:" + os.Getenv("PATH"),
	} {
		var got []string
		for _, setting := range env {
			if value, ok := strings.CutPrefix(setting, name+"="); ok {
				got = append(got, value)
			}
		}
		if strings.Join(got, " and ") != want {
			t.Errorf("%s: want %q, got %q", name, want, got)
		}
	}
}

func TestIsGenerated(t *testing.T) {
	for file, want := range map[string]bool{
		"pkg/apis/resource/types.go":                                                       false,
		"pkg/apis/resource/zz_generated.deepcopy.go":                                       true,
		"pkg/apis/resource/v1/zz_generated.validations.go":                                 true,
		"staging/src/k8s.io/api/resource/v1/types.go":                                      false,
		"staging/src/k8s.io/api/resource/v1/generated.pb.go":                               true,
		"staging/src/k8s.io/api/resource/v1/generated.proto":                               true,
		"staging/src/k8s.io/api/resource/v1/types_swagger_doc_generated.go":                true,
		"staging/src/k8s.io/api/testdata/HEAD/resource.k8s.io.v1.ResourceClaim.pb":         true,
		"staging/src/k8s.io/api/testdata/v1.35.0/resource.k8s.io.v1.ResourceClaim.pb":      false,
		"staging/src/k8s.io/client-go/applyconfigurations/resource/v1/allocationresult.go": true,
		"staging/src/k8s.io/client-go/applyconfigurations/utils.go":                        true,
		"staging/src/k8s.io/client-go/applyconfigurations/doc.go":                          false,
		"staging/src/k8s.io/client-go/applyconfigurations/meta/v1/unstructured.go":         false,
		"api/openapi-spec/v3/apis__resource.k8s.io__v1_openapi.json":                       true,
		"api/openapi-spec/swagger.json":                                                    true,
		"api/openapi-spec/README.md":                                                       false,
		"api/discovery/apis__resource.k8s.io__v1.json":                                     true,
		"api/api-rules/violation_exceptions.list":                                          false,
		"test/compatibility_lifecycle/reference/feature_list.md":                           true,
	} {
		if got := IsGenerated(file); got != want {
			t.Errorf("%s: want %v, got %v", file, want, got)
		}
	}
}

func TestReplaceSchemas(t *testing.T) {
	// The format is that of "jq --sort-keys".
	spec := func(schemas string) string {
		return "{\n  \"definitions\": {\n" + schemas + "\n  },\n  \"paths\": {}\n}\n"
	}
	const (
		node  = "    \"io.k8s.api.core.v1.Node\": {\n      \"description\": \"a < b\",\n      \"maximum\": 12345678901234567890\n    },\n"
		claim = "    \"io.k8s.api.resource.v1.Claim\": {\n      \"$ref\": \"#/definitions/io.k8s.api.resource.v1.Spec\",\n      \"x-kubernetes-group-version-kind\": \"Claim\"\n    }"
		old   = ",\n    \"io.k8s.api.resource.v1.Spec\": {\n      \"type\": \"old\"\n    }"
	)
	refersTo := func(name string) map[string]any { return map[string]any{"$ref": "#/definitions/" + name} }
	current := map[string]any{
		"io.k8s.api.core.v1.Node":      map[string]any{"type": "not to be used"},
		"io.k8s.api.core.v1.Selector":  map[string]any{"type": "string"},
		"io.k8s.api.resource.v1.Claim": refersTo("io.k8s.api.resource.v1.Spec"),
		"io.k8s.api.resource.v1.Spec":  map[string]any{"allOf": []any{refersTo("io.k8s.api.core.v1.Node"), refersTo("io.k8s.api.core.v1.Selector")}},
		"io.k8s.api.resource.v1.Other": map[string]any{"type": "unused"},
	}
	got, err := replaceSchemas([]byte(spec(node+claim+old)), current, "definitions")
	want := spec(node + "    \"io.k8s.api.core.v1.Selector\": {\n      \"type\": \"string\"\n    },\n" + claim +
		",\n    \"io.k8s.api.resource.v1.Spec\": {\n      \"allOf\": [\n        {\n          \"$ref\": \"#/definitions/io.k8s.api.core.v1.Node\"\n        }," +
		"\n        {\n          \"$ref\": \"#/definitions/io.k8s.api.core.v1.Selector\"\n        }\n      ]\n    }")
	if err != nil || string(got) != want {
		t.Errorf("want:\n%s\ngot:\n%s, %v", want, got, err)
	}
	for content, wantErr := range map[string]string{
		spec(claim): "schema x is used, but not defined",
		"{":         "unexpected EOF",
		"{}":        "no field definitions",
	} {
		_, err := replaceSchemas([]byte(content), map[string]any{"io.k8s.api.resource.v1.Claim": refersTo("x")}, "definitions")
		if err == nil || !strings.Contains(err.Error(), wantErr) {
			t.Errorf("want error %q, got %v", wantErr, err)
		}
	}
}

func TestDelta(t *testing.T) {
	const name = "openapi-spec/v3/apis__resource.k8s.io__v1_openapi.json"
	dir, base := repository(t, map[string]string{
		"api/" + name: "{\n  \"a\": 1\n}\n", "api/openapi-spec/swagger.json": "{}\n", "pkg/index.go": "package index\n"})
	write(t, string(dir), map[string]string{
		"api/" + name: "{\n  \"a\": 1,\nindex 123\n}\n", "api/openapi-spec/swagger.json": "{1}\n", "pkg/index.go": "package changed\n"})
	head := commit(t, dir)

	delta, err := APIDelta(t.Context(), string(dir), base, head)
	if err != nil {
		t.Fatal(err)
	}
	want := Delta{name + ".diff": []byte("diff --git a/api/" + name + " b/api/" + name + "\n--- a/api/" + name + "\n+++ b/api/" + name +
		"\n@@ -1,3 +1,4 @@\n {\n-  \"a\": 1\n+  \"a\": 1,\n+index 123\n }\n")}
	if !reflect.DeepEqual(delta, want) {
		t.Fatalf("want:\n%s\ngot:\n%s", want, delta)
	}
	if none, err := APIDelta(t.Context(), string(dir), base, base); err != nil || len(none) > 0 {
		t.Errorf("want no difference and no error, got %s, %v", none, err)
	}
	reviewed := filepath.Join(t.TempDir(), "1.36")
	check := func(want ...string) {
		t.Helper()
		got, err := ReadDelta(reviewed)
		if err != nil {
			t.Fatal(err)
		}
		if problems := delta.Compare(got); !slices.Equal(problems, want) {
			t.Errorf("want %q, got %q", want, problems)
		}
	}
	check(name + ".diff: missing, although the API changes")
	write(t, reviewed, map[string]string{"discovery/apis.json.diff": "x", name + ".diff": "y"})
	check(name+".diff: differs from the tree", "discovery/apis.json.diff: left over, the tree has no such change")
	if err := delta.Write(reviewed); err != nil {
		t.Fatal(err)
	}
	check()
}
