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

package testrun

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"kubernetes-dra/hack/pkg/sys"
)

// maxReruns is how often a failed test of upstream gets another chance.
const maxReruns = 2

// maxPattern is the length of a pattern that fits into one argument of a command.
const maxPattern = 64 << 10

// maxFirstWords is how many failed tests, and lines of the first one, are shown
// at once when a package fails.
const maxFirstWords = 10

// maxSaid and maxSaidLine are how many lines of a failed test, and bytes of each, are shown
// again at the very end.
const (
	maxSaid     = 3
	maxSaidLine = 300
)

// place is how a line begins that a test itself logs.
var place = regexp.MustCompile(`^\s+\w+\.go:\d+: `)

// heartbeat is how long the screen may remain silent.
const heartbeat = 30 * time.Second

// Package is something to test.
type Package struct {
	// Path is the import path.
	Path string
	// Dir is where its tests run. Only needed together with Binary.
	Dir string
	// Binary is the compiled test ("go test -c"). If empty, "go test" builds and
	// runs the package.
	Binary string
	// Own has the test functions which are ours.
	Own []string
	// Skip has test functions and sub-tests ("TestA/b") which shall not run.
	Skip []string
	// Proof is the name of a test which must be seen to pass, see
	// [Overlay.GateFile]. It is not counted.
	Proof string
}

// Step tests some packages in one way.
type Step struct {
	// Name is what the step is called on the screen.
	Name string
	// Dir is where "go test" runs.
	Dir string
	// Env gets added to the environment.
	Env []string
	// Packages are tested, all of them.
	Packages []Package
	// Flags are for "go test", or for the test binaries without the "test."
	// prefix. Values have to be attached with an equal sign.
	Flags []string
	// Parallel is how many test binaries run at the same time.
	Parallel int
}

// Runner runs steps and remembers what came of them.
type Runner struct {
	// Out is the screen.
	Out io.Writer
	// LogDir gets one directory per step with one file per package.
	LogDir string
	// Prefix stands before the names of steps and packages on the screen. It
	// tells runners apart which work at the same time.
	Prefix string

	steps      []Count
	failures   []failure
	rerun      []string
	ownSkipped []string
	before     []string
	passed     int
	failed     int
	skipped    int
	silent     time.Time
	outMutex   sync.Mutex
}

// Count is how many tests came out how, in a step or in all of them.
type Count struct {
	Name    string `json:"name,omitempty"`
	Passed  int    `json:"passed"`
	Failed  int    `json:"failed"`
	Skipped int    `json:"skipped"`
	elapsed time.Duration
}

type failure struct {
	what string
	log  string
	tail []string
}

