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
		args:  "[--release 1.36] [--conformance | --kubelet 1.34] [--variant name] [--only text] [--nodes 2] [--procs 8]",
		short: "run upstream's DRA specs, or those of conformance, on a cluster, patched and unpatched",
		run:   runE2E,
	})
}

// upstreamE2E is one invocation of "carry e2e".
type upstreamE2E struct {
	*tree.Tree
	suite *e2e.Suite
	// name is that of the folder with the results.
	name      string
	podSubnet string
	run       e2e.Run
}

// programs are those of a release, with the patches or without them.
type programs struct {
	*tree.Tree
	patched bool
	// gatesOff is true if patched programs run as they do by default.
	gatesOff bool
}

func (p programs) bin() string {
	if p.patched {
		return filepath.Join(p.Output, "bin")
	}
	return unpatchedBin(p.Tree)
}

func (p programs) build(ctx context.Context) error {
	if p.patched {
		return subcommand(ctx, "build", "--release", p.Release.Name)
	}
	return buildUnpatched(ctx, p.Tree)
}

// gates are all of these that a program knows, and those of the features unless they are to be off.
func (p programs) gates(ctx context.Context, program string, all map[string]bool) (map[string]bool, error) {
	known, err := e2e.KnownGates(ctx, filepath.Join(p.bin(), program))
	if err != nil {
		return nil, err
	}
	gates := maps.Clone(all)
	maps.DeleteFunc(gates, func(gate string, _ bool) bool { return !known[gate] })
	if p.patched && !p.gatesOff {
		for _, gate := range p.Ledger.Gates(p.Release.Name) {
			gates[gate] = true
		}
	}
	return gates, nil
}

// unpatchedVariant is the one that others are compared with.
const unpatchedVariant = "unpatched"

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
	nodes := flags.Int("nodes", 3, "number of nodes with a kubelet. Some specs need three")
	procs := flags.Int("procs", 8, "number of specs that run at the same time")
	podSubnet := flags.String("pod-subnet", "", "first two numbers of the addresses of pods, Services and the node, 10.200 for example (default: any free ones)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *conformance && *kubelet != "" {
		return errors.New("--conformance is for one release: leave out --kubelet")
	}
	t, err := openTree(*release)
	if err != nil {
		return err
	}
	variants, err := e2eVariants(t, *conformance, *kubelet)
	if err != nil {
		return err
	}
	if *one != "" && !slices.ContainsFunc(variants, func(v variant) bool { return v.name == *one }) {
		return fmt.Errorf("--variant %s: it is none of %v", *one, variants)
	}
	options, err := buildOptions(ctx, t)
	if err != nil {
		return err
	}
	u := &upstreamE2E{Tree: t, name: "e2e-upstream", podSubnet: *podSubnet}
	switch {
	case *conformance:
		u.name = "conformance"
	case *kubelet != "":
		u.name += "-kubelet-" + *kubelet
	}
	u.suite = &e2e.Suite{
		Repo: t.Repo, Tree: t.Dir(), Bin: filepath.Join(t.Output, "e2e", "bin"), Cache: t.Cache,
		LDFlags: binaries.LDFlags(options), Conformance: *conformance, Log: t.Log,
	}
	if err := u.suite.Build(ctx); err != nil {
		return err
	}
	specs, err := u.suite.Specs(ctx)
	if err != nil {
		return err
	}
	u.run = e2e.Run{Suite: u.suite, Specs: specs, Only: *only, Procs: *procs, Nodes: *nodes}
	t.Log("the suite has %d such specs", len(specs))
	state, err := t.State()
	if err != nil {
		return err
	}
	if u.run.Tree, err = t.Content(ctx, state); err != nil {
		return err
	}
	var results []*e2e.Result
	for _, v := range variants {
		result, err := u.result(ctx, v, *one == "" || *one == v.name)
		if err != nil {
			return err
		}
		if result != nil {
			results = append(results, result)
		}
	}
	return reportE2E(u.logs(), results, nil)
}

