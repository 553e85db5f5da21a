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

package port

import (
	"fmt"
	"strings"
)

// Count is the number of results with an outcome.
func Count(results []Result, o Outcome) int {
	n := 0
	for _, r := range results {
		if r.Outcome == o {
			n++
		}
	}
	return n
}

// Report says how many files have which outcome, and names those that somebody should
// look at.
func Report(results []Result) string {
	var b strings.Builder
	for _, o := range []Outcome{Clean, Merged, Upstream, Conflict} {
		var seams, files int
		var lines []string
		for _, r := range results {
			if r.Outcome != o {
				continue
			}
			if r.Seam {
				seams++
			} else {
				files++
			}
			if line := r.line(); line != "" {
				lines = append(lines, line)
			}
		}
		fmt.Fprintf(&b, "%s: %d %s, %d %s of our own\n", o, seams, plural(seams, "seam"), files, plural(files, "file"))
		for _, line := range lines {
			b.WriteString("  " + line + "\n")
		}
	}
	return b.String()
}

// line describes what is worth a look, empty if nothing is.
func (r *Result) line() string {
	if r.Outcome == Clean && r.Target == r.Source {
		return ""
	}
	line := r.Source
	if r.Target != "" && r.Target != r.Source {
		line += " -> " + r.Target
	}
	if r.Why != "" {
		line += ": " + r.Why
	}
	return line
}

// NextSteps says what is left to do.
func (p *Port) NextSteps(results []Result) string {
	var b strings.Builder
	step := func(format string, args ...any) { fmt.Fprintf(&b, "- "+format+"\n", args...) }
	b.WriteString("\nWhat is left to do:\n")
	if n := Count(results, Conflict); n > 0 {
		step("resolve the conflicts (\"git -C %s diff\" shows what becomes of the seams), and run carry port again", p.Conflicts)
	}
	step("look at the overlay in %s, commit it, and take the commit over", p.Repo)
	step("in the ledger: %s under the releases of the features, and state: carried; then pin it, build the tree, compile, and test", p.To.Name)
	step("remove the work tree: git worktree remove --force %s", p.Repo)
	return b.String()
}
