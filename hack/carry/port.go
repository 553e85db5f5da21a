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
)

func init() {
	register(command{
		name:  "port",
		args:  "--from 1.36 --to 1.37",
		short: "bring the overlay to another release: git cherry-pick, then seams for it",
		run:   runPort,
	})
}

func runPort(ctx context.Context, args []string) error {
	flags := newFlags("port")
	from := flags.String("from", "", "release that is carried")
	to := flags.String("to", "", "release to bring the overlay to; the ledger has it, carried or planned")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *from == "" || *to == "" || *from == *to {
		return errors.New("from which release to which other one? --from 1.36 --to 1.37")
	}
	t, err := openTree(*from)
	if err != nil {
		return err
	}
	r, err := t.Ledger.Known(*to)
	if err != nil {
		return fmt.Errorf("%w; add it as planned, with its version", err)
	}
	return t.Port(ctx, r)
}
