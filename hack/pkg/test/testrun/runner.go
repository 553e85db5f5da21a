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

// Package testrun compiles Go tests, runs them, and reports what came of them. It differs from
// plain "go test" in what it knows about a fork:
//
//   - One binary serves for all ways to run a package, and the next ones are compiled while
//     tests run. Most of upstream's tests wait more than they compute.
//   - A test of upstream that fails gets run again, at most twice, because some of
//     them are flaky also without any change. Each one is named at the end. A test of ours
//     never gets a second chance.
//   - A test of ours that was skipped is named at the end, with the reason.
//   - A feature gate which is off by default can be turned on for tests which do not
//     know about it, without touching them, and it is proved that it was on.
//   - It says what the tests read, so that their result can be used again (package results).
package testrun

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"kubernetes-dra/hack/pkg/sys"
)

// Build says how tests are compiled.
type Build struct {
	// Dir is where the go command runs.
	Dir string
	// Env is the whole environment, and Flags are for "go test -c".
	Env, Flags []string
	// Out is the folder for binaries. It must not be that of another build.
	Out string
}

// Job is one package to test in one way, or something else to do.
type Job struct {
	// Name is for people: what is tested, and how.
	Name string
	// Package is the import path, and Dir where its tests run.
	Package, Dir string
	// Build says how it is compiled. Jobs that share a build and a package share the binary.
	Build *Build
	// Env is the whole environment of the tests.
	Env []string
	// Tests are all test functions, Own those which are ours.
	Tests, Own []string
	// Only are the test functions to run, all if it is empty. Skip has functions and
	// sub-tests ("TestA/b") which shall not run.
	Only, Skip []string
	// Proof is the name of a test which must be seen to pass, see [Overlay.GateFile]. It is
	// not counted.
	Proof string
	// Flags are for the test binary, without the "test." prefix. Values have to be attached
	// with an equal sign.
	Flags []string
	// Ready says why the tests cannot run, if something that they need is missing.
	Ready func() error
	// Lane says beside how many of its kind it runs.
	Lane Lane
	// Expected is how long it takes, as far as that is known.
	Expected time.Duration
	// Repeat is a command that runs it alone. "%s" in it stands for a pattern of tests.
	Repeat string
	// Do is called instead of running tests, at the turn of the job, in the order of jobs:
	// those after it wait until it is done.
	Do func(ctx context.Context) error
	// Passed is called after the job passed, not for two jobs at once.
	Passed func(Outcome)
	// Failed is called after it did not, if it is set.
	Failed func()

	urgent bool
}

// Outcome is what came of a job.
type Outcome struct {
	Passed, Failed, Skipped int
	Elapsed                 time.Duration
	// Reruns is how often failed tests ran again.
	Reruns int
	// Log is what the test binary says that it read (-test.testlogfile), empty if it did
	// not say.
	Log []byte
}

// Lane is a kind of jobs. Those of one do not keep those of another one waiting.
type Lane int

const (
	// Computing jobs are most unit tests.
	Computing Lane = iota
	// Waiting jobs are tests that mostly wait, and measure time: integration tests.
	Waiting
	// Apart jobs are clusters. They need each other's absence, and leave room for one Waiting job
	// only: with three, on two CPUs, requests of both time out.
	Apart
	lanes
)

// slots is how many jobs of each kind run at the same time.
var slots = [lanes]int{Computing: 3, Waiting: min(3, max(2, runtime.NumCPU())), Apart: 1}

// places are the free slots of all lanes.
type places [lanes]chan struct{}

func newPlaces() places {
	var p places
	for lane, n := range slots {
		p[lane] = make(chan struct{}, n)
	}
	return p
}

// take waits for a slot, and returns what gives it back.
func (p places) take(lane Lane) (free func()) {
	wanted := []Lane{lane}
	if lane == Apart {
		for range slots[Waiting] - 1 {
			wanted = append(wanted, Waiting)
		}
	}
	for _, lane := range wanted {
		p[lane] <- struct{}{}
	}
	return func() {
		for _, lane := range wanted {
			<-p[lane]
		}
	}
}

