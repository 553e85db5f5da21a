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
	"os"
	"path/filepath"

	"kubernetes-dra/hack/pkg/dist/binaries"
	"kubernetes-dra/hack/pkg/tree"
)

func init() {
	register(command{
		name:       "build",
		args:       "[--release 1.36] [binary...]",
		short:      "build the tree and the binaries, _output/<release>/bin",
		positional: true,
		run:        runBuild,
	})
}

func runBuild(ctx context.Context, args []string) error {
	flags := newFlags("build")
	release := flags.String("release", "", "release to build (default: that of the ledger)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	t, err := openTree(*release)
	if err != nil {
		return err
	}
	options, err := buildOptions(ctx, t)
	if err != nil {
		return err
	}
	if flags.NArg() > 0 {
		options.Names = flags.Args()
	}
	options.Debug = os.Getenv("DBG") == "1"
	return binaries.Build(ctx, options)
}

// buildOptions brings the tree up to date, and says how its binaries are built.
func buildOptions(ctx context.Context, t *tree.Tree) (binaries.Options, error) {
	state, err := t.Build(ctx)
	if err != nil {
		return binaries.Options{}, err
	}
	edited, err := t.Edited(ctx)
	if err != nil {
		return binaries.Options{}, err
	}
	return binaries.Options{
		Tree:    t.Dir(),
		Bin:     filepath.Join(t.Output, "bin"),
		LogFile: filepath.Join(t.Output, "build.log"),
		Names:   binaries.Names,
		Version: t.Ledger.Stamp(t.Release),
		Commit:  state.Head,
		Date:    t.Release.Date(),
		Dirty:   len(edited) > 0,
		Log:     t.Log,
	}, nil
}
