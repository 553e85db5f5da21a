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
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"

	"kubernetes-dra/hack/pkg/cluster"
)

const adminGate = "DRAAdminAccess"

// example is a manifest of examples/adminaccess, for the version of the API that
// the release has.
func (e *env) example(name string) string {
	e.Helper()
	file := name + ".yaml"
	if strings.HasPrefix(name, "monitor") {
		file = cluster.Manifest(name, e.Version)
	}
	data, err := os.ReadFile(filepath.Join(repo, "examples", "adminaccess", file))
	if err != nil {
		e.Fatal(err)
	}
	return string(data)
}

// replace fails if there is nothing to replace.
func (e *env) replace(text string, oldnew ...string) string {
	e.Helper()
	text, err := cluster.ReplaceAll(text, oldnew...)
	if err != nil {
		e.Fatal(err)
	}
	return text
}

// monitor is the recipe, for devices of the test on the real node. All else is as
// users find it.
func (e *env) monitor(namespace, class string) string {
	e.Helper()
	return e.onDevices(e.example("monitor"), namespace, class)
}

// onDevices is a manifest of a monitor for devices of the test on the real node.
func (e *env) onDevices(manifest, namespace, class string) string {
	e.Helper()
	return e.replace(manifest,
		"device-monitoring", namespace,
		"shared-accelerator", class,
		"      priorityClassName:", "      nodeSelector: {"+cluster.TypeLabel+": real}\n      terminationGracePeriodSeconds: 1\n      priorityClassName:",
	)
}

// apply runs kubectl apply, and returns what it says.
func (e *env) apply(manifest string) (string, error) {
	e.Helper()
	file := filepath.Join(e.TempDir(), "manifest.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o644); err != nil {
		e.Fatal(err)
	}
	out, err := shared.KubectlCommand(e.ctx, "apply", "-f", file).CombinedOutput()
	return string(out), err
}

// deleteAfterwards deletes a namespace at the end of the test.
func (e *env) deleteAfterwards(namespace string) {
	e.Cleanup(func() {
		if e.Failed() {
			e.explain(namespace)
		}
		if os.Getenv("KEEP") == "true" {
			return
		}
		if err := e.DeleteNamespace(context.Background(), namespace, patience); err != nil && !apierrors.IsNotFound(err) {
			e.Errorf("clean up: %v", err)
		}
	})
}

// monitorPod waits for the only pod of the recipe to be in a phase, and returns it.
func (e *env) monitorPod(namespace string, phase corev1.PodPhase) *corev1.Pod {
	e.Helper()
	var pod *corev1.Pod
	e.eventually(fmt.Sprintf("monitor is %s", phase), func() error {
		pods, err := e.CoreV1().Pods(namespace).List(e.ctx, metav1.ListOptions{LabelSelector: "app=accelerator-monitor"})
		if err != nil {
			return err
		}
		if len(pods.Items) != 1 || pods.Items[0].Status.Phase != phase {
			return fmt.Errorf("there are %d pods: %+v", len(pods.Items), pods.Items)
		}
		pod = &pods.Items[0]
		return nil
	})
	return pod
}

// sameContainer checks that a pod still runs as it did.
func (e *env) sameContainer(before *corev1.Pod) {
	e.Helper()
	now, err := e.CoreV1().Pods(before.Namespace).Get(e.ctx, before.Name, metav1.GetOptions{})
	if err != nil {
		e.Errorf("pod %s was to keep running: %v", before.Name, err)
		return
	}
	if now.UID != before.UID || now.Status.Phase != corev1.PodRunning || now.DeletionTimestamp != nil || len(now.Status.ContainerStatuses) != 1 ||
		now.Status.ContainerStatuses[0].ContainerID != before.Status.ContainerStatuses[0].ContainerID {
		e.Errorf("pod %s was to keep running, got %+v", before.Name, now.Status)
	}
}

