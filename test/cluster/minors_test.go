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
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"kubernetes-dra/hack/pkg/cluster"
	"kubernetes-dra/hack/pkg/tree/ledger"
)

const (
	// upgradePath is the environment variable with the folders of programs that TestMinors goes
	// through. The first one is that of the cluster, BIN. It is set by "make test-upgrade UPGRADE=...".
	upgradePath = "UPGRADE_PATH"
	// gatesOff stands behind a folder whose programs get no feature gates.
	gatesOff = "#off"
	// kubeletSkew is how many minor releases a kubelet may be behind the API server.
	kubeletSkew = 3
	// simulatedDevices and realDevices are as many as claims have at once, so none may get lost.
	simulatedDevices, realDevices = 6, 2
	// tooMany is a number of pods that upstream has no place for in a claim, listable one for which it has.
	tooMany, listable = 300, 250
)

// TestMinors takes a cluster that runs from one release to the next ones, patched or not, component by
// component. The kubelet of the real node stays behind as long as Kubernetes allows that.
// Pods keep running, no field gets lost or another meaning, and no device is in two claims.
func TestMinors(t *testing.T) {
	path := filepath.SplitList(os.Getenv(upgradePath))
	if len(path) < 2 {
		t.Skipf("%s is not set: \"make test-upgrade UPGRADE=...\" does that", upgradePath)
	}
	onRealNode(t)
	var minors []int
	for _, step := range path {
		_, minor := versionOf(t, strings.TrimSuffix(step, gatesOff))
		minors = append(minors, minor)
	}
	w := &workloads{env: newEnv(t), on: shared.Options.Gates[gate]}
	w.create()
	kubelet := minors[0]
	for i := 1; i < len(path); i++ {
		w.use(path[i])
		for _, component := range []string{cluster.APIServer, cluster.ControllerManager, cluster.Scheduler} {
			w.replace(component)
		}
		w.tryNew(fmt.Sprintf("step-%d", i), "simulated")
		// With the minor release it goes together with the others.
		if last := i+1 == len(path); last || minors[i] == minors[i-1] || minors[i+1]-kubelet > kubeletSkew {
			kubelet = minors[i]
			w.replace(cluster.Kubelet)
			w.tryNew(fmt.Sprintf("step-%d-real", i), "real")
			if w.on && w.older == nil {
				w.createShared()
			}
		}
	}
	w.end()
}

// versionOf is the version of the programs in a folder, and its minor release without v1.
func versionOf(t *testing.T, bin string) (version string, minor int) {
	t.Helper()
	version, err := cluster.VersionOf(t.Context(), bin)
	if err != nil {
		t.Fatal(err)
	}
	return version, ledger.Minor(strings.Join(strings.Split(strings.TrimPrefix(version, "v"), ".")[:2], "."))
}

// workloads are what runs while components get replaced.
type workloads struct {
	*env
	class, realClass string
	// on is true if the components have the gate, or get it next.
	on bool
	// older and single are on the node with a kubelet, and run since there are patches. Only single
	// never gets another pod, for which the kubelet would prepare its claim once more.
	older, single *olderJob
	// pods are those on simulated nodes, by the name of their workload.
	pods map[string]int
	// consumers are the workloads that claims are reserved for.
	consumers map[string]cluster.Consumer
	// trainings is the kind that Kubernetes does not know.
	trainings schema.GroupVersionResource
	// uids are those of all pods, at the end of the step before.
	uids map[types.UID]string
}

// create starts what runs on any release.
func (w *workloads) create() {
	w.class, w.realClass = w.pool("simulated", simulatedDevices, "simulated"), w.pool("real", realDevices+1, "real")
	w.pods, w.consumers = map[string]int{"plain": 10}, map[string]cluster.Consumer{}
	w.claim("plain", w.class, nil)
	w.job("plain", 10, cluster.PodSpec("plain", ""), nil)
	w.running("plain", 10)
	if w.on {
		w.createShared()
	}
	w.uids = w.podUIDs(w.pods)
}

