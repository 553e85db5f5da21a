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
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ktesting "k8s.io/kubernetes/test/utils/client-go/ktesting"
	"k8s.io/utils/ptr"
)

// bound is the time within which a claim without user has to be deallocated. The real
// goal is ten seconds, but nothing should fail only because a machine is slow.
const bound = time.Minute

// TestLifecycle follows workloads of different kinds from the first pod until the
// devices are free for the next one.
func TestLifecycle(t *testing.T) {
	tCtx := ktesting.Init(t)
	c := startCluster(tCtx)
	for name, test := range map[string]func(c *cluster){
		"Job":                           testJob,
		"JobDeleted":                    testJobDeleted,
		"JobOwnsClaim":                  testJobOwnsClaim,
		"Deployment":                    testDeployment,
		"StatefulSet":                   testStatefulSet,
		"CustomResource":                testCustomResource,
		"CustomResourceNoPermission":    testCustomResourceNoPermission,
		"PodOfSomeoneElse":              testPodOfSomeoneElse,
		"PodWithNodeName":               testPodWithNodeName,
		"RemovedBySomeoneElse":          testRemovedBySomeoneElse,
		"PerPodWithoutTimestamp":        testPerPodWithoutTimestamp,
		"RecreatedUnderTheSameName":     testRecreated,
		"TerminatingPodsKeepTheDevices": testTerminatingPods,
	} {
		run(tCtx, name, func(tCtx ktesting.TContext) {
			parallel(tCtx)
			test(c.withTest(tCtx))
		})
	}
}

// testJob shares one claim between more pods than a list could have, without
// knowing the UID of the Job. The next Job of the same name gets the device after
// the first one is complete.
func testJob(c *cluster) {
	const pods = 300
	ns, h := c.begin(1)
	c.createSharedClaim(ns)
	running, _ := c.startJob(ns, pods)
	if size := len(c.getClaim(ns, "shared").String()); size > 4096 {
		c.Errorf("claim has grown: %d bytes", size)
	}
	h.waitFor(c.TContext, running[len(running)-1].UID)
	if writes := h.countWrites("shared"); writes > 3 {
		c.Errorf("expected at most three writes to the claim, got %d", writes)
	}

	c.finishAll(running)
	c.waitForDeallocated(ns, "shared")

	// Finished Jobs may stay, but the name is needed.
	c.deleteJob(ns, "train", metav1.DeletePropagationForeground)
	running, _ = c.startJob(ns, 3)
	c.finishAll(running)
	c.waitForDeallocated(ns, "shared")
	c.check(h)
}

// countWrites counts how often an object was changed after it was created.
func (h *history) countWrites(claim string) int {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	n := -1
	for _, r := range h.records {
		if obj, ok := r.obj.(*resourceapi.ResourceClaim); ok && obj.Name == claim {
			n++
		}
	}
	return n
}

// check replays what was observed.
func (c *cluster) check(h *history) invariants {
	c.Helper()
	result := h.replay(bound)
	c.ExpectNoError(result.err(), "invariants")
	c.Logf("%d allocations, %d releases, %d pods ran, at most %s until an unused claim was deallocated", result.allocations, result.releases, result.runs, result.slowest.Round(100*time.Millisecond))
	return result
}

