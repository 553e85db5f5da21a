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

package check

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// A check with hundreds of pods has the same to say about each.
	maxPodsSeen, maxClaimsSeen, maxEventsSeen = 3, 3, 8
)

// explain is what the cluster shows about the pods and claims of a check: those that have a problem first.
func (c *Case) explain(ctx context.Context) []string {
	var seen []string
	note := func(what string, err error) { seen = append(seen, fmt.Sprintf("cannot read %s: %v", what, err)) }
	about := map[string]bool{}
	if pods, err := c.Kube.CoreV1().Pods(c.Namespace).List(ctx, c.Mine()); err != nil {
		note("pods", err)
	} else {
		slices.SortStableFunc(pods.Items, func(a, b corev1.Pod) int { return health(a) - health(b) })
		for _, pod := range pods.Items[:min(len(pods.Items), maxPodsSeen)] {
			about[pod.Name] = true
			seen = append(seen, describePod(&pod))
		}
	}
	if claims, err := c.Resource("resourceclaims", c.Namespace).List(ctx, c.Mine()); err != nil {
		note("claims", err)
	} else {
		for _, claim := range claims.Items[:min(len(claims.Items), maxClaimsSeen)] {
			about[claim.GetName()] = true
			seen = append(seen, "claim "+claim.GetName()+": "+short(claim.Object["status"]))
		}
	}
	events, err := c.Kube.CoreV1().Events(c.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		note("Events", err)
		return seen
	}
	var lines []string
	for _, event := range events.Items {
		if about[event.InvolvedObject.Name] && event.Type == corev1.EventTypeWarning {
			lines = append(lines, fmt.Sprintf("event of %s about %s %s: %s: %s", event.Source.Component, strings.ToLower(event.InvolvedObject.Kind), event.InvolvedObject.Name, event.Reason, event.Message))
		}
	}
	slices.Sort(lines)
	lines = slices.Compact(lines)
	return append(seen, lines[:min(len(lines), maxEventsSeen)]...)
}

// health is low for a pod with a problem.
func health(pod corev1.Pod) int {
	switch {
	case pod.Status.Phase == corev1.PodFailed:
		return 0
	case pod.Status.Phase == corev1.PodPending || pod.DeletionTimestamp != nil:
		return 1
	}
	return 2
}

// describePod says in one line why a pod is where it is.
func describePod(pod *corev1.Pod) string {
	parts := []string{string(pod.Status.Phase)}
	if pod.Spec.NodeName != "" {
		parts[0] += " on node " + pod.Spec.NodeName
	}
	if pod.DeletionTimestamp != nil {
		parts = append(parts, "being deleted")
	}
	if pod.Status.Reason+pod.Status.Message != "" {
		parts = append(parts, pod.Status.Reason+" "+pod.Status.Message)
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Status != corev1.ConditionTrue && condition.Message != "" {
			parts = append(parts, fmt.Sprintf("%s=%s %s: %s", condition.Type, condition.Status, condition.Reason, condition.Message))
		}
	}
	for _, container := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if w := container.State.Waiting; w != nil {
			parts = append(parts, fmt.Sprintf("container %s waits: %s %s", container.Name, w.Reason, w.Message))
		}
		if t := container.State.Terminated; t != nil {
			parts = append(parts, fmt.Sprintf("container %s ended with %d: %s %s", container.Name, t.ExitCode, t.Reason, strings.TrimSpace(t.Message)))
		}
	}
	return "pod " + pod.Name + ": " + strings.Join(parts, "; ")
}

// short is an object in one line, which is cut where nobody reads on.
func short(object any) string {
	const most = 1000
	data, err := json.Marshal(object)
	if err != nil {
		return err.Error()
	}
	if len(data) > most {
		return string(data[:most]) + "..."
	}
	return string(data)
}
