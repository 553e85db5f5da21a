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

	"kubernetes-dra/hack/pkg/tree/codegen"
)

func init() {
	register(command{
		name:  "generate",
		args:  "[--release 1.36] [--check | --check-base]",
		short: "write hack/releases/<release>/generated.patch, if it is not what belongs to the overlay",
		run:   runGenerate,
	})
}

func runGenerate(ctx context.Context, args []string) error {
	flags := newFlags("generate")
	release := flags.String("release", "", "release to generate for (default: that of the ledger)")
	check := flags.Bool("check", false, "instead check that the generators make what the file has")
	checkBase := flags.Bool("check-base", false, "instead check that generators do not change the untouched base")
	if err := flags.Parse(args); err != nil {
		return err
	}
	t, err := openTree(*release)
	if err != nil {
		return err
	}
	switch {
	case *check:
		return t.CheckGenerated(ctx)
	case *checkBase:
		state, err := t.Build(ctx)
		if err != nil {
			return err
		}
		return codegen.CheckBase(ctx, t.Dir(), state.Base, t.Release.Name, codegenOptions(t))
	}
	_, err = t.UpdateGenerated(ctx)
	return err
}
