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

	"kubernetes-dra/hack/pkg/tree/codegen"
)

func init() {
	register(command{
		name:  "generate",
		args:  "[--release 1.36] [--check-base]",
		short: "run the code generators in the tree again, as it is now; nothing gets committed",
		run:   runGenerate,
	})
}

func runGenerate(ctx context.Context, args []string) error {
	flags := newFlags("generate")
	release := flags.String("release", "", "release to generate for (default: that of the ledger)")
	checkBase := flags.Bool("check-base", false, "instead check that generators do not change the untouched base")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return errors.New("generate takes no arguments: all generators run")
	}
	t, err := openTree(*release)
	if err != nil {
		return err
	}
	state, err := t.State()
	if err != nil {
		return err
	}
	if state == nil {
		if state, err = t.Build(ctx); err != nil {
			return err
		}
	}
	if !*checkBase {
		return codegen.Run(ctx, t.Dir(), t.Release.Name, codegenOptions(t))
	}
	if err := codegen.CheckBase(ctx, t.Dir(), state.Base, t.Release.Name, codegenOptions(t)); err != nil {
		return fmt.Errorf("release %s: %w", t.Release.Name, err)
	}
	t.Log("generators change nothing in %s", t.Release.Version)
	return nil
}
