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
// simulator of nodes, and kind for clusters in containers. It builds the linter,
// too. Each has a small
// module of its own in hack/tools with its pinned version and go.sum; separate
// ones because their dependencies do not go together. The only source is the Go
// module proxy.
package tools

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"kubernetes-dra/hack/pkg/sys"
)

// Tool is a module in hack/tools with the programs that are built from it.
type Tool struct {
	// Name is that of the folder in hack/tools.
	Name string
	// Programs maps the name of each program to its package.
	Programs map[string]string
	// Module is the pinned one if the programs are in the tool's own module.
	Module string
	// Cgo is true if the program needs a C compiler. All others are
	// linked statically.
	Cgo bool
	// Tags are build tags.
	Tags []string
	// Libraries are what pkg-config must know.
	Libraries []string
}

// all in alphabetical order.
var all = []Tool{
	{
		Name: "cfssl",
		Programs: map[string]string{
			"cfssl":     "github.com/cloudflare/cfssl/cmd/cfssl",
			"cfssljson": "github.com/cloudflare/cfssl/cmd/cfssljson",
		},
	},
	{
		Name: "cni",
		Programs: map[string]string{
			"bridge":     "github.com/containernetworking/plugins/plugins/main/bridge",
			"host-local": "github.com/containernetworking/plugins/plugins/ipam/host-local",
			"loopback":   "github.com/containernetworking/plugins/plugins/main/loopback",
			"macvlan":    "github.com/containernetworking/plugins/plugins/main/macvlan",
			"portmap":    "github.com/containernetworking/plugins/plugins/meta/portmap",
			"ptp":        "github.com/containernetworking/plugins/plugins/main/ptp",
		},
	},
	{
		Name: "containerd",
		Programs: map[string]string{
			"containerd":              "github.com/containerd/containerd/v2/cmd/containerd",
			"containerd-shim-runc-v2": "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
			"ctr":                     "github.com/containerd/containerd/v2/cmd/ctr",
		},
		// The snapshotters that would need C libraries are not used.
		Tags: []string{"no_btrfs", "no_devmapper", "no_zfs"},
	},
	{
		// Its own main package has a few plugins only.
		Name:     "coredns",
		Programs: map[string]string{"coredns": "kubernetes-dra/hack/tools/coredns"},
		Module:   "github.com/coredns/coredns",
	},
	{
		Name:     "etcd",
		Programs: map[string]string{"etcd": "go.etcd.io/etcd/server/v3"},
	},
	{
		// Its own main package has the linters of Kubernetes in it.
		Name:     Linter,
		Programs: map[string]string{Linter: "kubernetes-dra/hack/tools/golangci-lint"},
		Module:   "github.com/golangci/golangci-lint/v2",
	},
	{
		Name:     "kind",
		Programs: map[string]string{"kind": "sigs.k8s.io/kind"},
	},
	{
		Name:     "kwok",
		Programs: map[string]string{"kwok": "sigs.k8s.io/kwok/cmd/kwok"},
	},
	{
		Name:     "runc",
		Programs: map[string]string{"runc": "github.com/opencontainers/runc"},
		Cgo:      true,
		// Without it the kubelet's sandboxes, which ask for the runtime's
		// seccomp profile, are refused.
		Tags:      []string{"seccomp"},
		Libraries: []string{"libseccomp"},
	},
}

// Names are the tools that can be built.
func Names() []string {
	var names []string
	for _, t := range all {
		names = append(names, t.Name)
	}
	return names
}

// ControlPlane and Node are the tools that each part of a cluster needs.
var (
	ControlPlane = []string{"etcd", "kwok"}
	Node         = []string{"cni", "containerd", "runc"}
)

// Linter is the tool that checks Go code, and its program.
const Linter = "golangci-lint"

// Dir is where the programs are.
func Dir(repo string) string { return filepath.Join(repo, "_output", "tools", "bin") }

