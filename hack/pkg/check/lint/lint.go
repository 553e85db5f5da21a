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

// Package lint runs golangci-lint: with the configuration of Kubernetes on what
// the overlay makes of its tree, and with one of our own on the other modules.
package lint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"sigs.k8s.io/yaml"

	"kubernetes-dra/hack/pkg/git"
	"kubernetes-dra/hack/pkg/sys"
	"kubernetes-dra/hack/pkg/tools"
	"kubernetes-dra/hack/pkg/tree"
)

// upstreamConfig is the configuration that all code of Kubernetes satisfies.
const upstreamConfig = "hack/golangci.yaml"

// compiledIn are the linters of Kubernetes in our program. Its third one, for
// the order of feature gates, is in no Go module.
var compiledIn = []string{"logcheck", "kubeapilinter"}

// modules are the folders of our Go modules, apart from pins.
var modules = []string{".", "cnistatus", "test/thirdparty"}

// Linter runs golangci-lint.
type Linter struct {
	// Repo is this repository.
	Repo string
	// Log gets progress.
	Log func(format string, args ...any)
}

// Modules checks the modules of this repository.
func (l *Linter) Modules(ctx context.Context) error {
	var errs []error
	for _, module := range modules {
		if err := l.run(ctx, filepath.Join(l.Repo, module), filepath.Join(l.Repo, ".golangci.yaml"), []string{"GOWORK=off"}, "./..."); err != nil {
			errs = append(errs, fmt.Errorf("module %s: %w", module, err))
		}
	}
	return errors.Join(errs...)
}

// Workflows checks those of GitHub.
func (l *Linter) Workflows(ctx context.Context) error {
	files, err := filepath.Glob(filepath.Join(l.Repo, ".github/workflows/*.yaml"))
	if err != nil || len(files) == 0 {
		return err
	}
	return sys.Run(ctx, sys.Command(ctx, l.Repo, nil, filepath.Join(tools.Dir(l.Repo), tools.WorkflowLinter), files...))
}

// Tree checks what differs between the untouched release and its tree: own files,
// and lines that seams add.
func (l *Linter) Tree(ctx context.Context, t *tree.Tree, s *tree.State) error {
	content, err := configOf(t)
	if err != nil {
		return err
	}
	config, err := Configure(content)
	if err != nil {
		return err
	}
	packages, err := packagesOf(ctx, t, s)
	if err != nil {
		return err
	}
	file := filepath.Join(t.Output, "golangci.yaml")
	if err := sys.WriteFile(file, config, 0o644); err != nil {
		return err
	}
	if err := l.run(ctx, t.Dir(), file, nil, append([]string{"--new-from-rev=" + s.Base}, packages...)...); err != nil {
		return fmt.Errorf("release %s: %w", t.Release.Name, err)
	}
	return nil
}

// configOf is the configuration for a tree. Until 1.32 it has a format that the
// linter does not read any more: the one of the default release stands in.
func configOf(t *tree.Tree) ([]byte, error) {
	content, err := os.ReadFile(filepath.Join(t.Dir(), filepath.FromSlash(upstreamConfig)))
	if err != nil || bytes.Contains(content, []byte("version: \"2\"\n")) {
		return content, err
	}
	r, err := t.Ledger.Default()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(t.Repo, "_output", r.Name, "kubernetes", filepath.FromSlash(upstreamConfig))
	if content, err = os.ReadFile(file); err != nil {
		return nil, fmt.Errorf("%s of %s is too old for golangci-lint, and that of %s is needed: %w: run make tree RELEASE=%s", upstreamConfig, t.Release.Version, r.Version, err, r.Name)
	}
	return content, nil
}

// Configure returns upstream's configuration for our program: its plugins are
// compiled in, and those that it does not have are left out.
func Configure(config []byte) ([]byte, error) {
	var all map[string]any
	if err := yaml.Unmarshal(config, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", upstreamConfig, err)
	}
	linters, _ := all["linters"].(map[string]any)
	settings, _ := linters["settings"].(map[string]any)
	custom, _ := settings["custom"].(map[string]any)
	enabled, _ := linters["enable"].([]any)
	for name, value := range custom {
		plugin, ok := value.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s: linters.settings.custom.%s: want a mapping, got %T", upstreamConfig, name, value)
		}
		if !slices.Contains(compiledIn, name) {
			delete(custom, name)
			enabled = slices.DeleteFunc(enabled, func(e any) bool { return e == name })
			continue
		}
		delete(plugin, "path")
		plugin["type"] = "module"
	}
	if !slices.Contains(enabled, any("logcheck")) {
		return nil, fmt.Errorf("%s does not enable logcheck: look where it went, and change hack/pkg/check/lint", upstreamConfig)
	}
	linters["enable"] = enabled
	return yaml.Marshal(all)
}

// packagesOf are the packages with files that people wrote: generated code is
// upstream's matter.
func packagesOf(ctx context.Context, t *tree.Tree, s *tree.State) ([]string, error) {
	edited, err := t.Edited(ctx)
	if err != nil {
		return nil, err
	}
	out, err := git.Dir(t.Dir()).Output(ctx, nil, nil, "diff", "-z", "--name-only", "--diff-filter=d", s.Base, s.Written())
	if err != nil {
		return nil, err
	}
	var packages []string
	for _, name := range append(git.SplitZ(out), edited...) {
		if path.Ext(name) == ".go" {
			packages = append(packages, "./"+path.Dir(name))
		}
	}
	slices.Sort(packages)
	return slices.Compact(packages), nil
}

// run runs golangci-lint in a folder. Its findings are the error.
func (l *Linter) run(ctx context.Context, dir, config string, env []string, args ...string) error {
	start := time.Now()
	args = append([]string{"run", "--config=" + config, "--concurrency=1", "--allow-parallel-runners"}, args...)
	// Results hold paths. So clones do not share them. The linter collects garbage before it takes more memory.
	env = sys.GoEnviron(append(env, "GOLANGCI_LINT_CACHE="+filepath.Join(l.Repo, "_output", "lint"), "GOMEMLIMIT=3GiB")...)
	if err := sys.Run(ctx, sys.Command(ctx, dir, env, filepath.Join(tools.Dir(l.Repo), tools.Linter), args...)); err != nil {
		return err
	}
	l.Log("no findings in %s, %s", dir, time.Since(start).Round(time.Second))
	return nil
}
