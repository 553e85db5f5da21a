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
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
)

const (
	// SimulatedAnnotation makes kwok look after a node.
	SimulatedAnnotation = "kwok.x-k8s.io/node"
	// TypeLabel has the value "simulated" or "real" on every node.
	TypeLabel = "node.dra.example.com/type"
	// EndLabel ends a pod on a simulated node. Its value is the phase: Succeeded or Failed.
	EndLabel = "simulated.dra.example.com/end"
)

// simulatedNodes are objects that kwok looks after.
type simulatedNodes struct{ *Cluster }

func (s simulatedNodes) up(ctx context.Context) error {
	if s.Options.SimulatedNodes == 0 {
		return nil
	}
	if err := s.startKwok(ctx); err != nil {
		return err
	}
	client, err := s.clientset()
	if err != nil {
		return err
	}
	return CreateSimulatedNodes(ctx, client, s.Options.SimulatedNodes, s.state.RealNode)
}

// KwokArgs are the command line of kwok.
func (c *Cluster) KwokArgs(kubeconfig, address string) ([]string, error) {
	// What simulated nodes and pods go through. It is no template of ours, but has some for kwok.
	config, err := c.writeConfig("stages.yaml", nil)
	return []string{
		c.tool(Kwok),
		"--config=" + config,
		"--kubeconfig=" + kubeconfig,
		"--manage-nodes-with-annotation-selector=" + SimulatedAnnotation + "=fake",
		"--node-lease-duration-seconds=200",
		"--server-address=" + address,
	}, err
}

func (s simulatedNodes) startKwok(ctx context.Context) error {
	args, err := s.KwokArgs(s.ComponentKubeconfig(Kwok), s.Ports.address(Kwok))
	if err != nil {
		return err
	}
	p, err := s.run(Kwok, args)
	if err != nil {
		return err
	}
	return s.waitForAnswer(ctx, p, "http://"+s.Ports.address(Kwok)+"/healthz")
}

// CreateSimulatedNodes registers nodes, as the kubelets of real ones would. Where there is a real one, the
// others are tainted: a pod that says nothing really runs.
func CreateSimulatedNodes(ctx context.Context, client kubernetes.Interface, number int, tainted bool) error {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("32"),
		corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourcePods:   resource.MustParse("110"),
	}
	var failed atomic.Pointer[error]
	workqueue.ParallelizeUntil(ctx, 16, number, func(i int) {
		name := fmt.Sprintf("sim-%04d", i)
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
		if tainted {
			node.Spec.Taints = []corev1.Taint{{Key: SimulatedAnnotation, Value: "fake", Effect: corev1.TaintEffectNoSchedule}}
		}
		if _, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			err = fmt.Errorf("simulated node %s: %w", name, err)
			failed.CompareAndSwap(nil, &err)
		}
	})
	if err := failed.Load(); err != nil {
		return *err
	}
	return context.Cause(ctx)
}
