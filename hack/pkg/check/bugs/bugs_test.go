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

package bugs

import (
	"strings"
	"testing"

	"kubernetes-dra/hack/pkg/tree/ledger"
)

// ledgerText carries 1.35 and 1.36, and announces 1.37.
const ledgerText = `
revision: 1
releases:
- {name: "1.35", version: v1.35.8, state: carried, released: "2026-08-20T15:16:14Z"}
- {name: "1.36", version: v1.36.4, state: carried, released: "2026-08-20T11:51:43Z"}
- {name: "1.37", version: v1.37.1, state: planned}
features:
- slug: fixes
  title: bugs
  state: carried
  releases: {"1.35": carried, "1.36": carried, "1.37": carried}
  why: w
  upstream: u
  dropWhen: d
  carries:
  - {name: old, why: w, upstream: u, dropWhen: d, releases: ["1.35"], tests: [a_test.go]}
- slug: shared
  title: sharing
  state: carried
  releases: {"1.35": carried, "1.36": carried}
  why: w
  upstream: u
  dropWhen: d
  carries:
  - {name: other, why: w, upstream: u, dropWhen: d, tests: [b_test.go]}
`

const good = `
bugs:
- upstream: [2, 1]
  component: kubelet
  symptom: >-
    It hangs.
    It is a | b.
  check: "a.go: f"
  verdicts:
    "1.36": {upstream: since v1.36.2}
    "1.35": {carried: old}
- component: scheduler
  symptom: It panics.
  check: "b.go: g"
  verdicts:
    "1.35-1.36": {carried: other}
- upstream: [3]
  component: scheduler
  symptom: It is slow.
  check: "b.go: h"
  verdicts:
    "1.35": {notAffected: There is no h.}
    "1.36": {refused: It is new.}
- upstream: [4]
  component: scheduler
  symptom: It forgets.
  check: "b.go: i"
  verdicts:
    "1.35-1.36": {upstream: has it}
`

func load(t *testing.T, text string) (*File, *ledger.Ledger, error) {
	t.Helper()
	l, err := ledger.Parse([]byte(ledgerText))
	if err != nil {
		t.Fatal(err)
	}
	f, err := Parse([]byte(text), l)
	return f, l, err
}

func TestTable(t *testing.T) {
	f, l, err := load(t, good)
	if err != nil {
		t.Fatal(err)
	}
	const want = `| what you see | upstream | component | 1.35 | 1.36 | why | how to check |
|---|---|---|---|---|---|---|
| It hangs. It is a \| b. | [2](https://github.com/kubernetes/kubernetes/issues/2), [1](https://github.com/kubernetes/kubernetes/issues/1) | kubelet | **carried** | fixed since v1.36.2 | 1.35: “old” in the ledger. | a.go: f |
| It panics. | none known | scheduler | **carried** | **carried** | 1.35-1.36: “other” in the ledger. | b.go: g |
| It is slow. | [3](https://github.com/kubernetes/kubernetes/issues/3) | scheduler | not affected | refused | 1.35: There is no h. 1.36: It is new. | b.go: h |
| It forgets. | [4](https://github.com/kubernetes/kubernetes/issues/4) | scheduler | fixed | fixed | – | b.go: i |
`
	if got := f.Table(l); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestErrors(t *testing.T) {
	for name, tt := range map[string]struct{ from, to, want string }{
		"unknown field":       {"component: kubelet", "component: kubelet\n  since: 1", `unknown field "since"`},
		"verdict twice":       {`"1.36": {upstream: since v1.36.2}`, `"1.35": {upstream: since v1.36.2}`, `key "1.35" already set`},
		"no component":        {"component: kubelet", `component: ""`, `bug [2 1] "It hangs. It is a |": component is missing`},
		"two rows":            {"[3]", "[1]", `bug [1] "It is slow.": 1 is in the row of bug [2 1] "It hangs. It is a |", too`},
		"no verdict":          {`    "1.35": {notAffected: There is no h.}` + "\n", "", `bug [3] "It is slow.": release 1.35 has no verdict: look at the code of v1.35.8 (b.go: h)`},
		"two verdicts":        {`"1.36": {refused: It is new.}`, `"1.35-1.36": {refused: It is new.}`, "release 1.35 has two verdicts, one of them for 1.35-1.36: leave one"},
		"not a release":       {`"1.36": {refused`, `"v36": {refused`, `verdicts: "v36" is neither a release nor a range`},
		"range without end":   {`"1.36": {refused`, `"1.36+": {refused`, `verdicts: "1.36+": want carried releases`},
		"planned release":     {`"1.36": {refused`, `"1.36-1.37": {refused`, `release 1.37 (v1.37.1) is planned`},
		"unknown release":     {`"1.35": {notAffected`, `"1.34-1.35": {notAffected`, `unknown release "1.34"`},
		"nothing":             {"{refused: It is new.}", "{}", `verdict for "1.36", release 1.36: want one of carried, upstream, notAffected and refused`},
		"unknown change":      {"{carried: other}", "{carried: others}", `hack/ledger.yaml carries no change "others"`},
		"other release":       {`"1.36": {upstream: since v1.36.2}`, `"1.36": {carried: old}`, `verdict for "1.36", release 1.36: carried: hack/ledger.yaml carries no change "old" in 1.36`},
		"word for upstream":   {"{upstream: has it}", "{upstream: had it}", `upstream: "had it": want "has it", or "since v1.35.8"`},
		"version of another":  {"{upstream: has it}", "{upstream: since v1.36.0}", `verdict for "1.35-1.36", release 1.35: upstream: "since v1.36.0": it is not a version of 1.35`},
		"version that is new": {"since v1.36.2", "since v1.36.10", "v1.36.4 is carried, which does not have it"},
		"cure without row":    {`"1.35": {carried: old}`, `"1.35": {carried: other}`, `no bug has the verdict "carried: old" for release 1.35`},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(good, tt.from, tt.to, 1)
			if text == good {
				t.Fatalf("there is no %q", tt.from)
			}
			if _, _, err := load(t, text); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
