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

package cluster

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-dra/hack/pkg/cluster"
)

var yamlBlock = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")

// older makes a manifest of resource.k8s.io/v1beta1 out of the one in the README,
// as the README says.
var older = strings.NewReplacer(
	"apiVersion: resource.k8s.io/v1\n", "apiVersion: resource.k8s.io/v1beta1\n",
	"  - name: accelerator-0\n", "  - name: accelerator-0\n    basic: {}\n",
	"      exactly:\n        deviceClassName:", "      deviceClassName:",
)

// TestReadme applies the manifest in the README, with fewer pods.
func TestReadme(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	readme, err := os.ReadFile(filepath.Join(repo, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	manifest := ""
	for _, block := range yamlBlock.FindAllStringSubmatch(string(readme), -1) {
		if strings.Contains(block[1], "kind: ResourceClaim\n") && strings.Contains(block[1], "reservedFor:") {
			manifest = block[1]
			break
		}
	}
	if !strings.Contains(manifest, "parallelism: 1000\n") {
		t.Fatalf("the README has no manifest with a claim and 1000 pods: %q", manifest)
	}
	manifest = strings.ReplaceAll(manifest, ": 1000\n", ": 25\n")
	if e.Version == "v1beta1" {
		manifest = older.Replace(manifest)
	}
	// They are not in the namespace.
	t.Cleanup(func() {
		cmd := shared.KubectlCommand(context.Background(), "delete", "deviceclass,resourceslice", "shared-accelerator")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})

	file := filepath.Join(t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o644); err != nil {
		t.Fatal(err)
	}
	kubectl(t, "--namespace="+e.namespace, "apply", "-f", file)
	// GitOps tools do it again and again. The spec of a claim is immutable.
	kubectl(t, "--namespace="+e.namespace, "apply", "-f", file)
	job, err := e.BatchV1().Jobs(e.namespace).Get(e.ctx, "training", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e.runningPods("batch.kubernetes.io/job-name=training", 25)
	e.reservedFor("training", cluster.Consumer{APIGroup: "batch", Resource: "jobs", Name: "training", UID: job.UID})
	if err := e.BatchV1().Jobs(e.namespace).Delete(e.ctx, "training", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}); err != nil {
		t.Fatal(err)
	}
	e.free("training")
}
