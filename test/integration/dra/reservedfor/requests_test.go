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
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/onsi/gomega"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	ktesting "k8s.io/kubernetes/test/utils/client-go/ktesting"
)

// TestRequests counts what the controller asks the API server, and lets it fail.
// The tests interfere with the controller, therefore they run one after the other.
func TestRequests(t *testing.T) {
	tCtx := ktesting.Init(t)
	c := startCluster(tCtx)
	for _, tc := range []struct {
		name string
		test func(c *cluster)
	}{
		{"ManyPods", testReleaseAmongManyPods},
		{"LookupFails", testLookupFails},
		{"BogusClaims", testBogusClaims},
	} {
		run(tCtx, tc.name, func(tCtx ktesting.TContext) {
			c := c.withTest(tCtx)
			tCtx.Cleanup(c.controller.faults.reset)
			tc.test(c)
		})
	}
}

// createMany calls the function for each number, several at a time.
func (c *cluster) createMany(count int, create func(i int) error) {
	c.Helper()
	var failed atomic.Pointer[error]
	workqueue.ParallelizeUntil(c, 16, count, func(i int) {
		if err := create(i); err != nil {
			failed.CompareAndSwap(nil, &err)
		}
	})
	if err := failed.Load(); err != nil {
		c.ExpectNoError(*err, "create objects")
	}
}

// testReleaseAmongManyPods finishes Jobs in a namespace where many other pods run.
// How many does not matter for the cost of a release.
func testReleaseAmongManyPods(c *cluster) {
	const others, releases = 600, 5
	// One list of pods for each of the two steps, whatever the number of pods. The controller may
	// share a list between claims.
	const maxRequests = 2 * releases
	ns, h := c.begin(releases)
	c.createMany(others, func(i int) error {
		pod := newPod(ns, fmt.Sprintf("other-%d", i), "none")
		pod.Spec.ResourceClaims, pod.Spec.Containers[0].Resources.Claims = nil, nil
		pod.Spec.NodeName = "worker-0"
		_, err := c.Client().CoreV1().Pods(ns).Create(c, pod, metav1.CreateOptions{})
		return err
	})
	var pods []v1.Pod
	for i := range releases {
		name := fmt.Sprintf("train-%d", i)
		c.createClaim(newClaim(ns, name, ns, reservedFor(jobs, name, "")))
		c.createJob(newJob(ns, name, name, 1))
		pods = append(pods, c.waitForRunning(ns, name, 1)...)
	}

	c.controller.faults.resetReads()
	c.finishAll(pods)
	for i := range releases {
		c.waitForDeallocated(ns, fmt.Sprintf("train-%d", i))
	}
	requests, bytes := c.controller.faults.countReads(func(url *url.URL) bool { return strings.HasSuffix(url.Path, "/pods") })
	c.Logf("%d releases among %d pods: %d lists of pods, %d bytes", releases, others, requests, bytes)
	if requests > maxRequests {
		c.Errorf("%d releases took %d lists of pods, expected at most %d", releases, requests, maxRequests)
	}
	c.check(h)
}