// e2eVariants are what the suite runs on, the unpatched one last.
func e2eVariants(t *tree.Tree, conformance bool, kubelet string) ([]variant, error) {
	with, without := programs{Tree: t, patched: true}, programs{Tree: t}
	if kubelet != "" {
		older, err := openTree(kubelet)
		if err != nil {
			return nil, err
		}
		olderWith, olderWithout := programs{Tree: older, patched: true}, programs{Tree: older}
		return []variant{
			{name: "patched-control-plane", rest: with, kubelet: olderWithout},
			{name: "patched-kubelet", rest: without, kubelet: olderWith},
			{name: unpatchedVariant, rest: without, kubelet: olderWithout},
		}, nil
	}
	variants := []variant{{name: "patched", rest: with, kubelet: with}, {name: unpatchedVariant, rest: without, kubelet: without}}
	if conformance {
		off := programs{Tree: t, patched: true, gatesOff: true}
		variants = slices.Insert(variants, 0, variant{name: "patched-gates-off", rest: off, kubelet: off})
	}
	return variants, nil
}

func (v variant) String() string { return v.name }

func (u *upstreamE2E) logs() string { return filepath.Join(u.Output, "logs", u.name) }

// result runs a variant, or reads what it found before. That is nil if there is nothing which
// can be compared. What was found is saved at once: each variant takes long.
func (u *upstreamE2E) result(ctx context.Context, v variant, run bool) (*e2e.Result, error) {
	file := filepath.Join(u.logs(), v.name, "result.json")
	if !run {
		result, err := e2e.Load(file)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
		if result.Tree != u.run.Tree || result.Only != u.run.Only || result.Nodes != u.run.Nodes {
			u.Log("%s: what was found before is left out: the tree, --only or --nodes was another one", v.name)
			return nil, nil
		}
		return result, nil
	}
	result, err := u.on(ctx, v)
	if err != nil {
		return nil, err
	}
	return result, result.Save(file)
}

// reportE2E compares results with the last one, which is that of unpatched programs. If only is not
// nil, it reduces that one to what the other has. Without results of unpatched programs, each spec
// that failed is an error.
func reportE2E(logs string, results []*e2e.Result, only func(unpatched, patched *e2e.Result) *e2e.Result) error {
	last := len(results) - 1
	summary, worse, unknown, compared := e2e.Summary(results...), 0, 0, results[:last]
	if results[last].Name != unpatchedVariant {
		for _, patched := range results {
			unknown += patched.Count(e2e.Failed)
		}
		compared = nil
		summary += "\nthere is nothing to compare with: " + unpatchedVariant + " was not run\n"
	}
	for _, patched := range compared {
		unpatched := results[last]
		if only != nil {
			unpatched = only(unpatched, patched)
		}
		difference := e2e.Compare(patched, unpatched)
		worse += len(difference.Worse)
		summary += "\n" + patched.Name + " beside " + unpatchedVariant + ":\n" + difference.String()
	}
	if err := os.WriteFile(filepath.Join(logs, "summary.txt"), []byte(summary), 0o644); err != nil {
		return err
	}
	fmt.Printf("\n%s\nalso in %s, with the output of the suite\n", summary, logs)
	switch {
	case worse > 0:
		return fmt.Errorf("%d specs fail with the patches and do not without them", worse)
	case unknown > 0:
		return fmt.Errorf("%d specs failed. Run the variant %q, too: it shows which of them fail without the patches", unknown, unpatchedVariant)
	}
	return nil
}

