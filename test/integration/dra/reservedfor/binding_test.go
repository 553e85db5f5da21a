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

package reservedfor

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ktesting "k8s.io/kubernetes/test/utils/client-go/ktesting"
)

// TestBinding lets claims be released while pods are on their way to a node: waiting in
// Permit for the rest of their gang, or in PreBind for a volume.
func TestBinding(t *testing.T) {
	tCtx := ktesting.Init(t)
	c := startCluster(tCtx)
	for name, test := range map[string]func(c *cluster){
		"Permit":          func(c *cluster) { testReleasedWhileHeld(c, holdInPermit) },
		"PreBind":         func(c *cluster) { testReleasedWhileHeld(c, holdInPreBind) },
		"FirstInPermit":   func(c *cluster) { testFirstHeld(c, holdInPermit) },
		"FirstInPreBind":  func(c *cluster) { testFirstHeld(c, holdInPreBind) },
		"WithoutAnything": testAssignedWithoutAllocation,
	} {
		run(tCtx, name, func(tCtx ktesting.TContext) {
			parallel(tCtx)
			test(c.withTest(tCtx))
		})
	}
}

// heldPod is a pod that the scheduler holds up until the gate of that name opens.
func heldPod(ns, name, label, gate string) *v1.Pod {
	pod := newPod(ns, name, "shared")
	pod.Labels = map[string]string{"app": "held", label: gate}
	return pod
}

func (c *cluster) waitForHeld(pod *v1.Pod) {
	c.Helper()
	eventually(c.TContext, func(ktesting.TContext) bool {
		return c.holds.hasArrived(pod)
	}).WithTimeout(timeout).WithPolling(10 * time.Millisecond).Should(gomega.BeTrueBecause("pod %s should be held up", pod.Name))
}

// testReleasedWhileHeld holds up a pod which found a claim that is reserved, until long
// after the Job is done for which it was. The pod must not be forgotten on a
// node without the claim.
func testReleasedWhileHeld(c *cluster, label string) {
	ns, h := c.begin(1)
	c.createSharedClaim(ns)
	running, _ := c.startJob(ns, 1)
	pod := c.createPod(heldPod(ns, "held", label, ns))
	c.waitForHeld(pod)
	c.finishAll(running)
	c.waitWhileAllocated(ns, "shared", 3*quiet)
	c.holds.open(ns)
	c.expectWayOut(pod, "shared")

	c.agent.finish(pod, v1.PodSucceeded)
	c.forceDelete(pod)
	c.waitForDeallocated(ns, "shared")
	c.ExpectNoError(h.replay(0).err(), "invariants")
}

// waitWhileAllocated waits until the claim is deallocated, but only for some time: not deallocating
// it because of a pod that is on its way is one way of doing it right.
func (c *cluster) waitWhileAllocated(ns, name string, limit time.Duration) {
	c.Helper()
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if c.getClaim(ns, name).Status.Allocation == nil {
			return
		}
	}
}

// expectWayOut waits until the pod runs, or is waiting without a node, or somebody said that it
// is on a node and why it cannot run.
func (c *cluster) expectWayOut(pod *v1.Pod, claim string) {
	c.Helper()
	eventually(c.TContext, func(tCtx ktesting.TContext) string {
		pod := c.getPod(pod)
		switch {
		case pod.Status.Phase == v1.PodRunning:
			return "runs"
		case pod.Spec.NodeName != "" && c.explained(pod, claim):
			return "explained"
		}
		for _, condition := range pod.Status.Conditions {
			if pod.Spec.NodeName == "" && condition.Type == v1.PodScheduled && condition.Status == v1.ConditionFalse {
				return "waits"
			}
		}
		return ""
	}).WithTimeout(timeout).WithPolling(100*time.Millisecond).ShouldNot(gomega.BeEmpty(), "way out for pod %s", pod.Name)
}

// explained returns true if a warning about the pod names its claim.
func (c *cluster) explained(pod *v1.Pod, claim string) bool {
	c.Helper()
	events, err := c.Client().CoreV1().Events(pod.Namespace).List(c, metav1.ListOptions{FieldSelector: "type=Warning,involvedObject.kind=Pod,involvedObject.name=" + pod.Name})
	c.ExpectNoError(err, "list events")
	return slices.ContainsFunc(events.Items, func(event v1.Event) bool {
		return event.Reason != "FailedScheduling" && strings.Contains(event.Message, claim)
	})
}

// testFirstHeld holds up the first pod, for which the claim gets allocated and reserved, and
// deletes its Job in the meantime.
func testFirstHeld(c *cluster, label string) {
	ns, h := c.begin(1)
	c.createSharedClaim(ns)
	job := newJob(ns, "train", "shared", 2)
	job.Spec.Template.Labels[label] = ns
	c.createJob(job)
	eventually(c.TContext, func(ktesting.TContext) bool {
		pods := c.podsOf(ns, "train")
		return slices.ContainsFunc(pods, func(pod v1.Pod) bool { return c.holds.hasArrived(&pod) })
	}).WithTimeout(timeout).WithPolling(10 * time.Millisecond).Should(gomega.BeTrueBecause("a pod should be held up"))
	c.deleteJob(ns, "train", metav1.DeletePropagationBackground)
	c.waitForNoPods(ns, "train")
	c.holds.open(ns)
	c.waitForDeallocated(ns, "shared")

	// Nothing may be left in flight: the device is free, also for another claim.
	claim := c.getClaim(ns, "shared")
	eventually(c.TContext, func(ktesting.TContext) bool {
		return c.holds.isInFlight(claim.UID)
	}).WithTimeout(timeout).Should(gomega.BeFalseBecause("no pod is being scheduled"))
	c.expectFreeDevice(ns, ns)
	c.check(h)
}

// testAssignedWithoutAllocation puts a pod on a node whose claim nobody allocated. Nobody is
// going to, and the pod would wait for ever without a word.
func testAssignedWithoutAllocation(c *cluster) {
	ns, _ := c.begin(1)
	c.createSharedClaim(ns)
	pod := newPod(ns, "assigned", "shared")
	pod.Spec.NodeName = "worker-1"
	pod = c.createPod(pod)
	eventually(c.TContext, func(ktesting.TContext) bool {
		return c.explained(pod, "shared")
	}).WithTimeout(timeout).WithPolling(100 * time.Millisecond).Should(gomega.BeTrueBecause("an event should say why the pod does not run"))
}