func (c *cluster) deleteJob(ns, name string, propagation metav1.DeletionPropagation) {
	c.Helper()
	err := c.Client().BatchV1().Jobs(ns).Delete(c, name, metav1.DeleteOptions{PropagationPolicy: &propagation})
	c.ExpectNoError(err, "delete Job")
	eventually(c.TContext, func(tCtx ktesting.TContext) bool {
		_, err := c.Client().BatchV1().Jobs(ns).Get(tCtx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}).WithTimeout(timeout).Should(gomega.BeTrueBecause("Job %s should be gone", name))
}

// testJobDeleted deletes a Job while its pods run, with another one waiting for the
// only device.
func testJobDeleted(c *cluster) {
	ns, h := c.begin(1)
	c.createSharedClaim(ns)
	c.createClaim(newClaim(ns, "next", ns, reservedFor(jobs, "next", "")))
	c.createJob(newJob(ns, "train", "shared", 5))
	c.waitForRunning(ns, "train", 5)
	next := c.createJob(newJob(ns, "next", "next", 5))
	c.deleteJob(ns, "train", metav1.DeletePropagationBackground)
	c.waitForRunning(ns, "next", 5)
	c.waitForClaim(ns, "next", "reserved for the next Job", reservedForOnly(jobs, "next", next.UID))
	c.waitForDeallocated(ns, "shared")
	c.check(h)
}

// testJobOwnsClaim deletes a Job in the foreground which owns its claim. The
// Job waits for the claim, the claim for its deallocation, and that must not wait for the Job.
func testJobOwnsClaim(c *cluster) {
	ns, h := c.begin(1)
	owner := c.createJob(newJob(ns, "train", "shared", 3))
	claim := newClaim(ns, "shared", ns, reservedFor(jobs, "train", owner.UID))
	claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: ptr.To(true)}}
	c.createClaim(claim)
	c.waitForRunning(ns, "train", 3)
	c.waitForClaim(ns, "shared", "reserved for the Job", reservedForOnly(jobs, "train", owner.UID))
	c.deleteJob(ns, "train", metav1.DeletePropagationForeground)
	eventually(c.TContext, func(tCtx ktesting.TContext) bool {
		_, err := resourceClient(c.Client()).ResourceClaims(ns).Get(tCtx, "shared", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}).WithTimeout(timeout).Should(gomega.BeTrueBecause("the claim should be gone"))
	c.check(h)
}

// testDeployment scales a Deployment to zero and up again. The pods belong to it
// through a ReplicaSet. The devices remain its own until it gets deleted.
func testDeployment(c *cluster) {
	ns, h := c.begin(2)
	c.createClaim(newClaim(ns, "shared", ns, reservedFor(deployments, "serve", "")))
	deployment, err := c.Client().AppsV1().Deployments(ns).Create(c, newDeployment(ns, "serve", "shared", 4), metav1.CreateOptions{})
	c.ExpectNoError(err, "create Deployment")
	c.waitForRunning(ns, "serve", 4)
	reserved := reservedForOnly(deployments, "serve", deployment.UID)
	before := c.waitForClaim(ns, "shared", "reserved for the Deployment", reserved)

	scale := func(replicas int) {
		c.Helper()
		_, err := c.Client().AppsV1().Deployments(ns).Patch(c, "serve", types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas), metav1.PatchOptions{})
		c.ExpectNoError(err, "scale Deployment")
	}
	scale(0)
	c.waitForNoPods(ns, "serve")
	c.consistently(ns, "shared", "reserved while scaled to zero", reserved)
	scale(3)
	c.waitForRunning(ns, "serve", 3)
	c.Expect(c.getClaim(ns, "shared").Status).To(gomega.Equal(before.Status), "status after scaling up again")

	// A rollout replaces the ReplicaSet, not the Deployment.
	_, err = c.Client().AppsV1().Deployments(ns).Patch(c, "serve", types.MergePatchType, []byte(`{"spec":{"template":{"metadata":{"annotations":{"version":"2"}}}}}`), metav1.PatchOptions{})
	c.ExpectNoError(err, "change template")
	eventually(c.TContext, func(tCtx ktesting.TContext) int {
		n := 0
		for _, pod := range c.podsOf(ns, "serve") {
			if pod.Annotations["version"] == "2" && pod.Status.Phase == v1.PodRunning {
				n++
			}
		}
		return n
	}).WithTimeout(timeout).Should(gomega.Equal(3), "number of new pods")
	c.Expect(c.getClaim(ns, "shared").Status).To(gomega.Equal(before.Status), "status after rollout")

	c.ExpectNoError(c.Client().AppsV1().Deployments(ns).Delete(c, "serve", metav1.DeleteOptions{}), "delete Deployment")
	c.waitForDeallocated(ns, "shared")
	c.check(h)
}

