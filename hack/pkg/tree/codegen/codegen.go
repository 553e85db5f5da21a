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

// Package codegen runs the code generators of a Kubernetes release in a tree of
// that release, for what a change of the resource.k8s.io API touches.
//
// The generators are the release's own, built from the tree, and called like
// hack/update-codegen.sh and the other scripts of upstream call them. The scripts
// themselves cannot be used: they want modules that a tree does not have
// (hack/tools), download protoc and etcd, and generate for all packages, which takes
// several times as long. There are two differences:
//
//   - Most get only those packages which can be affected. The output is the
//     same as for all packages, because generators look at one package and at
//     what it imports.
//   - The OpenAPI files under api/openapi-spec get updated without running
//     an API server, see openapispec.go.
//
// There is one rule by which all of that can be checked (CheckBase): generators
// run on the untouched base must change nothing.
package codegen

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"kubernetes-dra/hack/pkg/git"
	"kubernetes-dra/hack/pkg/sys"
)

// Options influence how code gets generated, but not what.
type Options struct {
	// Repo is the root of this repository. Its hack/install-deps.sh installs
	// protoc if that is missing.
	Repo string
	// Log gets called, if set, with what is being done.
	Log func(format string, args ...any)
}

// generation is one run in one tree.
type generation struct {
	tree git.Dir // absolute path
	tmp  string
	env  []string
	// affected are the directories which have to be generated again when
	// the API changed.
	affected []string
}

// Run generates code in a tree of a release.
func Run(ctx context.Context, dir, release string, opts Options) (finalErr error) {
	if opts.Log == nil {
		opts.Log = func(string, ...any) {}
	}
	// The generators compare paths with what "go list" prints.
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return err
	}
	// The go command adds checksums to go.work.sum which upstream's does not have:
	// without the samples that cannot be had, it looks at the go.mod of other versions.
	sums := filepath.Join(dir, "go.work.sum")
	content, err := os.ReadFile(sums)
	if err != nil {
		return fmt.Errorf("%s is not a tree of Kubernetes %s: %w", dir, release, err)
	}
	defer func() {
		finalErr = errors.Join(finalErr, os.WriteFile(sums, content, 0o644))
	}()
	if err := needProtoc(ctx, opts); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "codegen-")
	if err != nil {
		return err
	}
	defer func() {
		finalErr = errors.Join(finalErr, os.RemoveAll(tmp))
	}()

	g := &generation{tree: git.Dir(dir), tmp: tmp, env: environ(dir, tmp)}
	if err := g.findAffected(ctx); err != nil {
		return err
	}
	for _, s := range steps {
		start := time.Now()
		if err := s.run(g, ctx); err != nil {
			return fmt.Errorf("generating %s: %w", s.name, err)
		}
		opts.Log("generated %s (%s)", s.name, time.Since(start).Round(100*time.Millisecond))
	}
	return nil
}

// needProtoc installs the Protocol Buffers compiler if it is missing. Generated code does
// not depend on its version.
func needProtoc(ctx context.Context, opts Options) error {
	if _, err := exec.LookPath("protoc"); err == nil {
		return nil
	}
	opts.Log("protoc is missing, and needed to generate code")
	err := sys.Run(ctx, sys.Command(ctx, opts.Repo, nil, "hack/install-deps.sh", "generators"))
	if _, missing := exec.LookPath("protoc"); missing != nil {
		return errors.Join(errors.New("generating code needs protoc: on Debian and Ubuntu, sudo apt-get install protobuf-compiler"), err)
	}
	return nil
}