// testLookupFails makes it impossible to look up a workload. Pods that ended must not remain
// in the list because of that.
func testLookupFails(c *cluster) {
	ns, _ := c.begin(1)
	gvr, create := c.createKindIn(ns+".example.com", "Training")
	c.allow(gvr, readVerbs...)
	training := create(ns, "llm")
	var failing atomic.Bool
	failing.Store(true)
	c.controller.faults.setBefore(func(req *http.Request) error {
		if failing.Load() && strings.Contains(req.URL.Path+"/", "/trainings/") {
			return errInjected
		}
		return nil
	})
	ref := reservedFor(gvr.GroupResource(), "llm", training.GetUID())
	claim := c.createClaim(newClaim(ns, "shared", ns, ref))
	pod := c.createPod(newPod(ns, "ended", "none"))
	c.forceDelete(pod)
	c.allocate(claim, true, *ref, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
	reserved := reservedForOnly(gvr.GroupResource(), "llm", training.GetUID())
	c.waitForClaim(ns, "shared", "reserved only for the custom resource", reserved)
	c.consistently(ns, "shared", "reserved for what cannot be looked up", reserved)

	failing.Store(false)
	c.ExpectNoError(c.Dynamic().Resource(gvr).Namespace(ns).Delete(c, "llm", metav1.DeleteOptions{}), "delete custom resource")
	// The device does not exist, nobody else is waiting for it.
	c.waitForNotReserved(ns, "shared")
}

// waitForNotReserved waits until a claim that was allocated by hand is not reserved
// anymore. Nothing deallocates it: it has no finalizer.
func (c *cluster) waitForNotReserved(ns, name string) {
	c.Helper()
	c.waitForClaim(ns, name, "not reserved", func(claim *resourceapi.ResourceClaim) bool { return len(claim.Status.ReservedFor) == 0 })
}

// testBogusClaims creates many claims which are reserved for things that nobody
// knows, each of them different. Others must not have to wait for them, and finding out
// that there is no such thing must not cost a discovery of the whole API each time.
func testBogusClaims(c *cluster) {
	const bogus, maxDiscoveries = 300, 100
	attacker := c.createNamespace()
	ns, h := c.begin(1)
	gvr, create := c.createKindIn(ns+".example.com", "Training")
	c.allow(gvr, readVerbs...)
	training := create(ns, "llm")
	c.createClaim(newClaim(ns, "shared", ns, reservedFor(gvr.GroupResource(), "llm", "")))
	pods := c.createPodsOf(training, "shared", 1)
	c.waitForClaim(ns, "shared", "reserved for the custom resource", reservedForOnly(gvr.GroupResource(), "llm", training.GetUID()))

	c.controller.faults.resetReads()
	c.createMany(bogus, func(i int) error {
		ref := reservedFor(schema.GroupResource{Group: fmt.Sprintf("bogus-%d.example.com", i), Resource: "things"}, "x", "y")
		claims := resourceClient(c.Client()).ResourceClaims(attacker)
		claim, err := claims.Create(c, newClaim(attacker, fmt.Sprintf("bogus-%d", i), ns, ref), metav1.CreateOptions{})
		if err != nil {
			return err
		}
		claim.Status = *allocatedStatus(true, *ref)
		_, err = claims.UpdateStatus(c, claim, metav1.UpdateOptions{})
		return err
	})
	c.waitForWarnings(attacker, bogus/2)
	c.finishAll(pods)
	c.ExpectNoError(c.Dynamic().Resource(gvr).Namespace(ns).Delete(c, "llm", metav1.DeleteOptions{}), "delete custom resource")
	c.waitForDeallocated(ns, "shared")
	requests, _ := c.controller.faults.countReads(func(url *url.URL) bool {
		return url.Path == "/api" || url.Path == "/apis" || strings.Count(url.Path, "/") <= 3 && strings.HasPrefix(url.Path, "/apis/")
	})
	c.Logf("%d bogus claims: %d requests for discovery", bogus, requests)
	if requests > maxDiscoveries {
		c.Errorf("expected at most %d requests for discovery, got %d", maxDiscoveries, requests)
	}
	c.ExpectNoError(h.replay(0).err(), "invariants")
}

// waitForWarnings waits until there are warnings about so many different claims.
func (c *cluster) waitForWarnings(ns string, count int) {
	c.Helper()
	eventually(c.TContext, func(tCtx ktesting.TContext) int {
		events, err := c.Client().CoreV1().Events(ns).List(tCtx, metav1.ListOptions{FieldSelector: "type=Warning,involvedObject.kind=ResourceClaim"})
		tCtx.ExpectNoError(err, "list events")
		names := map[string]bool{}
		for _, event := range events.Items {
			names[event.InvolvedObject.Name] = true
		}
		return len(names)
	}).WithTimeout(timeout).Should(gomega.BeNumerically(">=", count), "claims with a warning")
}

// testOthersAreReleased lets looking up a workload in one namespace hang. Claims in other namespaces
// are released nevertheless.
func testOthersAreReleased(c *cluster) {
	ns, h := c.begin(1)
	slow := c.createNamespace()
	gvr, create := c.createKindIn(ns+".example.com", "Training")
	c.allow(gvr, readVerbs...)
	answer := make(chan struct{})
	defer close(answer)
	c.controller.faults.setBefore(func(req *http.Request) error {
		if strings.Contains(req.URL.Path+"/", "/"+slow+"/trainings/") {
			select {
			case <-answer:
			case <-req.Context().Done():
				return context.Cause(req.Context())
			}
		}
		return nil
	})
	for i := range 20 {
		name := fmt.Sprintf("slow-%d", i)
		training := create(slow, name)
		ref := reservedFor(gvr.GroupResource(), name, training.GetUID())
		c.allocate(c.createClaim(newClaim(slow, name, ns, ref)), true, *ref)
	}
	training := create(ns, "llm")
	c.createClaim(newClaim(ns, "shared", ns, reservedFor(gvr.GroupResource(), "llm", "")))
	pods := c.createPodsOf(training, "shared", 1)
	c.finishAll(pods)
	c.ExpectNoError(c.Dynamic().Resource(gvr).Namespace(ns).Delete(c, "llm", metav1.DeleteOptions{}), "delete custom resource")
	c.waitForDeallocated(ns, "shared")
	c.ExpectNoError(h.replay(0).err(), "invariants")
}
