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

// Package binaries builds the Kubernetes binaries out of a tree.
package binaries

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"kubernetes-dra/hack/pkg/sys"
)

// Names are the binaries that are built unless others are asked for.
var Names = []string{
	"kube-apiserver", "kube-controller-manager", "kube-scheduler",
	"kubelet", "kube-proxy", "kubectl", "kubeadm",
}

// Options say what is built from what.
type Options struct {
	// Tree is the folder of the Kubernetes tree, Bin the one for the binaries.
	Tree, Bin string
	// LogFile gets what the compiler says.
	LogFile string
	// Names of the binaries: folders in the tree's cmd.
	Names []string
	// Version, like v1.36.3+dra.1, Commit and Date are what the binaries
	// say about themselves.
	Version, Commit string
	Date            time.Time
	// Dirty says that the tree has edits.
	Dirty bool
	// Debug keeps the symbols for a debugger.
	Debug bool
	// Arch is the architecture as Go calls it, by default that of this
	// machine.
	Arch string
	// Log tells the user what is going on.
	Log func(format string, args ...any)
}

// Build builds the binaries. It does nothing if they are there already, built
// in the same way from the same commit.
func Build(ctx context.Context, o Options) error {
	unlock, err := sys.Lock(ctx, filepath.Join(o.Bin, ".lock"), func() { o.Log("waiting for another build of %s", o.Bin) })
	if err != nil {
		return err
	}
	defer unlock()
	args := []string{"build", "-v", "-o", o.Bin + string(filepath.Separator), "-ldflags", LDFlags(o)}
	for _, name := range o.Names {
		args = append(args, "./cmd/"+name)
	}
	toolchain, err := sys.Output(ctx, sys.Command(ctx, "", o.environ(), "go", "env", "GOVERSION", "GOFLAGS", "GOOS", "GOARCH", "GOAMD64", "GOARM64", "CGO_ENABLED"))
	if err != nil {
		return err
	}
	key := toolchain + strings.Join(args, "\n")
	stamp := filepath.Join(o.Bin, ".stamp")
	old, _ := os.ReadFile(stamp)
	if built, err := o.stamp(key); err == nil && !o.Dirty && string(old) == built {
		o.Log("%s is up to date (%s)", o.Bin, o.Version)
		return nil
	}
	start := time.Now()
	o.Log("building %s: %s", o.Version, strings.Join(o.Names, " "))
	if err := compile(ctx, o, args); err != nil {
		return err
	}
	if o.Dirty {
		key += "\nof a tree with edits, at which the next build has to look again"
	}
	built, err := o.stamp(key)
	if err != nil {
		return err
	}
	o.Log("%s: %d binaries in %s", o.Bin, len(o.Names), time.Since(start).Round(time.Second))
	return os.WriteFile(stamp, []byte(built), 0o644)
}

// stamp says how the binaries were built, and which ones came out.
func (o Options) stamp(key string) (string, error) {
	for _, name := range o.Names {
		info, err := os.Stat(filepath.Join(o.Bin, name))
		if err != nil {
			return "", err
		}
		key += fmt.Sprintf("\n%s %d %s", name, info.Size(), info.ModTime().UTC().Format(time.RFC3339Nano))
	}
	return key, nil
}

// environ is that of the go command.
func (o Options) environ() []string {
	var env []string
	if o.Arch != "" {
		env = append(env, "GOOS=linux", "GOARCH="+o.Arch)
	}
	if o.Debug {
		env = append(env, "GOFLAGS=-buildvcs=false -trimpath")
	}
	return sys.GoEnviron(env...)
}

// LDFlags set the version, like upstream's hack/lib/version.sh. They concern
// the linker alone, so packages come from the build cache whatever they say.
func LDFlags(o Options) string {
	version, state := o.Version, "clean"
	if o.Dirty {
		version, state = version+"-dirty", "dirty"
	}
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	var flags []string
	for _, set := range [][2]string{
		{"gitVersion", version},
		{"gitMajor", major},
		{"gitMinor", minor},
		{"gitCommit", o.Commit},
		{"gitTreeState", state},
		{"buildDate", o.Date.UTC().Format(time.RFC3339)},
	} {
		for _, pkg := range []string{"k8s.io/client-go/pkg/version", "k8s.io/component-base/version"} {
			flags = append(flags, fmt.Sprintf("-X %s.%s=%s", pkg, set[0], set[1]))
		}
	}
	if !o.Debug {
		flags = append(flags, "-s", "-w")
	}
	return strings.Join(flags, " ")
}

// compile runs the go command, shows how far it is, and on failure the end of
// what it said.
func compile(ctx context.Context, o Options, args []string) error {
	log, err := os.Create(o.LogFile)
	if err != nil {
		return err
	}
	defer log.Close()
	fmt.Fprintf(log, "cd %s && go %s\n", o.Tree, strings.Join(args, " "))
	cmd := sys.Command(ctx, o.Tree, o.environ(), "go", args...)
	// Let go remove its temporary files.
	cmd.Cancel = func() error { return sys.Signal(cmd, syscall.SIGINT) }
	output := &follower{Writer: log, show: o.Log, shown: time.Now()}
	cmd.Stdout, cmd.Stderr = output, output
	err = cmd.Run()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	said, readErr := os.ReadFile(o.LogFile)
	lines := strings.Split(strings.TrimSpace(string(said)), "\n")
	// All others are names of packages.
	lines = slices.DeleteFunc(lines[1:], func(line string) bool { return !strings.ContainsAny(line, " \t") })
	return errors.Join(fmt.Errorf("go build: %w; the end of %s:\n%s", err, o.LogFile, strings.Join(lines[max(0, len(lines)-40):], "\n")), readErr)
}

// follower copies the output of go build -v, a line for each package that it
// compiles, and shows their number from time to time.
type follower struct {
	io.Writer
	show     func(string, ...any)
	packages int
	shown    time.Time
}

func (f *follower) Write(p []byte) (int, error) {
	f.packages += bytes.Count(p, []byte("\n"))
	if time.Since(f.shown) >= 15*time.Second {
		f.shown = time.Now()
		f.show("%d packages compiled", f.packages)
	}
	return f.Writer.Write(p)
}
