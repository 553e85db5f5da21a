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

package overlay

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"kubernetes-dra/hack/pkg/tree/ledger"
)

// Amount is a number of overlay files, and of the lines in them.
type Amount struct {
	Files, Lines int
	// GoLines are the lines in Go files. Those of seams are not counted: they are
	// upstream's for the most part, and differ wherever upstream does.
	GoLines int
}

func (a *Amount) add(source string, lines int) {
	a.Files++
	a.Lines += lines
	if strings.HasSuffix(source, ".go") {
		a.GoLines += lines
	}
}

// Sharing says how much of the overlay the carried releases have in common.
type Sharing struct {
	// Releases are those that are compared, oldest first.
	Releases []string
	// Total is everything that is built into one of them at least.
	Total Amount
	// All is what is built into each of them.
	All Amount
	// Some is what is built into several, but not into all.
	Some Amount
	// Only is what is built into a single release, by its name.
	Only map[string]*Amount
}

// Share counts the files and lines that the carried releases of the ledger share.
func Share(repo string, entries []Entry, l *ledger.Ledger) (*Sharing, error) {
	s := &Sharing{Only: map[string]*Amount{}}
	releases := map[string][]string{}
	for _, r := range l.Carried() {
		s.Releases = append(s.Releases, r.Name)
		s.Only[r.Name] = &Amount{}
		stages, err := Resolve(entries, l, r.Name)
		if err != nil {
			return nil, err
		}
		for _, stage := range stages {
			for _, e := range stage.Entries {
				releases[e.Source] = append(releases[e.Source], r.Name)
			}
		}
	}
	for source, in := range releases {
		content, err := os.ReadFile(filepath.Join(repo, filepath.FromSlash(source)))
		if err != nil {
			return nil, err
		}
		lines := bytes.Count(content, []byte("\n"))
		s.Total.add(source, lines)
		switch len(in) {
		case len(s.Releases):
			s.All.add(source, lines)
		case 1:
			s.Only[in[0]].add(source, lines)
		default:
			s.Some.add(source, lines)
		}
	}
	return s, nil
}

// String is a table, one line for each kind of sharing.
func (s *Sharing) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	percent := func(part, whole int) float64 { return 100 * float64(part) / float64(max(whole, 1)) }
	row := func(name string, a Amount) {
		fmt.Fprintf(w, "%s\t%d files\t%d lines\t%.0f%%\t%d in Go files\t%.0f%%\t\n", name, a.Files,
			a.Lines, percent(a.Lines, s.Total.Lines), a.GoLines, percent(a.GoLines, s.Total.GoLines))
	}
	row("all of "+strings.Join(s.Releases, ", "), s.All)
	if len(s.Releases) > 1 {
		row("some of them", s.Some)
		for _, release := range slices.Backward(s.Releases) {
			row(release+" only", *s.Only[release])
		}
	}
	_ = w.Flush()
	return b.String()
}
