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
	"maps"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"kubernetes-dra/hack/pkg/cluster"
)

// TestTaintedDevice has the controllers of a workload, the scheduler, and the controller that evicts
// pods from tainted devices work on the same pods: each pod is evicted once, and the workload
// comes back on a device without a taint.
func TestTaintedDevice(t *testing.T) {
	t.Parallel()
	for _, replicas := range []int{2, 300} {
		for kind, create := range map[string]func(*env, int) cluster.Consumer{"job": taintedJob, "deployment": taintedDeployment, "statefulset": taintedStatefulSet} {
			t.Run(fmt.Sprintf("%s-%d", kind, replicas), func(t *testing.T) {
				t.Parallel()
				newEnv(t).taintedDevice(kind, replicas, create)
			})
		}
	}
}

func (e *env) taintedDevice(kind string, replicas int, create func(*env, int) cluster.Consumer) {
	class := e.devices(2, "simulated")
	e.claim("shared", class, &cluster.Consumer{APIGroup: map[string]string{"job": "batch", "deployment": "apps", "statefulset": "apps"}[kind], Resource: kind + "s", Name: "workload"})
	consumer := create(e, replicas)
	const selector = cluster.JobLabel + "=workload"
	e.runningPods(selector, replicas)
	first := e.deviceOf("shared", consumer)
	evicted := e.countEvictions()

	// New pods wait for a device that is not tainted, and the others run.
	if !e.taintDevice(class, first, taint("NoSchedule")) {
		e.Skip("taints of devices are off in this release")
	}
	pods, err := e.CoreV1().Pods(e.namespace).List(e.ctx, metav1.ListOptions{LabelSelector: selector, Limit: 1})
	if err != nil {
		e.Fatal(err)
	}
	replaced := pods.Items[0].UID
	e.deletePod(pods.Items[0].Name)
	e.waits(selector, first)
	e.deviceOf("shared", consumer)
	// It goes on where it was.
	e.taintDevice(class, first)
	e.runningAgain(selector, replicas, map[types.UID]bool{replaced: true})
	if now := e.deviceOf("shared", consumer); now != first {
		e.Errorf("the taint came and went, and the claim moved from %s to %s", first, now)
	}
	if n := len(evicted()); n > 0 {
		e.Errorf("%d pods were evicted because of NoSchedule", n)
	}

	// All have to go, and nothing fits until the other device is repaired.
	second := map[string]string{"device-0": "device-1", "device-1": "device-0"}[first]
	e.taintDevice(class, second, taint("NoSchedule"))
	e.taintDevice(class, first, taint("NoExecute"))
	e.eventually("all pods are evicted", func() error {
		if n := len(evicted()); n < replicas {
			pods, err := e.CountPods(e.ctx, e.namespace, selector)
			if err != nil {
				return err
			}
			return fmt.Errorf("%d of %d, now there are %+v", n, replicas, pods)
		}
		return nil
	})
	e.waits(selector, "")
	e.taintDevice(class, second)
	e.runningAgain(selector, replicas, evicted())
	if now := e.deviceOf("shared", consumer); now != second {
		e.Errorf("the claim has %s, which is tainted", now)
	}
	if n := len(evicted()); n != replicas {
		e.Errorf("%d pods were evicted, want each of the %d once", n, replicas)
	}
	if kind == "job" {
		job, err := e.BatchV1().Jobs(e.namespace).Get(e.ctx, "workload", metav1.GetOptions{})
		if err != nil {
			e.Fatal(err)
		}
		// The pod that the test deleted counts, too.
		if int(job.Status.Failed) > replicas+1 {
			e.Errorf("%d pods of the Job failed, want at most %d", job.Status.Failed, replicas+1)
		}
		// With a delay for each index, it keeps the pods that failed until it may replace them, which
		// it cannot in a namespace that is being deleted. There, pods go first.
		e.deleteJob("workload")
	}
}

// taint is one with that effect.
func taint(effect string) any {
	return map[string]any{"key": "test.dra.example.com/broken", "effect": effect}
}

// deviceOf is the name of the device of a claim, which is reserved for that consumer alone.
func (e *env) deviceOf(claim string, consumer cluster.Consumer) string {
	e.Helper()
	status := e.reservedFor(claim, consumer)
	if len(status.Devices) != 1 {
		e.Fatalf("want one device, got %v", status.Devices)
	}
	return status.Devices[0][strings.LastIndexByte(status.Devices[0], '/')+1:]
}

