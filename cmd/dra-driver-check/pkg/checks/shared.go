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
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"kubernetes-dra/cmd/dra-driver-check/pkg/check"
)

const readNoList = "Do not read status.reservedFor when a claim is prepared: neither its length nor its entries. docs/drivers.md says how to find pods."

var sharedChecks = []check.Check{
	{
		ID:    "shared",
		Asks:  "Do two pods of a node share a claim that lists both? The kubelet prepares it for the first one only.",
		Do:    "Prepare the claim and not a pod, and keep it until it is unprepared: that comes when the last pod of the node is gone.",
		Needs: []check.Need{needsSharing},
		Run: func(c *check.Case) {
			claim := c.NewClaim("claim")
			first, second := c.Start("first", check.Pod{}, claim), c.Start("second", check.Pod{}, claim)
			c.Runs(first)
			c.Runs(second)
			c.Stop(first)
			// The device is still there.
			c.Succeeds(c.Start("third", check.Pod{Ends: true}, claim))
			c.Stop(second)
			c.Free(claim)
		},
	},
	{
		ID:    "exclusive",
		Asks:  "Is a second pod refused with an Event where a device is for one pod, and does it start when the first is gone?",
		Do:    "Refuse the second pod with a clear error, say it in an Event about the pod, and serve it when the device is free.",
		Needs: []check.Need{needsExclusive},
		Run: func(c *check.Case) {
			claim := c.NewClaim("claim")
			first := c.Start("first", check.Pod{}, claim)
			c.Runs(first)
			second := c.Start("second", check.Pod{}, claim)
			c.Note("the Event: %s", refusal(c, second))
			c.Stop(first)
			c.Runs(second)
			c.Stop(second)
			c.Free(claim)
		},
	},
	{
		ID:    "workload",
		Asks:  "Do many pods of a Job share a claim that is reserved for the Job? status.reservedFor lists none of them.",
		Do:    readNoList,
		Needs: []check.Need{needsReservedFor, needsSharing},
		Run: func(c *check.Case) {
			pods := min(c.Pods, podRoom(c))
			if pods < 2 {
				c.Skipf("node %s has no room for two pods", c.Node())
			}
			c.Note("%d pods on node %s, of the %d that were asked for", pods, c.Node(), c.Pods)
			claim := c.NewClaimWith("claim", nil, c.Job("job"))
			job := c.StartJob("job", pods, check.Pod{}, claim)
			c.RunJob(job, pods)
			reservedOnce(c, claim, job.UID)
			background := metav1.DeletePropagationBackground
			c.Must(c.Kube.BatchV1().Jobs(c.Namespace).Delete(c.Context(), job.Name, metav1.DeleteOptions{PropagationPolicy: &background}))
			c.Free(claim)
		},
	},
	{
		ID:    "workload-turns",
		Asks:  "Do pods of a Job use its claim one after the other? It stays reserved, and is prepared again for each.",
		Do:    readNoList + " Prepare a claim again that was unprepared: its UID and status are the same.",
		Needs: []check.Need{needsReservedFor},
		Run: func(c *check.Case) {
			const turns = 3
			claim := c.NewClaimWith("claim", nil, c.Job("job"))
			job := c.StartJob("job", turns, check.Pod{Ends: true}, claim)
			c.JobPods(job, corev1.PodSucceeded)
			c.Free(claim)
		},
	},
}

var consumerChecks = []check.Check{
	{
		ID:    "custom-consumer",
		Asks:  "Does a pod start whose claim is reserved for an object of a kind that nobody knows, and for nothing else?",
		Do:    readNoList,
		Needs: []check.Need{needsReservedFor},
		Run: func(c *check.Case) {
			consumer := gadget(c)
			claim := c.NewClaimWith("claim", nil, check.Consumer(consumer))
			pod := c.Start("pod", check.Pod{}, claim)
			c.Runs(pod)
			reservedOnce(c, claim, consumer.UID)
			c.Stop(pod)
		},
	},
	{
		ID:   "mixed-consumers",
		Asks: "Does a pod start whose claim also lists an object that is no pod, and lists it first? Any release allows that.",
		Do:   readNoList,
		Run: func(c *check.Case) {
			claim := c.NewClaim("claim")
			first := c.Start("first", check.Pod{}, claim)
			c.Runs(first)
			release := c.Reserve(claim, gadget(c))
			// It is unprepared then, and stays allocated.
			c.Stop(first)
			second := c.Start("second", check.Pod{}, claim)
			c.Runs(second)
			// The controller frees a claim when it removes the last entry itself, and not when somebody else does.
			release()
			c.Stop(second)
			c.Free(claim)
		},
	},
}

// gadget is a consumer of a kind that no cluster has.
func gadget(c *check.Case) resourceapi.ResourceClaimConsumerReference {
	return resourceapi.ResourceClaimConsumerReference{APIGroup: "dra-driver-check.example.com", Resource: "gadgets", Name: c.Name("gadget"), UID: uuid.NewUUID()}
}

// reservedOnce checks for whom a claim is reserved. It is not the driver that decides about that.
func reservedOnce(c *check.Case, claim string, uid types.UID) {
	if list := c.Status(claim).ReservedFor; len(list) != 1 || list[0].UID != uid {
		c.Must(&check.Failure{
			What: fmt.Sprintf("the claim was to be reserved once, and for no pod; status.reservedFor has %d entries", len(list)),
			Do:   "This is about the cluster: see whether its scheduler and controllers have DRAReservedForWorkloads on.",
		})
	}
}

// podRoom is how many more pods the node takes.
func podRoom(c *check.Case) int {
	node, err := c.Kube.CoreV1().Nodes().Get(c.Context(), c.Node(), metav1.GetOptions{})
	c.Must(err)
	pods, err := c.Kube.CoreV1().Pods("").List(c.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + c.Node() + ",status.phase!=Succeeded,status.phase!=Failed"})
	c.Must(err)
	return int(node.Status.Allocatable.Pods().Value()) - len(pods.Items)
}

// refusal waits for an Event about a pod that is not the scheduler's.
func refusal(c *check.Case, name string) (message string) {
	c.Pod(name, "has an Event that says why it does not start", func(pod *corev1.Pod) error {
		if pod.Status.Phase != corev1.PodPending {
			return check.Failf("the second pod is %s while the first one has the device", pod.Status.Phase)
		}
		events, err := c.Kube.CoreV1().Events(c.Namespace).List(c.Context(), metav1.ListOptions{FieldSelector: "type=Warning,involvedObject.name=" + name})
		if err != nil {
			return err
		}
		i := slices.IndexFunc(events.Items, func(event corev1.Event) bool { return event.Reason != "FailedScheduling" })
		if i < 0 {
			return errors.New("there is none")
		}
		message = events.Items[i].Reason + ": " + events.Items[i].Message
		return nil
	})
	return message
}
