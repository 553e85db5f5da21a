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
)

func init() {
	register(command{
		name:  "save",
		args:  "[--release 1.36] [--feature <slug>]",
		short: "take edits made in the tree back to the overlay",
		run:   runSave,
	})
	register(command{
		name:  "patches",
		args:  "[--release 1.36]",
		short: "write the tree's commits as a series for git am, _output/<release>/patches",
		run:   runPatches,
	})
}

func runSave(ctx context.Context, args []string) error {
	flags := newFlags("save")
	release := flags.String("release", "", "release whose tree was edited (default: that of the ledger)")
	feature := flags.String("feature", "", "slug of the feature that edits of upstream files belong to")
	if err := flags.Parse(args); err != nil {
		return err
	}
	t, err := openTree(*release)
	if err != nil {
		return err
	}
	return t.Save(ctx, *feature)
}

func runPatches(ctx context.Context, args []string) error {
	flags := newFlags("patches")
	release := flags.String("release", "", "release (default: that of the ledger)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	t, err := openTree(*release)
	if err != nil {
		return err
	}
	files, err := t.Patches(ctx)
	if err != nil {
		return err
	}
	for _, name := range files {
		fmt.Println(name)
	}
	return nil
}
