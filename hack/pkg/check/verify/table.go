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

package verify

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"kubernetes-dra/hack/pkg/bench"
	"kubernetes-dra/hack/pkg/check/bugs"
	"kubernetes-dra/hack/pkg/check/docs"
	"kubernetes-dra/hack/pkg/test/results"
	"kubernetes-dra/hack/pkg/tree/ledger"
)

// mixedGatesFile is the table of what TestMixedGates expects.
const mixedGatesFile = "test/cluster/mixed-gates.txt"

// documents checks the documents: the tables and files in them, and then what
// they say and where their links lead.
func (v *Verifier) documents(context.Context) error {
	testedTable, err := results.Table(v.Repo, v.Ledger.Carried())
	if err != nil {
		return err
	}
	known, err := bugs.Load(v.Repo, v.Ledger)
	if err != nil {
		return err
	}
	mixed, err := v.read(mixedGatesFile)
	if err != nil {
		return err
	}
	missing := map[string]string{
		"features":        Table(v.Ledger),
		"releases":        Releases(v.Ledger),
		"mixed gates":     string(mixed),
		"tested":          testedTable,
		"upstream's bugs": known.Table(v.Ledger),
	}
	// A distribution that takes our patches may have no figures of its own.
	var errs []error
	if data, err := v.read(bench.RecordFile); err == nil {
		record, err := bench.ParseRecord(data)
		if err != nil {
			return err
		}
		missing["benchmark"] = record.Markdown()
		errs = append(errs, v.picture(record))
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	tables := maps.Clone(missing)
	block := func(name string) (string, error) {
		delete(missing, name)
		if table, ok := tables[name]; ok {
			return table, nil
		}
		copied, ok, err := docs.File(name, v.read)
		if !ok {
			err = fmt.Errorf("nothing knows what stands between \"BEGIN %s\" and its end: want %s, or file <name>",
				name, strings.Join(slices.Sorted(maps.Keys(tables)), ", "))
		}
		return copied, err
	}
	c := docs.Checker{Files: v.files, Read: v.read, Facts: docs.NewFacts(v.Ledger)}
	for _, name := range c.Documents() {
		got, err := v.read(name)
		if err != nil {
			return err
		}
		want, err := docs.Fill(name, got, block)
		if err == nil {
			err = v.derived(name, got, want, "a table or file in it is not what "+ledger.Path+", "+bugs.Path+", "+mixedGatesFile+", hack/releases or the file says")
		}
		errs = append(errs, err)
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		errs = append(errs, fmt.Errorf("no document has the comments \"BEGIN %s\" and \"END %[1]s\" around the table", name))
	}
	return errors.Join(append(errs, c.Check())...)
}

// picture checks the picture of the benchmark.
func (v *Verifier) picture(r *bench.Record) error {
	got, err := v.read(bench.PictureFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return v.derived(bench.PictureFile, got, []byte(r.Results.Picture()), "it is not the picture of "+bench.RecordFile)
}

// Table is the table of features and releases, in Markdown.
func Table(l *ledger.Ledger) string {
	var b strings.Builder
	b.WriteString("| feature | KEP | gate |")
	rule := "|---|---|---|"
	releases := slices.DeleteFunc(slices.Clone(l.Releases), func(r ledger.Release) bool { return !announced(l, r.Name) })
	for _, r := range releases {
		fmt.Fprintf(&b, " %s |", r.Name)
		rule += "---|"
	}
	b.WriteString("\n" + rule + "\n")
	for i := range l.Features {
		f := &l.Features[i]
		kep, gates := "–", "–"
		if f.KEP != 0 {
			kep = fmt.Sprintf("[%d](https://kep.k8s.io/%[1]d)", f.KEP)
		}
		if len(f.Gates) > 0 {
			gates = "`" + strings.Join(f.Gates, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s`: %s | %s | %s |", f.Slug, f.Title, kep, gates)
		for j := range releases {
			fmt.Fprintf(&b, " %s |", cell(f, &releases[j]))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// Releases is the table of releases and of what they are made from, in Markdown.
func Releases(l *ledger.Ledger) string {
	var b, standIns strings.Builder
	b.WriteString("| release | version | of | modules left out |\n|---|---|---|---|\n")
	for _, r := range l.Carried() {
		var missing []string
		for _, m := range r.MissingModules {
			missing = append(missing, "`"+m+"`")
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.Name, r.Version, r.Date().Format(time.DateOnly), orDash(strings.Join(missing, ", ")))
		for _, s := range r.StandIns {
			fmt.Fprintf(&standIns, "| %s | `%s` | %s | %s |\n", r.Name, s.Module, s.Version, strings.TrimSpace(s.Why))
		}
	}
	if standIns.Len() > 0 {
		b.WriteString("\n| release | module | stands in at | because |\n|---|---|---|---|\n" + standIns.String())
	}
	return b.String()
}

func orDash(text string) string {
	if text == "" {
		return "–"
	}
	return text
}

// announced says whether any feature names a release.
func announced(l *ledger.Ledger, release string) bool {
	return slices.ContainsFunc(l.Features, func(f ledger.Feature) bool { return f.Releases[release] != "" })
}

// cell says what there is of a feature in a release.
func cell(f *ledger.Feature, r *ledger.Release) string {
	what, ok := f.Releases[r.Name]
	switch {
	case !ok:
		return "–"
	case what == ledger.InBase:
		return "upstream"
	case f.In(r.Name) && r.State == ledger.Carried:
		return "**" + what + "** (" + r.Version + ")"
	default:
		return "planned"
	}
}
