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

// Package modules takes the Go modules of a release home, as the author of a program does.
package modules

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kubernetes-dra/hack/pkg/dist/release"
	"kubernetes-dra/hack/pkg/sys"
)

// The example of examples/go builds in an empty module, with the lines that come with the modules. The
// checksum database knows nothing about them.
func TestProgram(t *testing.T) {
	dir := os.Getenv("GO_MODULES")
	if dir == "" {
		t.Skip("make test-modules runs it, with GO_MODULES as the folder that make modules wrote")
	}
	program := t.TempDir()
	for name, parts := range map[string][]string{
		"go.mod":        {"../../../examples/go/go.mod", filepath.Join(dir, release.ReplaceFile)},
		release.SumFile: {filepath.Join(dir, release.SumFile)},
		"main.go":       {"../../../examples/go/main.go"},
	} {
		var content []byte
		for _, part := range parts {
			text, err := os.ReadFile(part)
			if err != nil {
				t.Fatal(err)
			}
			content = append(content, text...)
		}
		if err := os.WriteFile(filepath.Join(program, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out, err := sys.Output(t.Context(), sys.Command(t.Context(), program, nil, "go", "env", "GOMODCACHE", "GOPROXY"))
	if err != nil {
		t.Fatal(err)
	}
	known, proxy, _ := strings.Cut(strings.TrimSpace(out), "\n")
	// A former test may have left another module of that version. Only the other modules come from there.
	env := sys.GoEnviron("GOWORK=off", "GOMODCACHE="+filepath.Join(t.TempDir(), "cache"), sys.GoFlags("-trimpath", "-modcacherw"),
		"GOPROXY="+strings.Join([]string{"file://" + filepath.ToSlash(dir), "file://" + filepath.ToSlash(known) + "/cache/download", proxy}, ","))
	run := func(args ...string) error {
		return sys.Run(t.Context(), sys.Command(t.Context(), program, env, "go", args...))
	}
	if err := errors.Join(run("mod", "tidy"), run("build", "-o", os.DevNull, ".")); err != nil {
		t.Error(err)
	}
}
