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

package docs

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"kubernetes-dra/hack/pkg/tree/ledger"
)

// Facts are what documents say again although the ledger knows it. A document that should
// say one has the comment "ledger: <name>" in the same line:
//
//	It is <!-- ledger: default of DRAAdminAccess --> off in 1.32 and 1.33.
//
// Versions of carried releases and defaults in tables of gates need no comment.
type Facts struct {
	// texts are the words that have to be there, by name.
	texts map[string]string
	// versions are those of the carried releases, by minor release.
	versions map[string]string
	// stamp is what the carry adds to a version, without the character before it.
	stamp string
}

// NewFacts collects what the ledger knows.
func NewFacts(l *ledger.Ledger) *Facts {
	f := &Facts{versions: map[string]string{}, stamp: fmt.Sprintf("dra.%d", l.Revision)}
	carried := l.Carried()
	where := func(holds func(*ledger.Release) bool) string { return span(carried, holds) }
	f.texts = map[string]string{
		"all releases":       where(func(*ledger.Release) bool { return true }),
		"number of releases": number(len(carried)),
		"releases with gates": where(func(r *ledger.Release) bool {
			return len(r.Gates) > 0
		}),
		"releases with runtimeConfig": where(func(r *ledger.Release) bool {
			return len(r.RuntimeConfig) > 0
		}),
		"releases with ignoredPreflightErrors": where(func(r *ledger.Release) bool {
			return len(r.IgnoredPreflightErrors) > 0
		}),
	}
	for _, r := range carried {
		f.versions[r.Name] = r.Version
	}
	if r, err := l.Default(); err == nil {
		f.texts["default release"] = r.Name
	}
	for i := range l.Features {
		feature := &l.Features[i]
		for _, gate := range feature.Gates {
			d := feature.Defaults[gate]
			off := where(func(r *ledger.Release) bool { return !d.OnIn(r.Name) })
			text := "off"
			switch {
			case off == "":
				text = "on"
			case d.Since != "":
				text = "off in " + off + ", on since " + d.Since
			}
			if d.Locked != "" {
				text += ", locked on since " + d.Locked
			}
			f.texts["default of "+gate] = text
			f.texts["releases with "+gate+" off"] = off
		}
		for _, c := range feature.Carries {
			f.texts["releases of "+c.Name] = where(func(r *ledger.Release) bool {
				return slices.ContainsFunc(feature.CarriesOf(r.Name), func(x ledger.Carry) bool { return x.Name == c.Name })
			})
		}
	}
	return f
}

// span names releases as documents do: "1.32", "1.32 and 1.33", "1.32 to 1.35".
func span(releases []*ledger.Release, holds func(*ledger.Release) bool) string {
	var parts []string
	for i := 0; i < len(releases); i++ {
		first := i
		for i < len(releases) && holds(releases[i]) {
			i++
		}
		switch n := i - first; {
		case n == 1 || n == 2:
			for _, r := range releases[first:i] {
				parts = append(parts, r.Name)
			}
		case n > 2:
			parts = append(parts, releases[first].Name+" to "+releases[i-1].Name)
		}
	}
	if len(parts) < 2 {
		return strings.Join(parts, "")
	}
	return strings.Join(parts[:len(parts)-1], ", ") + " and " + parts[len(parts)-1]
}

func number(n int) string {
	words := []string{"no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"}
	if n < len(words) {
		return words[n]
	}
	return fmt.Sprint(n)
}

const (
	ledgerMark = "ledger: "
	// pastMark is for a version that stands for what was true with it.
	pastMark = "<!-- a past version -->"
)

var (
	marked   = regexp.MustCompile(`<!-- ` + ledgerMark + `(.*?) -->`)
	version  = regexp.MustCompile(`\b(v(1\.[0-9]+)\.[0-9]+)(?:[+_-](dra\.[0-9]+))?`)
	between  = regexp.MustCompile(`\b(1\.[0-9]+) to (1\.[0-9]+)\b`)
	gateCell = regexp.MustCompile("^\\| `(\\w+)`")
)

// check compares a document with the facts.
func (f *Facts) check(d *document) []error {
	var errs []error
	defaults, generated := false, false
	for i, line := range d.raw {
		fail := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("%s:%d: %w", d.name, i+1, fmt.Errorf(format, args...)))
		}
		said := comment.ReplaceAllString(line, "")
		for _, match := range marked.FindAllStringSubmatch(code.ReplaceAllString(line, ""), -1) {
			if text, ok := f.texts[match[1]]; !ok {
				fail("the ledger has nothing about %q: it has %s", match[1], strings.Join(slices.Sorted(maps.Keys(f.texts)), "; "))
			} else if !strings.Contains(said, text) {
				fail("%s: the ledger says %q, this line does not", match[1], text)
			}
		}
		switch {
		case begin.MatchString(line + "\n"):
			generated = true
		case strings.HasPrefix(line, "<!-- END "):
			generated = false
		}
		if generated || strings.Contains(line, pastMark) {
			continue // written by another check, or about the past
		}
		for _, match := range version.FindAllStringSubmatch(line, -1) {
			want, carried := f.versions[match[2]]
			if carried && (match[1] != want || match[3] != "" && match[3] != f.stamp) {
				fail("%s: %s is carried, as %s+%s: write that, or %q in the line", match[0], match[2], want, f.stamp, pastMark)
			}
		}
		for _, match := range between.FindAllStringSubmatch(line, -1) {
			for _, end := range match[1:] {
				if f.versions[end] == "" {
					fail("%q: %s is not carried", match[0], end)
				}
			}
		}
		if !strings.HasPrefix(line, "|") {
			defaults = false
		} else if strings.HasSuffix(line, "| default |") {
			defaults = true
		}
		if gate := gateCell.FindStringSubmatch(line); defaults && gate != nil {
			text, ok := f.texts["default of "+gate[1]]
			if ok && !strings.HasSuffix(line, "| "+text+" |") {
				fail("default of %s: the ledger says %q", gate[1], text)
			}
		}
	}
	return errs
}
