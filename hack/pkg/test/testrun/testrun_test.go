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
	"os"
	"os/exec"
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

func runStep(t *testing.T, dir string, step Step) (*Runner, string, error) {
	t.Helper()
	var out bytes.Buffer
	r := &Runner{Out: &out, LogDir: filepath.Join(dir, "logs")}
	step.Dir = dir
	step.Env = append(step.Env, "COUNT_DIR="+dir, "GOFLAGS=-mod=mod", "GOWORK=off")
	if err := r.Run(context.Background(), step); err != nil {
		t.Fatal(err)
	}
	err := r.Summary()
	return r, out.String(), err
}

func count(t *testing.T, dir, name string) int {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return len(content)
}

func lastLine(out string) string {
	lines := strings.Split(strings.TrimRight(out, "\n"), "\n")
	return lines[len(lines)-1]
}

func expect(t *testing.T, out string, patterns ...string) {
	t.Helper()
	for _, pattern := range patterns {
		if !regexp.MustCompile(pattern).MatchString(out) {
			t.Errorf("no match for %q in:\n%s", pattern, out)
		}
	}
}

func TestSummaryOfSeveral(t *testing.T) {
	var out bytes.Buffer
	one := &Runner{Out: &out}
	other := &Runner{Out: &out, Prefix: "1.34: "}
	one.Do("check", func() error { return nil })
	other.Do("check", func() error { return nil })
	other.Do("broken", func() error { return errors.New("out of order") })
	if err := one.Summary(other); err == nil {
		t.Error("no error although a check of the other runner failed")
	}
	expect(t, out.String(),
		`(?m)^=== check$`, `(?m)^=== 1\.34: check$`, `(?m)^  FAIL  1\.34: broken\n +\| out of order$`,
		`(?m)^--- FAIL 1\.34: broken\n    \| out of order$`, `(?m)^Failed \(1\):\n    1\.34: broken\n        \| out of order$`,
		`(?m)^check +1 passed`, `(?m)^1\.34: check +1 passed`, `(?m)^1\.34: broken +0 passed +1 failed`)
	if got, want := lastLine(out.String()), "2 passed, 1 failed, 0 skipped"; got != want {
		t.Errorf("last line %q, want %q", got, want)
	}
	if total, steps := one.Counts(); total != (Count{Passed: 1}) || len(steps) != 1 {
		t.Errorf("counts of one alone: %+v, %+v", total, steps)
	}
	if total, steps := one.Counts(other); total != (Count{Passed: 2, Failed: 1}) || len(steps) != 3 || steps[2].Name != "1.34: broken" || steps[2].Failed != 1 {
		t.Errorf("counts of both: %+v, %+v", total, steps)
	}
	if err := one.Summary(); err != nil {
		t.Errorf("alone: %v", err)
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
		{"a check", []string{"1", "2", "3", "4"}, []string{"2", "3", "4"}},
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
			counts: map[string]int{"stable": 1, "skipped": 1, "good": 1, "too": 1, "flaky": 2},
			out:    []string{`run again \(1\)`, `example.com/m/p TestFlaky \(step\): run again 1 times, passed then`},
			last:   "5 passed, 0 failed, 1 skipped",
		},
		"upstream, third attempt": {
			test: flaky, needed: "3",
			counts: map[string]int{"stable": 1, "good": 2, "too": 2, "flaky": 3},
			out:    []string{`TestFlaky \(step\): run again 2 times, passed then`},
			last:   "5 passed, 0 failed, 1 skipped",
		},
		"upstream, never": {
			test: flaky, needed: "100", fails: true,
			counts: map[string]int{"stable": 1, "flaky": 3},
			out:    []string{`(?m)^  FAIL  example.com/m/p  .*\n        TestFlaky/bad\n        \| (.*\n        \| )*.*attempt 1 is not good enough`, `--- FAIL example.com/m/p TestFlaky/bad \(step\)`, `attempt 3 is not good enough`, `run again 2 times, failed again`},
			last:   "3 passed, 1 failed, 1 skipped",
		},
		"ours": {
			test: flaky, needed: "2", own: []string{"TestFlaky", "TestSkipped"}, fails: true,
			counts: map[string]int{"flaky": 1},
			out:    []string{`--- FAIL example.com/m/p TestFlaky/bad`, `tests that were skipped \(1\):\n\s+example.com/m/p TestSkipped \(step\): not here`},
			last:   "3 passed, 1 failed, 1 skipped",
		},
		"upstream, needs a part that passed": {
			test:   parts,
			counts: map[string]int{"before": 2, "after": 3},
			out:    []string{`TestParts \(step\): run again 2 times, passed then`},
			last:   "3 passed, 0 failed, 0 skipped",
		},
		"leak": {
			test: leak, needed: "2", own: []string{"TestOurs"},
			counts: map[string]int{"stable": 2, "ours": 1, "main": 2},
			out:    []string{`\(all tests\) \(step\): run again 1 times, passed then`},
			last:   "2 passed, 0 failed, 0 skipped",
		},
		"leak, never": {
			test: leak, needed: "100", own: []string{"TestOurs"}, fails: true,
			counts: map[string]int{"stable": 3, "ours": 1, "main": 3},
			out:    []string{`no test in particular`, `failed again`},
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
			_, out, err := runStep(t, dir, Step{Name: "step", Packages: []Package{{Path: "example.com/m/p", Own: tc.own}}})
			if (err != nil) != tc.fails {
				t.Errorf("unexpected error %v:\n%s", err, out)
			}
			for file, want := range tc.counts {
				if got := count(t, dir, file); got != want {
					t.Errorf("%s: want %d attempts, got %d:\n%s", file, want, got, out)
				}
			}
			expect(t, out, tc.out...)
			if tc.last != "" && lastLine(out) != tc.last {
				t.Errorf("want as last line %q, got:\n%s", tc.last, out)
			}
			if _, err := os.Stat(filepath.Join(dir, "logs", "step", "example.com-m-p.log")); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestProblems(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		paths []string
		proof string
		out   []string
	}{
		"does not build": {
			files: map[string]string{"p/p.go": "package p\n\nvar x int = \"no\"\n", "p/p_test.go": "package p\n\nimport \"testing\"\n\nfunc TestX(t *testing.T) {}\n"},
			paths: []string{"example.com/m/p"},
			out:   []string{`--- FAIL example.com/m/p \(step\): does not build`, `p/p.go:3`, `(?m)^  BUILD .*\n +\| # example.com/m/p .*\n +\| p/p.go:3`},
		},
		"unknown package": {
			files: map[string]string{"p/p.go": "package p\n"},
			paths: []string{"example.com/m/q"},
			out:   []string{`--- FAIL example.com/m/q`},
		},
		"no tests": {
			files: map[string]string{"p/p.go": "package p\n", "p/p_test.go": "package p\n"},
			paths: []string{"example.com/m/p"},
			out:   []string{`ran no test at all`},
		},
		"no proof": {
			files: map[string]string{"p/p_test.go": "package p\n\nimport \"testing\"\n\nfunc TestX(t *testing.T) {}\n"},
			paths: []string{"example.com/m/p"},
			proof: "TestProof",
			out:   []string{`--- FAIL example.com/m/p TestProof \(step\): not seen to pass`},
		},
		"skipped proof": {
			files: map[string]string{"p/p_test.go": "package p\n\nimport \"testing\"\n\nfunc TestProof(t *testing.T) { t.Skip() }\nfunc TestX(t *testing.T) {}\n"},
			paths: []string{"example.com/m/p"},
			proof: "TestProof",
			out:   []string{`--- FAIL example.com/m/p TestProof \(step\): not seen to pass`},
		},
		"timeout": {
			files: map[string]string{"p/p_test.go": "package p\n\nimport \"testing\"\n\nfunc TestX(t *testing.T) { select {} }\n"},
			paths: []string{"example.com/m/p"},
			out:   []string{`TestX \(step\): did not finish`, `timed out`, `failed again`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := module(t, tc.files)
			step := Step{Name: "step", Flags: []string{"-timeout=2s"}}
			for _, path := range tc.paths {
				step.Packages = append(step.Packages, Package{Path: path, Proof: tc.proof})
			}
			_, out, err := runStep(t, dir, step)
			if err == nil {
				t.Errorf("expected an error:\n%s", out)
			}
			expect(t, out, tc.out...)
			expect(t, lastLine(out), `^\d+ passed, [1-9]\d* failed, \d+ skipped$`)
		})
	}
}

// TestBinary runs a compiled test: in its directory, with the same rules.
func TestBinary(t *testing.T) {
	dir := module(t, map[string]string{
		"p/attempt.go": attempts,
		"p/data":       "here",
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
func TestFlaky(t *testing.T) {
	if attempt("flaky") < 2 {
		t.Error("once more")
	}
}
`})
	binary := filepath.Join(dir, "p.test")
	build := exec.Command("go", "test", "-c", "-o", binary, "./p")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, out, err := runStep(t, dir, Step{
		Name:     "step",
		Env:      []string{"EXTRA=yes"},
		Flags:    []string{"-timeout=1m"},
		Packages: []Package{{Path: "example.com/m/p", Dir: filepath.Join(dir, "p"), Binary: binary, Skip: []string{"TestParts/unwanted", "TestUnwanted"}}},
	})
	if err != nil {
		t.Errorf("unexpected error: %v", err)
	}
	if last := lastLine(out); last != "3 passed, 0 failed, 0 skipped" {
		t.Errorf("unexpected result:\n%s", out)
	}
	expect(t, out, `TestFlaky \(step\): run again 1 times, passed then`)
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
	err := r.Run(ctx, Step{Name: "step", Dir: dir, Env: []string{"COUNT_DIR=" + dir, "GOFLAGS=-mod=mod", "GOWORK=off"}, Packages: []Package{{Path: "example.com/m/p"}}})
	if !errors.Is(err, stop) {
		t.Errorf("expected the cause, got: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "cleaned")); err != nil {
		t.Errorf("the test could not clean up: %v", err)
	}
}

func TestDo(t *testing.T) {
	var out bytes.Buffer
	r := &Runner{Out: &out}
	r.Do("good", func() error { return nil })
	r.Do("bad", func() error { return errors.New("because") })
	if err := r.Summary(); err == nil {
		t.Error("expected an error")
	}
	expect(t, out.String(), `--- FAIL bad\n\s+\| because`)
	if last := lastLine(out.String()); last != "1 passed, 1 failed, 0 skipped" {
		t.Errorf("unexpected last line: %s", last)
	}
	if err := (&Runner{Out: &out}).Summary(); err == nil {
		t.Error("running nothing must not count as success")
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
		"func New(a int,\n\tfts Features" + body:    " fts.A = true; fts.B = true;",
		"func New(a int,\n\tfts ...Features" + body: " fts = append(fts, Features{}); fts[0].A = true; fts[0].B = true;",
	} {
		dir := module(t, map[string]string{"p/p.go": "package p\n\ntype Features struct{ A, B bool }\n\nfunc Newer(fts ...int) {}\n\nfunc Old() bool { return New(1) }\n\n" + source})
		o, err := NewOverlay(filepath.Join(dir, "overlay"))
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, "p", "p.go")
		if err := o.SetFields(file, []string{"Missing", "Old", "New"}, "fts", "A", "B"); err != nil {
			t.Fatal(err)
		}
		if got, err := o.Read(file); err != nil || !strings.HasSuffix(string(got), strings.Replace(source, "{", "{"+want, 1)) {
			t.Errorf("want %q, got %v\n%s", want, err, got)
		}
		for _, functions := range [][]string{{"Missing"}, {"Old"}} {
			if err := o.SetFields(file, functions, "fts", "A"); err == nil {
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
	r, out, err := runStep(t, dir, Step{Name: "step", Flags: []string{flag}, Packages: []Package{{Path: "example.com/m/p", Own: []string{"TestF"}, Proof: "TestProof"}}})
	if err == nil || r.failed != 1 {
		t.Errorf("expected exactly the one failure because of the changed function:\n%s", out)
	}
	expect(t, out, `--- FAIL example.com/m/p TestF`)
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
	if want := []string{"    a_test.go:1: not here"}; !slices.Equal(got[1].Output, want) {
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
