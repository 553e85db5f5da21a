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

	"kubernetes-dra/hack/pkg/test/results"
	"kubernetes-dra/hack/pkg/test/testplan"
	"kubernetes-dra/hack/pkg/test/testrun"
)

func init() {
	register(command{
		name:  "test",
		args:  "[--release 1.36] [--only ./pkg/x] [--mode unit,race] [--run pattern] [--owed | --all] [--budget 55m] [--kubeadm | --kind | --modules | --upgrade [--through releases] | --control-planes | --drivers | --faults | --kubectl-dra | --e2e-dra | --e2e-node]",
		short: "run all tests of ours for the default release, and what is owed of all releases; or a part",
		run:   runTest,
	})
	register(command{
		name:  "record",
		short: "move what passed in this clone into hack/releases/<release>/" + results.Name + ", and drop what no longer holds",
		run:   runRecord,
	})
}

// testOptions are what a user wants tested.
type testOptions struct {
	release, only, run string
	modes              []string
	owed, all          bool
	budget             time.Duration
}

// part reports whether only some tests were asked for.
func (o testOptions) part() bool { return o.only != "" || o.run != "" || len(o.modes) > 0 }

func runTest(ctx context.Context, args []string) error {
	var o testOptions
	flags := newFlags("test")
	flags.StringVar(&o.release, "release", "", "the only release to test (default: that of the ledger, and what is owed of others)")
	flags.StringVar(&o.only, "only", "", "test only packages whose path has this text, in all modes, whatever is recorded")
	flags.StringVar(&o.run, "run", "", "of these, only tests that match this pattern; nothing is recorded then")
	flags.BoolVar(&o.owed, "owed", false, "only what is owed")
	flags.BoolVar(&o.all, "all", false, "run everything, whatever is recorded")
	flags.DurationVar(&o.budget, "budget", 0, "start nothing that is owed after this time; it remains owed (default: no limit)")
	flags.Func("mode", "only these modes: "+strings.Join(testplan.Modes, ","), func(value string) error {
		o.modes = strings.Split(value, ",")
		for _, mode := range o.modes {
			if !slices.Contains(testplan.Modes, mode) {
				return fmt.Errorf("no mode %q", mode)
			}
		}
		return nil
	})
	through := flags.String("through", "", "releases that the upgrade goes through: \"1.36 upstream-1.37\", or \"off-1.37 1.37\" for no gates at first (default: patched, unpatched and patched again)")
	var special []func(context.Context, *testRun) ([]testrun.Job, error)
	for _, part := range specialParts(through) {
		flags.BoolFunc(part.name, part.help, func(string) error {
			special = append(special, part.jobs)
			return nil
		})
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	o.only = strings.TrimPrefix(strings.TrimSuffix(strings.TrimSuffix(o.only, "..."), "/"), "./")
	if o.all && o.owed {
		return errors.New("--all runs what is recorded, too, and --owed does not: give one of them")
	}
	if path := strings.Fields(*through); len(path) == 1 {
		return fmt.Errorf("--through %s: an upgrade needs two releases", path[0])
	} else if len(path) > 0 {
		// The cluster starts with it.
		o.release = strings.TrimPrefix(strings.TrimPrefix(path[0], upstreamPrefix), offPrefix)
	}
	if len(special) > 0 {
		return runSpecial(ctx, o.release, special)
	}
	s, err := newTestSession(ctx, o)
	if err != nil {
		return err
	}
	defer s.close()
	return s.test(ctx)
}

// test plans a run, runs it, and says what remains.
func (s *testSession) test(ctx context.Context) error {
	urgent, others := s.jobs(ctx)
	defer func() { _ = os.RemoveAll(s.temp) }()
	runErr := s.runner.Run(ctx, urgent, others)
	// What passed counts, also if the run was interrupted.
	if err := s.recorder.Flush(context.WithoutCancel(ctx)); err != nil {
		return errors.Join(runErr, fmt.Errorf("writing down what passed: %w", err))
	}
	if runErr != nil {
		return runErr
	}
	failed := s.runner.Summary()
	s.report()
	if failed != nil {
		// It was printed already, and must remain the last line.
		return exitError(1)
	}
	return nil
}

// report ends the output with what ran, what was used again, and what is owed.
func (s *testSession) report() {
	if n := s.recorder.Dropped; n > 0 {
		fmt.Printf("%d results are not written: files changed while their tests ran\n", n)
	}
	if n := len(s.runner.Left); n > 0 {
		fmt.Printf("the time was up: %d jobs did not begin\n", n)
	}
	for _, name := range s.condemned {
		fmt.Printf("recorded as passed, but it does not pass now: %s; \"make record\" removes the line\n", name)
	}
	owed := s.showOwed()
	if written := s.written(); len(written) > 0 {
		fmt.Printf("new results are in %s; \"make record\" moves them to hack/releases\n", strings.Join(written, ", "))
	}
	total := s.runner.Total()
	counts := fmt.Sprintf("%d passed, %d failed, %d skipped", total.Passed, total.Failed, total.Skipped)
	fmt.Printf("%s\nran %d: %s; reused %d recorded results; owed %d\n", counts, s.runner.Done(), counts, s.reused, owed)
}

// showOwed says which tests have no result, and returns their number.
func (s *testSession) showOwed() int {
	owed := 0
	for _, r := range s.releases {
		units, expected := r.owed(nil)
		owed += len(units)
		if len(units) > 0 {
			fmt.Printf("owed %s: %s; \"make test-owed\" runs that, on any machine\n", r.tree.Release.Name, summary(units, expected))
		}
	}
	return owed
}

// summary says how many units there are of each mode.
func summary(units []testplan.Unit, expected time.Duration) string {
	var parts []string
	for _, mode := range testplan.Modes {
		n := 0
		for _, u := range units {
			if u.Mode == mode {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, mode))
		}
	}
	return fmt.Sprintf("%s, about %.0f minutes", strings.Join(parts, ", "), max(1, expected.Minutes()/2))
}

