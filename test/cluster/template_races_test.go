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

package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubernetes-dra/hack/pkg/cluster"
)

// TestTemplateQuota covers quotas that let no claim in. One part runs after the other, because refused requests are
// counted for all namespaces together.
func TestTemplateQuota(t *testing.T) {
	t.Parallel()
	t.Run("job", testTemplateQuotaJob)
	t.Run("templates", testTemplateQuotaTemplates)
}

// testTemplateQuotaJob has a Job of many pods that needs one claim. Few Events say that the quota has no room, a
// namespace beside it is served meanwhile, and when the quota is raised all pods run with one claim.
func testTemplateQuotaJob(t *testing.T) {
	const pods = 200
	e := newEnv(t)
	class := e.devices(2, "simulated")
	e.template("shared", class)
	e.noClaims()
	before := e.refusedClaims()
	job := e.job("large", pods, templatePod("shared"), nil)
	exceeded := func() (events, pods int) {
		list, err := e.CoreV1().Events(e.namespace).List(e.ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Pod"})
		if err != nil {
			t.Fatal(err)
		}
		about := map[string]bool{}
		for _, event := range list.Items {
			if strings.Contains(event.Message, "exceeded quota") {
				events++
				about[event.InvolvedObject.Name] = true
			}
		}
		return events, len(about)
	}
	e.eventually("Events say that the quota is exceeded", func() error {
		n, err := e.CountPods(e.ctx, e.namespace, cluster.JobLabel+"=large")
		if err == nil && n.All < pods {
			err = fmt.Errorf("%d pods", n.All)
		}
		if events, _ := exceeded(); err == nil && events == 0 {
			err = errors.New("none does")
		}
		return err
	})

	e.servesOthers(class)

	time.Sleep(10 * time.Second) // for Events that should not come
	events, about := exceeded()
	creates := e.refusedClaims() - before
	t.Logf("claims were refused %d times, and %d Events about %d pods say so", creates, events, about)
	// After 1, 2, 4 and so on seconds, whatever the number of pods.
	if creates > 10 || about > 10 {
		t.Error("want both to be few")
	}
	e.moreClaims(1)
	e.running("large", pods)
	e.reservedFor(e.onlyClaim(), job)
}

// claimQuota limits how many claims a namespace has.
const claimQuota = corev1.ResourceName("count/resourceclaims.resource.k8s.io")

// noClaims lets nobody create claims in the namespace.
func (e *env) noClaims() {
	e.Helper()
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "claims"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{claimQuota: resource.MustParse("0")}}}
	if _, err := e.CoreV1().ResourceQuotas(e.namespace).Create(e.ctx, quota, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
	// The quota controller computes what is in use before the quota holds.
	e.eventually("the quota is in force", func() error {
		got, err := e.CoreV1().ResourceQuotas(e.namespace).Get(e.ctx, quota.Name, metav1.GetOptions{})
		if _, known := got.Status.Used[claimQuota]; err == nil && !known {
			err = errors.New("it is not")
		}
		return err
	})
}

