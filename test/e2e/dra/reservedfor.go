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

package dra

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/test/e2e/framework"
	e2epod "k8s.io/kubernetes/test/e2e/framework/pod"
	admissionapi "k8s.io/pod-security-admission/api"
	"k8s.io/utils/ptr"
)

// reservedForSettle is how long a claim has to remain as it is, where something could free it by
// mistake. The controller waits for five seconds between its two looks at a claim.
const reservedForSettle = 15 * time.Second

// These specs cover claims that a workload reserves instead of each of its pods (KEP-5194): what a
// user sees who creates objects in a cluster. They need the DRAReservedForWorkloads
// feature gate in all components, one node, and the driver that all specs here deploy.
var _ = framework.SIGDescribe("node")(framework.WithLabel("DRA"), framework.WithFeatureGate(features.DRAReservedForWorkloads), func() {
	f := framework.NewDefaultFramework("dra-reserved-for")

	// The driver containers write to /var/lib/kubelet/plugins.
	f.NamespacePodSecurityLevel = admissionapi.LevelPrivileged

	ginkgo.Context("claim reserved for a workload", func() {
		t := newReservedForSpecs(f)

		ginkgo.It("serves one Job after the other of the same name", func(ctx context.Context) {
			claim := t.createClaim(ctx, "batch", "jobs", "first", "")

			var uids []types.UID
			for range 2 {
				job := t.createJob(ctx, "first", 3, claim.Name)
				pods := t.running(ctx, job.Spec.Selector, 3)
				for _, pod := range pods {
					t.checkDevice(ctx, pod)
				}
				t.expectReservedFor(ctx, claim.Name, "jobs", job)
				for _, pod := range pods {
					t.end(pod)
				}
				t.expectFree(ctx, claim.Name)
				job, err := f.ClientSet.BatchV1().Jobs(f.Namespace.Name).Get(ctx, job.Name, metav1.GetOptions{})
				framework.ExpectNoError(err, "get Job")
				gomega.Expect(job.Status.Succeeded).To(gomega.Equal(int32(3)), "pods that succeeded")
				uids = append(uids, job.UID)
				t.deleteJob(ctx, job.Name)
			}
			gomega.Expect(uids[0]).NotTo(gomega.Equal(uids[1]), "UIDs of the two Jobs")
		})

		ginkgo.It("keeps other pods waiting until the workload has it, and stays while they run", func(ctx context.Context) {
			claim := t.createClaim(ctx, "batch", "jobs", "first", "")

			other := t.newPod(claim.Name)
			t.create(ctx, other)
			gomega.Eventually(ctx, func(ctx context.Context) (string, error) {
				pod, err := f.ClientSet.CoreV1().Pods(f.Namespace.Name).Get(ctx, other.Name, metav1.GetOptions{})
				if err != nil {
					return "", err
				}
				for _, condition := range pod.Status.Conditions {
					if condition.Type == v1.PodScheduled && condition.Status == v1.ConditionFalse {
						return condition.Message, nil
					}
				}
				return "", nil
			}).WithTimeout(f.Timeouts.PodStart).Should(gomega.ContainSubstring("reserved for jobs.batch"), "why the pod is not scheduled")

			job := t.createJob(ctx, "first", 1, claim.Name)
			t.end(t.running(ctx, job.Spec.Selector, 1)[0])
			framework.ExpectNoError(e2epod.WaitForPodNameRunningInNamespace(ctx, f.ClientSet, other.Name, other.Namespace), "start pod")
			t.expectReservedFor(ctx, claim.Name, "jobs", job)

			ginkgo.By("The Job ends, the other pod does not")
			gomega.Eventually(ctx, func(ctx context.Context) (int32, error) {
				job, err := f.ClientSet.BatchV1().Jobs(f.Namespace.Name).Get(ctx, job.Name, metav1.GetOptions{})
				if err != nil {
					return 0, err
				}
				return job.Status.Succeeded, nil
			}).WithTimeout(f.Timeouts.PodStart).Should(gomega.Equal(int32(1)), "pods that succeeded")
			t.expectToStay(ctx, claim.Name, "jobs", job)
			t.checkDevice(ctx, other)

			t.end(other)
			t.expectFree(ctx, claim.Name)
		})

		ginkgo.It("belongs to a Deployment without pods until it gets deleted", func(ctx context.Context) {
			claim := t.createClaim(ctx, "apps", "deployments", "server", "")
			deployment := t.createDeployment(ctx, "server", 2, claim.Name)
			t.running(ctx, deployment.Spec.Selector, 2)
			t.expectReservedFor(ctx, claim.Name, "deployments", deployment)

			t.scaleDeployment(ctx, deployment.Name, 0)
			t.running(ctx, deployment.Spec.Selector, 0)
			t.expectToStay(ctx, claim.Name, "deployments", deployment)

			t.scaleDeployment(ctx, deployment.Name, 1)
			t.checkDevice(ctx, t.running(ctx, deployment.Spec.Selector, 1)[0])
			t.expectReservedFor(ctx, claim.Name, "deployments", deployment)

			err := f.ClientSet.AppsV1().Deployments(f.Namespace.Name).Delete(ctx, deployment.Name, metav1.DeleteOptions{})
			framework.ExpectNoError(err, "delete Deployment")
			t.expectFree(ctx, claim.Name)
		})

		ginkgo.It("stays with the orphans of a StatefulSet", func(ctx context.Context) {
			set := t.createStatefulSet(ctx, "set", 2, "external-claim")
			claim := t.createClaim(ctx, "apps", "statefulsets", set.Name, set.UID)
			gomega.Expect(claim.Name).To(gomega.Equal("external-claim"))
			pods := t.running(ctx, set.Spec.Selector, 2)
			t.expectReservedFor(ctx, claim.Name, "statefulsets", set)

			err := f.ClientSet.AppsV1().StatefulSets(f.Namespace.Name).Delete(ctx, set.Name, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationOrphan)})
			framework.ExpectNoError(err, "delete StatefulSet")
			gomega.Eventually(ctx, func(ctx context.Context) bool {
				_, err := f.ClientSet.AppsV1().StatefulSets(f.Namespace.Name).Get(ctx, set.Name, metav1.GetOptions{})
				return apierrors.IsNotFound(err)
			}).WithTimeout(time.Minute).Should(gomega.BeTrueBecause("it was deleted"), "StatefulSet is gone")
			t.expectToStay(ctx, claim.Name, "statefulsets", set)
			for _, pod := range pods {
				t.checkDevice(ctx, pod)
				err := f.ClientSet.CoreV1().Pods(f.Namespace.Name).Delete(ctx, pod.Name, metav1.DeleteOptions{})
				framework.ExpectNoError(err, "delete pod")
			}
			t.expectFree(ctx, claim.Name)
		})

		ginkgo.It("may be used by a pod that the scheduler never saw", func(ctx context.Context) {
			claim := t.createClaim(ctx, "batch", "jobs", "first", "")
			job := t.createJob(ctx, "first", 1, claim.Name)
			scheduled := t.running(ctx, job.Spec.Selector, 1)[0]

			preset := t.newPod(claim.Name)
			preset.Spec.NodeName = scheduled.Spec.NodeName
			t.create(ctx, preset)
			framework.ExpectNoError(e2epod.WaitForPodNameRunningInNamespace(ctx, f.ClientSet, preset.Name, preset.Namespace), "start pod")
			t.checkDevice(ctx, preset)
			t.expectReservedFor(ctx, claim.Name, "jobs", job)

			t.end(scheduled)
			t.end(preset)
			t.expectFree(ctx, claim.Name)
		})
	})
})