// devicesOf waits until the log of a container shows its devices.
func (e *env) devicesOf(namespace, pod string) string {
	e.Helper()
	var text string
	e.eventually("log of "+pod, func() error {
		stream, err := e.CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{}).Stream(e.ctx)
		if err != nil {
			return err
		}
		defer func() { _ = stream.Close() }()
		data, err := io.ReadAll(stream)
		if text = string(data); err == nil && !strings.Contains(text, "device-0") {
			err = fmt.Errorf("no device in %q", text)
		}
		return err
	})
	return text
}

// taint sets the taints of the only device of a class.
func (e *env) taint(class string, taints ...any) {
	e.Helper()
	e.taintDevice(class, "device-0", taints...)
}

// taintDevice sets the taints of a device of a class. It returns false if the API server drops them.
func (e *env) taintDevice(class, device string, taints ...any) (kept bool) {
	e.Helper()
	slices := e.Dynamic.Resource(e.Resource("resourceslices"))
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		slice, err := slices.Get(e.ctx, class, metav1.GetOptions{})
		if err != nil {
			return err
		}
		set := func(object *unstructured.Unstructured) (before any, err error) {
			devices, _, err := unstructured.NestedSlice(object.Object, "spec", "devices")
			if err != nil {
				return nil, err
			}
			for _, entry := range devices {
				if entry := entry.(map[string]any); entry["name"] == device {
					before, entry["taints"] = entry["taints"], taints
					return before, unstructured.SetNestedSlice(object.Object, devices, "spec", "devices")
				}
			}
			return nil, fmt.Errorf("no %s in %v", device, devices)
		}
		if _, err := set(slice); err != nil {
			return err
		}
		stored, err := slices.Update(e.ctx, slice, metav1.UpdateOptions{})
		if err != nil {
			return err
		}
		now, err := set(stored)
		kept = len(taints) == 0 || now != nil
		return err
	})
	if err != nil {
		e.Fatal(err)
	}
	return kept
}

// user creates a claim and a pod which uses it.
func (e *env) user(name, class string) {
	e.Helper()
	e.claim(name, class, nil)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: cluster.PodSpec(name, untilTold)}
	if _, err := e.CoreV1().Pods(e.namespace).Create(e.ctx, pod, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
}

// userRuns waits until the pod of a user runs.
func (e *env) userRuns(name string) *corev1.Pod {
	e.Helper()
	var pod *corev1.Pod
	e.eventually("pod "+name+" runs", func() (err error) {
		pod, err = e.CoreV1().Pods(e.namespace).Get(e.ctx, name, metav1.GetOptions{})
		if err == nil && pod.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("%+v", pod.Status)
		}
		return err
	})
	return pod
}