// Build builds the programs of the named tools into Dir, those that are not
// up to date. log gets progress.
func Build(ctx context.Context, repo string, names []string, log func(format string, args ...any)) error {
	var wanted []Tool
	for _, name := range names {
		i := slices.IndexFunc(all, func(t Tool) bool { return t.Name == name })
		if i < 0 {
			return fmt.Errorf("no tool %q, there are: %s", name, strings.Join(Names(), ", "))
		}
		wanted = append(wanted, all[i])
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

	goVersion, err := run(ctx, repo, nil, "go", "env", "GOVERSION")
	if err != nil {
		return err
	}
	for _, t := range wanted {
		if err := t.build(ctx, repo, strings.TrimSpace(goVersion), log); err != nil {
			return fmt.Errorf("building %s: %w", t.Name, err)
		}
	}
	return nil
}

func (t Tool) build(ctx context.Context, repo, goVersion string, log func(string, ...any)) error {
	dir := filepath.Join(repo, "hack", "tools", t.Name)
	out := Dir(repo)
	stamp := filepath.Join(filepath.Dir(out), "."+t.Name+".stamp")
	inputs, err := t.inputs(dir, goVersion)
	if err != nil {
		return err
	}
	if done, err := os.ReadFile(stamp); err == nil && string(done) == inputs && t.complete(out) {
		return nil
	}

	if missing := t.missingLibraries(ctx); len(missing) > 0 {
		return fmt.Errorf("pkg-config does not know %s; on Debian and Ubuntu: apt-get install pkg-config libseccomp-dev", strings.Join(missing, ", "))
	}

	env := []string{"GOWORK=off", sys.GoFlags("-mod=readonly")}
	if !t.Cgo {
		env = append(env, "CGO_ENABLED=0")
	}
	start := time.Now()
	log("%s: building %s ...", t.Name, strings.Join(t.programs(), ", "))
	stop := heartbeat(func() { log("%s: still building, %s", t.Name, time.Since(start).Round(time.Second)) })
	defer stop()

	// The name of a program is not always the last element of its package's
	// path, so each is built alone; the second one finds the packages of the
	// first in the build cache.
	for _, program := range t.programs() {
		// A program that runs cannot be written to, but replaced.
		fresh := filepath.Join(out, "."+program+".new")
		args := []string{"build", "-trimpath", "-ldflags=-s -w", "-tags=" + strings.Join(t.Tags, ","), "-o", fresh, t.Programs[program]}
		if _, err := run(ctx, dir, env, "go", args...); err != nil {
			return err
		}
		if err := os.Rename(fresh, filepath.Join(out, program)); err != nil {
			return err
		}
	}
	if err := os.WriteFile(stamp, []byte(inputs), 0o644); err != nil {
		return err
	}
	log("%s: built in %s", t.Name, time.Since(start).Round(100*time.Millisecond))
	return nil
}

func (t Tool) programs() []string {
	var names []string
	for name := range t.Programs {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (t Tool) complete(out string) bool {
	for program := range t.Programs {
		if info, err := os.Stat(filepath.Join(out, program)); err != nil || !info.Mode().IsRegular() {
			return false
		}
	}
	return true
}

// inputs identifies everything that decides what is built.
func (t Tool) inputs(dir, goVersion string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, goVersion, t.Cgo, t.Tags, t.Programs)
	names := []string{"go.mod", "go.sum"}
	if t.Module != "" {
		names = append(names, "main.go")
	}
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, name, len(content))
		h.Write(content)
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

func (t Tool) missingLibraries(ctx context.Context) []string {
	var missing []string
	for _, library := range t.Libraries {
		if exec.CommandContext(ctx, "pkg-config", "--exists", library).Run() != nil {
			missing = append(missing, library)
		}
	}
	return missing
}

// Version is the version of the module that a program comes from, as it is
// pinned.
func Version(repo, name string) (string, error) {
	for _, t := range all {
		if t.Name != name {
			continue
		}
		content, err := os.ReadFile(filepath.Join(repo, "hack", "tools", name, "go.mod"))
		if err != nil {
			return "", err
		}
		for line := range strings.Lines(string(content)) {
			fields := strings.Fields(line)
			if len(fields) < 2 {
				continue
			}
			for _, pkg := range t.Programs {
				if t.Module == fields[0] || pkg == fields[0] || strings.HasPrefix(pkg, fields[0]+"/") {
					return fields[1], nil
				}
			}
		}
	}
	return "", fmt.Errorf("%s is not pinned", path.Join("hack/tools", name))
}

// heartbeat calls beat every 15 seconds until it is stopped.
func heartbeat(beat func()) (stop func()) {
	done := make(chan struct{})
	go func() {
		ticker := time.NewTicker(15 * time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				beat()
			}
		}
	}()
	return func() { close(done) }
}

// run runs a command and returns its output.
func run(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	// These would build something else.
	foreign := []string{"GOOS", "GOARCH", "GOFLAGS", "GOWORK", "GOBIN", "GOEXPERIMENT", "CGO_ENABLED"}
	return sys.Output(ctx, sys.Command(ctx, dir, sys.Without(foreign, env...), name, args...))
}
