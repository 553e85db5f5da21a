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

package upstream

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/onsi/ginkgo/v2/types"
)

func TestReport(t *testing.T) {
	result := func(name string, outcomes ...string) *Result {
		r := &Result{Name: name}
		for i := 0; i < len(outcomes); i += 2 {
			r.Specs = append(r.Specs, Spec{Name: outcomes[i], Outcome: outcomes[i+1], Reason: "because\nof this"})
		}
		return r
	}
	unpatched := result(Unpatched, "a", Passed, "b", Failed, "c", Skipped, "d", Passed)
	again := result("patched", "a", Passed)
	again.Specs[0].Again = true
	for name, test := range map[string]struct {
		results []*Result
		err     string
		says    []string
	}{
		"nothing":                       {nil, "nothing ran", nil},
		"the same":                      {[]*Result{result("patched", "a", Passed, "b", Failed, "c", Skipped, "d", Passed), unpatched}, "", []string{"no spec has another outcome", "failed, patched:\n  b\n      because\n", "   1  because"}},
		"failed with the patches only":  {[]*Result{result("patched", "a", Failed), unpatched}, "1 specs fail with the patches", []string{"  FAILED with the patches only: a\n"}},
		"failed where it was skipped":   {[]*Result{result("patched", "c", Failed), unpatched}, "1 specs fail with the patches", nil},
		"failed where it is unknown":    {[]*Result{result("patched", "new", Failed), unpatched}, "1 specs fail with the patches", nil},
		"the second one fails":          {[]*Result{result("off", "a", Passed), result("patched", "a", Failed), unpatched}, "1 specs fail", []string{"off beside unpatched:", "patched beside unpatched:"}},
		"better":                        {[]*Result{result("patched", "b", Passed), unpatched}, "", []string{"  passed, failed without the patches: b\n"}},
		"skipped":                       {[]*Result{result("patched", "a", Skipped), unpatched}, "", []string{"  skipped, passed without the patches: a\n"}},
		"unknown":                       {[]*Result{result("patched", "e", Passed), unpatched}, "", []string{"passed, missing without the patches: e"}},
		"again":                         {[]*Result{again, unpatched}, "", []string{"passed, but not at once: a\n", "passed when run again, patched:\n  a\n"}},
		"a sub-test is missing":         {[]*Result{result("patched", "T", Passed), result(Unpatched, "T", Passed, "T/a", Passed)}, "", []string{"missing, passed without the patches: T/a"}},
		"fewer functions":               {[]*Result{result("patched", "T", Passed), result(Unpatched, "T", Passed, "U", Passed, "U/a", Passed)}, "", []string{"no spec has another outcome"}},
		"nothing to compare with":       {[]*Result{result("patched", "a", Passed)}, "", []string{"nothing to compare with"}},
		"failed, nothing to compare":    {[]*Result{result("patched", "a", Failed), result("other", "a", Passed)}, `Run the variant "unpatched"`, nil},
		"failed without patches, alone": {[]*Result{result(Unpatched, "a", Failed)}, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			err := Report(dir, test.results)
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("want error %q, got %v", test.err, err)
			}
			for _, want := range test.says {
				if content, err := os.ReadFile(filepath.Join(dir, "summary.txt")); !strings.Contains(string(content), want) {
					t.Errorf("want %q, got %v\n%s", want, err, content)
				}
			}
		})
	}
}

