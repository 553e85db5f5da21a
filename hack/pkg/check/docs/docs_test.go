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
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	"kubernetes-dra/hack/pkg/tree/ledger"
)

// repository has documents without anything to complain about.
func repository() map[string]string {
	return map[string]string{
		"README.md": strings.Join([]string{
			"# Title", "",
			"See [the design](docs/dev/design.md#why-it-is-so), [code](hack/carry), [the file](hack/x.go),",
			"[below](#more-of-it) and [the KEP](https://kep.k8s.io/5194).", "",
			"```text", "[not a link](nowhere) # no heading", "```", "",
			"Not a link: `[x](nowhere)`. <!-- [nor](this) -->", "",
			"## More of `it`", "", "## More of it", "", "[The second](#more-of-it-1).",
		}, "\n") + "\n",
		"docs/dev/design.md": "# Design\n\n## Why it is [so](../../README.md)?\n\n[Up](../../README.md#title)\n",
		"hack/x.go":          "package hack\n",
		"hack/carry/main.go": "package main\n",
	}
}

// facts are of three releases.
func facts() *Facts {
	l, err := ledger.Parse([]byte(`
revision: 2
releases:
- {name: "1.35", version: v1.35.8, state: carried, released: "2026-08-20T15:16:14Z", gates: [G]}
- {name: "1.36", version: v1.36.10, state: carried, released: "2026-08-20T11:51:43Z"}
- {name: "1.37", version: v1.37.1, state: carried, released: "2026-09-20T11:51:43Z"}
- {name: "1.38", version: v1.38.0, state: planned}
features:
- slug: x
  title: t
  state: carried
  gates: [A, B, C]
  defaults: {A: {since: "1.37"}, B: {since: "1.35", locked: "1.36"}}
  releases: {"1.35": carried, "1.36": carried, "1.37": carried}
  why: w
  upstream: u
  dropWhen: d
  carries:
  - {name: one, why: w, upstream: u, dropWhen: d, releases: ["1.35", "1.37"], tests: [t]}
`))
	if err != nil {
		panic(err)
	}
	return NewFacts(l)
}

func check(files map[string]string) error {
	c := &Checker{
		Facts: facts(),
		Files: slices.Sorted(maps.Keys(files)),
		Read: func(name string) ([]byte, error) {
			content, ok := files[name]
			if !ok {
				return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
			}
			return []byte(content), nil
		},
	}
	return c.Check()
}

func TestNothingToComplainAbout(t *testing.T) {
	if err := check(repository()); err != nil {
		t.Error(err)
	}
}

