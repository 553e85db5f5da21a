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

// Package adminaccess checks that the manifests beside it are those which get
// tested, and that the older versions of them say the same.
package adminaccess

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tested is where the integration tests have them: a Kubernetes tree has no
// folder for examples of ours.
const tested = "../../test/integration/dra/adminaccess/testdata"

func TestCopies(t *testing.T) {
	files, err := filepath.Glob("*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("want the manifests, got %v, %v", files, err)
	}
	for _, file := range files {
		manifest, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if copied, err := os.ReadFile(filepath.Join(tested, file)); err != nil || !bytes.Equal(copied, manifest) {
			t.Errorf("%s is not the same in %s: cp examples/adminaccess/*.yaml test/integration/dra/adminaccess/testdata (%v)", file, tested, err)
		}
	}
}

// TestOlderVersion checks that the manifest for older releases differs only in
// what the version of the API demands.
func TestOlderVersion(t *testing.T) {
	lines := func(name string) []string {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for line := range strings.Lines(string(data)) {
			line = strings.TrimSpace(line)
			if line == "exactly:" || strings.HasPrefix(line, "#") {
				continue
			}
			lines = append(lines, strings.Replace(line, "resource.k8s.io/v1beta1", "resource.k8s.io/v1", 1))
		}
		return lines
	}
	newerOnly := []string{"tolerations:", "- operator: Exists           # unhealthy devices, too"}
	for _, name := range []string{"monitor", "monitor-64"} {
		newer := strings.Join(lines(name+".yaml"), "\n")
		// The older version does not know taints of devices.
		newer = strings.ReplaceAll(newer, "\n"+strings.Join(newerOnly, "\n"), "")
		if older := strings.Join(lines(name+"-v1beta1.yaml"), "\n"); newer != older {
			t.Errorf("%s-v1beta1.yaml differs from %s.yaml:\n%s\n\n%s", name, name, older, newer)
		}
	}
}