// said is what a test itself said last, in short: some screens keep only the end of a run.
func (f failure) said() []string {
	var lines []string
	for _, line := range f.tail {
		if place.MatchString(line) {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		lines = f.tail
	}
	lines = slices.Clone(lines[max(0, len(lines)-maxSaid):])
	for i, line := range lines {
		if len(line) > maxSaidLine {
			lines[i] = strings.ToValidUTF8(line[:maxSaidLine], "") + "…"
		}
	}
	return lines
}

func (r *Runner) printf(format string, args ...any) {
	r.outMutex.Lock()
	defer r.outMutex.Unlock()
	r.silent = time.Now()
	_, _ = fmt.Fprintf(r.Out, format, args...)
}

// Fail records something that went wrong outside of a test, for example
// a build. It counts as one failed test.
func (r *Runner) Fail(what string, err error) {
	r.failed++
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	r.failures = append(r.failures, failure{what: r.Prefix + what, tail: lines})
	r.printf("  FAIL  %s%s\n%s", r.Prefix, what, quote(lines))
}

// PassedBefore says that nothing has to run, because all of it passed before on the same files. What
// passed then is not counted.
func (r *Runner) PassedBefore(record string) {
	r.before = append(r.before, r.Prefix+record)
	r.printf("=== %snot run, because the same tree passed before: %s\n", r.Prefix, record)
}

// Do runs a check which is not a Go test. It counts as one test.
func (r *Runner) Do(name string, check func() error) {
	start := time.Now()
	r.printf("=== %s%s\n", r.Prefix, name)
	before := r.failed
	if err := check(); err != nil {
		r.Fail(name, err)
	} else {
		r.passed++
		r.printf("  ok    %s%s  %s\n", r.Prefix, name, round(time.Since(start)))
	}
	r.steps = append(r.steps, Count{Name: r.Prefix + name, Passed: 1 - (r.failed - before), Failed: r.failed - before, elapsed: time.Since(start)})
}

// Run runs one step. It only returns an error if the context got canceled:
// everything else is part of the summary.
func (r *Runner) Run(ctx context.Context, step Step) error {
	start := time.Now()
	r.printf("=== %s%s: %d packages\n", r.Prefix, step.Name, len(step.Packages))
	logs := newLogs(filepath.Join(r.LogDir, slug(step.Name)))
	defer logs.close()

	run := &stepRun{Runner: r, Step: step, logs: logs, start: start}
	stop := run.beat()
	res := run.all(ctx, step.Packages)
	for n := range maxReruns {
		if ctx.Err() != nil {
			break
		}
		// The last time with all sub-tests: one may need what another one did before.
		if whole := n == maxReruns-1; !run.again(ctx, res, whole) {
			break
		}
	}
	stop()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	run.summarize(res)
	return nil
}

// Summary prints what was found, also by other runners. The last line is
// "N passed, N failed, N skipped". It returns an error if anything failed or if
// nothing ran.
func (r *Runner) Summary(others ...*Runner) error {
	all := r.with(others)
	r.printf("%s", all.report())
	switch {
	case all.failed > 0:
		return fmt.Errorf("%d tests failed", all.failed)
	case all.passed == 0:
		return errors.New("no tests were run")
	}
	return nil
}

// Counts are the totals of what was found, also by other runners, and those of each step.
func (r *Runner) Counts(others ...*Runner) (total Count, steps []Count) {
	all := r.with(others)
	return Count{Passed: all.passed, Failed: all.failed, Skipped: all.skipped}, all.steps
}

// with returns a runner that has found what all of them found.
func (r *Runner) with(others []*Runner) *Runner {
	var all Runner
	for _, runner := range slices.Concat([]*Runner{r}, others) {
		all.failures = append(all.failures, runner.failures...)
		all.rerun = append(all.rerun, runner.rerun...)
		all.ownSkipped = append(all.ownSkipped, runner.ownSkipped...)
		all.before = append(all.before, runner.before...)
		all.steps = append(all.steps, runner.steps...)
		all.passed += runner.passed
		all.failed += runner.failed
		all.skipped += runner.skipped
	}
	return &all
}

func (r *Runner) report() string {
	var b strings.Builder
	b.WriteString("\n")
	for _, f := range r.failures {
		fmt.Fprintf(&b, "--- FAIL %s\n", f.what)
		if f.log != "" {
			fmt.Fprintf(&b, "    log: %s\n", f.log)
		}
		for _, line := range f.tail {
			fmt.Fprintf(&b, "    | %s\n", line)
		}
	}
	section := func(title string, lines []string) {
		if len(lines) == 0 {
			return
		}
		fmt.Fprintf(&b, "%s (%d):\n", title, len(lines))
		for _, line := range lines {
			fmt.Fprintf(&b, "    %s\n", line)
		}
	}
	section("Upstream's tests that failed and were run again", r.rerun)
	section("Our tests that were skipped", r.ownSkipped)
	section("Not run, because the same tree passed before", r.before)
	if len(r.failures) > 0 {
		fmt.Fprintf(&b, "Failed (%d):\n", len(r.failures))
		for _, f := range r.failures {
			fmt.Fprintf(&b, "    %s\n", f.what)
			for _, line := range f.said() {
				fmt.Fprintf(&b, "        | %s\n", line)
			}
		}
	}
	for _, s := range r.steps {
		fmt.Fprintf(&b, "%-48s %7d passed %5d failed %5d skipped %9s\n", s.Name, s.Passed, s.Failed, s.Skipped, round(s.elapsed))
	}
	fmt.Fprintf(&b, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
	return b.String()
}

// stepRun is a step while it runs.
type stepRun struct {
	*Runner
	Step
	logs  *logs
	start time.Time

	mutex    sync.Mutex
	packages int
	tests    int
	// errors has what commands had to say that ended without a result for
	// each of their packages.
	errors []string
	// reruns counts the attempts of each test that was run again.
	reruns map[string]int
}

// beat prints a line from time to time while nothing else happens.
func (s *stepRun) beat() (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
			}
			s.outMutex.Lock()
			silent := time.Since(s.silent)
			s.outMutex.Unlock()
			if silent < heartbeat {
				continue
			}
			s.mutex.Lock()
			packages, tests := s.packages, s.tests
			s.mutex.Unlock()
			s.printf("  ...   %s%s: %d of %d packages, %d tests, %s\n", s.Prefix, s.Name, packages, len(s.Packages), tests, round(time.Since(s.start)))
		}
	})
	return func() {
		close(done)
		wg.Wait()
	}
}