// moreClaims raises that.
func (e *env) moreClaims(n int) {
	e.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"hard":{%q:"%d"}}}`, claimQuota, n)
	if _, err := e.CoreV1().ResourceQuotas(e.namespace).Patch(e.ctx, "claims", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		e.Fatal(err)
	}
}

// servesOthers checks that a Job in another namespace gets its claim meanwhile.
func (e *env) servesOthers(class string) {
	e.Helper()
	other := &env{T: e.T, Client: e.Client, ctx: e.ctx, namespace: e.namespace + "-other"}
	if err := e.NewNamespace(e.ctx, other.namespace); err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { other.kubectlDeleteNames("namespaces", other.namespace) })
	other.template("shared", class)
	served := other.job("small", 20, templatePod("shared"), nil)
	other.running("small", 20)
	other.reservedFor(other.onlyClaim(), served)
}

// testTemplateQuotaTemplates has pods with 2,000 templates. Trying again takes a few requests per second. With room for
// one claim, one gets it.
func testTemplateQuotaTemplates(t *testing.T) {
	const pods, entries = 63, 32
	e := newEnv(t)
	class := e.devices(2, "simulated")
	e.noClaims()
	for i := range pods {
		spec := templatePod("")
		spec.ResourceClaims = nil
		for j := range entries {
			name := fmt.Sprintf("template-%d-%d", i, j)
			e.templateFor(name, class, "", "pods")
			spec.ResourceClaims = append(spec.ResourceClaims, corev1.PodResourceClaim{Name: fmt.Sprintf("claim-%d", j), ResourceClaimTemplateName: &name})
		}
		for j := range spec.Containers {
			spec.Containers[j].Resources.Claims = nil
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%d", i)}, Spec: spec}
		if _, err := e.CoreV1().Pods(e.namespace).Create(e.ctx, pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	start, before := time.Now(), e.refusedClaims()
	e.servesOthers(class)
	t.Logf("others were served after %s", time.Since(start).Round(time.Second/10))
	time.Sleep(30 * time.Second)
	creates, seconds := e.refusedClaims()-before, int(time.Since(start).Seconds())
	t.Logf("claims were refused %d times in %d s", creates, seconds)
	// The controller does five, if it does not wait for something else.
	if creates == 0 || creates > 6*seconds+100 {
		t.Error("want five per second")
	}
	e.moreClaims(1)
	e.eventually("one claim is made", func() error {
		list, err := e.Dynamic.Resource(e.Resource("resourceclaims")).Namespace(e.namespace).List(e.ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) != 1 {
			err = fmt.Errorf("there are %d", len(list.Items))
		}
		return err
	})
}

// refusedClaim counts them: Prometheus has the labels of a metric in the order of the alphabet.
var refusedClaim = regexp.MustCompile(`(?m)^apiserver_request_total\{code="403",.*resource="resourceclaims",.*verb="POST",.*\} (\S+)$`)

// refusedClaims is how many claims the API server has forbidden somebody to create.
func (e *env) refusedClaims() int {
	e.Helper()
	metrics, err := shared.Metrics(e.ctx, cluster.APIServer)
	if err != nil {
		e.Fatal(err)
	}
	count := 0
	for _, match := range refusedClaim.FindAllStringSubmatch(metrics, -1) {
		count += e.number(match[1])
	}
	return count
}

// TestTemplateAdopted deletes a StatefulSet without its pods, and creates it again. The new one adopts them. Their
// claim and its device stay theirs for as long as one of them runs. New pods get the claim of the new StatefulSet.
func TestTemplateAdopted(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	class := e.devices(2, "simulated")
	e.templateFor("shared", class, "apps", "statefulsets")
	labels := map[string]string{"app": "db"}
	spec := templatePod("shared")
	spec.RestartPolicy = corev1.RestartPolicyAlways
	create := func() cluster.Consumer {
		set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(3)), PodManagementPolicy: appsv1.ParallelPodManagement, ServiceName: "db",
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		}}
		set, err := e.AppsV1().StatefulSets(e.namespace).Create(e.ctx, set, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return cluster.Consumer{APIGroup: "apps", Resource: "statefulsets", Name: set.Name, UID: set.UID}
	}
	first := create()
	e.runningPods("app=db", 3)
	claim := e.onlyClaim()
	device := e.reservedFor(claim, first).Devices[0]
	before := e.podsWith("app=db")

	orphan := metav1.DeletePropagationOrphan
	if err := e.AppsV1().StatefulSets(e.namespace).Delete(e.ctx, "db", metav1.DeleteOptions{PropagationPolicy: &orphan}); err != nil {
		t.Fatal(err)
	}
	e.eventually("the StatefulSet is gone", func() error {
		_, err := e.AppsV1().StatefulSets(e.namespace).Get(e.ctx, "db", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return cmp.Or(err, errors.New("it is not"))
	})
	second := create()
	e.eventually("the new StatefulSet has adopted the pods", func() error {
		for name, pod := range e.podsWith("app=db") {
			if owner := metav1.GetControllerOf(pod); owner == nil || owner.UID != second.UID || pod.UID != before[name].UID {
				return fmt.Errorf("pod %s of %v", name, owner)
			}
		}
		return nil
	})
	time.Sleep(5 * time.Second) // for a release that should not come
	got, err := e.GetClaim(e.ctx, e.namespace, claim)
	if err != nil || !slices.Contains(got.Devices, device) {
		t.Fatalf("its pods run, and the claim has %+v, %v", got, err)
	}

	old := map[types.UID]bool{}
	for name, pod := range before {
		old[pod.UID] = true
		e.deletePod(name)
	}
	e.runningAgain("app=db", 3, old)
	e.claimGone(claim)
	e.reservedFor(e.onlyClaim(), second)
}
