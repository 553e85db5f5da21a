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

// Package bugs reads hack/upstream-bugs.yaml: which bugs of upstream's Dynamic Resource
// Allocation each carried release has, and what became of them here.
package bugs

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
	"sigs.k8s.io/yaml"

	"kubernetes-dra/hack/pkg/tree/ledger"
)

const (
	// Path is where the file stands in the repository.
	Path = "hack/upstream-bugs.yaml"
	// fixes is the feature whose changes are cures of upstream's bugs: each has a row.
	fixes = "fixes"
)

// File is the content of the file.
type File struct {
	// Bugs in the order in which they are shown.
	Bugs []Bug `json:"bugs"`
}

// Bug is one of upstream.
type Bug struct {
	// Upstream are the numbers of issues and pull requests in kubernetes/kubernetes.
	// There may be none.
	Upstream []int `json:"upstream,omitempty"`
	// Component is the program which has the bug.
	Component string `json:"component"`
	// Symptom is what an operator sees.
	Symptom string `json:"symptom"`
	// Check says how the verdicts can be checked: a file of upstream, and a function in it.
	Check string `json:"check"`
	// Verdicts are for releases, or closed ranges of them like "1.32-1.34".
	Verdicts map[string]Verdict `json:"verdicts"`

	// of are the same for each carried release.
	of map[string]Verdict
}

// Verdict says what became of a bug. Exactly one field is set.
type Verdict struct {
	// Carried is the name of the change in the ledger.
	Carried string `json:"carried,omitempty"`
	// Upstream is "has it", or "since v1.36.2": the version that is carried has the cure.
	Upstream string `json:"upstream,omitempty"`
	// NotAffected says why the release does not have the bug.
	NotAffected string `json:"notAffected,omitempty"`
	// Refused says why the bug is left alone, and what can be done about it.
	Refused string `json:"refused,omitempty"`
}

// hasIt is the verdict that upstream has the cure, in whatever version it was.
const hasIt = "has it"

var since = regexp.MustCompile(`^since (v[0-9]+\.[0-9]+\.[0-9]+)$`)

// Load reads the file of the repository at root, and checks it with the ledger.
func Load(root string, l *ledger.Ledger) (*File, error) {
	data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(Path)))
	if err != nil {
		return nil, fmt.Errorf("reading upstream's bugs: %w", err)
	}
	f, err := Parse(data, l)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Path, err)
	}
	return f, nil
}

// Parse reads and checks such a file. Unknown fields are errors.
func Parse(data []byte, l *ledger.Ledger) (*File, error) {
	var f File
	if err := yaml.UnmarshalStrict(data, &f); err != nil {
		return nil, err
	}
	var errs []error
	rows := map[int]*Bug{}
	for i := range f.Bugs {
		b := &f.Bugs[i]
		if err := b.validate(l); err != nil {
			errs = append(errs, fmt.Errorf("bug %s: %w", b, err))
		}
		for _, n := range b.Upstream {
			if other := rows[n]; other != nil {
				errs = append(errs, fmt.Errorf("bug %s: %d is in the row of bug %s, too: make one of them", b, n, other))
			}
			rows[n] = b
		}
	}
	if err := errors.Join(append(errs, f.missing(l)...)...); err != nil {
		return nil, err
	}
	return &f, nil
}

// String names the bug in errors.
func (b *Bug) String() string {
	words := strings.Fields(b.Symptom)
	return fmt.Sprintf("%v %q", b.Upstream, strings.Join(words[:min(len(words), 6)], " "))
}

// validate checks one row: each carried release needs one verdict. A range without end would
// give one on releases that nobody has looked at.
func (b *Bug) validate(l *ledger.Ledger) error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for name, value := range map[string]string{"component": b.Component, "symptom": b.Symptom, "check": b.Check} {
		if strings.TrimSpace(value) == "" {
			fail("%s is missing", name)
		}
	}
	b.of = map[string]Verdict{}
	for _, key := range slices.Sorted(maps.Keys(b.Verdicts)) {
		in, err := ledger.ParseRange(key)
		for _, end := range []string{in.From, in.To} {
			if _, unknown := l.Release(end); err == nil && unknown != nil {
				err = fmt.Errorf("%q: want carried releases, the last one that was looked at, too: %w", key, unknown)
			}
		}
		if err != nil {
			fail("verdicts: %w", err)
			continue
		}
		for _, r := range l.Carried() {
			if !in.Contains(r.Name) {
				continue
			}
			if _, twice := b.of[r.Name]; twice {
				fail("release %s has two verdicts, one of them for %s: leave one", r.Name, key)
			}
			b.of[r.Name] = b.Verdicts[key]
			if err := b.of[r.Name].validate(l, r); err != nil {
				fail("verdict for %q, release %s: %w", key, r.Name, err)
			}
		}
	}
	for _, r := range l.Carried() {
		if _, ok := b.of[r.Name]; !ok {
			fail("release %s has no verdict: look at the code of %s (%s), and write carried, upstream, notAffected or refused", r.Name, r.Version, b.Check)
		}
	}
	return errors.Join(errs...)
}

