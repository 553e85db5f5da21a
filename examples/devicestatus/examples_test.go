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
	files, err := filepath.Glob("*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("want the manifests, got %v, %v", files, err)
	}
	for _, file := range files {
		manifest, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if copied, err := os.ReadFile(filepath.Join(tested, file)); err != nil || !bytes.Equal(copied, manifest) {
			t.Errorf("%s is not the same in %s: cp examples/devicestatus/*.yaml test/integration/dra/devicestatus/testdata (%v)", file, tested, err)
		}
	}
}
