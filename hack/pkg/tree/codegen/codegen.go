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

// Package codegen runs the code generators of a Kubernetes release in a tree of
// that release, for what a change of the resource.k8s.io API touches.
//
// The generators are the release's own, built from the tree, and called like
// hack/update-codegen.sh and the other scripts of upstream call them. There are
// three differences:
//
//   - Most get only those packages which can be affected. The output is the
//     same as for all packages, because generators look at one package and at
//     what it imports. Options.All generates for all packages, to prove it.
//   - kubernetes-dra/hack/protoc takes the place of protoc.
//   - The OpenAPI files under api/openapi-spec get updated without running
//     an API server: fields get added by the same code and from the same
//     definitions as in the server. See openapispec.go for the details.
//
// There is one rule by which all of that can be checked (CheckBase): generators
// run on the untouched base must change nothing.
package codegen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"kubernetes-dra/hack/pkg/git"
)

// Options influence how code gets generated, but not what.
type Options struct {
	// Repo is the root of this repository, where the stand-in for protoc
	// gets built.
	Repo string
	// Bin is a directory for the generators. A generator which is already
	// there does not get linked again if its source did not change. By
	// default it is _output/<release>/codegen in the repository.
	Bin string
	// Steps are the names of those steps that shall be done, see Steps.
	// Empty means all of them.
	Steps []string
	// All runs generators for all packages of the tree, also those which a
	// change of the API cannot affect. This takes a few minutes.
	All bool
	// Log gets called, if set, with what is being done.
	Log func(format string, args ...any)
}

// apiGroup is the name of the API group and of the directories that define it.
const apiGroup = "resource"

// step is one generator.
type step struct {
	name string
	run  func(g *generation, ctx context.Context) error
}

// steps lists the steps in the order in which they have to run. No two of them
// run at once: since 1.37 both validation and openapi write into packages of
// k8s.io/api, which most others read.
var steps = []step{
	// Modifies types.go if a field has no protobuf tag yet, therefore first.
	{"protobuf", (*generation).protobuf},
	{"deepcopy", (*generation).deepcopy},
	{"swagger", (*generation).swagger},
	{"prerelease", (*generation).prerelease},
	{"defaults", (*generation).defaults},
	{"validation", (*generation).validation},
	{"conversions", (*generation).conversions},
	{"openapi", (*generation).openapi},
	{"fixtures", (*generation).fixtures},
	// These depend on zz_generated.openapi.go.
	{"openapispec", (*generation).openAPISpec},
	{"applyconfigs", (*generation).applyConfigs},
	// Reads all Go files of the tree, therefore last.
	{"featuregates", (*generation).featureGates},
}

// Steps returns the names of all steps, in the order in which they run.
func Steps() []string {
	var names []string
	for _, s := range steps {
		names = append(names, s.name)
	}
	return names
}

// generation is one run in one tree.
type generation struct {
	tree    string // absolute path
	release string
	opts    Options
	tmp     string
	tools   *tools
	pkgs    *packages
	// schemaProgramsBuilt is true once modelsSchema and draSchemas are up-to-date.
	schemaProgramsBuilt bool
}

// Run generates code in a tree of a release.
func Run(ctx context.Context, tree, release string, opts Options) (finalErr error) {
	for _, name := range opts.Steps {
		if !slices.Contains(Steps(), name) {
			return fmt.Errorf("unknown step %q, want one of %s", name, strings.Join(Steps(), ", "))
		}
	}
	if opts.Repo == "" {
		return errors.New("the root of the repository is not set")
	}
	if opts.Log == nil {
		opts.Log = func(string, ...any) {}
	}
	if opts.Bin == "" {
		opts.Bin = filepath.Join(opts.Repo, "_output", release, "codegen")
	}
	for _, dir := range []*string{&tree, &opts.Repo, &opts.Bin} {
		abs, err := filepath.Abs(*dir)
		if err != nil {
			return err
		}
		// The generators compare paths with what "go list" prints.
		if resolved, err := filepath.EvalSymlinks(abs); err == nil {
			abs = resolved
		}
		*dir = abs
	}
	if _, err := os.Stat(filepath.Join(tree, "hack", "update-codegen.sh")); err != nil {
		return fmt.Errorf("%s is not a Kubernetes tree: %w", tree, err)
	}

	tmp, err := os.MkdirTemp("", "codegen-")
	if err != nil {
		return err
	}
	defer func() {
		finalErr = errors.Join(finalErr, os.RemoveAll(tmp))
	}()

	restore, err := keepFile(filepath.Join(tree, "go.work.sum"))
	if err != nil {
		return err
	}
	defer func() {
		finalErr = errors.Join(finalErr, restore())
	}()

	g := &generation{tree: tree, release: release, opts: opts, tmp: tmp}
	if g.pkgs, err = findPackages(ctx, git.Dir(tree), opts.All); err != nil {
		return fmt.Errorf("looking for packages with generated code: %w", err)
	}
	start := time.Now()
	if g.tools, err = buildTools(ctx, tree, opts.Repo, opts.Bin); err != nil {
		return fmt.Errorf("building generators: %w", err)
	}
	opts.Log("generators built (%s)", since(start))

	for _, s := range steps {
		if len(opts.Steps) > 0 && !slices.Contains(opts.Steps, s.name) {
			continue
		}
		start := time.Now()
		if err := s.run(g, ctx); err != nil {
			return fmt.Errorf("generating %s: %w", s.name, err)
		}
		opts.Log("generated %s (%s)", s.name, since(start))
	}
	return nil
}

func since(start time.Time) time.Duration {
	return time.Since(start).Round(100 * time.Millisecond)
}

// unwritten is the modification time of a generated file that has not been
// written again yet. No file has it otherwise.
var unwritten = time.Unix(1, 0)

// replace runs a generator that writes files. One that exists and that it does
// not write is from an earlier run and gets removed.
func replace(files []string, generate func() error) error {
	var existing []string
	for _, file := range files {
		err := os.Chtimes(file, time.Time{}, unwritten)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		existing = append(existing, file)
	}
	if err := generate(); err != nil {
		return err
	}
	for _, file := range existing {
		info, err := os.Lstat(file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if info.ModTime().Equal(unwritten) {
			if err := os.Remove(file); err != nil {
				return err
			}
		}
	}
	return nil
}

// keepFile returns a function which gives the file the content that it has now. The go
// command adds checksums to go.work.sum which upstream's does not have: without the
// samples that cannot be had, it looks at the go.mod of other versions. It finds them
// again whenever it needs them, and they are not generated code.
func keepFile(name string) (restore func() error, err error) {
	content, err := os.ReadFile(name)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return nil, err
	}
	return func() error {
		if missing {
			err := os.Remove(name)
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		if now, err := os.ReadFile(name); err == nil && bytes.Equal(now, content) {
			return nil
		}
		return os.WriteFile(name, content, 0o644)
	}, nil
}