// validate checks a verdict for a release.
func (v Verdict) validate(l *ledger.Ledger, r *ledger.Release) error {
	texts := slices.DeleteFunc([]string{v.Carried, v.Upstream, v.NotAffected, v.Refused}, func(text string) bool { return strings.TrimSpace(text) == "" })
	version := since.FindStringSubmatch(v.Upstream)
	switch {
	case len(texts) != 1:
		return errors.New("want one of carried, upstream, notAffected and refused, with text")
	case v.Carried != "" && !slices.ContainsFunc(l.FeaturesOf(r.Name), func(f *ledger.Feature) bool {
		return slices.ContainsFunc(f.CarriesOf(r.Name), func(c ledger.Carry) bool { return c.Name == v.Carried })
	}):
		return fmt.Errorf("carried: %s carries no change %q in %s", ledger.Path, v.Carried, r.Name)
	case v.Upstream == "" || v.Upstream == hasIt:
		return nil
	case version == nil:
		return fmt.Errorf("upstream: %q: want %q, or \"since %s\"", v.Upstream, hasIt, r.Version)
	case semver.MajorMinor(version[1]) != semver.MajorMinor(r.Version):
		return fmt.Errorf("upstream: %q: it is not a version of %s: give each release a verdict of its own", v.Upstream, r.Name)
	case semver.Compare(version[1], r.Version) > 0:
		return fmt.Errorf("upstream: %q: %s is carried, which does not have it: carry or refuse it until then", v.Upstream, r.Version)
	}
	return nil
}

// missing are errors for the cures that no row tells about.
func (f *File) missing(l *ledger.Ledger) []error {
	feature := l.Feature(fixes)
	if feature == nil {
		return nil
	}
	var errs []error
	for _, r := range l.Carried() {
		for _, c := range feature.CarriesOf(r.Name) {
			if !slices.ContainsFunc(f.Bugs, func(b Bug) bool { return b.of[r.Name].Carried == c.Name }) {
				errs = append(errs, fmt.Errorf("no bug has the verdict \"carried: %s\" for release %s, where %s carries that: add it to a row", c.Name, r.Name, ledger.Path))
			}
		}
	}
	return errs
}

// Table shows the bugs, in Markdown.
func (f *File) Table(l *ledger.Ledger) string {
	var b strings.Builder
	carried := l.Carried()
	b.WriteString("| what you see | upstream | component |")
	rule := "|---|---|---|"
	for _, r := range carried {
		fmt.Fprintf(&b, " %s |", r.Name)
		rule += "---|"
	}
	b.WriteString(" why | how to check |\n" + rule + "---|---|\n")
	for i := range f.Bugs {
		bug := &f.Bugs[i]
		fmt.Fprintf(&b, "| %s | %s | %s |", line(bug.Symptom), bug.links(), line(bug.Component))
		for _, r := range carried {
			fmt.Fprintf(&b, " %s |", bug.of[r.Name].word())
		}
		fmt.Fprintf(&b, " %s | %s |\n", cmp.Or(bug.why(), "–"), line(bug.Check))
	}
	return b.String()
}

// links lead to upstream's issues and pull requests. GitHub forwards from one to the other.
func (b *Bug) links() string {
	var links []string
	for _, n := range b.Upstream {
		links = append(links, fmt.Sprintf("[%d](https://github.com/kubernetes/kubernetes/issues/%[1]d)", n))
	}
	return cmp.Or(strings.Join(links, ", "), "none known")
}

// word is the verdict in a cell of the table.
func (v Verdict) word() string {
	switch {
	case v.Carried != "":
		return "**carried**"
	case v.Upstream == hasIt:
		return "fixed"
	case v.Upstream != "":
		return "fixed " + v.Upstream
	case v.NotAffected != "":
		return "not affected"
	default:
		return "refused"
	}
}

// why has the reasons, oldest release first.
func (b *Bug) why() string {
	var reasons []string
	for _, key := range slices.Sorted(maps.Keys(b.Verdicts)) {
		v := b.Verdicts[key]
		text := cmp.Or(v.NotAffected, v.Refused)
		if v.Carried != "" {
			text = "“" + v.Carried + "” in the ledger."
		}
		if text != "" {
			reasons = append(reasons, key+": "+line(text))
		}
	}
	return strings.Join(reasons, " ")
}

// line makes a text fit into a cell.
func line(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", "\\|")
}
