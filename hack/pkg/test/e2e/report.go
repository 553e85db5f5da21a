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

package e2e

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2/types"
)

// Outcome is what came of a spec.
type Outcome string

// The outcomes.
const (
	Passed  Outcome = "passed"
	Failed  Outcome = "failed"
	Skipped Outcome = "skipped"
)

// SpecResult is a spec after it ran or was skipped.
type SpecResult struct {
	Spec
	Outcome Outcome `json:"outcome"`
	// Reason says why it failed or was skipped.
	Reason string `json:"reason,omitempty"`
	// Attempts is more than one if it failed at first.
	Attempts int           `json:"attempts,omitempty"`
	RunTime  time.Duration `json:"runTime"`
}

// Result is that of a run.
type Result struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Tree is the git tree object of the tree that the suite is from, with Only and Nodes as in Run.
	Tree  string       `json:"tree"`
	Only  string       `json:"only,omitempty"`
	Nodes int          `json:"nodes"`
	Specs []SpecResult `json:"specs"`
}

// Load reads what Save wrote.
func Load(file string) (*Result, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := &Result{}
	if err := json.Unmarshal(content, r); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}

// Save writes the result to a file.
func (r *Result) Save(file string) error {
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(content, '\n'), 0o644)
}

// Count returns how many specs have an outcome.
func (r *Result) Count(o Outcome) int {
	n := 0
	for _, s := range r.Specs {
		if s.Outcome == o {
			n++
		}
	}
	return n
}

// find returns a spec by its name. Of one that the run did not have, nothing is
// known.
func (r *Result) find(name string) SpecResult {
	for _, s := range r.Specs {
		if s.Name == name {
			return s
		}
	}
	return SpecResult{Outcome: "unknown"}
}

// read takes over what a report says about specs. One that was to run and of
// which nothing is known has failed.
func (r *Result) read(reports []types.Report, specs []Spec, keptOut map[string]string) error {
	byName := map[string]types.SpecReport{}
	ran := false
	for _, report := range reports {
		for _, s := range report.SpecReports {
			if s.LeafNodeType != types.NodeTypeIt {
				if s.Failed() && s.LeafNodeType.Is(types.NodeTypesForSuiteLevelNodes) {
					return fmt.Errorf("%s of the suite failed: %s", s.LeafNodeType, s.FailureMessage())
				}
				continue
			}
			ran = ran || s.State.Is(types.SpecStatePassed|types.SpecStateFailureStates)
			// Of several with the same name the worst one counts.
			if old, ok := byName[s.FullText()]; !ok || severity(s) > severity(old) {
				byName[s.FullText()] = s
			}
		}
	}
	for _, spec := range specs {
		result := SpecResult{Spec: spec}
		s, known := byName[spec.Name]
		result.Attempts, result.RunTime = s.NumAttempts, s.RunTime
		switch reason := keptOut[spec.Name]; {
		case reason != "":
			result.Outcome, result.Reason = Skipped, reason
		case !known:
			result.Outcome, result.Reason = Failed, "the report does not mention it"
		case s.State == types.SpecStatePassed:
			result.Outcome = Passed
		case s.State == types.SpecStateSkipped && s.FailureMessage() != "":
			result.Outcome, result.Reason = Skipped, strings.TrimSpace(s.FailureMessage())
		case s.State == types.SpecStatePending:
			result.Outcome, result.Reason = Skipped, "upstream switched it off"
		case s.State == types.SpecStateSkipped:
			// The suite ended before its turn.
			result.Outcome, result.Reason = Failed, "it did not run"
		default:
			result.Outcome, result.Reason = Failed, failure(s)
		}
		r.Specs = append(r.Specs, result)
	}
	if !ran && len(keptOut) < len(specs) {
		return errors.New("no spec ran")
	}
	return nil
}

func severity(s types.SpecReport) int {
	switch {
	case s.Failed():
		return 2
	case s.State == types.SpecStatePassed:
		return 1
	}
	return 0
}

