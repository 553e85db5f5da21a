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
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Every command refuses what it does not know before it does anything.
func TestUnknownArguments(t *testing.T) {
	for _, c := range commands {
		if err := c.run(t.Context(), []string{"--no-such-flag"}); err == nil {
			t.Errorf("%s takes an unknown flag", c.name)
		}
		if c.positional {
			continue
		}
		if err := c.run(t.Context(), []string{"nonsense"}); err == nil || !strings.Contains(err.Error(), `argument "nonsense"`) {
			t.Errorf("%s nonsense: %v", c.name, err)
		}
	}
}

// The Makefile relies on it before it installs anything.
func TestReleases(t *testing.T) {
	for name, want := range map[string]string{"": "", "1.36": "", "1.36.9": "give the minor: 1.36", "1.9": "unknown release"} {
		err := dispatch(t.Context(), []string{"releases", "--release", name})
		if got := errorText(err); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("release %q: got %q, want %q", name, got, want)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// The list of targets fits into a terminal.
func TestMakeHelp(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "make", "--no-print-directory", "-C", "../..", "help").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if len(strings.TrimSuffix(line, "\n")) > 80 {
			t.Errorf("make help: %d columns: %s", len(line)-1, line)
		}
	}
}

// The scripts describe themselves, and do nothing else then.
func TestScriptHelp(t *testing.T) {
	scripts, err := filepath.Glob("../*.sh")
	if err != nil || len(scripts) == 0 {
		t.Fatal(scripts, err)
	}
	for _, script := range scripts {
		if filepath.Base(script) == "carry.sh" {
			continue // this one hands it to the tool
		}
		first, _ := os.ReadFile(script)
		_, header, _ := strings.Cut(string(first), "limitations under the License.\n\n# ")
		want, _, _ := strings.Cut(header, "\n")
		if out, err := exec.CommandContext(t.Context(), script, "--help").Output(); err != nil || !strings.HasPrefix(string(out), want) {
			t.Errorf("%s --help: %v, %s", script, err, out)
		}
	}
}

// Whoever lacks Go, or has an old one, is told so, and not what go.mod cannot mean.
func TestNoGo(t *testing.T) {
	bin := t.TempDir()
	for _, name := range []string{"bash", "dirname", "sed", "sort", "head"} {
		file, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(file, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct{ version, want string }{
		{"", "there is no go command in PATH: install Go 1."},
		{"echo go version go1.19.8 linux/amd64", "or later is needed, but " + bin + "/go says: go version go1.19.8"},
		{"echo go: download go1.26.0: toolchain not available; exit 1", "says: go: download"},
	} {
		if tt.version != "" {
			if err := os.WriteFile(filepath.Join(bin, "go"), []byte("#!/bin/sh\n"+tt.version+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		command := exec.CommandContext(t.Context(), filepath.Join(bin, "bash"), "../carry.sh", "tree")
		command.Env = []string{"PATH=" + bin}
		if out, err := command.CombinedOutput(); err == nil || !strings.Contains(string(out), tt.want) {
			t.Errorf("%q: got %v, %s, want %q", tt.version, err, out, tt.want)
		}
	}
}
