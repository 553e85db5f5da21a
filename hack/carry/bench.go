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
	"strings"
	"time"

	"kubernetes-dra/hack/pkg/bench"
	"kubernetes-dra/hack/pkg/git"
	"kubernetes-dra/hack/pkg/sys"
	"kubernetes-dra/hack/pkg/tools"
)

func init() {
	register(command{
		name:  "bench",
		args:  "[--release 1.36] [--quick] [--only text] [--against checkout] [--save]",
		short: "measure pods that share a claim, patched beside unpatched or another checkout",
		run:   runBench,
	})
}

func runBench(ctx context.Context, args []string) error {
	flags := newFlags("bench")
	release := flags.String("release", "", "release to measure (default: that of the ledger)")
	quick := flags.Bool("quick", false, "only what fits into five minutes")
	only := flags.String("only", "", "run only workloads whose name has this text")
	against := flags.String("against", "", "git checkout of the same minor release of Kubernetes, whose last commit is measured in place of the unpatched release")
	save := flags.Bool("save", false, "write "+bench.RecordFile+", for the documents; \"make update\" does the rest. With --only, the other figures in it stay")
	dir := flags.String("tree", "", "Kubernetes tree to measure as it is, with its base tagged \"base\" (default: the one that gets built for the release)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *save && (*quick || *against != "" || *dir != "") {
		return errors.New("--save is for what the documents show: leave out --quick, --against and --tree")
	}
	t, err := openTree(*release)
	if err != nil {
		return err
	}
	tree, base := *dir, "base"
	if tree == "" {
		state, err := t.Build(ctx)
		if err != nil {
			return err
		}
		tree, base = t.Dir(), state.Base
	}
	if tree, err = filepath.Abs(tree); err != nil {
		return err
	}
	if err := tools.Build(ctx, t.Repo, []string{"etcd"}, t.Log); err != nil {
		return err
	}

	output := filepath.Join(t.Output, "bench")
	b := &bench.Bench{
		Patched:   bench.Tree{Dir: tree, Binary: filepath.Join(output, "patched.test")},
		Unpatched: bench.Tree{Dir: filepath.Join(output, "unpatched"), Binary: filepath.Join(output, "unpatched.test")},
		Gate:      "DRAReservedForWorkloads",
		Path:      tools.Dir(t.Repo),
		LogDir:    filepath.Join(t.Output, "logs", "bench"),
		Log:       t.Log,
	}
	if err := os.RemoveAll(b.LogDir); err != nil {
		return err
	}
	beside, source := t.Release.Version, tree
	if *against != "" {
		beside, source, base = *against, *against, "HEAD"
		b.Unpatched = bench.Tree{Dir: filepath.Join(output, "against"), Binary: filepath.Join(output, "against.test")}
	}
	commit, err := baseTree(ctx, source, base, b.Unpatched.Dir)
	if err != nil {
		return err
	}
	t.Log("%s is %s at %s", b.Unpatched.Dir, beside, commit)
	if *against != "" {
		beside += " at " + commit
	}
	if err := b.Unpatched.CopyWorkloads(tree); err != nil {
		return err
	}
	full := bench.FullPlan(b.Patched.HasGroups())
	plan := slices.Clone(full)
	if *quick {
		plan = bench.QuickPlan()
	}
	plan = slices.DeleteFunc(plan, func(r bench.Run) bool { return !strings.Contains(r.String(), *only) })
	if err := b.Patched.Check(plan); err != nil {
		return err
	}
	if len(plan) > 0 {
		for name, tree := range map[string]bench.Tree{"patched": b.Patched, "unpatched": b.Unpatched} {
			t.Log("compile the benchmark, %s", name)
			if err := tree.Compile(ctx, bench.Package); err != nil {
				return err
			}
		}
	}
	results, err := b.Run(ctx, plan)
	record := &bench.Record{
		Version: t.Ledger.Stamp(t.Release), Beside: beside, Machine: bench.Machine(), Date: time.Now().UTC().Format(time.DateOnly), Results: results,
	}
	if err != nil {
		// An hour is too much to lose.
		_, writeErr := writeRecord(record, output)
		return errors.Join(err, writeErr)
	}
	if strings.Contains("AdminAccess claims", *only) {
		if record.Claims, err = benchClaims(ctx, b, output); err != nil {
			return err
		}
	}
	if !*quick && strings.Contains("status writes", *only) {
		if record.StatusWrites, err = benchStatusWrites(ctx, b, output); err != nil {
			return err
		}
	}
	if !*quick && strings.Contains("status sizes", *only) {
		if record.LargestStatus, record.HostileStatus, err = benchStatusSizes(ctx, b, output); err != nil {
			return err
		}
	}
	data, err := writeRecord(record, output)
	if err != nil {
		return err
	}
	failed, ours := 0, 0
	for _, r := range results {
		if r.Error != "" {
			failed++
		}
		if r.Error != "" && r.Patched {
			ours++
		}
	}
	// What upstream cannot do is a result, too. The table has the reason.
	if failed > 0 && (ours > 0 || !*save) {
		return fmt.Errorf("%d of %d workloads failed, see %s", failed, len(results), b.LogDir)
	}
	if !*save {
		return nil
	}
	file := filepath.Join(t.Repo, filepath.FromSlash(bench.RecordFile))
	if *only != "" {
		if data, err = updated(file, record, full); err != nil {
			return err
		}
	}
	return sys.WriteFile(file, data, 0o644)
}

