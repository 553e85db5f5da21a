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
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ktesting "k8s.io/kubernetes/test/utils/client-go/ktesting"
)

// releaseWhenIdle is the annotation of claims that are released although their
// workload might start more pods.
const releaseWhenIdle = "resource.kubernetes.io/release-when-idle"

// TestFinished is about workloads that keep their claims although they do not need them, and
// exist: finished custom resources, suspended Jobs, what is scaled to zero.
func TestFinished(t *testing.T) {
	tCtx := ktesting.Init(t)
	c := startCluster(tCtx)
	for _, condition := range []string{"Complete", "Completed", "Succeeded", "Failed"} {
		run(tCtx, "CustomResource"+condition, func(tCtx ktesting.TContext) {
			parallel(tCtx)
			testFinishedCustomResource(c.withTest(tCtx), condition)
		})
	}
	for name, test := range map[string]func(c *cluster){
		"CustomResourceNotFinished": testCustomResourceNotFinished,
		"IdleDeployment":            testIdleDeployment,
		"IdleJob":                   testIdleJob,
		"IdleJobOfClass":            testIdleJobOfClass,
	} {
		run(tCtx, name, func(tCtx ktesting.TContext) {
			parallel(tCtx)
			test(c.withTest(tCtx))
		})
	}
}

// startConditions creates a custom resource whose pod ends after the object got its conditions.
func (c *cluster) startConditions(ns, conditions string) func(*resourceapi.ResourceClaim) bool {
	c.Helper()
	gvr, create := c.createKindIn(ns+".example.com", "Training")
	c.allow(gvr, readVerbs...)
	training := create(ns, "llm")
	c.createClaim(newClaim(ns, "shared", ns, reservedFor(gvr.GroupResource(), "llm", "")))
	pods := c.createPodsOf(training, "shared", 2)
	reserved := reservedForOnly(gvr.GroupResource(), "llm", training.GetUID())
	c.waitForClaim(ns, "shared", "reserved for the custom resource", reserved)
	_, err := c.Dynamic().Resource(gvr).Namespace(ns).Patch(c, "llm", types.MergePatchType, []byte(`{"status":{"conditions":`+conditions+`}}`), metav1.PatchOptions{})
	c.ExpectNoError(err, "set conditions")
	c.finishAll(pods)
	return reserved
}

func testFinishedCustomResource(c *cluster, condition string) {
	ns, h := c.begin(1)
	c.startConditions(ns, `[{"type":"Ready","status":"False"},{"type":"`+condition+`","status":"True"}]`)
	c.waitForDeallocated(ns, "shared")
	c.ExpectNoError(h.replay(0).err(), "invariants")
}

func testCustomResourceNotFinished(c *cluster) {
	ns, _ := c.begin(1)
	reserved := c.startConditions(ns, `[{"type":"Complete","status":"False"},{"type":"Failed","status":"Unknown"},{"type":"Running","status":"True"},"nonsense"]`)
	// Nothing tells the controller that the object changed, so it has to look a few times.
	for range 3 {
		c.consistently(ns, "shared", "reserved for a custom resource that is not finished", reserved)
	}
}

// createIdleClaim creates a claim that is released when no pod has used it for some time.
func (c *cluster) createIdleClaim(ns string, ref *resourceapi.ResourceClaimConsumerReference) {
	c.Helper()
	claim := newClaim(ns, "shared", ns, ref)
	claim.Annotations = map[string]string{releaseWhenIdle: "10s"}
	c.createClaim(claim)
}

// testIdleDeployment scales a Deployment to zero. Somebody else gets the device, and then it gets it back.
func testIdleDeployment(c *cluster) {
	ns, h := c.begin(1)
	c.createIdleClaim(ns, reservedFor(deployments, "serve", ""))
	deployment := c.createDeployment(ns, newDeployment(ns, "serve", "shared", 2))
	c.waitForRunning(ns, "serve", 2)
	reserved := reservedForOnly(deployments, "serve", deployment.UID)
	c.waitForClaim(ns, "shared", "reserved for the Deployment", reserved)
	// It is used, so it is not idle, for however long.
	for range 2 {
		c.consistently(ns, "shared", "reserved while pods run", reserved)
	}
	c.scaleDeployment(ns, "serve", 0)
	c.waitForDeallocated(ns, "shared")
	c.expectFreeDevice(ns, ns)

	c.scaleDeployment(ns, "serve", 2)
	next := c.podsOf(ns, "next")
	c.agent.finish(&next[0], v1.PodSucceeded)
	c.waitForRunning(ns, "serve", 2)
	c.waitForClaim(ns, "shared", "reserved for the Deployment again", reserved)
	c.check(h)
}

// testIdleJobOfClass is about an administrator who decides for all claims of a DeviceClass. The pod that
// waits for the device says which claim holds it.
func testIdleJobOfClass(c *cluster) {
	ns, h := c.begin(1)
	c.createSharedClaim(ns)
	_, reserved := c.startJob(ns, 2)
	c.suspend(ns, "train")
	c.consistently(ns, "shared", "reserved for a Job that is suspended", reserved)
	c.waitForUnschedulable(c.createNext(ns, ns), `shared for jobs.batch "train", not used since`)

	// The claim's class has the name of the namespace.
	annotate := func(value string) error {
		_, err := c.Dynamic().Resource(resourceapi.SchemeGroupVersion.WithResource("deviceclasses")).Patch(c, ns, types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"`+releaseWhenIdle+`":"`+value+`"}}}`), metav1.PatchOptions{})
		return err
	}
	if err := annotate("soon"); !apierrors.IsInvalid(err) {
		c.Errorf("annotation without a duration: %v", err)
	}
	h.releasesIdle()
	c.ExpectNoError(annotate("10s"), "annotate DeviceClass")
	c.waitForDeallocated(ns, "shared")
	c.waitForRunning(ns, "next", 1)
	c.check(h)
}

// testIdleJob suspends a Job, as a queueing system does that preempts it.
func testIdleJob(c *cluster) {
	ns, h := c.begin(1)
	c.createIdleClaim(ns, reservedFor(jobs, "train", ""))
	_, reserved := c.startJob(ns, 2)
	c.suspend(ns, "train")
	c.waitForDeallocated(ns, "shared")
	_, err := c.Client().BatchV1().Jobs(ns).Patch(c, "train", types.MergePatchType, []byte(`{"spec":{"suspend":false}}`), metav1.PatchOptions{})
	c.ExpectNoError(err, "resume Job")
	running := c.waitForRunning(ns, "train", 2)
	c.waitForClaim(ns, "shared", "reserved for the Job again", reserved)
	c.finishAll(running)
	c.waitForDeallocated(ns, "shared")
	c.check(h)
}