// batch is how many packages are compiled by one go command. A larger one takes less time,
// but longer until the first of them can run.
const batch = 8

// heartbeat is how long the screen may remain silent.
const heartbeat = 30 * time.Second

// Runner runs jobs and remembers what came of them.
type Runner struct {
	// Out is the screen.
	Out io.Writer
	// LogDir gets one file per job.
	LogDir string
	// Deadline, if it is set, is when no further job begins that is not urgent: neither its
	// compiler nor, after it waited for its turn, its tests. Those that did not run are Left.
	Deadline time.Time
	// Left are the jobs that did not start before the deadline.
	Left []Job

	start      time.Time
	mutex      sync.Mutex
	silent     time.Time
	total      Outcome
	jobs, done int
	expected   time.Duration
	running    []string
	failures   []failure
	rerun      []string
	ownSkipped []string
	slowest    []timed
}

type timed struct {
	name    string
	elapsed time.Duration
}

type failure struct {
	what, log, repeat string
	tail              []string
}

func (r *Runner) printf(format string, args ...any) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.silent = time.Now()
	_, _ = fmt.Fprintf(r.Out, "[%s] %s", clock(time.Since(r.start)), fmt.Sprintf(format, args...))
}

// clock is a duration as people read it from a list.
func clock(d time.Duration) string {
	return fmt.Sprintf("%3d:%02d", int(d.Minutes()), int(d.Seconds())%60)
}

// Run runs jobs. Urgent ones, which come first, have no deadline. It only returns an error if
// the context got canceled: everything else is part of the summary.
func (r *Runner) Run(ctx context.Context, urgent, others []Job) error {
	r.start, r.silent = time.Now(), time.Now()
	all := slices.Concat(urgent, others)
	for i := range urgent {
		all[i].urgent = true
	}
	r.jobs = len(all)
	for _, j := range all {
		r.expected += j.Expected
	}
	if err := os.RemoveAll(r.LogDir); err != nil {
		return err
	}
	if err := os.MkdirAll(r.LogDir, 0o755); err != nil {
		return err
	}
	stop := r.beat()
	defer stop()

	places := newPlaces()
	binaries := newBinaries(all)
	defer binaries.close()
	var wg sync.WaitGroup
	start := func(j Job, binary string) {
		wg.Go(func() {
			defer places.take(j.Lane)()
			switch {
			case ctx.Err() != nil:
			case !j.urgent && r.over():
				r.leave(j)
			default:
				r.one(ctx, j, binary)
			}
			binaries.release(j)
		})
	}
	for rest := all; len(rest) > 0 && ctx.Err() == nil; {
		if r.over() {
			late := func(j Job) bool { return !j.urgent }
			r.leave(keep(rest, late)...)
			if rest = slices.DeleteFunc(rest, late); len(rest) == 0 {
				break
			}
		}
		if rest[0].Do != nil {
			r.do(ctx, rest[0])
			rest = rest[1:]
			continue
		}
		var now []Job
		now, rest = nextBatch(rest)
		r.compile(ctx, binaries, now)
		for _, j := range now {
			binary, err := binaries.get(j)
			switch {
			case ctx.Err() != nil:
			case err != nil:
				r.finish(j, Outcome{Failed: 1}, []failure{{what: j.Name + ": does not build", tail: strings.Split(strings.TrimSpace(err.Error()), "\n"), repeat: j.repeat("")}})
			default:
				start(j, binary)
			}
		}
	}
	wg.Wait()
	return context.Cause(ctx)
}

// over says whether only urgent jobs may begin.
func (r *Runner) over() bool { return !r.Deadline.IsZero() && time.Now().After(r.Deadline) }

