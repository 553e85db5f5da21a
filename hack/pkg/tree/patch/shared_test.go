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

import (
	"strings"
	"testing"
)

func TestShared(t *testing.T) {
	change := func(before string) Change {
		return Change{Before: []byte(lines(before)), After: []byte(lines(strings.Replace(before, "x", "x Y", 1)))}
	}
	const three, two, one = "b c x +Y d e f", "c x +Y d e", "x +Y d"
	for name, tt := range map[string]struct {
		versions []string
		want     string // the lines of the hunk, empty if there is none
	}{
		"one version":              {[]string{"a b c x d e f g"}, three},
		"moved":                    {[]string{"a b c x d e f g", "1 2 3 a b c x d e f g"}, three},
		"differs further away":     {[]string{"a b c x d e f g", "A b c x d e f G"}, three},
		"differs by the third":     {[]string{"a b c x d e f g", "a b c x d e F g"}, two},
		"differs by the second":    {[]string{"a b c x d e f g", "a b C x d e f g"}, one},
		"differs at it":            {[]string{"a b c x d e f g", "a b c x D e f g"}, ""},
		"two places with less":     {[]string{"a b c x d e f g", "a b C x d e f g x d"}, ""},
		"two places in the first":  {[]string{"a b c x d e f g x d", "a b C x d e f g"}, ""},
		"two places with the rest": {[]string{"a b c x d e f g x d", "A b c x d e f g x d"}, three},
		"another change":           {[]string{"a b c x d e f g", "a b c d x e f g"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var changes []Change
			for _, v := range tt.versions {
				changes = append(changes, change(v))
			}
			got, err := Shared(t.Context(), "dir/f.go", changes)
			if err != nil {
				t.Fatal(err)
			}
			hunk := ""
			if got != nil {
				_, hunk, _ = strings.Cut(string(got), "\n@@ ")
				_, hunk, _ = strings.Cut(hunk, "\n")
				hunk = strings.Join(strings.Fields(hunk), " ")
			}
			if hunk != tt.want {
				t.Errorf("got %q, want %q", hunk, tt.want)
			}
		})
	}
}