// failure says what went wrong where.
func failure(s types.SpecReport) string {
	message := s.FailureMessage()
	if s.Failure.ForwardedPanic != "" {
		message += " " + s.Failure.ForwardedPanic
	}
	return strings.TrimSpace(fmt.Sprintf("%s at %s: %s", s.State, s.FailureLocation(), strings.TrimSpace(message)))
}

// Difference are specs whose outcome is not the same in both runs.
type Difference struct {
	// Worse failed only with our patches, Better only without them. Other ones
	// passed in one run and were skipped in the other.
	Worse, Better, Other []string
	// Again passed in both runs, but with our patches not at once. That may
	// be chance, or a failure that happens sometimes.
	Again []string
}

// Compare compares the run on patched binaries with the other one.
func Compare(patched, unpatched *Result) Difference {
	var d Difference
	names := map[string]bool{}
	for _, r := range []*Result{patched, unpatched} {
		for _, s := range r.Specs {
			names[s.Name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		switch p, u := patched.find(name), unpatched.find(name); {
		case p.Outcome == u.Outcome:
			if p.Outcome == Passed && p.Attempts > 1 && u.Attempts <= 1 {
				d.Again = append(d.Again, name)
			}
		case p.Outcome == Failed:
			d.Worse = append(d.Worse, name)
		case u.Outcome == Failed:
			d.Better = append(d.Better, name)
		default:
			d.Other = append(d.Other, fmt.Sprintf("%s: %s, unpatched %s", name, p.Outcome, u.Outcome))
		}
	}
	return d
}

// Summary describes runs: how many specs passed, failed and were skipped, why
// they were skipped, and what failed.
func Summary(results ...*Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-12s %-16s %7s %7s %8s\n", "", "", "passed", "failed", "skipped")
	for _, r := range results {
		fmt.Fprintf(&b, "%-12s %-16s %7d %7d %8d\n", r.Name, r.Version, r.Count(Passed), r.Count(Failed), r.Count(Skipped))
	}
	for _, r := range results {
		reasons := map[string]int{}
		var again, failed []string
		for _, s := range r.Specs {
			switch {
			case s.Outcome == Skipped:
				reasons[firstLine(s.Reason)]++
			case s.Outcome == Failed:
				failed = append(failed, s.Name, "    "+firstLine(s.Reason))
			case s.Attempts > 1:
				again = append(again, s.Name)
			}
		}
		list(&b, "skipped, "+r.Name, r.Count(Skipped), grouped(reasons))
		list(&b, "passed when run again, "+r.Name, len(again), again)
		list(&b, "failed, "+r.Name, r.Count(Failed), failed)
	}
	return b.String()
}

// grouped are reasons, the most frequent ones first.
func grouped(reasons map[string]int) []string {
	sorted := slices.Sorted(maps.Keys(reasons))
	slices.SortStableFunc(sorted, func(a, b string) int { return cmp.Compare(reasons[b], reasons[a]) })
	var lines []string
	for _, reason := range sorted {
		lines = append(lines, fmt.Sprintf("%4d  %s", reasons[reason], reason))
	}
	return lines
}

// String lists the specs.
func (d Difference) String() string {
	var b strings.Builder
	list(&b, "failed with the patches only", len(d.Worse), d.Worse)
	list(&b, "failed without the patches only", len(d.Better), d.Better)
	list(&b, "skipped in one run only", len(d.Other), d.Other)
	list(&b, "passed with the patches, but not at once", len(d.Again), d.Again)
	if b.Len() == 0 {
		return "\nno spec has another outcome with the patches than without\n"
	}
	return b.String()
}

func list(b *strings.Builder, title string, n int, lines []string) {
	if n == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s (%d):\n", title, n)
	for _, line := range lines {
		fmt.Fprintf(b, "  %s\n", line)
	}
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}
