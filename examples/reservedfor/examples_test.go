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

// Package reservedfor checks that the manifests beside it say the same. TestManifest of
// test/cluster applies them.
package reservedfor

import (
	"os"
	"strings"
	"testing"
)

// older makes a manifest for v1beta1 out of one for v1.
var older = strings.NewReplacer(
	"apiVersion: resource.k8s.io/v1\n", "apiVersion: resource.k8s.io/v1beta1\n",
	"  - name: accelerator-0\n", "  - name: accelerator-0\n    basic: {}\n",
	"      exactly:\n        deviceClassName:", "      deviceClassName:",
)

// TestOlderVersion checks that the manifest for 1.32 differs only in what the
// version of the API demands.
func TestOlderVersion(t *testing.T) {
	manifest, err := os.ReadFile("job.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("job-v1beta1.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if want := older.Replace(string(manifest)); string(got) != want {
		t.Errorf("job-v1beta1.yaml: got\n%s\nwant\n%s", got, want)
	}
}
