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
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-dra/hack/pkg/cluster"
)

// lostTaint keeps the pods of other tests away from nodes that get lost.
const lostTaint = "test.dra.example.com/lost"

// TestLostNode deletes the node under a running Job whose claim fits no other node as
// it is allocated. Nobody does anything but that: the pods come back on the other node,
// with the device there.
func TestLostNode(t *testing.T) {
	t.Parallel()
	const pods = 3
	e := newEnv(t)
	class := e.nodesWithDevice("a", "b")
	e.claim("shared", class, &cluster.Consumer{APIGroup: "batch", Resource: "jobs", Name: "job"})
	spec := cluster.PodSpec("shared", "")
	spec.Tolerations = append(spec.Tolerations, corev1.Toleration{Key: lostTaint, Operator: corev1.TolerationOpExists})
	job := cluster.Job("job", pods, spec)
	// A lost pod counts as one that failed.
	job.Spec.BackoffLimit = new(int32(100))
	job, err := e.BatchV1().Jobs(e.namespace).Create(e.ctx, job, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := cluster.Consumer{APIGroup: "batch", Resource: "jobs", Name: "job", UID: job.UID}
	e.running("job", pods)
	e.reservedFor("shared", want)

	lost := e.nodeOf("job")
	if err := e.CoreV1().Nodes().Delete(e.ctx, lost, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e.eventually("the pods run on another node", func() error {
		running := 0
		list, err := e.CoreV1().Pods(e.namespace).List(e.ctx, metav1.ListOptions{LabelSelector: cluster.JobLabel + "=job"})
		if err != nil {
			return err
		}
		for _, pod := range list.Items {
			if pod.Spec.NodeName != lost && pod.Status.Phase == corev1.PodRunning {
				running++
			}
		}
		if running != pods {
			return fmt.Errorf("%d of %d", running, pods)
		}
		return nil
	})
	e.reservedFor("shared", want)
	if now := e.nodeOf("job"); now == lost {
		t.Errorf("the pods still are on node %s", now)
	}
	message := e.event("ResourceClaim", "shared", func(event *corev1.Event) bool {
		return strings.Contains(event.Message, "node") || strings.Contains(event.Message, "fit")
	})
	t.Logf("the event says: %s", message)
}

// nodesWithDevice creates simulated nodes with one device each and a class for these
// devices.
func (e *env) nodesWithDevice(names ...string) (class string) {
	e.Helper()
	// The class, and a slice whose devices are on no node.
	class = e.devices(1, e.namespace)
	for _, name := range names {
		node := e.namespace + "-" + name
		e.simulatedNode(node)
		slice := e.ResourceSlice(node, cluster.DriverName, []string{"device"}, corev1.LabelHostname, node)
		if err := mark(e.DeviceClass(class, cluster.DriverName), slice, e.Version, e.namespace); err != nil {
			e.Fatal(err)
		}
		if err := e.Replace(e.ctx, "resourceslices", slice); err != nil {
			e.Fatal(err)
		}
		e.Cleanup(func() {
			_ = e.Dynamic.Resource(e.Resource("resourceslices")).Delete(context.Background(), node, metav1.DeleteOptions{})
		})
	}
	return class
}

// simulatedNode creates another node like the simulated ones that are there.
func (e *env) simulatedNode(name string) {
	e.Helper()
	list, err := e.CoreV1().Nodes().List(e.ctx, metav1.ListOptions{LabelSelector: cluster.TypeLabel + "=simulated", Limit: 1})
	if err == nil && len(list.Items) == 0 {
		err = errors.New("there are no simulated nodes")
	}
	if err != nil {
		e.Fatal(err)
	}
	like := &list.Items[0]
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Annotations: map[string]string{cluster.SimulatedAnnotation: "fake"},
			Labels:      map[string]string{corev1.LabelHostname: name},
		},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: lostTaint, Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{
			Capacity:    like.Status.Capacity,
			Allocatable: like.Status.Allocatable,
			NodeInfo:    like.Status.NodeInfo,
		},
	}
	if _, err := e.CoreV1().Nodes().Create(e.ctx, node, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _ = e.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}) })
}

// nodeOf returns the node on which all running pods of a Job are.
func (e *env) nodeOf(job string) string {
	e.Helper()
	list, err := e.CoreV1().Pods(e.namespace).List(e.ctx, metav1.ListOptions{LabelSelector: cluster.JobLabel + "=" + job, FieldSelector: "status.phase=Running"})
	if err != nil {
		e.Fatal(err)
	}
	nodes := map[string]bool{}
	node := ""
	for _, pod := range list.Items {
		node = pod.Spec.NodeName
		nodes[node] = true
	}
	if len(nodes) != 1 {
		e.Fatalf("the pods should be on one node, they are on %v", nodes)
	}
	return node
}
