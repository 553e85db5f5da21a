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
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"kubernetes-dra/hack/pkg/cluster"
)

// TestThousandPods lets a Job of a thousand pods share one claim. That is about
// what is written, by whoever writes it.
func TestThousandPods(t *testing.T) {
	const pods, maxWrites, maxSize = 1000, 3, 4096
	e := newEnv(t)
	class := e.devices(1, "")
	e.claim("shared", class, &cluster.Consumer{APIGroup: "batch", Resource: "jobs", Name: "job"})
	start := time.Now()
	job := e.job("job", pods, cluster.PodSpec("shared", ""), nil)
	e.running("job", pods)
	t.Logf("%d pods run after %s", pods, time.Since(start).Round(100*time.Millisecond))

	status := e.reservedFor("shared", job)
	if status.Size >= maxSize {
		t.Errorf("the claim has %d bytes, want less than %d", status.Size, maxSize)
	}
	writes, err := shared.CountWrites(e.namespace, "shared")
	if err != nil {
		t.Fatal(err)
	}
	n, created := 0, 0
	for what, count := range writes {
		if strings.HasPrefix(what, "create by") {
			created += count
		} else {
			n += count
		}
	}
	if created != 1 {
		t.Errorf("the audit log should have the creation of the claim, but it has %v", writes)
	}
	if n > maxWrites {
		t.Errorf("there were %d writes to the claim until all pods ran, want at most %d: %v", n, maxWrites, writes)
	}
	t.Logf("%d bytes, %d writes: %v", status.Size, n, writes)

	// As long as there is a pod, nobody else may get the device.
	w, err := e.Claims(e.namespace).Watch(e.ctx, metav1.SingleObject(metav1.ObjectMeta{Name: "shared", ResourceVersion: status.ResourceVersion}))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if err := e.BatchV1().Jobs(e.namespace).Delete(e.ctx, "job", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}); err != nil {
		t.Fatal(err)
	}
	for event := range w.ResultChan() {
		if event.Type != watch.Modified {
			t.Fatalf("unexpected change of the claim: %v", event)
		}
		status, err := cluster.ReadClaim(event.Object.(*unstructured.Unstructured))
		if err != nil {
			t.Fatal(err)
		}
		if status.Allocated {
			continue
		}
		// Not from a cache: this is what there was when the claim was
		// deallocated, or later.
		left, err := e.CoreV1().Pods(e.namespace).List(e.ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(left.Items) > 0 {
			t.Errorf("the claim was deallocated although there are %d pods", len(left.Items))
		}
		break
	}
	e.free("shared")
}

