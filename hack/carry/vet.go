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
	"path"
	"path/filepath"
	"slices"
	"strings"

	"kubernetes-dra/hack/pkg/sys"
	"kubernetes-dra/hack/pkg/test/testplan"
)

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
