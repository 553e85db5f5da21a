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
	"fmt"
	"testing"
	"time"

	"github.com/onsi/gomega"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	ktesting "k8s.io/kubernetes/test/utils/client-go/ktesting"
)

// TestNodeLoss takes the node away that a claim is allocated on. The workload remains, so
// the claim remains reserved, and its pods fit nowhere else. Without anybody's
// help, the claim has to be allocated on another node, but not while a pod might
// still use it.
func TestNodeLoss(t *testing.T) {
	tCtx := ktesting.Init(t)
	c := startCluster(tCtx)
	for name, test := range map[string]func(c *cluster){
		"Deleted":               testNodeDeleted,
		"DeletedUnderUID":       testNodeDeletedUnderUID,
		"Cordoned":              testNodeCordoned,
		"PodOnNodeWithoutReply": testPodOnNodeWithoutReply,
	} {
		run(tCtx, name, func(tCtx ktesting.TContext) {
			parallel(tCtx)
			test(c.withTest(tCtx))
		})
	}
}

// beginWithNodes is like begin, but each device is on a node of its own.
func (c *cluster) beginWithNodes(nodes int) (string, *history) {
	c.Helper()
	ns, h := c.begin(0)
	for i := range nodes {
		name := fmt.Sprintf("%s-%d", ns, i)
		c.createNode(name)
		slice := onNode(newSlice(name, ns+".driver", 1), name)
		_, err := resourceClient(c.Client()).ResourceSlices().Create(c, slice, metav1.CreateOptions{})
		c.ExpectNoError(err, "create ResourceSlice")
	}
	return ns, h
}

// waitForMoved waits until the claim has another device than before.
func (c *cluster) waitForMoved(ns string, before *resourceapi.ResourceClaim, reserved func(claim *resourceapi.ResourceClaim) bool) {
	c.Helper()
	c.waitForClaim(ns, before.Name, "allocated on another node", func(claim *resourceapi.ResourceClaim) bool {
		return reserved(claim) && !apiequality.Semantic.DeepEqual(before.Status.Allocation, claim.Status.Allocation)
	})
}

// expectMoveExplained waits for an event about the claim that says that its allocation is given up.
func (c *cluster) expectMoveExplained(ns, claim string) {
	c.Helper()
	eventually(c.TContext, func(tCtx ktesting.TContext) []v1.Event {
		events, err := c.Client().CoreV1().Events(ns).List(tCtx, metav1.ListOptions{FieldSelector: "involvedObject.kind=ResourceClaim,involvedObject.name=" + claim})
		tCtx.ExpectNoError(err, "list events")
		return events.Items
	}).WithTimeout(timeout).Should(gomega.ContainElement(gomega.HaveField("Message", gomega.MatchRegexp(`(?i)\b(fits?|node|unschedulable)\b`))), "event about the allocation that fits no longer")
}

// releaseRequests is how often all schedulers so far have given up an allocation.
func (c *cluster) releaseRequests() float64 {
	c.Helper()
	value, err := testutil.GetCounterMetricValue(metrics.ResourceClaimReleaseRequests)
	c.ExpectNoError(err, "read metric")
	return value
}

func (c *cluster) deleteNode(name string) {
	c.Helper()
	c.ExpectNoError(c.Client().CoreV1().Nodes().Delete(c, name, metav1.DeleteOptions{}), "delete node")
}

func (c *cluster) setCordoned(name string, cordoned bool) {
	c.Helper()
	_, err := c.Client().CoreV1().Nodes().Patch(c, name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, cordoned), metav1.PatchOptions{})
	if !apierrors.IsNotFound(err) {
		c.ExpectNoError(err, "cordon node")
	}
}

func testNodeDeleted(c *cluster) {
	ns, h := c.beginWithNodes(2)
	c.createSharedClaim(ns)
	running, reserved := c.startJob(ns, 3)
	before, requests := c.getClaim(ns, "shared"), c.releaseRequests()
	c.deleteNode(running[0].Spec.NodeName)
	c.waitForMoved(ns, before, reserved)
	running = c.waitForRunning(ns, "train", 3)
	c.expectMoveExplained(ns, "shared")
	if now := c.releaseRequests(); now <= requests {
		c.Errorf("the scheduler's metric should have counted the release, it is %f", now)
	}
	c.finishAll(running)
	c.waitForDeallocated(ns, "shared")
	c.check(h)
}

func testNodeDeletedUnderUID(c *cluster) {
	ns, h := c.beginWithNodes(2)
	before, reserved := c.startStatefulSet(ns, 2)
	c.deleteNode(c.podsOf(ns, "db")[0].Spec.NodeName)
	c.waitForMoved(ns, before, reserved)
	c.waitForRunning(ns, "db", 2)
	c.check(h)
}

func testNodeCordoned(c *cluster) {
	ns, h := c.beginWithNodes(2)
	before, reserved := c.startStatefulSet(ns, 2)
	pods := c.podsOf(ns, "db")
	c.setCordoned(pods[0].Spec.NodeName, true)
	for i := range pods {
		c.ExpectNoError(c.Client().CoreV1().Pods(ns).Delete(c, pods[i].Name, metav1.DeleteOptions{}), "evict pod")
	}
	c.waitForMoved(ns, before, reserved)
	c.waitForRunning(ns, "db", 2)
	c.check(h)
}

// testPodOnNodeWithoutReply has a pod that gets deleted, but whose node does not confirm that. Its
// containers may still run with the device.
func testPodOnNodeWithoutReply(c *cluster) {
	ns, h := c.beginWithNodes(2)
	before, reserved := c.startStatefulSet(ns, 1)
	pod := c.podsOf(ns, "db")[0]
	c.agent.hold(&pod)
	c.setCordoned(pod.Spec.NodeName, true)
	c.ExpectNoError(c.Client().CoreV1().Pods(ns).Delete(c, pod.Name, metav1.DeleteOptions{}), "delete pod")
	c.scaleStatefulSet(ns, "db", "2")
	eventually(c.TContext, func(ktesting.TContext) int {
		return len(c.podsOf(ns, "db"))
	}).WithTimeout(timeout).Should(gomega.Equal(2), "pods of the StatefulSet")
	for _, other := range c.podsOf(ns, "db") {
		if other.UID != pod.UID {
			c.waitForUnschedulable(&other, "node")
		}
	}
	for range 2 {
		c.consistently(ns, "shared", "as it was", func(claim *resourceapi.ResourceClaim) bool {
			return reserved(claim) && apiequality.Semantic.DeepEqual(before.Status.Allocation, claim.Status.Allocation)
		})
	}
	c.agent.release(&pod)
	c.waitForMoved(ns, before, reserved)
	eventually(c.TContext, func(ktesting.TContext) int {
		return len(c.waitForRunning(ns, "db", 2))
	}).WithTimeout(timeout).WithPolling(time.Second).Should(gomega.Equal(2), "running pods")
	c.check(h)
}
