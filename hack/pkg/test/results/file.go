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

// Package results keeps what tests found, by content: a result holds as long as nothing
// changes on which it depends, on whatever machine, in whatever clone. The results of a
// release stand in hack/releases/<release>/passed, those of this clone beside what it built.
package results

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"kubernetes-dra/hack/pkg/sys"
)

// Name is the name of the files with results.
const Name = "passed"

// format is the version of the files. A program that needs other fields raises it.
const format = "1"

const formatPrefix = "# format "

const head = `# What passed, a line for each unit: a mode and a package. Do not edit.
# "make test" writes such lines into _output, "make record" moves them here. A line holds as long
# as its key is that of the unit now: a hash of all that the result depends on. Each run of CI
# repeats some of them, so a line that was made without a run is found some day.
# Two branches are merged by keeping the lines of both (.gitattributes).
` + formatPrefix + format + "\n"

// File is where the results of a release stand in the repository, relative to it.
func File(release string) string { return path.Join("hack", "releases", release, Name) }

// Line is the result of one unit that passed.
type Line struct {
	// Mode and Package are the unit: how it was tested, and what.
	Mode, Package string
	// Key identifies all that was known beforehand: sources, flags, versions.
	Key string
	// Passed and Skipped count tests, sub-tests included.
	Passed, Skipped int
	// Seconds is how long it took.
	Seconds int
	// Reruns is how often a test of it had to be run again.
	Reruns int
	// Date is the day, like 2026-11-26.
	Date string
	// Reads are what the tests read when they ran, beside what the key has, and ReadsSum is
	// what was there. See [Log].
	Reads    []string
	ReadsSum string
	// Condemned says that it did not pass when it was repeated. Only lines of this clone
	// can be; no line with this key counts any more.
	Condemned bool
}

// none stands for an empty field.
const none = "-"

// condemned stands for the number of tests that passed.
const condemned = "condemned"

// String is the line in a file. Its last field is a checksum of the others.
func (l Line) String() string {
	reads, passed := none, strconv.Itoa(l.Passed)
	if len(l.Reads) > 0 {
		reads = l.ReadsSum + ":" + strings.Join(l.Reads, ",")
	}
	if l.Condemned {
		passed = condemned
	}
	text := strings.Join([]string{
		l.Mode, l.Package, l.Key, passed, strconv.Itoa(l.Skipped), strconv.Itoa(l.Seconds), strconv.Itoa(l.Reruns), l.Date, reads,
	}, " ")
	return text + " " + checksum(text)
}

// checksum finds lines that were damaged, or cut off.
func checksum(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:4])
}

var hash = regexp.MustCompile(`^[0-9a-f]{32}$`)

func parse(text string) (Line, error) {
	fields := strings.Split(text, " ")
	if len(fields) != 10 {
		return Line{}, fmt.Errorf("it has %d fields, not 10", len(fields))
	}
	if at := strings.LastIndex(text, " "); checksum(text[:at]) != text[at+1:] {
		return Line{}, errors.New("its checksum differs: it was changed, or cut off")
	}
	l := Line{Mode: fields[0], Package: fields[1], Key: fields[2], Date: fields[7], Condemned: fields[3] == condemned}
	if l.Condemned {
		fields[3] = "0"
	}
	if !hash.MatchString(l.Key) {
		return Line{}, fmt.Errorf("key %q is none", l.Key)
	}
	for i, number := range []*int{&l.Passed, &l.Skipped, &l.Seconds, &l.Reruns} {
		n, err := strconv.Atoi(fields[3+i])
		if err != nil || n < 0 {
			return Line{}, fmt.Errorf("%q is no count", fields[3+i])
		}
		*number = n
	}
	if _, err := time.Parse(time.DateOnly, l.Date); err != nil {
		return Line{}, fmt.Errorf("date: %w", err)
	}
	if fields[8] != none {
		sum, reads, found := strings.Cut(fields[8], ":")
		if !found || !hash.MatchString(sum) {
			return Line{}, fmt.Errorf("%q is not what tests read", fields[8])
		}
		l.ReadsSum, l.Reads = sum, strings.Split(reads, ",")
	}
	return l, nil
}

// Load reads a file. There is none at first, which is no error. In a file of this clone, the
// last line may be cut off: the run that wrote it was killed. Then it says nothing.
func Load(file string, mayBeCut bool) ([]Line, error) {
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if mayBeCut {
		content = content[:bytes.LastIndexByte(content, '\n')+1]
	}
	var lines []Line
	n := 0
	for text := range strings.Lines(string(content)) {
		n++
		whole := strings.HasSuffix(text, "\n")
		text = strings.TrimSuffix(text, "\n")
		if version, found := strings.CutPrefix(text, formatPrefix); found && version != format {
			return nil, fmt.Errorf("%s:%d: format %s, and this program knows %s only: use the program that belongs to the file, or remove the file and run \"make test-owed\"", file, n, version, format)
		}
		if strings.HasPrefix(text, "#") || text == "" {
			continue
		}
		l, err := parse(text)
		if err == nil && !whole {
			err = errors.New("it is cut off")
		}
		if err == nil && l.Condemned && !mayBeCut {
			err = errors.New("it did not pass")
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w; remove the line, its unit is owed then", file, n, err)
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// Append adds a line to a file of this clone. Several runs may do so at once.
func Append(file string, l Line) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	// The lock ends when the file is closed.
	if err := errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_EX), dropCut(f)); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", file, err), f.Close())
	}
	_, err = f.WriteString(l.String() + "\n")
	return errors.Join(err, f.Close())
}

// dropCut removes the last line if it was cut off because a run was killed.
func dropCut(f *os.File) error {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	content, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	if whole := bytes.LastIndexByte(content, '\n') + 1; whole < len(content) {
		return f.Truncate(int64(whole))
	}
	return nil
}

// Write replaces a file of the repository. The order of its lines depends on nothing but
// them.
func Write(file string, lines []Line) error {
	var texts []string
	for _, l := range lines {
		texts = append(texts, l.String()+"\n")
	}
	slices.Sort(texts)
	return sys.WriteFile(file, []byte(head+strings.Join(slices.Compact(texts), "")), 0o644)
}
