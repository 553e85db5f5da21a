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

// Package reservedfor checks that the manifests beside it say the same, and the roles.
// TestManifest of test/cluster applies the manifests.
package reservedfor

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
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

// TestRoles checks what "kubectl apply -k" makes of this folder: a role for each kind, which gets
// into the two roles that aggregate, and gives no more than "get".
func TestRoles(t *testing.T) {
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), ".")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, object := range objects.Resources() {
		text, err := object.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		var role rbacv1.ClusterRole
		if err := yaml.UnmarshalStrict(text, &role); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if role.Kind != "ClusterRole" || role.Labels["rbac.authorization.k8s.io/aggregate-to-resourceclaim-controller"] != "true" || len(role.Rules) != 1 {
			t.Fatalf("not a role that aggregates, with one rule:\n%s", text)
		}
		rule := role.Rules[0]
		if len(rule.Resources) != 1 || len(rule.APIGroups) != 1 || !slices.Equal(rule.Verbs, []string{"get"}) {
			t.Errorf("more or less than to get objects of one kind:\n%s", text)
			continue
		}
		if want := "resourceclaim-controller-" + rule.Resources[0]; role.Name != want {
			t.Errorf("%s: want the name %s", role.Name, want)
		}
		got = append(got, rule.Resources[0]+"."+rule.APIGroups[0])
	}
	want := []string{"jobsets.jobset.x-k8s.io", "leaderworkersets.leaderworkerset.x-k8s.io", "mpijobs.kubeflow.org", "rayclusters.ray.io", "rayjobs.ray.io", "trainjobs.trainer.kubeflow.org", "workflows.argoproj.io"}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("roles for %v, want %v", got, want)
	}
	if files, err := filepath.Glob("*-role.yaml"); err != nil || len(files) != len(got) {
		t.Errorf("%d roles in kustomization.yaml, and the files %v (%v)", len(got), files, err)
	}
}
