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

	"kubernetes-dra/hack/pkg/check/lint"
	"kubernetes-dra/hack/pkg/check/verify"
	"kubernetes-dra/hack/pkg/tools"
)

func init() {
	register(command{
		name:  "lint",
		args:  "[--release 1.36]",
		short: "lint the overlay in its tree with the configuration of Kubernetes, our other Go code, shell scripts, and workflows",
		run:   runLint,
	})
}

func runLint(ctx context.Context, args []string) error {
	flags := newFlags("lint")
	release := flags.String("release", "", "release in whose tree the overlay is linted (default: that of the ledger)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	t, err := openTree(*release)
	if err != nil {
		return err
	}
	if err := tools.Build(ctx, t.Repo, []string{tools.Linter, tools.WorkflowLinter}, t.Log); err != nil {
		return err
	}
	v := &verify.Verifier{Repo: t.Repo, Ledger: t.Ledger, Log: t.Log}
	l := &lint.Linter{Repo: t.Repo, Log: t.Log}
	found := errors.Join(v.Shell(ctx), l.Workflows(ctx), l.Modules(ctx))
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s, err := t.Build(ctx)
	if err != nil {
		return errors.Join(found, err)
	}
	return errors.Join(found, l.Tree(ctx, t, s))
}