// environ is the environment of this process without what would let the same
// commands do something else on another machine, and with the generators in $PATH.
func environ(tree, bin string) []string {
	unwanted := []string{
		"LC_*", "LANG", "GIT_*", "KUBE_*", "UPDATE_COMPATIBILITY_FIXTURE_DATA",
		"GOFLAGS", "GOWORK", "GO111MODULE", "GOOS", "GOARCH", "GOBIN", "GODEBUG", "GOEXPERIMENT", "GOGC", "PATH",
	}
	// With -trimpath, what is in the build cache does not depend on where the
	// tree is, and binaries of it need not be compiled again.
	// Generators are short-lived and allocate a lot: GOGC makes them a quarter faster.
	return sys.Without(unwanted, "LC_ALL=C", "GOGC=200", sys.GoFlags("-buildvcs=false", "-trimpath"),
		"GOWORK="+filepath.Join(tree, "go.work"), "PATH="+bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
}

// run runs a command in the tree: a generator, or one in $PATH.
func (g *generation) run(ctx context.Context, name string, args ...string) error {
	_, err := g.output(ctx, name, args...)
	return err
}

// output runs a command and returns what it wrote to its standard output.
func (g *generation) output(ctx context.Context, name string, args ...string) (string, error) {
	if generator := filepath.Join(g.tmp, name); exists(generator) {
		name = generator
	}
	return sys.Output(ctx, sys.Command(ctx, string(g.tree), g.env, name, args...))
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// path turns a path inside of the tree into one that can be opened.
func (g *generation) path(name string) string {
	return filepath.Join(string(g.tree), filepath.FromSlash(name))
}

// CheckBase checks that the generators change nothing in the untouched base: runs
// them in a copy of the given revision of the tree. If that fails, generated
// code of a patched tree cannot be trusted either.
func CheckBase(ctx context.Context, tree, revision, release string, opts Options) (finalErr error) {
	tmp, err := os.MkdirTemp("", "codegen-base-")
	if err != nil {
		return err
	}
	defer func() {
		finalErr = errors.Join(finalErr, os.RemoveAll(tmp))
	}()
	if tree, err = filepath.Abs(tree); err != nil {
		return err
	}
	// A clone which shares the objects, not a work tree: it leaves nothing in
	// the tree's repository, also if it gets interrupted.
	base := git.Dir(filepath.Join(tmp, "kubernetes"))
	if _, err := git.Dir(tmp).Run(ctx, "clone", "--quiet", "--shared", "--no-checkout", "--", tree, string(base)); err != nil {
		return err
	}
	if _, err := base.Run(ctx, "checkout", "--quiet", "--detach", revision); err != nil {
		return fmt.Errorf("%s: %w", tree, err)
	}
	if err := Run(ctx, string(base), release, opts); err != nil {
		return err
	}
	after, err := base.Run(ctx, "status", "--porcelain", "--untracked-files=all")
	if err != nil {
		return err
	}
	if after = strings.TrimSpace(after); after != "" {
		diff, err := base.Run(ctx, "diff", "HEAD")
		if err != nil {
			return err
		}
		return fmt.Errorf("generators change the untouched %s:%s%s", revision, sys.Indented(after), sys.Indented(diff))
	}
	return nil
}

// generated matches the files that Run writes. They are the same for all
// releases: where one does not have a kind of file, nothing matches.
var generated = regexp.MustCompile(`^(?:` +
	`(?:.*/)?zz_generated\.(?:conversion|deepcopy|defaults|model_name|openapi|prerelease-lifecycle|validations)\.go` +
	`|staging/src/k8s\.io/api/.*/(?:generated\.(?:pb\.go|protomessage\.pb\.go|proto)|types_swagger_doc_generated\.go)` +
	`|staging/src/k8s\.io/api/testdata/HEAD/[^/]*` +
	`|staging/src/k8s\.io/client-go/applyconfigurations/.*\.go` +
	`|api/openapi-spec/.*\.json` +
	`|api/discovery/[^/]*\.json` +
	`|test/(?:compatibility_lifecycle/reference|featuregates_linter/test_data)/[^/]*feature_list\.[^/]*` +
	`)$`)

// handWritten matches the exceptions.
var handWritten = regexp.MustCompile(
	`^staging/src/k8s\.io/client-go/applyconfigurations/(?:.*/)?(?:doc|[^/]*_test|meta/v1/unstructured)\.go$`)

// IsGenerated says whether a file of a tree, given with its path inside of
// the tree, gets written by generators and therefore never is in the overlay.
func IsGenerated(file string) bool {
	return generated.MatchString(file) && !handWritten.MatchString(file)
}
