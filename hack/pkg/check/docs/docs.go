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

// Package docs checks the documents of this repository: that links lead
// somewhere, that what is pasted or generated is up to date, that sentences are
// short, and that the README is a page.
package docs

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

const (
	// Readme is the first page that a stranger sees.
	Readme = "README.md"
	// maxReadme is the number of its lines.
	maxReadme = 100
	// maxWords is the number of words that a sentence may have.
	maxWords = 30
)

// hosts are those which a document may name in an address. Package registries
// are not among them: the go command and apt know theirs.
var hosts = []string{"github.com", "kep.k8s.io", "kubernetes.io"}

// Checker checks documents.
type Checker struct {
	// Files are all files of the repository, with slashes.
	Files []string
	// Read returns the content of one.
	Read func(name string) ([]byte, error)
	// Facts are those that documents may not contradict.
	Facts *Facts
}

// Documents are the names of all documents.
func (c *Checker) Documents() []string {
	var names []string
	for _, name := range c.Files {
		if path.Ext(name) == ".md" {
			names = append(names, name)
		}
	}
	return names
}

// Check returns what is wrong with the documents, each error with file and line.
func (c *Checker) Check() error {
	known := map[string]*document{}
	for _, name := range c.Documents() {
		content, err := c.Read(name)
		if err != nil {
			return err
		}
		known[name] = parse(name, string(content))
	}
	var errs []error
	for _, name := range c.Documents() {
		d := known[name]
		errs = append(errs, c.links(d, known)...)
		errs = append(errs, d.addresses()...)
		errs = append(errs, d.longSentences()...)
		errs = append(errs, c.Facts.check(d)...)
		if len(d.raw) > maxReadme && name == Readme {
			errs = append(errs, fmt.Errorf("%s: it has %d lines, %d are the limit: move text to docs/", name, len(d.raw), maxReadme))
		}
	}
	return errors.Join(errs...)
}

// document is one that was read.
type document struct {
	name string
	// raw are its lines as they are.
	raw []string
	// text are the same lines without comments, without the content of code blocks,
	// and with the word "code" for each piece of code.
	text []string
	// anchors are those of its headings.
	anchors map[string]bool
}

var (
	fence    = regexp.MustCompile("^ *(```|~~~)")
	heading  = regexp.MustCompile(`^#+ +(.*)$`)
	code     = regexp.MustCompile("`[^`]+`")
	comment  = regexp.MustCompile(`<!--.*?-->`)
	link     = regexp.MustCompile(`\[([^\]]*)\]\(([^()\s]*)\)`)
	listItem = regexp.MustCompile(`^\s*([-*]|[0-9]+\.)\s+`)
	address  = regexp.MustCompile(`https?://([^/\s"'<>()\x60:]+)[^\s"'<>()\x60]*`)
)

func parse(name, content string) *document {
	d := &document{name: name, anchors: map[string]bool{}}
	block := ""
	for line := range strings.Lines(content) {
		line = strings.TrimRight(line, "\r\n")
		d.raw = append(d.raw, line)
		text := ""
		mark := fence.FindStringSubmatch(line)
		switch {
		case block != "" && mark != nil && mark[1] == block:
			block = ""
		case block == "" && mark != nil:
			block = mark[1]
		case block == "":
			if title := heading.FindStringSubmatch(line); title != nil {
				d.addAnchor(title[1])
			}
			text = comment.ReplaceAllString(code.ReplaceAllString(line, "code"), "")
		}
		d.text = append(d.text, text)
	}
	return d
}

// addAnchor adds the anchor that GitHub gives to a heading.
func (d *document) addAnchor(title string) {
	var b strings.Builder
	for _, r := range strings.ToLower(link.ReplaceAllString(title, "$1")) {
		switch {
		case r == ' ':
			b.WriteRune('-')
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
			b.WriteRune(r)
		}
	}
	anchor := b.String()
	for n := 1; d.anchors[anchor]; n++ {
		anchor = fmt.Sprintf("%s-%d", b.String(), n)
	}
	d.anchors[anchor] = true
}

