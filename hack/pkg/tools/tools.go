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

// Package tools builds the third-party programs that a cluster needs, and that
// are not part of Kubernetes: etcd, a container runtime, CNI plugins, a
// simulator of nodes, and kind for clusters in containers. It builds the linters,
// too. Each is a small module in hack/tools, whose go.mod says what is built in
// which version; separate ones because their dependencies do not go together.
// The only source is the Go module proxy.
package tools

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"

	"kubernetes-dra/hack/pkg/sys"
)

// ControlPlane and Node are the tools that each part of a cluster needs.
var (
	ControlPlane = []string{"etcd", "kwok"}
	Node         = []string{"cni", "containerd", "runc"}
)

// Linter is the tool that checks Go code, and its program. WorkflowLinter checks workflows of GitHub.
const (
	Linter         = "golangci-lint"
	WorkflowLinter = "actionlint"
)

// options are what a tool is built with if that is not usual.
type options struct {
	tags string
	// cgo is true if the program needs a C compiler, and the library that pkg-config knows
	// under that name. All others are linked statically.
	cgo     bool
	library string
}

var special = map[string]options{
	// The snapshotters that would need C libraries are not used.
	"containerd": {tags: "no_btrfs,no_devmapper,no_zfs"},
	// Without it the kubelet's sandboxes, which ask for the runtime's
	// seccomp profile, are refused.
	"runc": {tags: "seccomp", cgo: true, library: "libseccomp"},
}

// Dir is where the programs are.
func Dir(repo string) string { return filepath.Join(repo, "_output", "tools", "bin") }

// Names are the tools that can be built.
func Names(repo string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(repo, "hack", "tools", "*", "go.mod"))
	for i, file := range files {
		files[i] = filepath.Base(filepath.Dir(file))
	}
	return files, err
}

// Build builds the programs of the named tools into Dir, those that are not
// up to date. log gets progress.
func Build(ctx context.Context, repo string, names []string, log func(format string, args ...any)) error {
	known, err := Names(repo)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("no tool %q, there are: %s", name, strings.Join(known, ", "))
		}
	}
	out := Dir(repo)
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	unlock, err := sys.Lock(ctx, filepath.Join(filepath.Dir(out), "lock"), func() { log("another carry builds tools, waiting for it") })
	if err != nil {
		return err
	}
	defer unlock()
	for _, name := range names {
		if err := build(ctx, filepath.Join(repo, "hack", "tools", name), out, special[name], log); err != nil {
			return fmt.Errorf("building %s: %w", name, err)
		}
	}
	return nil
}

// build builds the tool in a folder.
func build(ctx context.Context, dir, out string, o options, log func(string, ...any)) error {
	name := filepath.Base(dir)
	packages, err := packagesOf(dir)
	if err != nil {
		return err
	}
	env := []string{"GOWORK=off", sys.GoFlags("-mod=readonly"), "CGO_ENABLED=0"}
	if o.cgo {
		env[2] = "CGO_ENABLED=1"
	}
	inputs, err := inputsOf(ctx, dir, env, o.tags)
	if err != nil {
		return err
	}
	stamp := filepath.Join(filepath.Dir(out), "."+name+".stamp")
	built := func(pkg string) string { return filepath.Join(out, programOf(name, pkg)) }
	gone := slices.ContainsFunc(packages, func(pkg string) bool { _, err := os.Stat(built(pkg)); return err != nil })
	if done, err := os.ReadFile(stamp); err == nil && string(done) == inputs && !gone {
		return nil
	}
	if o.library != "" && exec.CommandContext(ctx, "pkg-config", "--exists", o.library).Run() != nil {
		return fmt.Errorf("pkg-config does not know %s; on Debian and Ubuntu: apt-get install pkg-config %[1]s-dev", o.library)
	}
	start := time.Now()
	log("%s: building %s ...", name, strings.Join(packages, ", "))
	done := make(chan struct{})
	defer close(done)
	go func() {
		for tick := time.Tick(15 * time.Second); ; {
			select {
			case <-done:
				return
			case <-tick:
				log("%s: still building, %s", name, time.Since(start).Round(time.Second))
			}
		}
	}()
	// A program that runs cannot be written to, but replaced.
	fresh, err := os.MkdirTemp(out, ".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(fresh)
	args := append([]string{"build", "-trimpath", "-ldflags=-s -w", "-tags=" + o.tags, "-o", fresh + string(filepath.Separator)}, packages...)
	if _, err := run(ctx, dir, env, args...); err != nil {
		return err
	}
	files, err := os.ReadDir(fresh)
	for i, file := range files {
		// What the go command calls otherwise than we do is alone.
		to := filepath.Join(out, file.Name())
		if len(packages) == 1 {
			to = built(packages[i])
		}
		err = errors.Join(err, os.Rename(filepath.Join(fresh, file.Name()), to))
	}
	log("%s: built in %s", name, time.Since(start).Round(100*time.Millisecond))
	return errors.Join(err, os.WriteFile(stamp, []byte(inputs), 0o644))
}

// packagesOf are the packages that a module has for tools, or its own.
func packagesOf(dir string) ([]string, error) {
	mod, err := parse(dir)
	if err != nil {
		return nil, err
	}
	packages := []string{"."}
	if len(mod.Tool) > 0 {
		packages = nil
	}
	for _, tool := range mod.Tool {
		packages = append(packages, tool.Path)
	}
	return packages, nil
}

func parse(dir string) (*modfile.File, error) {
	name := filepath.Join(dir, "go.mod")
	content, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return modfile.Parse(name, content, nil)
}

// programOf is the name of the program that is made of a package.
func programOf(tool, pkg string) string {
	if name := path.Base(pkg); pkg != "." && name != "cmd" && !strings.HasPrefix(pkg, "go.etcd.io/etcd/server/") {
		return name
	}
	return tool
}

// inputsOf identifies everything that decides what is built.
func inputsOf(ctx context.Context, dir string, env []string, tags string) (string, error) {
	version, err := run(ctx, dir, nil, "env", "GOVERSION")
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintln(h, version, env, tags)
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	for _, file := range files {
		content, readErr := os.ReadFile(file)
		err = errors.Join(err, readErr)
		fmt.Fprintf(h, "%s %d\n%s", filepath.Base(file), len(content), content)
	}
	return fmt.Sprintf("%x", h.Sum(nil)), err
}

// Version is the version of the module that a tool comes from, as it is pinned.
func Version(repo, name string) (string, error) {
	dir := filepath.Join(repo, "hack", "tools", name)
	mod, err := parse(dir)
	if err != nil {
		return "", err
	}
	for _, r := range mod.Require {
		if len(mod.Tool) == 0 && !r.Indirect || len(mod.Tool) > 0 && strings.HasPrefix(mod.Tool[0].Path+"/", r.Mod.Path+"/") {
			return r.Mod.Version, nil
		}
	}
	return "", fmt.Errorf("hack/tools/%s/go.mod does not say which version of %[1]s", name)
}

// run runs the go command and returns its output.
func run(ctx context.Context, dir string, env []string, args ...string) (string, error) {
	// These would build something else.
	foreign := []string{"GOOS", "GOARCH", "GOFLAGS", "GOWORK", "GOBIN", "GOEXPERIMENT", "CGO_ENABLED"}
	return sys.Output(ctx, sys.Command(ctx, dir, sys.Without(foreign, env...), "go", args...))
}
