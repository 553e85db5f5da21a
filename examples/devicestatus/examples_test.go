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

// Package devicestatus checks that the manifests beside it are those which get
// tested.
package devicestatus

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// tested is where the integration tests have them: a Kubernetes tree has no
// folder for examples of ours.
const tested = "../../test/integration/dra/devicestatus/testdata"

func TestCopies(t *testing.T) {
	for file, copied := range map[string]string{
		"driver.yaml": "driver.yaml", "workload-controller.yaml": "workload-controller.yaml", "node-policy/policy.yaml": "node-policy.yaml",
	} {
		manifest, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(filepath.Join(tested, copied)); err != nil || !bytes.Equal(data, manifest) {
			t.Errorf("%s is not the same in %s: cp examples/devicestatus/%s test/integration/dra/devicestatus/testdata/%s (%v)", file, tested, file, copied, err)
		}
	}
}
