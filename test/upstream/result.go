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

// Package upstream runs tests of upstream's with our programs and with unpatched ones, and compares
// what came of them: the end-to-end suite on a cluster, the suite for one node, and the tests that
// upgrade a cluster.
package upstream

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// What came of a spec.
const (
	Passed  = "passed"
	Failed  = "failed"
	Skipped = "skipped"
)

// Unpatched is the name of the result that others are compared with.
const Unpatched = "unpatched"

// Spec is one of ginkgo's, or a test function, after it ran or was skipped.
type Spec struct {
	Name, Outcome string
	// Reason says why it failed or was skipped.
	Reason string
	// Again is true if it failed at first.
	Again bool
}

// Result is that of one run of a suite.
type Result struct {
	Name, Version string
	// Key says what ran besides the programs. Results are comparable if it is the same.
	Key   string
	Specs []Spec
}

const resultFile = "result.json"

// save writes the result into a folder: a run takes long, and others are compared with it later.
func (r *Result) save(dir string) error {
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, resultFile), content, 0o644)
}

// load reads a result with that key. It is nil if there is none.
func load(dir, key string) (*Result, error) {
	file := filepath.Join(dir, resultFile)
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	r := &Result{}
	if err := json.Unmarshal(content, r); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if r.Key != key {
		return nil, nil
	}
	return r, nil
}

// Count is how many specs have an outcome.
func (r *Result) Count(outcome string) int {
	n := 0
	for _, s := range r.Specs {
		if s.Outcome == outcome {
			n++
		}
	}
	return n
}

// Report says on the screen, and in a file in dir, how the specs ended, and what is different without
// our patches: that is the last result. It is an error if a spec fails with the patches only, or if one
// fails and there is no result to compare with.
func Report(dir string, results []*Result) error {
	if len(results) == 0 {
		return errors.New("nothing ran")
	}
	last := results[len(results)-1]
	var b strings.Builder
	fmt.Fprintf(&b, "%-22s %-16s %7s %7s %8s\n", "", "", Passed, Failed, Skipped)
	for _, r := range results {
		fmt.Fprintf(&b, "%-22s %-16s %7d %7d %8d\n", r.Name, r.Version, r.Count(Passed), r.Count(Failed), r.Count(Skipped))
	}
	failures := 0
	for _, r := range results {
		r.describe(&b)
		failures += r.Count(Failed)
	}
	worse := 0
	if last.Name == Unpatched {
		for _, r := range results[:len(results)-1] {
			worse += compare(&b, r, last)
		}
	} else {
		fmt.Fprintf(&b, "\nthere is nothing to compare with: %s was not run\n", Unpatched)
	}
	file := filepath.Join(dir, "summary.txt")
	if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
		return err
	}
	fmt.Printf("\n%s\nalso in %s, with the output of the suite\n", b.String(), file)
	switch {
	case worse > 0:
		return fmt.Errorf("%d specs fail with the patches and do not without them", worse)
	case last.Name != Unpatched && failures > 0:
		return fmt.Errorf("%d specs failed. Run the variant %q, too: it shows which of them fail without the patches", failures, Unpatched)
	}
	return nil
}

// describe lists what did not simply pass.
func (r *Result) describe(b *strings.Builder) {
	skipped := map[string]int{}
	var again, failed []string
	for _, s := range r.Specs {
		reason, _, _ := strings.Cut(s.Reason, "\n")
		switch {
		case s.Outcome == Skipped:
			skipped[reason]++
		case s.Outcome == Failed:
			failed = append(failed, s.Name, "    "+reason)
		case s.Again:
			again = append(again, s.Name)
		}
	}
	var reasons []string
	for _, reason := range slices.Sorted(maps.Keys(skipped)) {
		reasons = append(reasons, fmt.Sprintf("%4d  %s", skipped[reason], reason))
	}
	list(b, "skipped, "+r.Name, reasons)
	list(b, "passed when run again, "+r.Name, again)
	list(b, "failed, "+r.Name, failed)
}

// compare lists specs that ended in another way without the patches, and returns how many failed with
// them only. Specs that the patched run did not have are left out, unless it had their test function.
func compare(b *strings.Builder, patched, unpatched *Result) (worse int) {
	with, without := map[string]Spec{}, map[string]Spec{}
	for _, s := range patched.Specs {
		with[s.Name] = s
	}
	for _, s := range unpatched.Specs {
		without[s.Name] = s
		function, _, _ := strings.Cut(s.Name, "/")
		if _, ran := with[function]; ran && with[s.Name].Name == "" {
			with[s.Name] = Spec{Outcome: "missing"}
		}
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(with)) {
		s, u := with[name], without[name]
		switch {
		case s.Outcome == Failed && u.Outcome != Failed:
			worse++
			lines = append(lines, "FAILED with the patches only: "+name)
		case s.Outcome != u.Outcome:
			lines = append(lines, fmt.Sprintf("%s, %s without the patches: %s", s.Outcome, cmp.Or(u.Outcome, "missing"), name))
		case s.Again && !u.Again:
			// That may be chance, or a failure that happens sometimes.
			lines = append(lines, "passed, but not at once: "+name)
		}
	}
	if len(lines) == 0 {
		lines = []string{"no spec has another outcome"}
	}
	list(b, patched.Name+" beside "+unpatched.Name, lines)
	return worse
}

func list(b *strings.Builder, title string, lines []string) {
	if len(lines) > 0 {
		fmt.Fprintf(b, "\n%s:\n  %s\n", title, strings.Join(lines, "\n  "))
	}
}