// TestFound takes a result only if the same was run.
func TestFound(t *testing.T) {
	s := &Suite{Content: "tree", Only: "text", Logs: t.TempDir()}
	v := Variant{Name: "patched"}
	if r, err := s.Found(v); r != nil || err != nil {
		t.Errorf("nothing ran: %v, %v", r, err)
	}
	dir := filepath.Join(s.Logs, v.Name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	want := &Result{Name: v.Name, Key: s.key(), Specs: []Spec{{Name: "a", Outcome: Failed, Reason: "b", Again: true}}}
	if err := want.save(dir); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Found(v); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("want %v, got %v, %v", want, got, err)
	}
	for _, other := range []*Suite{{Content: "other", Only: "text", Logs: s.Logs}, {Content: "tree", Logs: s.Logs}} {
		if got, err := other.Found(v); got != nil || err != nil {
			t.Errorf("%q %q: %v, %v", other.Content, other.Only, got, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, resultFile), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Found(v); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("it is damaged: %v", err)
	}
}

// it is a spec in a report.
func it(state types.SpecState, message, name string, labels ...string) types.SpecReport {
	return types.SpecReport{
		ContainerHierarchyTexts: []string{"[DRA]"}, LeafNodeText: name, LeafNodeType: types.NodeTypeIt, LeafNodeLabels: append(labels, "DRA"),
		State: state, NumAttempts: 1, Failure: types.Failure{Message: message},
	}
}

// TestExclusions asks ginkgo's own filters which specs are left.
func TestExclusions(t *testing.T) {
	labels := []string{
		"DRA", "Feature:DynamicResourceAllocation", "Feature:OffByDefault", "Feature:Off", "FeatureGate:DRANodeAllocatableResources",
		"FeatureGate:Off", "FeatureGate:On", "Flaky", "KubeletMinVersion:1.35", "Serial", "Slow",
	}
	on := func(gate string) bool { return gate != "Off" }
	for _, test := range []struct {
		labels, kubelet string
		cpus            int
		want            string
	}{
		{labels: "DRA Slow Feature:DynamicResourceAllocation Feature:OffByDefault FeatureGate:On"},
		{labels: "DRA FeatureGate:Off", want: "needs Off, which is not on"},
		{labels: "DRA Feature:Off", want: "needs Off, which is not on"},
		{labels: "DRA Flaky", want: "upstream says that it is flaky"},
		{labels: "DRA KubeletMinVersion:1.35"},
		{labels: "DRA KubeletMinVersion:1.35", kubelet: "1.35"},
		{labels: "DRA KubeletMinVersion:1.35", kubelet: "1.34", want: "needs a kubelet of 1.35"},
		{labels: "DRA Serial FeatureGate:DRANodeAllocatableResources", cpus: minCPUs},
		{labels: "DRA Serial FeatureGate:DRANodeAllocatableResources", cpus: minCPUs - 1, want: "wants 16 CPUs: its pod takes up to two, and stays"},
		{labels: "DRA Serial FeatureGate:On", cpus: 2},
	} {
		out := exclusions(labels, on, test.kubelet, test.cpus)
		left := types.MustParseLabelFilter(without(draLabels, out))(strings.Fields(test.labels))
		if left != (test.want == "") {
			t.Errorf("%+v: it is left: %v", test, left)
		}
		reports := types.SpecReports{it(types.SpecStateSkipped, "", "a", strings.Fields(test.labels)...)}
		want := []Spec{{Name: "[DRA] a", Outcome: Skipped, Reason: test.want}}
		if left {
			want = []Spec{{Name: "[DRA] a", Outcome: Failed, Reason: "it did not run"}}
		}
		if got, err := outcomes(reports, draLabels, "", out); err != nil || !slices.Equal(got, want) {
			t.Errorf("%+v: %+v, %v", test, got, err)
		}
	}
}

func TestOutcomes(t *testing.T) {
	failed := it(types.SpecStateFailed, "timed out", "fails")
	failed.Failure.FailureNodeLocation = types.CodeLocation{FileName: "dra.go", LineNumber: 7}
	failed.Failure.Location = failed.Failure.FailureNodeLocation
	again := it(types.SpecStatePassed, "", "passes at last")
	again.NumAttempts = 2
	panicked := it(types.SpecStatePanicked, "test panicked", "panics")
	panicked.Failure.ForwardedPanic = "nil pointer"
	other := it(types.SpecStatePassed, "", "is about something else")
	other.LeafNodeLabels = []string{"Other"}
	got, err := outcomes(types.SpecReports{
		failed, panicked, again, other,
		it(types.SpecStatePassed, "", "passes"),
		it(types.SpecStateSkipped, "2 ready nodes required", "wants nodes"),
		it(types.SpecStateSkipped, "", "has no time"),
		it(types.SpecStatePending, "", "is pending"),
		it(types.SpecStatePassed, "", "is there twice"),
		it(types.SpecStateTimedout, "too late", "is there twice"),
		// Another report has it.
		it(types.SpecStateSkipped, "", "was alone"),
		it(types.SpecStateSkipped, "no nodes", "was alone"),
	}, draLabels, "", nil)
	want := []Spec{
		{"[DRA] fails", Failed, "failed at dra.go:7: timed out", false},
		{"[DRA] has no time", Failed, "it did not run", false},
		{"[DRA] is pending", Skipped, "upstream switched it off", false},
		{"[DRA] is there twice", Failed, "timedout at :0: too late", false},
		{"[DRA] panics", Failed, "panicked at :0: test panicked nil pointer", false},
		{"[DRA] passes", Passed, "", false},
		{"[DRA] passes at last", Passed, "", true},
		{"[DRA] wants nodes", Skipped, "2 ready nodes required", false},
		{"[DRA] was alone", Skipped, "no nodes", false},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, want\n%+v, got\n%+v", err, want, got)
	}
	if _, err := outcomes(types.SpecReports{again}, draLabels, "missing", nil); err == nil {
		t.Error("no error although no spec has the name")
	}
}
