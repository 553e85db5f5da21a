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

package buildcache

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// newCache returns a cache with entries of 3 GB each that were used 5, 4, ... hours ago,
// one that is in use, and files that belong to Go but are no entries. Free space is what
// the test says, plus what was removed.
func newCache(t *testing.T, free uint64) (*Cache, *strings.Builder) {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, size int64, used time.Time) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		// Sparse: it takes no room.
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, used, used); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	for i := range 5 {
		write(fmt.Sprintf("%02d/abc-d", i), 3*gb, now.Add(time.Duration(i-5)*time.Hour))
	}
	write("ff/abc-d", 3*gb, now)
	write("README", 1, now.Add(-24*time.Hour))
	write("0f/abc-d/program", 1, now.Add(-24*time.Hour))
	var log strings.Builder
	c := &Cache{Dir: dir, Log: func(format string, args ...any) { fmt.Fprintf(&log, format, args...) }}
	c.free = func() (uint64, error) { return free + 18*gb - 3*gb*uint64(len(left(t, c))), nil }
	return c, &log
}

// left are the entries that are still there.
func left(t *testing.T, c *Cache) []string {
	t.Helper()
	entries, err := filepath.Glob(filepath.Join(c.Dir, "??", "abc-d"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(entries, func(path string) bool { return strings.Contains(path, "0f/") })
}

func TestUse(t *testing.T) {
	for name, tc := range map[string]struct {
		free uint64
		left int
		log  string
	}{
		"room":         {free: low, left: 6},
		"little room":  {free: low - 1, left: 4, log: "8.0 GB free"},
		"less room":    {free: critical - 1, left: 3, log: "removed 9.0 GB"},
		"no room left": {free: 0, left: 2, log: "removed 12.0 GB"},
	} {
		t.Run(name, func(t *testing.T) {
			c, log := newCache(t, tc.free)
			c.Use()()
			if got := left(t, c); len(got) != tc.left || filepath.Base(filepath.Dir(got[len(got)-1])) != "ff" {
				t.Errorf("expected the %d last entries, got %q", tc.left, got)
			}
			if !strings.Contains(log.String(), tc.log) || tc.log == "" && log.Len() > 0 {
				t.Errorf("expected %q, got %q", tc.log, log)
			}
			for _, name := range []string{"README", "0f/abc-d/program"} {
				if _, err := os.Stat(filepath.Join(c.Dir, name)); err != nil {
					t.Errorf("no entry of the cache, but: %v", err)
				}
			}
		})
	}
}

// TestUseWhileUsed: what a go command may read stays, as long as the disk is not full.
func TestUseWhileUsed(t *testing.T) {
	c, _ := newCache(t, critical)
	done := c.Use()
	if got := left(t, c); len(got) != 3 {
		t.Fatalf("expected a trim, left %q", got)
	}
	full := uint64(critical)
	c.free = func() (uint64, error) { return full, nil }
	c.Use()()
	if got := left(t, c); len(got) != 3 {
		t.Fatalf("removed while a command ran, left %q", got)
	}

	full = critical - 1
	used := make(chan struct{})
	go func() {
		c.Use()()
		close(used)
	}()
	select {
	case <-used:
		t.Fatal("the second command did not wait for the first one")
	case <-time.After(100 * time.Millisecond):
	}
	if got := left(t, c); len(got) != 3 {
		t.Fatalf("removed while a command ran, left %q", got)
	}
	done()
	<-used
	if got := left(t, c); len(got) != 1 {
		t.Errorf("nothing was removed, left %q", got)
	}
}

func TestFree(t *testing.T) {
	c := &Cache{Dir: filepath.Join(t.TempDir(), "new")}
	if free, err := c.Free(); err != nil || free == 0 {
		t.Errorf("got %d, %v", free, err)
	}
}
