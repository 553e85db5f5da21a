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
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"kubernetes-dra/hack/pkg/git"
	"kubernetes-dra/hack/pkg/sys"
	"kubernetes-dra/hack/pkg/test/results"
	"kubernetes-dra/hack/pkg/test/testplan"
	"kubernetes-dra/hack/pkg/test/testrun"
	"kubernetes-dra/hack/pkg/tools"
	"kubernetes-dra/hack/pkg/tree"
	"kubernetes-dra/hack/pkg/tree/codegen"
	"kubernetes-dra/hack/pkg/tree/upstream"
)

// testSession is one run of "make test": what is known, and what gets known.
type testSession struct {
	testOptions
	repo     string
	log      func(format string, args ...any)
	root     *testplan.Root
	releases []*releaseTests
	// tool has the results of this repository's programs, in this clone only.
	tool     *results.Store
	recorder results.Recorder
	runner   testrun.Runner
	// close ends the session for others that wait. The end of the process does so, too.
	close func()
	// temp is for what tests write: short, for the sockets of etcd.
	temp string
	// reused counts results that were used again.
	reused    int
	condemned []string
}

// releaseTests are the tests of one release.
type releaseTests struct {
	*testplan.Prepared
	tree  *tree.Tree
	store *results.Store
	repo  string
	// root is where cluster tests come from.
	root *testplan.Root
}

func (r *releaseTests) committedFile() string {
	return filepath.Join(r.repo, filepath.FromSlash(results.File(r.tree.Release.Name)))
}

func (r *releaseTests) localFile() string { return filepath.Join(r.tree.Output, results.Name) }

