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
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

func write(t *testing.T, content string, elem ...string) {
	t.Helper()
	name := filepath.Join(elem...)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}

// newBench has shell scripts in place of compiled benchmarks, and of the go command that compiles them.
func newBench(t *testing.T, patched, unpatched string) *Bench {
	t.Helper()
	dir := t.TempDir()
	b := &Bench{
		Patched: Tree(filepath.Join(dir, "patched")), Unpatched: Tree(filepath.Join(dir, "unpatched")),
		Path: dir, Output: filepath.Join(dir, "output"), LogDir: filepath.Join(dir, "logs"), Log: t.Logf,
	}
	for tree, script := range map[Tree]string{b.Patched: patched, b.Unpatched: unpatched} {
		write(t, "#!/bin/sh\nset -e\n"+script, string(tree), "bench.test")
		for _, pkg := range []string{Package, ClaimsPackage, StatusPackage} {
			write(t, "", tree.path(pkg), "x_test.go")
		}
	}
	write(t, "#!/bin/sh\nset -e\ntest \"$1 $2 $3\" = 'test -c -o'\nmkdir -p \"${4%/*}\"\ncp bench.test \"$4\"\n", dir, "go")
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return b
}

// TestReport compares the report with the one that the benchmark writes: it stands in
// another module, which cannot be imported.
func TestReport(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("../../..", filepath.FromSlash(Package), "collector_test.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	written, read := map[string]string{}, map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		if field, ok := n.(*ast.Field); ok && field.Tag != nil {
			tag, _ := strconv.Unquote(field.Tag.Value)
			written[reflect.StructTag(tag).Get("json")] = types.ExprString(field.Type)
		}
		return true
	})
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Report]()) {
		read[field.Tag.Get("json")] = field.Type.String()
	}
	if !reflect.DeepEqual(read, written) {
		t.Errorf("fields that are read:\n%v\nand written:\n%v", read, written)
	}
}

// An unpatched tree gets the workloads, and scheduler_perf with our hook only where there is one.
func TestCopyWorkloads(t *testing.T) {
	for _, withHook := range []bool{true, false} {
		patched, unpatched := t.TempDir(), t.TempDir()
		write(t, "new", patched, Package, "a_test.go")
		write(t, "new", patched, ClaimsPackage, "b_test.go")
		write(t, "new", patched, "pkg/c.go")
		write(t, "new", patched, hook[1])
		write(t, "old", unpatched, Package, "gone_test.go")
		write(t, "old", unpatched, "pkg/c.go")
		write(t, "old", unpatched, hook[1])
		want := map[string]string{Package + "/a_test.go": "new", Package + "/gone_test.go": "", ClaimsPackage + "/b_test.go": "new", "pkg/c.go": "old", hook[1]: "old"}
		if withHook {
			write(t, "new", patched, hook[0])
			want[hook[0]], want[hook[1]] = "new", "new"
		}
		if err := Tree(unpatched).CopyWorkloads(Tree(patched)); err != nil {
			t.Fatal(err)
		}
		for name, content := range want {
			if got, _ := os.ReadFile(filepath.Join(unpatched, name)); string(got) != content {
				t.Errorf("hook: %t: %s is %q, want %q", withHook, name, got, content)
			}
		}
	}
	if err := Tree(t.TempDir()).CopyWorkloads(Tree(t.TempDir())); err == nil {
		t.Error("a patched tree without the benchmark is no error")
	}
}