func (r *Runner) leave(jobs ...Job) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.Left = append(r.Left, jobs...)
	for _, j := range jobs {
		r.expected -= j.Expected
	}
}

func keep(jobs []Job, condition func(Job) bool) []Job {
	return slices.DeleteFunc(slices.Clone(jobs), func(j Job) bool { return !condition(j) })
}

// nextBatch takes the jobs that are compiled together with the first one, and returns the
// rest. Two packages whose paths end alike cannot be among them: their binaries have the same
// name. What something else has to be done for stays behind that.
func nextBatch(jobs []Job) (now, rest []Job) {
	packages := map[string]string{}
	for i, j := range jobs {
		if j.Do != nil || j.Build != jobs[0].Build {
			return now, append(rest, jobs[i:]...)
		}
		same, found := packages[path.Base(j.Package)]
		if found && same != j.Package || !found && len(packages) == batch {
			rest = append(rest, j)
			continue
		}
		packages[path.Base(j.Package)] = j.Package
		now = append(now, j)
	}
	return now, rest
}

// do runs a job that is no test. It counts as one.
func (r *Runner) do(ctx context.Context, j Job) {
	begin := time.Now()
	r.printf("      %s\n", j.Name)
	r.began(j)
	err := j.Do(ctx)
	if ctx.Err() != nil {
		return
	}
	o := Outcome{Passed: 1, Elapsed: time.Since(begin)}
	var failures []failure
	if err != nil {
		o.Passed, o.Failed = 0, 1
		failures = []failure{{what: j.Name, tail: strings.Split(strings.TrimSpace(err.Error()), "\n"), repeat: j.repeat("")}}
	}
	r.finish(j, o, failures)
}

func (r *Runner) began(j Job) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.running = append(r.running, j.Name)
}

// finish adds what came of a job, prints it, and tells who wants to know.
func (r *Runner) finish(j Job, o Outcome, failures []failure) {
	r.mutex.Lock()
	r.done++
	r.expected -= j.Expected
	r.running = slices.DeleteFunc(r.running, func(name string) bool { return name == j.Name })
	r.total.Passed += o.Passed
	r.total.Failed += o.Failed
	r.total.Skipped += o.Skipped
	r.failures = append(r.failures, failures...)
	r.slowest = append(r.slowest, timed{j.Name, o.Elapsed})
	counter := fmt.Sprintf("%d/%d", r.done, r.jobs)
	r.mutex.Unlock()

	how := "ok  "
	if o.Failed > 0 {
		how = "FAIL"
	}
	r.printf("%s  %s  %s  %d tests  %s\n%s", how, counter, j.Name, o.Passed+o.Failed+o.Skipped, o.Elapsed.Round(100*time.Millisecond), firstWords(failures))
	r.mutex.Lock()
	defer r.mutex.Unlock()
	switch {
	case o.Failed == 0 && j.Passed != nil:
		j.Passed(o)
	case o.Failed > 0 && j.Failed != nil:
		j.Failed()
	}
}

// beat prints a line from time to time while nothing else happens.
func (r *Runner) beat() (stop func()) {
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
			r.mutex.Lock()
			silent, line := time.Since(r.silent), r.progress()
			r.mutex.Unlock()
			if silent >= heartbeat {
				r.printf("...   %s\n", line)
			}
		}
	})
	return func() {
		close(done)
		wg.Wait()
	}
}

// progress says what runs, and how long the rest takes.
func (r *Runner) progress() string {
	line := fmt.Sprintf("%d of %d done", r.done, r.jobs)
	if r.expected > 0 {
		line += fmt.Sprintf(", about %.0f minutes more", (r.expected/3).Minutes()+0.5)
	}
	if len(r.running) > 0 {
		line += "; now " + strings.Join(r.running, ", ")
	}
	return line
}