// testStatefulSet names the UID of a StatefulSet and orphans its pods: they keep
// the devices until the last one is gone, also if it is removed by force.
func testStatefulSet(c *cluster) {
	ns, h := c.begin(1)
	set, err := c.Client().AppsV1().StatefulSets(ns).Create(c, newStatefulSet(ns, "db", "shared", 3), metav1.CreateOptions{})
	c.ExpectNoError(err, "create StatefulSet")
	c.createClaim(newClaim(ns, "shared", ns, reservedFor(statefulsets, "db", set.UID)))
	pods := c.waitForRunning(ns, "db", 3)
	reserved := reservedForOnly(statefulsets, "db", set.UID)
	c.waitForClaim(ns, "shared", "reserved for the StatefulSet", reserved)

	err = c.Client().AppsV1().StatefulSets(ns).Delete(c, "db", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationOrphan)})
	c.ExpectNoError(err, "delete StatefulSet")
	c.consistently(ns, "shared", "reserved for orphaned pods", reserved)
	c.agent.finish(&pods[0], v1.PodFailed)
	c.forceDelete(&pods[1])
	c.consistently(ns, "shared", "reserved for the last orphaned pod", reserved)
	c.forceDelete(&pods[2])
	c.waitForDeallocated(ns, "shared")
	c.check(h)
}

// createKind defines a kind of custom resources and returns a function which creates one.
func (c *cluster) createKind(kind string) (schema.GroupVersionResource, func(ns, name string) *unstructured.Unstructured) {
	c.Helper()
	return c.createKindIn("training.example.com", kind)
}

// createKindIn does the same for another API group.
func (c *cluster) createKindIn(group, kind string) (schema.GroupVersionResource, func(ns, name string) *unstructured.Unstructured) {
	c.Helper()
	gvr := schema.GroupVersionResource{Group: group, Version: "v1", Resource: strings.ToLower(kind) + "s"}
	_, err := c.APIExtensions().ApiextensionsV1().CustomResourceDefinitions().Create(c, &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: gvr.Resource + "." + gvr.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: gvr.Group,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: gvr.Resource, Singular: strings.ToLower(kind), Kind: kind, ListKind: kind + "List"},
			Scope: apiextensionsv1.NamespaceScoped,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: gvr.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}},
			}},
		},
	}, metav1.CreateOptions{})
	c.ExpectNoError(err, "create CustomResourceDefinition")
	return gvr, func(ns, name string) *unstructured.Unstructured {
		var obj *unstructured.Unstructured
		eventually(c.TContext, func(tCtx ktesting.TContext) error {
			var err error
			obj, err = c.Dynamic().Resource(gvr).Namespace(ns).Create(tCtx, &unstructured.Unstructured{Object: object{
				"apiVersion": gvr.GroupVersion().String(), "kind": kind, "metadata": object{"name": name},
			}}, metav1.CreateOptions{})
			return err
		}).WithTimeout(timeout).Should(gomega.Succeed(), "create %s", kind)
		return obj
	}
}

// createPodsOf creates the pods of a custom resource as its controller would, and waits until
// they run.
func (c *cluster) createPodsOf(owner *unstructured.Unstructured, claim string, count int) []v1.Pod {
	c.Helper()
	c.newPodsOf(owner, claim, count)
	return c.waitForRunning(owner.GetNamespace(), owner.GetName(), count)
}

// newPodsOf only creates them.
func (c *cluster) newPodsOf(owner *unstructured.Unstructured, claim string, count int) []*v1.Pod {
	c.Helper()
	var pods []*v1.Pod
	for i := range count {
		pod := newPod(owner.GetNamespace(), fmt.Sprintf("%s-%d", owner.GetName(), i), claim)
		pod.Labels = map[string]string{"app": owner.GetName()}
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GroupVersionKind())}
		pods = append(pods, c.createPod(pod))
	}
	return pods
}

// allowToLook gives the controller permission to get objects of some kind, in the
// way in which the author of a custom resource would.
func (c *cluster) allowToLook(gvr schema.GroupVersionResource) {
	c.Helper()
	c.allow(gvr, "get")
}