// TestRun checks what the benchmarks get told, and what is made of their output.
func TestRun(t *testing.T) {
	const script = `
echo "$PWD $* gates=$RESERVEDFOR_BENCH_GATES" >> ../../../../../calls
case "$*" in
*/^NoClaim$/*) speed=100 ;;
*/^SharedClaimForWorkload$/*) speed=95 ;;
*/^SharedClaim$/*) speed=SPEED ;;
*/^SharedClaimFull$/*) echo boom; exit 1 ;;
*/^Release$/*) exit 0 ;;
*/^NoClaimRack$/*) sleep 1000 ;;
*) speed=50 ;;
esac
echo "{\"pods\":240,\"scheduled\":240," > $RESERVEDFOR_BENCH_REPORT
sleep 0.3
echo "\"podsPerSecond\":$speed,\"cpuSeconds\":12,\"claimWrites\":2,\"claimBytes\":1300}" >> $RESERVEDFOR_BENCH_REPORT
sleep 1000 # shut down
`
	b := newBench(t, strings.ReplaceAll(script, "SPEED", "40"), strings.ReplaceAll(script, "SPEED", "1"))
	runs := plan([]row{
		{unpatched, NoClaim, 0, 240, 100, 1}, {unpatched, SharedClaim, 0, 240, 100, 1},
		{patched, NoClaim, 0, 240, 100, 1}, {patched, SharedClaim, 0, 240, 100, 1}, {patched, SharedClaimForWorkload, 0, 240, 100, 3},
		{patched, SharedClaimFull, 0, 100, 100, 1}, {patched, Release, 0, 1000, 100, 1}, {patched, NoClaimRack, 0, 100, 100, 1},
		{unpatched, ClaimTemplate, 0, 2000, 200, 1}, {patched, ClaimTemplate, 0, 2000, 200, 1}, {gateOn, ClaimTemplate, 0, 2000, 200, 1},
		{unpatched, SharedClaimsForPodGroups, 1, 240, 100, 1},
	}, true, time.Minute)
	runs[7].Timeout = time.Second
	results, err := b.Run(t.Context(), runs)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(results[4].Reports); n != 3 {
		t.Errorf("want three reports, got %d", n)
	}
	for i, want := range map[int]string{5: "boom", 6: "no such workload", 7: "not done after 1s"} {
		if got := results[i].Error; !strings.Contains(got, want) || !strings.Contains(got, b.LogDir) {
			t.Errorf("%s: %s", want, got)
		}
	}
	for tree, wants := range map[Tree][]string{
		b.Unpatched: {"-test.bench=^BenchmarkPerfSchedulingGroups$/^SharedClaimsForPodGroups$/^1groups_240pods_100nodes$ "},
		b.Patched: {
			"-test.bench=^BenchmarkPerfScheduling$/^SharedClaimForWorkload$/^240pods_100nodes$ ",
			"-test.bench=^BenchmarkPerfSchedulingUpstream$/^SchedulingWithResourceClaimTemplate$/^2000pods_200nodes$ ",
			"gates=" + gate + "=true\n", b.Patched.path(Package) + " ",
		},
	} {
		calls, _ := os.ReadFile(tree.path("calls"))
		for _, want := range wants {
			if !strings.Contains(string(calls), want) {
				t.Errorf("no %q in:\n%s", want, calls)
			}
		}
	}
	record := &Record{Version: "v1", Beside: "v0", Results: results, Comparisons: []Comparison{
		{What: "a", Base: 200, Measured: 190, Ratio: 0.95, Goal: 0.9}, {What: "b", Base: 200, Measured: 100, Ratio: 0.5, Goal: 0.9},
	}}
	for _, want := range []string{
		"| 240 pods, 100 nodes | 50 | 95 | 0.95 | ≥ 0.97, **missed** | 1.00 | ≤ 1.03, met |",
		"| without `spec.reservedFor`, beside no claim: 240 pods, 100 nodes | 0.0100 | 0.40 | ≥ 0.95 | **missed** |",
		"| SchedulingWithResourceClaimTemplate, gate on: true | 1 | 1.00 | ≥ 0.98 | met |",
		"| writes to a claim until all its pods are bound | – | 2 | ≤ 2 | met |", "| bytes of a claim | – | 1,300 |",
		"| a | 200 | 190 | 0.950 | ≥ 0.9 | met |", "| b | 200 | 100 | 0.500 | ≥ 0.9 | **missed** |",
		"SharedClaimFull: 100 pods, 100 nodes (patched) failed: exit status 1",
	} {
		if table := record.Markdown(); !strings.Contains(table, want) {
			t.Errorf("no %q in:\n%s", want, table)
		}
	}
	data, err := record.JSON()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := ParseRecord(data); err != nil || again.Markdown() != record.Markdown() || again.Results.Picture() != record.Results.Picture() {
		t.Errorf("the record is another one when it is read: %v", err)
	}
	picture := results.Picture()
	if err := xml.Unmarshal([]byte(picture), new(any)); err != nil && !errors.Is(err, io.EOF) {
		t.Errorf("the picture is no XML: %v", err)
	}
	for _, want := range []string{">0.95</text>", ">0.40</text>", ">0.50</text>", ">0.01</text>"} {
		if !strings.Contains(picture, want) {
			t.Errorf("the picture has no %s:\n%s", want, picture)
		}
	}
}

