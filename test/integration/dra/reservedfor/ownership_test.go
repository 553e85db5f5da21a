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
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onsi/gomega"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	ktesting "k8s.io/kubernetes/test/utils/client-go/ktesting"
	"k8s.io/utils/ptr"
)

// wakeTimeout is less than the five minutes after which the scheduler tries again
// whatever happened: a pod that only runs because of that was not woken up.
const wakeTimeout = 4 * time.Minute

// TestOwnership is about which workload a pod belongs to: workloads that come back under
// the same name, chains of owners, owners that are found later, and owners that
// somebody made up.
func TestOwnership(t *testing.T) {
	tCtx := ktesting.Init(t)
	c := startCluster(tCtx)
	for name, test := range map[string]func(c *cluster){
		"RecreatedWhilePodsTerminate": testRecreatedWhilePodsTerminate,
		"RecreatedAndAdopted":         testRecreatedAndAdopted,
		"RecreatedWithNodeName":       testRecreatedWithNodeName,
		"ForgedInOtherNamespace":      testForgedInOtherNamespace,
		"ForgedFillList":              testForgedFillList,
		"EntryOfSomeoneElse":          testEntryOfSomeoneElse,
		"AdoptedPod":                  testAdoptedPod,
		"AdoptedReplicaSet":           testAdoptedReplicaSet,
		"ChainLeaderWorkerSet":        testChainLeaderWorkerSet,
		"ChainJobSet":                 testChainJobSet,
		"ChainRayJob":                 testChainRayJob,
	} {
		run(tCtx, name, func(tCtx ktesting.TContext) {
			parallel(tCtx)
			test(c.withTest(tCtx))
		})
	}
}

// TestSlowLookups makes looking up owners slow or impossible. The tests interfere with
// the components, therefore they run one after the other.
func TestSlowLookups(t *testing.T) {
	tCtx := ktesting.Init(t)
	c := startCluster(tCtx)
	for _, tc := range []struct {
		name string
		test func(c *cluster)
	}{
		{"OthersAreScheduled", testOthersAreScheduled},
		{"OthersAreReleased", testOthersAreReleased},
	} {
		run(tCtx, tc.name, func(tCtx ktesting.TContext) {
			c := c.withTest(tCtx)
			tCtx.Cleanup(c.scheduler.faults.reset)
			tCtx.Cleanup(c.controller.faults.reset)
			tc.test(c)
		})
	}
}

// lists returns a condition for a claim that is allocated and whose list has the object.
func lists(gr schema.GroupResource, name string, uid types.UID) func(claim *resourceapi.ResourceClaim) bool {
	return func(claim *resourceapi.ResourceClaim) bool {
		if claim.Status.Allocation == nil {
			return false
		}
		for _, ref := range claim.Status.ReservedFor {
			if ref == *reservedFor(gr, name, uid) {
				return true
			}
		}
		return false
	}
}

func (c *cluster) createDeployment(ns string, deployment *appsv1.Deployment) *appsv1.Deployment {
	c.Helper()
	eventually(c.TContext, func(tCtx ktesting.TContext) error {
		created, err := c.Client().AppsV1().Deployments(ns).Create(tCtx, deployment, metav1.CreateOptions{})
		if err == nil {
			deployment = created
		}
		return err
	}).WithTimeout(timeout).Should(gomega.Succeed(), "create Deployment")
	return deployment
}

// testRecreatedWhilePodsTerminate deletes a Deployment and creates it again while the pods of
// the old one take their time. The claim is allocated and listed all the
// time, and in the end it must be listed for the one that lives.
func testRecreatedWhilePodsTerminate(c *cluster) {
	ns, h := c.begin(1)
	c.createClaim(newClaim(ns, "shared", ns, reservedFor(deployments, "serve", "")))
	old := c.createDeployment(ns, newDeployment(ns, "serve", "shared", 2))
	pods := c.waitForRunning(ns, "serve", 2)
	c.waitForClaim(ns, "shared", "reserved for the first", reservedForOnly(deployments, "serve", old.UID))
	for i := range pods {
		c.agent.hold(&pods[i])
	}
	c.ExpectNoError(c.Client().AppsV1().Deployments(ns).Delete(c, "serve", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}), "delete Deployment")
	deployment := c.createDeployment(ns, newDeployment(ns, "serve", "shared", 3))
	c.waitForRunning(ns, "serve", 3)
	c.waitForClaim(ns, "shared", "reserved for the second while pods of the first terminate", lists(deployments, "serve", deployment.UID))
	for i := range pods {
		c.agent.release(&pods[i])
	}
	c.waitForClaim(ns, "shared", "reserved for the second", reservedForOnly(deployments, "serve", deployment.UID))
	c.scaleToZeroAndBack(ns, deployment)

	c.ExpectNoError(c.Client().AppsV1().Deployments(ns).Delete(c, "serve", metav1.DeleteOptions{}), "delete Deployment")
	c.waitForDeallocated(ns, "shared")
	c.check(h)
}

