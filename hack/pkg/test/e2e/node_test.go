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

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSystemd does with a unit what the suite does with its kubelet. The program writes its arguments to a
// file, and waits.
func TestSystemd(t *testing.T) {
	dir := t.TempDir()
	if err := writeSystemd(dir); err != nil {
		t.Fatal(err)
	}
	log, started := filepath.Join(dir, "kubelet.log"), filepath.Join(dir, "started")
	program := filepath.Join(dir, "kubelet")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nprintf '%s\\n' \"$@\" >>'"+started+"'\necho running >&2\nexec sleep 1000\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	units := t.TempDir()
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(filepath.Join(dir, name), args...)
		cmd.Env = append(os.Environ(), "NODE_UNITS="+units)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v: %s", name, args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	list := func(args ...string) string {
		return run("systemctl", append([]string{"list-units", "*kubelet*"}, args...)...)
	}
	eventually := func(what string, condition func() bool) {
		t.Helper()
		for range 100 {
			if condition() {
				return
			}
			_ = exec.Command("sleep", "0.1").Run()
		}
		t.Fatalf("%s: not after ten seconds", what)
	}
	if got := run("systemd-run", "--version"); !strings.HasPrefix(got, "systemd 2") {
		t.Errorf("version: %q", got)
	}
	run("systemd-run", "-p", "Delegate=true", "-p", "StandardError=append:"+log, "--unit=kubelet-1.service", "--slice=runtime.slice", "--remain-after-exit",
		program, "--a=b c", "it's $$5 and 10%%")
	t.Cleanup(func() { run("systemctl", "stop", "kubelet-1.service") })
	const unit = "kubelet-1.service loaded active running"
	if got := list("--state=running"); got != unit {
		t.Errorf("%q, want %q", got, unit)
	}
	want := "--a=b c\nit's $5 and 10%\n"
	arguments := func(want string) func() bool {
		return func() bool {
			got, err := os.ReadFile(started)
			return err == nil && string(got) == want
		}
	}
	eventually("started with the arguments", arguments(want))
	// The suite calls it by its name without the end.
	run("systemctl", "reset-failed", "kubelet-1")
	run("systemctl", "kill", "kubelet-1")
	eventually("killed", func() bool { return list("--state=running") == "" })
	if got := list(); got != "kubelet-1.service loaded failed failed" {
		t.Errorf("after kill: %q", got)
	}
	run("systemctl", "restart", "kubelet-1")
	if got := list("--state=running"); got != unit {
		t.Errorf("after restart: %q", got)
	}
	eventually("restarted with the arguments", arguments(want+want))
	run("systemctl", "restart", "kubelet-1")
	eventually("restarted while it runs", arguments(want+want+want))
	eventually("the output of all is in the log", func() bool {
		content, err := os.ReadFile(log)
		return err == nil && string(content) == strings.Repeat("running\n", 3)
	})
	run("systemctl", "stop", "kubelet-1.service")
	if got := list("--state=running"); got != "" {
		t.Errorf("after stop: %q", got)
	}
	cmd := exec.Command(filepath.Join(dir, "systemctl"), "mask", "kubelet-1")
	cmd.Env = append(os.Environ(), "NODE_UNITS="+units)
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Errorf("what it does not know: %s", out)
	}
}

func TestSudo(t *testing.T) {
	dir := t.TempDir()
	if err := WriteSudo(dir); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(filepath.Join(dir, "sudo"), "-E", "echo", "-n", "a").Output()
	if err != nil || string(out) != "a" {
		t.Errorf("%q, %v", out, err)
	}
}

// fakeNode is a node of which only the names are needed.
type fakeNode struct{ BareNode }

func (fakeNode) NodeCgroup() string  { return "group" }
func (fakeNode) NodeAddress() string { return "10.1.127.1" }

// TestNodeRun looks at what the suite and its kubelet are told.
func TestNodeRun(t *testing.T) {
	r := &NodeRun{Binary: "/suite", Kubelet: "/kubelet", Dir: filepath.Join(t.TempDir(), "run"), LogDir: filepath.Join(t.TempDir(), "logs")}
	// Again is no error.
	for range 2 {
		if err := r.prepare(fakeNode{}); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{nodeProgram: "/suite", "kubelet": "/kubelet"} {
		if got, err := os.Readlink(r.path(programDir, name)); err != nil || got != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	config, err := os.ReadFile(r.path(workDir, "kubeletconfig.yaml"))
	if err != nil || !strings.Contains(string(config), "cgroupRoot: /group\n") {
		t.Errorf("%s, %v", config, err)
	}
	args := func() string { return strings.Join(r.args(fakeNode{}), " ") }
	if got := args(); !strings.Contains(got, "--kubelet-cgroups=/group/kubelet --node-ip=10.1.127.1") || strings.Contains(got, "feature-gates") {
		t.Error(got)
	}
	r.Gates = map[string]bool{"B": false, "A": true}
	if got := args(); !strings.Contains(got, " --feature-gates=A=true,B=false --service-feature-gates=A=true,B=false") {
		t.Error(got)
	}
}
