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
	"context"
	"crypto/sha256"
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
var modules = []string{".", "cnistatus"}

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
		start := time.Now()
		env := append(sys.GoEnviron(), "GOWORK=off")
		err := l.run(ctx, filepath.Join(l.Repo, module), env, filepath.Join(l.Repo, ".golangci.yaml"), "./...")
		if err != nil {
			errs = append(errs, fmt.Errorf("module %s: %w", module, err))
			continue
		}
		l.Log("no findings in module %s, %s", module, time.Since(start).Round(time.Second))
	}
	return errors.Join(errs...)
}

// Tree checks what differs between the untouched release and its tree: own files,
// and lines that seams add. What passed is remembered until the tree or the linter
// changes.
func (l *Linter) Tree(ctx context.Context, t *tree.Tree, s *tree.State) error {
	content, err := configOf(t)
	if err != nil {
		return err
	}
	config, err := Configure(content)
	if err != nil {
		return err
	}
	edited, err := t.Edited(ctx)
	if err != nil {
		return err
	}
	key, err := l.key(s.Head, config)
	if err != nil {
		return err
	}
	passed := filepath.Join(t.Cache, "checked", key)
	if _, err := os.Stat(passed); err == nil && len(edited) == 0 {
		t.Log("no findings in %s (checked before)", t.Release.Version)
		return nil
	}
	packages, err := packagesOf(ctx, t, s, edited)
	if err != nil {
		return err
	}
	file := filepath.Join(t.Output, upstreamName)
	if err := sys.WriteFile(file, config, 0o644); err != nil {
		return err
	}
	start := time.Now()
	t.Log("linting %d packages of %s", len(packages), t.Release.Version)
	args := append([]string{"--new-from-rev=" + s.Base}, packages...)
	if err := l.run(ctx, t.Dir(), sys.GoEnviron(), file, args...); err != nil {
		return fmt.Errorf("release %s: %w", t.Release.Name, err)
	}
	t.Log("no findings in %s, %s", t.Release.Version, time.Since(start).Round(time.Second))
	if len(edited) > 0 {
		return nil
	}
	return sys.WriteFile(passed, []byte(t.Release.Version+"\n"), 0o644)
}

// upstreamName is the name of the configuration that Configure made.
const upstreamName = "golangci.yaml"

// configOf is the configuration for a tree. Until 1.32 it has a format that the
// linter does not read any more: the one of the default release stands in.
func configOf(t *tree.Tree) ([]byte, error) {
	content, err := os.ReadFile(filepath.Join(t.Dir(), filepath.FromSlash(upstreamConfig)))
	if err != nil || supported(content) {
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

// supported says whether golangci-lint can read the configuration.
func supported(config []byte) bool {
	var c struct {
		Version string `json:"version"`
	}
	return yaml.Unmarshal(config, &c) == nil && c.Version == "2"
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
func packagesOf(ctx context.Context, t *tree.Tree, s *tree.State, edited []string) ([]string, error) {
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

// key identifies a tree, and everything with which it is checked.
func (l *Linter) key(head string, config []byte) (string, error) {
	program, err := os.ReadFile(l.program())
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintf(h, "lint %s %x %x", head, sha256.Sum256(config), sha256.Sum256(program))
	return fmt.Sprintf("lint-%x", h.Sum(nil)), nil
}

func (l *Linter) program() string { return filepath.Join(tools.Dir(l.Repo), tools.Linter) }

// memory makes the linter collect garbage before it takes more.
const memory = "3GiB"

// run runs golangci-lint. Its findings are the error.
func (l *Linter) run(ctx context.Context, dir string, env []string, config string, args ...string) error {
	args = append([]string{"run", "--config=" + config, "--concurrency=1", "--allow-parallel-runners"}, args...)
	// Results hold paths. So clones do not share them.
	env = append(env, "GOLANGCI_LINT_CACHE="+filepath.Join(l.Repo, "_output", "lint"), "GOMEMLIMIT="+memory)
	return sys.Run(ctx, sys.Command(ctx, dir, env, l.program(), args...))
}
