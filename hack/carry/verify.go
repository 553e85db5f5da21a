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

	"kubernetes-dra/hack/pkg/check/verify"
	"kubernetes-dra/hack/pkg/tree"
)

func init() {
	register(command{
		name:  "verify",
		args:  "[--update]",
		short: "check ledger, seams, format, generated API delta, orphan files, for all releases",
		run:   runVerify,
	})
}

func runVerify(ctx context.Context, args []string) error {
	flags := newFlags("verify")
	update := flags.Bool("update", false, "write what is derived (generated code, API delta, tables and files in documents, canonical seams, gofmt) instead of complaining")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := verifyRepository(ctx, *update); err != nil || *update {
		return err
	}
	// What nobody tested is no failure: a change gets verified before it gets tested.
	s, err := newTestSession(ctx, testOptions{owed: true})
	if err != nil {
		return err
	}
	defer s.close()
	s.showOwed()
	return nil
}

// verifyRepository checks the repository, or writes what is derived.
func verifyRepository(ctx context.Context, update bool) error {
	repo, l, err := openRepository()
	if err != nil {
		return err
	}
	log := progress()
	v := &verify.Verifier{
		Repo:   repo,
		Ledger: l,
		Update: update,
		Tree: func(release string) (*tree.Tree, error) {
			t, err := openTree(release)
			if err == nil {
				// Trees are built beside each other.
				t.Log = func(format string, args ...any) { log("%s: %s", release, fmt.Sprintf(format, args...)) }
			}
			return t, err
		},
		Log: log,
	}
	return v.Run(ctx)
}