// newTestSession builds the trees of all releases that are asked for, and finds out what is known
// about them.
func newTestSession(ctx context.Context, o testOptions) (*testSession, error) {
	t, err := openTree(o.release)
	if err != nil {
		return nil, err
	}
	output := filepath.Join(t.Repo, "_output", "test")
	// Two runs would remove each other's logs and binaries.
	unlock, err := sys.Lock(ctx, filepath.Join(output, ".lock"), func() { t.Log("waiting for another run of tests in %s", t.Repo) })
	if err != nil {
		return nil, err
	}
	s := &testSession{
		testOptions: o, close: unlock, repo: t.Repo, log: t.Log,
		runner: testrun.Runner{Out: os.Stdout, LogDir: filepath.Join(output, "logs")},
	}
	if o.budget > 0 {
		s.runner.Deadline = time.Now().Add(o.budget)
	}
	in := testplan.Inputs{}
	version, err := sys.Output(ctx, sys.Command(ctx, t.Repo, nil, "go", "env", "GOVERSION"))
	if err != nil {
		return nil, err
	}
	in.Go = strings.TrimSpace(version)
	if s.root, err = testplan.RootUnits(ctx, t.Repo, output, in.Go); err != nil {
		return nil, err
	}
	in.Root = s.root
	if s.tool, err = results.Open("", filepath.Join(output, results.Name)); err != nil {
		return nil, err
	}
	if in.Etcd, err = testplan.PinOf(t.Repo, "etcd"); err != nil {
		return nil, err
	}
	if in.Cluster, err = testplan.PinOf(t.Repo, slices.Concat(tools.ControlPlane, tools.Node)...); err != nil {
		return nil, err
	}
	trees := []*tree.Tree{t}
	if o.release == "" && !o.part() {
		for _, other := range t.Ledger.Carried() {
			if other.Name == t.Release.Name {
				continue
			}
			another, err := openTree(other.Name)
			if err != nil {
				return nil, err
			}
			trees = append(trees, another)
		}
	}
	s.releases = make([]*releaseTests, len(trees))
	group, groupCtx := errgroup.WithContext(ctx)
	// They read, download and wait in turns.
	group.SetLimit(2)
	for i, t := range trees {
		group.Go(func() error {
			r, err := newReleaseTests(groupCtx, t, s.root, in)
			s.releases[i] = r
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return s, nil
}

// newReleaseTests builds a tree, and determines its units.
func newReleaseTests(ctx context.Context, t *tree.Tree, root *testplan.Root, in testplan.Inputs) (*releaseTests, error) {
	if _, err := t.Build(ctx); err != nil {
		return nil, err
	}
	files, err := testplan.Files(t.Repo, t.Ledger, t.Release.Name)
	if err != nil {
		return nil, err
	}
	plan, err := testplan.New(ctx, t.Dir(), t.Ledger, t.Release.Name, files)
	if err != nil {
		return nil, err
	}
	if err := generatorInputs(t, &in); err != nil {
		return nil, err
	}
	r := &releaseTests{tree: t, repo: t.Repo, root: root}
	if r.Prepared, err = plan.Prepare(ctx, filepath.Join(t.Output, "test"), in); err != nil {
		return nil, err
	}
	if r.store, err = results.Open(r.committedFile(), r.localFile()); err != nil {
		return nil, err
	}
	return r, nil
}

// generatorInputs identify what the generators of a release run on, and what they made of it.
// That the record belongs to the overlay is checked whenever a tree is built.
func generatorInputs(t *tree.Tree, in *testplan.Inputs) error {
	pin := filepath.Join(t.Repo, filepath.FromSlash(upstream.PinDir(t.Release.Name)))
	sums, err := os.ReadFile(filepath.Join(pin, "go.sum"))
	if err != nil {
		return err
	}
	generated, err := os.ReadFile(filepath.Join(pin, "generated.patch"))
	in.Base = results.Digest(t.Release.Version, string(sums))
	in.Generated = results.Digest(in.Base, string(generated))
	return err
}

// checkGenerators runs the generators on the untouched release, or on the features.
func checkGenerators(ctx context.Context, t *tree.Tree, what string) error {
	if what == testplan.GeneratorsPatch {
		return t.CheckGenerated(ctx)
	}
	state, err := t.Build(ctx)
	if err != nil {
		return err
	}
	return codegen.CheckBase(ctx, t.Dir(), state.Base, t.Release.Name, codegenOptions(t))
}

// place is where the tests of a unit run, and the environment that they get.
func (r *releaseTests) place(u testplan.Unit) (*results.Content, []string) {
	if u.Whole() == testplan.Cluster {
		return r.root.Content, slices.Concat(r.root.Build.Env, u.Env)
	}
	return r.Content, slices.Concat(r.Env, u.Env)
}

// passed looks for a result that holds. here asks for one of this clone.
func (r *releaseTests) passed(u testplan.Unit, here bool) (results.Line, bool) {
	content, env := r.place(u)
	l, found := r.store.Find(u.Mode, u.Path, u.Key, here, content, env)
	if !found && !here && u.Mode != testplan.Cluster && !r.store.Condemned(u.Mode, u.Path, u.Key) {
		// The clusters of that run were made by another tool.
		l, found = r.store.Find(results.All, "tree", r.Content.TreeKey(), false, r.Content, nil)
		l.Seconds = 0
	}
	return l, found
}

// owed are the units without a result, but for those that ran, and how long they take.
func (r *releaseTests) owed(except map[string]bool) (units []testplan.Unit, expected time.Duration) {
	for _, u := range r.Units {
		if _, passed := r.passed(u, false); !passed && !except[u.Name()] {
			units = append(units, u)
			expected += r.expected(u)
		}
	}
	return units, expected
}

func (r *releaseTests) expected(u testplan.Unit) time.Duration {
	for _, mode := range []string{u.Mode, u.Whole()} {
		if d, known := r.store.Expected(mode, u.Path); known {
			return d
		}
	}
	return testplan.Guess(u.Mode)
}

// current are the lines about units as they are now. Those about whole trees remain only as
// long as there is a unit without a line of its own.
func (r *releaseTests) current() []results.Line {
	var lines []results.Line
	needed := false
	for _, u := range r.Units {
		content, env := r.place(u)
		if l, found := r.store.Find(u.Mode, u.Path, u.Key, false, content, env); found {
			lines = append(lines, l)
		} else if _, found := r.passed(u, false); found {
			needed = true
		}
	}
	if l, found := r.store.Find(results.All, "tree", r.Content.TreeKey(), false, r.Content, nil); found && needed && !r.store.AnyCondemned() {
		lines = append(lines, l)
	}
	return lines
}

// jobs plans the run. Reading it from the top is the order in which things begin: what takes
// longest first, while the next ones are compiled.
func (s *testSession) jobs(ctx context.Context) (urgent, others []testrun.Job) {
	temp, err := os.MkdirTemp("", "carry-")
	if err != nil {
		return []testrun.Job{{Name: "folder for tests", Do: func(context.Context) error { return err }}}, nil
	}
	s.temp = temp
	first := s.releases[0]
	if s.part() {
		return s.selected(ctx, first), nil
	}
	if s.all {
		for _, r := range s.releases {
			urgent = append(urgent, s.unitJobs(ctx, r, r.Units, false)...)
		}
		return slices.Concat(s.tools(ctx, false), urgent), nil
	}
	if !s.owed {
		urgent = append(urgent, testrun.Job{Name: "verify", Repeat: "make verify", Do: func(ctx context.Context) error { return verifyRepository(ctx, false) }})
		urgent = append(urgent, s.own(ctx, first)...)
		others = append(others, s.repeated(ctx)...)
	}
	planned := map[string]bool{}
	for _, j := range slices.Concat(urgent, others) {
		// The cluster tests are never run in part.
		planned[strings.Replace(j.Name, testplan.OwnPrefix+testplan.Cluster, testplan.Cluster, 1)] = true
	}
	// Clusters take longest, and would keep all else from beginning in time.
	isCluster := func(u testplan.Unit) bool { return u.Mode == testplan.Cluster }
	for _, clusters := range []bool{false, true} {
		for _, r := range s.releases {
			if clusters && r != first && isCI() {
				continue // twenty minutes each: they remain owed, and make test-owed runs them
			}
			units, _ := r.owed(planned)
			others = append(others, s.unitJobs(ctx, r, keep(units, func(u testplan.Unit) bool { return isCluster(u) == clusters }), false)...)
		}
	}
	for _, r := range s.releases {
		for _, u := range r.Units {
			if _, passed := r.passed(u, false); passed && !slices.ContainsFunc(slices.Concat(urgent, others), func(j testrun.Job) bool { return j.Name == u.Name() }) {
				s.reused++
			}
		}
	}
	return urgent, others
}

// own is everything of ours for a release. What passed in this clone is not run again; what
// others recorded is.
func (s *testSession) own(ctx context.Context, r *releaseTests) []testrun.Job {
	var units []testplan.Unit
	for _, u := range r.Own {
		whole := r.Units[slices.IndexFunc(r.Units, func(w testplan.Unit) bool { return w.Mode == u.Whole() && w.Path == u.Path })]
		_, done := r.passed(u, true)
		if u.Whole() != testplan.Cluster && !done {
			_, done = r.passed(whole, true)
		}
		if done {
			s.reused++
			continue
		}
		if _, recorded := r.passed(whole, false); !recorded || whole.OnlyOurs() && u.Whole() != testplan.Cluster {
			u.Only = nil
			if u.Whole() != testplan.Cluster {
				u = whole
			}
		}
		units = append(units, u)
	}
	isCluster := func(u testplan.Unit) bool { return u.Whole() == testplan.Cluster }
	rest := slices.DeleteFunc(slices.Clone(units), func(u testplan.Unit) bool { return isIntegration(u) || isCluster(u) })
	return slices.Concat(
		// Clusters take longest, and few others run beside them.
		s.unitJobs(ctx, r, keep(units, isCluster), false),
		s.unitJobs(ctx, r, keep(units, isIntegration), false),
		s.tools(ctx, true),
		s.unitJobs(ctx, r, rest, false),
	)
}

func isIntegration(u testplan.Unit) bool {
	return u.Whole() == testplan.Integration || u.Whole() == testplan.IntegrationGatesOn
}

func keep(units []testplan.Unit, condition func(testplan.Unit) bool) []testplan.Unit {
	return slices.DeleteFunc(slices.Clone(units), func(u testplan.Unit) bool { return !condition(u) })
}

// tools are the tests of this repository's programs. Those that passed in this clone are left
// out if they may be.
func (s *testSession) tools(ctx context.Context, reuse bool) []testrun.Job {
	var jobs []testrun.Job
	for _, u := range s.root.Units {
		env := s.root.Build.Env
		if _, found := s.tool.Find(u.Mode, u.Path, u.Key, true, s.root.Content, env); found && reuse {
			s.reused++
			continue
		}
		j := s.job(u, s.root.Build, env)
		j.Expected, _ = s.tool.Expected(u.Mode, u.Path)
		j.Passed = func(o testrun.Outcome) { s.record(ctx, s.tool, u, o, env, s.root.Content) }
		jobs = append(jobs, j)
	}
	return jobs
}

// selected are the units that a user asked for by package or mode.
func (s *testSession) selected(ctx context.Context, r *releaseTests) []testrun.Job {
	wanted := func(u testplan.Unit) bool {
		return strings.Contains(u.Path, s.only) && (len(s.modes) == 0 || slices.Contains(s.modes, u.Mode))
	}
	var jobs []testrun.Job
	for _, j := range s.tools(ctx, false) {
		if strings.Contains(j.Package, s.only) && (len(s.modes) == 0 || slices.Contains(s.modes, testplan.Tool)) {
			jobs = append(jobs, j)
		}
	}
	units := keep(r.Units, wanted)
	if len(s.modes) == 0 {
		units = slices.DeleteFunc(units, func(u testplan.Unit) bool { return u.Mode == testplan.Generators })
	}
	jobs = append(jobs, s.unitJobs(ctx, r, units, false)...)
	if len(jobs) == 0 {
		return []testrun.Job{{Name: "select tests", Do: func(context.Context) error {
			return fmt.Errorf("no package with tests of release %s has %q in its path, in the modes that were asked for", r.Release, s.only)
		}}}
	}
	for i := range jobs {
		if s.run != "" {
			jobs[i].Flags = append(slices.Clone(jobs[i].Flags), "run="+s.run)
			jobs[i].Passed, jobs[i].Proof = nil, ""
		}
	}
	return jobs
}

// repeated are recorded results that CI does not believe: a twentieth of all, chosen by the
// commit, and those that once needed a second try. The twentieth is of one release, which the
// commit chooses, too: the trees of all would have to be compiled for it.
func (s *testSession) repeated(ctx context.Context) []testrun.Job {
	if !isCI() {
		return nil
	}
	commit, err := git.Dir(s.repo).Run(ctx, "rev-parse", "HEAD")
	if err != nil {
		return []testrun.Job{{Name: "find the commit", Do: func(context.Context) error { return err }}}
	}
	var jobs []testrun.Job
	for i, r := range s.releases {
		chosen := int(pick(commit, "release")%uint32(len(s.releases))) == i
		units := keep(r.Units, func(u testplan.Unit) bool {
			l, passed := r.passed(u, false)
			switch {
			case !passed || u.Mode == testplan.Cluster || u.Mode == testplan.Generators:
				return false
			case l.Reruns > 0 && l.Mode == u.Mode:
				return true
			}
			return chosen && pick(commit, u.Name())%100 < uint32(repeatedPercent*len(s.releases))
		})
		jobs = append(jobs, s.unitJobs(ctx, r, units, true)...)
	}
	return jobs
}

// repeatedPercent is how many of a hundred recorded results a run of CI repeats.
const repeatedPercent = 5

// pick is a number that depends on the commit and on a name, and on nothing else.
func pick(commit, name string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(commit + " " + name))
	return h.Sum32()
}

// unitJobs runs units of a release: integration tests first, which wait most; then those that
// share binaries, beside each other. What they need is built before.
func (s *testSession) unitJobs(ctx context.Context, r *releaseTests, units []testplan.Unit, repeat bool) []testrun.Job {
	rank := func(u testplan.Unit) int {
		// The two ways to run a package come one after the other: they share the binary.
		order := map[string]int{
			testplan.Integration: 1, testplan.IntegrationGatesOn: 1, testplan.Cluster: 2, testplan.Race: 3, testplan.UnitTests: 4, testplan.GatesOn: 4,
			testplan.Generators: 5, testplan.Vet: 6,
		}
		return order[u.Whole()]
	}
	// The longest first, else it is alone at the end.
	longest := map[string]time.Duration{}
	for _, u := range units {
		longest[u.Path] = max(longest[u.Path], r.expected(u))
	}
	units = slices.Clone(units)
	slices.SortStableFunc(units, func(a, b testplan.Unit) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(longest[b.Path], longest[a.Path]), cmp.Compare(a.Path, b.Path))
	})
	var jobs []testrun.Job
	var vetted []testplan.Unit
	for _, u := range units {
		var j testrun.Job
		switch u.Whole() {
		case testplan.Vet:
			vetted = append(vetted, u)
			continue
		case testplan.Generators:
			j = s.job(u, nil, nil)
			j.Do = func(ctx context.Context) error { return checkGenerators(ctx, r.tree, u.Path) }
			j.Passed = func(o testrun.Outcome) { s.record(ctx, r.store, u, o, nil, r.Content) }
		case testplan.Cluster:
			jobs = append(jobs, s.clusterJobs(ctx, r, u)...)
			continue
		default:
			_, env := r.place(u)
			if isIntegration(u) {
				if !slices.ContainsFunc(jobs, func(j testrun.Job) bool { return j.Name == etcdJob }) {
					jobs = append(jobs, testrun.Job{Name: etcdJob, Do: func(ctx context.Context) error {
						return tools.Build(ctx, s.repo, []string{"etcd"}, s.log)
					}})
				}
				// Tests put the data of etcd there, and its socket, whose path must be short.
				env = append(env, "PATH="+tools.Dir(s.repo)+string(filepath.ListSeparator)+os.Getenv("PATH"), "TMPDIR="+s.temp)
			}
			j = s.job(u, r.Build(u), env)
			if isIntegration(u) {
				j.Lane = testrun.Waiting
			}
			j.Passed = func(o testrun.Outcome) { s.record(ctx, r.store, u, o, env, r.Content) }
		}
		j.Expected = r.expected(u)
		if repeat {
			j.Failed = func() { s.condemn(r.store, u) }
		}
		jobs = append(jobs, j)
	}
	if len(vetted) > 0 {
		jobs = append(jobs, s.vet(ctx, r, vetted))
	}
	return jobs
}