// TestFinishedJob releases the devices of a Job that still exists, and gives
// them to the next one, which names another claim for the same device.
func TestFinishedJob(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	class := e.devices(1, "simulated")
	e.claim("one", class, &cluster.Consumer{APIGroup: "batch", Resource: "jobs", Name: "one"})
	e.claim("two", class, &cluster.Consumer{APIGroup: "batch", Resource: "jobs", Name: "two"})

	one := e.job("one", 20, cluster.PodSpec("one", ""), nil)
	e.running("one", 20)
	e.reservedFor("one", one)
	// There is only one device.
	two := e.job("two", 20, cluster.PodSpec("two", ""), nil)
	e.eventually("pods wait for the device", func() error {
		n, err := e.CountPods(e.ctx, e.namespace, cluster.JobLabel+"=two")
		if err == nil && (n.All != 20 || !strings.Contains(n.Waiting, "Unschedulable")) {
			err = fmt.Errorf("%+v", n)
		}
		return err
	})

	for name := range e.pods("one") {
		patch := fmt.Sprintf(`{"metadata":{"labels":{%q:"Succeeded"}}}`, cluster.EndLabel)
		if _, err := e.CoreV1().Pods(e.namespace).Patch(e.ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	e.free("one")
	job, err := e.BatchV1().Jobs(e.namespace).Get(e.ctx, "one", metav1.GetOptions{})
	if err != nil || job.UID != one.UID {
		t.Fatalf("the finished Job was to stay, got %v, %v", job, err)
	}
	e.running("two", 20)
	e.reservedFor("two", two)
}

// TestCustomResource reserves a claim for an object of a kind that Kubernetes
// does not know. What becomes of it depends on whether the controller may look
// at the object.
func TestCustomResource(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	class := e.devices(1, "simulated")
	trainings := e.defineTrainings()
	e.claim("shared", class, &cluster.Consumer{APIGroup: trainings.Group, Resource: trainings.Resource, Name: "first"})
	const pods = 5
	want := e.training(trainings, "first", "shared", pods)
	e.running("first", pods)
	e.reservedFor("shared", want)

	// Pods and object go away, but the controller is not allowed to know.
	if err := e.Dynamic.Resource(trainings).Namespace(e.namespace).Delete(e.ctx, "first", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}); err != nil {
		t.Fatal(err)
	}
	e.eventually("pods are gone", func() error {
		if n := len(e.pods("first")); n > 0 {
			return fmt.Errorf("%d are left", n)
		}
		return nil
	})
	message := e.event("ResourceClaim", "shared", func(event *corev1.Event) bool {
		return event.Type == corev1.EventTypeWarning && event.Reason == "WorkloadForbidden"
	})
	t.Logf("the controller says: %s", message)
	for _, part := range []string{"trainings", "first", "aggregate-to-resourceclaim-controller"} {
		if !strings.Contains(message, part) {
			t.Errorf("the event does not mention %q: %s", part, message)
		}
	}
	e.reservedFor("shared", want)

	// The operator's author allows it.
	e.allowTrainings(trainings)
	e.free("shared")
}

// defineTrainings creates a kind that Kubernetes does not know.
func (e *env) defineTrainings() schema.GroupVersionResource {
	e.Helper()
	group := e.namespace + ".example.com"
	definitions := e.Dynamic.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   map[string]any{"name": "trainings." + group},
		"spec": map[string]any{
			"group": group,
			"scope": "Namespaced",
			"names": map[string]any{"kind": "Training", "plural": "trainings", "singular": "training"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
			}},
		},
	}}
	if _, err := definitions.Create(e.ctx, definition, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _ = definitions.Delete(context.Background(), definition.GetName(), metav1.DeleteOptions{}) })
	return schema.GroupVersionResource{Group: group, Version: "v1", Resource: "trainings"}
}

// training is the part of an operator: it creates an object of that kind, and pods that belong to it.
func (e *env) training(trainings schema.GroupVersionResource, name, claim string, pods int) cluster.Consumer {
	e.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": trainings.GroupVersion().String(), "kind": "Training", "metadata": map[string]any{"name": name},
	}}
	e.eventually("create a custom resource", func() error {
		created, err := e.Dynamic.Resource(trainings).Namespace(e.namespace).Create(e.ctx, object, metav1.CreateOptions{})
		if err == nil {
			object = created
		}
		return err
	})
	for i := range pods {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name:            fmt.Sprintf("%s-%d", name, i),
				Labels:          map[string]string{cluster.JobLabel: name},
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(object, object.GroupVersionKind())},
			},
			Spec: cluster.PodSpec(claim, ""),
		}
		if _, err := e.CoreV1().Pods(e.namespace).Create(e.ctx, pod, metav1.CreateOptions{}); err != nil {
			e.Fatal(err)
		}
	}
	return cluster.Consumer{APIGroup: trainings.Group, Resource: trainings.Resource, Name: name, UID: object.GetUID()}
}

// allowTrainings lets the resourceclaim controller and the scheduler look at objects of the kind.
func (e *env) allowTrainings(trainings schema.GroupVersionResource) {
	e.Helper()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{
			Name:   trainings.Group,
			Labels: map[string]string{"rbac.authorization.k8s.io/aggregate-to-resourceclaim-controller": "true"},
		},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{trainings.Group}, Resources: []string{trainings.Resource}, Verbs: []string{"get"}}},
	}
	if _, err := e.RbacV1().ClusterRoles().Create(e.ctx, role, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _ = e.RbacV1().ClusterRoles().Delete(context.Background(), role.Name, metav1.DeleteOptions{}) })
}

