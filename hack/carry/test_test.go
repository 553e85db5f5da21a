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
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kubernetes-dra/hack/pkg/git"
	"kubernetes-dra/hack/pkg/sys"
	"kubernetes-dra/hack/pkg/test/results"
	"kubernetes-dra/hack/pkg/test/testplan"
	"kubernetes-dra/hack/pkg/test/testrun"
	"kubernetes-dra/hack/pkg/tree"
	"kubernetes-dra/hack/pkg/tree/ledger"
)

const (
	someKey  = "0123456789abcdef0123456789abcdef"
	otherKey = "fedcba9876543210fedcba9876543210"
)

// fakeSession has two releases with the same units: a package with tests of ours and of
// upstream, one of upstream alone, an integration test of ours, vet and the cluster tests.
func fakeSession(t *testing.T) *testSession {
	t.Helper()
	repo := t.TempDir()
	if err := sys.WriteFile(filepath.Join(repo, "x"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"init", "--quiet"}, {"add", "--all"}, {"-c", "user.name=x", "-c", "user.email=x@x.invalid", "commit", "--quiet", "-m", "x"},
	} {
		if _, err := git.Dir(repo).Run(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	content, err := results.Scan(t.Context(), repo)
	if err != nil {
		t.Fatal(err)
	}
	cluster := testplan.Target{Path: testplan.ClusterPackage, Tests: []string{"TestCluster"}, Own: []string{"TestCluster"}}
	s := &testSession{
		repo: repo, log: t.Logf,
		root: &testplan.Root{
			Content: content, Cluster: cluster, Build: &testrun.Build{Dir: repo},
			Units: []testplan.Unit{{Mode: testplan.Tool, Target: testplan.Target{Path: "hack/x"}, Key: someKey}},
		},
		runner: testrun.Runner{Out: io.Discard, LogDir: filepath.Join(repo, "_output", "logs")},
	}
	if s.tool, err = results.Open("", filepath.Join(repo, "_output", "tool")); err != nil {
		t.Fatal(err)
	}
	for _, release := range []string{"1.37", "1.36"} {
		mixed := testplan.Target{Path: "mixed", Tests: []string{"TestOurs", "TestTheirs"}, Own: []string{"TestOurs"}}
		theirs := testplan.Target{Path: "theirs", Tests: []string{"TestTheirs"}}
		ours := testplan.Target{Path: "ours", Tests: []string{"TestOurs"}, Own: []string{"TestOurs"}}
		unit := func(mode string, t testplan.Target, only ...string) testplan.Unit {
			return testplan.Unit{Release: release, Mode: mode, Target: t, Key: someKey, Only: only}
		}
		r := &releaseTests{
			repo: repo, root: s.root,
			tree: &tree.Tree{Repo: repo, Output: filepath.Join(repo, "_output", release), Release: &ledger.Release{Name: release}},
			Prepared: &testplan.Prepared{
				Plan: &testplan.Plan{Release: release, Tree: repo}, Content: content,
				Units: []testplan.Unit{
					unit(testplan.Vet, mixed), unit(testplan.UnitTests, mixed), unit(testplan.UnitTests, theirs), unit(testplan.GatesOn, theirs),
					unit(testplan.Integration, ours), unit(testplan.Cluster, cluster), unit(testplan.Generators, testplan.Target{Path: "generated.patch"}),
				},
				Own: []testplan.Unit{unit("own-unit", mixed, "TestOurs"), unit("own-integration", ours, "TestOurs"), unit("own-cluster", cluster)},
			},
		}
		s.releases = append(s.releases, r)
	}
	reopen(t, s)
	return s
}

// reopen reads the results, as another run does.
func reopen(t *testing.T, s *testSession) {
	t.Helper()
	for _, r := range s.releases {
		var err error
		if r.store, err = results.Open(r.committedFile(), r.localFile()); err != nil {
			t.Fatal(err)
		}
	}
	s.reused, s.condemned = 0, nil
}

// line is a result of a unit.
func line(mode, pkg, key string) results.Line {
	return results.Line{Mode: mode, Package: pkg, Key: key, Passed: 1, Seconds: 1, Date: "2026-11-26"}
}

// all has a line for each unit of a release.
func all(r *releaseTests) []results.Line {
	var lines []results.Line
	for _, u := range r.Units {
		lines = append(lines, line(u.Mode, u.Path, u.Key))
	}
	return lines
}

func record(t *testing.T, s *testSession, r *releaseTests, lines ...results.Line) {
	t.Helper()
	if err := results.Write(r.committedFile(), lines); err != nil {
		t.Fatal(err)
	}
	reopen(t, s)
}

func names(jobs []testrun.Job) []string {
	var names []string
	for _, j := range jobs {
		names = append(names, j.Name)
	}
	return names
}

// TestJobs checks what a run begins with, what it goes on with, and what it leaves out.
func TestJobs(t *testing.T) {
	// The cluster begins first: alone it takes half an hour, beside others far longer.
	ours := []string{"verify", "1.37 build", "1.37 own-cluster kubernetes-dra/test/cluster", "build etcd", "1.37 integration ours", "tool hack/x", "1.37 own-unit mixed"}
	whole := append(slices.Clone(ours[:len(ours)-1]), "1.37 unit mixed")
	rest := func(release string, modes ...string) []string {
		var names []string
		for _, mode := range modes {
			names = append(names, release+" "+mode)
		}
		return names
	}
	everything := []string{"unit mixed", "unit theirs", "gates-on theirs", "generators generated.patch", "vet of 1 packages", "build", "cluster kubernetes-dra/test/cluster"}
	for name, tc := range map[string]struct {
		options        testOptions
		ci             string
		prepare        func(t *testing.T, s *testSession)
		urgent, others []string
		reused         int
	}{
		"nothing is recorded": {
			urgent: whole,
			others: slices.Concat(rest("1.37", "unit theirs", "gates-on theirs", "generators generated.patch", "vet of 1 packages"),
				[]string{"build etcd", "1.36 integration ours"}, rest("1.36", everything...)),
		},
		// On a machine that has nothing but the repository, all that is ours runs.
		"all is recorded": {
			prepare: func(t *testing.T, s *testSession) {
				for _, r := range s.releases {
					record(t, s, r, all(r)...)
				}
			},
			urgent: ours, reused: 7 + 6,
		},
		"whole trees": {
			prepare: func(t *testing.T, s *testSession) {
				for _, r := range s.releases {
					record(t, s, r, line(results.All, "tree", r.Content.TreeKey()))
				}
			},
			urgent: ours, others: rest("1.36", everything[5:]...), reused: 5 + 6,
		},
		"another release changed": {
			prepare: func(t *testing.T, s *testSession) {
				for _, r := range s.releases {
					record(t, s, r, all(r)...)
				}
				s.releases[1].Units[1].Key = otherKey
			},
			urgent: ours, others: []string{"1.36 unit mixed"}, reused: 7 + 5,
		},
		// CI has no time for clusters of other releases. They remain owed.
		"whole trees in CI": {
			ci: "true",
			prepare: func(t *testing.T, s *testSession) {
				for _, r := range s.releases {
					record(t, s, r, all(r)...)
				}
				s.releases[1].Units[5].Key, s.releases[1].Units[1].Key = otherKey, otherKey
			},
			urgent: ours, others: []string{"1.36 unit mixed"},
		},
		// What passed in this clone is not run again.
		"again": {
			prepare: func(t *testing.T, s *testSession) {
				for _, r := range s.releases {
					record(t, s, r, all(r)...)
				}
				for _, u := range s.releases[0].Own {
					if err := results.Append(s.releases[0].localFile(), line(u.Mode, u.Path, u.Key)); err != nil {
						t.Fatal(err)
					}
				}
				reopen(t, s)
			},
			urgent: []string{"verify", "tool hack/x"}, reused: 7 + 7 + 3,
		},
		"owed": {
			options: testOptions{owed: true},
			prepare: func(t *testing.T, s *testSession) { record(t, s, s.releases[0], all(s.releases[0])...) },
			others:  slices.Concat([]string{"build etcd", "1.36 integration ours"}, rest("1.36", everything...)), reused: 7,
		},
		"a package": {options: testOptions{only: "mixed"}, urgent: []string{"1.37 unit mixed", "1.37 vet of 1 packages"}},
		"a mode":    {options: testOptions{modes: []string{testplan.GatesOn}}, urgent: []string{"1.37 gates-on theirs"}},
		"no such":   {options: testOptions{only: "none"}, urgent: []string{"select tests"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("CI", tc.ci)
			s := fakeSession(t)
			s.testOptions = tc.options
			if tc.prepare != nil {
				tc.prepare(t, s)
			}
			urgent, others := s.jobs(t.Context())
			t.Cleanup(func() { _ = os.RemoveAll(s.temp) })
			if got := names(urgent); !slices.Equal(got, tc.urgent) {
				t.Errorf("urgent:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(tc.urgent, "\n"))
			}
			if tc.ci != "" {
				// Which ones CI repeats depends on the commit.
				others = slices.DeleteFunc(others, func(j testrun.Job) bool {
					return !slices.Contains(tc.others, j.Name) && !strings.Contains(j.Name, "cluster")
				})
			}
			if got := names(others); !slices.Equal(got, tc.others) {
				t.Errorf("others:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(tc.others, "\n"))
			}
			if tc.ci == "" && s.reused != tc.reused {
				t.Errorf("reused %d, want %d", s.reused, tc.reused)
			}
		})
	}
}

// CI repeats what once needed a second try, and some of the rest. If it fails then, the line
// does not count any more, and is not recorded again.
func TestRepeated(t *testing.T) {
	t.Setenv("CI", "true")
	s := fakeSession(t)
	for _, r := range s.releases {
		lines := all(r)
		for i := range lines {
			if lines[i].Package == "theirs" {
				lines[i].Reruns = 1
			}
		}
		record(t, s, r, lines...)
	}
	jobs := s.repeated(t.Context())
	for _, want := range []string{"1.37 unit theirs", "1.37 gates-on theirs", "1.36 unit theirs"} {
		if !slices.Contains(names(jobs), want) {
			t.Errorf("no %s in %q", want, names(jobs))
		}
	}
	t.Setenv("CI", "")
	if jobs := s.repeated(t.Context()); len(jobs) > 0 {
		t.Errorf("nobody asked for %q", names(jobs))
	}

	r := s.releases[1]
	i := slices.IndexFunc(jobs, func(j testrun.Job) bool { return j.Name == "1.36 unit theirs" })
	jobs[i].Failed()
	units, _ := r.owed(nil)
	if len(units) != 1 || units[0].Name() != "1.36 unit theirs" || len(s.condemned) != 1 {
		t.Errorf("owed: %+v, condemned: %q", units, s.condemned)
	}
	if got := r.current(); len(got) != len(all(r))-1 {
		t.Errorf("%d lines remain: %+v", len(got), got)
	}
	// The line about a whole tree is wrong, too.
	record(t, s, r, line(results.All, "tree", r.Content.TreeKey()))
	if units, _ := r.owed(nil); len(units) != 2 || len(r.current()) != 0 {
		t.Errorf("owed: %+v, current: %+v", units, r.current())
	}
}

// About a twentieth of all recorded results is repeated, whatever the commit.
func TestPick(t *testing.T) {
	const releases, units, commits = 6, 150, 200
	repeated := 0
	for c := range commits {
		commit := results.Digest("commit", string(rune(c)))
		for i := range units {
			if pick(commit, results.Digest("unit", string(rune(i))))%100 < repeatedPercent*releases {
				repeated++
			}
		}
	}
	if share := float64(repeated) / float64(commits*units*releases); share < 0.04 || share > 0.06 {
		t.Errorf("%.3f of all", share)
	}
}

// What passed is written with what it read; what did not say that is not.
func TestRecord(t *testing.T) {
	s := fakeSession(t)
	r := s.releases[0]
	u := r.Units[1]
	s.record(t.Context(), r.store, u, testrun.Outcome{Passed: 2}, []string{}, r.Content)
	if err := s.recorder.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, passed := r.passed(u, true); passed {
		t.Error("nobody knows what it read")
	}
	s.record(t.Context(), r.store, u, testrun.Outcome{Passed: 2, Log: []byte("# test log\nopen " + s.repo + "/x\n")}, []string{}, r.Content)
	if err := s.recorder.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l, passed := r.passed(u, true); !passed || !slices.Equal(l.Reads, []string{"x"}) {
		t.Errorf("passed %t, reads %q", passed, l.Reads)
	}
}

func TestOptions(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"--mode nothing", `no mode "nothing"`},
		{"--all --owed", "give one of them"},
		{"./pkg/x", `unknown argument "./pkg/x"`},
		{"--through 1.36", "an upgrade needs two releases"},
	} {
		err := runTest(context.Background(), strings.Fields(tc.args))
		if err == nil || errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", tc.args, err, tc.want)
		}
	}
}
