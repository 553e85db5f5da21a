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
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
)

const (
	kwokUser = "kwok"

	// SimulatedAnnotation makes kwok look after a node.
	SimulatedAnnotation = "kwok.x-k8s.io/node"
	// TypeLabel has the value "simulated" or "real" on every node.
	TypeLabel = "node.dra.example.com/type"
	// EndLabel ends a pod on a simulated node. Its value is the phase:
	// Succeeded or Failed.
	EndLabel = "simulated.dra.example.com/end"
)

// stages is what simulated nodes and pods go through. It is not what kwok does
// when it is told nothing: there, all pods of Jobs succeed at once.
const stages = `apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
metadata:
  name: kwok
options:
  podPlayStageParallelism: 16
  nodePlayStageParallelism: 16
  nodeLeaseParallelism: 4
  podsOnNodeSyncParallelism: 16
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata:
  name: node-ready
spec:
  resourceRef:
    apiGroup: v1
    kind: Node
  selector:
    matchExpressions:
    - key: '.status.conditions.[] | select( .type == "Ready" ) | .status'
      operator: 'NotIn'
      values:
      - 'True'
  next:
    statusTemplate: |
      {{ $now := Now }}
      conditions:
      {{ range NodeConditions }}
      - lastHeartbeatTime: {{ $now | Quote }}
        lastTransitionTime: {{ $now | Quote }}
        message: {{ .message | Quote }}
        reason: {{ .reason | Quote }}
        status: {{ .status | Quote }}
        type: {{ .type | Quote }}
      {{ end }}
      phase: Running
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata:
  name: node-heartbeat
spec:
  resourceRef:
    apiGroup: v1
    kind: Node
  selector:
    matchExpressions:
    - key: '.status.conditions.[] | select( .type == "Ready" ) | .status'
      operator: 'In'
      values:
      - 'True'
  delay:
    durationMilliseconds: 300000
    jitterDurationMilliseconds: 310000
  next:
    statusTemplate: |
      {{ $now := Now }}
      conditions:
      {{ range NodeConditions }}
      - lastHeartbeatTime: {{ $now | Quote }}
        message: {{ .message | Quote }}
        reason: {{ .reason | Quote }}
        status: {{ .status | Quote }}
        type: {{ .type | Quote }}
      {{ end }}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata:
  name: pod-running
spec:
  resourceRef:
    apiGroup: v1
    kind: Pod
  selector:
    matchExpressions:
    - key: '.metadata.deletionTimestamp'
      operator: 'DoesNotExist'
    - key: '.status.phase'
      operator: 'In'
      values:
      - 'Pending'
    - key: '.status.conditions.[] | select( .type == "Ready" ) | .status'
      operator: 'NotIn'
      values:
      - 'True'
  next:
    statusTemplate: |
      {{ $now := Now }}
      conditions:
      - lastTransitionTime: {{ $now | Quote }}
        status: "True"
        type: Initialized
      - lastTransitionTime: {{ $now | Quote }}
        status: "True"
        type: Ready
      - lastTransitionTime: {{ $now | Quote }}
        status: "True"
        type: ContainersReady
      containerStatuses:
      {{ range .spec.containers }}
      - image: {{ .image | Quote }}
        name: {{ .name | Quote }}
        ready: true
        restartCount: 0
        started: true
        state:
          running:
            startedAt: {{ $now | Quote }}
      {{ end }}
      phase: Running
      startTime: {{ $now | Quote }}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata:
  name: pod-end
spec:
  resourceRef:
    apiGroup: v1
    kind: Pod
  selector:
    matchExpressions:
    - key: '.metadata.deletionTimestamp'
      operator: 'DoesNotExist'
    - key: '.metadata.labels["` + EndLabel + `"]'
      operator: 'In'
      values:
      - 'Succeeded'
      - 'Failed'
    - key: '.status.phase'
      operator: 'In'
      values:
      - 'Running'
  next:
    statusTemplate: |
      {{ $now := Now }}
      {{ $end := index .metadata.labels "` + EndLabel + `" }}
      conditions:
      - lastTransitionTime: {{ $now | Quote }}
        status: "False"
        type: Ready
      - lastTransitionTime: {{ $now | Quote }}
        status: "False"
        type: ContainersReady
      containerStatuses:
      {{ range .spec.containers }}
      - image: {{ .image | Quote }}
        name: {{ .name | Quote }}
        ready: false
        restartCount: 0
        started: false
        state:
          terminated:
            exitCode: {{ if eq $end "Failed" }}1{{ else }}0{{ end }}
            finishedAt: {{ $now | Quote }}
            startedAt: {{ $now | Quote }}
            reason: {{ if eq $end "Failed" }}Error{{ else }}Completed{{ end }}
      {{ end }}
      phase: {{ $end }}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata:
  name: pod-deleted
spec:
  resourceRef:
    apiGroup: v1
    kind: Pod
  selector:
    matchExpressions:
    - key: '.metadata.deletionTimestamp'
      operator: 'Exists'
  next:
    finalizers:
      empty: false
    delete: true
`

