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

package patch

import "strings"

// Realign writes the lines of a base, and those of them that are left in a changed
// text, as another text has them, where they differ in spaces and tabs behind the
// indentation only. A formatter that aligns fields changes many lines because of a single one; a merge of
// texts with the same alignment does not notice. A line which the other text has in
// several ways stays what it is.
func Realign(base, changed, like []byte) (newBase, newChanged []byte) {
	ways := map[string]string{}
	for _, line := range split(like) {
		key := squeeze(line)
		if way, ok := ways[key]; ok && way != line {
			line = "" // more than one
		}
		ways[key] = line
	}
	known := map[string]bool{}
	realign := func(content []byte) []byte {
		var b strings.Builder
		for _, line := range split(content) {
			if way := ways[squeeze(line)]; way != "" && known[line] {
				line = way
			}
			b.WriteString(line)
		}
		return []byte(b.String())
	}
	for _, line := range split(base) {
		known[line] = true
	}
	return realign(base), realign(changed)
}

// squeeze is a line with its indentation, but without differences in spaces and tabs
// further on.
func squeeze(line string) string {
	text := strings.TrimLeft(line, " \t")
	words := line[:len(line)-len(text)] + strings.Join(strings.Fields(text), " ")
	if strings.HasSuffix(line, "\n") {
		words += "\n"
	}
	return words
}
