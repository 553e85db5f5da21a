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
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"time"
)

// tailLines is how much of the output of each test is kept in memory for the
// summary. The log has everything.
const tailLines = 80

// event is one line of "go test -json", see "go doc test2json".
type event struct {
	Action      string
	Package     string
	ImportPath  string
	Test        string
	Elapsed     float64
	Output      string
	FailedBuild string
}

// status is the outcome of one test or of one package. It is empty
// while the test runs, and remains so if its process died first.
type status string

const (
	unfinished status = ""
	passed     status = "pass"
	failed     status = "fail"
	skipped    status = "skip"
)

// tail keeps the last lines that were added to it.
type tail []string

func (t *tail) add(line string) {
	*t = append(*t, strings.TrimRight(line, "\n"))
	if len(*t) > 2*tailLines {
		*t = slices.Clone((*t)[len(*t)-tailLines:])
	}
}

func (t tail) last(n int) []string {
	return t[max(0, len(t)-n):]
}

// testResult is the outcome of one test function or sub-test.
type testResult struct {
	name   string
	status status
	output tail
}

// packageResult is the outcome of the tests of one package.
type packageResult struct {
	path        string
	status      status
	cached      bool
	failedBuild string
	elapsed     time.Duration
	tests       map[string]*testResult
	order       []string
	output      tail
}

func newPackageResult(path string) *packageResult {
	return &packageResult{path: path, tests: map[string]*testResult{}}
}

func (p *packageResult) test(name string) *testResult {
	t := p.tests[name]
	if t == nil {
		t = &testResult{name: name}
		p.tests[name] = t
		p.order = append(p.order, name)
	}
	return t
}

// failures returns the tests which failed or were cut off, each only if
// none of its sub-tests explains it.
func (p *packageResult) failures() []*testResult {
	var bad []*testResult
	for _, name := range p.order {
		if t := p.tests[name]; t.status == failed || t.status == unfinished {
			bad = append(bad, t)
		}
	}
	return slices.DeleteFunc(slices.Clone(bad), func(t *testResult) bool {
		return slices.ContainsFunc(bad, func(sub *testResult) bool {
			return strings.HasPrefix(sub.name, t.name+"/")
		})
	})
}

// topLevel returns the name of the test function that a sub-test belongs to.
func topLevel(test string) string {
	name, _, _ := strings.Cut(test, "/")
	return name
}

// results collects the outcome of one invocation of "go test".
type results struct {
	packages map[string]*packageResult
	order    []string
	// builds has the output of the compiler for each package that could
	// not be built.
	builds map[string]*tail
	// ended, if it is set, gets called for each test that has an outcome.
	ended func(*testResult)
}

func newResults() *results {
	return &results{packages: map[string]*packageResult{}, builds: map[string]*tail{}}
}

func (r *results) pkg(path string) *packageResult {
	p := r.packages[path]
	if p == nil {
		p = newPackageResult(path)
		r.packages[path] = p
		r.order = append(r.order, path)
	}
	return p
}

func (r *results) build(path string) *tail {
	b := r.builds[path]
	if b == nil {
		b = &tail{}
		r.builds[path] = b
	}
	return b
}

// read consumes a stream of events. Everything that tests print goes to
// log, and done gets called for each package that is finished. Lines that are
// no event come from the go command itself or from a process that wrote
// past the test log: they are kept as output of no package.
func (r *results) read(in io.Reader, log func(pkg, text string), done func(*packageResult)) error {
	reader := bufio.NewReaderSize(in, 1<<16)
	for {
		line, err := reader.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil || e.Action == "" {
				log("", string(line))
			} else {
				r.add(e, log, done)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Test is what came of a test function or a sub-test.
type Test struct {
	Name string
	// Status is pass, fail or skip. It is empty if the process ended first.
	Status string
	// Output has its last lines.
	Output []string
}

// Read reads what test2json says about one package, in the order in which the tests began. All that
// they print goes to log, and ended gets called for each when it ends.
func Read(in io.Reader, log io.Writer, ended func(Test)) ([]Test, error) {
	var logErr error
	r := newResults()
	r.ended = func(t *testResult) { ended(t.test()) }
	err := r.read(in, func(_, text string) {
		if _, err := io.WriteString(log, text); err != nil {
			logErr = err
		}
	}, func(*packageResult) {})
	var tests []Test
	for _, path := range r.order {
		for _, name := range r.packages[path].order {
			tests = append(tests, r.packages[path].tests[name].test())
		}
	}
	return tests, errors.Join(err, logErr)
}

func (t *testResult) test() Test {
	return Test{Name: t.name, Status: string(t.status), Output: t.output.last(tailLines)}
}

func (r *results) add(e event, log func(pkg, text string), done func(*packageResult)) {
	switch e.Action {
	case "build-output":
		r.build(e.ImportPath).add(e.Output)
		log("", e.Output)
		return
	case "build-fail":
		return
	}
	p := r.pkg(e.Package)
	switch e.Action {
	case "output":
		log(e.Package, e.Output)
		if e.Test != "" {
			p.test(e.Test).output.add(e.Output)
			return
		}
		if strings.HasPrefix(e.Output, "ok ") && strings.Contains(e.Output, "\t(cached)") {
			p.cached = true
		}
		p.output.add(e.Output)
	case "run":
		p.test(e.Test)
	case "pass", "fail", "skip":
		if e.Test != "" {
			t := p.test(e.Test)
			t.status = status(e.Action)
			if r.ended != nil {
				r.ended(t)
			}
			return
		}
		p.status = status(e.Action)
		p.failedBuild = e.FailedBuild
		p.elapsed = time.Duration(e.Elapsed * float64(time.Second))
		done(p)
	}
}