// written are the files of this clone with lines that hack/releases does not have.
func (s *testSession) written() []string {
	var files []string
	for _, r := range s.releases {
		if r.store.New(func(mode string) bool { return slices.Contains(testplan.Modes, mode) }) {
			files = append(files, relativeTo(s.repo, r.localFile()))
		}
	}
	return files
}

func relativeTo(dir, name string) string {
	if rel, err := filepath.Rel(dir, name); err == nil {
		return rel
	}
	return name
}

// runRecord moves the results of this clone into the repository.
func runRecord(ctx context.Context, args []string) error {
	flags := newFlags("record")
	release := flags.String("release", "", "the only release (default: all)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	s, err := newTestSession(ctx, testOptions{release: *release, owed: true})
	if err != nil {
		return err
	}
	defer s.close()
	for _, r := range s.releases {
		lines := r.current()
		if err := results.Write(r.committedFile(), lines); err != nil {
			return err
		}
		fmt.Printf("%s: %d results\n", results.File(r.tree.Release.Name), len(lines))
	}
	s.showOwed()
	fmt.Println("run \"make update\" for the table in the documents, and commit all of it")
	return nil
}

// checkOwed returns an error if a release has tests that are owed.
func checkOwed(ctx context.Context, release string) error {
	s, err := newTestSession(ctx, testOptions{release: release, owed: true})
	if err != nil {
		return err
	}
	defer s.close()
	if units, expected := s.releases[0].owed(nil); len(units) > 0 {
		return fmt.Errorf("release %s: tests are owed: %s; run \"make test-owed RELEASE=%[1]s\" first", s.releases[0].tree.Release.Name, summary(units, expected))
	}
	return nil
}

// isCI says whether this is a run of CI, which repeats some of the recorded results.
func isCI() bool { return os.Getenv("CI") == "true" }