// reservedForSpecs has what these specs do with objects. What depends on the release is in reservedForBuilder.
type reservedForSpecs struct {
	*reservedForBuilder
	f *framework.Framework
}

func newReservedForSpecs(f *framework.Framework) *reservedForSpecs {
	return &reservedForSpecs{reservedForBuilder: newReservedForBuilder(f), f: f}
}

// createClaim creates a claim for one device of the driver.
func (t *reservedForSpecs) createClaim(ctx context.Context, group, resource, name string, uid types.UID) *resourceapi.ResourceClaim {
	claim := t.newClaim()
	claim.Spec.ReservedFor = &resourceapi.ResourceClaimWorkloadReference{APIGroup: group, Resource: resource, Name: name, UID: uid}
	t.create(ctx, claim)
	return claim
}

// template is one for pods which use the claim until they are told to end.
func (t *reservedForSpecs) template(name, claim string) (*metav1.LabelSelector, v1.PodTemplateSpec) {
	pod := t.newPod(claim)
	labels := map[string]string{"reserved-for": name}
	return &metav1.LabelSelector{MatchLabels: labels}, v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec}
}

func (t *reservedForSpecs) createJob(ctx context.Context, name string, pods int32, claim string) *batchv1.Job {
	selector, template := t.template(name, claim)
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       batchv1.JobSpec{Parallelism: &pods, Completions: &pods, Selector: selector, ManualSelector: ptr.To(true), Template: template},
	}
	job, err := t.f.ClientSet.BatchV1().Jobs(t.f.Namespace.Name).Create(ctx, job, metav1.CreateOptions{})
	framework.ExpectNoError(err, "create Job")
	// The builder deletes pods, and nobody may make new ones.
	ginkgo.DeferCleanup(t.deleteJob, name)
	return job
}

