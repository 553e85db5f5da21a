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
	"regexp"
	"strings"
	"unicode"
)

// maxWords is the number of words that a sentence may have.
const maxWords = 30

var listItem = regexp.MustCompile(`^\s*([-*]|[0-9]+\.)\s+(.*)$`)

// sentence is one of a document, with the line in which it begins.
type sentence struct {
	line  int
	words []string
}

// longSentences returns an error for each sentence that is too long.
func (d *document) longSentences() []error {
	var errs []error
	for _, s := range d.sentences() {
		if n := len(s.words); n > maxWords {
			errs = append(errs, fmt.Errorf("%s:%d: a sentence has %d words, %d are the limit, it starts with %q", d.name, s.line, n, maxWords, strings.Join(s.words[:6], " ")))
		}
	}
	return errs
}

// sentences splits the text. Headings, cells of tables, items of lists and
// paragraphs end a sentence.
func (d *document) sentences() []sentence {
	var all []sentence
	var current sentence
	flush := func() {
		if len(current.words) > 0 {
			all = append(all, current)
		}
		current = sentence{}
	}
	add := func(line int, text string) {
		for word := range strings.FieldsSeq(link.ReplaceAllString(text, "$1")) {
			if !strings.ContainsFunc(word, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
				continue
			}
			if len(current.words) == 0 {
				current.line = line
			}
			current.words = append(current.words, word)
			if end := strings.TrimRight(word, `)"'*_`); strings.HasSuffix(end, ".") || strings.HasSuffix(end, "!") || strings.HasSuffix(end, "?") {
				flush()
			}
		}
	}
	for i, text := range d.text {
		item := listItem.FindStringSubmatch(text)
		switch {
		case strings.TrimSpace(text) == "":
			flush()
		case strings.HasPrefix(text, "#"):
			flush()
			add(i+1, text)
			flush()
		case strings.HasPrefix(text, "|"):
			flush()
			for cell := range strings.SplitSeq(text, "|") {
				add(i+1, cell)
				flush()
			}
		case item != nil:
			flush()
			add(i+1, item[2])
		default:
			add(i+1, text)
		}
	}
	flush()
	return all
}
