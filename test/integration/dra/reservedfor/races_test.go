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
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/onsi/gomega"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ktesting "k8s.io/kubernetes/test/utils/client-go/ktesting"
)

// TestRaces provokes what rarely happens on its own. The tests interfere with
// the components, therefore they run one after the other.
func TestRaces(t *testing.T) {
	tCtx := ktesting.Init(t)
	c := startCluster(tCtx)
	for _, tc := range []struct {
		name string
		test func(c *cluster)
	}{
		{"ListFull", testListFull},
		{"StaleCache", testStaleCache},
		{"PodAfterLastLook", testPodAfterLastLook},
		{"FirstPodFails", testFirstPodFails},
		{"ClaimWriteFails", testClaimWriteFails},
		{"ControllerDown", testControllerDown},
		{"SchedulerDown", testSchedulerDown},
		{"AllocatedBeforeGate", testAllocatedBeforeGate},
		{"MixedList", testMixedList},
		{"ControllerGateOff", testControllerGateOff},
		{"SchedulerGateOff", testSchedulerGateOff},
	} {
		run(tCtx, tc.name, func(tCtx ktesting.TContext) {
			c := c.withTest(tCtx)
			tCtx.Cleanup(c.scheduler.faults.reset)
			tCtx.Cleanup(c.controller.faults.reset)
			tc.test(c)
		})
	}
}

func (c *cluster) createStatefulSet(ns, name, claim string, pods int32) *appsv1.StatefulSet {
	c.Helper()
	set, err := c.Client().AppsV1().StatefulSets(ns).Create(c, newStatefulSet(ns, name, claim, pods), metav1.CreateOptions{})
	c.ExpectNoError(err, "create StatefulSet")
	return set
}

func (c *cluster) scaleStatefulSet(ns, name string, replicas string) {
	c.Helper()
	_, err := c.Client().AppsV1().StatefulSets(ns).Patch(c, name, types.MergePatchType, []byte(`{"spec":{"replicas":`+replicas+`}}`), metav1.PatchOptions{})
	c.ExpectNoError(err, "scale StatefulSet")
}

// startStatefulSet creates a StatefulSet and its claim and waits until its pods
// run. It returns the claim and a condition for a claim that is reserved for that
// StatefulSet only.
func (c *cluster) startStatefulSet(ns string, pods int32) (*resourceapi.ResourceClaim, func(*resourceapi.ResourceClaim) bool) {
	c.Helper()
	set := c.createStatefulSet(ns, "db", "shared", pods)
	c.createClaim(newClaim(ns, "shared", ns, reservedFor(statefulsets, "db", set.UID)))
	c.waitForRunning(ns, "db", int(pods))
	reserved := reservedForOnly(statefulsets, "db", set.UID)
	return c.waitForClaim(ns, "shared", "reserved for the StatefulSet", reserved), reserved
}

// testStaleCache: the controller believes that there are no pods because
// its cache is outdated.
func testStaleCache(c *cluster) {
	ns, h := c.begin(1)
	_, reserved := c.startStatefulSet(ns, 1)
	c.scaleStatefulSet(ns, "db", "0")
	c.waitForNoPods(ns, "db")
	c.consistently(ns, "shared", "reserved while scaled to zero", reserved)

	c.controller.faults.stall("pods")
	pod := c.createPod(newPod(ns, "unseen", "shared"))
	c.waitForRunning(ns, "", 1)
	c.ExpectNoError(c.Client().AppsV1().StatefulSets(ns).Delete(c, "db", metav1.DeleteOptions{}), "delete StatefulSet")
	c.consistently(ns, "shared", "reserved for the pod that is not in the cache", reserved)
	c.controller.faults.resume()

	c.forceDelete(pod)
	c.waitForDeallocated(ns, "shared")
	c.check(h)
}

// testPodAfterLastLook: a pod turns up when the controller has
// decided already that there are none and is about to deallocate.
func testPodAfterLastLook(c *cluster) {
	ns, h := c.begin(1)
	before, reserved := c.startStatefulSet(ns, 1)

	deallocating := make(chan struct{})
	proceed := make(chan struct{})
	var once atomic.Bool
	c.controller.faults.setBefore(func(req *http.Request) error {
		if !isWriteOf(req, "/resourceclaims/shared/status/") || !strings.Contains(req.URL.Path, ns) {
			return nil
		}
		claim, err := resourceClient(c.Client()).ResourceClaims(ns).Get(req.Context(), "shared", metav1.GetOptions{})
		if err != nil || len(claim.Status.ReservedFor) > 0 || !once.CompareAndSwap(false, true) {
			return nil
		}
		close(deallocating)
		select {
		case <-proceed:
		case <-req.Context().Done():
		}
		return nil
	})
	c.ExpectNoError(c.Client().AppsV1().StatefulSets(ns).Delete(c, "db", metav1.DeleteOptions{}), "delete StatefulSet")
	select {
	case <-deallocating:
	case <-c.Done():
		c.Fatal("the controller did not try to deallocate")
	}
	late := c.createPod(newPod(ns, "late", "shared"))
	c.waitForRunning(ns, "", 1)
	close(proceed)
	c.consistently(ns, "shared", "reserved again", reserved)
	c.Expect(c.getClaim(ns, "shared").Status.Allocation).To(gomega.Equal(before.Status.Allocation))

	c.agent.finish(late, v1.PodSucceeded)
	c.waitForDeallocated(ns, "shared")
	c.check(h)
}