// deleteJob deletes a Job, and waits until it and its pods are gone.
func (t *reservedForSpecs) deleteJob(ctx context.Context, name string) {
	jobs := t.f.ClientSet.BatchV1().Jobs(t.f.Namespace.Name)
	err := jobs.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)})
	if !apierrors.IsNotFound(err) {
		framework.ExpectNoError(err, "delete Job")
	}
	gomega.Eventually(ctx, func(ctx context.Context) bool {
		_, err := jobs.Get(ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}).WithTimeout(t.f.Timeouts.PodDelete).Should(gomega.BeTrueBecause("it was deleted"), "Job is gone")
}

func (t *reservedForSpecs) createDeployment(ctx context.Context, name string, pods int32, claim string) *appsv1.Deployment {
	selector, template := t.template(name, claim)
	template.Spec.RestartPolicy = v1.RestartPolicyAlways
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       appsv1.DeploymentSpec{Replicas: &pods, Selector: selector, Template: template},
	}
	deployment, err := t.f.ClientSet.AppsV1().Deployments(t.f.Namespace.Name).Create(ctx, deployment, metav1.CreateOptions{})
	framework.ExpectNoError(err, "create Deployment")
	ginkgo.DeferCleanup(func(ctx context.Context) {
		err := t.f.ClientSet.AppsV1().Deployments(t.f.Namespace.Name).Delete(ctx, name, metav1.DeleteOptions{})
		if !apierrors.IsNotFound(err) {
			framework.ExpectNoError(err, "delete Deployment")
		}
	})
	return deployment
}

func (t *reservedForSpecs) scaleDeployment(ctx context.Context, name string, pods int) {
	patch := fmt.Sprintf(`{"spec":{"replicas":%d}}`, pods)
	_, err := t.f.ClientSet.AppsV1().Deployments(t.f.Namespace.Name).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	framework.ExpectNoError(err, "scale Deployment to %d", pods)
}

func (t *reservedForSpecs) createStatefulSet(ctx context.Context, name string, pods int32, claim string) *appsv1.StatefulSet {
	selector, template := t.template(name, claim)
	template.Spec.RestartPolicy = v1.RestartPolicyAlways
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       appsv1.StatefulSetSpec{Replicas: &pods, Selector: selector, Template: template, PodManagementPolicy: appsv1.ParallelPodManagement},
	}
	set, err := t.f.ClientSet.AppsV1().StatefulSets(t.f.Namespace.Name).Create(ctx, set, metav1.CreateOptions{})
	framework.ExpectNoError(err, "create StatefulSet")
	ginkgo.DeferCleanup(func(ctx context.Context) {
		err := t.f.ClientSet.AppsV1().StatefulSets(t.f.Namespace.Name).Delete(ctx, name, metav1.DeleteOptions{})
		if !apierrors.IsNotFound(err) {
			framework.ExpectNoError(err, "delete StatefulSet")
		}
	})
	return set
}

