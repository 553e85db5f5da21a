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

	"kubernetes-dra/hack/pkg/ledger"
	"kubernetes-dra/hack/pkg/upstream"
)

func init() {
	register(command{
		name:  "pin",
		args:  "--release 1.36",
		short: "write hack/releases/<release> for the version in the ledger",
		run:   runPin,
	})
}

func runPin(ctx context.Context, args []string) error {
	flags := newFlags("pin")
	release := flags.String("release", "", "release to pin; its state in the ledger must be carried")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *release == "" {
		return errors.New("which release? --release 1.36")
	}
	repo, err := repository()
	if err != nil {
		return err
	}
	l, err := ledger.Load(repo)
	if err != nil {
		return err
	}
	r, err := l.Release(*release)
	if err != nil {
		return err
	}
	if err := upstream.WritePin(ctx, repo, r); err != nil {
		return err
	}
	fmt.Printf("%s pins %s\n", upstream.PinDir(r.Name), r.Version)
	for _, s := range r.StandIns {
		fmt.Printf("%s %s stands in for %s: %s\n", s.Module, s.Version, r.StagingVersion(), s.Why)
	}
	return nil
}
