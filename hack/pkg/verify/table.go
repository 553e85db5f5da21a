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
	"fmt"
	"regexp"
	"slices"
	"strings"

	"kubernetes-dra/hack/pkg/ledger"
	"kubernetes-dra/hack/pkg/mixed"
)

const readme = "README.md"

// tableBorders are the comments between which a table stands in the README; the
// first one may say more.
func tableBorders(name string) *regexp.Regexp {
	name = regexp.QuoteMeta(name)
	return regexp.MustCompile(`(?s)(<!-- BEGIN ` + name + `[^\n]*-->\n).*?(<!-- END ` + name + ` -->\n)`)
}

// tables checks the tables in the README.
func (v *Verifier) tables(context.Context) error {
	got, err := v.read(readme)
	if err != nil {
		return err
	}
	want := got
	for _, table := range []struct{ name, content string }{
		{"features", Table(v.Ledger)},
		{"mixed gates", mixed.Markdown(mixed.Table)},
	} {
		at := tableBorders(table.name).FindSubmatchIndex(want)
		if at == nil {
			return fmt.Errorf("%s: the comments \"BEGIN %s\" and \"END %[2]s\" around the table are missing", readme, table.name)
		}
		want = slices.Concat(want[:at[3]], []byte("\n"+table.content+"\n"), want[at[4]:])
	}
	return v.derived(readme, got, want, "a table is not what "+ledger.Path+" or hack/pkg/mixed says")
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
