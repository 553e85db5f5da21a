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

package bench

import (
	"context"
	"encoding/xml"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// fakeBinary is a shell script in place of a compiled benchmark.
func fakeBinary(t *testing.T, script string) Tree {
	t.Helper()
	dir := t.TempDir()
	for _, pkg := range []string{Package, ClaimsPackage, StatusPackage} {
		if err := os.MkdirAll(filepath.Join(dir, pkg), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	binary := filepath.Join(dir, "bench.test")
	if err := os.WriteFile(binary, []byte("#!/bin/sh\nset -e\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return Tree{Dir: dir, Binary: binary}
}

func newBench(t *testing.T, patched, unpatched string) *Bench {
	t.Helper()
	return &Bench{
		Patched:   fakeBinary(t, patched),
		Unpatched: fakeBinary(t, unpatched),
		Gate:      "SomeGate",
		Path:      t.TempDir(),
		LogDir:    filepath.Join(t.TempDir(), "logs"),
		Log:       t.Logf,
	}
}

// TestReport compares the report with the one that the benchmark writes: it stands in
// another module, which cannot be imported.
func TestReport(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("../../..", filepath.FromSlash(Package), "collector_test.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	written := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		if field, ok := n.(*ast.Field); ok && field.Tag != nil {
			tag, err := strconv.Unquote(field.Tag.Value)
			if err != nil {
				t.Fatal(err)
			}
			written[reflect.StructTag(tag).Get("json")] = types.ExprString(field.Type)
		}
		return true
	})
	read := map[string]string{}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Report]()) {
		read[field.Tag.Get("json")] = field.Type.String()
	}
	if !reflect.DeepEqual(read, written) {
		t.Errorf("fields that are read:\n%v\nand written:\n%v", read, written)
	}
}

// TestCopyWorkloads checks that an unpatched tree gets scheduler_perf with our hook only
// where there is one.
func TestCopyWorkloads(t *testing.T) {
	write := func(dir, name, content string) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	read := func(dir string) map[string]string {
		t.Helper()
		content := map[string]string{}
		if err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			name, err := filepath.Rel(dir, path)
			if err != nil {
				return err
			}
			data, err := os.ReadFile(path)
			content[name] = string(data)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return content
	}
	const perf = "test/integration/scheduler_perf/scheduler_perf.go"
	for name, withHook := range map[string]bool{"old": true, "new": false} {
		t.Run(name, func(t *testing.T) {
			patched, unpatched := t.TempDir(), t.TempDir()
			want := map[string]string{Package + "/a_test.go": "new", ClaimsPackage + "/b_test.go": "b", perf: "upstream", "pkg/c.go": "upstream"}
			write(patched, Package+"/a_test.go", "new")
			write(patched, ClaimsPackage+"/b_test.go", "b")
			write(patched, perf, "patched")
			write(patched, "pkg/c.go", "patched")
			if withHook {
				write(patched, hook[0], "hook")
				want[hook[0]], want[perf] = "hook", "patched"
			}
			write(unpatched, Package+"/a_test.go", "old")
			write(unpatched, Package+"/gone_test.go", "old")
			write(unpatched, perf, "upstream")
			write(unpatched, "pkg/c.go", "upstream")
			if err := (Tree{Dir: unpatched}).CopyWorkloads(patched); err != nil {
				t.Fatal(err)
			}
			if have := read(unpatched); !reflect.DeepEqual(have, want) {
				t.Errorf("expected %v, got %v", want, have)
			}
		})
	}
	if err := (Tree{Dir: t.TempDir()}).CopyWorkloads(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a patched tree without the benchmark must be an error, got: %v", err)
	}
}

// TestRunTimeout checks that a workload which never ends does not keep the others
// from running.
func TestRunTimeout(t *testing.T) {
	b := newBench(t, `
case "$*" in
*/^NoClaim$/*) sleep 1000 ;;
*) echo '{"pods":240,"scheduled":240}' > $RESERVEDFOR_BENCH_REPORT ;;
esac
`, "")
	stuck := Run{Case: NoClaim, Pods: 240, Nodes: 100, Patched: true, Repeat: 1, Timeout: time.Second}
	next := Run{Case: SharedClaim, Pods: 240, Nodes: 100, Patched: true, Repeat: 1, Timeout: time.Minute}
	results, err := b.Run(t.Context(), []Run{stuck, next})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(results[0].Error, "not done after 1s") {
		t.Errorf("want the limit to be named, got: %s", results[0].Error)
	}
	if len(results[1].Reports) != 1 {
		t.Errorf("the next workload has no result: %+v", results[1])
	}
}

// TestRun checks what the benchmarks get told and what is made of their output.
func TestRun(t *testing.T) {
	const script = `
echo "$PWD $*" >> ../../../../../calls
echo "gates=$RESERVEDFOR_BENCH_GATES" >> ../../../../../calls
case "$*" in
*/^NoClaim$/*) speed=100 ;;
*/^SharedClaimForWorkload$/*) speed=95 ;;
*/^SharedClaim$/*) speed=SPEED ;;
*/^SharedClaimFull$/*) echo boom; exit 1 ;;
*/^Release$/*) exit 0 ;;
*) speed=50 ;;
esac
echo "{\"pods\":240,\"scheduled\":240," > $RESERVEDFOR_BENCH_REPORT
sleep 0.3
echo "\"podsPerSecond\":$speed,\"claimWrites\":2,\"claimBytes\":1300}" >> $RESERVEDFOR_BENCH_REPORT
sleep 1000 # shut down
`
	b := newBench(t, strings.ReplaceAll(script, "SPEED", "40"), strings.ReplaceAll(script, "SPEED", "1"))
	run := func(c string, pods int, patched bool) Run {
		return Run{Case: c, Pods: pods, Nodes: 100, Patched: patched, Repeat: 1, Timeout: time.Minute}
	}
	plan := []Run{
		run(NoClaim, 240, false), run(SharedClaim, 240, false),
		run(NoClaim, 240, true), run(SharedClaim, 240, true), run(SharedClaimForWorkload, 240, true),
		run(SharedClaimFull, 100, true), run(Release, 1000, true),
		run(ClaimTemplate, 2000, false), run(ClaimTemplate, 2000, true),
	}
	plan[4].Repeat = 3
	gate := run(ClaimTemplate, 2000, true)
	gate.Gate = true
	plan = append(plan, gate)
	groups := run(SharedClaimsForPodGroups, 240, false)
	groups.Groups = 1
	plan = append(plan, groups)
	results, err := b.Run(context.Background(), plan)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(results[4].Reports); n != 3 {
		t.Errorf("expected three reports, got %d", n)
	}
	if !strings.Contains(results[5].Error, "boom") || !strings.Contains(results[5].Error, b.LogDir) {
		t.Errorf("unexpected error: %s", results[5].Error)
	}
	if !strings.Contains(results[6].Error, "no such workload") {
		t.Errorf("unexpected error: %s", results[6].Error)
	}

	calls, err := os.ReadFile(filepath.Join(b.Patched.Dir, "calls"))
	if err != nil {
		t.Fatal(err)
	}
	unpatchedCalls, err := os.ReadFile(filepath.Join(b.Unpatched.Dir, "calls"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "-test.bench=^BenchmarkPerfSchedulingGroups$/^SharedClaimsForPodGroups$/^1groups_240pods_100nodes$"; !strings.Contains(string(unpatchedCalls), want) {
		t.Errorf("no %q in:\n%s", want, unpatchedCalls)
	}
	for _, want := range []string{
		"-test.bench=^BenchmarkPerfScheduling$/^SharedClaimForWorkload$/^240pods_100nodes$",
		"-test.bench=^BenchmarkPerfSchedulingUpstream$/^SchedulingWithResourceClaimTemplate$/^2000pods_100nodes$",
		"gates=SomeGate=true",
		filepath.Join(b.Patched.Dir, Package) + " ",
	} {
		if !strings.Contains(string(calls), want) {
			t.Errorf("no %q in:\n%s", want, calls)
		}
	}

	table := results.Table()
	for _, want := range []string{
		"| NoClaim | unpatched | – | 240 | 100 | 100.0 | – |",
		"| SharedClaim | unpatched | 1 | 240 | 100 | 1.0 | 0.01 |",
		"| SharedClaimForWorkload | patched | 1 | 240 | 100 | 95.0 (95–95) | 0.95 |",
		"| SharedClaimsForPodGroups | unpatched | 1 | 240 | 100 | 50.0 | 0.5 |",
		"| 2 (0) | 1,300 |",
		"| SharedClaimFull | patched | 1 | 100 | 100 | exit status 1",
		"patched, gate on",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in:\n%s", want, table)
		}
	}
	goals := results.Goals()
	for _, want := range []string{
		"`spec.reservedFor` beside no claim: 240 pods, 100 nodes | – | ≥ 0.93 | 0.95 | met |",
		"`spec.reservedFor` beside a PodGroup: 240 pods, 100 nodes | 50.0 pods/s | > 1 | 1.90 (95.0 pods/s) | met |",
		"without `spec.reservedFor`, beside no claim: 240 pods, 100 nodes | 0.0100 | ≥ 0.7 | 0.40 | **missed** |",
		"writes to a claim until all pods are bound: 240 pods, 100 nodes | – | ≤ 2 | 2 | met |",
		"size of a claim: 240 pods, 100 nodes | – | ≤ 2048 bytes | 1,300 bytes | met |",
		"gate off, SchedulingWithResourceClaimTemplate | 1 | ≥ 0.98 | 1.00 | met |",
		"gate on, SchedulingWithResourceClaimTemplate | 1 | ≥ 0.98 | 1.00 | met |",
	} {
		if !strings.Contains(goals, want) {
			t.Errorf("no %q in:\n%s", want, goals)
		}
	}
	if strings.Contains(goals, "past the limit") || strings.Contains(goals, "devices free") {
		t.Errorf("what was not measured must not be in the table:\n%s", goals)
	}
}

func TestGoalsMissed(t *testing.T) {
	cores, idle, free, deleted, calls := 1.4, 0.2, 12.0, 10.0, 5.5
	results := Results{
		{Run: Run{Case: NoClaim, Pods: 10000, Nodes: 100, Patched: true}, Reports: []Report{{PodsPerSecond: 100, MaxMemoryMiB: 100}}},
		{Run: Run{Case: SharedClaimForWorkload, Pods: 10000, Nodes: 100, Patched: true}, Reports: []Report{{PodsPerSecond: 50, ClaimWrites: 4, ClaimBytes: 5000, MaxMemoryMiB: 111}}},
		{Run: Run{Case: SharedClaimsForPodGroups, Groups: 1, Pods: 10000, Nodes: 100}, Reports: []Report{{PodsPerSecond: 51}}},
		{Run: Run{Case: NoClaimOneNode, Pods: 100, Nodes: 5000, Patched: true}, Reports: []Report{{PodsPerSecond: 100}}},
		{Run: Run{Case: SharedClaimOneNode, Pods: 100, Nodes: 5000, Patched: true}, Reports: []Report{{PodsPerSecond: 94}}},
		{Run: Run{Case: NoClaimRack, Pods: 100, Nodes: 5000, Patched: true}, Reports: []Report{{PodsPerSecond: 100}}},
		{Run: Run{Case: SharedClaimRack, Pods: 100, Nodes: 5000, Patched: true}, Reports: []Report{{PodsPerSecond: 94}}},
		{Run: Run{Case: SharedClaimFull, Pods: 100, Nodes: 100, Patched: true}, Reports: []Report{{Pods: 100, RestCores: &cores, IdleCores: &idle}}},
		{Run: Run{Case: ReleaseWorkloads, Groups: 1000, Pods: 10000, Nodes: 100, Patched: true}, Reports: []Report{{FreeAfterSeconds: &free, DeleteSeconds: &deleted, CallsPerRelease: &calls}}},
		{Run: Run{Case: Release, Pods: 1000, Nodes: 100, Patched: true}, Reports: []Report{{FreeAfterSeconds: &free}}},
	}
	goals := results.Goals()
	if n := strings.Count(goals, "| **missed** |"); n != 11 || strings.Contains(goals, "| met |") {
		t.Errorf("expected eleven goals, all missed, got %d:\n%s", n, goals)
	}
	results[8].Reports[0].FreeAfterSeconds, results[9].Reports[0].FreeAfterSeconds = nil, nil
	for _, want := range []string{"not within a minute | **missed**", "not within 15 s | **missed**"} {
		if goals := results.Goals(); !strings.Contains(goals, want) {
			t.Errorf("a claim that is not freed must not go unnoticed:\n%s", goals)
		}
	}
	if goals := (Results)(nil).Goals(); goals != "" {
		t.Errorf("unexpected goals:\n%s", goals)
	}
}

// TestRecord checks that the documents can be made of what was kept.
func TestRecord(t *testing.T) {
	r := &Record{
		Version: "v1.37.1+dra.1", Beside: "v1.37.1", Machine: "2 CPUs", Date: "2026-11-23",
		Results: Results{
			// The machine is slow in the second round, and fast in the third one.
			{Run: Run{Case: NoClaim, Pods: 240, Nodes: 100, Patched: true}, Reports: []Report{{PodsPerSecond: 100, Scheduled: 240}, {PodsPerSecond: 50, Scheduled: 240}, {PodsPerSecond: 200, Scheduled: 240}}},
			{Run: Run{Case: SharedClaimForWorkload, Pods: 240, Nodes: 100, Patched: true}, Reports: []Report{{PodsPerSecond: 90, Scheduled: 240}, {PodsPerSecond: 46, Scheduled: 240}, {PodsPerSecond: 198, Scheduled: 240}}},
			{Run: Run{Case: NoClaim, Pods: 10000, Nodes: 5000, Patched: true}, Reports: []Report{{PodsPerSecond: 100, Scheduled: 10000}}},
			{Run: Run{Case: SharedClaimsForPodGroups, Groups: 1, Pods: 10000, Nodes: 5000}, Reports: []Report{{PodsPerSecond: 75, Scheduled: 10000}}},
		},
		Claims: []Comparison{{What: "without admin access", Base: 100, Measured: 99, Ratio: 0.99, Goal: 0.98}},
	}
	data, err := r.JSON()
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseRecord(data)
	if err != nil {
		t.Fatal(err)
	}
	if again.Markdown() != r.Markdown() || again.Results.Picture() != r.Results.Picture() {
		t.Errorf("it shows something else after it was written and read:\n%s", again.Markdown())
	}
	for _, want := range []string{"v1.37.1+dra.1 beside v1.37.1, 2026-11-23, on 2 CPUs.", "| 90.0 (46–198) | 0.92 |", "| without admin access | 100 | 99 | 0.990 |"} {
		if !strings.Contains(r.Markdown(), want) {
			t.Errorf("no %q in:\n%s", want, r.Markdown())
		}
	}
	picture := r.Results.Picture()
	for _, want := range []string{"spec.reservedFor, patched: 0.920", "PodGroup, unpatched: 0.750", ">5,000</text>"} {
		if !strings.Contains(picture, want) {
			t.Errorf("no %q in:\n%s", want, picture)
		}
	}
	if err := xml.Unmarshal([]byte(picture), new(struct{ XMLName xml.Name })); err != nil {
		t.Errorf("the picture is no XML: %v", err)
	}
	if picture := (Results)(nil).Picture(); !strings.Contains(picture, "not measured") {
		t.Errorf("a picture of nothing:\n%s", picture)
	}
	for _, broken := range []string{"", "{}", `{"version":"v1"}`, "[]"} {
		if r, err := ParseRecord([]byte(broken)); err == nil || !strings.Contains(err.Error(), RecordFile) {
			t.Errorf("%q: %v, %v", broken, r, err)
		}
	}
}

// TestUpdate measures some again.
func TestUpdate(t *testing.T) {
	record := func(version string, runs ...*Result) *Record {
		return &Record{Version: version, Beside: "v1.37.1", Machine: "2 CPUs", Results: runs}
	}
	result := func(c string, speed float64) *Result {
		return &Result{Run: Run{Case: c, Pods: 1, Repeat: 3}, Reports: []Report{{PodsPerSecond: speed}}}
	}
	plan := []Run{{Case: NoClaim, Pods: 1}, {Case: SharedClaim, Pods: 1}}
	r := record("v1", result(SharedClaim, 1), result(NoClaim, 2), result(Claim, 3))
	r.Claims, r.StatusWrites = []Comparison{{What: "old"}}, []Comparison{{What: "old"}}
	again := record("v1", result(SharedClaim, 4))
	again.Claims = []Comparison{{What: "new"}}
	if err := r.Update(again, plan); err != nil {
		t.Fatal(err)
	}
	if got := r.Results; len(got) != 2 || got[0].Reports[0].PodsPerSecond != 2 || got[1].Reports[0].PodsPerSecond != 4 {
		t.Errorf("want the new result in its place, got %+v", got)
	}
	if r.Claims[0].What != "new" || r.StatusWrites[0].What != "old" {
		t.Errorf("want what was measured again, and nothing else: %+v", r)
	}
	if err := r.Update(record("v2", result(SharedClaim, 4)), plan); err == nil || !strings.Contains(err.Error(), "v2") {
		t.Errorf("figures of two versions in one record: %v", err)
	}
	if err := r.Update(again, append(plan, Run{Case: Release, Pods: 1})); err == nil || !strings.Contains(err.Error(), Release) {
		t.Errorf("the record is not whole: %v", err)
	}
}

func TestMedian(t *testing.T) {
	r := &Result{Reports: []Report{{PodsPerSecond: 3}, {PodsPerSecond: 1}, {PodsPerSecond: 2}}}
	if m := r.Median(); m.PodsPerSecond != 2 {
		t.Errorf("unexpected median: %v", m.PodsPerSecond)
	}
	if m := (&Result{}).Median(); m != nil {
		t.Errorf("unexpected median: %v", m)
	}
}

func TestCanceled(t *testing.T) {
	b := newBench(t, "exec sleep 600\n", "exec sleep 600\n")
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := errors.New("stopped by test")
	time.AfterFunc(200*time.Millisecond, func() { cancel(stop) })
	results, err := b.Run(ctx, QuickPlan())
	if !errors.Is(err, stop) {
		t.Errorf("expected the cause, got: %v", err)
	}
	if len(results) != len(QuickPlan()) {
		t.Errorf("what was measured before is lost: %v", results)
	}
}

// TestPlans checks that each workload is there only once, and that there is something
// to compare it with.
func TestPlans(t *testing.T) {
	configured := ownWorkloads(t, "performance-config.yaml", "groups-config.1.37+.yaml")
	for name, plan := range map[string][]Run{"quick": QuickPlan(), "full": FullPlan(true), "without groups": FullPlan(false)} {
		seen := map[Run]bool{}
		for _, r := range plan {
			key := r
			key.Repeat, key.Timeout = 0, 0
			if seen[key] {
				t.Errorf("%s: %s is listed twice", name, r)
			}
			seen[key] = true
			if r.Repeat < 1 || r.Timeout <= 0 {
				t.Errorf("%s: %s: repeat %d, timeout %s", name, r, r.Repeat, r.Timeout)
			}
		}
		for key := range seen {
			// Those two are upstream's.
			if key.Case != ClaimTemplate && key.Case != Claim && !slices.Contains(configured, key.Case+"/"+key.workload()) {
				t.Errorf("%s: no configuration has %s/%s", name, key.Case, key.workload())
			}
			if key.Groups > 0 && name != "full" {
				t.Errorf("%s: %s is for a tree with groups", name, key)
			}
			if _, ok := withoutClaim[key.Case]; !ok {
				continue
			}
			if !slices.ContainsFunc(plan, func(r Run) bool { return isBase(key, r) }) {
				t.Errorf("%s: nothing to compare %s with", name, key)
			}
		}
	}
}

// ownWorkloads are the names of ours.
func ownWorkloads(t *testing.T, files ...string) []string {
	t.Helper()
	var names []string
	for _, file := range files {
		data, err := os.ReadFile(filepath.Join("../../../test/integration/scheduler_perf/dra/reservedfor", file))
		if err != nil {
			t.Fatal(err)
		}
		more, err := workloads(data)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		names = append(names, more...)
	}
	return names
}

// TestCheck has a tree without a workload of upstream's. An hour of the benchmark must not pass before
// that is known.
func TestCheck(t *testing.T) {
	tree := Tree{Dir: t.TempDir()}
	plan := []Run{{Case: NoClaim, Pods: 64, Nodes: 100}, {Case: Claim, Pods: 2000, Nodes: 200}}
	file := filepath.Join(tree.Dir, filepath.FromSlash(upstreamConfig))
	if err := tree.Check(plan); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no configuration: %v", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	for config, want := range map[string]string{
		"- name: SchedulingWithResourceClaim\n  workloads: [{name: 2000pods_200nodes}]\n": "",
		"- name: SchedulingWithResourceClaim\n  workloads: [{name: 2000pods_100nodes}]\n": "SchedulingWithResourceClaim/2000pods_200nodes",
		"nothing": file,
	} {
		if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := tree.Check(plan); (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: want an error with %q, got %v", config, want, err)
		}
	}
}

// isBase says whether a run is what another one gets compared with.
func isBase(r, base Run) bool {
	return Results{{Run: base, Reports: []Report{{}}}}.base(r) != nil
}
