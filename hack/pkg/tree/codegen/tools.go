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

package codegen

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"kubernetes-dra/hack/pkg/sys"
)

// generators are the packages of the tree which have to be built, besides the
// stand-in for protoc. openapi-gen and goimports are dependencies of the
// tree, the versions come from its go.mod.
var generators = []string{
	"k8s.io/code-generator/cmd/applyconfiguration-gen",
	"k8s.io/code-generator/cmd/conversion-gen",
	"k8s.io/code-generator/cmd/deepcopy-gen",
	"k8s.io/code-generator/cmd/defaulter-gen",
	"k8s.io/code-generator/cmd/go-to-protobuf",
	"k8s.io/code-generator/cmd/go-to-protobuf/protoc-gen-gogo",
	"k8s.io/code-generator/cmd/prerelease-lifecycle-gen",
	"k8s.io/code-generator/cmd/validation-gen",
	"k8s.io/kube-openapi/cmd/openapi-gen",
	"k8s.io/kubernetes/cmd/genswaggertypedocs",
	"golang.org/x/tools/cmd/goimports",
}

// validationGen does not exist in older releases.
const validationGen = "k8s.io/code-generator/cmd/validation-gen"

// tools runs commands in the tree, with the generators in $PATH.
type tools struct {
	dir string
	bin string
	env []string
	// validationGen is false if the release has no such generator.
	validationGen bool
}

// buildTools builds the generators from the tree and the stand-in for protoc
// from the repository.
func buildTools(ctx context.Context, tree, repo, bin string) (*tools, error) {
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return nil, err
	}
	t := &tools{dir: tree, bin: bin, env: environ("GOWORK=" + filepath.Join(tree, "go.work"))}
	goroot, err := t.output(ctx, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	// go-to-protobuf runs gofmt.
	t.env = append(t.env, "PATH="+strings.Join([]string{bin, filepath.Join(strings.TrimSpace(goroot), "bin"), os.Getenv("PATH")}, string(filepath.ListSeparator)))

	wanted := slices.Clone(generators)
	_, err = os.Stat(filepath.Join(tree, "staging/src", validationGen))
	t.validationGen = err == nil
	if errors.Is(err, os.ErrNotExist) {
		wanted = slices.DeleteFunc(wanted, func(pkg string) bool { return pkg == validationGen })
	} else if err != nil {
		return nil, err
	}
	if err := t.run(ctx, "go", append([]string{"build", "-o", bin + string(filepath.Separator)}, wanted...)...); err != nil {
		return nil, err
	}

	protoc := &tools{dir: repo, env: environ("GOWORK=off")}
	if err := protoc.run(ctx, "go", "build", "-o", filepath.Join(bin, "protoc"), "./hack/protoc"); err != nil {
		return nil, err
	}
	return t, nil
}

// environ is the environment of this process without what would let the same
// commands do something else on another machine.
func environ(settings ...string) []string {
	unwanted := []string{
		"LC_*", "LANG", "GIT_*", "KUBE_*", "UPDATE_COMPATIBILITY_FIXTURE_DATA",
		"GOFLAGS", "GOWORK", "GO111MODULE", "GOOS", "GOARCH", "GOBIN", "GODEBUG", "GOEXPERIMENT",
	}
	// With -trimpath, what is in the build cache does not depend on where the
	// tree is: the check of the base and the next tree don't have to
	// compile everything again, and neither has the build of the binaries.
	env := sys.Without(unwanted, "LC_ALL=C", sys.GoFlags("-buildvcs=false", "-trimpath"))
	if os.Getenv("GOGC") == "" {
		// Generators are short-lived and allocate a lot. This makes
		// them a quarter faster.
		env = append(env, "GOGC=200")
	}
	return append(env, settings...)
}

// command prepares a command that runs in the tree. A name without directory
// is that of a generator or the go command.
func (t *tools) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	if t.bin != "" && name != "go" && !filepath.IsAbs(name) {
		name = filepath.Join(t.bin, name)
	}
	return sys.Command(ctx, t.dir, t.env, name, args...)
}

// run runs a command. What it printed is part of the error if it fails.
func (t *tools) run(ctx context.Context, name string, args ...string) error {
	return sys.Run(ctx, t.command(ctx, name, args...))
}

// output runs a command and returns what it wrote to its standard output.
func (t *tools) output(ctx context.Context, name string, args ...string) (string, error) {
	return sys.Output(ctx, t.command(ctx, name, args...))
}