// updated is the record in a file, with what was measured again, as JSON.
func updated(file string, again *bench.Record, plan []bench.Run) ([]byte, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	record, err := bench.ParseRecord(data)
	if err != nil {
		return nil, err
	}
	if err := record.Update(again, plan); err != nil {
		return nil, err
	}
	return record.JSON()
}

// writeRecord shows what was measured, and keeps it. It returns the record as JSON.
func writeRecord(record *bench.Record, output string) ([]byte, error) {
	data, err := record.JSON()
	if err != nil {
		return nil, err
	}
	tables := record.Markdown()
	for name, content := range map[string][]byte{"results.json": data, "table.md": []byte(tables), "picture.svg": []byte(record.Results.Picture())} {
		if err := os.WriteFile(filepath.Join(output, name), content, 0o644); err != nil {
			return nil, err
		}
	}
	fmt.Printf("\n%s\nalso in %s\n", tables, filepath.Join(output, "table.md"))
	return data, nil
}

// benchClaims compares how fast claims get created, with admin access and without.
func benchClaims(ctx context.Context, b *bench.Bench, output string) ([]bench.Comparison, error) {
	patched, unpatched, err := claimServers(ctx, b, output)
	if err != nil {
		return nil, err
	}
	b.Log("create claims")
	return b.Claims(ctx, patched, unpatched)
}

// benchStatusSizes compares what the largest status of devices costs.
func benchStatusSizes(ctx context.Context, b *bench.Bench, output string) (largest, hostile []bench.Comparison, err error) {
	patched, unpatched, err := claimServers(ctx, b, output)
	if err != nil {
		return nil, nil, err
	}
	b.Log("write the largest status of devices")
	return b.StatusSizes(ctx, patched, unpatched)
}

// claimServers are API servers for one user.
func claimServers(ctx context.Context, b *bench.Bench, output string) (patched, unpatched bench.Tree, err error) {
	trees := map[string]bench.Tree{
		"patched":   {Dir: b.Patched.Dir, Binary: filepath.Join(output, "patched-claims.test")},
		"unpatched": {Dir: b.Unpatched.Dir, Binary: filepath.Join(output, "unpatched-claims.test")},
	}
	for name, tree := range trees {
		b.Log("compile the API server, %s", name)
		if err := tree.Compile(ctx, bench.ClaimsPackage); err != nil {
			return bench.Tree{}, bench.Tree{}, err
		}
	}
	return trees["patched"], trees["unpatched"], nil
}

// benchStatusWrites compares how fast drivers write the status of their devices, with and without
// the check whether they may.
func benchStatusWrites(ctx context.Context, b *bench.Bench, output string) ([]bench.Comparison, error) {
	tree := bench.Tree{Dir: b.Patched.Dir, Binary: filepath.Join(output, "patched-status.test")}
	b.Log("compile the API server with drivers")
	if err := tree.Compile(ctx, bench.StatusPackage); err != nil {
		return nil, err
	}
	b.Log("write the status of devices")
	result, err := b.StatusWrites(ctx, tree)
	return []bench.Comparison{result}, err
}

// baseTree checks out the base of a tree, and returns its commit.
func baseTree(ctx context.Context, tree, base, dir string) (commit string, err error) {
	commit, err = git.Dir(tree).Run(ctx, "rev-parse", base+"^{commit}")
	if err != nil {
		return "", err
	}
	commit = strings.TrimSpace(commit)
	have, err := git.Dir(dir).Run(ctx, "rev-parse", "HEAD")
	if err != nil || strings.TrimSpace(have) != commit {
		if err := os.RemoveAll(dir); err != nil {
			return "", err
		}
		if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
			return "", err
		}
		if _, err := git.Dir(tree).Run(ctx, "clone", "--quiet", "--shared", "--no-checkout", tree, dir); err != nil {
			return "", err
		}
	}
	if _, err := git.Dir(dir).Run(ctx, "checkout", "--quiet", "--force", "--detach", commit); err != nil {
		return "", err
	}
	// The tree may lack modules which the Go module proxy does not have.
	work, err := os.ReadFile(filepath.Join(tree, "go.work"))
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "go.work"), work, 0o644); err != nil {
		return "", err
	}
	return commit, nil
}
