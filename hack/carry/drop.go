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

package main

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"kubernetes-dra/hack/pkg/sys"
	"kubernetes-dra/hack/pkg/test/testplan"
	"kubernetes-dra/hack/pkg/test/testrun"
	"kubernetes-dra/hack/pkg/tree/ledger"
	"kubernetes-dra/hack/pkg/tree/overlay"
)

func init() {
	register(command{
		name:  "drop",
		args:  "[--release 1.36] [--feature slug]",
		short: "compile what is left without each of the features, one after the other",
		run:   runDrop,
	})
}

func runDrop(ctx context.Context, args []string) error {
	flags := newFlags("drop")
	release := flags.String("release", "", "release to compile (default: all)")
	feature := flags.String("feature", "", "feature to drop (default: each one)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	repo, l, err := openRepository()
	if err != nil {
		return err
	}
	if *feature != "" && l.Feature(*feature) == nil {
		return fmt.Errorf("there is no feature %q: the ledger has %s", *feature, strings.Join(l.Slugs(), ", "))
	}
	releases := l.Carried()
	if *release != "" {
		r, err := l.Release(*release)
		if err != nil {
			return err
		}
		releases = []*ledger.Release{r}
	}
	r := &testrun.Runner{Out: os.Stdout, LogDir: filepath.Join(repo, "_output", "logs")}
	for _, release := range releases {
		for _, f := range l.FeaturesOf(release.Name) {
			if *feature != "" && f.Slug != *feature {
				continue
			}
			r.Do(fmt.Sprintf("%s without %s", release.Name, f.Slug), func() error { return compileWithout(ctx, release.Name, f.Slug) })
			if err := context.Cause(ctx); err != nil {
				return err
			}
		}
	}
	if r.Summary() != nil {
		// It was printed already, and must remain the last line.
		return exitError(1)
	}
	return nil
}

// compileWithout builds a tree beside the one of the release that does not have a feature, nor
// those which need it, and compiles all packages that any feature touches, with their tests.
func compileWithout(ctx context.Context, release, slug string) error {
	t, err := openTree(release)
	if err != nil {
		return err
	}
	files, err := testplan.Files(t.Repo, t.Ledger, release)
	if err != nil {
		return err
	}
	var dropped []string
	t.Ledger, dropped = t.Ledger.Drop(slug, release)
	t.Log("dropping %s", strings.Join(dropped, " and "))
	// One for all features: most of a tree is the same.
	t.Output = filepath.Join(t.Output, "dropped")
	t.Leave = append(t.Leave, overlay.NoCode)
	t.Regenerate = true
	if _, err := t.Build(ctx); err != nil {
		return err
	}
	packages, err := touchedPackages(t.Dir(), files)
	if err != nil {
		return err
	}
	packages = slices.DeleteFunc(packages, isE2E)
	t.Log("compiling %d packages", len(packages))
	return vetAlone(ctx, t.Repo, t.Dir(), packages)
}

// isE2E is true for packages of upstream's end-to-end suite. It imports most of Kubernetes, so compiling
// that takes minutes. No file of ours there uses another one.
func isE2E(pkg string) bool { return strings.HasPrefix(pkg, "./test/e2e/") }

// vet compiles packages of a tree with their tests, and vets them.
func vet(ctx context.Context, dir string, packages []string) error {
	env, err := sys.TestEnviron(dir)
	if err != nil {
		return err
	}
	return sys.Run(ctx, sys.Command(ctx, dir, env, "go", append([]string{"vet"}, packages...)...))
}

// vetAlone does the same without a look at what the packages import, see hack/vettool.
// The environment is for the go command in the tree.
func vetAlone(ctx context.Context, repo, dir string, packages []string, environ ...string) error {
	tool := filepath.Join(repo, "_output", "bin", "vettool")
	if err := sys.Run(ctx, sys.Command(ctx, repo, sys.GoEnviron("GOWORK=off"), "go", "build", "-o", tool, "./hack/vettool")); err != nil {
		return fmt.Errorf("build %s: %w", tool, err)
	}
	env, err := sys.TestEnviron(dir, environ...)
	if err != nil {
		return err
	}
	vet, err := sys.Command(ctx, dir, env, "go", "tool", "-n", "vet").Output()
	if err != nil {
		return fmt.Errorf("go tool -n vet: %w", err)
	}
	env = append(env, "CARRY_VET="+strings.TrimSpace(string(vet)))
	return sys.Run(ctx, sys.Command(ctx, dir, env, "go", append([]string{"vet", "-vettool=" + tool}, packages...)...))
}

// touchedPackages lists the folders of Go files that are in the tree, in the form in which
// the go command takes them for packages.
func touchedPackages(dir string, files []testplan.File) ([]string, error) {
	var packages []string
	for _, f := range files {
		if path.Ext(f.Path) != ".go" {
			continue
		}
		folder := path.Dir(f.Path)
		if slices.Contains(packages, "./"+folder) {
			continue
		}
		found, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(folder), "*.go"))
		if err != nil {
			return nil, err
		}
		if len(found) > 0 {
			packages = append(packages, "./"+folder)
		}
	}
	slices.Sort(packages)
	return packages, nil
}
