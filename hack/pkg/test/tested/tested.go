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

// Package tested reads and writes what a whole run of a release's tests found, and on which
// tree: hack/releases/<name>/tested.yaml.
package tested

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"kubernetes-dra/hack/pkg/sys"
	"kubernetes-dra/hack/pkg/test/testrun"
	"kubernetes-dra/hack/pkg/tree/ledger"
	"kubernetes-dra/hack/pkg/tree/upstream"
)

// Record is the content of the file.
type Record struct {
	// Version is that of the untouched release, like v1.36.3.
	Version string `json:"version"`
	// Tree is the git tree object of the files that were tested.
	Tree string `json:"tree"`
	// Date is the day on which the tests ended.
	Date string `json:"date"`
	// Count has the totals.
	testrun.Count
	// Steps are what the totals consist of.
	Steps []testrun.Count `json:"steps"`
}

// File is where the record of a release stands in the repository.
func File(release string) string { return path.Join(upstream.PinDir(release), upstream.TestedFile) }

// Write replaces the record of a release.
func Write(repo, release string, r *Record) error {
	if err := r.validate(release); err != nil {
		return fmt.Errorf("%s: %w", File(release), err)
	}
	content, err := yaml.Marshal(r)
	if err != nil {
		return err
	}
	comment := fmt.Sprintf("# Written by \"make test RELEASE=%s\" after all tests of the release passed. Do not edit.\n", release)
	return sys.WriteFile(filepath.Join(repo, filepath.FromSlash(File(release))), append([]byte(comment), content...), 0o644)
}

// Load reads the record of a release. It is nil if there is none.
func Load(repo, release string) (*Record, error) {
	content, err := os.ReadFile(filepath.Join(repo, filepath.FromSlash(File(release))))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	r := &Record{}
	if err = yaml.UnmarshalStrict(content, r); err == nil {
		err = r.validate(release)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w; remove it, and run \"make test RELEASE=%s\"", File(release), err, release)
	}
	return r, nil
}

var treeObject = regexp.MustCompile(`^[0-9a-f]{40}$`)

func (r *Record) validate(release string) error {
	if !strings.HasPrefix(r.Version, "v"+release+".") {
		return fmt.Errorf("version %q is not one of release %s", r.Version, release)
	}
	if !treeObject.MatchString(r.Tree) {
		return fmt.Errorf("tree %q is no git tree object", r.Tree)
	}
	if _, err := time.Parse(time.DateOnly, r.Date); err != nil {
		return fmt.Errorf("date: %w", err)
	}
	if r.Passed <= 0 || r.Failed != 0 || r.Skipped < 0 {
		return fmt.Errorf("%d passed, %d failed, %d skipped: that is not what a run has in which all passed", r.Passed, r.Failed, r.Skipped)
	}
	return nil
}

// String says when what passed.
func (r *Record) String() string {
	return fmt.Sprintf("%s: %d passed, %d skipped, %s with tree %s", r.Date, r.Passed, r.Skipped, r.Version, r.Tree)
}

// Matches returns nil if the record is about a version and a tree, and else what differs.
// A nil record is about none.
func (r *Record) Matches(version, tree string) error {
	switch {
	case r == nil:
		return fmt.Errorf("no whole run of its tests was recorded; the tree is %s", tree)
	case r.Version != version:
		return fmt.Errorf("the version is %s, and the tested one is another (%s)", version, r)
	case r.Tree != tree:
		return fmt.Errorf("the tree is %s, and the tested one is another (%s)", tree, r)
	}
	return nil
}

// Table shows the records of releases, in Markdown.
func Table(repo string, releases []*ledger.Release) (string, error) {
	var b strings.Builder
	b.WriteString("| release | tested | version | tree | passed | skipped |\n|---|---|---|---|---:|---:|\n")
	for _, release := range releases {
		r, err := Load(repo, release.Name)
		switch {
		case err != nil:
			return "", err
		case r == nil:
			fmt.Fprintf(&b, "| %s | not yet | – | – | – | – |\n", release.Name)
		default:
			fmt.Fprintf(&b, "| %s | %s | %s | `%.12s` | %d | %d |\n", release.Name, r.Date, r.Version, r.Tree, r.Passed, r.Skipped)
		}
	}
	return b.String(), nil
}
