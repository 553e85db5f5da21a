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

package lint

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"kubernetes-dra/hack/pkg/git"
	"kubernetes-dra/hack/pkg/tools"
	"kubernetes-dra/hack/pkg/tree"
	"kubernetes-dra/hack/pkg/tree/ledger"
)

const config = `
version: "2"
linters:
  default: none
  enable: [govet, kubeapilinter, logcheck, sorted]
  settings:
    custom:
      logcheck:
        path: _output/local/bin/logcheck.so
        settings:
          config: |
            contextual .*
      kubeapilinter:
        path: _output/local/bin/kube-api-linter.so
      sorted:
        path: _output/local/bin/sorted.so
`

func TestConfigure(t *testing.T) {
	out, err := Configure([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Version string
		Linters struct {
			Enable   []string
			Settings struct {
				Custom map[string]struct {
					Type, Path string
					Settings   map[string]string
				}
			}
		}
	}
	if err := yaml.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	if got.Version != "2" || strings.Join(got.Linters.Enable, " ") != "govet kubeapilinter logcheck" {
		t.Errorf("got\n%s", out)
	}
	custom := got.Linters.Settings.Custom
	if len(custom) != 2 {
		t.Errorf("a linter that we do not have has settings:\n%s", out)
	}
	for name, plugin := range custom {
		if plugin.Type != "module" || plugin.Path != "" {
			t.Errorf("%s is not compiled in:\n%s", name, out)
		}
	}
	if custom["logcheck"].Settings["config"] != "contextual .*\n" {
		t.Errorf("logcheck lost its settings:\n%s", out)
	}
}

func TestConfigureWithoutLogcheck(t *testing.T) {
	for what, content := range map[string]string{
		"renamed":   strings.ReplaceAll(config, "logcheck", "logs"),
		"empty":     "",
		"no plugin": strings.Replace(config, "sorted:\n        path: _output/local/bin/sorted.so", "sorted: yes", 1),
		"no YAML":   "\t",
	} {
		if out, err := Configure([]byte(content)); err == nil || !strings.Contains(err.Error(), upstreamConfig) {
			t.Errorf("%s: want an error with the file, got %v\n%s", what, err, out)
		}
	}
}

// newLinter has a program that writes down how it was called, and has something to
// say if it finds the word "finding".
func newLinter(t *testing.T) *Linter {
	t.Helper()
	l := &Linter{Repo: t.TempDir(), Log: t.Logf}
	for _, module := range modules {
		write(t, filepath.Join(l.Repo, module, "x.go"), "package x\n")
	}
	write(t, program(l), `#!/bin/sh
echo "$PWD $*" >>"${GOLANGCI_LINT_CACHE}.calls"
if grep -rn --include=*.go --exclude-dir=_output finding .; then exit 1; fi
`)
	if err := os.Chmod(program(l), 0o755); err != nil {
		t.Fatal(err)
	}
	return l
}

func program(l *Linter) string { return filepath.Join(tools.Dir(l.Repo), tools.Linter) }

func calls(t *testing.T, l *Linter) []string {
	t.Helper()
	name := filepath.Join(l.Repo, "_output", "lint.calls")
	content, err := os.ReadFile(name)
	if os.IsNotExist(err) {
		return nil
	} else if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(content)), "\n")
}

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestModules(t *testing.T) {
	l := newLinter(t)
	if err := l.Modules(t.Context()); err != nil {
		t.Error(err)
	}
	if got := calls(t, l); len(got) != len(modules) {
		t.Errorf("want a call in each of %v, got %v", modules, got)
	}
	write(t, filepath.Join(l.Repo, "cnistatus", "x.go"), "package x // finding\n")
	err := l.Modules(t.Context())
	if err == nil || !strings.Contains(err.Error(), "x.go:1:") {
		t.Errorf("want an error with the finding, got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Modules(ctx); err == nil || strings.Contains(err.Error(), "golangci-lint") {
		t.Errorf("an interrupt is no failure of golangci-lint: %v", err)
	}
}

// newTree has a base, a commit of a feature, and one of generated code.
func newTree(t *testing.T, l *Linter) (*tree.Tree, *tree.State) {
	t.Helper()
	built := &tree.Tree{
		Repo:    l.Repo,
		Release: &ledger.Release{Name: "1.36", Version: "v1.36.3"},
		Output:  filepath.Join(l.Repo, "_output", "1.36"),
		Cache:   t.TempDir(),
		Log:     t.Logf,
	}
	repo := git.Dir(built.Dir())
	run := func(args ...string) string {
		t.Helper()
		out, err := repo.Run(t.Context(), args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	commit := func(files map[string]string) string {
		t.Helper()
		for name, content := range files {
			write(t, filepath.Join(built.Dir(), name), content)
		}
		run("add", "--all")
		run("-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "--quiet", "--message=x")
		return run("rev-parse", "HEAD")
	}
	if err := os.MkdirAll(built.Dir(), 0o755); err != nil {
		t.Fatal(err)
	}
	run("init", "--quiet")
	s := &tree.State{}
	s.Base = commit(map[string]string{upstreamConfig: config, "pkg/a/a.go": "package a\n", "pkg/b/b.go": "package b\n"})
	feature := commit(map[string]string{"pkg/a/a.go": "package a // seam\n", "pkg/new/own.go": "package own\n", "pkg/new/README.md": "text\n"})
	s.Features = []tree.FeatureCommit{{Slug: "fixes", Commit: feature}}
	s.Head = commit(map[string]string{"pkg/b/zz_generated.go": "package b\n"})
	state, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(built.Dir(), ".git", "carry", "state.json"), string(state))
	return built, s
}

func TestTree(t *testing.T) {
	l := newLinter(t)
	built, s := newTree(t, l)
	lint := func() (string, error) {
		t.Helper()
		err := l.Tree(t.Context(), built, s)
		return strings.Join(calls(t, l), "\n"), err
	}
	call, err := lint()
	if err != nil {
		t.Fatal(err)
	}
	if want := "--new-from-rev=" + s.Base + " ./pkg/a ./pkg/new"; !strings.HasSuffix(call, want) {
		t.Errorf("want the packages with files that people wrote: %s\ngot %s", want, call)
	}
	write(t, filepath.Join(built.Dir(), "pkg/b/b.go"), "package b // edit\n")
	if call, err = lint(); !strings.HasSuffix(call, " ./pkg/a ./pkg/b ./pkg/new") || err != nil {
		t.Errorf("an edit is checked, got %q, %v", call, err)
	}
	write(t, filepath.Join(built.Dir(), "pkg/new/own.go"), "package own // finding\n")
	if _, err := lint(); err == nil || !strings.Contains(err.Error(), "own.go:1:") || !strings.Contains(err.Error(), "1.36") {
		t.Errorf("want an error with release and finding, got %v", err)
	}
}

// A configuration that the linter does not read any more is replaced by that of the default release.
func TestConfigOf(t *testing.T) {
	l := newLinter(t)
	built, _ := newTree(t, l)
	built.Ledger = &ledger.Ledger{Releases: []ledger.Release{{Name: "1.37", Version: "v1.37.1", State: ledger.Carried}}}
	write(t, filepath.Join(built.Dir(), upstreamConfig), "linters: {}\n")
	if _, err := configOf(built); err == nil || !strings.Contains(err.Error(), "make tree RELEASE=1.37") {
		t.Errorf("want what to do, got %v", err)
	}
	write(t, filepath.Join(l.Repo, "_output/1.37/kubernetes", upstreamConfig), config)
	if got, err := configOf(built); err != nil || string(got) != config {
		t.Errorf("got %s, %v", got, err)
	}
}