// TestTwoSchedulers lets pods of two schedulers share a claim. Both schedulers see it without an allocation,
// and neither knows what the other one is about to write.
func TestTwoSchedulers(t *testing.T) {
	const pods = 20
	e := newEnv(t)
	const other = "other-scheduler"
	stop, err := shared.StartScheduler(other)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	class := e.devices(2, "simulated")
	spec := func(claim, scheduler string) corev1.PodSpec {
		spec := cluster.PodSpec(claim, "")
		spec.SchedulerName = scheduler
		return spec
	}
	// One claim after the other: two schedulers that allocate two claims know nothing of each other.
	e.claim("listed", class, nil)
	e.job("listed", pods, spec("listed", ""), nil)
	e.job("listed-other", pods, spec("listed", other), nil)
	e.running("listed", pods)
	e.running("listed-other", pods)
	e.listed("listed", 2*pods)

	e.claim("reserved", class, &cluster.Consumer{APIGroup: "batch", Resource: "jobs", Name: "reserved"})
	e.job("reserved-other", pods, spec("reserved", other), nil)
	job := e.job("reserved", pods, spec("reserved", ""), nil)
	e.running("reserved", pods)
	e.running("reserved-other", pods)
	e.reservedFor("reserved", job)
	devices := map[string]bool{}
	for _, name := range []string{"listed", "reserved"} {
		status, err := e.GetClaim(e.ctx, e.namespace, name)
		if err != nil {
			t.Fatal(err)
		}
		devices[strings.Join(status.Devices, " ")] = true
	}
	if len(devices) != 2 {
		t.Errorf("want each claim to have a device of its own, got %v", devices)
	}
	for _, name := range []string{"listed", "listed-other", "reserved", "reserved-other"} {
		e.deleteJob(name)
	}
	e.free("listed")
	e.free("reserved")
}

// TestRestarts restarts the components that decide about claims while pods come
// and go. Each of them must be able to go on from what is stored.
func TestRestarts(t *testing.T) {
	const pods = 200
	e := newEnv(t)
	t.Cleanup(func() {
		// Whatever happens, other tests need it.
		for _, component := range []string{cluster.Scheduler, cluster.ControllerManager} {
			_ = shared.Start(context.Background(), component, nil)
		}
	})
	class := e.devices(1, "simulated")
	e.claim("shared", class, &cluster.Consumer{APIGroup: "batch", Resource: "jobs", Name: "job"})
	job := e.job("job", pods, cluster.PodSpec("shared", ""), nil)
	e.eventually("some pods run", func() error {
		n, err := e.CountPods(e.ctx, e.namespace, cluster.JobLabel+"=job")
		if err == nil && n.Running == 0 {
			err = fmt.Errorf("%+v", n)
		}
		return err
	})
	for _, component := range []string{cluster.Scheduler, cluster.ControllerManager} {
		if err := shared.Restart(e.ctx, component, nil); err != nil {
			t.Fatal(err)
		}
	}
	e.running("job", pods)
	e.reservedFor("shared", job)

	if err := shared.Stop(e.ctx, cluster.ControllerManager, 20*time.Second); err != nil {
		t.Fatal(err)
	}
	// Nobody sees that the Job and its pods go away.
	for name := range e.pods("job") {
		if err := e.CoreV1().Pods(e.namespace).Delete(e.ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.BatchV1().Jobs(e.namespace).Delete(e.ctx, "job", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}); err != nil {
		t.Fatal(err)
	}
	e.reservedFor("shared", job)
	if err := shared.Start(e.ctx, cluster.ControllerManager, nil); err != nil {
		t.Fatal(err)
	}
	e.free("shared")
}
