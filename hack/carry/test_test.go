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

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kubernetes-dra/hack/pkg/git"
	"kubernetes-dra/hack/pkg/test/buildcache"
	"kubernetes-dra/hack/pkg/test/tested"
	"kubernetes-dra/hack/pkg/test/testplan"
	"kubernetes-dra/hack/pkg/test/testrun"
	"kubernetes-dra/hack/pkg/tree/ledger"
)

func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// builtRelease is a run for a release in a repository with next to nothing but a built tree.
func builtRelease(t *testing.T) *testRun {
	t.Helper()
	repo := t.TempDir()
	writeFiles(t, repo, map[string]string{
		ledger.Path:                  "revision: 1\nreleases:\n- {name: \"1.36\", version: v1.36.3, state: carried, released: \"2026-07-22T18:07:38Z\"}\n",
		"go.mod":                     "module kubernetes-dra\n\ngo 1.26\n",
		"hack/hack_test.go":          "package hack\n\nimport \"testing\"\n\nfunc TestIt(t *testing.T) {}\n",
		"_output/1.36/kubernetes/go": "1",
	})
	t.Chdir(repo)
	tree, err := openTree("1.36")
	if err != nil {
		t.Fatal(err)
	}
	g := git.Dir(tree.Dir())
	for _, args := range [][]string{{"init", "--quiet"}, {"add", "."}, {"-c", "user.name=x", "-c", "user.email=x", "commit", "--quiet", "-m", "x"}} {
		if _, err := g.Run(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	head, err := g.Run(t.Context(), "rev-parse", "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	writeFiles(t, tree.Dir(), map[string]string{".git/carry/state.json": `{"head": "` + head + `"}`})
	r := newTestRun(tree, "")
	r.Out = &bytes.Buffer{}
	if r.built, err = r.content(t.Context()); err != nil || r.built == "" {
		t.Fatalf("%q, %v", r.built, err)
	}
	return r
}

// Only a whole run without a failure, on the tree as it was built, is written down.
func TestRecord(t *testing.T) {
	good := func() error { return nil }
	for name, tc := range map[string]struct {
		change  func(r *testRun)
		part    bool
		written bool
	}{
		"whole":                  {written: true, change: func(*testRun) {}},
		"some parts":             {part: true, change: func(*testRun) {}},
		"some packages":          {change: func(r *testRun) { r.only = "x" }},
		"given tree":             {change: func(r *testRun) { r.given = r.source.Dir() }},
		"failure":                {change: func(r *testRun) { r.Do("bad", func() error { return errors.New("no") }) }},
		"failure outside a step": {change: func(r *testRun) { r.Fail("compile", errors.New("no")) }},
		"edits":                  {change: func(r *testRun) { writeFiles(t, r.source.Dir(), map[string]string{"go": "2"}) }},
		"edits before":           {change: func(r *testRun) { r.built = "" }},
		"another tree":           {change: func(r *testRun) { r.built = strings.Repeat("0", 40) }},
	} {
		t.Run(name, func(t *testing.T) {
			r := builtRelease(t)
			clusters := &testrun.Runner{Out: r.Out}
			r.Do("verify", good)
			clusters.Do("cluster", good)
			tc.change(r)
			if err := r.record(t.Context(), !tc.part, clusters); err != nil {
				t.Fatal(err)
			}
			record, err := tested.Load(r.repo, "1.36")
			if err != nil || (record != nil) != tc.written {
				t.Fatalf("got %v, %v", record, err)
			}
			if tc.written && (record.Passed != 2 || len(record.Steps) != 2 || record.Matches("v1.36.3", r.built) != nil) {
				t.Errorf("got %+v", record)
			}
			if why, err := whyUntested(t.Context(), r.source, true); err != nil || (why == "") != tc.written {
				t.Errorf("untested: %q, %v", why, err)
			}
			if _, err := whyUntested(t.Context(), r.source, false); (err == nil) != tc.written {
				t.Errorf("got %v", err)
			}
		})
	}
}

// The test with kubeadm makes a release before there can be a record.
func TestKubeadmPartIsUntested(t *testing.T) {
	before := commands
	defer func() { commands = before }()
	var got []string
	commands = []command{{name: "release", run: func(_ context.Context, args []string) error {
		got = args
		return errors.New("enough")
	}}}
	r := &testRun{Runner: &testrun.Runner{Out: &bytes.Buffer{}}}
	if err := kubeadmPart(t.Context(), r); err != nil || !slices.Contains(got, "--untested") {
		t.Errorf("got %v, %q", err, got)
	}
}

// A run that somebody chose a part for is none of the whole.
func TestPartIsNotRecorded(t *testing.T) {
	r := builtRelease(t)
	if err := runTest(t.Context(), []string{"--hack"}); err != nil {
		t.Error(err)
	}
	if record, err := tested.Load(r.repo, "1.36"); record != nil || err != nil {
		t.Errorf("got %v, %v", record, err)
	}
	if err := runTest(t.Context(), []string{"--hack", "--others", "some"}); err == nil || !strings.Contains(err.Error(), "changed, short or long") {
		t.Errorf("got %v", err)
	}
}

// Beside the default release, everything is vetted, and only our tests run.
func TestShortUnitPart(t *testing.T) {
	dir := t.TempDir()
	const bad = "package p\n\nimport \"testing\"\n\nfunc TestUpstream(t *testing.T) { t.Fatal(\"ran\") }\n"
	const vetted = "package p\n\nimport \"fmt\"\n\nfunc f() { fmt.Printf(\"%d\", \"x\") }\n"
	writeFiles(t, dir, map[string]string{
		"go.mod":                "module m\n\ngo 1.26\n",
		"mixed/up_test.go":      bad,
		"mixed/ours_test.go":    "package p\n\nimport \"testing\"\n\nfunc TestOurs(t *testing.T) {}\n",
		"upstream/up_test.go":   bad,
		"integration/x_test.go": bad,
		"seam/a.go":             "package p\n",
	})
	target := func(name string, tests, own []string) testplan.Target {
		return testplan.Target{Package: testrun.Package{Path: "m/" + name, Dir: filepath.Join(dir, name), Own: own}, Tests: tests}
	}
	plan := &testplan.Plan{Tree: dir, Env: []string{"GOWORK=off", "GOFLAGS=-mod=mod"},
		Unit:        []testplan.Target{target("mixed", []string{"TestOurs", "TestUpstream"}, []string{"TestOurs"}), target("upstream", []string{"TestUpstream"}, nil)},
		Integration: []testplan.Target{target("integration", []string{"TestUpstream"}, nil)},
	}
	repo, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	run := func() (int, string) {
		var out bytes.Buffer
		r := &testRun{Runner: &testrun.Runner{Out: &out, LogDir: t.TempDir()}, repo: repo, tree: dir, plan: plan, short: true, files: []testplan.File{{Path: "seam/a.go", Seam: true}}}
		if err := unitPart(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		total, _ := r.Counts()
		if total.Passed+total.Failed != 2 {
			t.Errorf("got %+v, want vet and one test:\n%s", total, out.String())
		}
		return total.Failed, out.String()
	}
	if failed, out := run(); failed != 0 {
		t.Errorf("%d failed:\n%s", failed, out)
	}
	for _, name := range []string{"upstream", "integration", "seam"} {
		writeFiles(t, dir, map[string]string{name + "/vet_test.go": vetted})
		if failed, out := run(); failed != 1 || !strings.Contains(out, "FAIL  vet") {
			t.Errorf("%s: %d failed, want vet to fail:\n%s", name, failed, out)
		}
		if err := os.Remove(filepath.Join(dir, name, "vet_test.go")); err != nil {
			t.Fatal(err)
		}
	}
}

// A release is left out only if its tree is the tested one, and only if nobody wants all of them.
func TestShortLeavesOutTested(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(r *testRun)
		ran    bool
	}{
		"tested":          {change: func(*testRun) {}},
		"all are wanted":  {ran: true, change: func(r *testRun) { r.onlyChanged = false }},
		"another version": {ran: true, change: func(r *testRun) { r.source.Release.Version = "v1.36.9" }},
		"edits":           {ran: true, change: func(r *testRun) { writeFiles(t, r.source.Dir(), map[string]string{"go": "2"}) }},
		"no record": {ran: true, change: func(r *testRun) {
			if err := os.Remove(filepath.Join(r.repo, tested.File("1.36"))); err != nil {
				t.Fatal(err)
			}
		}},
		"another tree": {ran: true, change: func(r *testRun) {
			record := &tested.Record{Version: "v1.36.3", Tree: strings.Repeat("0", 40), Date: "2026-11-25", Count: testrun.Count{Passed: 1}}
			if err := tested.Write(r.repo, "1.36", record); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := builtRelease(t)
			r.Do("all", func() error { return nil })
			if err := r.record(t.Context(), true); err != nil {
				t.Fatal(err)
			}
			r.onlyChanged = true
			r.build = func(context.Context) error { return nil }
			tc.change(r)
			ran := false
			part := func(context.Context, *testRun) error {
				ran = true
				return nil
			}
			if err := testShort(t.Context(), []*testRun{r}, []func(context.Context, *testRun) error{part}); err != nil {
				t.Fatal(err)
			}
			if ran != tc.ran {
				t.Errorf("ran: %t, want %t", ran, tc.ran)
			}
			_ = r.Summary()
			const said = "Not run, because the same tree passed before (1):\n    "
			if out := r.Out.(*bytes.Buffer).String(); strings.Contains(out, said) == tc.ran {
				t.Errorf("got:\n%s", out)
			}
		})
	}
}

// With little room, what is compiled for another release is apart, and removed after it,
// whatever comes of its tests.
func TestShortRunsApart(t *testing.T) {
	failure := errors.New("enough")
	for _, frugal := range []bool{false, true} {
		for _, fails := range []error{nil, failure} {
			r := &testRun{cache: buildcache.Cache{Frugal: frugal}, output: t.TempDir()}
			dir := ""
			part := func(_ context.Context, r *testRun) error {
				for _, setting := range r.env {
					dir = strings.TrimPrefix(setting, "GOCACHE=")
					writeFiles(t, dir, map[string]string{"00/abc-d": "compiled"})
				}
				return fails
			}
			err := testShort(t.Context(), []*testRun{r}, []func(context.Context, *testRun) error{part})
			if !errors.Is(err, fails) {
				t.Errorf("got %v, want %v", err, fails)
			}
			if (filepath.Dir(dir) == r.output) != frugal {
				t.Errorf("frugal %t: compiled in %q", frugal, dir)
			}
			if left, err := os.ReadDir(r.output); err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
		}
	}
}
