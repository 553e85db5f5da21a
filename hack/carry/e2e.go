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
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"kubernetes-dra/hack/pkg/cluster"
	"kubernetes-dra/hack/pkg/dist/binaries"
	"kubernetes-dra/hack/pkg/test/e2e"
	"kubernetes-dra/hack/pkg/tree"
)

func init() {
	register(command{
		name:  "e2e",
		args:  "[--release 1.36] [--only text]",
		short: "run upstream's DRA specs on a cluster, patched and unpatched",
		run:   runE2E,
	})
}

// upstreamE2E is one invocation of "carry e2e".
type upstreamE2E struct {
	*tree.Tree
	suite     *e2e.Suite
	output    string
	podSubnet string
	run       e2e.Run
}

// variant is what the suite runs on.
type variant struct {
	name, bin string
	// gates are those of the features, if it has them.
	gates []string
	build func(ctx context.Context) error
}

func runE2E(ctx context.Context, args []string) error {
	flags := newFlags("e2e")
	release := flags.String("release", "", "release to test (default: that of the ledger)")
	only := flags.String("only", "", "run only specs whose name has this text")
	procs := flags.Int("procs", 8, "number of specs that run at the same time")
	podSubnet := flags.String("pod-subnet", "10.211", "first two numbers of the addresses of pods, Services and the node")
	if err := flags.Parse(args); err != nil {
		return err
	}
	t, err := openTree(*release)
	if err != nil {
		return err
	}
	if _, err := t.Build(ctx); err != nil {
		return err
	}
	u := &upstreamE2E{Tree: t, output: filepath.Join(t.Output, "e2e"), podSubnet: *podSubnet}
	u.suite = &e2e.Suite{Repo: t.Repo, Tree: t.Dir(), Bin: filepath.Join(u.output, "bin"), Log: t.Log}
	if err := u.suite.Build(ctx); err != nil {
		return err
	}
	specs, err := u.suite.Specs(ctx)
	if err != nil {
		return err
	}
	u.run = e2e.Run{Suite: u.suite, Specs: specs, Only: *only, Procs: *procs}
	t.Log("the suite has %d specs about DRA", len(specs))

	patched, err := u.on(ctx, variant{
		name: "patched", bin: filepath.Join(t.Output, "bin"), gates: t.Ledger.Gates(t.Release.Name),
		build: func(ctx context.Context) error { return subcommand(ctx, "build", "--release", t.Release.Name) },
	})
	if err != nil {
		return err
	}
	unpatched, err := u.on(ctx, variant{
		name: "unpatched", bin: unpatchedBin(t),
		build: func(ctx context.Context) error { return buildUnpatched(ctx, t) },
	})
	if err != nil {
		return err
	}

	difference := e2e.Compare(patched, unpatched)
	summary := e2e.Summary(patched, unpatched) + difference.String()
	data, err := json.MarshalIndent([]*e2e.Result{patched, unpatched}, "", "  ")
	if err != nil {
		return err
	}
	logs := filepath.Join(t.Output, "logs", "e2e-upstream")
	for name, content := range map[string]string{"results.json": string(data) + "\n", "summary.txt": summary} {
		if err := os.WriteFile(filepath.Join(logs, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	fmt.Printf("\n%s\nalso in %s, with the output of the suite\n", summary, logs)
	if n := len(difference.Worse); n > 0 {
		return fmt.Errorf("%d specs fail with the patches and do not without them", n)
	}
	return nil
}

// on runs the suite on a cluster of its own.
func (u *upstreamE2E) on(ctx context.Context, v variant) (result *e2e.Result, err error) {
	if err := v.build(ctx); err != nil {
		return nil, err
	}
	images, err := u.suite.Images(ctx)
	if err != nil {
		return nil, err
	}
	config, err := u.suite.Config(u.run.Specs)
	if err != nil {
		return nil, err
	}
	known, err := e2e.KnownGates(ctx, filepath.Join(v.bin, cluster.APIServer))
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(config.Gates, func(gate string, _ bool) bool { return !known[gate] })
	for _, gate := range v.gates {
		config.Gates[gate] = true
	}
	u.Log("%s: feature gates that are set: %s", v.name, strings.Join(slices.Sorted(maps.Keys(config.Gates)), ", "))
	c, err := cluster.New(cluster.Options{
		Repo:          u.Repo,
		Release:       u.Release.Name,
		Bin:           v.bin,
		Dir:           filepath.Join(u.Output, "cluster-e2e-"+v.name),
		Gates:         config.Gates,
		LogLevel:      4,
		RuntimeConfig: config.RuntimeConfig,
		PodSubnet:     u.podSubnet,
		Images:        images,
		// Where upstream's sample device plugin makes its devices.
		Private: []string{"/tmp"},
	}, u.Log)
	if err != nil {
		return nil, err
	}
	// What an interrupted run left.
	if err := c.Down(ctx); err != nil {
		return nil, err
	}
	if _, err := c.Up(ctx); err != nil {
		return nil, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
		defer cancel()
		if downErr := c.Down(ctx); err == nil {
			err = downErr
		}
	}()
	run := u.run
	run.Name, run.LogDir = v.name, filepath.Join(u.Output, "logs", "e2e-upstream", v.name)
	start := time.Now()
	if result, err = run.On(ctx, c); err != nil {
		return nil, err
	}
	u.Log("%s: %d passed, %d failed, %d skipped after %s", v.name,
		result.Count(e2e.Passed), result.Count(e2e.Failed), result.Count(e2e.Skipped), time.Since(start).Round(time.Second))
	return result, nil
}

// unpatchedBin is the folder with the programs of the base of a tree.
func unpatchedBin(t *tree.Tree) string { return filepath.Join(t.Output, "unpatched", "bin") }

// buildUnpatched builds the programs of a cluster from the base of a tree, which it checks out.
func buildUnpatched(ctx context.Context, t *tree.Tree) error {
	state, err := t.Build(ctx)
	if err != nil {
		return err
	}
	t.Log("unpatched tree")
	dir, bin := filepath.Join(t.Output, "unpatched", "kubernetes"), unpatchedBin(t)
	commit, err := baseTree(ctx, t.Dir(), state.Base, dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	return binaries.Build(ctx, binaries.Options{
		Tree:    dir,
		Bin:     bin,
		LogFile: bin + ".log",
		Names:   []string{cluster.APIServer, cluster.ControllerManager, cluster.Scheduler, cluster.Kubelet, "kubectl"},
		Version: t.Release.Version,
		Commit:  commit,
		Date:    t.Release.Date(),
		Log:     t.Log,
	})
}
