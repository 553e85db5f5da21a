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
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	ktesting "k8s.io/kubernetes/test/utils/client-go/ktesting"
	"k8s.io/utils/ptr"
)

// TestTemplates follows workloads whose claims get generated: one for all pods of each.
func TestTemplates(t *testing.T) {
	tCtx := ktesting.Init(t)
	c := startCluster(tCtx)
	for name, test := range map[string]func(c *cluster){
		"Jobs":          testTemplateJobs,
		"ManyJobs":      testTemplateManyJobs,
		"Deployment":    testTemplateDeployment,
		"Groups":        testTemplateGroups,
		"Orphans":       testTemplateOrphans,
		"ClaimDeleted":  testTemplateClaimDeleted,
		"InTheWay":      testTemplateInTheWay,
		"OtherConsumer": testTemplateOtherConsumer,
	} {
		run(tCtx, name, func(tCtx ktesting.TContext) {
			parallel(tCtx)
			test(c.withTest(tCtx))
		})
	}
}

const templateName = "imex"

func (c *cluster) createTemplate(ns string, gr schema.GroupResource) {
	c.Helper()
	template := &resourceapi.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: templateName},
		Spec:       resourceapi.ResourceClaimTemplateSpec{Spec: newClaim(ns, "", ns, reservedFor(gr, "", "")).Spec},
	}
	_, err := resourceClient(c.Client()).ResourceClaimTemplates(ns).Create(c, template, metav1.CreateOptions{})
	c.ExpectNoError(err, "create template")
}

// fromTemplate makes pods use the template.
func fromTemplate(spec *v1.PodSpec) {
	spec.ResourceClaims[0].ResourceClaimName, spec.ResourceClaims[0].ResourceClaimTemplateName = nil, ptr.To(templateName)
}

func newTemplateJob(ns, name string, pods int32) *batchv1.Job {
	job := newJob(ns, name, "", pods)
	fromTemplate(&job.Spec.Template.Spec)
	return job
}

// createTemplateDeployment creates the Deployment "web".
func (c *cluster) createTemplateDeployment(ns string, pods int32) *appsv1.Deployment {
	c.Helper()
	deployment := newDeployment(ns, "web", "", pods)
	fromTemplate(&deployment.Spec.Template.Spec)
	deployment, err := c.Client().AppsV1().Deployments(ns).Create(c, deployment, metav1.CreateOptions{})
	c.ExpectNoError(err, "create Deployment")
	return deployment
}

// claimOf returns the one claim that all pods have.
func (c *cluster) claimOf(ns string, pods []v1.Pod) *resourceapi.ResourceClaim {
	c.Helper()
	var names []string
	for i := range pods {
		names = append(names, claimName(&pods[i], pods[i].Spec.ResourceClaims[0]))
	}
	slices.Sort(names)
	names = slices.Compact(names)
	c.Expect(names).To(gomega.HaveLen(1), "claims of pods which share one")
	return c.getClaim(ns, names[0])
}

func deviceOf(claim *resourceapi.ResourceClaim) string {
	return claim.Status.Allocation.Devices.Results[0].Device
}

func (c *cluster) claimNames(ns string) []string {
	c.Helper()
	claims, err := resourceClient(c.Client()).ResourceClaims(ns).List(c, metav1.ListOptions{})
	c.ExpectNoError(err, "list claims")
	var names []string
	for _, claim := range claims.Items {
		names = append(names, claim.Name)
	}
	return names
}

func (c *cluster) waitForClaims(ns string, count int) {
	c.Helper()
	eventually(c.TContext, func(tCtx ktesting.TContext) []string { return c.claimNames(ns) }).
		WithTimeout(timeout).WithPolling(100*time.Millisecond).Should(gomega.HaveLen(count), "claims")
}

