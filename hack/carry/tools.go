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

	"kubernetes-dra/hack/pkg/tools"
)

func init() {
	register(command{
		name:       "tools",
		args:       "[name of a folder in hack/tools]...",
		short:      "build third-party programs into _output/tools/bin, and print that path",
		positional: true,
		run:        runTools,
	})
}

func runTools(ctx context.Context, args []string) error {
	flags := newFlags("tools")
	if err := flags.Parse(args); err != nil {
		return err
	}
	repo, err := repository()
	if err != nil {
		return err
	}
	names := flags.Args()
	if len(names) == 0 {
		if names, err = tools.Names(repo); err != nil {
			return err
		}
	}
	if err := tools.Build(ctx, repo, names, progress()); err != nil {
		return err
	}
	fmt.Println(tools.Dir(repo))
	return nil
}
