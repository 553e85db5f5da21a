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

package release

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"kubernetes-dra/hack/pkg/dist/binaries"
	"kubernetes-dra/hack/pkg/sys"
)

// program is one of this repository, built for a platform.
type program struct {
	dir, pkg, system, arch string
	// build is that of the release.
	build binaries.Options
}

// archive builds the program under a name, and writes an archive of it, and its bill of materials, into a folder.
// write gets a folder with the program, and below kubernetes the licences of the modules in it.
func (p program) archive(ctx context.Context, dir, name, archive string, write func(root, file string) error) error {
	root, err := os.MkdirTemp(dir, ".program-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	// Without the state of the checkout in it, the same code gives the same bytes.
	build := sys.Command(ctx, p.dir, sys.GoEnviron("GOOS="+p.system, "GOARCH="+p.arch), "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", filepath.Join(root, name), p.pkg)
	if err := sys.Run(ctx, build); err != nil {
		return fmt.Errorf("%s for %s/%s: %w", p.pkg, p.system, p.arch, err)
	}
	b := &bill{name: archive, root: root, source: p.pkg + " of the carry's repository", build: p.build}
	if b.modules, err = modulesOf(root, []string{name}); err != nil {
		return err
	}
	if err := copyLicences(ctx, root, p.dir, b.modules); err != nil {
		return err
	}
	file := filepath.Join(dir, archive)
	if err := write(root, file); err != nil {
		return err
	}
	if _, b.sum, err = sumsOf(file); err != nil {
		return err
	}
	return b.write(dir)
}
