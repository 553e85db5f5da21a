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
	"path/filepath"
	"time"

	"kubernetes-dra/hack/pkg/tree"
	"kubernetes-dra/hack/pkg/tree/codegen"
)

func init() {
	register(command{
		name:  "tree",
		args:  "[--release 1.36]",
		short: "build the Kubernetes tree _output/<release>/kubernetes",
		run:   runTree,
	})
}

func runTree(ctx context.Context, args []string) error {
	flags := newFlags("tree")
	release := flags.String("release", "", "release to build (default: that of the ledger)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	t, err := openTree(*release)
	if err != nil {
		return err
	}
	_, err = t.Build(ctx)
	return err
}

// openTree returns the tree of a release, or of the default one, as the
// commands use it: with generators, and progress on the screen.
func openTree(release string) (*tree.Tree, error) {
	repo, l, err := openRepository()
	if err != nil {
		return nil, err
	}
	if release == "" {
		r, err := l.Default()
		if err != nil {
			return nil, err
		}
		release = r.Name
	}
	t, err := tree.New(repo, l, release)
	if err != nil {
		return nil, err
	}
	t.Log = progress()
	t.Cache = cacheDir(repo)
	t.Generate = func(ctx context.Context, dir string) error {
		return codegen.Run(ctx, dir, t.Release.Name, codegenOptions(t))
	}
	return t, nil
}

// cacheDir is the folder of downloads that clones share. Without a home, each has its own.
func cacheDir(repo string) string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return filepath.Join(repo, "_output", "cache")
	}
	return filepath.Join(dir, "kubernetes-dra")
}

// codegenOptions are the options of the generators of a tree's release.
func codegenOptions(t *tree.Tree) codegen.Options {
	return codegen.Options{Repo: t.Repo, Log: t.Log}
}

// progress returns a function that prints lines with the elapsed time.
func progress() func(format string, args ...any) {
	start := time.Now()
	return func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "[%6.1fs] %s\n", time.Since(start).Seconds(), fmt.Sprintf(format, args...))
	}
}
