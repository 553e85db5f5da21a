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

package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"kubernetes-dra/hack/pkg/test/testplan"
)

func TestTouchedPackages(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"pkg/b/upstream.go", "pkg/a/a.go", "pkg/empty/readme.md"} {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := touchedPackages(dir, []testplan.File{
		{Path: "pkg/b/dropped.go"}, {Path: "pkg/b/upstream.go", Seam: true}, {Path: "pkg/a/a.go"},
		{Path: "pkg/gone/gone.go"}, {Path: "pkg/empty/gone.go"}, {Path: "pkg/c/list.yaml", Seam: true},
	})
	if want := []string{"./pkg/a", "./pkg/b"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}
