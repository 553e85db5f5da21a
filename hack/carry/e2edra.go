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
	"path/filepath"
	"time"

	"kubernetes-dra/hack/pkg/cluster"
	"kubernetes-dra/hack/pkg/test/e2e"
	"kubernetes-dra/hack/pkg/test/e2edra"
	"kubernetes-dra/hack/pkg/tools"
	"kubernetes-dra/hack/pkg/tree"
	"kubernetes-dra/hack/pkg/tree/ledger"
)

// upstreamUpgrade are upstream's tests of upgrades on one release.
type upstreamUpgrade struct {
	*tree.Tree
	// previous is the release that upgrades begin with.
	previous *tree.Tree
	binary   string
}

// ends are the programs at both ends of an upgrade.
type ends struct {
	name              string
	previous, current programs
	tests             []string
}

// e2eDRAPart runs upstream's test/e2e_dra with patched programs at both ends of the upgrade, at one, and at
// none.
func e2eDRAPart(ctx context.Context, r *testRun) error {
	r.Do("e2e-dra", func() error {
		u, err := newUpstreamUpgrade(ctx, r)
		if err != nil {
			return err
		}
		return u.all(ctx)
	})
	return context.Cause(ctx)
}

func newUpstreamUpgrade(ctx context.Context, r *testRun) (*upstreamUpgrade, error) {
	older := fmt.Sprintf("1.%d", ledger.Minor(r.release)-1)
	previous, err := openTree(older)
	if err != nil {
		return nil, fmt.Errorf("the upgrade begins with the minor release before %s: %w", r.release, err)
	}
	u := &upstreamUpgrade{Tree: r.source, previous: previous, binary: filepath.Join(r.output, "e2e-dra", "e2e_dra.test")}
	for _, t := range []*tree.Tree{u.Tree, previous} {
		for _, patched := range []bool{true, false} {
			if err := (programs{Tree: t, patched: patched}).build(ctx); err != nil {
				return nil, err
			}
		}
	}
	u.Log("compile %s", e2edra.Folder)
	if err := e2edra.Compile(ctx, u.Dir(), u.binary); err != nil {
		return nil, err
	}
	return u, tools.Build(ctx, r.repo, []string{"cfssl", "etcd"}, u.Log)
}

// all compares each run with that of unpatched programs.
func (u *upstreamUpgrade) all(ctx context.Context) error {
	both := []string{e2edra.Upgrade, e2edra.GateCycle}
	from, to := programs{Tree: u.previous, patched: true}, programs{Tree: u.Tree, patched: true}
	fromUpstream, toUpstream := programs{Tree: u.previous}, programs{Tree: u.Tree}
	fromOff, toOff := from, to
	fromOff.gatesOff, toOff.gatesOff = true, true
	unpatched, err := u.on(ctx, ends{unpatchedVariant, fromUpstream, toUpstream, both})
	if err != nil {
		return err
	}
	var results []*e2e.Result
	for _, e := range []ends{
		{"patched", from, to, both},
		{"upgrade-to-patched", fromUpstream, to, []string{e2edra.Upgrade}},
		{"upgrade-from-patched", from, toUpstream, []string{e2edra.Upgrade}},
		{"patched-gates-off", fromOff, toOff, both},
	} {
		result, err := u.on(ctx, e)
		if err != nil {
			return err
		}
		results = append(results, result)
	}
	return reportE2E(u.logs(), append(results, unpatched), e2edra.Only)
}

func (u *upstreamUpgrade) logs() string { return filepath.Join(u.Output, "logs", "e2e-dra") }

// on runs the tests on a node of its own.
func (u *upstreamUpgrade) on(ctx context.Context, e ends) (*e2e.Result, error) {
	run := e2edra.Run{
		Name: e.name, Repo: u.Repo, Tree: u.Dir(), Binary: u.binary, Tests: e.tests, Timeout: 90 * time.Minute, Log: u.Log,
		PreviousRelease: u.previous.Release.Name, PreviousVersion: u.previous.Release.Version,
		Dir: filepath.Join(u.Output, "e2e-dra", e.name), LogDir: filepath.Join(u.logs(), e.name),
	}
	var err error
	if run.Current, err = e.current.forUpgrade(ctx); err != nil {
		return nil, err
	}
	if run.Previous, err = e.previous.forUpgrade(ctx); err != nil {
		return nil, err
	}
	return onBareNode(ctx, u.Tree, "e2e-dra", e.current.bin(), func(c *cluster.Cluster) (*e2e.Result, error) {
		// Upstream's script looks for it, and would download the plugins.
		if _, err := c.RunInNode(ctx, "install", "-D", "-t", "/opt/cni/bin", filepath.Join(tools.Dir(u.Repo), "loopback")); err != nil {
			return nil, err
		}
		u.Log("%s: run %v, see %s", e.name, e.tests, run.LogFile())
		return run.On(ctx, c)
	})
}

// onBareNode runs tests on a node with a container runtime alone, and with the images that upstream's tests
// of DRA want.
func onBareNode(ctx context.Context, t *tree.Tree, name, bin string, run func(c *cluster.Cluster) (*e2e.Result, error)) (*e2e.Result, error) {
	images, err := e2edra.Images(t.Dir())
	if err != nil {
		return nil, err
	}
	options := cluster.Options{
		Repo: t.Repo, Release: t.Release.Name, Bin: bin, Dir: filepath.Join(t.Output, "cluster-"+name),
		Bare: true, Images: images,
		Private: []string{"/tmp", "/run/kubernetes", "/opt/cni"},
	}
	return onCluster(ctx, options, t.Log, run)
}

// forUpgrade are the programs with their gates.
func (p programs) forUpgrade(ctx context.Context) (e2edra.Programs, error) {
	gates, err := p.gates(ctx, cluster.APIServer, map[string]bool{})
	if err != nil {
		return e2edra.Programs{}, err
	}
	return e2edra.Programs{Bin: p.bin(), Gates: gates}, nil
}
