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

package codegen_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kubernetes-dra/hack/pkg/git"
	"kubernetes-dra/hack/pkg/tree"
	"kubernetes-dra/hack/pkg/tree/codegen"
	"kubernetes-dra/hack/pkg/tree/ledger"
)

// builtTree returns the tree of the default release and its first commit. The
// test gets skipped if there is none.
func builtTree(t *testing.T) (repo string, tr *tree.Tree, base string) {
	t.Helper()
	repo, err := filepath.Abs("../../../..")
	if err != nil {
		t.Fatal(err)
	}
	l, err := ledger.Load(repo)
	if err != nil {
		t.Fatal(err)
	}
	release, err := l.Default()
	if err != nil {
		t.Fatal(err)
	}
	tr, err = tree.New(repo, l, release.Name)
	if err != nil {
		t.Fatal(err)
	}
	state, err := tr.State()
	if err != nil {
		t.Fatal(err)
	}
	if state == nil {
		t.Skipf("there is no tree of %s to run generators in, \"make tree\" builds it", release.Name)
	}
	return repo, tr, state.Base
}

// TestBase runs those generators on the untouched base of the default release
// which are called differently than upstream calls them. "carry verify"
// does it with all.
func TestBase(t *testing.T) {
	if testing.Short() {
		t.Skip("runs generators, and -short is set")
	}
	repo, tr, base := builtTree(t)
	opts := codegen.Options{
		Repo:  repo,
		Bin:   filepath.Join(tr.Output, "codegen"),
		Log:   t.Logf,
		Steps: []string{"protobuf", "swagger", "validation", "fixtures", "openapispec"},
	}
	if err := codegen.CheckBase(t.Context(), tr.Dir(), base, tr.Release.Name, opts); err != nil {
		t.Error(err)
	}
}

// TestBaseChanged checks that TestBase can fail.
func TestBaseChanged(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a generator, and -short is set")
	}
	repo, tr, base := builtTree(t)
	// A commit on top of the base, made without touching the tree.
	clone := git.Dir(filepath.Join(t.TempDir(), "kubernetes"))
	run := func(dir git.Dir, args ...string) string {
		t.Helper()
		out, err := dir.Run(t.Context(), args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	run(git.Dir(t.TempDir()), "clone", "--quiet", "--shared", "--no-checkout", "--", tr.Dir(), string(clone))
	run(clone, "checkout", "--quiet", "--detach", base)
	file := "staging/src/k8s.io/api/resource/v1/types_swagger_doc_generated.go"
	if err := os.WriteFile(filepath.Join(string(clone), file), []byte("package v1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	run(clone, "-c", "user.name=test", "-c", "user.email=test@example.com", "commit", "--quiet", "-a", "-m", "changed")
	changed := run(clone, "rev-parse", "HEAD")

	opts := codegen.Options{Repo: repo, Bin: filepath.Join(tr.Output, "codegen"), Log: t.Logf, Steps: []string{"swagger"}}
	err := codegen.CheckBase(t.Context(), string(clone), changed, tr.Release.Name, opts)
	if err == nil || !strings.Contains(err.Error(), "generators change the untouched") || !strings.Contains(err.Error(), "M "+file) {
		t.Errorf("expected an error that names %s, got %v", file, err)
	}

	err = codegen.CheckBase(t.Context(), string(clone), "missing", tr.Release.Name, opts)
	if err == nil || !strings.Contains(err.Error(), `no revision "missing"`) {
		t.Errorf("expected an error for an unknown revision, got %v", err)
	}
}
