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
	"io"

	"gotest.tools/gotestsum/testjson"
)

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
	r := &reader{log: log, ended: ended, at: map[string]int{}}
	_, err := testjson.ScanTestOutput(testjson.ScanConfig{Stdout: in, Handler: r, IgnoreNonJSONOutputLines: true})
	return r.tests, err
}

type reader struct {
	log   io.Writer
	ended func(Test)
	tests []Test
	at    map[string]int
}

func (r *reader) Event(e testjson.TestEvent, _ *testjson.Execution) error {
	if e.Test != "" && e.Elapsed >= 0 { // negative: the process ended first
		i, known := r.at[e.Test]
		if !known {
			i = len(r.tests)
			r.at[e.Test] = i
			r.tests = append(r.tests, Test{Name: e.Test})
		}
		t := &r.tests[i]
		switch {
		case e.Action == testjson.ActionOutput:
			t.Output = last(append(t.Output, e.Output))
		case e.Action.IsTerminal():
			t.Status = string(e.Action)
			r.ended(*t)
		}
	}
	if e.Action != testjson.ActionOutput {
		return nil
	}
	_, err := io.WriteString(r.log, e.Output)
	return err
}

func (r *reader) Err(text string) error {
	_, err := io.WriteString(r.log, text+"\n")
	return err
}