// on runs the suite on a cluster of its own.
func (u *upstreamE2E) on(ctx context.Context, v variant) (*e2e.Result, error) {
	for _, p := range []programs{v.rest, v.kubelet} {
		if err := p.build(ctx); err != nil {
			return nil, err
		}
	}
	images, err := u.suite.Images(ctx)
	if err != nil {
		return nil, err
	}
	config, err := u.suite.Config(u.run.Specs)
	if err != nil {
		return nil, err
	}
	gates, err := v.rest.gates(ctx, cluster.APIServer, config.Gates)
	if err != nil {
		return nil, err
	}
	u.Log("%s: feature gates that are set: %s", v.name, strings.Join(slices.Sorted(maps.Keys(gates)), ", "))
	run := u.run
	var older *cluster.Programs
	if v.kubelet.Release.Name != v.rest.Release.Name {
		run.Kubelet = v.kubelet.Release.Name
		kubeletGates, err := v.kubelet.gates(ctx, cluster.Kubelet, config.Gates)
		if err != nil {
			return nil, err
		}
		for _, gate := range u.Ledger.Gates(u.Release.Name) {
			if !kubeletGates[gate] {
				run.KubeletLacks = append(run.KubeletLacks, gate)
			}
		}
		older = &cluster.Programs{Bin: v.kubelet.bin(), Gates: kubeletGates}
	}
	options := cluster.Options{
		Repo:          u.Repo,
		Release:       u.Release.Name,
		Bin:           v.rest.bin(),
		Kubelet:       older,
		Dir:           filepath.Join(u.Output, "cluster-"+u.name+"-"+v.name),
		RealNodes:     u.run.Nodes,
		Gates:         gates,
		LogLevel:      4,
		RuntimeConfig: config.RuntimeConfig,
		PodSubnet:     u.podSubnet,
		Services:      u.suite.Conformance,
		Images:        images,
		// Where upstream's sample device plugin makes its devices.
		Private: []string{"/tmp"},
	}
	run.Name, run.LogDir = v.name, filepath.Join(u.logs(), v.name)
	return onCluster(ctx, options, u.Log, func(c *cluster.Cluster) (*e2e.Result, error) {
		if real, reason := c.HasRealNode(); !real {
			return nil, fmt.Errorf("the specs need a node with a kubelet: %s", reason)
		}
		return run.On(ctx, c)
	})
}

// onCluster runs upstream's tests on a cluster of their own.
func onCluster(ctx context.Context, options cluster.Options, log func(string, ...any), run func(c *cluster.Cluster) (*e2e.Result, error)) (result *e2e.Result, err error) {
	// What an interrupted run left has its own options.
	left, err := cluster.New(options, log)
	if err != nil {
		return nil, err
	}
	if err := left.Down(ctx); err != nil {
		return nil, err
	}
	c, err := cluster.New(options, log)
	if err != nil {
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
	start := time.Now()
	if result, err = run(c); err != nil {
		return nil, err
	}
	log("%s: %d passed, %d failed, %d skipped after %s", result.Name,
		result.Count(e2e.Passed), result.Count(e2e.Failed), result.Count(e2e.Skipped), time.Since(start).Round(time.Second))
	return result, nil
}

// unpatchedBin is the folder with the programs of the base of a tree.
func unpatchedBin(t *tree.Tree) string { return filepath.Join(t.Output, "unpatched", "bin") }

// unpatchedTree is the base of a tree, as buildUnpatched checks it out.
func unpatchedTree(t *tree.Tree) string { return filepath.Join(t.Output, "unpatched", "kubernetes") }

// buildUnpatched builds the programs of a cluster from the base of a tree, which it checks out.
func buildUnpatched(ctx context.Context, t *tree.Tree) error {
	state, err := t.Build(ctx)
	if err != nil {
		return err
	}
	t.Log("unpatched tree")
	dir, bin := unpatchedTree(t), unpatchedBin(t)
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
		Names:   []string{cluster.APIServer, cluster.ControllerManager, cluster.Scheduler, cluster.Kubelet, cluster.Proxy, "kubectl"},
		Version: t.Release.Version,
		Commit:  commit,
		Date:    t.Release.Date(),
		Log:     t.Log,
	})
}
