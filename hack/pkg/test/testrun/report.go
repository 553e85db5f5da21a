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
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// maxFirstWords is how many lines of a failure are shown at once.
const maxFirstWords = 10

// maxSaid and maxSaidLine are how many lines of a failed test, and bytes of each, are shown
// again at the very end.
const (
	maxSaid     = 3
	maxSaidLine = 300
)

// slowestShown is how many jobs the summary names that took longest.
const slowestShown = 5

// place is how a line begins that a test itself logs.
var place = regexp.MustCompile(`^\s+\w+\.go:\d+: `)

// firstWords shows failures at once, in short. The summary says more, but whoever only has
// the beginning of the output, or of a run that was cut off, shall know as well.
func firstWords(failures []failure) string {
	var b strings.Builder
	for i, f := range failures {
		if i == maxFirstWords {
			b.WriteString("        and more\n")
			break
		}
		fmt.Fprintf(&b, "        %s\n", f.what)
		for _, line := range f.said() {
			fmt.Fprintf(&b, "        | %s\n", line)
		}
		if f.repeat != "" {
			fmt.Fprintf(&b, "        again: %s\n", f.repeat)
		}
	}
	return b.String()
}

// said is what a test itself said last, in short: some screens keep only the end of a run.
func (f failure) said() []string {
	var lines []string
	for _, line := range f.tail {
		if line = strings.TrimRight(line, "\n"); place.MatchString(line) {
			lines = append(lines, line)
		}
	}
	most := maxSaid
	if len(lines) == 0 {
		lines, most = f.tail, maxFirstWords
	}
	lines = slices.Clone(lines[max(0, len(lines)-most):])
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, "\n")
		if len(line) > maxSaidLine {
			lines[i] = strings.ToValidUTF8(line[:maxSaidLine], "") + "…"
		}
	}
	return lines
}

// Total is what came of all jobs.
func (r *Runner) Total() Outcome { return r.total }

// Done is how many jobs ran.
func (r *Runner) Done() int { return r.done }

// Summary prints what was found. It returns an error if anything failed or if nothing ran.
func (r *Runner) Summary() error {
	var b strings.Builder
	b.WriteString("\n")
	for _, f := range r.failures {
		fmt.Fprintf(&b, "--- FAIL %s\n", f.what)
		if f.log != "" {
			fmt.Fprintf(&b, "    log: %s\n", f.log)
		}
		for _, line := range f.tail {
			fmt.Fprintf(&b, "    | %s\n", strings.TrimRight(line, "\n"))
		}
	}
	section := func(title string, lines []string) {
		if len(lines) == 0 {
			return
		}
		fmt.Fprintf(&b, "%s (%d):\n", title, len(lines))
		for _, line := range slices.Sorted(slices.Values(lines)) {
			fmt.Fprintf(&b, "    %s\n", line)
		}
	}
	section("Upstream's tests that failed and were run again", r.rerun)
	section("Our tests that were skipped", r.ownSkipped)
	slices.SortFunc(r.slowest, func(a, b timed) int { return cmp.Compare(b.elapsed, a.elapsed) })
	for _, t := range r.slowest[:min(slowestShown, len(r.slowest))] {
		fmt.Fprintf(&b, "%9s  %s\n", t.elapsed.Round(time.Second), t.name)
	}
	if len(r.failures) > 0 {
		fmt.Fprintf(&b, "Failed (%d):\n%s", len(r.failures), firstWords(r.failures))
	}
	_, _ = fmt.Fprint(r.Out, b.String())
	switch {
	case r.total.Failed > 0:
		return fmt.Errorf("%d tests failed", r.total.Failed)
	case r.jobs > 0 && r.total.Passed == 0:
		return errors.New("no tests were run")
	}
	return nil
}