// testTemplateJobs has two Jobs at the same time, with a device for each of them. A third one gets one
// when the first is finished: finished Jobs keep neither claim nor device.
func testTemplateJobs(c *cluster) {
	const pods = 300
	ns, h := c.begin(2)
	c.createTemplate(ns, jobs)
	first := c.createJob(newTemplateJob(ns, "first", pods))
	second := c.createJob(newTemplateJob(ns, "second", 8))
	firstPods, secondPods := c.waitForRunning(ns, "first", pods), c.waitForRunning(ns, "second", 8)
	firstClaim, secondClaim := c.claimOf(ns, firstPods), c.claimOf(ns, secondPods)
	c.Expect(reservedForOnly(jobs, "first", first.UID)(firstClaim)).To(gomega.BeTrueBecause("reserved for the first Job"))
	c.Expect(reservedForOnly(jobs, "second", second.UID)(secondClaim)).To(gomega.BeTrueBecause("reserved for the second Job"))
	c.Expect(deviceOf(firstClaim)).NotTo(gomega.Equal(deviceOf(secondClaim)))
	h.waitFor(c.TContext, firstPods[len(firstPods)-1].UID)
	if writes := h.countWrites(firstClaim.Name); writes > 3 {
		c.Errorf("expected at most three writes to the claim, got %d", writes)
	}

	c.createJob(newTemplateJob(ns, "third", 2))
	c.waitForClaims(ns, 3)
	c.finishAll(firstPods)
	thirdPods := c.waitForRunning(ns, "third", 2)
	c.waitForClaims(ns, 2)
	c.Expect(deviceOf(c.claimOf(ns, thirdPods))).To(gomega.Equal(deviceOf(firstClaim)))

	c.deleteJob(ns, "second", metav1.DeletePropagationForeground)
	c.deleteJob(ns, "third", metav1.DeletePropagationBackground)
	c.waitForNoPods(ns, "second")
	c.waitForClaims(ns, 0)

	// The same name again is another claim.
	c.createJob(newTemplateJob(ns, "second", 1))
	c.Expect(c.claimOf(ns, c.waitForRunning(ns, "second", 1)).Name).NotTo(gomega.Equal(secondClaim.Name))
	c.check(h)
}

// testTemplateManyJobs has many at once.
func testTemplateManyJobs(c *cluster) {
	const count, pods = 20, 10
	ns, h := c.begin(count)
	c.createTemplate(ns, jobs)
	for i := range count {
		c.createJob(newTemplateJob(ns, fmt.Sprintf("job-%d", i), pods))
	}
	devices := map[string]bool{}
	for i := range count {
		devices[deviceOf(c.claimOf(ns, c.waitForRunning(ns, fmt.Sprintf("job-%d", i), pods)))] = true
	}
	c.Expect(devices).To(gomega.HaveLen(count))
	c.Expect(c.claimNames(ns)).To(gomega.HaveLen(count))
	for i := range count {
		c.finishAll(c.podsOf(ns, fmt.Sprintf("job-%d", i)))
	}
	c.waitForClaims(ns, 0)
	c.check(h)
}

// testTemplateDeployment has pods whose controllers come and go: all revisions share the claim.
func testTemplateDeployment(c *cluster) {
	ns, h := c.begin(1)
	c.createTemplate(ns, deployments)
	deployment := c.createTemplateDeployment(ns, 3)
	before := c.claimOf(ns, c.waitForRunning(ns, "web", 3))
	c.Expect(reservedForOnly(deployments, "web", deployment.UID)(before)).To(gomega.BeTrueBecause("reserved for the Deployment"))

	patch := []byte(`{"spec":{"template":{"metadata":{"annotations":{"revision":"2"}}}}}`)
	_, err := c.Client().AppsV1().Deployments(ns).Patch(c, "web", types.MergePatchType, patch, metav1.PatchOptions{})
	c.ExpectNoError(err, "change Deployment")
	eventually(c.TContext, func(tCtx ktesting.TContext) int {
		running := 0
		for _, pod := range c.podsOf(ns, "web") {
			if pod.Annotations["revision"] == "2" && isRunning(&pod) {
				running++
			}
		}
		return running
	}).WithTimeout(timeout).WithPolling(100*time.Millisecond).Should(gomega.Equal(3), "pods of the new revision")
	c.Expect(c.claimOf(ns, c.waitForRunning(ns, "web", 3)).UID).To(gomega.Equal(before.UID))
	c.Expect(c.claimNames(ns)).To(gomega.HaveLen(1))
	c.check(h)
}

