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
	"errors"
	"fmt"
	"os"
	"syscall"
)

const gb = 1 << 30

// Plenty is how much room a run of all tests is given without a thought. One that has to
// compile everything writes about 35 GB. Frugally it had 23 GB at most.
const Plenty = 40 * gb

// Cache is the build cache of a run.
type Cache struct {
	// Frugal says that there is little room. Then what only one part of the run
	// compiles is removed after it.
	Frugal bool
}

// Apart calls a function with what a part of the run has to add to the environment of its
// go commands. The part shares no compiled package with others, or few. Without room for
// all of them, it has a build cache of its own in the folder dir.
func (c Cache) Apart(dir string, part func(env []string) error) error {
	if !c.Frugal {
		return part(nil)
	}
	// A run that was killed did not remove it.
	if err := remove(dir); err != nil {
		return err
	}
	return errors.Join(part([]string{"GOCACHE=" + dir}), remove(dir))
}

func remove(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove a build cache: %w", err)
	}
	return nil
}

// Free returns how many bytes may still be written to the disk with the folder.
func Free(dir string) (uint64, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, err
	}
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", dir, err)
	}
	return stat.Bavail * uint64(stat.Bsize), nil
}

// Size is a number of bytes for people.
func Size(bytes uint64) string {
	return fmt.Sprintf("%.1f GB", float64(bytes)/gb)
}
