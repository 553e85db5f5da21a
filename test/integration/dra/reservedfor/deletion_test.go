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

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ktesting "k8s.io/kubernetes/test/utils/client-go/ktesting"
	"k8s.io/utils/ptr"
)

// TestDeletion deletes claims, and whole namespaces, while what they are reserved
// for might still start pods or cannot be looked at. Nothing can be
// added to such a claim anymore: when no pod uses it, it must go and its device
// must be free. Otherwise any tenant could make devices disappear.
func TestDeletion(t *testing.T) {
	tCtx := ktesting.Init(t)
	c := startCluster(tCtx)
	for name, prepare := range map[string]func(c *cluster, ns string){
		"Unknown":          prepareUnknown,
		"Forbidden":        prepareForbidden,
		"ScaledToZero":     prepareScaledToZero,
		"Suspended":        prepareSuspended,
		"KindUninstalled":  prepareUninstalled,
		"PodStillRuns":     prepareRunning,
		"ReferenceIsWrong": prepareWrongReference,
	} {
		run(tCtx, name+"/Claim", func(tCtx ktesting.TContext) {
			parallel(tCtx)
			c := c.withTest(tCtx)
			ns, h := c.begin(1)
			prepare(c, ns)
			c.deleteClaims(ns)
			c.waitForGone(ns, "shared")
			c.expectFreeDevice(ns, ns)
			c.ExpectNoError(h.replay(bound).err(), "invariants")
		})
		run(tCtx, name+"/Namespace", func(tCtx ktesting.TContext) {
			parallel(tCtx)
			c := c.withTest(tCtx)
			ns, h := c.begin(1)
			prepare(c, ns)
			c.deleteNamespace(ns)
			c.expectFreeDevice(c.createNamespace(), ns)
			c.ExpectNoError(h.replay(bound).err(), "invariants")
		})
	}
	run(tCtx, "ForegroundOwnerForbidden", func(tCtx ktesting.TContext) {
		parallel(tCtx)
		testForegroundOwnerForbidden(c.withTest(tCtx))
	})
}

func (c *cluster) deleteClaims(ns string) {
	c.Helper()
	err := resourceClient(c.Client()).ResourceClaims(ns).DeleteCollection(c, metav1.DeleteOptions{}, metav1.ListOptions{})
	c.ExpectNoError(err, "delete claims")
	// Users do this when they see that nothing happens.
	for _, pod := range c.podsOf(ns, "user") {
		c.ExpectNoError(c.Client().CoreV1().Pods(ns).Delete(c, pod.Name, metav1.DeleteOptions{}), "delete pod")
	}
}