// createShared starts workloads that claims are reserved for: a Job and a Deployment by name, a
// StatefulSet with its UID, an object of a kind that Kubernetes does not know, and a Job on the node with a kubelet. One more pod has admin access to all devices.
func (w *workloads) createShared() {
	w.Helper()
	template := func(name string) (*metav1.LabelSelector, corev1.PodTemplateSpec) {
		labels := map[string]string{cluster.JobLabel: name}
		spec := cluster.PodSpec(name, "")
		spec.RestartPolicy = corev1.RestartPolicyAlways
		return &metav1.LabelSelector{MatchLabels: labels}, corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec}
	}
	w.claim("large", w.class, &cluster.Consumer{APIGroup: "batch", Resource: "jobs", Name: "large"})
	w.consumers["large"] = w.job("large", tooMany, cluster.PodSpec("large", ""), nil)

	w.claim("server", w.class, &cluster.Consumer{APIGroup: "apps", Resource: "deployments", Name: "server"})
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "server"}, Spec: appsv1.DeploymentSpec{Replicas: new(int32(3))}}
	deployment.Spec.Selector, deployment.Spec.Template = template("server")
	deployment, err := w.AppsV1().Deployments(w.namespace).Create(w.ctx, deployment, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.consumers["server"] = cluster.Consumer{APIGroup: "apps", Resource: "deployments", Name: "server", UID: deployment.UID}

	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "set"}, Spec: appsv1.StatefulSetSpec{Replicas: new(int32(3)), PodManagementPolicy: appsv1.ParallelPodManagement}}
	set.Spec.Selector, set.Spec.Template = template("set")
	if set, err = w.AppsV1().StatefulSets(w.namespace).Create(w.ctx, set, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	w.consumers["set"] = cluster.Consumer{APIGroup: "apps", Resource: "statefulsets", Name: "set", UID: set.UID}
	w.claim("set", w.class, new(w.consumers["set"]))

	w.trainings = w.defineTrainings()
	w.allowTrainings(w.trainings)
	w.claim("training", w.class, &cluster.Consumer{APIGroup: w.trainings.Group, Resource: w.trainings.Resource, Name: "training"})
	w.consumers["training"] = w.training(w.trainings, "training", "training", 3)

	w.older, w.single = w.olderJob("older", w.realClass), w.olderJob("single", w.realClass)
	w.older.run()
	w.single.run()
	w.pods["large"], w.pods["server"], w.pods["set"], w.pods["training"] = tooMany, 3, 3, 3
	for name, pods := range w.pods {
		w.running(name, pods)
	}
	for name, consumer := range w.consumers {
		w.reservedFor(name, consumer)
	}
	w.createMonitor()
	w.reportDevice("server")
	w.uids = w.podUIDs(w.pods)
}

