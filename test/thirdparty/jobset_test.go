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

	"kubernetes-dra/hack/pkg/cluster"
)

var (
	jobSetController = controller{name: "jobset", module: "sigs.k8s.io/jobset", namespace: "jobset-system", account: "jobset-controller-manager"}
	jobSets          = schema.GroupVersionResource{Group: "jobset.x-k8s.io", Version: "v1alpha2", Resource: "jobsets"}
)

// ofJobSet is a label of all pods of the JobSet in the manifests.
const ofJobSet = "jobset.sigs.k8s.io/jobset-name=training"

// TestJobSet covers claims that are generated for each Job of a JobSet: all pods of a Job have the same one,
// all Jobs different devices. There are no more devices than Jobs, so those that come later need the ones of
// those before.
func TestJobSet(t *testing.T) {
	e := newEnv(t, jobSetController)
	e.devices(8)
	e.apply(example("jobset.yaml"))
	first := e.groups(8, 3, controllerOf)
	e.ownedBy(first, "Job", "jobs")
	e.showClaims()

	// A Job that fails makes the controller create all of them again.
	e.kubectl("label", "pod", "--selector=jobset.sigs.k8s.io/job-index=5,batch.kubernetes.io/job-completion-index=1", cluster.EndLabel+"=Failed")
	e.eventually("another 8 Jobs", func() error {
		for job := range first {
			n, err := e.CountPods(e.ctx, e.namespace, "batch.kubernetes.io/controller-uid="+job)
			if err != nil {
				return err
			}
			if n.All > 0 {
				return fmt.Errorf("%d pods of an old Job", n.All)
			}
		}
		return nil
	})
	second := e.groups(8, 3, controllerOf)
	e.ownedBy(second, "Job", "jobs")
	for job, c := range second {
		for oldJob, old := range first {
			if job == oldJob || c.UID == old.UID {
				t.Errorf("Job %s has claim %s of an old Job", job, c.Name)
			}
		}
	}

	// Suspended is not finished: each Job goes on with the device that it had.
	e.patchJobSet(`{"spec":{"suspend":true}}`)
	e.pods(ofJobSet, 0)
	for name := range e.claims() {
		e.held(name)
	}
	e.patchJobSet(`{"spec":{"suspend":false}}`)
	e.same(second, e.groups(8, 3, controllerOf))

	e.kubectl("delete", "jobset", "training")
	e.noClaims()

	// The next one of that name gets devices, too, and gives them back when it is done.
	e.apply(example("jobset.yaml"))
	e.groups(8, 3, controllerOf)
	e.end(corev1.PodSucceeded, ofJobSet)
	e.noClaims()
	e.completed()
}

// TestJobSetNamed covers a claim that names a JobSet. All pods of all of its Jobs share one device.
func TestJobSetNamed(t *testing.T) {
	e := newEnv(t, jobSetController)
	e.devices(1)
	e.apply(example("jobset-role.yaml"))
	e.apply("testdata/jobset-named.yaml")
	claims := e.groups(1, 6, func(*corev1.Pod) string { return "training" })
	object := e.jobSet()
	want := cluster.Consumer{APIGroup: jobSets.Group, Resource: jobSets.Resource, Name: object.GetName(), UID: object.GetUID()}
	if got := claims["training"].Consumers; got[0] != want {
		t.Errorf("the claim is reserved for %+v, not for %+v", got, want)
	}
	e.end(corev1.PodSucceeded, ofJobSet)
	e.completed()
	// The JobSet exists.
	e.free("training")
}

func (e *env) jobSet() *unstructured.Unstructured {
	e.Helper()
	object, err := e.Dynamic.Resource(jobSets).Namespace(e.namespace).Get(e.ctx, "training", metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	return object
}

func (e *env) patchJobSet(patch string) {
	e.Helper()
	e.kubectl("patch", "jobset", "training", "--type=merge", "--patch="+patch)
}

// completed waits until the JobSet says so.
func (e *env) completed() {
	e.Helper()
	e.eventually("the JobSet is completed", func() error {
		if state, _, _ := unstructured.NestedString(e.jobSet().Object, "status", "terminalState"); state != "Completed" {
			return fmt.Errorf("its state is %q", state)
		}
		return nil
	})
}
