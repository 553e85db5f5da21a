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
	"os/exec"
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