// repeat is the command that runs some tests of the job alone.
func (j Job) repeat(pattern string) string {
	if !strings.Contains(j.Repeat, "%s") {
		return j.Repeat
	}
	if pattern != "" {
		pattern = fmt.Sprintf(" --run '%s'", pattern)
	}
	return fmt.Sprintf(j.Repeat, pattern)
}

// compile builds the binaries of jobs that share a build. Go compiles packages beside each
// other, and links them.
func (r *Runner) compile(ctx context.Context, binaries *binaries, jobs []Job) {
	build := jobs[0].Build
	var packages []string
	for _, j := range jobs {
		if !binaries.known(j) && !slices.Contains(packages, j.Package) {
			packages = append(packages, j.Package)
		}
	}
	if len(packages) == 0 {
		return
	}
	begin := time.Now()
	names := "compiling " + strings.TrimPrefix(packages[0], "k8s.io/")
	if len(packages) > 1 {
		names += fmt.Sprintf(" and %d more", len(packages)-1)
	}
	r.began(Job{Name: names})
	defer func() {
		r.mutex.Lock()
		r.running = slices.DeleteFunc(r.running, func(name string) bool { return name == names })
		r.mutex.Unlock()
		r.printf("      %s: %s\n", names, time.Since(begin).Round(100*time.Millisecond))
	}()
	out := filepath.Join(build.Out, binaries.next())
	err := goTestCompile(ctx, build, out, packages)
	for _, pkg := range packages {
		one := filepath.Join(out, path.Base(pkg)+".test")
		if err != nil {
			// One of them does not compile: which?
			out := filepath.Join(build.Out, binaries.next())
			if err := goTestCompile(ctx, build, out, []string{pkg}); err != nil {
				binaries.put(build, pkg, "", err)
				continue
			}
			one = filepath.Join(out, path.Base(pkg)+".test")
		}
		binaries.put(build, pkg, one, nil)
	}
}

// goTestCompile writes binaries into a folder.
func goTestCompile(ctx context.Context, build *Build, out string, packages []string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	// Tests that run are more urgent than those to come: some of them measure time.
	args := slices.Concat([]string{"-n", "5", "go", "test", "-c", "-vet=off", "-o", out + string(filepath.Separator)}, build.Flags, packages)
	return sys.Run(ctx, sys.Command(ctx, build.Dir, build.Env, "nice", args...))
}

// binaries are compiled tests, each of which is removed after the last job that needs it:
// together they are tens of gigabytes.
type binaries struct {
	mutex sync.Mutex
	count int
	files map[binary]string
	errs  map[binary]error
	users map[binary]int
	outs  map[string]bool
}

type binary struct {
	build *Build
	pkg   string
}

func newBinaries(jobs []Job) *binaries {
	b := &binaries{files: map[binary]string{}, errs: map[binary]error{}, users: map[binary]int{}, outs: map[string]bool{}}
	for _, j := range jobs {
		if j.Do == nil {
			b.users[binary{j.Build, j.Package}]++
			b.outs[j.Build.Out] = true
		}
	}
	b.close() // a run that was killed did not do it
	return b
}

// next is the name of a folder for the binaries of a batch.
func (b *binaries) next() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.count++
	return fmt.Sprint(b.count)
}

func (b *binaries) known(j Job) bool {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	key := binary{j.Build, j.Package}
	return b.files[key] != "" || b.errs[key] != nil
}

func (b *binaries) put(build *Build, pkg, file string, err error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.files[binary{build, pkg}], b.errs[binary{build, pkg}] = file, err
}

func (b *binaries) get(j Job) (string, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	key := binary{j.Build, j.Package}
	return b.files[key], b.errs[key]
}

func (b *binaries) release(j Job) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	key := binary{j.Build, j.Package}
	if b.users[key]--; b.users[key] == 0 {
		_ = os.Remove(b.files[key])
	}
}

func (b *binaries) close() {
	for out := range b.outs {
		_ = os.RemoveAll(out)
	}
}
