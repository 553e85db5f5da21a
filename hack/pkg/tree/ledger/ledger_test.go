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

package ledger

import (
	"os"
	"strings"
	"testing"
)

const valid = `
revision: 2
releases:
- {name: "1.9", version: v1.9.1, state: planned, gates: [Base]}
- {name: "1.36", version: v1.36.3, state: carried, released: "2026-07-22T18:07:38Z"}
- {name: "1.37", version: v1.37.0, state: planned}
features:
- {slug: one, title: t, state: carried, gates: [Feature], releases: {"1.9": part, "1.36": carried, "1.37": base}, why: w, upstream: u, dropWhen: d}
- {slug: two, title: t, state: planned, releases: {"1.36": carried}, why: w, upstream: u, dropWhen: d}
`

func TestParse(t *testing.T) {
	l, err := Parse([]byte(valid))
	if err != nil {
		t.Fatal(err)
	}
	r, err := l.Default()
	if err != nil || r.Name != "1.36" {
		t.Errorf("default: %v, %v", r, err)
	}
	if got := l.Stamp(r); got != "v1.36.3+dra.2" {
		t.Errorf("stamp %s", got)
	}
	if fs := l.FeaturesOf("1.36"); len(fs) != 1 || fs[0].Slug != "one" {
		t.Errorf("features of 1.36: %v", fs)
	}
	if fs := l.FeaturesOf("1.37"); len(fs) != 0 {
		t.Errorf("features of 1.37, which has them: %v", fs)
	}
	for release, want := range map[string]string{"1.9": "Base Feature", "1.36": "Feature", "1.37": ""} {
		if got := strings.Join(l.Gates(release), " "); got != want {
			t.Errorf("gates of %s: %q, want %q", release, got, want)
		}
	}
	for release, want := range map[string]string{"1.9": "planned", "1.8": "unknown release", "1.36.9": "give the minor: 1.36", "v1.36.9": "give the minor: 1.36"} {
		if _, err := l.Release(release); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("release %s: %v", release, err)
		}
	}
}

// A feature with one gate that is off needs all of them set.
func TestGatesToSet(t *testing.T) {
	f := &Feature{Gates: []string{"A", "B"}, Defaults: map[string]GateDefault{"A": {Since: "1.33", Locked: "1.37"}, "B": {Since: "1.36"}}}
	for release, want := range map[string]int{"1.32": 2, "1.35": 2, "1.36": 0, "1.37": 0} {
		if got := f.GatesToSet(release); len(got) != want {
			t.Errorf("%s: got %v, want %d gates", release, got, want)
		}
	}
}

// What a test API server emulates by default must not turn the gates off.
func TestOldestEmulated(t *testing.T) {
	l := &Ledger{Releases: []Release{{Name: "1.32", Gates: []string{"A"}}, {Name: "1.33", Gates: []string{"A"}}, {Name: "1.34"}, {Name: "1.36"}}}
	for i, want := range []string{"1.32", "1.33", "1.34", "1.34"} {
		if got := l.OldestEmulated(&l.Releases[i]); got != want {
			t.Errorf("%s: want %s, got %s", l.Releases[i].Name, want, got)
		}
	}
}

func TestDefault(t *testing.T) {
	two := strings.Replace(valid, "v1.37.0, state: planned", "v1.37.0, state: carried, released: \"2026-07-22T18:07:38Z\"", 1)
	for ledger, want := range map[string]string{two: "1.37", "default: \"1.36\"" + two: "1.36"} {
		l, err := Parse([]byte(ledger))
		if err != nil {
			t.Fatal(err)
		}
		newest, err := l.Newest()
		if err != nil || newest.Name != "1.37" {
			t.Errorf("newest: got %v, %v", newest, err)
		}
		if r, err := l.Default(); err != nil || r.Name != want {
			t.Errorf("default: want %s, got %v, %v", want, r, err)
		}
	}
}

func TestStandIns(t *testing.T) {
	l, err := Parse([]byte(strings.Replace(valid, "v1.36.3,", "v1.36.3, standIns: [{module: k8s.io/a, version: v0.36.2, why: w}],", 1)))
	if err != nil {
		t.Fatal(err)
	}
	r, err := l.Release("1.36")
	if err != nil {
		t.Fatal(err)
	}
	for module, want := range map[string]string{"k8s.io/a": "v0.36.2", "k8s.io/b": "v0.36.3"} {
		if got := r.ModuleVersion(module); got != want {
			t.Errorf("%s: got %s, want %s", module, got, want)
		}
	}
}

