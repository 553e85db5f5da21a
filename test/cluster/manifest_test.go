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
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-dra/hack/pkg/cluster"
)

// TestManifest applies the manifest that docs/reservedfor.md shows, with fewer pods.
func TestManifest(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	name := cluster.Manifest("job", e.Version)
	content, err := os.ReadFile(filepath.Join(repo, "examples/reservedfor", name))
	if err != nil {
		t.Fatal(err)
	}
	manifest := string(content)
	if !strings.Contains(manifest, "parallelism: 1000\n") {
		t.Fatalf("%s has no Job with 1000 pods: %q", name, manifest)
	}
	manifest = strings.ReplaceAll(manifest, ": 1000\n", ": 25\n")
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