// scaleToZeroAndBack checks that the Deployment keeps its devices.
func (c *cluster) scaleToZeroAndBack(ns string, deployment *appsv1.Deployment) {
	c.Helper()
	c.scaleDeployment(ns, deployment.Name, 0)
	c.waitForNoPods(ns, deployment.Name)
	c.consistently(ns, "shared", "reserved while scaled to zero", reservedForOnly(deployments, deployment.Name, deployment.UID))
	c.scaleDeployment(ns, deployment.Name, 1)
	c.waitForRunning(ns, deployment.Name, 1)
}

// testRecreatedAndAdopted deletes a Deployment, but not what belongs to it, and creates it
// again. The new one adopts the ReplicaSet with the pods, so not a single pod gets
// scheduled for it before it is scaled to zero.
func testRecreatedAndAdopted(c *cluster) {
	ns, h := c.begin(1)
	c.createClaim(newClaim(ns, "shared", ns, reservedFor(deployments, "serve", "")))
	old := c.createDeployment(ns, newDeployment(ns, "serve", "shared", 2))
	c.waitForRunning(ns, "serve", 2)
	c.waitForClaim(ns, "shared", "reserved for the first", reservedForOnly(deployments, "serve", old.UID))
	c.ExpectNoError(c.Client().AppsV1().Deployments(ns).Delete(c, "serve", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationOrphan)}), "delete Deployment")
	deployment := c.createDeployment(ns, newDeployment(ns, "serve", "shared", 2))
	c.waitForAdopted(ns, deployment)
	c.waitForRunning(ns, "serve", 2)
	c.waitForClaim(ns, "shared", "reserved for the second", reservedForOnly(deployments, "serve", deployment.UID))
	c.scaleToZeroAndBack(ns, deployment)
	c.check(h)
}

// waitForAdopted waits until all ReplicaSets belong to the Deployment.
func (c *cluster) waitForAdopted(ns string, deployment *appsv1.Deployment) {
	c.Helper()
	eventually(c.TContext, func(tCtx ktesting.TContext) bool {
		replicaSets, err := c.Client().AppsV1().ReplicaSets(ns).List(tCtx, metav1.ListOptions{})
		tCtx.ExpectNoError(err, "list ReplicaSets")
		for i := range replicaSets.Items {
			if !metav1.IsControlledBy(&replicaSets.Items[i], deployment) {
				return false
			}
		}
		return len(replicaSets.Items) > 0
	}).WithTimeout(timeout).Should(gomega.BeTrueBecause("the ReplicaSet should be adopted"))
}

// testRecreatedWithNodeName does the same with pods that bypass the scheduler.
func testRecreatedWithNodeName(c *cluster) {
	ns, h := c.begin(1)
	c.createClaim(newClaim(ns, "shared", ns, reservedFor(deployments, "serve", "")))
	old := c.createDeployment(ns, newDeployment(ns, "serve", "shared", 1))
	pods := c.waitForRunning(ns, "serve", 1)
	c.waitForClaim(ns, "shared", "reserved for the first", reservedForOnly(deployments, "serve", old.UID))
	c.agent.hold(&pods[0])
	c.ExpectNoError(c.Client().AppsV1().Deployments(ns).Delete(c, "serve", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}), "delete Deployment")
	recreated := newDeployment(ns, "serve", "shared", 2)
	recreated.Spec.Template.Spec.NodeName = "worker-1"
	deployment := c.createDeployment(ns, recreated)
	c.waitForRunning(ns, "serve", 2)
	c.waitForClaim(ns, "shared", "reserved for the second while a pod of the first terminates", lists(deployments, "serve", deployment.UID))
	c.agent.release(&pods[0])
	c.waitForClaim(ns, "shared", "reserved for the second", reservedForOnly(deployments, "serve", deployment.UID))
	c.scaleToZeroAndBack(ns, deployment)
	c.check(h)
}