func TestCarriesOf(t *testing.T) {
	f := Feature{
		State:    Carried,
		Releases: map[string]string{"1.9": "carried", "1.36": "carried", "1.37": InBase},
		Carries:  []Carry{{Name: "a"}, {Name: "b", Releases: []string{"1.36"}}, {Name: "c", Releases: []string{"1.9"}}},
	}
	for release, want := range map[string]string{"1.9": "ac", "1.36": "ab", "1.37": "", "1.38": ""} {
		got := ""
		for _, c := range f.CarriesOf(release) {
			got += c.Name
		}
		if got != want {
			t.Errorf("carries of %s: got %q, want %q", release, got, want)
		}
	}
}

// The ledger of this repository.
func TestLoad(t *testing.T) {
	if _, err := os.Stat("../../../../" + Path); err != nil {
		t.Fatal(err)
	}
	if _, err := Load("../../../.."); err != nil {
		t.Error(err)
	}
	if _, err := Load(t.TempDir()); err == nil {
		t.Error("no error without a ledger")
	}
}

func TestDrop(t *testing.T) {
	releases := map[string]string{"1.32": "carried", "1.36": "carried"}
	feature := func(slug string, needs ...Need) Feature {
		return Feature{Slug: slug, State: Carried, Releases: releases, Needs: needs}
	}
	l := &Ledger{Features: []Feature{
		feature("a"), feature("b", Need{Slug: "a"}), feature("c"), feature("d", Need{Slug: "b"}, Need{Slug: "c", Releases: []string{"1.32"}}),
	}}
	for _, tt := range []struct{ slug, release, dropped, left string }{
		{"a", "1.36", "a b d", "c"},
		{"b", "1.36", "b d", "a c"},
		{"c", "1.36", "c", "a b d"},
		{"c", "1.32", "c d", "a b"},
		{"d", "1.32", "d", "a b c"},
	} {
		without, dropped := l.Drop(tt.slug, tt.release)
		var left []string
		for _, f := range without.FeaturesOf(tt.release) {
			left = append(left, f.Slug)
		}
		if strings.Join(dropped, " ") != tt.dropped || strings.Join(left, " ") != tt.left {
			t.Errorf("%s in %s: dropped %q, left %q", tt.slug, tt.release, dropped, left)
		}
		if got := len(l.FeaturesOf(tt.release)); got != 4 {
			t.Errorf("the ledger itself has %d features now", got)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for name, tt := range map[string]struct{ from, to, want string }{
		"default of no gate":     {"gates: [Feature]", `gates: [Feature], defaults: {Other: {since: "1.36"}}`, `it has no gate "Other"`},
		"default never":          {"gates: [Feature]", `gates: [Feature], defaults: {Feature: {locked: "1.36"}}`, "gate Feature: since and locked must be"},
		"locked before it is on": {"gates: [Feature]", `gates: [Feature], defaults: {Feature: {since: "1.37", locked: "1.36"}}`, "gate Feature: since and locked must be"},
		"unknown field":          {"revision: 2", "revision: 2\ncary: 2", `unknown field "cary"`},
		"default is planned":     {"revision: 2", "revision: 2\ndefault: \"1.37\"", `default "1.37": it must be a release that is carried`},
		"no revision":            {"revision: 2", "revision: 0", "revision must be 1 or more"},
		"release name":           {`"1.9"`, `"v1.9"`, `release "v1.9": name is not like 1.36`},
		"order":                  {`"1.9", version: v1.9.1`, `"1.40", version: v1.40.1`, "oldest first"},
		"twice":                  {`"1.37", version: v1.37.0`, `"1.36", version: v1.36.0`, "listed once"},
		"version":                {"v1.36.3", "v1.35.3", `version "v1.35.3" is not a version of it`},
		"state":                  {"v1.9.1, state: planned", "v1.9.1, state: soon", `state must be "carried" or "planned", not "soon"`},
		"date missing":           {`, released: "2026-07-22T18:07:38Z"`, "", "released must be a time"},
		"date wrong":             {"2026-07-22T18:07:38Z", "yesterday", "released must be a time"},
		"imports":                {"v1.9.1,", "v1.9.1, imports: {a: a},", `import "a" cannot stand for "a"`},
		"fails, no reason":       {"v1.9.1,", "v1.9.1, failsWithGates: [{dir: d, test: t}],", "failsWithGates: dir, test and why are all needed"},
		"stand-in of nothing":    {"v1.9.1,", "v1.9.1, standIns: [{version: v0.9.0, why: w}],", "module, version and why are all needed"},
		"stand-in, no reason":    {"v1.9.1,", "v1.9.1, standIns: [{module: m, version: v0.9.0}],", "stand-in for m: module, version and why are all needed"},
		"stand-in, no version":   {"v1.9.1,", "v1.9.1, standIns: [{module: m, why: w}],", `version "" is not one of v0.9`},
		"stand-in of another":    {"v1.9.1,", "v1.9.1, standIns: [{module: m, version: v0.10.0, why: w}],", `version "v0.10.0" is not one of v0.9`},
		"stand-in of itself":     {"v1.9.1,", "v1.9.1, standIns: [{module: m, version: v0.9.1, why: w}],", "v0.9.1 is the version of the release itself: remove the stand-in"},
		"stand-in twice":         {"v1.9.1,", "v1.9.1, standIns: [{module: m, version: v0.9.0, why: w}, {module: m, version: v0.9.2, why: w}],", "stand-in for m: it is listed twice"},
		"stand-in and missing":   {"v1.9.1,", "v1.9.1, missingModules: [m], standIns: [{module: m, version: v0.9.0, why: w}],", "it is one of missingModules, too"},
		"slug":                   {"slug: one", "slug: One-1", "lower case letters and digits"},
		"feature twice":          {"slug: two", "slug: one", `feature "one": listed twice`},
		"needs what is later":    {"slug: one, ", "slug: one, needs: [{slug: two, why: w}], ", `feature "one": needs "two": it has to be listed before`},
		"needs without reason":   {"slug: two, ", "slug: two, needs: [{slug: one}], ", `feature "two": needs "one": it has to be listed before, and why is needed`},
		"needs in a release":     {"slug: two, ", `slug: two, needs: [{slug: one, why: w, releases: ["1.8"]}], `, `feature "two": needs "one": the ledger has no release "1.8"`},
		"title missing":          {"title: t", "title: ''", "title is missing"},
		"long title":             {"title: t", `title: "a\nb"`, "more than one line"},
		"why missing":            {"why: w, ", "", "why is missing"},
		"no drop condition":      {", dropWhen: d", "", "dropWhen is missing"},
		"no releases":            {`releases: {"1.9": part, "1.36": carried, "1.37": base}`, "releases: {}", "no releases"},
		"release of a feature":   {`"1.37": base`, `"1.38": base`, `the ledger has no release "1.38"`},
		"nothing carried":        {`"1.37": base`, `"1.37": ""`, "what is carried?"},
		"pattern":                {"dropWhen: d}", "dropWhen: d, files: ['[']}", "syntax error in pattern"},
		"test without reason":    {"dropWhen: d}", "dropWhen: d, tests: [{path: a_test.go}]}", "path and why are both needed"},
		"carry without test":     {"dropWhen: d}", "dropWhen: d, carries: [{name: n, why: w, upstream: u, dropWhen: d}]}", "are all needed"},
		"release of a carry":     {"dropWhen: d}", `dropWhen: d, carries: [{name: c, why: w, upstream: u, dropWhen: d, tests: [t], releases: ["1.5"]}]}`, `carry "c": the feature is not carried in release "1.5"`},
		"carry in base":          {"dropWhen: d}", `dropWhen: d, carries: [{name: c, why: w, upstream: u, dropWhen: d, tests: [t], releases: ["1.37"]}]}`, `carry "c": the feature is not carried in release "1.37"`},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(valid, tt.from, tt.to, 1)
			if text == valid {
				t.Fatal("the test changes nothing")
			}
			if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestRange(t *testing.T) {
	for text, tt := range map[string]struct{ in, out []string }{
		"1.32":      {[]string{"1.32"}, []string{"1.31", "1.33", "1.3"}},
		"1.9-1.33":  {[]string{"1.9", "1.10", "1.32", "1.33"}, []string{"1.8", "1.34", "2.0"}},
		"1.33-1.34": {[]string{"1.33", "1.34"}, []string{"1.32", "1.35"}},
		"1.34+":     {[]string{"1.34", "1.35", "1.100", "2.0"}, []string{"1.33", "1.4"}},
	} {
		r, err := ParseRange(text)
		if err != nil {
			t.Fatal(err)
		}
		if r.String() != text {
			t.Errorf("%s is printed as %s", text, r)
		}
		for _, release := range tt.in {
			if !r.Contains(release) {
				t.Errorf("%s does not contain %s", text, release)
			}
		}
		for _, release := range tt.out {
			if r.Contains(release) {
				t.Errorf("%s contains %s", text, release)
			}
		}
	}
	for _, text := range []string{"", "1", "v1.32", "1.32-", "-1.32", "1.32-1.32", "1.33-1.32", "1.32-1.33-1.34", "+", "1+", "1.32++", "1.32-1.33+", "1.32+1.33"} {
		if r, err := ParseRange(text); err == nil {
			t.Errorf("%q is read as %v", text, r)
		}
	}
}
