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

package checks

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"kubernetes-dra/cmd/dra-driver-check/pkg/check"
)

var podChecks = []check.Check{
	{
		ID:   "pod",
		Asks: "Does a pod with one claim start and end on each node with devices, and is the claim free then?",
		Do:   "Look at the driver's log on that node, at NodePrepareResources and NodeUnprepareResources for this claim.",
		Run: func(c *check.Case) {
			for i, node := range c.Nodes() {
				runOnce(c, fmt.Sprint(i), check.Pod{Node: node})
			}
			c.Note("nodes: %s", strings.Join(c.Nodes(), ", "))
		},
	},
	{
		ID:   "generated",
		Asks: "Does a pod start whose claim is generated from a template? The name of such a claim is not in the pod's spec.",
		Do:   "Find the claims of a pod through pod.status.resourceClaimStatuses, too.",
		Run: func(c *check.Case) {
			pod := c.Succeeds(c.Start("pod", check.Pod{Template: c.NewTemplate("template"), Ends: true}))
			for _, status := range pod.Status.ResourceClaimStatuses {
				if status.ResourceClaimName != nil {
					c.Free(*status.ResourceClaimName)
				}
			}
		},
	},
	{
		ID:   "containers",
		Asks: "Do all containers of a pod start that list the same claim? It is prepared once for all of them.",
		Do:   "Put all that a container needs into CDI devices: each container that lists the claim gets them.",
		Run:  func(c *check.Case) { runOnce(c, "pod", check.Pod{Containers: 2}) },
	},
	{
		ID:   "container-again",
		Asks: "Does a container start again in the same pod? The kubelet does not prepare its claim again.",
		Do:   "Keep what a container needs until the claim is unprepared, and not until the first container has it.",
		Run: func(c *check.Case) {
			claim := c.NewClaim("claim")
			pod := c.Start("pod", check.Pod{Restart: corev1.RestartPolicyAlways, Ends: true}, claim)
			c.Pod(pod, "has a container that started again", startedAgain)
			c.Stop(pod)
			c.Free(claim)
		},
	},
	{
		ID:    "two-claims",
		Asks:  "Does a pod with two claims of the driver start? The kubelet may prepare both in one call.",
		Do:    "Answer for each claim of a call. What one claim needs must not depend on the other.",
		Needs: []check.Need{needsDevices(2)},
		Run: func(c *check.Case) {
			first, second := c.NewClaim("first"), c.NewClaim("second")
			c.Succeeds(c.Start("pod", check.Pod{Ends: true}, first, second))
			c.Free(first)
			c.Free(second)
		},
	},
	{
		ID:    "at-once",
		Asks:  "Do pods start that come all at once, each with a claim? Calls of the kubelet run in parallel.",
		Do:    "Look for races in the driver: several claims are prepared and unprepared at the same time.",
		Needs: []check.Need{needsDevices(2)},
		Run: func(c *check.Case) {
			pods := startSeveral(c, check.Pod{Ends: true})
			succeed(c, pods)
		},
	},
}

// runOnce runs a pod that ends, with a claim of its own. The kubelet unprepares the claims of a pod
// that has ended, and does not wait until it is deleted.
func runOnce(c *check.Case, suffix string, p check.Pod) {
	p.Ends = true
	claim := c.NewClaim(suffix)
	c.Succeeds(c.Start(suffix, p, claim))
	c.Free(claim)
}

// startedAgain returns no error if a container has run twice, and each time well.
func startedAgain(pod *corev1.Pod) error {
	for _, status := range pod.Status.ContainerStatuses {
		for _, t := range []*corev1.ContainerStateTerminated{status.State.Terminated, status.LastTerminationState.Terminated} {
			if t != nil && t.ExitCode != 0 {
				return check.Failf("container %s ended with %d after %d restarts: %s", status.Name, t.ExitCode, status.RestartCount, t.Message)
			}
		}
		if t := status.State.Terminated; t != nil && status.RestartCount > 0 || status.RestartCount > 1 {
			return nil
		}
	}
	return errors.New("it did not, or has not ended since")
}

// startSeveral starts pods at once, with a claim each. Pod and claim have the same name.
func startSeveral(c *check.Case, p check.Pod) (pods []string) {
	const most = 8
	free, _ := freeDevices(c)
	for i := range min(free, most) {
		pods = append(pods, c.Start(fmt.Sprint(i), p, c.NewClaim(fmt.Sprint(i))))
	}
	c.Note("%d pods", len(pods))
	return pods
}

// succeed waits until all have ended, and their claims are free.
func succeed(c *check.Case, pods []string) {
	for _, pod := range pods {
		c.Succeeds(pod)
		c.Free(pod)
	}
}