// all runs all packages. Packages for "go test" which skip the same tests
// share one invocation because loading and building is faster together.
func (s *stepRun) all(ctx context.Context, packages []Package) *results {
	groups := map[string][]Package{}
	var keys []string
	for _, p := range packages {
		key := "binary " + p.Path
		if p.Binary == "" {
			key = "skip " + skipPattern(p.Skip)
		}
		if groups[key] == nil {
			keys = append(keys, key)
		}
		groups[key] = append(groups[key], p)
	}
	// Large groups first, otherwise in the order that was asked for.
	slices.SortStableFunc(keys, func(a, b string) int { return cmp.Compare(len(groups[b]), len(groups[a])) })

	res := newResults()
	var mutex sync.Mutex
	slots := make(chan struct{}, max(1, s.Parallel))
	var wg sync.WaitGroup
	for _, key := range keys {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			one := s.command(ctx, groups[key], groups[key][0].Skip)
			mutex.Lock()
			defer mutex.Unlock()
			for _, path := range one.order {
				res.order = append(res.order, path)
				res.packages[path] = one.packages[path]
			}
			for path, out := range one.builds {
				res.builds[path] = out
			}
		})
	}
	wg.Wait()
	return res
}

// command runs one test binary or one "go test".
func (s *stepRun) command(ctx context.Context, packages []Package, skip []string, extra ...string) *results {
	var cmd *exec.Cmd
	env := append(os.Environ(), s.Env...)
	if p := packages[0]; p.Binary != "" {
		args := []string{"tool", "test2json", "-t", "-p", p.Path, p.Binary, "-test.v=test2json"}
		for _, flag := range slices.Concat(s.Flags, extra) {
			args = append(args, "-test."+strings.TrimLeft(flag, "-"))
		}
		if len(skip) > 0 {
			args = append(args, "-test.skip="+skipPattern(skip))
		}
		cmd = sys.Command(ctx, p.Dir, env, "go", args...)
	} else {
		args := slices.Concat([]string{"test", "-json"}, s.Flags, extra)
		if len(skip) > 0 {
			args = append(args, "-skip="+skipPattern(skip))
		}
		for _, p := range packages {
			args = append(args, p.Path)
		}
		cmd = sys.Command(ctx, s.Dir, env, "go", args...)
	}
	// When the run gets interrupted, everybody may clean up first.
	cmd.Cancel = func() error { return sys.Signal(cmd, syscall.SIGINT) }
	cmd.WaitDelay = time.Minute

	res := newResults()
	var other tail
	log := func(pkg, text string) {
		if pkg == "" {
			other.add(text)
		}
		s.logs.write(pkg, text)
	}
	reader, writer := io.Pipe()
	cmd.Stdout = writer
	var stderr tail
	var stderrMutex sync.Mutex
	cmd.Stderr = writerFunc(func(text []byte) (int, error) {
		stderrMutex.Lock()
		defer stderrMutex.Unlock()
		stderr.add(string(text))
		s.logs.write("", string(text))
		return len(text), nil
	})
	var wg sync.WaitGroup
	wg.Go(func() {
		err := res.read(reader, log, func(p *packageResult) { s.done(p, res.builds[p.failedBuild]) })
		_ = reader.CloseWithError(err)
	})
	err := cmd.Run()
	_ = writer.Close()
	wg.Wait()
	// A test that panics or times out leaves its etcd behind.
	_ = sys.Signal(cmd, syscall.SIGKILL)

	// A binary which does not even get as far as the testing package, for
	// example because etcd cannot be started, has no package event.
	if p := packages[0]; p.Binary != "" && err != nil {
		if result := res.pkg(p.Path); result.status != failed {
			result.status = failed
		}
	}
	if err != nil && !slices.ContainsFunc(res.order, func(path string) bool { return res.packages[path].status == failed }) {
		s.mutex.Lock()
		s.errors = append(s.errors, fmt.Sprintf("%s: %v\n%s", strings.Join(cmd.Args[:min(4, len(cmd.Args))], " "), err, strings.Join(slices.Concat(other.last(20), stderr.last(20)), "\n")))
		s.mutex.Unlock()
	}
	for _, p := range packages {
		if result := res.packages[p.Path]; result != nil && result.status == failed && len(result.output) == 0 {
			result.output = append(result.output, slices.Concat(other.last(40), stderr.last(20))...)
		}
	}
	return res
}