const etcdJob = "build etcd"

// job is what all jobs of units have.
func (s *testSession) job(u testplan.Unit, build *testrun.Build, env []string) testrun.Job {
	repeat := "hack/carry.sh test"
	if u.Release != "" {
		repeat += " --release " + u.Release
	}
	repeat += fmt.Sprintf(" --mode %s --only %s%%s", u.Whole(), strings.TrimPrefix(u.Path, "k8s.io/kubernetes/"))
	return testrun.Job{
		Name: u.Name(), Package: u.Path, Dir: u.Dir, Build: build, Env: env,
		Tests: u.Tests, Own: u.Target.Own, Only: u.Only, Skip: u.Skip, Proof: u.Proof, Flags: u.Flags, Repeat: repeat,
	}
}

// vet vets packages with one go command, which compiles most of what tests need, too.
func (s *testSession) vet(ctx context.Context, r *releaseTests, units []testplan.Unit) testrun.Job {
	j := testrun.Job{
		Name: fmt.Sprintf("%s vet of %d packages", r.Release, len(units)), Expected: time.Duration(len(units)) * testplan.Guess(testplan.Vet),
		Repeat: fmt.Sprintf("hack/carry.sh test --release %s --mode vet", r.Release),
	}
	j.Do = func(ctx context.Context) error {
		args := append([]string{"-n", "5", "go", "vet"}, r.Build(units[0]).Flags...)
		for _, u := range units {
			args = append(args, u.Path)
		}
		return sys.Run(ctx, sys.Command(ctx, r.Tree, r.Env, "nice", args...))
	}
	j.Passed = func(testrun.Outcome) {
		for _, u := range units {
			s.record(ctx, r.store, u, testrun.Outcome{Passed: 1}, nil, r.Content)
		}
	}
	return j
}

