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
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
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
	want, err := newStamp(ctx, o, args)
	if err != nil {
		return err
	}
	stampFile := filepath.Join(o.Bin, ".stamp.json")
	if !o.Dirty && want.matches(stampFile, o) {
		o.Log("%s is up to date (%s)", o.Bin, o.Version)
		return nil
	}

	start := time.Now()
	o.Log("building %s: %s", o.Version, strings.Join(o.Names, " "))
	if err := compile(ctx, o, args); err != nil {
		return err
	}
	if err := want.write(stampFile, o); err != nil {
		return err
	}
	o.Log("%s: %d binaries in %s", o.Bin, len(o.Names), time.Since(start).Round(time.Second))
	return nil
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
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = o.Tree
	cmd.Env = o.environ()
	// Let go remove its temporary files.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Stdout = log
	output, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	tail := follow(output, log, o.Log)
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("go build: %w; the end of %s:\n%s", err, o.LogFile, tail)
	}
	return nil
}

// follow copies the output of go build -v, a line for each package that it
// compiles, and shows their number from time to time. It returns the last
// lines that are not names of packages.
func follow(output io.Reader, log io.Writer, show func(string, ...any)) string {
	const interval = 15 * time.Second
	var errs []string
	packages, shown := 0, time.Now()
	scanner := bufio.NewScanner(output)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		line := scanner.Text()
		fmt.Fprintln(log, line)
		if strings.ContainsAny(line, " \t") {
			errs = append(errs, line)
			continue
		}
		packages++
		if time.Since(shown) >= interval {
			shown = time.Now()
			show("%d packages compiled, now %s", packages, line)
		}
	}
	if err := scanner.Err(); err != nil {
		errs = append(errs, err.Error())
		// The writer must not block.
		_, _ = io.Copy(log, output)
	}
	return strings.Join(errs[max(0, len(errs)-40):], "\n")
}

// stamp tells whether binaries need to be built.
type stamp struct {
	// Go is the version and the environment of the go command.
	Go string
	// Args of the build, the version and commit of the tree among them.
	Args []string
	// Files are the binaries that came out.
	Files map[string]file
}

type file struct {
	Size int64
	Time time.Time
}

func newStamp(ctx context.Context, o Options, args []string) (*stamp, error) {
	out, err := sys.Output(ctx, sys.Command(ctx, "", o.environ(), "go", "env", "GOVERSION", "GOFLAGS", "GOOS", "GOARCH", "GOAMD64", "GOARM64", "CGO_ENABLED"))
	if err != nil {
		return nil, err
	}
	return &stamp{Go: strings.TrimSpace(out), Args: args}, nil
}

func (s *stamp) matches(name string, o Options) bool {
	data, err := os.ReadFile(name)
	if err != nil {
		return false
	}
	var old stamp
	if json.Unmarshal(data, &old) != nil || s.stat(o) != nil {
		return false
	}
	return reflect.DeepEqual(&old, s)
}

func (s *stamp) write(name string, o Options) error {
	if o.Dirty {
		// The next build has to look at the tree again.
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := s.stat(o); err != nil {
		return err
	}
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(name, data, 0o644)
}

func (s *stamp) stat(o Options) error {
	s.Files = map[string]file{}
	for _, name := range o.Names {
		info, err := os.Stat(filepath.Join(o.Bin, name))
		if err != nil {
			return err
		}
		s.Files[name] = file{Size: info.Size(), Time: info.ModTime().UTC()}
	}
	return nil
}
