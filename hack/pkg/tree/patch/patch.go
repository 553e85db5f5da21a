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

// Package patch reads, applies and writes unified diffs of single text files:
// the seams of the overlay.
//
// It is stricter than patch(1) and git apply: a hunk has to match every line,
// without fuzz. It may have moved, but only to a place that is the only one
// in the file; two candidates are an error, not a guess.
package patch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"kubernetes-dra/hack/pkg/git"
)

// Patch is the change of one file.
type Patch struct {
	// Path of the file, the same before and after.
	Path string
	// Hunks in the order of the file.
	Hunks []Hunk
}

// Hunk is one changed place.
type Hunk struct {
	// Header is the line that starts with @@.
	Header string
	// Start is the number of the first line in the new file, from 1.
	Start int
	// Lines with their first character: space, minus or plus. Each ends in
	// a newline, unless it is the last one of a file that does not.
	Lines []string
}

var hunkHeader = regexp.MustCompile(`^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@`)

const noNewline = `\ No newline at end of file`

// maxIntention is the number of characters that an intention may have.
const maxIntention = 120

// Intention returns what a seam is for: the line before its diff, which git ignores. It
// is empty if there is none.
func Intention(seam []byte) string {
	line, _, _ := strings.Cut(string(seam), "\n")
	if strings.HasPrefix(line, diffHeader) {
		return ""
	}
	return line
}

// WithIntentionOf returns a diff with the intention of a seam before it, if that has one.
func WithIntentionOf(seam, diff []byte) []byte {
	intention := Intention(seam)
	if intention == "" || len(diff) == 0 {
		return diff
	}
	return append([]byte(intention+"\n"), diff...)
}

// CheckIntention returns an error if a reader does not learn from the seam what it is for.
func CheckIntention(seam []byte) error {
	switch intention := Intention(seam); {
	case intention == "":
		return errors.New("write a line before its diff that says what it is for")
	case len(intention) > maxIntention, !strings.HasSuffix(intention, "."):
		return fmt.Errorf("what it is for is a sentence of at most %d characters that ends with a full stop: %q", maxIntention, intention)
	}
	return nil
}

const diffHeader = "diff --git "

