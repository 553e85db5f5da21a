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
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// module writes a module with real tests and returns its directory.
func module(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files["go.mod"] = "module example.com/m\n\ngo 1.26\n"
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// attempts is the source of a function which counts how often it was called,
// across processes.
const attempts = `package p

import "os"

func attempt(name string) int {
	file := os.Getenv("COUNT_DIR") + "/" + name
	old, _ := os.ReadFile(file)
	_ = os.WriteFile(file, append(old, 'x'), 0o644)
	return len(old) + 1
}
`

// run tests package p of a module, and returns what the screen shows.
func run(t *testing.T, dir string, j Job, flags ...string) (*Runner, string, error) {
	t.Helper()
	var out bytes.Buffer
	r := &Runner{Out: &out, LogDir: filepath.Join(dir, "logs")}
	env := append(os.Environ(), "COUNT_DIR="+dir, "GOFLAGS=-mod=mod", "GOWORK=off")
	j.Name, j.Package, j.Dir, j.Env = "job", "example.com/m/p", filepath.Join(dir, "p"), append(env, j.Env...)
	j.Build = &Build{Dir: dir, Env: env, Flags: flags, Out: filepath.Join(dir, "bin")}
	j.Repeat = "repeat%s"
	if files, err := filepath.Glob(filepath.Join(dir, "p", "*_test.go")); err != nil {
		t.Fatal(err)
	} else if j.Tests == nil {
		j.Tests, _ = TestFunctions(files...)
	}
	if err := r.Run(context.Background(), []Job{j}, nil); err != nil {
		t.Fatal(err)
	}
	err := r.Summary()
	return r, out.String(), err
}

// counts are the totals in short.
func counts(r *Runner) string {
	total := r.Total()
	return fmt.Sprintf("%d passed, %d failed, %d skipped", total.Passed, total.Failed, total.Skipped)
}

func count(t *testing.T, dir, name string) int {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return len(content)
}

func expect(t *testing.T, out string, patterns ...string) {
	t.Helper()
	for _, pattern := range patterns {
		if !regexp.MustCompile(pattern).MatchString(out) {
			t.Errorf("no match for %q in:\n%s", pattern, out)
		}
	}
}

// Some screens keep only the end of a run. It says why a test failed, and stays short.
func TestSaid(t *testing.T) {
	long := "    a_test.go:4: " + strings.Repeat("ö", maxSaidLine)
	for _, test := range []struct {
		name       string
		tail, want []string
	}{
		{"nothing", nil, nil},
		{"a check", []string{"1", "2", "3", "4"}, []string{"1", "2", "3", "4"}},
		{"a test", []string{"    a_test.go:1: one", "    a_test.go:2: two", "    a_test.go:3: three", "    main_test.go:4: four", "kubectl get pods:", "NAME"},
			[]string{"    a_test.go:2: two", "    a_test.go:3: three", "    main_test.go:4: four"}},
		{"a long line", []string{long}, []string{strings.ToValidUTF8(long[:maxSaidLine], "") + "…"}},
	} {
		if got := (failure{tail: test.tail}).said(); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

func TestRerun(t *testing.T) {
	const flaky = `package p

import "testing"

func TestStable(t *testing.T)  { attempt("stable") }
func TestSkipped(t *testing.T) { attempt("skipped"); t.Skip("not here") }
func TestFlaky(t *testing.T) {
	t.Run("good", func(t *testing.T) { attempt("good") })
	t.Run("bad", func(t *testing.T) {
		t.Run("good/too", func(t *testing.T) { attempt("too") })
		if n := attempt("flaky"); n < NEEDED {
			t.Fatalf("attempt %d is not good enough", n)
		}
	})
}
`
	const parts = `package p

import "testing"

func TestParts(t *testing.T) {
	prepared := false
	t.Run("before", func(t *testing.T) { prepared = true; attempt("before") })
	t.Run("after", func(t *testing.T) {
		if attempt("after") < 2 || !prepared {
			t.Fatal("not prepared")
		}
	})
}
`
	const leak = `package p

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if attempt("main") < NEEDED {
		code = 1
	}
	os.Exit(code)
}

func TestStable(t *testing.T) { attempt("stable") }
func TestOurs(t *testing.T)   { attempt("ours") }
`
	const crash = `package p

import "testing"

func TestA(t *testing.T) { attempt("a") }
func TestFlaky(t *testing.T) {
	if attempt("flaky") < NEEDED {
		panic("boom")
	}
}
func TestZ(t *testing.T) { attempt("z") }
`
	for name, tc := range map[string]struct {
		test   string
		needed string
		own    []string
		counts map[string]int
		fails  bool
		out    []string
		last   string
	}{
		"passes": {
			test: flaky, needed: "1",
			counts: map[string]int{"stable": 1, "flaky": 1},
			last:   "5 passed, 0 failed, 1 skipped",
		},
		"upstream, second attempt": {
			test: flaky, needed: "2",
			counts: map[string]int{"stable": 1, "skipped": 1, "good": 2, "too": 2, "flaky": 2},
			out:    []string{`run again \(1\)`, `again job: TestFlaky`, `job: TestFlaky`},
			last:   "5 passed, 0 failed, 1 skipped",
		},
		"upstream, third attempt": {
			test: flaky, needed: "3",
			counts: map[string]int{"stable": 1, "good": 3, "too": 3, "flaky": 3},
			out:    []string{`run again \(2\)`},
			last:   "5 passed, 0 failed, 1 skipped",
		},
		"upstream, never": {
			test: flaky, needed: "100", fails: true,
			counts: map[string]int{"stable": 1, "flaky": 3},
			out:    []string{`(?m)FAIL  1/1  job .*\n        job TestFlaky/bad\n        \| .*attempt 3 is not good enough\n        again: repeat --run '\^TestFlaky\$/\^bad\$'$`, `--- FAIL job TestFlaky/bad`},
			last:   "3 passed, 1 failed, 1 skipped",
		},
		"ours": {
			test: flaky, needed: "2", own: []string{"TestFlaky", "TestSkipped"}, fails: true,
			counts: map[string]int{"flaky": 1},
			out:    []string{`--- FAIL job TestFlaky/bad`, `tests that were skipped \(1\):\n\s+job TestSkipped: not here`},
			last:   "3 passed, 1 failed, 1 skipped",
		},
		"upstream, needs a part that passed": {
			test:   parts,
			counts: map[string]int{"before": 2, "after": 2},
			out:    []string{`run again \(1\)`},
			last:   "3 passed, 0 failed, 0 skipped",
		},
		"leak": {
			test: leak, needed: "2", own: []string{"TestOurs"},
			counts: map[string]int{"stable": 2, "ours": 2, "main": 2},
			out:    []string{`run again \(1\)`},
			last:   "2 passed, 0 failed, 0 skipped",
		},
		"leak, never": {
			test: leak, needed: "100", own: []string{"TestOurs"}, fails: true,
			counts: map[string]int{"stable": 3, "ours": 3, "main": 3},
			out:    []string{`no test in particular`},
			last:   "2 passed, 1 failed, 0 skipped",
		},
		"leak, only ours": {
			test: leak, needed: "100", own: []string{"TestOurs", "TestStable"}, fails: true,
			counts: map[string]int{"stable": 1, "ours": 1, "main": 1},
			last:   "2 passed, 1 failed, 0 skipped",
		},
		"crash": {
			test: crash, needed: "2",
			counts: map[string]int{"a": 1, "flaky": 2, "z": 1},
			last:   "3 passed, 0 failed, 0 skipped",
		},
		"crash of ours": {
			test: crash, needed: "2", own: []string{"TestFlaky"}, fails: true,
			counts: map[string]int{"flaky": 1},
			out:    []string{`boom`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := module(t, map[string]string{
				"p/attempt.go": attempts,
				"p/p_test.go":  strings.ReplaceAll(tc.test, "NEEDED", tc.needed),
			})
			r, out, err := run(t, dir, Job{Own: tc.own})
			if (err != nil) != tc.fails {
				t.Errorf("unexpected error %v:\n%s", err, out)
			}
			for file, want := range tc.counts {
				if got := count(t, dir, file); got != want {
					t.Errorf("%s: want %d attempts, got %d:\n%s", file, want, got, out)
				}
			}
			expect(t, out, tc.out...)
			if tc.last != "" && counts(r) != tc.last {
				t.Errorf("want %q, got %q:\n%s", tc.last, counts(r), out)
			}
			if _, err := os.Stat(filepath.Join(dir, "logs", "job.log")); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestProblems(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		proof string
		out   []string
	}{
		"does not build": {
			files: map[string]string{"p/p.go": "package p\n\nvar x int = \"no\"\n", "p/p_test.go": "package p\n\nimport \"testing\"\n\nfunc TestX(t *testing.T) {}\n"},
			out:   []string{`--- FAIL job: does not build`, `p/p.go:3`},
		},
		"no tests": {
			files: map[string]string{"p/p.go": "package p\n", "p/p_test.go": "package p\n"},
			out:   []string{`ran no test at all`},
		},
		"no proof": {
			files: map[string]string{"p/p_test.go": "package p\n\nimport \"testing\"\n\nfunc TestX(t *testing.T) {}\n"},
			proof: "TestProof",
			out:   []string{`--- FAIL job TestProof: not seen to pass`},
		},
		"skipped proof": {
			files: map[string]string{"p/p_test.go": "package p\n\nimport \"testing\"\n\nfunc TestProof(t *testing.T) { t.Skip() }\nfunc TestX(t *testing.T) {}\n"},
			proof: "TestProof",
			out:   []string{`--- FAIL job TestProof: not seen to pass`},
		},
		"timeout": {
			files: map[string]string{"p/p_test.go": "package p\n\nimport \"testing\"\n\nfunc TestX(t *testing.T) { select {} }\n"},
			out:   []string{`TestX: did not finish`, `timed out`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := module(t, tc.files)
			r, out, err := run(t, dir, Job{Proof: tc.proof, Flags: []string{"timeout=2s"}})
			if err == nil || r.Total().Failed == 0 {
				t.Errorf("expected an error:\n%s", out)
			}
			expect(t, out, tc.out...)
		})
	}
}

// A job runs in its directory, with its environment, without what is to be skipped. It says
// what it read.
func TestJob(t *testing.T) {
	dir := module(t, map[string]string{
		"p/data": "here",
		"p/p_test.go": `package p

import (
	"os"
	"testing"
)

func TestData(t *testing.T) {
	if _, err := os.ReadFile("data"); err != nil {
		t.Error(err)
	}
	if os.Getenv("EXTRA") != "yes" {
		t.Error("no environment")
	}
}
func TestUnwanted(t *testing.T) { t.Error("should not run") }
func TestParts(t *testing.T) {
	t.Run("wanted", func(t *testing.T) {})
	t.Run("unwanted", func(t *testing.T) { t.Error("should not run") })
	t.Run("unwanted-not", func(t *testing.T) {})
}
`})
	var passed Outcome
	r, out, err := run(t, dir, Job{
		Env: []string{"EXTRA=yes"}, Flags: []string{"timeout=1m"}, Skip: []string{"TestParts/unwanted", "TestUnwanted"},
		Passed: func(o Outcome) { passed = o },
	})
	if err != nil || counts(r) != "4 passed, 0 failed, 0 skipped" {
		t.Errorf("unexpected result: %v\n%s", err, out)
	}
	if passed.Passed != 4 || !strings.Contains(string(passed.Log), "open data\n") || !strings.Contains(string(passed.Log), "getenv EXTRA\n") {
		t.Errorf("unexpected outcome: %+v, log %q", passed, passed.Log)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "bin", "*")); len(left) > 0 {
		t.Errorf("binaries were left: %q", left)
	}
	r, out, err = run(t, dir, Job{Env: []string{"EXTRA=yes"}, Only: []string{"TestData"}})
	if err != nil || counts(r) != "1 passed, 0 failed, 0 skipped" {
		t.Errorf("only one test: %v\n%s", err, out)
	}
}

// A job that lacks something says so, and runs nothing.
func TestReady(t *testing.T) {
	dir := module(t, map[string]string{"p/attempt.go": attempts, "p/p_test.go": "package p\n\nimport \"testing\"\n\nfunc TestX(t *testing.T) { attempt(\"x\") }\n"})
	r, out, err := run(t, dir, Job{Ready: func() error { return errors.New("no binaries") }})
	if err == nil || r.Total().Failed != 1 || count(t, dir, "x") != 0 {
		t.Errorf("%v\n%s", err, out)
	}
	expect(t, out, `--- FAIL job: cannot run\n\s+\| no binaries`)
}

// What does not begin in time is left, unless it is urgent. Something else to do counts as a
// test, and all after it waits.
func TestDeadline(t *testing.T) {
	var out bytes.Buffer
	r := &Runner{Out: &out, LogDir: t.TempDir(), Deadline: time.Now().Add(-time.Second)}
	var ran []string
	job := func(name string, err error) Job {
		return Job{Name: name, Repeat: "repeat " + name, Do: func(context.Context) error { ran = append(ran, name); return err },
			Passed: func(Outcome) { ran = append(ran, name+" passed") }, Failed: func() { ran = append(ran, name+" failed") }}
	}
	if err := r.Run(context.Background(), []Job{job("good", nil), job("bad", errors.New("because"))}, []Job{job("late", nil)}); err != nil {
		t.Fatal(err)
	}
	if err := r.Summary(); err == nil {
		t.Error("expected an error")
	}
	if want := []string{"good", "good passed", "bad", "bad failed"}; !slices.Equal(ran, want) {
		t.Errorf("ran %q, want %q", ran, want)
	}
	if len(r.Left) != 1 || r.Left[0].Name != "late" || r.Done() != 2 {
		t.Errorf("left %+v, done %d", r.Left, r.Done())
	}
	expect(t, out.String(), `--- FAIL bad\n\s+\| because`, `(?m)^Failed \(1\):\n        bad\n        \| because\n        again: repeat bad$`)
}

// The deadline also holds for what was compiled in time, and waits for its turn.
func TestDeadlineInLane(t *testing.T) {
	dir := module(t, map[string]string{"p/p_test.go": "package p\n\nimport \"testing\"\n\nfunc TestX(t *testing.T) {}\n"})
	build := &Build{Dir: dir, Env: os.Environ(), Out: filepath.Join(dir, "bin")}
	var out bytes.Buffer
	r := &Runner{Out: &out, LogDir: t.TempDir()}
	job := func(name string) Job {
		return Job{Name: name, Package: "example.com/m/p", Dir: filepath.Join(dir, "p"), Build: build, Env: os.Environ(), Tests: []string{"TestX"}, Lane: Apart,
			Passed: func(Outcome) { r.Deadline = time.Now() }}
	}
	if err := r.Run(context.Background(), nil, []Job{job("first"), job("second"), job("third")}); err != nil {
		t.Fatal(err)
	}
	if len(r.Left) != 2 || r.Done() != 1 {
		t.Errorf("%d ran, left %+v\n%s", r.Done(), r.Left, out.String())
	}
}

// A cluster leaves room for one test that waits.
func TestPlaces(t *testing.T) {
	p := newPlaces()
	free := p.take(Apart)
	if n := cap(p[Waiting]) - len(p[Waiting]); n != 1 {
		t.Errorf("beside a cluster there are %d places, want 1", n)
	}
	free()
	if len(p[Waiting]) != 0 || len(p[Apart]) != 0 {
		t.Error("the places of a cluster were not given back")
	}
}

// Binaries of packages whose paths end alike cannot be made by one command.
func TestNextBatch(t *testing.T) {
	one, other := &Build{}, &Build{}
	jobs := []Job{
		{Name: "1", Package: "a/x", Build: one}, {Name: "2", Package: "a/x", Build: one}, {Name: "3", Package: "b/x", Build: one},
		{Name: "4", Package: "c/y", Build: one}, {Name: "5", Package: "c/y", Build: other}, {Name: "6", Package: "d/z", Build: one},
	}
	names := func(jobs []Job) string {
		var b strings.Builder
		for _, j := range jobs {
			b.WriteString(j.Name)
		}
		return b.String()
	}
	var got []string
	for rest := jobs; len(rest) > 0; {
		var now []Job
		now, rest = nextBatch(rest)
		got = append(got, names(now))
	}
	if want := []string{"124", "3", "5", "6"}; !slices.Equal(got, want) {
		t.Errorf("batches %q, want %q", got, want)
	}
}

func TestCanceled(t *testing.T) {
	dir := module(t, map[string]string{"p/p_test.go": `package p

import (
	"os"
	"os/signal"
	"testing"
)

func TestX(t *testing.T) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, os.Interrupt)
	_ = os.WriteFile(os.Getenv("COUNT_DIR")+"/started", nil, 0o644)
	<-c
	_ = os.WriteFile(os.Getenv("COUNT_DIR")+"/cleaned", nil, 0o644)
}
`})
	ctx, cancel := context.WithCancelCause(context.Background())
	var out bytes.Buffer
	r := &Runner{Out: &out, LogDir: filepath.Join(dir, "logs")}
	stop := errors.New("stopped by test")
	go func() {
		for {
			if _, err := os.Stat(filepath.Join(dir, "started")); err == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		cancel(stop)
	}()
	env := append(os.Environ(), "COUNT_DIR="+dir, "GOFLAGS=-mod=mod", "GOWORK=off")
	err := r.Run(ctx, []Job{{
		Name: "job", Package: "example.com/m/p", Dir: filepath.Join(dir, "p"), Env: env, Tests: []string{"TestX"},
		Build: &Build{Dir: dir, Env: env, Out: filepath.Join(dir, "bin")}, Passed: func(Outcome) { t.Error("it did not pass") },
	}}, nil)
	if !errors.Is(err, stop) {
		t.Errorf("expected the cause, got: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "cleaned")); err != nil {
		t.Errorf("the test could not clean up: %v", err)
	}
}

func TestInsertFirst(t *testing.T) {
	src := "package p\n\ntype T struct{}\n\nfunc (T) New(x int) {\n}\n\nfunc New(x int) int {\n\treturn x\n}\n"
	got, err := insertFirst([]byte(src), "New", "x = 1")
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Replace(src, "int {\n", "int { x = 1;\n", 1); string(got) != want {
		t.Errorf("want:\n%s\ngot:\n%s", want, got)
	}
	if _, err := insertFirst([]byte(src), "Old", "x = 1"); err == nil {
		t.Error("a function that does not exist must be an error")
	}
}

// A constructor gets its features as a parameter, or may get some behind all others.
func TestSetFields(t *testing.T) {
	const body = ") bool { return true }\n"
	for source, want := range map[string]string{
		"func New(a int,\n\tfts Features" + body:    " if carryForceNew { fts.A = true; fts.B = true };",
		"func New(a int,\n\tfts ...Features" + body: " if carryForceNew { fts = append(fts, Features{}); fts[0].A = true; fts[0].B = true };",
	} {
		dir := module(t, map[string]string{"p/p.go": "package p\n\ntype Features struct{ A, B bool }\n\nfunc Newer(fts ...int) {}\n\nfunc Old() bool { return New(1) }\n\n" + source})
		o, err := NewOverlay(filepath.Join(dir, "overlay"))
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, "p", "p.go")
		if err := o.SetFields(file, "true", []string{"Missing", "Old", "New"}, "fts", "A", "B"); err != nil {
			t.Fatal(err)
		}
		if got, err := o.Read(file); err != nil || !strings.HasSuffix(string(got), strings.Replace(source, "{", "{"+want, 1)) {
			t.Errorf("want %q, got %v\n%s", want, err, got)
		}
		for _, functions := range [][]string{{"Missing"}, {"Old"}} {
			if err := o.SetFields(file, "true", functions, "fts", "A"); err == nil {
				t.Errorf("no error for %v", functions)
			}
		}
	}
}

// TestOverlay checks that the go command sees what was added and changed.
func TestOverlay(t *testing.T) {
	dir := module(t, map[string]string{
		"p/p.go":      "package p\n\nfunc F(on bool) bool {\n\treturn on\n}\n",
		"p/p_test.go": "package p\n\nimport \"testing\"\n\nfunc TestF(t *testing.T) {\n\tif F(false) {\n\t\tt.Error(\"on\")\n\t}\n}\n",
	})
	o, err := NewOverlay(filepath.Join(dir, "overlay"))
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Force(filepath.Join(dir, "p", "p.go"), "F", "on = true"); err != nil {
		t.Fatal(err)
	}
	if err := o.Add(filepath.Join(dir, "p", gateFileName), []byte("package p_test\n\nimport \"testing\"\n\nfunc TestProof(t *testing.T) {}\n")); err != nil {
		t.Fatal(err)
	}
	flag, err := o.Flag()
	if err != nil {
		t.Fatal(err)
	}
	r, out, err := run(t, dir, Job{Own: []string{"TestF"}, Proof: "TestProof"}, flag)
	if err == nil || r.Total().Failed != 1 {
		t.Errorf("expected exactly the one failure because of the changed function:\n%s", out)
	}
	expect(t, out, `--- FAIL job TestF`)
}

func TestTestFunctions(t *testing.T) {
	dir := module(t, map[string]string{"p_test.go": `package p

import "testing"

func TestMain(m *testing.M)        {}
func TestB(t *testing.T)           {}
func TestA(t *testing.T)           {}
func helper(t *testing.T)          {}
func BenchmarkC(b *testing.B)      {}
func FuzzD(f *testing.F)           {}
func ExampleE()                    {}
func (x T) TestF(t *testing.T)     {}

type T struct{}
`})
	got, err := TestFunctions(filepath.Join(dir, "p_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"ExampleE", "FuzzD", "TestA", "TestB"}; !slices.Equal(got, want) {
		t.Errorf("want %v, got %v", want, got)
	}
}

// TestRead reads what a test binary prints through test2json.
func TestRead(t *testing.T) {
	const stream = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestA/b"}
{"Action":"output","Package":"p","Test":"TestA/b","Output":"    a_test.go:1: not here\n"}
{"Action":"skip","Package":"p","Test":"TestA/b"}
not an event
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestC"}
{"Action":"output","Package":"p","Output":"signal: killed\n"}
{"Action":"fail","Package":"p"}
`
	var log bytes.Buffer
	var ended []string
	got, err := Read(strings.NewReader(stream), &log, func(test Test) { ended = append(ended, test.Name+" "+test.Status) })
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"TestA/b skip", "TestA pass"}; !slices.Equal(ended, want) {
		t.Errorf("ended: %q, want %q", ended, want)
	}
	var names []string
	for _, test := range got {
		names = append(names, test.Name+" "+test.Status)
	}
	if want := []string{"TestA pass", "TestA/b skip", "TestC "}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
	if want := []string{"    a_test.go:1: not here\n"}; !slices.Equal(got[1].Output, want) {
		t.Errorf("%q, want %q", got[1].Output, want)
	}
	if want := "    a_test.go:1: not here\nnot an event\nsignal: killed\n"; log.String() != want {
		t.Errorf("log %q, want %q", log.String(), want)
	}
	if _, err := Read(strings.NewReader(stream), failingWriter{}, func(Test) {}); err == nil {
		t.Error("no error although the log could not be written")
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }
