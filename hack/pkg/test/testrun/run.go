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
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"gotest.tools/gotestsum/testjson"

	"kubernetes-dra/hack/pkg/sys"
)

// maxReruns is how often a failed test of upstream gets another chance.
const maxReruns = 2

// maxPattern is the length of a pattern that fits into one argument of a command.
const maxPattern = 64 << 10

// tailLines is how much of the output of a failed test the summary shows. The log has
// everything.
const tailLines = 80

// attempt is what one run of a test binary came to.
type attempt struct {
	*testjson.Package
	// died is set if the process never said how the package ended.
	died error
	log  []byte
}

func (a *attempt) passed() bool {
	return a.died == nil && (a.Result() == testjson.ActionPass || a.Result() == testjson.ActionSkip)
}

// said is what the process printed that belongs to no test, for example why it died.
func (a *attempt) said() []string {
	var b strings.Builder
	_ = a.WriteOutputTo(&b, 0)
	return last(slices.Collect(strings.Lines(b.String())))
}

// one runs a job, and again what failed.
func (r *Runner) one(ctx context.Context, j Job, binary string) {
	r.began(j)
	if j.Ready != nil {
		if err := j.Ready(); err != nil {
			r.finish(j, Outcome{Failed: 1}, []failure{{what: j.Name + ": cannot run", tail: strings.Split(err.Error(), "\n"), repeat: j.repeat("")}})
			return
		}
	}
	begin := time.Now()
	logFile, err := os.Create(filepath.Join(r.LogDir, slug(j.Name)+".log"))
	if err != nil {
		r.finish(j, Outcome{Failed: 1}, []failure{{what: j.Name, tail: []string{err.Error()}}})
		return
	}
	defer func() { _ = logFile.Close() }()

	own := func(test string) bool {
		function, _ := testjson.TestName(test).Split()
		return slices.Contains(j.Own, function) || j.Proof != "" && function == j.Proof
	}
	only, reruns := j.Only, 0
	status := map[string]testjson.Action{}
	var a *attempt
	for {
		a = r.attempt(ctx, j, binary, only, logFile)
		if ctx.Err() != nil {
			return
		}
		for _, tc := range a.Passed {
			status[tc.Test.Name()] = testjson.ActionPass
		}
		for _, tc := range a.Skipped {
			status[tc.Test.Name()] = testjson.ActionSkip
		}
		for _, tc := range a.Failed {
			status[tc.Test.Name()] = testjson.ActionFail
		}
		if a.passed() || reruns == maxReruns {
			break
		}
		again := j.unfinished(status)
		if slices.ContainsFunc(a.Failed, func(tc testjson.TestCase) bool { return own(tc.Test.Name()) }) || slices.ContainsFunc(again, own) {
			break
		}
		if len(again) == 0 {
			// No test in particular failed: a leaked goroutine, for example.
			if again = j.wanted(); !slices.ContainsFunc(again, func(test string) bool { return !own(test) }) {
				break
			}
		}
		reruns++
		r.printf("again %s: %s\n", j.Name, strings.Join(again[:min(len(again), 5)], " "))
		r.mutex.Lock()
		r.rerun = append(r.rerun, fmt.Sprintf("%s: %s", j.Name, strings.Join(again, " ")))
		r.mutex.Unlock()
		only = again
	}
	o := Outcome{Elapsed: time.Since(begin), Reruns: reruns, Log: a.log}
	failures := r.judge(j, a, status, &o)
	for i := range failures {
		failures[i].log = logFile.Name()
	}
	r.finish(j, o, failures)
}

// wanted are the test functions that the job runs.
func (j Job) wanted() []string {
	tests := j.Tests
	if len(j.Only) > 0 {
		tests = j.Only
	}
	return slices.DeleteFunc(slices.Clone(tests), func(test string) bool { return slices.Contains(j.Skip, test) })
}

// unfinished are those that neither passed nor were skipped: they failed, or the process
// ended before.
func (j Job) unfinished(status map[string]testjson.Action) []string {
	return slices.DeleteFunc(j.wanted(), func(test string) bool {
		// An example without output is compiled, and not run.
		s := status[test]
		return s == testjson.ActionPass || s == testjson.ActionSkip || s == "" && strings.HasPrefix(test, "Example")
	})
}