// Parse reads a diff in git's format of exactly one file, which exists before
// and after. One line before it may say what it is for.
func Parse(data []byte) (*Patch, error) {
	lines := strings.SplitAfter(string(data), "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	at := 0
	next := func(prefix string) (string, bool) {
		if at < len(lines) && strings.HasPrefix(lines[at], prefix) {
			at++
			return strings.TrimSuffix(strings.TrimPrefix(lines[at-1], prefix), "\n"), true
		}
		return "", false
	}
	fail := func(format string, args ...any) (*Patch, error) {
		return nil, fmt.Errorf("line %d: %s", at+1, fmt.Sprintf(format, args...))
	}

	if Intention(data) != "" {
		at++
	}
	header, ok := next(diffHeader)
	if !ok {
		return fail("a seam starts with a line that says what it is for, and one with \"diff --git a/... b/...\"")
	}
	next("index ")
	from, ok := next("--- ")
	if !ok {
		return fail("expected a line \"--- a/...\": a seam changes the lines of a file that upstream has, nothing else")
	}
	to, ok := next("+++ ")
	if !ok {
		return fail("expected a line \"+++ b/...\"")
	}
	p := &Patch{Path: strings.TrimPrefix(from, "a/")}
	if from != "a/"+p.Path || to != "b/"+p.Path || header != from+" "+to {
		return fail("the three header lines must name the same file, as a/... and b/...")
	}
	for at < len(lines) {
		m := hunkHeader.FindStringSubmatch(lines[at])
		if m == nil {
			return fail("expected a hunk: %q", strings.TrimSuffix(lines[at], "\n"))
		}
		h := Hunk{Header: strings.TrimSuffix(lines[at], "\n"), Start: number(m[3], 0)}
		oldCount, newCount := number(m[2], 1), number(m[4], 1)
		if newCount == 0 { // then the number is that of the line before
			h.Start++
		}
		at++
		changes := false
		for oldCount > 0 || newCount > 0 || at < len(lines) && strings.HasPrefix(lines[at], `\`) {
			if at == len(lines) {
				return fail("the hunk %s ends too early", h.Header)
			}
			line := lines[at]
			switch line[0] {
			case ' ':
				oldCount, newCount = oldCount-1, newCount-1
			case '-':
				oldCount, changes = oldCount-1, true
			case '+':
				newCount, changes = newCount-1, true
			case '\\':
				if !strings.HasPrefix(line, noNewline) || len(h.Lines) == 0 {
					return fail("unexpected %q", strings.TrimSuffix(line, "\n"))
				}
				last := &h.Lines[len(h.Lines)-1]
				*last = strings.TrimSuffix(*last, "\n")
				at++
				continue
			default:
				return fail("a line of a hunk starts with a space, a minus or a plus: %q", strings.TrimSuffix(line, "\n"))
			}
			if oldCount < 0 || newCount < 0 {
				return fail("the hunk %s has more lines than its header says", h.Header)
			}
			h.Lines = append(h.Lines, line)
			at++
		}
		if !changes {
			return fail("the hunk %s changes nothing", h.Header)
		}
		p.Hunks = append(p.Hunks, h)
	}
	if len(p.Hunks) == 0 {
		return fail("no hunks")
	}
	return p, nil
}

func number(s string, missing int) int {
	if n, err := strconv.Atoi(s); err == nil {
		return n
	}
	return missing
}

// side returns the lines of the hunk before (sign '-') or after ('+') it.
func (h *Hunk) side(sign byte) []string {
	var lines []string
	for _, l := range h.Lines {
		if l[0] == ' ' || l[0] == sign {
			lines = append(lines, l[1:])
		}
	}
	return lines
}

// context counts the unchanged lines at the start and at the end.
func (h *Hunk) context() (leading, trailing int) {
	for leading < len(h.Lines) && h.Lines[leading][0] == ' ' {
		leading++
	}
	for trailing < len(h.Lines) && h.Lines[len(h.Lines)-1-trailing][0] == ' ' {
		trailing++
	}
	return leading, trailing
}

// HunkError says why and where a hunk does not apply.
type HunkError struct {
	// Hunk is its number, from 1, and Header its @@ line.
	Hunk   int
	Header string
	// Reason it does not apply.
	Reason string
}

func (e *HunkError) Error() string {
	return fmt.Sprintf("hunk %d (%s): %s", e.Hunk, e.Header, e.Reason)
}

// Apply returns the content with the patch applied. Each hunk that does not
// apply gives a HunkError.
func (p *Patch) Apply(content []byte) ([]byte, error) {
	lines := split(content)
	var errs []error
	done := 0   // lines before this one belong to earlier hunks
	offset := 0 // by which hunks that failed would have moved the rest
	for i := range p.Hunks {
		h := &p.Hunks[i]
		before, after := h.side('-'), h.side('+')
		at, reason := h.locate(lines, before, done, h.Start-1-offset)
		if reason != "" {
			errs = append(errs, &HunkError{Hunk: i + 1, Header: h.Header, Reason: reason})
			offset += len(after) - len(before)
			continue
		}
		lines = slices.Concat(lines[:at], after, lines[at+len(before):])
		done = at + len(after)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return []byte(strings.Join(lines, "")), nil
}

// locate finds the line at which the hunk applies: the expected one, or the
// only other one. With less than the full context, the expected one has to be the
// only one, too. Otherwise it says why there is none.
func (h *Hunk) locate(lines, before []string, done, expected int) (int, string) {
	leading, trailing := h.context()
	unique := max(leading, trailing) < fullContext
	fits := func(at int) bool {
		if at < done || at+len(before) > len(lines) || !slices.Equal(lines[at:at+len(before)], before) {
			return false
		}
		// Less context than on the other side means that the hunk stood
		// at the end, or at the start, of the file.
		if trailing < leading && at+len(before) != len(lines) {
			return false
		}
		return leading >= trailing || at == 0
	}
	if !unique && fits(expected) {
		return expected, ""
	}
	var found []int
	for at := done; at+len(before) <= len(lines); at++ {
		if fits(at) {
			found = append(found, at)
		}
	}
	switch len(found) {
	case 1:
		return found[0], ""
	case 0:
		reason := h.nearest(lines, before, done)
		if at := find(lines, h.side('+')); at >= 0 {
			reason += fmt.Sprintf("; what the hunk makes of them stands at line %d already: does upstream have the change?", at+1)
		}
		return 0, reason
	}
	var numbers []string
	for _, at := range found {
		numbers = append(numbers, strconv.Itoa(at+1))
	}
	reason := fmt.Sprintf("its lines stand at more than one place (lines %s)", strings.Join(numbers, ", "))
	if !unique {
		reason += ", none of them where it is expected"
	}
	return 0, reason
}

// nearest describes the place that has most of the hunk's lines. Empty lines say
// nothing about where that is.
func (h *Hunk) nearest(lines, before []string, done int) string {
	best, bestAt, equal, differs := 0, 0, 0, 0
	for at := range lines {
		telling, all, first := 0, 0, -1
		for i, want := range before {
			if at+i < len(lines) && lines[at+i] == want {
				all++
				if strings.TrimSpace(want) != "" {
					telling++
				}
			} else if first < 0 {
				first = i
			}
		}
		if telling > best {
			best, bestAt, equal, differs = telling, at, all, first
		}
	}
	if best == 0 {
		return "none of its lines is in the file"
	}
	if differs < 0 {
		if bestAt < done {
			return fmt.Sprintf("its lines stand at line %d, before or inside of the hunk before it", bestAt+1)
		}
		return fmt.Sprintf("its lines stand at line %d, but not at the start or the end of the file as it says", bestAt+1)
	}
	got := "the end of the file"
	if bestAt+differs < len(lines) {
		got = strconv.Quote(strings.TrimSuffix(lines[bestAt+differs], "\n"))
	}
	return fmt.Sprintf("its lines are not in the file; the most similar place is line %d, where %d of its %d lines match: line %d is %s instead of %q",
		bestAt+1, equal, len(before), bestAt+differs+1, got, strings.TrimSuffix(before[differs], "\n"))
}

// find returns where the wanted lines stand first, -1 if they do not.
func find(lines, want []string) int {
	for at := 0; len(want) > 0 && at+len(want) <= len(lines); at++ {
		if slices.Equal(lines[at:at+len(want)], want) {
			return at
		}
	}
	return -1
}

func split(content []byte) []string {
	if len(content) == 0 {
		return nil
	}
	lines := strings.SplitAfter(string(content), "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// Diff writes the canonical patch from one content of the file at path to
// another: what git diff prints with three lines of context, without the
// index line. It is empty if the contents are the same.
func Diff(ctx context.Context, path string, from, to []byte) ([]byte, error) {
	return diff(ctx, path, from, to, fullContext)
}

// fullContext is the number of lines of context in a patch, unless it is shared by
// files that differ there.
const fullContext = 3

func diff(ctx context.Context, path string, from, to []byte, lines int) ([]byte, error) {
	if bytes.Equal(from, to) {
		return nil, nil
	}
	dir, err := writeFiles(map[string][]byte{"from": from, "to": to})
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out, err := git.Dir(dir).Output(ctx, nil, outsideRepositories(dir), "diff", "--no-index", "--no-color", "--no-ext-diff", "--no-textconv",
		"--no-renames", "--diff-algorithm=myers", fmt.Sprintf("--unified=%d", lines), "--inter-hunk-context=0", "from", "to")
	if git.ExitCode(err) != 1 { // 1 says that there are differences
		return nil, fmt.Errorf("%s: comparing: %w", path, err)
	}
	hunks := bytes.Index(out, []byte("\n@@ "))
	if hunks < 0 {
		return nil, fmt.Errorf("%s is not a text file", path)
	}
	header := fmt.Sprintf("diff --git a/%[1]s b/%[1]s\n--- a/%[1]s\n+++ b/%[1]s", path)
	return append([]byte(header), out[hunks:]...), nil
}

// writeFiles writes files for git into a new folder.
func writeFiles(files map[string][]byte) (dir string, err error) {
	if dir, err = os.MkdirTemp("", "carry-diff-"); err != nil {
		return "", err
	}
	for name, content := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), content, 0o644))
	}
	return dir, err
}

// Merge brings the change from base to other into current. A conflict is an
// error.
func Merge(ctx context.Context, current, base, other []byte) ([]byte, error) {
	if bytes.Equal(current, base) {
		return other, nil
	}
	if bytes.Equal(other, base) {
		return current, nil
	}
	dir, err := writeFiles(map[string][]byte{"current": current, "base": base, "other": other})
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out, err := git.Dir(dir).Output(ctx, nil, outsideRepositories(dir), "merge-file", "--stdout", "--quiet", "current", "base", "other")
	// It exits with the number of conflicts.
	if code := git.ExitCode(err); code > 0 && code < 128 {
		return nil, ErrConflict
	}
	return out, err
}

// ErrConflict is returned by Merge if both sides changed the same lines.
var ErrConflict = errors.New("the edit and another feature's seam touch the same lines")

// outsideRepositories keeps git from looking for attributes in a repository
// that the temporary folder may happen to be in.
func outsideRepositories(dir string) []string {
	return []string{"GIT_CEILING_DIRECTORIES=" + filepath.Dir(dir)}
}
