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

package tools

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// newRepo has a tool, which needs nothing from the network.
func newRepo(t *testing.T) string {
	t.Helper()
	repo := t.TempDir()
	write(t, filepath.Join(repo, "hack/tools/hello/go.mod"), "module example.com/hello\n\ngo 1.26.0\n")
	write(t, filepath.Join(repo, "hack/tools/hello/go.sum"), "")
	write(t, filepath.Join(repo, "hack/tools/hello/main.go"), "package main\n\nfunc main() { println(\"hello\") }\n")
	return repo
}

// set has the tool built in another way.
func set(t *testing.T, o options) {
	special["hello"] = o
	t.Cleanup(func() { delete(special, "hello") })
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
	repo := newRepo(t)
	ctx := context.Background()
	build := func() (log string, err error) {
		err = Build(ctx, repo, []string{"hello"}, func(format string, args ...any) { log += format + "\n" })
		return log, err
	}
	program := filepath.Join(Dir(repo), "hello")

	if log, err := build(); err != nil || !strings.Contains(log, "building") {
		t.Fatalf("%v, %s", err, log)
	}
	if out, err := exec.Command(program).CombinedOutput(); err != nil || string(out) != "hello\n" {
		t.Fatalf("%v, %s", err, out)
	}
	if log, err := build(); err != nil || log != "" {
		t.Errorf("nothing changed, so nothing was to be done, but: %v, %s", err, log)
	}

	// Each of these is a reason to build again.
	for what, change := range map[string]func(){
		"program is gone": func() { _ = os.Remove(program) },
		"go.sum":          func() { write(t, filepath.Join(repo, "hack/tools/hello/go.sum"), "\n") },
		"tags":            func() { set(t, options{tags: "other"}) },
	} {
		change()
		if log, err := build(); err != nil || !strings.Contains(log, "building") {
			t.Errorf("%s: it was to be built again, but: %v, %q", what, err, log)
		}
	}

	// What does not build leaves the program as it was.
	write(t, filepath.Join(repo, "hack/tools/hello/main.go"), "package main\n\nfunc main() { broken }\n")
	write(t, filepath.Join(repo, "hack/tools/hello/go.sum"), "")
	if _, err := build(); err == nil || !strings.Contains(err.Error(), "hello") || !strings.Contains(err.Error(), "broken") {
		t.Errorf("want an error of the compiler, got %v", err)
	}
	if _, err := os.Stat(program); err != nil {
		t.Error(err)
	}
}

func TestBuildUnknown(t *testing.T) {
	repo := newRepo(t)
	err := Build(context.Background(), repo, []string{"docker"}, t.Logf)
	if err == nil || !strings.Contains(err.Error(), "docker") || !strings.Contains(err.Error(), "hello") {
		t.Errorf("want an error that lists what there is, got %v", err)
	}
}

func TestBuildNamesMissingLibrary(t *testing.T) {
	repo := newRepo(t)
	set(t, options{library: "no-such-library"})
	err := Build(context.Background(), repo, []string{"hello"}, t.Logf)
	if err == nil || !strings.Contains(err.Error(), "no-such-library") {
		t.Errorf("want an error with the library, got %v", err)
	}
}

// TestPins checks that each tool has a module with a pinned version and the
// checksums of it.
func TestPins(t *testing.T) {
	repo, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	names, err := Names(repo)
	if err != nil || !slices.Contains(names, Linter) {
		t.Fatalf("got %q, %v", names, err)
	}
	for _, name := range append(names, append(ControlPlane, Node...)...) {
		version, err := Version(repo, name)
		if err != nil || !strings.HasPrefix(version, "v") {
			t.Errorf("%s: %q, %v", name, version, err)
			continue
		}
		sums, err := os.ReadFile(filepath.Join(repo, "hack", "tools", name, "go.sum"))
		if err != nil || !strings.Contains(string(sums), " "+version+" h1:") {
			t.Errorf("%s %s is not in its go.sum: %v", name, version, err)
		}
	}
	for name, want := range map[string]string{"etcd": "etcd", "coredns": "coredns", Linter: Linter, "kwok": "kwok", "runc": "runc", "cfssl": "cfssl cfssljson",
		"containerd": "containerd containerd-shim-runc-v2 ctr", "cni": "host-local bridge loopback macvlan ptp portmap"} {
		packages, err := packagesOf(filepath.Join(repo, "hack", "tools", name))
		for i := range packages {
			packages[i] = programOf(name, packages[i])
		}
		// Another tool may become more programs.
		if got := strings.Join(packages, " "); err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%s: got programs %s, want %s, %v", name, got, want, err)
		}
	}
}
