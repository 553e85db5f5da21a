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
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"kubernetes-dra/hack/pkg/check/verify"
	"kubernetes-dra/hack/pkg/sys"
	"kubernetes-dra/hack/pkg/tree"
	"kubernetes-dra/hack/pkg/tree/codegen"
	"kubernetes-dra/hack/pkg/tree/upstream"
)

func init() {
	register(command{
		name:  "verify",
		args:  "[--update | --known]",
		short: "check ledger, seams, format, generated API delta, orphan files, for all releases",
		run:   runVerify,
	})
}

func runVerify(ctx context.Context, args []string) error {
	flags := newFlags("verify")
	update := flags.Bool("update", false, "write what is derived (API delta, tables and files in documents, canonical seams, gofmt) instead of complaining")
	known := flags.Bool("known", false, "do not build trees of other releases than the default one that the repository remembers for the same input (tree.sum)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *update && *known {
		return errors.New("--update writes what --known reads: give one of them")
	}
	repo, l, err := openRepository()
	if err != nil {
		return err
	}
	log := progress()
	v := &verify.Verifier{
		Repo:   repo,
		Ledger: l,
		Update: *update,
		Known:  *known,
		Tree: func(release string) (*tree.Tree, error) {
			t, err := openTree(release)
			if err == nil {
				// Trees are built beside each other.
				t.Log = func(format string, args ...any) { log("%s: %s", release, fmt.Sprintf(format, args...)) }
			}
			return t, err
		},
		CheckGenerators: func(ctx context.Context, t *tree.Tree, s *tree.State) error {
			g := generatorCheck{
				file:   filepath.Join(repo, filepath.FromSlash(upstream.PinDir(t.Release.Name)), upstream.GeneratorsFile),
				update: *update,
				run: func() error {
					return codegen.CheckBase(ctx, t.Dir(), s.Base, t.Release.Name, codegenOptions(t))
				},
			}
			return g.check(t, s)
		},
		Log: log,
	}
	return v.Run(ctx)
}

// generatorCheck runs the generators on the untouched base. It takes as long as building
// the tree, so what came out well is remembered until the generators or the base
// change: on this machine, and for others, like CI, in a file that an update writes.
type generatorCheck struct {
	file   string
	update bool
	run    func() error
}

func (g generatorCheck) check(t *tree.Tree, s *tree.State) error {
	key, err := t.GeneratorsKey(s)
	if err != nil {
		return err
	}
	recorded, err := os.ReadFile(g.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	name := path.Join(upstream.PinDir(t.Release.Name), upstream.GeneratorsFile)
	switch {
	case strings.TrimSpace(string(recorded)) == key:
		t.Log("generators change nothing in %s (recorded in %s)", t.Release.Version, name)
		return nil
	case t.Checked(key):
		t.Log("generators change nothing in %s (checked before)", t.Release.Version)
	default:
		t.Log("running the generators on the untouched %s", t.Release.Version)
		if err := g.run(); err != nil {
			return err
		}
		t.Log("generators change nothing in %s", t.Release.Version)
		if err := t.Remember(key); err != nil {
			return err
		}
	}
	if !g.update {
		t.Log("\"make update\" records that in %s", name)
		return nil
	}
	return sys.WriteFile(g.file, []byte(key+"\n"), 0o644)
}
