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

package results

import (
	"context"
	"slices"
	"time"
)

// All is the mode of a line that says that all tests of a whole tree passed. Its key is the
// tree, see [Content.TreeKey].
const All = "all"

// Store has the results of a release, or of the tool: those of the repository, and those of
// this clone.
type Store struct {
	// file is that of this clone.
	file string
	// committed are the lines of the repository, local those of this clone.
	committed, local []Line
}

// Open reads the results from a file of the repository, if there is one, and one of this clone.
func Open(committed, local string) (*Store, error) {
	s := &Store{file: local}
	var err error
	if committed != "" {
		if s.committed, err = Load(committed, false); err != nil {
			return nil, err
		}
	}
	s.local, err = Load(local, true)
	return s, err
}

// Find returns a line about a unit that holds: its key is this one, and what the tests read
// is as it was. here asks for a result of this clone.
func (s *Store) Find(mode, pkg, key string, here bool, content *Content, env []string) (Line, bool) {
	lines := s.local
	if !here {
		lines = slices.Concat(s.committed, s.local)
	}
	for _, l := range slices.Backward(lines) {
		if l.Mode != mode || l.Package != pkg || l.Key != key {
			continue
		}
		if l.Condemned {
			break // what passed later would have been found
		}
		if len(l.Reads) == 0 || content.ReadsSum(l.Reads, env) == l.ReadsSum {
			return l, true
		}
	}
	return Line{}, false
}

// Expected is how long a unit took the last time that is known.
func (s *Store) Expected(mode, pkg string) (time.Duration, bool) {
	for _, l := range slices.Backward(slices.Concat(s.committed, s.local)) {
		if l.Mode == mode && l.Package == pkg && !l.Condemned {
			return time.Duration(l.Seconds) * time.Second, true
		}
	}
	return 0, false
}

// Condemned says whether a unit was condemned and did not pass since.
func (s *Store) Condemned(mode, pkg, key string) bool {
	for _, l := range slices.Backward(s.local) {
		if l.Mode == mode && l.Package == pkg && l.Key == key {
			return l.Condemned
		}
	}
	return false
}

// AnyCondemned says whether any unit ever was in this clone.
func (s *Store) AnyCondemned() bool {
	return slices.ContainsFunc(s.local, func(l Line) bool { return l.Condemned })
}

// New says whether this clone knows something about units that the repository does not.
func (s *Store) New(wanted func(mode string) bool) bool {
	return slices.ContainsFunc(s.local, func(l Line) bool {
		return wanted(l.Mode) && !slices.ContainsFunc(s.committed, func(c Line) bool { return c.String() == l.String() })
	})
}

// add writes a line of this clone.
func (s *Store) add(l Line) error {
	if l.Date == "" {
		l.Date = time.Now().UTC().Format(time.DateOnly)
	}
	s.local = append(s.local, l)
	return Append(s.file, l)
}

// Condemn says that a unit did not pass although a line says so: no line with its key counts any more.
func (s *Store) Condemn(mode, pkg, key string) error {
	return s.add(Line{Mode: mode, Package: pkg, Key: key, Condemned: true})
}

// flushed is how often the work trees are looked at while tests run.
const flushed = 20 * time.Second

// Recorder writes results down, if the work trees that they depend on did not change while
// the tests ran.
type Recorder struct {
	pending []pending
	last    time.Time
	// Dropped counts results that were not written for that reason.
	Dropped int
}

type pending struct {
	store    *Store
	line     Line
	contents []*Content
}

// Add remembers a result that depends on some work trees, as they were when its key was made.
func (r *Recorder) Add(ctx context.Context, s *Store, l Line, contents ...*Content) error {
	r.pending = append(r.pending, pending{s, l, contents})
	if time.Since(r.last) < flushed {
		return nil
	}
	return r.Flush(ctx)
}

// Flush writes what was remembered. It has to be called at the end.
func (r *Recorder) Flush(ctx context.Context) error {
	unchanged := map[*Content]bool{}
	for _, p := range r.pending {
		ok := true
		for _, c := range p.contents {
			if _, known := unchanged[c]; !known {
				now, err := Scan(ctx, c.Dir)
				if err != nil {
					return err
				}
				unchanged[c] = now.Tree == c.Tree
			}
			ok = ok && unchanged[c]
		}
		if !ok {
			r.Dropped++
			continue
		}
		if err := p.store.add(p.line); err != nil {
			return err
		}
	}
	r.pending, r.last = nil, time.Now()
	return nil
}