// forgedPod is a pod that claims to be controlled by something.
func forgedPod(ns, name, claim string, owner metav1.OwnerReference) *v1.Pod {
	pod := newPod(ns, name, claim)
	pod.Labels = map[string]string{"app": "forged"}
	owner.Controller = ptr.To(true)
	pod.OwnerReferences = []metav1.OwnerReference{owner}
	return pod
}

// testForgedInOtherNamespace lets somebody in another namespace say again and again that
// his pods are controlled by the ReplicaSet of the victim. The victim must not notice.
func testForgedInOtherNamespace(c *cluster) {
	ns, h := c.begin(1)
	attacker := c.createNamespace()
	c.createClaim(newClaim(ns, "shared", ns, reservedFor(deployments, "serve", "")))
	c.createClaim(newClaim(attacker, "shared", ns, reservedFor(deployments, "serve", "")))
	deployment := c.createDeployment(ns, newDeployment(ns, "serve", "shared", 0))
	c.waitForAdopted(ns, deployment)
	replicaSets, err := c.Client().AppsV1().ReplicaSets(ns).List(c, metav1.ListOptions{})
	c.ExpectNoError(err, "list ReplicaSets")
	owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: replicaSets.Items[0].Name, UID: replicaSets.Items[0].UID}

	ctx, cancel := context.WithCancel(c)
	var wg sync.WaitGroup
	inBackground(&wg, func() {
		for i := 0; ctx.Err() == nil; i++ {
			// The garbage collector finds out and removes them.
			_, err := c.Client().CoreV1().Pods(attacker).Create(ctx, forgedPod(attacker, fmt.Sprintf("forged-%d", i), "shared", owner), metav1.CreateOptions{})
			if err != nil && ctx.Err() == nil {
				c.Errorf("create forged pod: %v", err)
			}
			select {
			case <-time.After(500 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	defer wg.Wait()
	defer cancel()
	// The scheduler has seen some of them.
	eventually(c.TContext, func(tCtx ktesting.TContext) int {
		events, err := c.Client().CoreV1().Events(attacker).List(tCtx, metav1.ListOptions{FieldSelector: "reason=FailedScheduling"})
		tCtx.ExpectNoError(err, "list events")
		return len(events.Items)
	}).WithTimeout(timeout).Should(gomega.BeNumerically(">", 1), "forged pods that the scheduler has seen")

	c.scaleDeployment(ns, "serve", 3)
	c.waitForRunning(ns, "serve", 3)
	c.waitForClaim(ns, "shared", "reserved for the Deployment", reservedForOnly(deployments, "serve", deployment.UID))
	c.Expect(c.getClaim(attacker, "shared").Status).To(gomega.Equal(resourceapi.ResourceClaimStatus{}), "claim of the attacker")
	c.check(h)
}

// testForgedFillList creates pods that claim to be controlled by former incarnations of a
// Job, while the real one runs. Nothing of them may stay in the list.
func testForgedFillList(c *cluster) {
	const forged = 60
	ns, h := c.begin(1)
	c.createSharedClaim(ns)
	_, reserved := c.startJob(ns, 1)
	for i := range forged {
		owner := metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: uuid.NewUUID()}
		c.createPod(forgedPod(ns, fmt.Sprintf("forged-%d", i), "shared", owner))
	}
	// Either they run and are gone soon or they never run.
	eventually(c.TContext, func(tCtx ktesting.TContext) int {
		n := 0
		for _, pod := range c.podsOf(ns, "forged") {
			if pod.Spec.NodeName != "" && !isTerminal(&pod) {
				n++
			}
		}
		return n
	}).WithTimeout(timeout).Should(gomega.BeZero(), "forged pods with a node")
	c.waitForClaim(ns, "shared", "reserved only for the real Job", reserved)
	c.consistently(ns, "shared", "reserved only for the real Job", reserved)
	c.check(h)
}

// testEntryOfSomeoneElse has a claim that says nothing about a workload in its spec, and
// which another controller manages. It is none of our business.
func testEntryOfSomeoneElse(c *cluster) {
	ns := c.createNamespace()
	for name, ref := range map[string]*resourceapi.ResourceClaimConsumerReference{
		"unknown":  reservedFor(schema.GroupResource{Group: "example.com", Resource: "unknowns"}, "x", "y"),
		"gone-job": reservedFor(jobs, "gone", "y"),
	} {
		claim := c.createClaim(newClaim(ns, name, ns, nil))
		c.allocate(claim, false, *ref)
		c.consistently(ns, name, "reserved as somebody else wanted it", func(claim *resourceapi.ResourceClaim) bool {
			return claim.Status.Allocation != nil && len(claim.Status.ReservedFor) == 1 && claim.Status.ReservedFor[0] == *ref
		})
	}
}

// testAdoptedPod creates the pod first and then the ReplicaSet which adopts it. The
// pod waits until then.
func testAdoptedPod(c *cluster) {
	ns, h := c.begin(1)
	c.createClaim(newClaim(ns, "shared", ns, reservedFor(replicasets, "serve", "")))
	pod := newPod(ns, "orphan", "shared")
	pod.Labels = map[string]string{"app": "serve"}
	pod = c.createPod(pod)
	c.waitForUnschedulable(pod, "serve")
	deployment := newDeployment(ns, "serve", "shared", 1)
	replicaSet, err := c.Client().AppsV1().ReplicaSets(ns).Create(c, &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "serve"},
		Spec:       appsv1.ReplicaSetSpec{Replicas: ptr.To(int32(1)), Selector: deployment.Spec.Selector, Template: deployment.Spec.Template},
	}, metav1.CreateOptions{})
	c.ExpectNoError(err, "create ReplicaSet")
	c.waitForWoken(pod)
	// The checker does not know ReplicaSets.
	c.waitForClaim(ns, "shared", "reserved for the ReplicaSet", reservedForOnly(replicasets, "serve", replicaSet.UID))
	c.ExpectNoError(h.replay(0).err(), "invariants")
}

// waitForWoken waits until a pod runs that had to wait for something.
func (c *cluster) waitForWoken(pod *v1.Pod) {
	c.Helper()
	eventually(c.TContext, func(tCtx ktesting.TContext) v1.PodPhase {
		return c.getPod(pod).Status.Phase
	}).WithTimeout(wakeTimeout).WithPolling(100*time.Millisecond).Should(gomega.Equal(v1.PodRunning), "pod %s should have been woken up", pod.Name)
}

// testAdoptedReplicaSet creates the ReplicaSet first and then the Deployment which adopts
// it.
func testAdoptedReplicaSet(c *cluster) {
	ns, h := c.begin(1)
	c.createClaim(newClaim(ns, "shared", ns, reservedFor(deployments, "serve", "")))
	deployment := newDeployment(ns, "serve", "shared", 1)
	_, err := c.Client().AppsV1().ReplicaSets(ns).Create(c, &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "serve-orphan", Labels: deployment.Spec.Selector.MatchLabels},
		Spec:       appsv1.ReplicaSetSpec{Replicas: ptr.To(int32(1)), Selector: deployment.Spec.Selector, Template: deployment.Spec.Template},
	}, metav1.CreateOptions{})
	c.ExpectNoError(err, "create ReplicaSet")
	eventually(c.TContext, func(ktesting.TContext) int {
		return len(c.podsOf(ns, "serve"))
	}).WithTimeout(timeout).Should(gomega.Equal(1), "pods of the ReplicaSet")
	pod := c.podsOf(ns, "serve")[0]
	c.waitForUnschedulable(&pod, "serve")
	deployment = c.createDeployment(ns, deployment)
	c.waitForAdopted(ns, deployment)
	c.waitForWoken(&pod)
	c.waitForClaim(ns, "shared", "reserved for the Deployment", reservedForOnly(deployments, "serve", deployment.UID))
	c.check(h)
}