func TestComplaints(t *testing.T) {
	words := func(n int) string { return strings.Repeat("word ", n-1) + "end." }
	for name, tt := range map[string]struct {
		text, want string
	}{
		"no file":          {"a\n\n[x](y.md)", `docs/x.md:3: link to "y.md": there is no docs/y.md`},
		"no folder":        {"[x](../hack/car)", "docs/x.md:1: link to \"../hack/car\": there is no hack/car"},
		"second link":      {"[a](../README.md) [x](y.md)", `docs/x.md:1: link to "y.md"`},
		"over the end":     {"a\n[x\ny](y.md)", `docs/x.md:3: link to "y.md"`},
		"picture":          {"![x](y.png)", "there is no docs/y.png"},
		"outside":          {"[x](../../y.md)", "there is no ../y.md"},
		"absolute":         {"[x](/README.md)", "there is no docs/README.md"},
		"no heading":       {"[x](../README.md#nothing)", `README.md has no heading "nothing"`},
		"no heading here":  {"# A\n\n[x](#b)", `docs/x.md:3: link to "#b": docs/x.md has no heading "b"`},
		"third heading":    {"[x](../README.md#more-of-it-2)", `README.md has no heading "more-of-it-2"`},
		"heading of code":  {"[x](../hack/x.go#L1)", `hack/x.go has no heading "L1"`},
		"heading in block": {"[x](#a)\n\n```sh\n# A\n```\n", `no heading "a"`},
		"after a block":    {"```sh\n~~~\n```\n[x](y.md)", `docs/x.md:4: link to "y.md"`},
		"address":          {"```text\nGET https://packages.example.com:443/x\n```", "docs/x.md:2: https://packages.example.com"},
		"linked address":   {"[x](http://packages.example.com/x)", "docs/x.md:1: http://packages.example.com/x: documents name addresses of github.com"},
		"long sentence":    {"# A\n\nShort.\n" + words(31), `docs/x.md:4: a sentence has 31 words, 30 are the limit, it starts with "word word word word word word"`},
		"over two lines":   {strings.Repeat("word ", 20) + "\n" + words(11), "docs/x.md:1: a sentence has 31 words"},
		"long item":        {"- " + words(31), "docs/x.md:1: a sentence"},
		"long cell":        {"| a | " + words(31) + " |", "docs/x.md:1: a sentence"},
	} {
		t.Run(name, func(t *testing.T) {
			files := repository()
			files["docs/x.md"] = tt.text + "\n"
			if err := check(files); err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// Documents that repeat what the ledger has must not say something else.
func TestFacts(t *testing.T) {
	const table = "| gate | default |\n|---|---|\n"
	for name, tt := range map[string]struct{ text, want string }{
		"all":                    {"From 1.35 to 1.37. <!-- ledger: all releases -->", ""},
		"not all":                {"a\n\nFrom 1.35 to 1.36. <!-- ledger: all releases -->", `docs/x.md:3: all releases: the ledger says "1.35 to 1.37"`},
		"number":                 {"Each of the four. <!-- ledger: number of releases -->", `the ledger says "three"`},
		"default release":        {"Only 1.36. <!-- ledger: default release -->", `the ledger says "1.37"`},
		"default":                {"It is off in 1.35 and 1.36, on since 1.37. <!-- ledger: default of A -->", ""},
		"another default":        {"It is off in 1.35, on since 1.36. <!-- ledger: default of A -->", `default of A: the ledger says "off in 1.35 and 1.36, on since 1.37"`},
		"where it is off":        {"| 1.35 <!-- ledger: releases with A off --> |", `the ledger says "1.35 and 1.36"`},
		"releases of a change":   {"In 1.35. <!-- ledger: releases of one -->", `the ledger says "1.35 and 1.37"`},
		"gates to set":           {"On 1.36. <!-- ledger: releases with gates -->", `the ledger says "1.35"`},
		"unknown fact":           {"<!-- ledger: default of D -->", `the ledger has nothing about "default of D"`},
		"an example of a mark":   {"Write `<!-- ledger: all releases -->`.", ""},
		"table of gates":         {table + "| `B` | on, locked on since 1.36 |\n| `C` | off |", ""},
		"wrong in the table":     {table + "| `B` | on |", `docs/x.md:3: default of B: the ledger says "on, locked on since 1.36"`},
		"another table":          {table + "\n| `B` | on |", ""},
		"version":                {"Of v1.36.10, v1.36.10+dra.2, v1.38.7 and v1.36.10_dra.2.", ""},
		"old version":            {"```\nv1.36.1\n```", "docs/x.md:2: v1.36.1: 1.36 is carried, as v1.36.10+dra.2"},
		"longer version":         {"Of v1.37.10.", "v1.37.10: 1.37 is carried, as v1.37.1+dra.2"},
		"old stamp":              {"Of v1.36.10-dra.1.", "v1.36.10-dra.1: 1.36 is carried"},
		"past version":           {"Of v1.36.1. <!-- a past version -->", ""},
		"range that ends late":   {"From 1.36 to 1.38.", `"1.36 to 1.38": 1.38 is not carried`},
		"range that began early": {"From 1.34 to 1.36.", `"1.34 to 1.36": 1.34 is not carried`},
	} {
		t.Run(name, func(t *testing.T) {
			files := repository()
			files["docs/x.md"] = tt.text + "\n"
			err := check(files)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestShortSentences(t *testing.T) {
	words := strings.Repeat("word ", 20)
	for _, text := range []string{
		words + "(end.) " + words, words + "1.36 end? " + words, words + "**end!** " + words,
		words + "\n\n" + words, "- " + words + "\n- " + words, "1. " + words + "\n2. " + words,
		"| " + words + "| " + words + "|", "# " + words + "\n" + words,
		words + "\n```text\n" + words + words + "\n```\n" + words,
		words + "`" + words + "` [" + "one](../README.md) – " + strings.Repeat("word ", 8),
	} {
		files := repository()
		files["docs/x.md"] = text + "\n"
		if err := check(files); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestReadmeIsAPage(t *testing.T) {
	files := repository()
	lines := strings.Count(files["README.md"], "\n")
	files["README.md"] += strings.Repeat("\n", maxReadme-lines)
	if err := check(files); err != nil {
		t.Error(err)
	}
	files["README.md"] += "\n"
	if err := check(files); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("README.md: it has %d lines", maxReadme+1)) {
		t.Errorf("got %v", err)
	}
}

func TestFill(t *testing.T) {
	block := func(name string) (string, error) {
		if name == "unknown" {
			return "", errors.New("unknown block")
		}
		return "text of " + name + "\n", nil
	}
	const (
		stale  = "a\n<!-- BEGIN one: by carry -->\nold\n<!-- END one -->\nb\n<!-- BEGIN file x.yaml -->\n<!-- END file x.yaml -->\nc\n"
		filled = "a\n<!-- BEGIN one: by carry -->\n\ntext of one\n\n<!-- END one -->\nb\n<!-- BEGIN file x.yaml -->\n\ntext of file x.yaml\n\n<!-- END file x.yaml -->\nc\n"
	)
	for _, text := range []string{stale, filled} {
		if got, err := Fill("a.md", []byte(text), block); err != nil || string(got) != filled {
			t.Errorf("got %q, %v", got, err)
		}
	}
	for text, want := range map[string]string{
		"<!-- BEGIN one -->\n<!-- END two -->\n":         `a.md: the comment "END one" after "BEGIN one" is missing`,
		"<!-- BEGIN unknown -->\n<!-- END unknown -->\n": "a.md: unknown block",
	} {
		if _, err := Fill("a.md", []byte(text), block); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestFile(t *testing.T) {
	read := func(name string) ([]byte, error) {
		if name != "x.yaml" {
			return nil, fs.ErrNotExist
		}
		return []byte("a: b\n"), nil
	}
	if block, is, err := File("file x.yaml", read); block != "```yaml\na: b\n```\n" || !is || err != nil {
		t.Errorf("got %q, %v, %v", block, is, err)
	}
	if _, is, err := File("file y.yaml", read); !is || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, %v", is, err)
	}
	if _, is, _ := File("features", read); is {
		t.Error("a table is not a file")
	}
}