// allow gives the controller and the scheduler permissions for objects of some kind.
func (c *cluster) allow(gvr schema.GroupVersionResource, verbs ...string) {
	c.Helper()
	_, err := c.Client().RbacV1().ClusterRoles().Create(c, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{
			Name:   "look-at-" + gvr.GroupResource().String(),
			Labels: map[string]string{"rbac.authorization.k8s.io/aggregate-to-resourceclaim-controller": "true"},
		},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{gvr.Group}, Resources: []string{gvr.Resource}, Verbs: verbs}},
	}, metav1.CreateOptions{})
	c.ExpectNoError(err, "create ClusterRole")
}

func testCustomResource(c *cluster) {
	ns, h := c.begin(1)
	gvr, create := c.createKind("Training")
	c.allowToLook(gvr)
	training := create(ns, "llm")
	c.createClaim(newClaim(ns, "shared", ns, reservedFor(gvr.GroupResource(), "llm", "")))
	pods := c.createPodsOf(training, "shared", 5)
	reserved := reservedForOnly(gvr.GroupResource(), "llm", training.GetUID())
	c.waitForClaim(ns, "shared", "reserved for the custom resource", reserved)

	// Without pods, but it might start some.
	c.finishAll(pods)
	// Not using the checker for this: it does not know this kind.
	c.consistently(ns, "shared", "reserved for a custom resource without pods", reserved)
	c.ExpectNoError(c.Dynamic().Resource(gvr).Namespace(ns).Delete(c, "llm", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}), "delete custom resource")
	c.waitForDeallocated(ns, "shared")
	c.ExpectNoError(h.replay(0).err(), "invariants")
}

// testCustomResourceNoPermission does not allow the controller to look at the custom
// resource. Devices must not be freed on a guess, and an administrator must be able
// to find out what to do.
func testCustomResourceNoPermission(c *cluster) {
	ns := c.createNamespace()
	c.createDevices(ns, 1)
	gvr, create := c.createKind("Simulation")
	simulation := create(ns, "weather")
	c.createClaim(newClaim(ns, "shared", ns, reservedFor(gvr.GroupResource(), "weather", "")))
	pods := c.createPodsOf(simulation, "shared", 2)
	reserved := reservedForOnly(gvr.GroupResource(), "weather", simulation.GetUID())
	c.waitForClaim(ns, "shared", "reserved for the custom resource", reserved)
	c.ExpectNoError(c.Dynamic().Resource(gvr).Namespace(ns).Delete(c, "weather", metav1.DeleteOptions{}), "delete custom resource")
	for i := range pods {
		c.forceDelete(&pods[i])
	}
	c.waitForNoPods(ns, "weather")

	eventually(c.TContext, func(tCtx ktesting.TContext) []v1.Event {
		events, err := c.Client().CoreV1().Events(ns).List(tCtx, metav1.ListOptions{FieldSelector: "involvedObject.kind=ResourceClaim,involvedObject.name=shared,type=Warning"})
		tCtx.ExpectNoError(err, "list events")
		return events.Items
	}).WithTimeout(timeout).Should(gomega.ContainElement(gomega.HaveField("Message", gomega.And(
		gomega.ContainSubstring(gvr.GroupResource().String()), gomega.ContainSubstring("weather"), gomega.ContainSubstring("not allowed"),
	))), "event that explains why the claim is not released")
	c.consistently(ns, "shared", "reserved", reserved)

	c.allowToLook(gvr)
	c.waitForDeallocated(ns, "shared")
}

// testPodOfSomeoneElse lets a pod wait which does not belong to the workload until
// the claim is reserved.
func testPodOfSomeoneElse(c *cluster) {
	ns, h := c.begin(1)
	c.createSharedClaim(ns)
	monitor := c.createPod(newPod(ns, "monitor", "shared"))
	c.waitForUnschedulable(monitor, "train")
	c.Expect(c.getClaim(ns, "shared").Status).To(gomega.Equal(resourceapi.ResourceClaimStatus{}), "status")

	job := c.createJob(newJob(ns, "train", "shared", 2))
	running := c.waitForRunning(ns, "train", 2)
	c.waitForRunning(ns, "", 3)
	reserved := reservedForOnly(jobs, "train", job.UID)
	c.waitForClaim(ns, "shared", "reserved for the Job", reserved)

	// It also keeps the devices for as long as it runs.
	c.finishAll(running)
	c.consistently(ns, "shared", "reserved while a pod runs", reserved)
	c.agent.finish(monitor, v1.PodSucceeded)
	c.waitForDeallocated(ns, "shared")
	c.check(h)
}