// chain is a workload whose pods belong to it through other objects.
type chain struct {
	*cluster
	ns   string
	root *unstructured.Unstructured
	gvr  schema.GroupVersionResource
}

// newChain creates the kind and the object at the top and a claim that is reserved for it.
func (c *cluster) newChain(group, kind string) *chain {
	c.Helper()
	ns := c.createNamespace()
	c.createDevices(ns, 1)
	gvr, create := c.createKindIn(group, kind)
	c.createClaim(newClaim(ns, "shared", ns, reservedFor(gvr.GroupResource(), "top", "")))
	return &chain{cluster: c, ns: ns, root: create(ns, "top"), gvr: gvr}
}

func (c *chain) owner() []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(c.root, c.root.GroupVersionKind())}
}

// check expects that pods run for the object at the top as soon as that may be looked at, and
// that the claim is free when it is gone.
func (c *chain) check(name string, pods int) {
	c.Helper()
	c.waitForRunning(c.ns, name, pods)
	c.waitForClaim(c.ns, "shared", "reserved for "+c.root.GetKind(), reservedForOnly(c.gvr.GroupResource(), "top", c.root.GetUID()))
	c.ExpectNoError(c.Dynamic().Resource(c.gvr).Namespace(c.ns).Delete(c, "top", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}), "delete custom resource")
	c.waitForNoPods(c.ns, name)
	c.waitForDeallocated(c.ns, "shared")
}

