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

package e2edra

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"kubernetes-dra/hack/pkg/cluster"
)

// gated are the programs that know feature gates of DRA.
var gated = []string{cluster.APIServer, cluster.ControllerManager, cluster.Scheduler, cluster.Kubelet}

// Programs are those of a release in a folder.
type Programs struct {
	Bin string
	// Gates are feature gates to set besides those of the tests.
	Gates map[string]bool
}

// writeTo makes a folder with these programs, as upstream's tests want them. They know no way to set
// gates of others, therefore a script stands before each program that gets some.
func (p Programs) writeTo(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var gates []string
	for _, gate := range slices.Sorted(maps.Keys(p.Gates)) {
		gates = append(gates, fmt.Sprintf("%s=%t", gate, p.Gates[gate]))
	}
	for _, name := range append(slices.Clone(gated), cluster.Proxy, "kubectl") {
		program, file := filepath.Join(p.Bin, name), filepath.Join(dir, name)
		if _, err := os.Stat(program); err != nil {
			return fmt.Errorf("%s is not built: %w", name, err)
		}
		if len(gates) == 0 || !slices.Contains(gated, name) {
			if err := os.Symlink(program, file); err != nil {
				return err
			}
			continue
		}
		script := fmt.Sprintf("#!/bin/sh\nexec '%s' \"$@\" '--feature-gates=%s'\n", program, strings.Join(gates, ","))
		if err := os.WriteFile(file, []byte(script), 0o755); err != nil {
			return err
		}
	}
	return nil
}