var errInjected = errors.New("injected by test")

// testFirstPodFails: the claim gets allocated and reserved for the first pods, which
// then cannot be bound.
func testFirstPodFails(c *cluster) {
	ns, h := c.begin(1)
	var failures atomic.Int32
	c.scheduler.faults.setBefore(func(req *http.Request) error {
		if isWriteOf(req, "/binding/") && strings.Contains(req.URL.Path, ns) && failures.Add(1) <= 3 {
			return errInjected
		}
		return nil
	})
	c.createSharedClaim(ns)
	running, _ := c.startJob(ns, 5)
	if failures.Load() < 3 {
		c.Errorf("expected at least three failed bindings, got %d", failures.Load())
	}
	c.finishAll(running)
	c.waitForDeallocated(ns, "shared")
	if result := c.check(h); result.allocations != 1 {
		c.Errorf("expected one allocation, got %d", result.allocations)
	}
}

// testClaimWriteFails: two first pods arrive at once, and storing the
// allocation fails.
func testClaimWriteFails(c *cluster) {
	ns, h := c.begin(1)
	var failures atomic.Int32
	c.scheduler.faults.setBefore(func(req *http.Request) error {
		if isWriteOf(req, "/resourceclaims/shared/status/") && strings.Contains(req.URL.Path, ns) && failures.Add(1) <= 2 {
			return errInjected
		}
		return nil
	})
	c.createSharedClaim(ns)
	running, _ := c.startJob(ns, 20)
	if failures.Load() < 2 {
		c.Errorf("expected at least two failed writes, got %d", failures.Load())
	}
	c.finishAll(running)
	c.waitForDeallocated(ns, "shared")
	c.check(h)
}

// testControllerDown: everything ends while the controller is not running.
func testControllerDown(c *cluster) {
	ns, h := c.begin(1)
	c.createSharedClaim(ns)
	c.startJob(ns, 2)
	c.controller.stop()
	c.deleteJob(ns, "train", metav1.DeletePropagationForeground)
	c.waitForNoPods(ns, "train")
	c.controller.start()
	c.waitForDeallocated(ns, "shared")

	// And when it stops between both steps.
	c.startJob(ns, 2)
	c.deleteJob(ns, "train", metav1.DeletePropagationForeground)
	c.waitForClaim(ns, "shared", "released, but not deallocated", func(claim *resourceapi.ResourceClaim) bool {
		return len(claim.Status.ReservedFor) == 0 && claim.Status.Allocation != nil
	})
	c.controller.restart()
	c.waitForDeallocated(ns, "shared")
	c.check(h)
}

// testSchedulerDown: the scheduler gets restarted while a claim is allocated and
// while it is released, but not deallocated.
func testSchedulerDown(c *cluster) {
	ns, h := c.begin(1)
	_, reserved := c.startStatefulSet(ns, 2)
	c.createClaim(newClaim(ns, "other", ns, reservedFor(jobs, "other", "")))
	c.scheduler.restart()
	c.scaleStatefulSet(ns, "db", "4")
	c.waitForRunning(ns, "db", 4)
	c.Expect(c.getClaim(ns, "shared")).To(gomega.Satisfy(reserved))

	other := c.createJob(newJob(ns, "other", "other", 2))
	c.ExpectNoError(c.Client().AppsV1().StatefulSets(ns).Delete(c, "db", metav1.DeleteOptions{}), "delete StatefulSet")
	c.waitForClaim(ns, "shared", "released", func(claim *resourceapi.ResourceClaim) bool { return len(claim.Status.ReservedFor) == 0 })
	c.scheduler.restart()
	c.waitForRunning(ns, "other", 2)
	c.waitForClaim(ns, "other", "reserved for the Job", reservedForOnly(jobs, "other", other.UID))
	c.waitForDeallocated(ns, "shared")
	c.check(h)
}

// listedPods returns a condition for a claim that is reserved for a number of pods.
func listedPods(count int) func(claim *resourceapi.ResourceClaim) bool {
	return func(claim *resourceapi.ResourceClaim) bool {
		if claim.Status.Allocation == nil || claim.Status.Allocation.ReservedForAnyPod != nil || len(claim.Status.ReservedFor) != count {
			return false
		}
		for _, ref := range claim.Status.ReservedFor {
			if ref.Resource != "pods" {
				return false
			}
		}
		return true
	}
}