// waitForGone waits until a claim does not exist.
func (c *cluster) waitForGone(ns, name string) {
	c.Helper()
	eventually(c.TContext, func(tCtx ktesting.TContext) *resourceapi.ResourceClaim {
		claim, err := resourceClient(c.Client()).ResourceClaims(ns).Get(tCtx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		tCtx.ExpectNoError(err, "get claim")
		return claim
	}).WithTimeout(timeout).WithPolling(100*time.Millisecond).Should(gomega.BeNil(), "claim %s should be gone", name)
}

// deleteNamespace deletes everything in a namespace and waits until it is gone.
func (c *cluster) deleteNamespace(ns string) {
	c.Helper()
	c.ExpectNoError(c.Client().CoreV1().Namespaces().Delete(c, ns, metav1.DeleteOptions{}), "delete namespace")
	eventually(c.TContext, func(tCtx ktesting.TContext) *v1.Namespace {
		obj, err := c.Client().CoreV1().Namespaces().Get(tCtx, ns, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		tCtx.ExpectNoError(err, "get namespace")
		return obj
	}).WithTimeout(timeout).WithPolling(100*time.Millisecond).Should(gomega.BeNil(), "namespace %s should be gone", ns)
}

// expectFreeDevice runs a pod with a claim of its own for the only device of the class.
func (c *cluster) expectFreeDevice(ns, class string) {
	c.Helper()
	c.createNext(ns, class)
	c.waitForRunning(ns, "next", 1)
}

// createNext creates a pod that needs the device, with a claim of its own.
func (c *cluster) createNext(ns, class string) *v1.Pod {
	c.Helper()
	c.createClaim(newClaim(ns, "next", class, nil))
	pod := newPod(ns, "next", "next")
	pod.Labels = map[string]string{"app": "next"}
	return c.createPod(pod)
}

// startUser lets a pod without workload use the claim.
func (c *cluster) startUser(ns, name string) *v1.Pod {
	c.Helper()
	before := len(c.podsOf(ns, "user"))
	pod := newPod(ns, name, "shared")
	pod.Labels = map[string]string{"app": "user"}
	pod = c.createPod(pod)
	c.waitForRunning(ns, "user", before+1)
	return pod
}

// prepareUnknown reserves the claim for something that nobody knows. Who writes the
// UID does not have to prove anything.
func prepareUnknown(c *cluster, ns string) {
	c.Helper()
	unknowns := schema.GroupResource{Group: "example.com", Resource: "unknowns"}
	c.createClaim(newClaim(ns, "shared", ns, reservedFor(unknowns, "x", "y")))
	pod := c.startUser(ns, "user")
	c.waitForClaim(ns, "shared", "reserved for the unknown", reservedForOnly(unknowns, "x", "y"))
	c.forceDelete(pod)
	c.waitForNoPods(ns, "")
}

// startCustom creates a kind and an object of it whose pod runs. Nobody but the
// administrator may look at it.
func (c *cluster) startCustom(ns string) schema.GroupVersionResource {
	c.Helper()
	gvr, create := c.createKindIn(ns+".example.com", "Training")
	training := create(ns, "llm")
	c.createClaim(newClaim(ns, "shared", ns, reservedFor(gvr.GroupResource(), "llm", "")))
	c.createPodsOf(training, "shared", 1)
	c.waitForClaim(ns, "shared", "reserved for the custom resource", reservedForOnly(gvr.GroupResource(), "llm", training.GetUID()))
	return gvr
}

func prepareForbidden(c *cluster, ns string) {
	c.Helper()
	c.startCustom(ns)
	for _, pod := range c.podsOf(ns, "llm") {
		c.forceDelete(&pod)
	}
	c.waitForNoPods(ns, "")
}

func prepareUninstalled(c *cluster, ns string) {
	c.Helper()
	gvr := c.startCustom(ns)
	c.allowToLook(gvr)
	err := c.APIExtensions().ApiextensionsV1().CustomResourceDefinitions().Delete(c, gvr.GroupResource().String(), metav1.DeleteOptions{})
	c.ExpectNoError(err, "delete CustomResourceDefinition")
	for _, pod := range c.podsOf(ns, "llm") {
		c.forceDelete(&pod)
	}
	c.waitForNoPods(ns, "")
}

func prepareScaledToZero(c *cluster, ns string) {
	c.Helper()
	c.createClaim(newClaim(ns, "shared", ns, reservedFor(deployments, "serve", "")))
	_, err := c.Client().AppsV1().Deployments(ns).Create(c, newDeployment(ns, "serve", "shared", 2), metav1.CreateOptions{})
	c.ExpectNoError(err, "create Deployment")
	c.waitForRunning(ns, "serve", 2)
	c.scaleDeployment(ns, "serve", 0)
	c.waitForNoPods(ns, "")
}

func (c *cluster) scaleDeployment(ns, name string, replicas int) {
	c.Helper()
	_, err := c.Client().AppsV1().Deployments(ns).Patch(c, name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas), metav1.PatchOptions{})
	c.ExpectNoError(err, "scale Deployment")
}

func prepareSuspended(c *cluster, ns string) {
	c.Helper()
	c.createSharedClaim(ns)
	c.startJob(ns, 2)
	c.suspend(ns, "train")
}

// suspend suspends a Job, and waits until it has no pods anymore.
func (c *cluster) suspend(ns, name string) *batchv1.Job {
	c.Helper()
	job, err := c.Client().BatchV1().Jobs(ns).Patch(c, name, types.MergePatchType, []byte(`{"spec":{"suspend":true}}`), metav1.PatchOptions{})
	c.ExpectNoError(err, "suspend Job")
	c.waitForNoPods(ns, "")
	return job
}

// prepareRunning lets the pod, not the claim, be the last to go.
func prepareRunning(c *cluster, ns string) {
	c.Helper()
	c.createClaim(newClaim(ns, "shared", ns, reservedFor(deployments, "nobody", "y")))
	c.startUser(ns, "user")
}

// prepareWrongReference adds something to the list that nobody ever wanted there.
func prepareWrongReference(c *cluster, ns string) {
	c.Helper()
	c.createSharedClaim(ns)
	running, _ := c.startJob(ns, 1)
	claim := c.getClaim(ns, "shared")
	claim.Status.ReservedFor = append(claim.Status.ReservedFor, *reservedFor(schema.GroupResource{Group: "example.com", Resource: "unknowns"}, "x", "y"))
	_, err := resourceClient(c.Client()).ResourceClaims(ns).UpdateStatus(c, claim, metav1.UpdateOptions{})
	c.ExpectNoError(err, "add reference")
	c.finishAll(running)
}

// testForegroundOwnerForbidden deletes a custom resource in the foreground that owns
// its claim and that the controller may not look at. The owner waits for
// the claim, and the claim must not wait for the owner.
func testForegroundOwnerForbidden(c *cluster) {
	ns, h := c.begin(1)
	gvr, create := c.createKindIn(ns+".example.com", "Training")
	training := create(ns, "llm")
	claim := newClaim(ns, "shared", ns, reservedFor(gvr.GroupResource(), "llm", training.GetUID()))
	owner := metav1.NewControllerRef(training, training.GroupVersionKind())
	owner.BlockOwnerDeletion = ptr.To(true)
	claim.OwnerReferences = []metav1.OwnerReference{*owner}
	c.createClaim(claim)
	c.createPodsOf(training, "shared", 1)
	c.waitForClaim(ns, "shared", "reserved for the custom resource", reservedForOnly(gvr.GroupResource(), "llm", training.GetUID()))

	err := c.Dynamic().Resource(gvr).Namespace(ns).Delete(c, "llm", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)})
	c.ExpectNoError(err, "delete custom resource")
	c.waitForGone(ns, "shared")
	eventually(c.TContext, func(tCtx ktesting.TContext) bool {
		_, err := c.Dynamic().Resource(gvr).Namespace(ns).Get(tCtx, "llm", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}).WithTimeout(timeout).Should(gomega.BeTrueBecause("the owner should be gone"))
	c.expectFreeDevice(ns, ns)
	c.ExpectNoError(h.replay(bound).err(), "invariants")
}
