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
	only := flags.String("only", "", "run only workloads whose name has this text; throttled is one, too")
	against := flags.String("against", "", "git checkout of the same minor release of Kubernetes, whose last commit is measured in place of the unpatched release")
	save := flags.Bool("save", false, "write "+bench.RecordFile+", for the documents; \"make update\" does the rest")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *save && (*quick || *against != "" || *only != "") {
		return errors.New("--save is for what the documents show: leave out --quick, --only and --against")
	}
	t, err := openTree(*release)
	if err != nil {
		return err
	}
	state, err := t.Build(ctx)
	if err != nil {
		return err
	}
	if err := tools.Build(ctx, t.Repo, []string{"etcd"}, t.Log); err != nil {
		return err
	}
	output := filepath.Join(t.Output, "bench")
	b := &bench.Bench{
		Patched: bench.Tree(t.Dir()), Unpatched: bench.Tree(filepath.Join(output, "unpatched")),
		Path: tools.Dir(t.Repo), Output: output, LogDir: filepath.Join(t.Output, "logs", "bench"), Log: t.Log,
	}
	if err := os.RemoveAll(b.LogDir); err != nil {
		return err
	}
	beside, source, base := t.Release.Version, t.Dir(), state.Base
	if *against != "" {
		beside, source, base = *against, *against, "HEAD"
	}
	commit, err := baseTree(ctx, source, base, string(b.Unpatched))
	if err != nil {
		return err
	}
	if *against != "" {
		beside += " at " + commit
	}
	t.Log("%s is %s", b.Unpatched, beside)
	if err := b.Unpatched.CopyWorkloads(b.Patched); err != nil {
		return err
	}
	record := &bench.Record{Version: t.Ledger.Stamp(t.Release), Beside: beside, Machine: bench.Machine(), Date: time.Now().UTC().Format(time.DateOnly)}
	err = measure(ctx, b, record, *quick, *only)
	// An hour is too much to lose, whatever went wrong.
	data, writeErr := writeRecord(record, output)
	if err := errors.Join(err, writeErr); err != nil {
		return err
	}
	failed := slices.ContainsFunc(record.Results, func(r *bench.Result) bool {
		// What upstream cannot do is a result, too.
		return r.Error != "" && (r.Patched || !*save)
	})
	if failed {
		return fmt.Errorf("workloads failed, see above and %s", b.LogDir)
	}
	if !*save {
		return nil
	}
	return sys.WriteFile(filepath.Join(t.Repo, filepath.FromSlash(bench.RecordFile)), data, 0o644)
}

// measure measures what the user wants to know.
func measure(ctx context.Context, b *bench.Bench, record *bench.Record, quick bool, only string) (err error) {
	plan := bench.FullPlan(b.Patched.HasGroups())
	if quick {
		plan = bench.QuickPlan()
	}
	if only == "throttled" {
		record.Comparisons, err = b.Throttled(ctx)
		return err
	}
	plan = slices.DeleteFunc(plan, func(r bench.Run) bool { return !strings.Contains(r.String(), only) })
	if record.Results, err = b.Run(ctx, plan); err != nil || only != "" {
		return err
	}
	if record.Comparisons, err = b.Claims(ctx); err != nil || quick {
		return err
	}
	status, err := b.StatusWrites(ctx)
	if err != nil {
		return err
	}
	throttled, err := b.Throttled(ctx)
	record.Comparisons = append(append(record.Comparisons, status), throttled...)
	return err
}

// writeRecord shows what was measured, and keeps it. It returns the record as JSON.
func writeRecord(record *bench.Record, output string) ([]byte, error) {
	data, err := record.JSON()
	if err != nil {
		return nil, err
	}
	table := record.Markdown()
	for name, content := range map[string]string{"results.json": string(data), "table.md": table, "picture.svg": record.Results.Picture()} {
		if err := os.WriteFile(filepath.Join(output, name), []byte(content), 0o644); err != nil {
			return nil, err
		}
	}
	fmt.Printf("\n%s\nall figures: %s\n", table, filepath.Join(output, "results.json"))
	return data, nil
}

// baseTree makes a clone of a tree at one of its commits, and returns that.
func baseTree(ctx context.Context, tree, revision, dir string) (commit string, err error) {
	if commit, err = git.Dir(tree).Run(ctx, "rev-parse", revision+"^{commit}"); err != nil {
		return "", err
	}
	commit = strings.TrimSpace(commit)
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(filepath.Dir(dir), 0o755)); err != nil {
		return "", err
	}
	if _, err := git.Dir(tree).Run(ctx, "clone", "--quiet", "--shared", "--no-checkout", ".", dir); err != nil {
		return "", err
	}
	if _, err := git.Dir(dir).Run(ctx, "checkout", "--quiet", "--detach", commit); err != nil {
		return "", err
	}
	// The tree may lack modules which the Go module proxy does not have.
	work, err := os.ReadFile(filepath.Join(tree, "go.work"))
	if err != nil {
		return "", err
	}
	return commit, os.WriteFile(filepath.Join(dir, "go.work"), work, 0o644)
}