// judge counts, and says what failed.
func (r *Runner) judge(j Job, a *attempt, status map[string]testjson.Action, o *Outcome) []failure {
	var failures []failure
	fail := func(test, why string, tail []string) {
		what := j.Name
		if test != "" {
			what += " " + test
		}
		if why != "" {
			what += ": " + why
		}
		failures = append(failures, failure{what: what, tail: last(tail), repeat: j.repeat(pattern(test))})
	}
	for test, s := range status {
		switch {
		case test == j.Proof:
		case s == testjson.ActionPass:
			o.Passed++
		case s == testjson.ActionSkip:
			o.Skipped++
		}
	}
	for _, tc := range a.Skipped {
		if function, _ := tc.Test.Split(); slices.Contains(j.Own, function) {
			r.mutex.Lock()
			r.ownSkipped = append(r.ownSkipped, fmt.Sprintf("%s %s: %s", j.Name, tc.Test, skipReason(a.OutputLines(tc))))
			r.mutex.Unlock()
		}
	}
	if !a.passed() {
		for _, tc := range testjson.FilterFailedUnique(slices.Clone(a.Failed)) {
			why := ""
			tail := slices.Clone(a.OutputLines(tc))
			if tc.Elapsed < 0 || a.TestMainFailed() {
				why = "did not finish"
				tail = slices.Concat(tail, a.said())
			}
			fail(tc.Test.Name(), why, tail)
		}
		if len(failures) == 0 {
			why := "no test in particular"
			if a.died != nil {
				why = a.died.Error()
			}
			fail("", why, a.said())
		}
	} else {
		if o.Passed+o.Skipped == 0 && j.Proof == "" {
			fail("", "ran no test at all", a.said())
		}
		if j.Proof != "" && status[j.Proof] != testjson.ActionPass {
			fail(j.Proof, "not seen to pass", nil)
		}
	}
	o.Failed = len(failures)
	return failures
}

// attempt runs the test binary once.
func (r *Runner) attempt(ctx context.Context, j Job, binary string, only []string, log io.Writer) *attempt {
	a := &attempt{}
	testLog, err := os.CreateTemp("", "carry-testlog-")
	if err != nil {
		return &attempt{Package: &testjson.Package{}, died: err}
	}
	_ = testLog.Close()
	defer func() { _ = os.Remove(testLog.Name()) }()
	args := []string{"tool", "test2json", "-t", "-p", j.Package, binary, "-test.v=test2json", "-test.testlogfile=" + testLog.Name()}
	for _, flag := range j.Flags {
		args = append(args, "-test."+flag)
	}
	if len(only) > 0 {
		args = append(args, "-test.run="+pattern(only...))
	}
	if len(j.Skip) > 0 {
		args = append(args, "-test.skip="+pattern(j.Skip...))
	}
	cmd := sys.Command(ctx, j.Dir, j.Env, "go", args...)
	// When the run gets interrupted, everybody may clean up first.
	cmd.Cancel = func() error { return sys.Signal(cmd, syscall.SIGINT) }
	cmd.WaitDelay = time.Minute
	stdout, stdoutWriter := io.Pipe()
	stderr, stderrWriter := io.Pipe()
	cmd.Stdout, cmd.Stderr = stdoutWriter, stderrWriter

	ended := make(chan error, 1)
	go func() {
		err := cmd.Run()
		_, _ = stdoutWriter.Close(), stderrWriter.Close()
		ended <- err
	}()
	execution, err := testjson.ScanTestOutput(testjson.ScanConfig{
		Stdout: stdout, Stderr: stderr, IgnoreNonJSONOutputLines: true,
		Handler: &handler{log},
		Stop:    func() { _, _ = stdout.Close(), stderr.Close() },
	})
	runErr := <-ended
	// A test that panics or times out leaves its etcd behind.
	_ = sys.Signal(cmd, syscall.SIGKILL)
	if a.Package = execution.Package(j.Package); a.Package == nil {
		a.Package = &testjson.Package{}
	}
	switch {
	case err != nil:
		a.died = fmt.Errorf("reading what the tests say: %w", err)
	case runErr != nil && a.Result() != testjson.ActionFail:
		// It did not even get as far as the testing package, for example because etcd
		// cannot be started.
		a.died = runErr
	case a.Result() == "":
		a.died = fmt.Errorf("it ended without a result")
	}
	a.log, _ = os.ReadFile(testLog.Name())
	return a
}

// handler writes the log of a job.
type handler struct{ log io.Writer }

func (h *handler) Event(e testjson.TestEvent, _ *testjson.Execution) error {
	if e.Action == testjson.ActionOutput {
		_, err := io.WriteString(h.log, e.Output)
		return err
	}
	return nil
}

func (h *handler) Err(text string) error {
	_, err := fmt.Fprintln(h.log, text)
	return err
}

// last keeps the last lines.
func last(lines []string) []string {
	return lines[max(0, len(lines)-tailLines):]
}

// pattern matches test functions and sub-tests by their names. It is empty for all of them:
// also if a command line could not have the names.
func pattern(tests ...string) string {
	var alternatives []string
	for _, test := range tests {
		if test == "" {
			return ""
		}
		var levels []string
		for level := range strings.SplitSeq(test, "/") {
			levels = append(levels, "^"+regexp.QuoteMeta(level)+"$")
		}
		alternatives = append(alternatives, strings.Join(levels, "/"))
	}
	p := strings.Join(alternatives, "|")
	if len(p) > maxPattern {
		return ""
	}
	return p
}

var skipLine = regexp.MustCompile(`^\s+\S+\.go:\d+: (.*)`)

// skipReason is what a test said when it was skipped.
func skipReason(output []string) string {
	for _, line := range slices.Backward(output) {
		if m := skipLine.FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil {
			return m[1]
		}
	}
	return "no reason"
}

var unsafeInFile = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// slug is a name as part of the name of a file.
func slug(name string) string {
	return strings.Trim(unsafeInFile.ReplaceAllString(name, "-"), "-")
}
