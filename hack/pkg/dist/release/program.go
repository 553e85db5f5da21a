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
	"path/filepath"

	"kubernetes-dra/hack/pkg/sys"
)

// buildProgram builds a program of the module in dir for a platform. The folder root gets the program, and
// below kubernetes the licences of the modules in it.
func buildProgram(ctx context.Context, dir, pkg, system, arch, root, name string) error {
	// Without the state of the checkout in it, the same code gives the same bytes.
	build := sys.Command(ctx, dir, sys.GoEnviron("GOOS="+system, "GOARCH="+arch), "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", filepath.Join(root, name), pkg)
	if err := sys.Run(ctx, build); err != nil {
		return fmt.Errorf("%s for %s/%s: %w", pkg, system, arch, err)
	}
	modules, err := modulesOf(root, []string{name})
	if err != nil {
		return err
	}
	return copyLicences(ctx, root, dir, modules)
}