// readVerbs are what the author of a custom resource gives to the controller and the
// scheduler.
var readVerbs = []string{"get", "list", "watch"}

// testChainLeaderWorkerSet: pod -> StatefulSet -> LeaderWorkerSet.
func testChainLeaderWorkerSet(c *cluster) {
	chain := c.newChain("leaderworkerset.x-k8s.io", "LeaderWorkerSet")
	c.allow(chain.gvr, readVerbs...)
	set := newStatefulSet(chain.ns, "group", "shared", 2)
	set.OwnerReferences = chain.owner()
	_, err := c.Client().AppsV1().StatefulSets(chain.ns).Create(c, set, metav1.CreateOptions{})
	c.ExpectNoError(err, "create StatefulSet")
	chain.check("group", 2)
}

// testChainJobSet: pod -> Job -> JobSet.
func testChainJobSet(c *cluster) {
	chain := c.newChain("jobset.x-k8s.io", "JobSet")
	c.allow(chain.gvr, readVerbs...)
	for _, name := range []string{"first", "second"} {
		job := newJob(chain.ns, name, "shared", 2)
		job.OwnerReferences = chain.owner()
		c.createJob(job)
	}
	c.waitForRunning(chain.ns, "first", 2)
	chain.check("second", 2)
}

// testChainRayJob: pod -> RayCluster -> RayJob. The one in the middle is a custom resource that
// has to be looked at. The permission for that comes after the pods, which must notice.
func testChainRayJob(c *cluster) {
	chain := c.newChain("ray.io", "RayJob")
	clusters, _ := c.createKindIn("ray.io", "RayCluster")
	var rayCluster *unstructured.Unstructured
	eventually(c.TContext, func(tCtx ktesting.TContext) error {
		obj := &unstructured.Unstructured{Object: object{
			"apiVersion": clusters.GroupVersion().String(), "kind": "RayCluster", "metadata": object{"name": "ray"},
		}}
		obj.SetOwnerReferences(chain.owner())
		var err error
		rayCluster, err = c.Dynamic().Resource(clusters).Namespace(chain.ns).Create(tCtx, obj, metav1.CreateOptions{})
		return err
	}).WithTimeout(timeout).Should(gomega.Succeed(), "create RayCluster")
	pods := c.newPodsOf(rayCluster, "shared", 3)
	for _, pod := range pods {
		c.waitForUnschedulable(pod, "top")
	}
	c.allow(chain.gvr, readVerbs...)
	c.allow(clusters, readVerbs...)
	for _, pod := range pods {
		c.waitForWoken(pod)
	}
	chain.check("ray", 3)
}

// testOthersAreScheduled lets the API server not answer when the scheduler wants to know
// what controls a pod. Only pods of which that must be known may wait.
func testOthersAreScheduled(c *cluster) {
	ns, _ := c.begin(1)
	other := c.createNamespace()
	answer := make(chan struct{})
	defer close(answer)
	c.scheduler.faults.setBefore(func(req *http.Request) error {
		parts := strings.Split(req.URL.Path, "/")
		for i, part := range parts {
			// Getting one of them, not listing or watching all.
			if (part == "replicasets" || part == "jobs") && i+1 < len(parts) {
				<-answer
			}
		}
		return nil
	})
	defer c.scheduler.faults.reset()
	c.createClaim(newClaim(ns, "shared", ns, reservedFor(deployments, "serve", "")))
	for i := range 20 {
		c.createPod(forgedPod(ns, fmt.Sprintf("forged-%d", i), "shared", metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: fmt.Sprintf("forged-%d", i), UID: uuid.NewUUID()}))
	}
	for i := range 20 {
		pod := newPod(other, fmt.Sprintf("plain-%d", i), "none")
		pod.Labels = map[string]string{"app": "plain"}
		pod.Spec.ResourceClaims, pod.Spec.Containers[0].Resources.Claims = nil, nil
		c.createPod(pod)
	}
	c.waitForRunning(other, "plain", 20)
}