func (c *Cluster) startSimulatedNodes(ctx context.Context) error {
	if c.Options.SimulatedNodes == 0 {
		return nil
	}
	if err := c.startKwok(ctx); err != nil {
		return err
	}
	client, err := c.clientset()
	if err != nil {
		return err
	}
	var failed atomic.Pointer[error]
	workqueue.ParallelizeUntil(ctx, 16, c.Options.SimulatedNodes, func(i int) {
		if err := c.createSimulatedNode(ctx, client, fmt.Sprintf("sim-%04d", i)); err != nil {
			failed.CompareAndSwap(nil, &err)
		}
	})
	if err := failed.Load(); err != nil {
		return fmt.Errorf("simulated nodes: %w", *err)
	}
	return context.Cause(ctx)
}

func (c *Cluster) startKwok(ctx context.Context) error {
	name := c.path("config", "kwok.yaml")
	if err := os.WriteFile(name, []byte(stages), 0o644); err != nil {
		return err
	}
	p, err := c.start(Kwok, []string{
		c.tool("kwok"),
		"--config=" + name,
		"--kubeconfig=" + c.kubeconfig(Kwok),
		"--manage-nodes-with-annotation-selector=" + SimulatedAnnotation + "=fake",
		"--node-lease-duration-seconds=200",
		"--server-address=" + c.address(Kwok),
	})
	if err != nil {
		return err
	}
	return c.waitHealthy(ctx, p, time.Minute, func(ctx context.Context) error {
		client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
		return probe(ctx, client, "http://"+c.address(Kwok)+"/healthz")
	})
}

// createSimulatedNode registers a node, as the kubelet of a real one would.
// Where there is a real one, the others are tainted: a pod that says nothing
// really runs.
func (c *Cluster) createSimulatedNode(ctx context.Context, client kubernetes.Interface, name string) error {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("32"),
		corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourcePods:   resource.MustParse("110"),
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Annotations: map[string]string{SimulatedAnnotation: "fake"},
			Labels: map[string]string{
				TypeLabel:              "simulated",
				corev1.LabelHostname:   name,
				corev1.LabelOSStable:   "linux",
				corev1.LabelArchStable: "amd64",
			},
		},
		Status: corev1.NodeStatus{
			Capacity:    capacity,
			Allocatable: capacity,
			Phase:       corev1.NodeRunning,
			NodeInfo:    corev1.NodeSystemInfo{KubeletVersion: "kwok", OperatingSystem: "linux", Architecture: "amd64"},
		},
	}
	if c.state.RealNode {
		node.Spec.Taints = []corev1.Taint{{Key: SimulatedAnnotation, Value: "fake", Effect: corev1.TaintEffectNoSchedule}}
	}
	_, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// waitForNodes waits until all nodes are ready.
func (c *Cluster) waitForNodes(ctx context.Context) error {
	client, err := c.clientset()
	if err != nil {
		return err
	}
	want := c.Options.SimulatedNodes
	real := 0
	if c.state.RealNode {
		real = len(c.realNodes())
	}
	want += real
	start, shown := time.Now(), time.Now()
	err = poll(ctx, 5*time.Minute, "nodes", func(ctx context.Context) error {
		nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return err
		}
		ready, realReady := 0, 0
		for _, node := range nodes.Items {
			for _, condition := range node.Status.Conditions {
				if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
					ready++
					if slices.ContainsFunc(c.realNodes(), func(n *realNode) bool { return node.Name == n.of(RealNode) }) {
						realReady++
					}
				}
			}
		}
		if ready >= want && realReady >= real {
			return nil
		}
		if time.Since(shown) > 5*time.Second {
			shown = time.Now()
			c.Log("%d of %d nodes are ready", ready, want)
		}
		if _, dead := c.Running(); len(dead) > 0 {
			return stopError{fmt.Errorf("%s ended%s", dead[0], c.logEnd(dead[0]))}
		}
		return fmt.Errorf("%d of %d are ready", ready, want)
	})
	if err != nil {
		if c.state.RealNode && !errors.Is(err, context.Canceled) {
			return fmt.Errorf("%w%s", err, c.logEnd(Kubelet))
		}
		return err
	}
	c.Log("%d nodes are ready after %s", want, time.Since(start).Round(100*time.Millisecond))
	return nil
}