// clusterJobs build the binaries of the release, and test them in clusters.
func (s *testSession) clusterJobs(ctx context.Context, r *releaseTests, u testplan.Unit) []testrun.Job {
	built := errors.New("the binaries were not built")
	build := testrun.Job{
		Name: r.Release + " build", Repeat: "make build RELEASE=" + r.Release,
		Do: func(ctx context.Context) error {
			// What a real node needs is built when the cluster starts, which installs its library first.
			built = errors.Join(subcommand(ctx, "build", "--release", r.Release), tools.Build(ctx, s.repo, tools.ControlPlane, s.log))
			return built
		},
	}
	_, env := r.place(u)
	j := s.job(u, s.root.Build, env)
	j.Lane, j.Expected = testrun.Apart, r.expected(u)
	j.Ready = func() error { return built }
	done := func() {
		// A test that is killed cannot do it.
		if err := downTestClusters(context.WithoutCancel(ctx), r.tree.Output); err != nil {
			s.log("taking down the clusters of tests: %v", err)
		}
	}
	j.Failed = done
	j.Passed = func(o testrun.Outcome) {
		done()
		s.record(ctx, r.store, u, o, env, r.Content, s.root.Content)
		if u.IsOwn() {
			whole := u
			whole.Mode = testplan.Cluster
			whole.Key = r.Units[slices.IndexFunc(r.Units, func(w testplan.Unit) bool { return w.Mode == testplan.Cluster })].Key
			s.record(ctx, r.store, whole, o, env, r.Content, s.root.Content)
		}
	}
	return []testrun.Job{build, j}
}

