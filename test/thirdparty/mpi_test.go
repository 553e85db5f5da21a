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

package thirdparty

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	mpiController = controller{
		name:      "mpi-operator",
		module:    "github.com/kubeflow/mpi-operator",
		folder:    "manifests/overlays/standalone",
		namespace: "mpi-operator",
		account:   "mpi-operator",
		args:      []string{"--lock-namespace=mpi-operator"},
		ready:     "http://127.0.0.1:8080/healthz",
	}
	mpiJobs = schema.GroupVersionResource{Group: "kubeflow.org", Version: "v2beta1", Resource: "mpijobs"}
)

// TestMPIJob covers a claim that is generated for each MPIJob: the launcher has it through a Job, the workers
// have it directly. There are two devices.
func TestMPIJob(t *testing.T) {
	e := newEnv(t, mpiController)
	e.devices(2)
	e.apply(example("mpijob-role.yaml"))
	const manifest = "testdata/mpijob.yaml"
	e.apply(manifest, "one", "two")
	claims := e.groups(2, 3, jobOf)
	e.ownedBy(claims, "MPIJob", mpiJobs.Resource)
	e.showClaims()

	// Suspended is not finished.
	suspend := func(yes bool) {
		t.Helper()
		e.kubectl("patch", "mpijob", "one", "--type=merge", fmt.Sprintf(`--patch={"spec":{"runPolicy":{"suspend":%t}}}`, yes))
	}
	suspend(true)
	e.pods("job=one", 0)
	e.held(claims["one"].Name)
	suspend(false)
	e.same(claims, e.groups(2, 3, jobOf))

	// A launcher that is done ends a MPIJob, and so does one that fails. The objects exist.
	e.end(corev1.PodSucceeded, "job=one,replica=Launcher")
	e.mpiJobIs("one", "Succeeded")
	e.free(claims["one"].Name)
	e.apply(manifest, "three")
	e.pods("job=three,replica=Worker", 2)
	e.end(corev1.PodFailed, "job=two,replica=Launcher")
	e.mpiJobIs("two", "Failed")
	e.free(claims["two"].Name)

	e.kubectl("delete", "mpijobs", "--all")
	e.noClaims()
}

// mpiJobIs waits until a MPIJob has a condition.
func (e *env) mpiJobIs(name, want string) {
	e.Helper()
	e.eventually("MPIJob "+name+" is "+want, func() error {
		object, err := e.Dynamic.Resource(mpiJobs).Namespace(e.namespace).Get(e.ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
		for _, condition := range conditions {
			if c, ok := condition.(map[string]any); ok && c["type"] == want && c["status"] == "True" {
				return nil
			}
		}
		return fmt.Errorf("its conditions are %v", conditions)
	})
}