// TestMonitor is the life of a monitor beside users of the same device, with a
// kubelet.
func TestMonitor(t *testing.T) {
	t.Parallel()
	onRealNode(t)
	e := newEnv(t)
	class := e.devices(1, "real")
	e.user("first", class)
	first := e.userRuns("first")

	// Without the label, the person who tries is told what is missing.
	denied := e.namespace + "-denied"
	e.deleteAfterwards(denied)
	manifest := e.replace(e.monitor(denied, class), `kubernetes.io/dra-admin-access: "true"`, `kubernetes.io/dra-admin-access: "false"`)
	out, err := e.apply(manifest)
	if err == nil {
		t.Errorf("want the recipe to be refused without the label, got: %s", out)
	}
	for _, text := range []string{"all-accelerators", "adminAccess", "label", "kubernetes.io/dra-admin-access", denied} {
		if !strings.Contains(out, text) {
			t.Errorf("the message does not have %q: %s", text, out)
		}
	}
	t.Logf("without label: %s", out)

	// An unhealthy device, which users do not get any more, needs a monitor most.
	// Before 1.36, taints of devices are alpha.
	tainted := shared.MinorVersion() >= 36
	if tainted {
		e.taint(class, map[string]any{"key": "example.com/unhealthy", "effect": "NoSchedule"})
	}

	monitoring := e.namespace + "-monitoring"
	e.deleteAfterwards(monitoring)
	for range 2 { // GitOps tools do it again and again.
		if out, err := e.apply(e.monitor(monitoring, class)); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	monitor := e.monitorPod(monitoring, corev1.PodRunning)
	users, admins := e.devicesOf(e.namespace, "first"), e.devicesOf(monitoring, monitor.Name)
	if want := e.namespace + ".example.com/device-0"; !strings.Contains(users, want) || !strings.Contains(admins, want) {
		t.Errorf("want both to have %s, got %q and %q", want, users, admins)
	}
	e.sameContainer(first)
	claims, err := e.Claims(monitoring).List(e.ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(claims.Items) != 1 {
		t.Errorf("want one claim for the monitor, got %d", len(claims.Items))
	}

	if tainted {
		e.taint(class)
	}

	// The device is in use: not free for another user, but it is when the first
	// one is gone, while the monitor still has it.
	e.user("second", class)
	e.event("Pod", "second", func(event *corev1.Event) bool { return event.Reason == "FailedScheduling" })
	if err := e.CoreV1().Pods(e.namespace).Delete(e.ctx, "first", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e.userRuns("second")
	e.free("first")
	e.sameContainer(monitor)
	e.devicesOf(e.namespace, "second")

	// And what an auditor sees of it.
	log, err := os.ReadFile(shared.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, `"namespace":"`+monitoring+`"`) && strings.Contains(line, "resource.kubernetes.io/admin-access-granted") {
			for _, text := range []string{"Pod/" + monitor.Name, "device-0", `"resource":"resourceclaimtemplates"`} {
				if strings.Contains(line, text) {
					seen[text] = true
				}
			}
		}
	}
	if len(seen) != 3 {
		t.Errorf("the audit log should have the template, the claim of pod %s and its device, got %v", monitor.Name, seen)
	}
}

// TestMonitorManyDevices is the monitor of a node with more devices than a claim can have.
func TestMonitorManyDevices(t *testing.T) {
	t.Parallel()
	onRealNode(t)
	e := newEnv(t)
	const numDevices = 40
	class := e.devices(numDevices, "real")
	e.user("user", class)
	user := e.userRuns("user")

	// One claim is not enough.
	tooMany := *e
	tooMany.namespace = e.namespace + "-one"
	e.deleteAfterwards(tooMany.namespace)
	if out, err := e.apply(e.monitor(tooMany.namespace, class)); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	waiting := e.monitorPod(tooMany.namespace, corev1.PodPending)
	message := tooMany.event("Pod", waiting.Name, func(event *corev1.Event) bool { return event.Reason == "FailedScheduling" })
	want := fmt.Sprintf("number of requested devices %d exceeds the claim limit of 32", numDevices)
	if shared.MinorVersion() >= 37 {
		want = fmt.Sprintf("adding %d devices exceeds the claim limit of 32", numDevices)
	}
	if !strings.Contains(message, want) {
		t.Errorf("want %q, got %q", want, message)
	}

	two := e.namespace + "-two"
	e.deleteAfterwards(two)
	manifest := e.replace(e.onDevices(e.example("monitor-64"), two, class), `device.attributes["dra.example.com"]`, fmt.Sprintf("device.attributes[%q]", cluster.DriverName))
	if out, err := e.apply(manifest); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	e.monitorPod(two, corev1.PodRunning)
	claims, err := e.Claims(two).List(e.ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, claim := range claims.Items {
		results, _, err := unstructured.NestedSlice(claim.Object, "status", "allocation", "devices", "results")
		if err != nil {
			t.Fatal(err)
		}
		for _, result := range results {
			got[result.(map[string]any)["device"].(string)] = true
		}
	}
	if len(claims.Items) != 2 || len(got) != numDevices {
		t.Errorf("want two claims with %d devices, got %d with %d: %v", numDevices, len(claims.Items), len(got), got)
	}
	e.sameContainer(user)
}

// TestMonitorWithoutFeature turns the feature off and on: what runs keeps running, and what
// comes meanwhile waits, tells why, and runs in the end.
func TestMonitorWithoutFeature(t *testing.T) {
	onRealNode(t)
	if shared.MinorVersion() >= 36 {
		t.Skip("the feature gate is locked")
	}
	e := newEnv(t)
	class := e.devices(1, "real")
	e.user("user", class)
	user := e.userRuns("user")
	before := e.namespace + "-before"
	e.deleteAfterwards(before)
	if out, err := e.apply(e.monitor(before, class)); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	running := e.monitorPod(before, corev1.PodRunning)

	set := func(ctx context.Context, gates map[string]bool) {
		for _, component := range []string{cluster.ControllerManager, cluster.Scheduler} {
			if err := shared.Restart(ctx, component, gates); err != nil {
				t.Fatal(err)
			}
		}
	}
	set(e.ctx, map[string]bool{adminGate: false})
	restored := false
	t.Cleanup(func() {
		if !restored {
			set(context.Background(), nil)
		}
	})

	// No claim gets created for the pod.
	meanwhile := e.namespace + "-meanwhile"
	e.deleteAfterwards(meanwhile)
	if out, err := e.apply(e.monitor(meanwhile, class)); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	waiting := e.monitorPod(meanwhile, corev1.PodPending)
	other := *e
	other.namespace = meanwhile
	disabled := func(event *corev1.Event) bool {
		return strings.Contains(event.Message, "admin access is requested, but the feature is disabled")
	}
	t.Logf("event about the pod: %s", other.event("Pod", waiting.Name, disabled))

	// A claim that exists does not get allocated.
	if _, err := e.Claims(meanwhile).Create(e.ctx, e.AdminClaim("claim", class, "ExactCount"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	direct := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "direct"}, Spec: cluster.PodSpec("claim", untilTold)}
	if _, err := e.CoreV1().Pods(meanwhile).Create(e.ctx, direct, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	e.eventually("condition of the pod with a claim", func() error {
		pod, err := e.CoreV1().Pods(meanwhile).Get(e.ctx, "direct", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse && strings.Contains(condition.Message, "admin access is requested, but the feature is disabled") {
				t.Logf("condition: %s: %s", condition.Reason, condition.Message)
				return nil
			}
		}
		return fmt.Errorf("%+v", pod.Status.Conditions)
	})

	// The DaemonSet controller leaves its pod alone: it is the same one after a while.
	time.Sleep(10 * time.Second)
	if still := e.monitorPod(meanwhile, corev1.PodPending); still.UID != waiting.UID {
		t.Errorf("pod %s was replaced by %s", waiting.Name, still.Name)
	}
	daemonSet, err := e.AppsV1().DaemonSets(meanwhile).Get(e.ctx, "accelerator-monitor", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if status := daemonSet.Status; status.CurrentNumberScheduled != 1 || status.DesiredNumberScheduled != 1 || status.NumberUnavailable != 1 {
		t.Errorf("want one pod which is not available, got %+v", status)
	}
	events, err := e.CoreV1().Events(meanwhile).List(e.ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=DaemonSet"})
	if err != nil {
		t.Fatal(err)
	}
	created := int32(0)
	for _, event := range events.Items {
		created += max(1, event.Count)
	}
	if created != 1 {
		t.Errorf("want one Event of the DaemonSet, that it created a pod, got %d: %+v", created, events.Items)
	}
	e.sameContainer(running)
	e.sameContainer(user)

	set(e.ctx, nil)
	restored = true
	e.monitorPod(meanwhile, corev1.PodRunning)
	e.eventually("pod with a claim runs", func() error {
		pod, err := e.CoreV1().Pods(meanwhile).Get(e.ctx, "direct", metav1.GetOptions{})
		if err == nil && pod.Status.Phase != corev1.PodRunning {
			err = errors.New(string(pod.Status.Phase))
		}
		return err
	})
	e.sameContainer(running)
	e.sameContainer(user)
}