// testTemplateGroups has groups as LeaderWorkerSet makes them: a StatefulSet of leaders, and one of workers
// that each leader controls. A group gets replaced by deleting its leader.
func testTemplateGroups(c *cluster) {
	ns, h := c.begin(3)
	c.createTemplate(ns, podsResource)
	leaders := newStatefulSet(ns, "leaders", "", 2)
	fromTemplate(&leaders.Spec.Template.Spec)
	_, err := c.Client().AppsV1().StatefulSets(ns).Create(c, leaders, metav1.CreateOptions{})
	c.ExpectNoError(err, "create StatefulSet")
	createWorkers := func(leader *v1.Pod) {
		workers := newStatefulSet(ns, leader.Name+"-workers", "", 3)
		fromTemplate(&workers.Spec.Template.Spec)
		workers.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(leader, v1.SchemeGroupVersion.WithKind("Pod"))}
		_, err := c.Client().AppsV1().StatefulSets(ns).Create(c, workers, metav1.CreateOptions{})
		c.ExpectNoError(err, "create StatefulSet")
	}
	groups := func() map[string]*resourceapi.ResourceClaim {
		claims := map[string]*resourceapi.ResourceClaim{}
		for _, leader := range c.waitForRunning(ns, "leaders", 2) {
			claims[leader.Name] = c.claimOf(ns, append(c.waitForRunning(ns, leader.Name+"-workers", 3), leader))
		}
		return claims
	}
	for _, leader := range c.waitForRunning(ns, "leaders", 2) {
		createWorkers(&leader)
	}
	before := groups()
	c.Expect(deviceOf(before["leaders-0"])).NotTo(gomega.Equal(deviceOf(before["leaders-1"])))

	leader, err := c.Client().CoreV1().Pods(ns).Get(c, "leaders-0", metav1.GetOptions{})
	c.ExpectNoError(err, "get leader")
	c.ExpectNoError(c.Client().CoreV1().Pods(ns).Delete(c, leader.Name, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}), "delete leader")
	eventually(c.TContext, func(tCtx ktesting.TContext) bool {
		pod, err := c.Client().CoreV1().Pods(ns).Get(tCtx, leader.Name, metav1.GetOptions{})
		return err == nil && pod.UID != leader.UID && isRunning(pod)
	}).WithTimeout(timeout).WithPolling(100 * time.Millisecond).Should(gomega.BeTrueBecause("the group should get another leader"))
	leader, err = c.Client().CoreV1().Pods(ns).Get(c, "leaders-0", metav1.GetOptions{})
	c.ExpectNoError(err, "get new leader")
	createWorkers(leader)
	after := groups()
	c.Expect(after["leaders-0"].Name).NotTo(gomega.Equal(before["leaders-0"].Name))
	c.Expect(after["leaders-1"].UID).To(gomega.Equal(before["leaders-1"].UID))
	c.waitForClaims(ns, 2)
	c.check(h)
}

// testTemplateOrphans removes a Job without its pods. They keep the claim, and it goes with the last of them.
func testTemplateOrphans(c *cluster) {
	ns, h := c.begin(1)
	c.createTemplate(ns, jobs)
	c.createJob(newTemplateJob(ns, "train", 3))
	pods := c.waitForRunning(ns, "train", 3)
	claim := c.claimOf(ns, pods)
	c.deleteJob(ns, "train", metav1.DeletePropagationOrphan)
	c.waitForClaim(ns, claim.Name, "being deleted", func(claim *resourceapi.ResourceClaim) bool { return claim.DeletionTimestamp != nil })
	c.consistently(ns, claim.Name, "allocated", func(claim *resourceapi.ResourceClaim) bool { return claim.Status.Allocation != nil })
	c.finishAll(pods)
	c.waitForClaims(ns, 0)
	c.check(h)
}

