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

// Package terminal makes strings of somebody else fit for a terminal: drivers and users choose what is in them.
package terminal

import (
	"strings"
	"unicode"
)

// maxText is how much of a string is shown in one place.
const maxText = 500

// Line puts a string into one line, without what moves the cursor or turns the direction of text.
func Line(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r):
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// Clean is Line with an end.
func Clean(text string) string {
	n := 0
	for i := range text {
		if n++; n > maxText {
			return Line(text[:i]) + "…"
		}
	}
	return Line(text)
}
