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
)

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