// done prints one line for a package, and what the compiler said if it did not build.
func (s *stepRun) done(p *packageResult, build *tail) {
	s.mutex.Lock()
	s.packages++
	s.tests += len(p.tests)
	s.mutex.Unlock()
	how := "ok  "
	switch {
	case p.failedBuild != "":
		how = "BUILD"
	case p.status == failed:
		how = "FAIL"
	case p.status == skipped:
		how = "none"
	}
	elapsed := round(p.elapsed)
	if p.cached {
		elapsed = "(cached)"
	}
	s.printf("  %-5s %s%s  %d tests  %s\n%s", how, s.Prefix, p.path, len(p.tests), elapsed, p.firstWords(build))
}

// firstWords names the tests that failed, with the end of what the first of them
// printed, or of what the compiler or the package printed. The summary says more, but
// whoever only has the beginning of the output, or of a run that was cut off, shall know
// as well.
func (p *packageResult) firstWords(build *tail) string {
	if build != nil {
		return quote(*build)
	}
	var b strings.Builder
	failures := p.failures()
	for i, t := range failures {
		if i == maxFirstWords {
			b.WriteString("        and more\n")
			break
		}
		fmt.Fprintf(&b, "        %s\n", t.name)
		if i == 0 {
			b.WriteString(quote(t.output))
		}
	}
	if p.status == failed && len(failures) == 0 {
		b.WriteString(quote(p.output))
	}
	return b.String()
}

// quote returns the last lines of some output for the screen.
func quote(out tail) string {
	var b strings.Builder
	for _, line := range out.last(maxFirstWords) {
		fmt.Fprintf(&b, "        | %s\n", line)
	}
	return b.String()
}

// again gives failed tests of upstream another chance. Sub-tests that passed run again
// only if whole is true. It returns false if there was nothing to do.
func (s *stepRun) again(ctx context.Context, res *results, whole bool) bool {
	any := false
	for _, p := range s.Packages {
		have := res.packages[p.Path]
		if have == nil || have.status != failed || have.failedBuild != "" {
			continue
		}
		// The proof counts as ours: once it failed, passing alone means nothing.
		own := func(test string) bool {
			return slices.Contains(p.Own, topLevel(test)) || p.Proof != "" && test == p.Proof
		}
		failures := have.failures()
		retry := slices.DeleteFunc(slices.Clone(failures), func(t *testResult) bool { return own(t.name) })
		if len(failures) > 0 && len(retry) == 0 {
			// Only ours.
			continue
		}
		if len(failures) == 0 && onlyOwn(have, own) {
			continue
		}

		// What passed does not run again, except when no test in particular
		// failed (a leaked goroutine, for example): then all of them do. What is
		// ours never does.
		skip := slices.Clone(p.Skip)
		for _, name := range have.order {
			if name != topLevel(name) {
				continue
			}
			status := have.tests[name].status
			if own(name) || len(failures) > 0 && (status == passed || status == skipped) {
				skip = append(skip, name)
			}
		}
		var leftOut []string
		if !whole {
			leftOut = have.passedParts()
		}
		var what []string
		for _, t := range retry {
			if name := topLevel(t.name); !slices.Contains(what, name) {
				what = append(what, name)
			}
		}
		if len(what) == 0 {
			what = []string{"(all tests)"}
		}
		s.printf("  again %s%s  %s\n", s.Prefix, p.Path, strings.Join(what, " "))
		if s.reruns == nil {
			s.reruns = map[string]int{}
		}
		for _, name := range what {
			s.reruns[p.Path+" "+name]++
		}
		any = true
		var extra []string
		if p.Binary == "" {
			extra = []string{"-count=1"}
		}
		// The result of the package as a whole is the one of the last attempt,
		// unless some test of ours failed.
		more := s.command(ctx, []Package{p}, slices.Concat(skip, leftOut), extra...)
		if next := more.packages[p.Path]; next != nil {
			have.merge(next, leftOut)
			if slices.ContainsFunc(have.failures(), func(t *testResult) bool { return own(t.name) }) {
				have.status = failed
			}
		}
	}
	return any
}

