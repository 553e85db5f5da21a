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

package binaries

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// module is a tree with one program, which prints its version.
func module(t *testing.T) Options {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"go.mod":                "module k8s.io/component-base\n\ngo 1.26.0\n",
		"version/base.go":       "package version\n\nvar gitVersion, gitMajor, gitMinor, gitCommit, gitTreeState, buildDate string\n\nfunc All() []string { return []string{gitVersion, gitMajor, gitMinor, gitCommit, gitTreeState, buildDate} }\n",
		"cmd/kube-this/main.go": "package main\n\nimport (\n\t\"fmt\"\n\n\t\"k8s.io/component-base/version\"\n)\n\nfunc main() { fmt.Print(version.All()) }\n",
	} {
		write(t, filepath.Join(dir, name), content)
	}
	return Options{
		Tree:    dir,
		Bin:     filepath.Join(t.TempDir(), "bin"),
		LogFile: filepath.Join(t.TempDir(), "build.log"),
		Names:   []string{"kube-this"},
		Version: "v1.36.3+dra.1",
		Commit:  "0123456789",
		Date:    time.Date(2026, 7, 22, 18, 7, 38, 0, time.UTC),
		Log:     func(string, ...any) {},
	}
}

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestBuild(t *testing.T) {
	o := module(t)
	build := func() (output string, built bool) {
		t.Helper()
		if err := os.Remove(o.LogFile); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if err := Build(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(filepath.Join(o.Bin, "kube-this")).Output()
		if err != nil {
			t.Fatal(err)
		}
		_, err = os.Stat(o.LogFile)
		return string(out), err == nil
	}
	const want = "[v1.36.3+dra.1 1 36 0123456789 clean 2026-07-22T18:07:38Z]"
	if got, built := build(); got != want || !built {
		t.Errorf("got %s, %v; want %s", got, built, want)
	}
	if got, built := build(); got != want || built {
		t.Errorf("again: got %s, %v; want %s and nothing built", got, built, want)
	}
	o.Commit = "9876543210"
	if got, built := build(); !strings.Contains(got, "9876543210") || !built {
		t.Errorf("another commit: got %s, %v", got, built)
	}
	if err := os.Remove(filepath.Join(o.Bin, "kube-this")); err != nil {
		t.Fatal(err)
	}
	if _, built := build(); !built {
		t.Error("a binary that was removed is not built again")
	}
	o.Dirty = true
	for range 2 {
		if got, built := build(); !strings.Contains(got, "v1.36.3+dra.1-dirty") || !strings.Contains(got, " dirty ") || !built {
			t.Errorf("with edits: got %s, %v", got, built)
		}
	}
}

// TestEnviron checks that a debugger finds what it needs in binaries that are for it. The
// go command takes the last setting of a variable.
func TestEnviron(t *testing.T) {
	for _, debug := range []bool{false, true} {
		flags := ""
		for _, setting := range (Options{Debug: debug}).environ() {
			if value, ok := strings.CutPrefix(setting, "GOFLAGS="); ok {
				flags = value
			}
		}
		if strings.Contains(flags, "-dwarf=false") == debug || !strings.Contains(flags, "-trimpath") {
			t.Errorf("debug %t: GOFLAGS=%s", debug, flags)
		}
	}
}

func TestBuildFails(t *testing.T) {
	o := module(t)
	write(t, filepath.Join(o.Tree, "cmd/kube-this/broken.go"), "package main\n\nvar x = undefinedName\n")
	err := Build(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), "undefinedName") || !strings.Contains(err.Error(), o.LogFile) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(filepath.Join(o.Bin, ".stamp")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a failed build counts as done: %v", err)
	}
}

// A long build says how far it is, and only what it says about faults is shown in the end.
func TestFollow(t *testing.T) {
	var log, shown strings.Builder
	f := &follower{Writer: &log, show: func(format string, args ...any) { fmt.Fprintf(&shown, format, args...) }}
	if _, err := f.Write([]byte("k8s.io/a\nk8s.io/b\n")); err != nil || shown.String() != "2 packages compiled" || log.String() != "k8s.io/a\nk8s.io/b\n" {
		t.Errorf("shown %q, logged %q, %v", shown.String(), log.String(), err)
	}
}
