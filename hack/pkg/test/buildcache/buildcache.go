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

// Package buildcache keeps Go's build cache from filling the disk.
package buildcache

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	gb = 1 << 30
	// low is how much of the disk has to be free when a go command starts. The largest
	// step of a run writes about half of it.
	low = 8 * gb
	// enough is what shall be free after a trim.
	enough = 12 * gb
	// critical is when a trim cannot wait for a moment without go commands.
	critical = 4 * gb
	// recent entries are kept: a go command that does not belong to this run may be
	// about to read them.
	recent = 10 * time.Minute
)

// Cache is the build cache of all go commands of a run.
type Cache struct {
	// Dir is its folder, as "go env GOCACHE" says.
	Dir string
	// Log tells the user about a trim.
	Log func(format string, args ...any)

	// commands is held for reading by go commands, for writing by a trim: a command
	// that found a package in the cache reads it later.
	commands sync.RWMutex
	// free returns how many bytes of the disk are free; only a test has its own.
	free func() (uint64, error)
}

// Use waits until a go command may start, and returns a function that has to be called
// after it. If the disk is nearly full, it first removes what was used least recently,
// as the go command itself does after five days.
func (c *Cache) Use() (done func()) {
	// Not knowing what is free is no reason to stop testing.
	if free, err := c.Free(); err == nil && free < low {
		if free < critical {
			c.commands.Lock()
		}
		if free < critical || c.commands.TryLock() {
			c.trim()
			c.commands.Unlock()
		}
	}
	c.commands.RLock()
	return c.commands.RUnlock
}

// Free returns how many bytes may still be written to the disk of the cache.
func (c *Cache) Free() (uint64, error) {
	if c.free != nil {
		return c.free()
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return 0, err
	}
	var stat syscall.Statfs_t
	if err := syscall.Statfs(c.Dir, &stat); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", c.Dir, err)
	}
	return stat.Bavail * uint64(stat.Bsize), nil
}

// trim removes entries until there is room. Somebody else may have made some meanwhile.
func (c *Cache) trim() {
	free, err := c.Free()
	if err != nil || free >= low {
		return
	}
	type entry struct {
		path string
		size int64
		used time.Time
	}
	var entries []entry
	before := time.Now().Add(-recent)
	err = filepath.WalkDir(c.Dir, func(path string, d fs.DirEntry, err error) error {
		// Others may remove some meanwhile.
		if err != nil {
			return ignoreMissing(err)
		}
		// Entries are <two digits>/<hash>-a and -d.
		name := d.Name()
		if !d.Type().IsRegular() || !strings.HasSuffix(name, "-a") && !strings.HasSuffix(name, "-d") {
			return nil
		}
		info, err := d.Info()
		if err == nil && info.ModTime().Before(before) {
			entries = append(entries, entry{path, info.Size(), info.ModTime()})
		}
		return ignoreMissing(err)
	})
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.path, b.path)) })
	removed := uint64(0)
	for _, e := range entries {
		if free+removed >= enough {
			break
		}
		if e := os.Remove(e.path); e != nil {
			err = errors.Join(err, ignoreMissing(e))
			continue
		}
		removed += uint64(e.size)
	}
	c.Log("disk: %s free at %s, too little: removed %s of Go's build cache, what was used least recently\n", Size(free), c.Dir, Size(removed))
	if err != nil {
		c.Log("disk: %v\n", err)
	}
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Size is a number of bytes for people.
func Size(bytes uint64) string {
	return fmt.Sprintf("%.1f GB", float64(bytes)/gb)
}