// record writes down that a unit passed. The first of the work trees is that in which its tests
// ran, if it has a log.
func (s *testSession) record(ctx context.Context, store *results.Store, u testplan.Unit, o testrun.Outcome, env []string, contents ...*results.Content) {
	l := results.Line{
		Mode: u.Mode, Package: u.Path, Key: u.Key,
		Passed: o.Passed, Skipped: o.Skipped, Seconds: int(o.Elapsed.Seconds()), Reruns: o.Reruns,
	}
	if env != nil {
		content := contents[len(contents)-1]
		alias := filepath.Join(filepath.Dir(content.Dir), "src", "k8s.io", "kubernetes")
		reads, err := content.Log(strings.NewReader(string(o.Log)), u.Dir, alias)
		if err == nil && len(o.Log) == 0 {
			err = errors.New("the tests did not say what they read")
		}
		if err != nil {
			s.log("%s is not recorded: %v", u.Name(), err)
			return
		}
		l.Reads, l.ReadsSum = reads, content.ReadsSum(reads, env)
	}
	if err := s.recorder.Add(context.WithoutCancel(ctx), store, l, contents...); err != nil {
		s.log("%s is not recorded: %v", u.Name(), err)
	}
}

// condemn says that a recorded result is wrong.
func (s *testSession) condemn(store *results.Store, u testplan.Unit) {
	s.condemned = append(s.condemned, u.Name())
	if err := store.Condemn(u.Mode, u.Path, u.Key); err != nil {
		s.log("%s: %v", u.Name(), err)
	}
}

// subcommand runs another command of this program.
func subcommand(ctx context.Context, name string, args ...string) error {
	for _, c := range commands {
		if c.name == name {
			return c.run(ctx, args)
		}
	}
	return fmt.Errorf("there is no command %q", name)
}