// countEvictions returns a function with the pods that were evicted from a device since then.
//
// The API server closes a watch that is slow to read, which happens to all of them when hundreds of
// pods change on a busy machine. It goes on then where it was: an eviction that is missed never shows
// again, because the pod is gone.
func (e *env) countEvictions() func() map[types.UID]bool {
	e.Helper()
	list, err := e.CoreV1().Pods(e.namespace).List(e.ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		e.Fatal(err)
	}
	pods := &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		return e.CoreV1().Pods(e.namespace).Watch(ctx, options)
	}}
	w, err := watchtools.NewRetryWatcherWithContext(e.ctx, list.ResourceVersion, pods)
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(w.Stop)
	var mutex sync.Mutex
	evicted := map[types.UID]bool{}
	var lost error
	go func() {
		for event := range w.ResultChan() {
			if event.Type == watch.Error {
				mutex.Lock()
				lost = apierrors.FromObject(event.Object)
				mutex.Unlock()
				continue
			}
			pod, ok := event.Object.(*corev1.Pod)
			if !ok || event.Type == watch.Bookmark {
				continue
			}
			for _, condition := range pod.Status.Conditions {
				if condition.Type == corev1.DisruptionTarget && condition.Reason == "DeletionByDeviceTaintManager" {
					mutex.Lock()
					evicted[pod.UID] = true
					mutex.Unlock()
				}
			}
		}
	}()
	return func() map[types.UID]bool {
		e.Helper()
		mutex.Lock()
		defer mutex.Unlock()
		if lost != nil {
			e.Fatalf("the test lost sight of the pods, so it cannot count evictions: %v", lost)
		}
		return maps.Clone(evicted)
	}
}

// waits waits until a pod is unschedulable and says why: claim and taint, and the device if there
// is a name of one.
func (e *env) waits(selector, device string) {
	e.Helper()
	e.eventually("a pod says that it waits for a device without a taint", func() error {
		pods, err := e.CoreV1().Pods(e.namespace).List(e.ctx, metav1.ListOptions{LabelSelector: selector, FieldSelector: "spec.nodeName="})
		if err != nil {
			return err
		}
		seen := errors.New("no pod waits")
		for _, pod := range pods.Items {
			for _, condition := range pod.Status.Conditions {
				if condition.Type != corev1.PodScheduled || condition.Status != corev1.ConditionFalse {
					continue
				}
				seen = errors.New(condition.Message)
				if device == "" || strings.Contains(condition.Message, "shared") && strings.Contains(condition.Message, device) && strings.Contains(condition.Message, "broken") {
					e.Logf("it says: %s", condition.Message)
					return nil
				}
			}
		}
		return seen
	})
}

// runningAgain waits until so many pods run, and none of the old ones is among them.
func (e *env) runningAgain(selector string, replicas int, old map[types.UID]bool) {
	e.Helper()
	e.eventually(fmt.Sprintf("%d pods run again", replicas), func() error {
		pods, err := e.CoreV1().Pods(e.namespace).List(e.ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return err
		}
		running := 0
		for _, pod := range pods.Items {
			if !old[pod.UID] && pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
				running++
			}
		}
		if running != replicas {
			return fmt.Errorf("%d of %d", running, replicas)
		}
		return nil
	})
}

func taintedJob(e *env, replicas int) cluster.Consumer {
	job := cluster.Job("workload", int32(replicas), cluster.PodSpec("shared", ""))
	// One for each pod that is evicted, and the one that the test deletes.
	job.Spec.BackoffLimit = new(int32(replicas + 1))
	if replicas > 10 {
		// After so many failures at once, a Job waits for ten minutes. Here each index has its own delay.
		job.Spec.CompletionMode = new(batchv1.IndexedCompletion)
		job.Spec.BackoffLimitPerIndex = new(int32(2))
		job.Spec.BackoffLimit = nil
	}
	created, err := e.BatchV1().Jobs(e.namespace).Create(e.ctx, job, metav1.CreateOptions{})
	if err != nil {
		e.Fatal(err)
	}
	return cluster.Consumer{APIGroup: "batch", Resource: "jobs", Name: "workload", UID: created.UID}
}

// replicated is the template of pods of which a controller wants so many.
func replicated() (*metav1.LabelSelector, corev1.PodTemplateSpec) {
	labels := map[string]string{cluster.JobLabel: "workload"}
	spec := cluster.PodSpec("shared", "")
	spec.RestartPolicy = corev1.RestartPolicyAlways
	return &metav1.LabelSelector{MatchLabels: labels}, corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec}
}

func taintedDeployment(e *env, replicas int) cluster.Consumer {
	selector, template := replicated()
	created, err := e.AppsV1().Deployments(e.namespace).Create(e.ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "workload"},
		Spec:       appsv1.DeploymentSpec{Replicas: new(int32(replicas)), Selector: selector, Template: template},
	}, metav1.CreateOptions{})
	if err != nil {
		e.Fatal(err)
	}
	return cluster.Consumer{APIGroup: "apps", Resource: "deployments", Name: "workload", UID: created.UID}
}

func taintedStatefulSet(e *env, replicas int) cluster.Consumer {
	selector, template := replicated()
	created, err := e.AppsV1().StatefulSets(e.namespace).Create(e.ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "workload"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(replicas)), Selector: selector, Template: template, PodManagementPolicy: appsv1.ParallelPodManagement,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		e.Fatal(err)
	}
	return cluster.Consumer{APIGroup: "apps", Resource: "statefulsets", Name: "workload", UID: created.UID}
}
