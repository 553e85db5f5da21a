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
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kubernetes-dra/hack/pkg/sys"
)

// newModules are two modules in a tree, one of which needs the other one.
func newModules(t *testing.T) GoModules {
	t.Helper()
	tree := t.TempDir()
	for name, content := range map[string]string{
		"api/go.mod":       "module k8s.io/api\n\ngo 1.26.0\n",
		"api/api.go":       "package api\n\ntype Claim struct{ ReservedFor string }\n",
		"api/v2/go.mod":    "module k8s.io/api/v2\n",
		"client-go/go.mod": "module k8s.io/client-go\n\ngo 1.26.0\n\nrequire (\n\tk8s.io/api v0.36.3 // indirect\n\tk8s.io/klog/v2 v2.140.0\n)\n",
		"client-go/c.go":   "package client\n\nimport \"k8s.io/api\"\n\nfunc Claim() api.Claim { return api.Claim{ReservedFor: \"job\"} }\n",
	} {
		writeFile(t, filepath.Join(tree, "staging/src/k8s.io", name), content)
	}
	return GoModules{Tree: tree, Paths: []string{"k8s.io/api", "k8s.io/client-go"}, Version: "v0.36.3-dra.1", Date: time.Unix(0, 0)}
}

// A program in an empty module uses a field of ours with the lines of the two files, and nothing else. A third
// module asks for upstream's version, which is newer than ours.
func TestGoModules(t *testing.T) {
	dir, again := filepath.Join(t.TempDir(), "modules"), filepath.Join(t.TempDir(), "elsewhere")
	for _, dir := range []string{dir, again} {
		writeFile(t, filepath.Join(dir, "former"), "")
		if err := newModules(t).Replace(t.Context(), dir, t.Logf); err != nil {
			t.Fatal(err)
		}
	}
	files := 0
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		name, _ := filepath.Rel(dir, file)
		if !bytes.Equal(readFile(t, file), readFile(t, again, name)) {
			t.Errorf("%s has other bytes when it is made again", name)
		}
		return nil
	})
	if err != nil || files != 8 {
		t.Errorf("got %d files, want 3 for each of two modules, and 2 with lines: %v", files, err)
	}
	mod := string(readFile(t, dir, "k8s.io/client-go/@v/v0.36.3-dra.1.mod"))
	if !strings.Contains(mod, "k8s.io/api v0.36.3-dra.1 // indirect\n") || !strings.Contains(mod, "klog/v2 v2.140.0\n") {
		t.Errorf("got go.mod:\n%s", mod)
	}

	program := t.TempDir()
	writeFile(t, filepath.Join(program, "main.go"), "package main\n\nimport (\n\t\"example.com/third\"\n\t\"k8s.io/api\"\n)\n\nfunc main() { println(api.Claim{ReservedFor: third.Name}.ReservedFor) }\n")
	writeFile(t, filepath.Join(program, "third/third.go"), "package third\n\nconst Name = \"job\"\n")
	writeFile(t, filepath.Join(program, "third/go.mod"), "module example.com/third\n\nrequire k8s.io/api v0.36.3\n")
	writeFile(t, filepath.Join(program, "go.mod"), "module example.com/program\n\ngo 1.26.0\n\nreplace example.com/third => ./third\n"+string(readFile(t, dir, ReplaceFile)))
	writeFile(t, filepath.Join(program, "go.sum"), string(readFile(t, dir, SumFile)))
	run := func(cache string, args ...string) error {
		env := sys.GoEnviron("GOPROXY=file://"+filepath.ToSlash(dir), "GOMODCACHE="+cache, "GOWORK=off", "GONOSUMDB=", "GONOSUMCHECK=", "GOPRIVATE=", "GOFLAGS=-modcacherw")
		return sys.Run(t.Context(), sys.Command(t.Context(), program, env, "go", args...))
	}
	cache := filepath.Join(t.TempDir(), "cache")
	if err := errors.Join(run(cache, "mod", "tidy"), run(cache, "build", "-o", os.DevNull, ".")); err != nil {
		t.Fatal(err)
	}
	// An archive that is not the one of go.sum is refused.
	archive := filepath.Join(dir, "k8s.io/api/@v/v0.36.3-dra.1.zip")
	forged := newModules(t)
	writeFile(t, filepath.Join(forged.Tree, "staging/src/k8s.io/api/forged.go"), "package api\n")
	if err := forged.Replace(t.Context(), again, t.Logf); err != nil {
		t.Fatal(err)
	}
	writeFile(t, archive, string(readFile(t, again, "k8s.io/api/@v/v0.36.3-dra.1.zip")))
	if err := run(filepath.Join(t.TempDir(), "cache"), "build", "-o", os.DevNull, "."); err == nil || !strings.Contains(err.Error(), "checksum mismatch") {
		t.Errorf("want a mismatch, got %v", err)
	}
}

// What was there stays if there is an error.
func TestGoModulesErrors(t *testing.T) {
	for name, content := range map[string]string{"no such file": "", "unknown directive": "nonsense\n"} {
		m, dir := newModules(t), filepath.Join(t.TempDir(), "modules")
		writeFile(t, filepath.Join(dir, "former"), "")
		mod := filepath.Join(m.Tree, "staging/src/k8s.io/client-go/go.mod")
		if content != "" {
			writeFile(t, mod, content)
		} else if err := os.Remove(mod); err != nil {
			t.Fatal(err)
		}
		err := m.Replace(t.Context(), dir, t.Logf)
		if err == nil || !strings.Contains(err.Error(), "module k8s.io/client-go v0.36.3-dra.1: ") || !strings.Contains(err.Error(), name) {
			t.Errorf("want an error with %q, got %v", name, err)
		}
		readFile(t, dir, "former")
	}
}