// testTemplateClaimDeleted removes a generated claim by hand. Pods that run keep it, new ones get another one of the
// same name when it is gone.
func testTemplateClaimDeleted(c *cluster) {
	ns, h := c.begin(1)
	c.createTemplate(ns, deployments)
	c.createTemplateDeployment(ns, 1)
	pods := c.waitForRunning(ns, "web", 1)
	claim := c.claimOf(ns, pods)
	h.excuse(claim)
	c.ExpectNoError(resourceClient(c.Client()).ResourceClaims(ns).Delete(c, claim.Name, metav1.DeleteOptions{}), "delete claim")
	c.consistently(ns, claim.Name, "allocated", func(claim *resourceapi.ResourceClaim) bool { return claim.Status.Allocation != nil })
	c.ExpectNoError(c.Client().CoreV1().Pods(ns).Delete(c, pods[0].Name, metav1.DeleteOptions{}), "delete pod")
	eventually(c.TContext, func(tCtx ktesting.TContext) bool {
		running := c.podsOf(ns, "web")
		return len(running) == 1 && running[0].UID != pods[0].UID && isRunning(&running[0])
	}).WithTimeout(timeout).WithPolling(100 * time.Millisecond).Should(gomega.BeTrueBecause("a new pod should run"))
	again := c.claimOf(ns, c.podsOf(ns, "web"))
	c.Expect(again.Name).To(gomega.Equal(claim.Name))
	c.Expect(again.UID).NotTo(gomega.Equal(claim.UID))
}

// testTemplateInTheWay has a claim with the computed name that somebody else has created.
func testTemplateInTheWay(c *cluster) {
	ns, _ := c.begin(2)
	c.createTemplate(ns, jobs)
	job := newTemplateJob(ns, "train", 2)
	job.Spec.Suspend = ptr.To(true)
	job = c.createJob(job)
	generatedFor := resourceclaim.GeneratedFor{GroupResource: jobs, Name: job.Name, UID: job.UID, Template: templateName}
	foreign := c.createClaim(newClaim(ns, generatedFor.ClaimName("shared"), ns, reservedFor(jobs, job.Name, "")))
	_, err := c.Client().BatchV1().Jobs(ns).Patch(c, job.Name, types.MergePatchType, []byte(`{"spec":{"suspend":false}}`), metav1.PatchOptions{})
	c.ExpectNoError(err, "resume Job")
	c.waitForEvent(ns, "was not generated by this controller, delete it")
	c.Expect(c.getClaim(ns, foreign.Name).Status.Allocation).To(gomega.BeNil())
	c.ExpectNoError(resourceClient(c.Client()).ResourceClaims(ns).Delete(c, foreign.Name, metav1.DeleteOptions{}), "delete claim")
	c.Expect(c.claimOf(ns, c.waitForRunning(ns, "train", 2)).UID).NotTo(gomega.Equal(foreign.UID))
}

// testTemplateOtherConsumer has pods without a controller of the kind that their template wants.
func testTemplateOtherConsumer(c *cluster) {
	ns, _ := c.begin(1)
	c.createTemplate(ns, deployments)
	c.createJob(newTemplateJob(ns, "train", 20))
	c.waitForEvent(ns, "none of its controllers is one")
	consistently(c.TContext, func(tCtx ktesting.TContext) []string { return c.claimNames(ns) }).
		WithTimeout(quiet).WithPolling(time.Second).Should(gomega.BeEmpty(), "claims")
	c.Expect(c.events(ns, "none of its controllers is one")).To(gomega.BeNumerically("<=", 10), "events")
}

// events returns how many events have the text.
func (c *cluster) events(ns, text string) int {
	c.Helper()
	events, err := c.Client().CoreV1().Events(ns).List(c, metav1.ListOptions{})
	c.ExpectNoError(err, "list events")
	return len(slices.DeleteFunc(events.Items, func(event v1.Event) bool { return !strings.Contains(event.Message, text) }))
}

func (c *cluster) waitForEvent(ns, text string) {
	c.Helper()
	eventually(c.TContext, func(tCtx ktesting.TContext) int { return c.events(ns, text) }).
		WithTimeout(timeout).WithPolling(100*time.Millisecond).Should(gomega.BeNumerically(">", 0), "event with %q", text)
}