// TestFigure checks that a goal is met only if the interval says so, once there is one.
func TestFigure(t *testing.T) {
	result := func(speeds ...float64) *Result {
		r := &Result{}
		for _, speed := range speeds {
			r.Reports = append(r.Reports, Report{PodsPerSecond: speed})
		}
		return r
	}
	base := result(100, 200, 100, 100, 100, 100, 100)
	for _, tc := range []struct {
		have            *Result
		want            string
		atLeast, atMost bool // 0.97 and 1.03
	}{
		{result(98, 196, 90), "0.98", true, true},
		{result(98, 196, 98, 99, 99, 97, 99), "0.98 (0.97 to 0.99)", true, true},
		{result(98, 196, 98, 99, 99, 96, 99), "0.98 (0.96 to 0.99)", false, true},
		{result(98, 196, 98, 99, 99, 97, 104), "0.98 (0.97 to 1.04)", true, false},
		{result(), "0.00", false, true},
	} {
		if f := ratio(tc.have, base); f.String() != tc.want || f.atLeast(0.97) != tc.atLeast || f.atMost(1.03) != tc.atMost {
			t.Errorf("%v: want %s, %t, %t, got %s, %t, %t", tc.have.Reports, tc.want, tc.atLeast, tc.atMost, f, f.atLeast(0.97), f.atMost(1.03))
		}
	}
}

// TestGeneratedClaims checks what they are compared with.
func TestGeneratedClaims(t *testing.T) {
	result := func(patched bool, name string, speed, calls float64) *Result {
		return &Result{Run: Run{Case: name, Groups: 100, Pods: 10000, Nodes: 100, Patched: patched}, Reports: []Report{{Pods: 10000, Scheduled: 10000, PodsPerSecond: speed, CallsPerPod: calls}}}
	}
	record := &Record{Results: Results{
		result(true, GeneratedClaims, 96, 4.03), result(true, NamedClaims, 100, 3), result(true, ClaimPerPod, 60, 8), result(false, PodGroupTemplate, 100, 5),
	}}
	const size = "100 claims, 10,000 pods, 100 nodes"
	for _, want := range []string{
		"| claims generated for Jobs, beside claims by name: " + size + " | – | 0.96 | ≥ 0.95 | met |",
		"| claims generated for Jobs, beside a claim for each pod: " + size + " | – | 1.60 | ≥ 1.5 | met |",
		"| claims generated for Jobs, beside those for PodGroups: " + size + " | – | 0.96 | ≥ 1 | **missed** |",
		"| requests per pod for that, beside claims by name: " + size + " | – | 1.030 | ≤ 1.04 | met |",
	} {
		if table := record.Markdown(); !strings.Contains(table, want) {
			t.Errorf("no %q in:\n%s", want, table)
		}
	}
}

// TestOrder checks that each round has the order of the one before, reversed.
func TestOrder(t *testing.T) {
	b := newBench(t, `
echo "$*" | sed 's/.*_\(.*\)nodes.*/\1/' >> ../../../../../calls
echo '{"pods":1}' > $RESERVEDFOR_BENCH_REPORT
`, "")
	if _, err := b.Run(t.Context(), plan([]row{{patched, NoClaim, 0, 1, 1, 3}, {patched, NoClaim, 0, 1, 2, 3}}, false, time.Minute)); err != nil {
		t.Fatal(err)
	}
	if calls, err := os.ReadFile(b.Patched.path("calls")); err != nil || string(calls) != "1\n2\n2\n1\n1\n2\n" {
		t.Errorf("want 1 2 2 1 1 2, got %q, %v", calls, err)
	}
}

func TestParseRecord(t *testing.T) {
	for content, want := range map[string]string{"{": "unexpected EOF", "{}": "no results", `{"claims": []}`: "unknown field"} {
		if _, err := ParseRecord([]byte(content)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want an error with %q, got %v", content, want, err)
		}
	}
}