// links checks that links lead to files and headings of the repository.
func (c *Checker) links(d *document, known map[string]*document) []error {
	var errs []error
	// The text of a link may go over two lines.
	text := strings.Join(d.text, "\n")
	for _, match := range link.FindAllStringSubmatchIndex(text, -1) {
		target := text[match[4]:match[5]]
		if problem := c.broken(d.name, target, known); problem != "" && !address.MatchString(target) {
			line := strings.Count(text[:match[4]], "\n") + 1
			errs = append(errs, fmt.Errorf("%s:%d: link to %q: %s", d.name, line, target, problem))
		}
	}
	return errs
}

// broken says why a link in a document leads nowhere, if it does.
func (c *Checker) broken(from, target string, known map[string]*document) string {
	file, anchor, _ := strings.Cut(target, "#")
	name := from
	if file != "" {
		name = path.Join(path.Dir(from), file)
	}
	isFolder := slices.ContainsFunc(c.Files, func(f string) bool { return strings.HasPrefix(f, name+"/") })
	if strings.HasPrefix(file, "/") || !isFolder && !slices.Contains(c.Files, name) {
		return "there is no " + name
	}
	if to, ok := known[name]; anchor != "" && (!ok || !to.anchors[anchor]) {
		return fmt.Sprintf("%s has no heading %q", name, anchor)
	}
	return ""
}

// addresses checks that no host is named but those that have no packages.
func (d *document) addresses() []error {
	var errs []error
	for i, line := range d.raw {
		for _, match := range address.FindAllStringSubmatch(line, -1) {
			if !slices.Contains(hosts, match[1]) {
				errs = append(errs, fmt.Errorf("%s:%d: %s: documents name addresses of %s only", d.name, i+1, match[0], strings.Join(hosts, ", ")))
			}
		}
	}
	return errs
}

// longSentences returns an error for each sentence that is too long. Headings, cells of
// tables, items of lists and paragraphs end a sentence.
func (d *document) longSentences() []error {
	var errs []error
	var words []string
	start := 0
	flush := func() {
		if n := len(words); n > maxWords {
			errs = append(errs, fmt.Errorf("%s:%d: a sentence has %d words, %d are the limit, it starts with %q", d.name, start, n, maxWords, strings.Join(words[:6], " ")))
		}
		words = nil
	}
	for i, text := range d.text {
		text = link.ReplaceAllString(text, "$1")
		alone := strings.HasPrefix(text, "#") || strings.HasPrefix(text, "|")
		if alone || strings.TrimSpace(text) == "" || listItem.MatchString(text) {
			flush()
		}
		for word := range strings.FieldsSeq(listItem.ReplaceAllString(text, "")) {
			if alone && word == "|" {
				flush()
			}
			if !strings.ContainsFunc(word, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
				continue
			}
			if len(words) == 0 {
				start = i + 1
			}
			words = append(words, word)
			if end := strings.TrimRight(word, `)"'*_`); strings.ContainsAny(end[len(end)-1:], ".!?") {
				flush()
			}
		}
		if alone {
			flush()
		}
	}
	flush()
	return errs
}

var begin = regexp.MustCompile(`(?m)^<!-- BEGIN ([^:\n]+?)(?:: [^\n]*)? -->\n`)

// Fill returns a document with the content that its blocks have to have. A block stands
// between the comments "BEGIN name" and "END name"; after the name and a colon, the first
// one may say more.
func Fill(name string, content []byte, block func(name string) (string, error)) ([]byte, error) {
	text := string(content)
	var b strings.Builder
	for {
		at := begin.FindStringSubmatchIndex(text)
		if at == nil {
			b.WriteString(text)
			return []byte(b.String()), nil
		}
		title := text[at[2]:at[3]]
		end := "<!-- END " + title + " -->\n"
		_, rest, found := strings.Cut(text[at[1]:], end)
		if !found {
			return nil, fmt.Errorf("%s: the comment \"END %s\" after \"BEGIN %[2]s\" is missing", name, title)
		}
		filling, err := block(title)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		b.WriteString(text[:at[1]] + "\n" + filling + "\n" + end)
		text = rest
	}
}

// filePrefix begins the name of a block that is a copy of a file.
const filePrefix = "file "

// File returns the block that shows a file of the repository, if the name is that of
// such a block.
func File(name string, read func(name string) ([]byte, error)) (block string, is bool, err error) {
	file, is := strings.CutPrefix(name, filePrefix)
	if !is {
		return "", false, nil
	}
	content, err := read(file)
	if err != nil {
		return "", true, err
	}
	return "```yaml\n" + string(content) + "```\n", true, nil
}