// testPodWithNodeName bypasses the scheduler. Then the controller reserves.
func testPodWithNodeName(c *cluster) {
	ns, h := c.begin(2)
	c.createSharedClaim(ns)
	running, reserved := c.startJob(ns, 1)

	pod := newPod(ns, "static", "shared")
	pod.Spec.NodeName = "worker-1"
	pod = c.createPod(pod)
	c.waitForRunning(ns, "", 2)
	c.consistently(ns, "shared", "reserved only for the Job", reserved)

	// A claim that was allocated per pod gets the pod as another entry.
	c.createClaim(newClaim(ns, "per-pod", ns, nil))
	c.createPod(newPod(ns, "first", "per-pod"))
	c.waitForRunning(ns, "", 3)
	second := newPod(ns, "second", "per-pod")
	second.Spec.NodeName = "worker-1"
	c.createPod(second)
	c.waitForRunning(ns, "", 4)
	c.waitForClaim(ns, "per-pod", "reserved for two pods", func(claim *resourceapi.ResourceClaim) bool {
		return claim.Status.Allocation != nil && claim.Status.Allocation.ReservedForAnyPod == nil && len(claim.Status.ReservedFor) == 2
	})

	c.agent.finish(&running[0], v1.PodSucceeded)
	c.agent.finish(pod, v1.PodSucceeded)
	c.waitForDeallocated(ns, "shared")
	c.check(h)
}

// testRemovedBySomeoneElse removes the reference as an external workload controller
// would: once while pods run, once when they are done.
func testRemovedBySomeoneElse(c *cluster) {
	ns, h := c.begin(1)
	set, err := c.Client().AppsV1().StatefulSets(ns).Create(c, newStatefulSet(ns, "db", "shared", 2), metav1.CreateOptions{})
	c.ExpectNoError(err, "create StatefulSet")
	c.createClaim(newClaim(ns, "shared", ns, reservedFor(statefulsets, "db", "")))
	c.waitForRunning(ns, "db", 2)
	reserved := reservedForOnly(statefulsets, "db", set.UID)
	c.waitForClaim(ns, "shared", "reserved for the StatefulSet", reserved)
	release := func() {
		c.Helper()
		claim, err := resourceClient(c.Client()).ResourceClaims(ns).Patch(c, "shared", types.MergePatchType, []byte(`{"status":{"reservedFor":null}}`), metav1.PatchOptions{}, "status")
		c.ExpectNoError(err, "remove reference")
		h.excuse(claim)
	}
	release()
	c.waitForClaim(ns, "shared", "reserved again", reserved)

	_, err = c.Client().AppsV1().StatefulSets(ns).Patch(c, "db", types.MergePatchType, []byte(`{"spec":{"replicas":0}}`), metav1.PatchOptions{})
	c.ExpectNoError(err, "scale StatefulSet")
	c.waitForNoPods(ns, "db")
	release()
	c.waitForDeallocated(ns, "shared")
	c.ExpectNoError(h.replay(bound).err(), "invariants")
}

