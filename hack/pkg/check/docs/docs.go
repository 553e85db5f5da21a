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
	maxReadme = 130
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
	fence   = regexp.MustCompile("^ *(```|~~~)")
	heading = regexp.MustCompile(`^#+ +(.*)$`)
	code    = regexp.MustCompile("`[^`]+`")
	comment = regexp.MustCompile(`<!--.*?-->`)
	link    = regexp.MustCompile(`\[([^\]]*)\]\(([^()\s]*)\)`)
	// reference is where a link in another place leads.
	reference = regexp.MustCompile(`(?m)^ *\[([^\]]+)\]: +(\S+)`)
	address   = regexp.MustCompile(`https?://([^/\s"'<>()\x60:]+)[^\s"'<>()\x60]*`)
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
	for _, form := range []*regexp.Regexp{link, reference} {
		for _, match := range form.FindAllStringSubmatchIndex(text, -1) {
			target := text[match[4]:match[5]]
			if address.MatchString(target) {
				continue
			}
			if problem := c.broken(d.name, target, known); problem != "" {
				line := strings.Count(text[:match[4]], "\n") + 1
				errs = append(errs, fmt.Errorf("%s:%d: link to %q: %s", d.name, line, target, problem))
			}
		}
	}
	return errs
}

// broken says why a link in a document leads nowhere, if it does.
func (c *Checker) broken(from, target string, known map[string]*document) string {
	file, anchor, _ := strings.Cut(target, "#")
	if strings.HasPrefix(file, "/") {
		return "it does not begin in the folder of the document"
	}
	name := from
	if file != "" {
		name = path.Join(path.Dir(from), file)
	}
	isFolder := slices.ContainsFunc(c.Files, func(f string) bool { return strings.HasPrefix(f, name+"/") })
	if !isFolder && !slices.Contains(c.Files, name) {
		return "there is no " + name
	}
	if anchor == "" {
		return ""
	}
	if to, ok := known[name]; !ok || !to.anchors[anchor] {
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
