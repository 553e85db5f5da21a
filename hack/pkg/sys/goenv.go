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

package sys

import (
	"os"
	"path/filepath"
	"strings"
)

// noDWARF has packages compiled without what only a debugger reads. With a cold build
// cache, that is 8 % of the CPU time and 16 % of the disk. hack/carry.sh passes it, too:
// all must, for one build cache.
const noDWARF = "-gcflags=all=-dwarf=false"

// GoFlags returns the setting of GOFLAGS that passes some flags to all go commands. What
// gets compiled has no debug information.
func GoFlags(flags ...string) string {
	return "GOFLAGS=" + strings.Join(append(flags, noDWARF), " ")
}

// ours are the variables that are set here and not taken from the user.
var ours = []string{"GOFLAGS", "GOWORK", "GO111MODULE", "CGO_ENABLED", "GOEXPERIMENT", "GOARCH", "GOOS"}

// GoEnviron returns the environment of this process with what the go command needs in a
// Kubernetes tree, followed by extra. Binaries, unit tests and integration tests
// share it, because then they share the build cache.
//
//   - CGO_ENABLED=0: upstream's release binaries are static, too. Only the
//     race detector needs cgo: pass CGO_ENABLED=1 for it, which compiles
//     everything anew in any case.
//   - -trimpath: what was compiled does not depend on where the tree stands.
//     All trees on a machine share the build cache then: that of another clone,
//     that of CI, and the unpatched one that "make bench" compares with. Tests
//     need [TestEnviron] for it.
//   - no version control stamp: the version is set by the linker.
//   - no debug information.
//   - the tree's own go.work, found from the current folder.
func GoEnviron(extra ...string) []string {
	return append(Without(ours, GoFlags("-buildvcs=false", "-trimpath"), "CGO_ENABLED=0"), extra...)
}

// TestEnviron returns the environment for the tests of the Kubernetes tree in the
// given folder.
//
// A few of upstream's packages look for data files beside their source, whose
// path -trimpath reduces to that of the package. As under Bazel, which upstream
// once used, they are told through TEST_SRCDIR and TEST_WORKSPACE where
// k8s.io/kubernetes stands: a symbolic link beside the tree.
func TestEnviron(tree string, extra ...string) ([]string, error) {
	tree, err := filepath.Abs(tree)
	if err != nil {
		return nil, err
	}
	const workspace = "src"
	parent := filepath.Dir(tree)
	link := filepath.Join(parent, workspace, "k8s.io", "kubernetes")
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		return nil, err
	}
	if target, err := os.Readlink(link); err != nil || target != tree {
		if err := os.RemoveAll(link); err != nil {
			return nil, err
		}
		if err := os.Symlink(tree, link); err != nil {
			return nil, err
		}
	}
	return GoEnviron(append([]string{"TEST_SRCDIR=" + parent, "TEST_WORKSPACE=" + workspace}, extra...)...), nil
}