func TestCanceled(t *testing.T) {
	started := filepath.Join(t.TempDir(), "started")
	script := "touch " + started + "\nexec sleep 600\n"
	b := newBench(t, script, script)
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stopped by test")
	go func() {
		// Not before something runs: compiling takes as long as it takes.
		for ctx.Err() == nil {
			if _, err := os.Stat(started); err == nil {
				cancel(stop)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	t.Cleanup(func() { cancel(nil) })
	if results, err := b.Run(ctx, QuickPlan()); !errors.Is(err, stop) || len(results) != len(QuickPlan()) {
		t.Errorf("want what was measured, and the cause: %d, %v", len(results), err)
	}
}

// TestPlans checks that each workload of a plan exists, is there only once, and can be compared.
func TestPlans(t *testing.T) {
	var configured []string
	for _, file := range []string{"performance-config.yaml", "groups-config.1.37+.yaml"} {
		data, err := os.ReadFile(filepath.Join("../../..", Package, file))
		if err != nil {
			t.Fatal(err)
		}
		var cases []struct {
			Name      string
			Workloads []struct{ Name string }
		}
		if err := yaml.Unmarshal(data, &cases); err != nil {
			t.Fatal(err)
		}
		for _, c := range cases {
			for _, w := range c.Workloads {
				configured = append(configured, c.Name+"$/^"+w.Name+"$")
			}
		}
	}
	for name, plan := range map[string][]Run{"quick": QuickPlan(), "full": FullPlan(true), "without groups": FullPlan(false)} {
		for i, r := range plan {
			if slices.ContainsFunc(plan[:i], r.same) {
				t.Errorf("%s: %s is listed twice", name, r)
			}
			if r.Repeat < 1 || r.Timeout <= 0 || r.Groups > 0 && name != "full" {
				t.Errorf("%s: unexpected %s: %+v", name, r, r)
			}
			if _, workload, _ := strings.Cut(r.pattern(), "/^"); !r.upstreams() && !slices.Contains(configured, workload) {
				t.Errorf("%s: no configuration has %s", name, workload)
			}
			isBase := func(base Run) bool { return Results{{Run: base}}.base(r) != nil }
			if withoutClaim[r.Case] != "" && !slices.ContainsFunc(plan, isBase) {
				t.Errorf("%s: nothing to compare %s with", name, r)
			}
		}
	}
}

// fakeServer keeps requests, and answers with what a test wants.
type fakeServer struct {
	*httptest.Server
	mutex sync.Mutex
	// seen has the requests of each user.
	seen map[string][]string
}

func newFakeServer(t *testing.T, status func(user, path, body string) int) *fakeServer {
	t.Helper()
	s := &fakeServer{seen: map[string][]string{}}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		user, path := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), r.Method+" "+r.URL.RequestURI()
		s.mutex.Lock()
		s.seen[user] = append(s.seen[user], path+" "+string(body))
		s.mutex.Unlock()
		w.WriteHeader(status(user, path, string(body)))
	}))
	t.Cleanup(s.Close)
	return s
}

// serveScript is a TestServe that writes what it finds in the tree, and waits for the end of its input.
const serveScript = `
cd ../../../..
test "$1" = "-test.run=^TestServe$"
cp "${DEVICESTATUS_SERVE_GATE:-claims}.json" "$DEVICESTATUS_SERVE$ADMINACCESS_SERVE"
cat >/dev/null
echo ended >> calls
`

func writeJSON(t *testing.T, tree Tree, name string, value object) {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	write(t, string(data), string(tree), name+".json")
}

// statusServers starts one for each state of the gate. A driver that writes what is not its own gets
// that answer, and the last one of the others this one.
func statusServers(t *testing.T, b *Bench, off, on, last int) map[string]*fakeServer {
	t.Helper()
	servers := map[string]*fakeServer{}
	for gate, foreign := range map[string]int{"off": off, "on": on} {
		s := newFakeServer(t, func(user, path, _ string) int {
			switch {
			case !strings.Contains(path, "fieldManager="+user+"&"):
				return foreign
			case user == "driver-2":
				return last
			}
			return http.StatusOK
		})
		var drivers []object
		for i := range 3 {
			name := fmt.Sprintf("driver-%d", i)
			drivers = append(drivers, object{"name": name, "token": name, "claim": "claim-" + name, "pool": "pool", "device": "device"})
		}
		writeJSON(t, b.Patched, gate, object{"host": s.URL, "version": "v1", "namespace": "ns", "drivers": drivers})
		servers[gate] = s
	}
	return servers
}

