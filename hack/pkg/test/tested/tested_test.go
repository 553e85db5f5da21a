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

package tested

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kubernetes-dra/hack/pkg/test/testrun"
	"kubernetes-dra/hack/pkg/tree/ledger"
)

const (
	tree  = "0123456789abcdef0123456789abcdef01234567"
	other = "1123456789abcdef0123456789abcdef01234567"
	// content is what the file of record looks like.
	content = `# Written by "make test RELEASE=1.36" after all tests of the release passed. Do not edit.
date: "2026-11-22"
failed: 0
passed: 3
skipped: 1
steps:
- failed: 0
  name: verify
  passed: 1
  skipped: 0
- failed: 0
  name: unit
  passed: 2
  skipped: 1
tree: ` + tree + `
version: v1.36.3
`
)

var record = Record{
	Version: "v1.36.3", Tree: tree, Date: "2026-11-22", Count: testrun.Count{Passed: 3, Skipped: 1},
	Steps: []testrun.Count{{Name: "verify", Passed: 1}, {Name: "unit", Passed: 2, Skipped: 1}},
}

func TestWriteAndLoad(t *testing.T) {
	repo := t.TempDir()
	if r, err := Load(repo, "1.36"); r != nil || err != nil {
		t.Errorf("without a file: %v, %v", r, err)
	}
	if err := Write(repo, "1.36", &record); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(repo, "hack/releases/1.36/tested.yaml")
	if got, err := os.ReadFile(name); err != nil || string(got) != content {
		t.Errorf("%v, got:\n%s", err, got)
	}
	r, err := Load(repo, "1.36")
	if err != nil || r.String() != "2026-11-22: 3 passed, 1 skipped, v1.36.3 with tree "+tree || len(r.Steps) != 2 || r.Steps[1] != record.Steps[1] {
		t.Errorf("got %+v, %v", r, err)
	}
	table, err := Table(repo, []*ledger.Release{{Name: "1.34"}, {Name: "1.36"}})
	if want := "| 1.34 | not yet | – | – | – | – |\n| 1.36 | 2026-11-22 | v1.36.3 | `0123456789ab` | 3 | 1 |\n"; err != nil || !strings.HasSuffix(table, want) {
		t.Errorf("%v, got:\n%s", err, table)
	}

	failed := record
	failed.Failed = 1
	if err := Write(repo, "1.36", &failed); err == nil {
		t.Error("a failed run was written")
	}
	for change, want := range map[string]string{
		"version: v1.36.3>version: v1.35.3":         `version "v1.35.3" is not one of release 1.36`,
		"version: v1.36.3>version: v1.360.3":        "is not one of release 1.36",
		"tree: 0123>tree: 123":                      "is no git tree object",
		`date: "2026-11-22">date: yesterday`:        "date: ",
		"\npassed: 3>\npassed: 0":                   "0 passed",
		"failed: 0\npassed: 3>failed: 1\npassed: 3": "1 failed",
		"tree: >unknown: x\ntree: ":                 "unknown",
		"date: >}":                                  "yaml",
	} {
		from, to, _ := strings.Cut(change, ">")
		bad := strings.Replace(content, from, to, 1)
		if bad == content {
			t.Fatalf("there is no %q", from)
		}
		if err := os.WriteFile(name, []byte(bad), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := Load(repo, "1.36")
		_, tableErr := Table(repo, []*ledger.Release{{Name: "1.36"}})
		if err == nil || tableErr == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "hack/releases/1.36/tested.yaml: ") {
			t.Errorf("%s: got %v, %v, want %q", change, err, tableErr, want)
		}
	}
}

func TestMatches(t *testing.T) {
	if err := record.Matches("v1.36.3", tree); err != nil {
		t.Error(err)
	}
	for _, test := range []struct {
		record              *Record
		version, tree, want string
	}{
		{nil, "v1.36.3", tree, "no whole run of its tests was recorded"},
		{&record, "v1.36.4", tree, "the version is v1.36.4, and the tested one is another (2026-11-22: 3 passed, 1 skipped, v1.36.3 "},
		{&record, "v1.36.3", other, "the tree is " + other + ", and the tested one is another (2026-11-22: 3 passed, 1 skipped, v1.36.3 with tree " + tree},
	} {
		if err := test.record.Matches(test.version, test.tree); err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("got %v, want %q", err, test.want)
		}
	}
}