// onlyOwn returns true if all tests that ran in a package are ours.
func onlyOwn(p *packageResult, own func(string) bool) bool {
	return len(p.order) > 0 && !slices.ContainsFunc(p.order, func(name string) bool { return !own(name) })
}

// parent is the test that a sub-test belongs to, or empty. A name of one may have slashes.
func (p *packageResult) parent(test string) string {
	for {
		slash := strings.LastIndex(test, "/")
		if slash < 0 {
			return ""
		}
		test = test[:slash]
		if p.tests[test] != nil {
			return test
		}
	}
}

// passedParts are the sub-tests of failed tests that passed or were skipped, without
// their own sub-tests. There are none if a command line could not name them all.
func (p *packageResult) passedParts() []string {
	done := func(test string) bool {
		status := p.tests[test].status
		return status == passed || status == skipped
	}
	var parts []string
	length := 0
	for _, name := range p.order {
		parent := p.parent(name)
		if parent != "" && !done(parent) && done(name) {
			parts = append(parts, name)
			length += len(skipPattern([]string{name})) + 1
		}
	}
	if length > maxPattern {
		return nil
	}
	return parts
}

// merge replaces the results of test functions by those of a later attempt. Sub-tests
// that were left out of it keep theirs.
func (p *packageResult) merge(later *packageResult, leftOut []string) {
	replaced := map[string]bool{}
	for _, name := range later.order {
		replaced[topLevel(name)] = true
	}
	p.order = slices.DeleteFunc(p.order, func(name string) bool {
		keep := !replaced[topLevel(name)] || slices.ContainsFunc(leftOut, func(part string) bool {
			return name == part || strings.HasPrefix(name, part+"/")
		})
		if !keep {
			delete(p.tests, name)
		}
		return !keep
	})
	for _, name := range later.order {
		p.order = append(p.order, name)
		p.tests[name] = later.tests[name]
	}
	p.status = later.status
	p.output = append(p.output, later.output...)
	p.elapsed += later.elapsed
}