// TestStatusWrites checks that all drivers write to both servers alike, and something else each time.
func TestStatusWrites(t *testing.T) {
	b := newBench(t, serveScript, "")
	servers := statusServers(t, b, http.StatusOK, http.StatusUnprocessableEntity, http.StatusOK)
	result, err := b.StatusWrites(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(result.What, "3 drivers") || result.Goal != 0.9 || result.Ratio <= 0 || result.Base <= 0 || result.Measured <= 0 {
		t.Errorf("unexpected result: %+v", result)
	}
	for gate, s := range servers {
		for i := range 3 {
			user := fmt.Sprintf("driver-%d", i)
			different, foreign := map[string]bool{}, 0
			for _, request := range s.seen[user] {
				if strings.Contains(request, "dryRun=All") {
					foreign++
					continue
				}
				different[request] = true
				want := fmt.Sprintf("PATCH /apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/claim-%s/status?fieldManager=%s&force=true ", user, user)
				if !strings.HasPrefix(request, want) || !strings.Contains(request, fmt.Sprintf(`"driver":"%s"`, user)) {
					t.Fatalf("gate %s: want a request of its own by %s, got: %s", gate, user, request)
				}
			}
			if want := map[bool]int{true: 1, false: 0}[i == 0]; len(different) != 2*rounds+1 || foreign != want {
				t.Errorf("gate %s: got %d different writes by %s, and %d in the name of another one", gate, len(different), user, foreign)
			}
		}
	}
	if calls, err := os.ReadFile(b.Patched.path("calls")); err != nil || string(calls) != "ended\nended\n" {
		t.Errorf("want both servers to end by themselves, got: %q, %v", calls, err)
	}
	// Nothing is measured if the servers do not differ as they should, or a write fails.
	for want, answers := range map[string][3]int{
		"gate off: a driver that writes the status of another one's device": {http.StatusUnprocessableEntity, http.StatusUnprocessableEntity, http.StatusOK},
		"gate on: a driver that writes the status of another one's device":  {http.StatusOK, http.StatusOK, http.StatusOK},
		"409": {http.StatusOK, http.StatusUnprocessableEntity, http.StatusConflict},
	} {
		statusServers(t, b, answers[0], answers[1], answers[2])
		if _, err := b.StatusWrites(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got: %v", want, err)
		}
	}
}

// TestClaims checks that both servers get the same requests: claims with and without the flag.
func TestClaims(t *testing.T) {
	b := newBench(t, serveScript, serveScript)
	servers := map[Tree]*fakeServer{}
	for _, tree := range []Tree{b.Patched, b.Unpatched} {
		servers[tree] = newFakeServer(t, func(_, _, _ string) int { return http.StatusCreated })
		writeJSON(t, tree, "claims", object{"host": servers[tree].URL, "token": "admin", "version": "v1"})
	}
	results, err := b.Claims(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 2 || results[0].Goal != goalWithoutFlag || results[1].Goal != goalWithFlag {
		t.Errorf("unexpected results: %+v", results)
	}
	for tree, s := range servers {
		created, flags := map[string]bool{}, 0
		for _, request := range s.seen["admin"] {
			if strings.HasPrefix(request, "POST /apis/resource.k8s.io/v1/namespaces/bench/resourceclaims ") {
				created[request] = true
			}
			if strings.Contains(request, `"exactly":{"adminAccess":true,"deviceClassName":"class"}`) {
				flags++
			}
		}
		if each := newClaims + newClaims/10; len(created) != 2*each || flags != each {
			t.Errorf("%s: got %d claims, %d with the flag", tree, len(created), flags)
		}
	}
}

// TestCompare checks that the two servers take turns, and in each round the ratio is that of
// the second one to the first.
func TestCompare(t *testing.T) {
	var calls []int
	result, err := compare("x", 0.9, 10, func(i int) error {
		calls = append(calls, i)
		time.Sleep(time.Duration(i+1) * 5 * time.Millisecond)
		return nil
	})
	if err != nil || result.Ratio > 0.7 || result.Ratio < 0.3 || result.Base < result.Measured {
		t.Errorf("want half as fast, got %+v, %v", result, err)
	}
	if fmt.Sprint(calls[:4]) != "[0 1 1 0]" || len(calls) != 4*rounds {
		t.Errorf("unexpected order: %v", calls)
	}
}
