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
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

func init() {
	register(command{
		name:  "fuzz",
		args:  "[--release 1.36] [--time 2m] [--only text]",
		short: "run each of our fuzz targets for some time",
		run:   runFuzz,
	})
}

// runFuzz runs the fuzz targets one after the other: each uses all CPUs. "go test" writes an
// input that fails into the package of the tree, says how to run it again, and runs
// it with the other tests from then on.
func runFuzz(ctx context.Context, args []string) error {
	flags := newFlags("fuzz")
	release := flags.String("release", "", "release to test (default: that of the ledger)")
	duration := flags.Duration("time", 2*time.Minute, "how long each target runs")
	only := flags.String("only", "", "run only targets whose name, with the import path before it, has this text")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *duration <= 0 {
		return fmt.Errorf("--time is %s, want more than 0", *duration)
	}
	t, err := openTree(*release)
	if err != nil {
		return err
	}
	r := newTestRun(t, "")
	if err := r.prepare(ctx); err != nil {
		return err
	}
	found := false
	for _, target := range r.plan.Unit {
		for _, name := range target.FuzzTests() {
			if !strings.Contains(target.Path+"."+name, *only) {
				continue
			}
			found = true
			r.Do(fmt.Sprintf("fuzz %s %s for %s", target.Path, name, *duration), func() error { return fuzz(ctx, r, target.Path, name, *duration) })
			if err := context.Cause(ctx); err != nil {
				return err
			}
		}
	}
	if !found {
		return fmt.Errorf("release %s has no fuzz target with %q in its name", r.release, *only)
	}
	if r.Summary() != nil {
		// It was printed already, and must remain the last line.
		return exitError(1)
	}
	return nil
}

// fuzz runs one target.
func fuzz(ctx context.Context, r *testRun, path, name string, duration time.Duration) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-run=^$", "-fuzz=^"+name+"$", "-fuzztime="+duration.String(), path)
	cmd.Dir = r.tree
	cmd.Env = slices.Clone(r.plan.Env)
	cmd.Stdout = os.Stdout
	cmd.Stderr = os.Stderr
	// Its workers end by themselves when it does. Without them, it could not write down what failed.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: the input is in testdata/fuzz/%s of the package; make it one of the seeds in the overlay when it is fixed", err, name)
	}
	return nil
}