// createMonitor starts a pod with admin access to all simulated devices.
func (w *workloads) createMonitor() {
	w.Helper()
	patch := `{"metadata":{"labels":{"resource.kubernetes.io/admin-access":"true"}}}`
	if _, err := w.CoreV1().Namespaces().Patch(w.ctx, w.namespace, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		w.Fatal(err)
	}
	if _, err := w.Claims(w.namespace).Create(w.ctx, w.AdminClaim("monitor", w.class, "All"), metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	w.job("monitor", 1, cluster.PodSpec("monitor", ""), nil)
	w.pods["monitor"] = 1
	w.running("monitor", 1)
}

// reportDevice writes the status of the device of a claim as a driver does.
func (w *workloads) reportDevice(claim string) {
	w.Helper()
	status, err := w.GetClaim(w.ctx, w.namespace, claim)
	if err != nil {
		w.Fatal(err)
	}
	device := strings.Split(status.Devices[0], "/")
	w.changeStatus(claim, "driver", func(status map[string]any) {
		status["devices"] = []any{map[string]any{
			"driver": device[0], "pool": device[1], "device": device[2],
			"data":        map[string]any{"port": int64(7), "rate": 0.5},
			"networkData": map[string]any{"interfaceName": "net1", "ips": []any{"10.9.8.7/24", "2001:db8::7/64"}, "hardwareAddress": "02:00:00:00:00:07"},
			"conditions": []any{map[string]any{
				"type": "Ready", "status": "True", "reason": "Attached", "message": "it works", "lastTransitionTime": "2026-01-02T03:04:05Z", "observedGeneration": int64(1),
			}},
		}}
	})
}

// use lets components be replaced by those of a step. Before upstream's, it does what
// docs/operations.md says about leaving.
func (w *workloads) use(step string) {
	w.Helper()
	bin, off := strings.CutSuffix(step, gatesOff)
	before := shared.Patched()
	version, minor := versionOf(w.T, bin)
	if before && !cluster.IsPatched(version) {
		if err := shared.Restart(w.ctx, cluster.Scheduler, map[string]bool{gate: false}); err != nil {
			w.Fatal(err)
		}
		w.patchJob("large", fmt.Sprintf(`{"spec":{"parallelism":%d}}`, listable))
		w.pods["large"] = listable
		w.running("large", listable)
		out, err := w.downgrade("--apply")
		w.Logf("kubectl dra downgrade --apply\n%s", out)
		if err != nil {
			w.Fatal(err)
		}
		w.consumers = map[string]cluster.Consumer{}
		w.uids = w.podUIDs(w.pods)
	}
	l, err := ledger.Load(repo)
	if err != nil {
		w.Fatal(err)
	}
	var gates map[string]bool
	if w.on = cluster.IsPatched(version) && !off; w.on {
		gates = featureGates(l, fmt.Sprintf("1.%d", minor))
	}
	// Components of the release before use these versions of the API, and the kubelet does so
	// until its own turn.
	shared.Options.RuntimeConfig = ""
	if minor >= 34 {
		shared.Options.RuntimeConfig = "resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true"
	}
	if err := shared.Use(w.ctx, bin, gates); err != nil {
		w.Fatal(err)
	}
	w.Logf("%s comes next, with %s=%t", version, gate, w.on)
}

// replace replaces one component, and looks at everything that was there.
func (w *workloads) replace(component string) {
	w.Helper()
	before, stored := w.asServed(), w.stored()
	if err := shared.Restart(w.ctx, component, nil); err != nil {
		w.Fatal(err)
	}
	if component == cluster.APIServer {
		client, err := shared.NewClient(w.ctx)
		if err != nil {
			w.Fatal(err)
		}
		w.Client = client
		w.rewrite(stored)
	}
	after := w.asServed()
	compared := 0
	for version, claims := range before {
		for name, claim := range claims {
			if now, ok := after[version][name]; !ok && after[version] != nil || ok && now != claim {
				w.Errorf("after %s was replaced, claim %s in version %s was\n%s\nand is\n%s", component, name, version, claim, now)
			}
			if after[version] != nil {
				compared++
			}
		}
	}
	if compared == 0 {
		w.Errorf("no version of the API was served before and after %s was replaced: %v, %v", component, before, after)
	}
	w.keepRunning(w.uids, w.older)
	for name, consumer := range w.consumers {
		w.reservedFor(name, consumer)
	}
	w.noDeviceTwice()
}

// asServed is what the claims are in every version of the API that is served, without metadata.
// Where there are no patches now, our fields are not compared.
func (w *workloads) asServed() map[string]map[string]string {
	w.Helper()
	served := map[string]map[string]string{}
	for _, version := range []string{"v1", "v1beta2", "v1beta1"} {
		resource := schema.GroupVersionResource{Group: "resource.k8s.io", Version: version, Resource: "resourceclaims"}
		if _, err := w.Discovery().ServerResourcesForGroupVersion(resource.GroupVersion().String()); err != nil {
			continue // It is not served.
		}
		claims, err := w.Dynamic.Resource(resource).Namespace(w.namespace).List(w.ctx, metav1.ListOptions{})
		if err != nil {
			w.Fatal(err)
		}
		served[version] = map[string]string{}
		for _, claim := range claims.Items {
			name := claim.GetName()
			delete(claim.Object, "metadata")
			removeNulls(claim.Object)
			if len(w.consumers) == 0 {
				unstructured.RemoveNestedField(claim.Object, "spec", "reservedFor")
				unstructured.RemoveNestedField(claim.Object, "status", "allocation", "reservedForAnyPod")
			}
			text, err := json.Marshal(claim.Object)
			if err != nil {
				w.Fatal(err)
			}
			served[version][name] = string(text)
		}
	}
	return served
}

// removeNulls removes fields that are null. Up to 1.33, adminAccess of a result is null if it is not set.
func removeNulls(value any) {
	switch value := value.(type) {
	case map[string]any:
		for name, field := range value {
			if removeNulls(field); field == nil {
				delete(value, name)
			}
		}
	case []any:
		for _, item := range value {
			removeNulls(item)
		}
	}
}

// noDeviceTwice checks that each device is in one claim, apart from admin access.
func (w *workloads) noDeviceTwice() {
	w.Helper()
	claims, err := w.Claims(w.namespace).List(w.ctx, metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	owner := map[string]string{}
	for i := range claims.Items {
		claim := &claims.Items[i]
		if claim.GetName() == "monitor" {
			continue
		}
		status, err := cluster.ReadClaim(claim)
		if err != nil {
			w.Fatal(err)
		}
		for _, device := range status.Devices {
			if other := owner[device]; other != "" {
				w.Errorf("device %s is in claims %s and %s", device, other, claim.GetName())
			}
			owner[device] = claim.GetName()
		}
	}
}

// tryNew lets a Job of three pods get a device, and give it back. With the gate, its claim is reserved for it.
func (w *workloads) tryNew(name, nodes string) {
	w.Helper()
	class, consumer := w.class, (*cluster.Consumer)(nil)
	if nodes == "real" {
		class = w.realClass
	}
	if w.on {
		consumer = &cluster.Consumer{APIGroup: "batch", Resource: "jobs", Name: name}
	}
	w.claim(name, class, consumer)
	job := w.job(name, 3, cluster.PodSpec(name, untilTold), nil)
	w.running(name, 3)
	if consumer != nil {
		w.reservedFor(name, job)
	} else {
		w.listed(name, 3)
	}
	w.noDeviceTwice()
	w.deleteJob(name)
	w.podsOf(name, 0)
	w.free(name)
	w.deleteClaim(name)
	w.gone(name)
	if nodes == "real" && w.older != nil {
		w.prepared(w.older.claim(), w.single.claim())
	}
}

// end lets everything end, and checks that all devices can be had again.
func (w *workloads) end() {
	w.Helper()
	if w.older != nil {
		w.single.check()
		w.single.delete()
		w.free("single")
		w.prepared(w.older.claim())
		w.older.check()
		w.older.another()
		w.running("older", 2)
		w.older.delete()
		w.free("older")
		w.prepared()
	}
	for _, job := range []string{"large", "plain", "monitor"} {
		if w.pods[job] > 0 {
			w.deleteJob(job)
		}
	}
	if w.pods["server"] > 0 {
		if err := w.AppsV1().Deployments(w.namespace).Delete(w.ctx, "server", metav1.DeleteOptions{}); err != nil {
			w.Fatal(err)
		}
		if err := w.AppsV1().StatefulSets(w.namespace).Delete(w.ctx, "set", metav1.DeleteOptions{}); err != nil {
			w.Fatal(err)
		}
		if err := w.Dynamic.Resource(w.trainings).Namespace(w.namespace).Delete(w.ctx, "training", metav1.DeleteOptions{}); err != nil {
			w.Fatal(err)
		}
	}
	for name := range w.pods {
		w.free(name)
		w.deleteClaim(name)
		w.gone(name)
	}
	for i := range simulatedDevices {
		name := fmt.Sprintf("again-%d", i)
		w.claim(name, w.class, nil)
		w.job(name, 1, cluster.PodSpec(name, ""), nil)
		w.running(name, 1)
	}
	w.noDeviceTwice()
}
