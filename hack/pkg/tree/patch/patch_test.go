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
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kubernetes-dra/hack/pkg/git"
)

const header = "diff --git a/dir/f.go b/dir/f.go\n--- a/dir/f.go\n+++ b/dir/f.go\n"

// lines is a text of the words.
func lines(words string) string { return strings.ReplaceAll(words, " ", "\n") + "\n" }

func TestApply(t *testing.T) {
	const hunk = "@@ -4,7 +4,8 @@ func x()\n d\n e\n f\n-g\n+G\n+H\n h\n i\n j\n"
	for name, tt := range map[string]struct {
		hunks, content, want, err string
	}{
		"in place":   {hunk, lines("a b c d e f g h i j k"), lines("a b c d e f G H h i j k"), ""},
		"moved down": {hunk, lines("0 1 2 a b c d e f g h i j k"), lines("0 1 2 a b c d e f G H h i j k"), ""},
		"moved up":   {hunk, lines("d e f g h i j k"), lines("d e f G H h i j k"), ""},
		"expected place of several": {
			hunk, lines("a b c d e f g h i j d e f g h i j"), lines("a b c d e f G H h i j d e f g h i j"), "",
		},
		"expected place of several, with less context": {
			"@@ -2,4 +2,5 @@\n b\n c\n+X\n d\n e\n", lines("a b c d e b c d e"), "", "more than one place (lines 2, 6)",
		},
		"less context": {
			"@@ -2,4 +2,5 @@\n b\n c\n+X\n d\n e\n", lines("0 a b c d e b c e"), lines("0 a b c X d e b c e"), "",
		},
		"ambiguous": {
			hunk, lines("d e f g h i j d e f g h i j"), "", "more than one place (lines 1, 8)",
		},
		"context differs": {
			hunk, lines("a b c d e X g h i j k"), "", `the most similar place is line 4, where 6 of its 7 lines match: line 6 is "X" instead of "f"`,
		},
		"done already": {
			hunk, lines("a b c d e f G H h i j k"), "", `7 lines match: line 7 is "G" instead of "g"; what the hunk makes of them stands at line 4 already`,
		},
		"file too short": {
			hunk, lines("a b c d e f g h"), "", `line 9 is the end of the file instead of "i"`,
		},
		"other file": {hunk, lines("1 2 3"), "", "none of its lines is in the file"},
		"empty file": {hunk, "", "", "none of its lines is in the file"},
		"at the start": {
			"@@ -1,3 +1,4 @@\n+0\n a\n b\n c\n", lines("a b c d"), lines("0 a b c d"), "",
		},
		"not at the start any more": {
			"@@ -1,3 +1,4 @@\n+0\n a\n b\n c\n", lines("x a b c d"), "", "but not at the start or the end",
		},
		"at the end": {
			"@@ -2,3 +2,4 @@\n b\n c\n d\n+e\n", lines("a b c d"), lines("a b c d e"), "",
		},
		"not at the end any more": {
			"@@ -2,3 +2,4 @@\n b\n c\n d\n+e\n", lines("a b c d x"), "", "but not at the start or the end",
		},
		"no newline at the end": {
			"@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n", "a\nb", "a\nc\n", "",
		},
		"newline where none is expected": {
			"@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n", "a\nb\n", "", "hunk 1",
		},
		"into an empty file": {"@@ -0,0 +1 @@\n+a\n", "", "a\n", ""},
		"everything removed": {"@@ -1 +0,0 @@\n-a\n", "a\n", "", ""},
		"second hunk fails": {
			"@@ -1,3 +1,4 @@\n+0\n a\n b\n c\n@@ -5,3 +6,3 @@\n e\n-f\n+F\n g\n", lines("a b c d e x g"), "", "hunk 2 (@@ -5,3 +6,3 @@)",
		},
		"overlapping": {
			"@@ -1,3 +1,3 @@\n a\n-b\n+b2\n c\n@@ -3,3 +3,3 @@\n c\n-d\n+D\n e\n", lines("a b c d e"), "", "before or inside of the hunk before it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Parse([]byte(header + tt.hunks))
			if err != nil {
				t.Fatal(err)
			}
			got, err := p.Apply([]byte(tt.content))
			if tt.err != "" {
				var hunk *HunkError
				if !errors.As(err, &hunk) || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("got %q, %v; want error with %q", got, err, tt.err)
				}
				return
			}
			if err != nil || string(got) != tt.want {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

func TestParseErrors(t *testing.T) {
	for name, tt := range map[string]struct{ patch, want string }{
		"empty":             {"", "line 1: a seam starts with"},
		"no hunks":          {header, "no hunks"},
		"new file":          {"diff --git a/f b/f\nnew file mode 100644\n--- /dev/null\n+++ b/f\n", "line 2: expected"},
		"mode":              {"diff --git a/f b/f\nold mode 100644\nnew mode 100755\n", "line 2: expected"},
		"renamed":           {"diff --git a/f b/g\n--- a/f\n+++ b/g\n", "must name the same file"},
		"dev null":          {"diff --git a/f b/f\n--- a/f\n+++ /dev/null\n", "must name the same file"},
		"second file":       {header + "@@ -1 +1 @@\n-a\n+b\n" + header, "line 7: expected a hunk"},
		"too short":         {header + "@@ -1,3 +1,3 @@\n a\n-b\n", "ends too early"},
		"too long":          {header + "@@ -1 +1 @@\n-a\n-b\n+c\n", "more lines than its header says"},
		"trailing text":     {header + "@@ -1 +1 @@\n-a\n+b\nmore\n", "line 7: expected a hunk"},
		"bare line":         {header + "@@ -1,2 +1,2 @@\n-a\n+b\nmore\n", "starts with a space, a minus or a plus"},
		"changes nothing":   {header + "@@ -1 +1 @@\n a\n", "changes nothing"},
		"lone backslash":    {header + "@@ -1 +1 @@\n\\ No newline at end of file\n-a\n+b\n", "unexpected"},
		"backslash comment": {header + "@@ -1 +1 @@\n-a\n\\ hello\n+b\n", "unexpected"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Parse([]byte(tt.patch)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// Any two texts: what Diff writes is read by Parse, applied by Apply and by
// git with the same result, and in its canonical form already.
func TestRoundTrip(t *testing.T) {
	seed := rand.Int63()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewSource(seed))
	dir := t.TempDir()
	if _, err := git.Dir(dir).Run(t.Context(), "init", "--quiet"); err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		var from, to strings.Builder
		for n := range random.Intn(60) {
			line := fmt.Sprintf("line %d\n", random.Intn(20)+n/10*20)
			switch random.Intn(10) {
			case 0:
				from.WriteString(line)
			case 1:
				to.WriteString(line)
			default:
				from.WriteString(line)
				to.WriteString(line)
			}
		}
		if i%5 == 0 {
			to.WriteString("no newline")
		}
		a, b := from.String(), to.String()
		diff, err := Diff(t.Context(), "f", []byte(a), []byte(b))
		if err != nil {
			t.Fatal(err)
		}
		if a == b {
			if diff != nil {
				t.Errorf("difference of equal texts: %q", diff)
			}
			continue
		}
		const intention = "Call what is ours."
		if got := Intention(diff); got != "" {
			t.Errorf("intention of a diff alone: %q", got)
		}
		diff = WithIntentionOf([]byte(intention+"\n"), diff)
		if got := Intention(diff); got != intention {
			t.Errorf("intention %q", got)
		}
		p, err := Parse(diff)
		if err != nil {
			t.Fatalf("%v\n%s", err, diff)
		}
		if got, err := p.Apply([]byte(a)); err != nil || string(got) != b {
			t.Fatalf("got %q, %v; want %q\n%s", got, err, b, diff)
		}
		if err := os.WriteFile(filepath.Join(dir, "f"), []byte(a), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := git.Dir(dir).Output(t.Context(), strings.NewReader(string(diff)), nil, "apply", "--check", "-"); err != nil {
			t.Errorf("git does not apply it: %v\n%s", err, diff)
		}
	}
}

func TestDiff(t *testing.T) {
	// A user's configuration does not matter.
	home := t.TempDir()
	t.Setenv("HOME", home)
	if err := os.WriteFile(filepath.Join(home, ".gitconfig"), []byte("[diff]\n\tcontext = 1\n\tnoprefix = true\n\talgorithm = patience\n[color]\n\tui = always\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := Diff(t.Context(), "dir/f.go", []byte(lines("a b c d e f g")), []byte(lines("a b c d E f g")))
	if err != nil {
		t.Fatal(err)
	}
	if want := header + "@@ -2,6 +2,6 @@ a\n b\n c\n d\n-e\n+E\n f\n g\n"; string(got) != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	if _, err := Diff(t.Context(), "f", []byte("a\n"), []byte("\x00\x01")); err == nil || !strings.Contains(err.Error(), "not a text file") {
		t.Errorf("binary: %v", err)
	}
}

func TestMerge(t *testing.T) {
	base := lines("a b c d e f g h i")
	for name, tt := range map[string]struct {
		current, other, want string
		err                  error
	}{
		"both":          {lines("A b c d e f g h i"), lines("a b c d e f g h I"), lines("A b c d e f g h I"), nil},
		"only current":  {lines("A b c d e f g h i"), base, lines("A b c d e f g h i"), nil},
		"only other":    {base, lines("a b c d e f g h I"), lines("a b c d e f g h I"), nil},
		"same change":   {lines("A b c d e f g h i"), lines("A b c d e f g h i"), lines("A b c d e f g h i"), nil},
		"conflict":      {lines("A b c d e f g h i"), lines("B b c d e f g h i"), "", ErrConflict},
		"two conflicts": {lines("A b c d e f g h I"), lines("B b c d e f g h J"), "", ErrConflict},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Merge(t.Context(), []byte(tt.current), []byte(base), []byte(tt.other))
			if string(got) != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("got %q, %v; want %q, %v", got, err, tt.want, tt.err)
			}
		})
	}
}