// testListFull checks that a pod which does not fit into the list of a claim
// waits without burning anything, and learns what would help.
func testListFull(c *cluster) {
	ns := c.createNamespace()
	c.createDevices(ns, 1)
	c.createClaim(newClaim(ns, "full", ns, nil))
	c.createJob(newJob(ns, "many", "full", resourceapi.ResourceClaimReservedForMaxSize))
	c.waitForRunning(ns, "many", resourceapi.ResourceClaimReservedForMaxSize)
	claim := c.waitForClaim(ns, "full", "full", func(claim *resourceapi.ResourceClaim) bool {
		return len(claim.Status.ReservedFor) == resourceapi.ResourceClaimReservedForMaxSize
	})

	pod := c.createPod(newPod(ns, "one-more", "full"))
	c.waitForUnschedulable(pod, "spec.reservedFor")
	attempts := func() int {
		events, err := c.Client().EventsV1().Events(ns).List(c, metav1.ListOptions{FieldSelector: "regarding.name=one-more,reason=FailedScheduling"})
		c.ExpectNoError(err, "list events")
		n := len(events.Items)
		for _, event := range events.Items {
			if event.Series != nil {
				n += int(event.Series.Count)
			}
		}
		return n
	}
	// What happened before may make the scheduler try again, and events come some time
	// after that, on a busy machine much later. It has to come to rest, for longer than
	// the scheduler ever waits before it tries again (ten seconds).
	eventually(c.TContext, func(ktesting.TContext) error {
		before := attempts()
		if before == 0 {
			return errors.New("no event about the pod")
		}
		for range 2 {
			c.consistently(ns, "full", "unchanged", func(now *resourceapi.ResourceClaim) bool { return now.ResourceVersion == claim.ResourceVersion })
		}
		if now := attempts(); now != before {
			return fmt.Errorf("%d events, then %d", before, now)
		}
		return nil
	}).WithTimeout(timeout).Should(gomega.Succeed(), "the pod should not be tried again while nothing changes")

	// The next change makes room.
	first := c.podsOf(ns, "many")[0]
	c.agent.finish(&first, v1.PodSucceeded)
	eventually(c.TContext, func(tCtx ktesting.TContext) v1.PodPhase {
		return c.getPod(pod).Status.Phase
	}).WithTimeout(timeout).Should(gomega.Equal(v1.PodRunning), "pod that did not fit before")
}

// testPerPodWithoutTimestamp uses a claim that was allocated by an older
// release.
func testPerPodWithoutTimestamp(c *cluster) {
	ns := c.createNamespace()
	claim := c.createClaim(newClaim(ns, "old", ns, nil))
	claim = c.allocate(claim, false)
	if hasTimestamp(claim.Status.Allocation) {
		c.Fatal("the claim was supposed to have no timestamp")
	}
	c.createPod(newPod(ns, "a", "old"))
	c.waitForRunning(ns, "", 1)
}

// testRecreated deletes a StatefulSet and creates another one of the same name. The
// claim was meant for the first one.
func testRecreated(c *cluster) {
	ns, h := c.begin(1)
	set, err := c.Client().AppsV1().StatefulSets(ns).Create(c, newStatefulSet(ns, "db", "shared", 2), metav1.CreateOptions{})
	c.ExpectNoError(err, "create StatefulSet")
	c.createClaim(newClaim(ns, "shared", ns, reservedFor(statefulsets, "db", set.UID)))
	c.waitForRunning(ns, "db", 2)
	c.waitForClaim(ns, "shared", "reserved for the StatefulSet", reservedForOnly(statefulsets, "db", set.UID))
	c.ExpectNoError(c.Client().AppsV1().StatefulSets(ns).Delete(c, "db", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}))
	eventually(c.TContext, func(tCtx ktesting.TContext) error {
		_, err := c.Client().AppsV1().StatefulSets(ns).Create(tCtx, newStatefulSet(ns, "db", "shared", 0), metav1.CreateOptions{})
		return err
	}).WithTimeout(timeout).Should(gomega.Succeed(), "recreate StatefulSet")
	c.waitForDeallocated(ns, "shared")
	c.check(h)
}

// testTerminatingPods deletes a Job whose pods take their time.
func testTerminatingPods(c *cluster) {
	ns, h := c.begin(1)
	c.createSharedClaim(ns)
	running, reserved := c.startJob(ns, 2)
	for i := range running {
		c.agent.hold(&running[i])
	}
	c.deleteJob(ns, "train", metav1.DeletePropagationBackground)
	c.consistently(ns, "shared", "reserved while pods terminate", reserved)
	c.agent.release(&running[0])
	c.agent.release(&running[1])
	c.waitForDeallocated(ns, "shared")
	c.check(h)
}