// running waits until so many pods of a workload exist, and all of them run.
func (t *reservedForSpecs) running(ctx context.Context, selector *metav1.LabelSelector, count int) []*v1.Pod {
	ginkgo.GinkgoHelper()
	var pods []*v1.Pod
	gomega.Eventually(ctx, func(ctx context.Context) (map[string]v1.PodPhase, error) {
		list, err := t.f.ClientSet.CoreV1().Pods(t.f.Namespace.Name).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(selector)})
		if err != nil {
			return nil, err
		}
		pods = nil
		others := map[string]v1.PodPhase{}
		for i := range list.Items {
			pod := &list.Items[i]
			if pod.Status.Phase == v1.PodRunning && pod.DeletionTimestamp == nil {
				pods = append(pods, pod)
			} else {
				others[pod.Name] = pod.Status.Phase
			}
		}
		if len(pods) != count {
			return others, fmt.Errorf("want %d running pods, got %d", count, len(pods))
		}
		return others, nil
	}).WithTimeout(t.f.Timeouts.PodStart).Should(gomega.BeEmpty(), "pods with %s that do not run", metav1.FormatLabelSelector(selector))
	return pods
}

// checkDevice checks that the driver gave the device of the claim to the pod.
func (t *reservedForSpecs) checkDevice(ctx context.Context, pod *v1.Pod) {
	ginkgo.GinkgoHelper()
	env := strings.Split(e2epod.ExecShellInPod(ctx, t.f, pod.Name, "env"), "\n")
	gomega.Expect(env).To(gomega.ContainElement("user_a=b"), "what the driver sets in pod %s", pod.Name)
}

// end lets the container of a pod end as it does when the pod is deleted. The shell can be
// gone before it has an exit code.
func (t *reservedForSpecs) end(pod *v1.Pod) {
	_, stderr, err := e2epod.ExecCommandInContainerWithFullOutput(t.f, pod.Name, pod.Spec.Containers[0].Name, "/bin/sh", "-c", "kill 1")
	framework.Logf("ending pod %s: %v %s", pod.Name, err, stderr)
}

// expectReservedFor checks that the claim is allocated, may be used by any pod, and is reserved
// for this object and nothing else.
func (t *reservedForSpecs) expectReservedFor(ctx context.Context, claim, resource string, consumer metav1.Object) {
	ginkgo.GinkgoHelper()
	framework.ExpectNoError(t.checkReservedFor(ctx, claim, resource, consumer))
}

// expectToStay checks that it is like that, and remains so.
func (t *reservedForSpecs) expectToStay(ctx context.Context, claim, resource string, consumer metav1.Object) {
	ginkgo.GinkgoHelper()
	gomega.Consistently(ctx, func(ctx context.Context) error {
		return t.checkReservedFor(ctx, claim, resource, consumer)
	}).WithTimeout(reservedForSettle).WithPolling(time.Second).Should(gomega.Succeed())
}

func (t *reservedForSpecs) checkReservedFor(ctx context.Context, name, resource string, consumer metav1.Object) error {
	claim, err := t.claims(ctx).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if claim.Status.Allocation == nil || !ptr.Deref(claim.Status.Allocation.ReservedForAnyPod, false) {
		return fmt.Errorf("claim %s is not allocated for any pod: %+v", name, claim.Status.Allocation)
	}
	want := resourceapi.ResourceClaimConsumerReference{APIGroup: claim.Spec.ReservedFor.APIGroup, Resource: resource, Name: consumer.GetName(), UID: consumer.GetUID()}
	if refs := claim.Status.ReservedFor; len(refs) != 1 || refs[0] != want {
		return fmt.Errorf("claim %s: want it to be reserved for %+v, got %+v", name, want, refs)
	}
	return nil
}

// expectFree waits until the claim has no devices and is reserved for nobody, and until all nodes
// have given back the devices.
func (t *reservedForSpecs) expectFree(ctx context.Context, name string) {
	ginkgo.GinkgoHelper()
	gomega.Eventually(ctx, func(ctx context.Context) error {
		claim, err := t.claims(ctx).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if claim.Status.Allocation != nil || len(claim.Status.ReservedFor) > 0 || len(claim.Finalizers) > 0 {
			return fmt.Errorf("claim %s is still in use: %+v, finalizers %q", name, claim.Status, claim.Finalizers)
		}
		return t.checkUnprepared()
	}).WithTimeout(t.f.Timeouts.PodDelete).Should(gomega.Succeed())
}

// checkUnprepared returns an error while the driver has prepared claims on some node.
func (b *reservedForBuilder) checkUnprepared() error {
	for name, node := range b.driver.Nodes {
		if claims := node.GetPreparedResources(); len(claims) > 0 {
			return fmt.Errorf("node %s: prepared claims: %v", name, claims)
		}
	}
	return nil
}
