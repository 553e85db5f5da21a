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
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"kubernetes-dra/hack/pkg/sys"
	"kubernetes-dra/hack/pkg/test/testplan"
	"kubernetes-dra/hack/pkg/tree/overlay"
)

func init() {
	register(command{
		name: "drop", args: "[--release 1.36] [--feature slug]",
		short: "compile what is left without each of the features, one after the other", run: runDrop,
	})
}

func runDrop(ctx context.Context, args []string) error {
	flags := newFlags("drop")
	release := flags.String("release", "", "release to compile (default: all)")
	feature := flags.String("feature", "", "feature to drop (default: each one)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	_, l, err := openRepository()
	if err != nil {
		return err
	}
	found := false
	var failures []error
	for _, r := range l.Carried() {
		for _, f := range l.FeaturesOf(r.Name) {
			if *release != "" && *release != r.Name || *feature != "" && *feature != f.Slug {
				continue
			}
			found = true
			if err := compileWithout(ctx, r.Name, f.Slug); err != nil {
				failures = append(failures, fmt.Errorf("%s without %s: %w", r.Name, f.Slug, err))
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
	}
	if !found {
		return fmt.Errorf("no release %q has a feature %q: the ledger has %v", *release, *feature, l.Slugs())
	}
	return errors.Join(failures...)
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
	t.Log("compile without %v", dropped)
	// One for all features: most of a tree is the same.
	t.Output = filepath.Join(t.Output, "dropped")
	t.Leave = append(t.Leave, overlay.NoCode)
	t.Regenerate = true
	if _, err := t.Build(ctx); err != nil {
		return err
	}
	packages, err := testplan.Touched(t.Dir(), files)
	if err != nil {
		return err
	}
	packages = slices.DeleteFunc(packages, func(pkg string) bool { return strings.HasPrefix(pkg, "./test/e2e/") })
	return sys.Run(ctx, sys.Command(ctx, t.Dir(), sys.GoEnviron(), "go", append([]string{"vet"}, packages...)...))
}