// withSchedulerGateOff runs the callback while only the scheduler has the
// feature turned off.
func (c *cluster) withSchedulerGateOff(cb func()) {
	c.Helper()
	c.scheduler.stop()
	setGate(c.TContext, false)
	c.scheduler.start()
	setGate(c.TContext, true)
	cb()
	c.scheduler.restart()
}

// testAllocatedBeforeGate: a claim that a scheduler without the feature
// allocated remains per pod until it gets deallocated.
func testAllocatedBeforeGate(c *cluster) {
	ns, h := c.begin(1)
	c.createSharedClaim(ns)
	c.withSchedulerGateOff(func() {
		c.createJob(newJob(ns, "train", "shared", 3))
		c.waitForRunning(ns, "train", 3)
		c.waitForClaim(ns, "shared", "reserved for three pods", listedPods(3))
	})
	_, err := c.Client().BatchV1().Jobs(ns).Patch(c, "train", types.MergePatchType, []byte(`{"spec":{"parallelism":5}}`), metav1.PatchOptions{})
	c.ExpectNoError(err, "scale Job")
	c.createPod(newPod(ns, "extra", "shared"))
	running := c.waitForRunning(ns, "", 4)
	c.waitForClaim(ns, "shared", "reserved for four pods", listedPods(4))
	c.finishAll(running)
	c.waitForDeallocated(ns, "shared")

	c.deleteJob(ns, "train", metav1.DeletePropagationForeground)
	c.startJob(ns, 2)
	c.check(h)
}

// testMixedList: a list has pods and a workload. The claim is free when
// all of them are gone, in whatever order.
func testMixedList(c *cluster) {
	for _, last := range []string{"pod", "workload"} {
		ns, h := c.begin(1)
		set := c.createStatefulSet(ns, "db", "none", 0)
		c.createClaim(newClaim(ns, "shared", ns, reservedFor(statefulsets, "db", set.UID)))
		var pod *v1.Pod
		c.withSchedulerGateOff(func() {
			pod = c.createPod(newPod(ns, "listed", "shared"))
			c.waitForRunning(ns, "", 1)
		})
		claim := c.waitForClaim(ns, "shared", "reserved for the pod", listedPods(1))
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, *reservedFor(statefulsets, "db", set.UID))
		_, err := resourceClient(c.Client()).ResourceClaims(ns).UpdateStatus(c, claim, metav1.UpdateOptions{})
		c.ExpectNoError(err, "add reference")

		end := map[string]func(){
			"pod":      func() { c.agent.finish(pod, v1.PodSucceeded) },
			"workload": func() { c.ExpectNoError(c.Client().AppsV1().StatefulSets(ns).Delete(c, "db", metav1.DeleteOptions{})) },
		}
		for name, f := range end {
			if name != last {
				f()
			}
		}
		c.consistently(ns, "shared", "allocated for the "+last, func(claim *resourceapi.ResourceClaim) bool {
			return claim.Status.Allocation != nil && len(claim.Status.ReservedFor) > 0
		})
		end[last]()
		c.waitForDeallocated(ns, "shared")
		c.check(h)
	}
}

// testControllerGateOff: a controller without the feature keeps what is in use
// and releases what is not, so nothing is lost until the feature is on again.
func testControllerGateOff(c *cluster) {
	ns, h := c.begin(1)
	c.createSharedClaim(ns)
	_, reserved := c.startJob(ns, 2)

	c.controller.stop()
	setGate(c.TContext, false)
	c.controller.start()
	setGate(c.TContext, true)
	c.consistently(ns, "shared", "reserved while pods run", reserved)
	c.deleteJob(ns, "train", metav1.DeletePropagationForeground)
	c.waitForNoPods(ns, "train")
	c.waitForDeallocated(ns, "shared")

	c.controller.restart()
	c.startJob(ns, 2)
	c.deleteJob(ns, "train", metav1.DeletePropagationForeground)
	c.waitForDeallocated(ns, "shared")
	c.ExpectNoError(h.replay(0).err(), "invariants")
}

// testSchedulerGateOff: a claim that is reserved for a workload meets a scheduler
// without the feature. Pods which run are not affected, and further ones get
// listed because that scheduler knows no other way.
func testSchedulerGateOff(c *cluster) {
	ns, h := c.begin(1)
	c.startStatefulSet(ns, 2)
	c.withSchedulerGateOff(func() {
		c.scaleStatefulSet(ns, "db", "3")
		c.waitForRunning(ns, "db", 3)
	})
	c.ExpectNoError(c.Client().AppsV1().StatefulSets(ns).Delete(c, "db", metav1.DeleteOptions{}), "delete StatefulSet")
	c.waitForDeallocated(ns, "shared")
	c.check(h)
}