// summarize adds the results of the step to those of the run.
func (s *stepRun) summarize(res *results) {
	sum := Count{Name: s.Prefix + s.Name}
	fail := func(path, test, why string, out []string) {
		sum.Failed++
		what := path
		if test != "" {
			what += " " + test
		}
		what += " (" + s.Prefix + s.Name + ")"
		if why != "" {
			what += ": " + why
		}
		s.failures = append(s.failures, failure{what: what, log: s.logs.path(path), tail: out})
	}
	for _, text := range s.errors {
		fail("go", "", "command failed", strings.Split(text, "\n"))
	}
	for _, p := range s.Packages {
		have := res.packages[p.Path]
		switch {
		case have == nil:
			fail(p.Path, "", "no result", nil)
			continue
		case have.failedBuild != "":
			var out []string
			if b := res.builds[have.failedBuild]; b != nil {
				out = b.last(40)
			}
			fail(p.Path, "", "does not build", out)
			continue
		}
		ran := 0
		for _, name := range have.order {
			if p.Proof != "" && name == p.Proof {
				continue
			}
			t := have.tests[name]
			switch t.status {
			case passed:
				ran++
				sum.Passed++
			case skipped:
				ran++
				sum.Skipped++
				if slices.Contains(p.Own, topLevel(name)) {
					s.ownSkipped = append(s.ownSkipped, fmt.Sprintf("%s %s (%s): %s", p.Path, name, s.Prefix+s.Name, skipReason(t.output)))
				}
			}
		}
		failures := have.failures()
		for _, t := range failures {
			why := ""
			if t.status == unfinished {
				why = "did not finish"
			}
			out := t.output.last(tailLines)
			if len(out) <= 2 || why != "" {
				out = slices.Concat(out, have.output.last(20))
			}
			fail(p.Path, t.name, why, out)
		}
		if have.status == failed && len(failures) == 0 {
			fail(p.Path, "", "no test in particular", have.output.last(tailLines))
		}
		if have.status == passed && ran == 0 && p.Proof == "" {
			fail(p.Path, "", "ran no test at all", have.output.last(5))
		}
		if proof := have.tests[p.Proof]; p.Proof != "" && have.status == passed && (proof == nil || proof.status != passed) {
			fail(p.Path, p.Proof, "not seen to pass", nil)
		}
		for _, what := range sortedKeys(s.reruns) {
			path, name, _ := strings.Cut(what, " ")
			if path != p.Path {
				continue
			}
			outcome := "passed then"
			if t := have.tests[name]; t != nil && t.status != passed && t.status != skipped || t == nil && have.status == failed {
				outcome = "failed again"
			}
			s.rerun = append(s.rerun, fmt.Sprintf("%s (%s): run again %d times, %s", what, s.Prefix+s.Name, s.reruns[what], outcome))
		}
	}
	sum.elapsed = time.Since(s.start)
	s.steps = append(s.steps, sum)
	s.passed += sum.Passed
	s.failed += sum.Failed
	s.skipped += sum.Skipped
	s.printf("  %s%d passed, %d failed, %d skipped in %s\n", s.Prefix, sum.Passed, sum.Failed, sum.Skipped, round(sum.elapsed))
}

func sortedKeys(m map[string]int) []string {
	var keys []string
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

var skipLine = regexp.MustCompile(`^\s+\S+\.go:\d+: (.*)`)

// skipReason finds the message of t.Skip in the output of a test.
func skipReason(out tail) string {
	for _, line := range slices.Backward(out) {
		if m := skipLine.FindStringSubmatch(line); m != nil {
			return m[1]
		}
	}
	return "no reason given"
}

// skipPattern matches exactly the given test functions and sub-tests. The go command splits
// a pattern at each bar and slash outside of brackets.
func skipPattern(names []string) string {
	names = slices.Clone(names)
	slices.Sort(names)
	var functions, patterns []string
	for _, name := range slices.Compact(names) {
		parts := strings.Split(name, "/")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		if len(parts) == 1 {
			functions = append(functions, parts[0])
		} else {
			patterns = append(patterns, "^"+strings.Join(parts, "$/^")+"$")
		}
	}
	if len(functions) > 0 {
		patterns = append(patterns, "^("+strings.Join(functions, "|")+")$")
	}
	return strings.Join(patterns, "|")
}

func round(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

var notSlug = regexp.MustCompile(`[^a-z0-9.]+`)

func slug(name string) string {
	return strings.Trim(notSlug.ReplaceAllString(strings.ToLower(name), "-"), "-")
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// logs writes one file per package.
type logs struct {
	dir   string
	mutex sync.Mutex
	files map[string]*os.File
}

func newLogs(dir string) *logs {
	// What an earlier run left would only be misleading.
	_ = os.RemoveAll(dir)
	return &logs{dir: dir, files: map[string]*os.File{}}
}

func (l *logs) path(pkg string) string {
	if pkg == "" || pkg == "go" {
		return filepath.Join(l.dir, "go.log")
	}
	return filepath.Join(l.dir, slug(strings.TrimPrefix(strings.TrimPrefix(pkg, "k8s.io/kubernetes/"), "k8s.io/"))+".log")
}

// write appends to the file of a package. Not being able to write a log is no
// reason to stop testing.
func (l *logs) write(pkg, text string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	path := l.path(pkg)
	file, ok := l.files[path]
	if !ok {
		if os.MkdirAll(l.dir, 0o755) == nil {
			file, _ = os.Create(path)
		}
		l.files[path] = file
	}
	if file != nil {
		_, _ = io.WriteString(file, text)
	}
}

func (l *logs) close() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for _, file := range l.files {
		if file != nil {
			_ = file.Close()
		}
	}
}
