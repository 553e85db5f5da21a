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
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"

	"kubernetes-dra/hack/pkg/dist/binaries"
	"kubernetes-dra/hack/pkg/test/testrun"
	"kubernetes-dra/hack/pkg/tree"
	"kubernetes-dra/hack/pkg/tree/ledger"
	"kubernetes-dra/test/upstream"
)

func init() {
	register(command{
		name: "e2e", args: "[--release 1.36] [--conformance | --kubelet 1.34] [--variant name] [--only text]",
		short: "run upstream's DRA specs, or those of conformance, on a cluster, patched and unpatched", run: runE2E,
	})
}

// variant is what the suite runs on. The kubelet may be of an older release than the rest.
type variant struct {
	name          string
	rest, kubelet programs
}

func runE2E(ctx context.Context, args []string) error {
	flags := newFlags("e2e")
	release := flags.String("release", "", "release to test (default: that of the ledger)")
	kubelet := flags.String("kubelet", "", "release of the kubelet, up to three minors older (default: the same). Then the control plane is patched, or the kubelet, or none")
	conformance := flags.Bool("conformance", false, "run the specs of conformance: patched with gates off, with gates on, and unpatched")
	one := flags.String("variant", "", "run only this one, patched for example, and compare it with what the others found on the same tree (default: all)")
	only := flags.String("only", "", "run only specs whose name has this text")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *conformance && *kubelet != "" || flags.NArg() > 0 {
		return errors.New("--conformance is for one release: leave out --kubelet, and other arguments")
	}
	t, err := openTree(*release)
	if err != nil {
		return err
	}
	variants, name, err := e2eVariants(t, *conformance, *kubelet)
	if err != nil {
		return err
	}
	if *one != "" && !slices.ContainsFunc(variants, func(v variant) bool { return v.name == *one }) {
		return fmt.Errorf("--variant %s: there is none of that name", *one)
	}
	options, err := buildOptions(ctx, t)
	if err != nil {
		return err
	}
	state, err := t.State()
	if err != nil {
		return err
	}
	content, err := t.Content(ctx, state)
	if err != nil {
		return err
	}
	s := &upstream.Suite{
		Repo: t.Repo, Tree: t.Dir(), Bin: filepath.Join(t.Output, "e2e", "bin"), Cache: t.Cache, Output: t.Output, Logs: filepath.Join(t.Output, "logs", name),
		LDFlags: binaries.LDFlags(options), Conformance: *conformance, Content: content, Only: *only, Log: t.Log, Out: os.Stdout,
	}
	if err := s.Build(ctx); err != nil {
		return err
	}
	var results []*upstream.Result
	for _, v := range variants {
		u, run := upstream.Variant{Name: v.name, Rest: v.rest.upstream(), Kubelet: v.kubelet.upstream()}, s.Found
		if *one == "" || *one == v.name {
			for _, p := range []programs{v.rest, v.kubelet} {
				if err := p.build(ctx); err != nil {
					return err
				}
			}
			run = func(u upstream.Variant) (*upstream.Result, error) { return s.On(ctx, u) }
		}
		if result, err := run(u); err != nil {
			return err
		} else if result != nil {
			results = append(results, result)
		}
	}
	return upstream.Report(s.Logs, results)
}

// e2eVariants are what the suite runs on, the unpatched one last, and the name of all.
func e2eVariants(t *tree.Tree, conformance bool, kubelet string) ([]variant, string, error) {
	with, without := programs{Tree: t, patched: true}, programs{Tree: t}
	off := programs{Tree: t, patched: true, gatesOff: true}
	switch {
	case conformance:
		return []variant{{"patched-gates-off", off, off}, {"patched", with, with}, {upstream.Unpatched, without, without}}, "conformance", nil
	case kubelet == "":
		return []variant{{"patched", with, with}, {upstream.Unpatched, without, without}}, "e2e-upstream", nil
	}
	older, err := openTree(kubelet)
	if err != nil {
		return nil, "", err
	}
	olderWith, olderWithout := programs{Tree: older, patched: true}, programs{Tree: older}
	return []variant{
		{"patched-control-plane", with, olderWithout}, {"patched-kubelet", without, olderWith}, {upstream.Unpatched, without, olderWithout},
	}, "e2e-upstream-kubelet-" + older.Release.Name, nil
}

// bare runs tests of upstream's that start what they need themselves.
func (r *testRun) bare(name string) upstream.Bare {
	return upstream.Bare{Repo: r.Repo, Output: r.Output, Logs: filepath.Join(r.Output, "logs", name), Log: r.Log}
}

// e2eDRAPart runs upstream's test/e2e_dra with patched programs at both ends of the upgrade, at one, and
// at none.
func e2eDRAPart(_ context.Context, r *testRun) ([]testrun.Job, error) {
	return []testrun.Job{{Name: "e2e-dra", Do: func(ctx context.Context) error {
		older, err := openTree(fmt.Sprintf("1.%d", ledger.Minor(r.Release.Name)-1))
		if err != nil {
			return fmt.Errorf("the upgrade begins with the minor release before %s: %w", r.Release.Name, err)
		}
		from, to := programs{Tree: older, patched: true}, programs{Tree: r.Tree, patched: true}
		fromUpstream, toUpstream := programs{Tree: older}, programs{Tree: r.Tree}
		for _, p := range []programs{from, to, fromUpstream, toUpstream} {
			if err := p.build(ctx); err != nil {
				return err
			}
		}
		fromOff, toOff := from, to
		fromOff.gatesOff, toOff.gatesOff = true, true
		both := []string{upstream.UpgradeTest, upstream.GateCycleTest}
		b := r.bare("e2e-dra")
		if err := b.CompileUpgrade(ctx, to.Dir()); err != nil {
			return err
		}
		var results []*upstream.Result
		for _, ends := range []struct {
			name     string
			from, to programs
			tests    []string
		}{
			{"patched", from, to, both},
			{"upgrade-to-patched", fromUpstream, to, both[:1]},
			{"upgrade-from-patched", from, toUpstream, both[:1]},
			{"patched-gates-off", fromOff, toOff, both},
			{upstream.Unpatched, fromUpstream, toUpstream, both},
		} {
			result, err := b.Upgrade(ctx, ends.name, to.Dir(), ends.from.upstream(), ends.to.upstream(), ends.tests...)
			if err != nil {
				return err
			}
			results = append(results, result)
		}
		return upstream.Report(b.Logs, results)
	}}}, nil
}

// e2eNodePart runs upstream's node specs about DRA, patched beside unpatched.
func e2eNodePart(_ context.Context, r *testRun) ([]testrun.Job, error) {
	return []testrun.Job{{Name: "e2e-node", Do: func(ctx context.Context) error {
		b, names := r.bare("e2e-node"), []string{"patched", upstream.Unpatched}
		results := make([]*upstream.Result, len(names))
		var group errgroup.Group
		for i, p := range []programs{{Tree: r.Tree, patched: true}, {Tree: r.Tree}} {
			if err := p.build(ctx); err != nil {
				return errors.Join(err, group.Wait())
			}
			// They mostly wait, one spec after the other, and know nothing of each other.
			group.Go(func() (err error) {
				results[i], err = b.NodeSpecs(ctx, names[i], p.upstream())
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		return upstream.Report(b.Logs, results)
	}}}, nil
}
