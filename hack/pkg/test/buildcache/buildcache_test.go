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
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestApart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	leftover := filepath.Join(dir, "00", "abc-d")
	exists := func() bool {
		_, err := os.Stat(leftover)
		return err == nil
	}
	write := func() {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(leftover), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(leftover, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write()
	for _, frugal := range []bool{false, true} {
		err := Cache{Frugal: frugal}.Apart(dir, func(env []string) error {
			if want := []string{"GOCACHE=" + dir}; frugal && !slices.Equal(env, want) || !frugal && len(env) > 0 {
				t.Errorf("frugal %t: environment %q", frugal, env)
			}
			if exists() == frugal {
				t.Errorf("frugal %t: what an earlier run left is there: %t", frugal, exists())
			}
			write()
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if exists() == frugal {
			t.Errorf("frugal %t: the cache is there after it: %t", frugal, exists())
		}
	}
}

func TestFree(t *testing.T) {
	if free, err := Free(filepath.Join(t.TempDir(), "new")); err != nil || free == 0 {
		t.Errorf("got %d, %v", free, err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if free, err := Free(filepath.Join(file, "new")); err == nil {
		t.Errorf("a folder that cannot be: got %d", free)
	}
}
