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
	"path/filepath"

	"kubernetes-dra/hack/pkg/tree/ledger"
	"kubernetes-dra/hack/pkg/tree/overlay"
	"kubernetes-dra/hack/pkg/tree/port"
	"kubernetes-dra/hack/pkg/tree/upstream"
)

func init() {
	register(command{
		name:  "port",
		args:  "--from 1.36 --to 1.37 [--out dir]",
		short: "bring the overlay to another release by three-way merges, in a git work tree",
		run:   runPort,
	})
}

func runPort(ctx context.Context, args []string) error {
	flags := newFlags("port")
	from := flags.String("from", "", "release that is carried")
	to := flags.String("to", "", "release to bring the overlay to; the ledger has it, carried or planned")
	out := flags.String("out", "", "git work tree in which the overlay is changed (default: _output/port/<from>-<to>)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *from == "" || *to == "" || *from == *to {
		return errors.New("from which release to which other one? --from 1.36 --to 1.37")
	}
	repo, l, err := openRepository()
	if err != nil {
		return err
	}
	p := &port.Port{Ledger: l}
	if p.From, err = l.Release(*from); err != nil {
		return err
	}
	if p.To, err = l.Known(*to); err != nil {
		return fmt.Errorf("%w; add it as planned, with its version", err)
	}
	log := progress()
	log("opening %s (%s) and the carried releases", p.To.Name, p.To.Version)
	if p.Bases, err = openBases(ctx, repo, append(l.Carried(), p.To)); err != nil {
		return err
	}
	if *out == "" {
		*out = filepath.Join(repo, "_output", "port", *from+"-"+*to)
	}
	if p.Repo, p.Conflicts, err = port.WorkTree(ctx, repo, *out, *from, *to); err != nil {
		return err
	}
	log("porting from %s to %s in %s", p.From.Version, p.To.Version, p.Repo)
	results, err := p.Run(ctx)
	if err != nil {
		return err
	}
	log("done")
	fmt.Print(port.Report(results))
	fmt.Print(p.NextSteps(results))
	if port.Count(results, port.Conflict) > 0 {
		return exitError(1)
	}
	return nil
}

// openBases opens the untouched trees of releases; one that is not carried need not have
// a pin.
func openBases(ctx context.Context, repo string, releases []*ledger.Release) (map[string]overlay.Base, error) {
	bases := map[string]overlay.Base{}
	for _, r := range releases {
		if bases[r.Name] != nil {
			continue
		}
		source, err := upstream.Open(ctx, repo, r)
		if err != nil {
			return nil, err
		}
		bases[r.Name] = source
	}
	return bases, nil
}
