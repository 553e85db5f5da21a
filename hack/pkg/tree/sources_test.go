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

package tree

import (
	"path/filepath"
	"slices"
	"testing"
)

// What decides about the generated code is found by following imports.
func TestSourceFiles(t *testing.T) {
	repo, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	files, err := sourceFiles(repo, generatorPackages)
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]bool{
		"hack/pkg/tree/codegen/codegen.go":          true,
		"hack/pkg/tree/codegen/schemas/main.go.txt": true,
		"hack/pkg/sys/command.go":                   true,
		"hack/pkg/tree/codegen/codegen_test.go":     false,
		"hack/pkg/tree/tree.go":                     false,
	} {
		if got := slices.Contains(files, file); got != want {
			t.Errorf("%s: want %t, got %t", file, want, got)
		}
	}
	if files, err := sourceFiles(t.TempDir(), generatorPackages); err != nil || len(files) > 0 {
		t.Errorf("want nothing where there is nothing, got %q, %v", files, err)
	}
}
