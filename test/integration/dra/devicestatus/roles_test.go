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

package devicestatus

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// createAll creates all objects of a manifest.
func (s *server) createAll(t *testing.T, manifest string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", manifest))
	if err != nil {
		t.Fatal(err)
	}
	resources := map[string]schema.GroupVersionResource{
		"Namespace":          {Version: "v1", Resource: "namespaces"},
		"ServiceAccount":     {Version: "v1", Resource: "serviceaccounts"},
		"ClusterRole":        {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
		"ClusterRoleBinding": {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},

		"ValidatingAdmissionPolicy":        {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"},
		"ValidatingAdmissionPolicyBinding": {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"},
	}
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
		var o unstructured.Unstructured
		if err := decoder.Decode(&o.Object); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%s: %v", manifest, err)
		}
		resource, known := resources[o.GetKind()]
		if !known {
			t.Fatalf("%s: unexpected kind %q", manifest, o.GetKind())
		}
		options := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
		if o.GetNamespace() == "" {
			_, err = s.dynamic.Resource(resource).Create(context.Background(), &o, options)
		} else {
			_, err = s.dynamic.Resource(resource).Namespace(o.GetNamespace()).Create(context.Background(), &o, options)
		}
		if err != nil {
			t.Fatalf("%s: %v", manifest, err)
		}
	}
}

// testRoles checks that the roles in the manifests are enough, and not too much. Rules
// hold for all versions of the API.
func testRoles(t *testing.T, s *server) {
	s.createAll(t, "driver.yaml")
	s.createAll(t, "workload-controller.yaml")

	// The driver in the manifest has another name than the one in the table.
	const exampleDriver = "driver.example.com"
	example := func(name, namespace, verb string) serviceAccount {
		account := serviceAccount{s, namespace, name}
		s.waitForRights(t, account.username(), "", append(mayWrite(), rule(driver, []string{exampleDriver}, verb))...)
		return account
	}
	plugin := example("plugin", "example-driver", "associated-node:update")
	controller := example("controller", "example-driver", "arbitrary-node:update")
	workloads := serviceAccount{s, "example-workloads", "controller"}
	s.waitForRights(t, workloads.username(), "", append(mayWrite(), rule(binding, nil, "update"))...)

	here, there, operator, workload := plugin.inPod(t, "node-a"), plugin.inPod(t, "node-b"), controller.inPod(t, "node-b"), workloads.inPod(t, "node-b")
	own := devices(entry(exampleDriver, "device-0", "Down"), b0)
	other := devices(entry(exampleDriver, "device-0", "Up"), entry(driverB, "device-0", "Down"))
	table := []attempt{
		both("plugin writes own", here, "node-a", own, allowed),
		both("plugin writes other", here, "node-a", other, driver),
		both("plugin of another node", there, "node-a", own, driver),
		both("plugin writes claim of two nodes", here, "two", own, driver),
		both("plugin removes a reservation", here, "node-a", noReservation, binding),
		both("controller writes own", operator, "node-a", own, allowed),
		both("controller writes own of two nodes", operator, "two", own, allowed),
		both("controller writes other", operator, "two", other, driver),
		both("controller removes a reservation", operator, "two", noReservation, binding),
		both("workload controller gives its reservation back", workload, "node-a", noReservation, allowed),
		both("workload controller reserves", workload, "node-a", moreReservations, allowed),
		both("workload controller writes a device", workload, "node-a", other, driver),
	}
	for i, a := range table {
		version := s.versions[i%len(s.versions)]
		for _, m := range methods() {
			t.Run(version+"/"+a.name+"/"+m.name, func(t *testing.T) {
				s.try(t, version, rename(inUse(a.nodes), exampleDriver), a, m, true)
			})
		}
	}
}

// rename gives the devices of driverA to another driver.
func rename(status object, name string) object {
	status = runtime.DeepCopyJSON(status)
	for _, list := range []any{status["devices"], status["allocation"].(object)["devices"].(object)["results"]} {
		for _, item := range list.([]any) {
			if item := item.(object); item["driver"] == driverA {
				item["driver"] = name
			}
		}
	}
	return status
}
