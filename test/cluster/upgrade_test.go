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
	"context"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"kubernetes-dra/hack/pkg/cluster"
)

// unpatchedBin is the environment variable with the folder of the same release without the
// patches. It is set by "make test-upgrade".
const unpatchedBin = "UNPATCHED_BIN"

// TestUpgrade replaces the components of a cluster that runs by unpatched ones, as docs/operations.md
// says, and then by patched ones again. Pods keep running, and no device is lost.
func TestUpgrade(t *testing.T) {
	unpatched := os.Getenv(unpatchedBin)
	if unpatched == "" {
		t.Skipf("%s is not set: \"make test-upgrade\" does that", unpatchedBin)
	}
	onRealNode(t)
	e := newEnv(t)
	patched, gates := shared.Options.Bin, shared.Options.Gates
	t.Cleanup(func() {
		if err := shared.Use(context.Background(), patched, gates); err != nil {
			t.Fatal(err)
		}
		for _, component := range components {
			if err := shared.Restart(context.Background(), component, nil); err != nil {
				t.Error(err)
			}
		}
	})

	// What was there before the feature was used, and what uses it. There are as many devices as
	// claims: one that gets lost is missed by the next claim.
	class := e.pool("simulated", 5, "simulated")
	realClass := e.pool("real", 2, "real")
	e.claim("plain", class, nil)
	e.job("plain", 10, cluster.PodSpec("plain", ""), nil)
	sizes := map[string]int{"small": 20, "large": 300, "idle": 2, "forgotten": 2}
	jobs := map[string]cluster.Consumer{}
	for name, pods := range sizes {
		e.claim(name, class, &cluster.Consumer{APIGroup: "batch", Resource: "jobs", Name: name})
		jobs[name] = e.job(name, int32(pods), cluster.PodSpec(name, ""), nil)
	}
	older := e.olderJob("older", realClass)
	older.run()
	e.running("plain", 10)
	for name, pods := range sizes {
		e.running(name, pods)
		e.reservedFor(name, jobs[name])
	}
	e.patchJob("idle", `{"spec":{"suspend":true}}`)
	e.running("idle", 0)

	// As the documents say.
	if err := shared.Restart(e.ctx, cluster.Scheduler, map[string]bool{gate: false}); err != nil {
		t.Fatal(err)
	}
	e.patchJob("large", `{"spec":{"parallelism":250}}`)
	e.running("large", 250)
	out, err := e.downgrade("--apply")
	t.Logf("kubectl dra downgrade --apply\n%s", out)
	if err != nil {
		t.Fatal(err)
	}
	// Somebody did not do it for this one.
	e.changeStatus("forgotten", "kube-scheduler", func(status map[string]any) {
		status["reservedFor"] = []any{map[string]any{"apiGroup": "batch", "resource": "jobs", "name": "forgotten", "uid": string(jobs["forgotten"].UID)}}
	})
	running := map[string]int{"plain": 10, "small": 20, "large": 250, "forgotten": 2}
	before := e.podUIDs(running)

	e.free("idle")
	e.swap(unpatched, nil)
	kubectl(t, "delete", "clusterrolebindings,clusterroles", "system:kube-scheduler-workloads",
		"system:resource-claim-controller-workloads", "system:resource-claim-controller-aggregated-workloads")
	e.keepRunning(before, older)
	for name, pods := range map[string]int{"plain": 10, "small": 20, "large": 250} {
		e.listed(name, pods)
	}
	for _, name := range []string{"plain", "small", "older", "forgotten"} {
		e.touch(name)
		if fields := e.fields(name); fields != "" {
			t.Errorf("claim %s still has %s after upstream's API server wrote it", name, fields)
		}
	}
	e.keepRunning(before, older)

	// A pod that starts now gets listed, and may use the devices.
	e.deletePod(e.anyPod("small"))
	e.running("small", 20)
	e.listed("small", 20)
	if pod := older.another(); pod != "" {
		e.running("older", 2)
		e.listed("older", 2)
	}

	// Devices become free when their pods end.
	for _, name := range []string{"small", "plain"} {
		e.deleteJob(name)
		e.free(name)
	}
	e.end("older")
	e.free("older")
	e.prepared()
	e.claim("next", class, nil)
	e.job("next", 3, cluster.PodSpec("next", ""), nil)
	e.running("next", 3)

	// Nobody would ever release the forgotten one. The command works with this server, too.
	e.deleteJob("forgotten")
	e.podsOf("forgotten", 0)
	status, err := e.GetClaim(e.ctx, e.namespace, "forgotten")
	if err != nil {
		t.Fatal(err)
	}
	action := " release "
	if len(status.Consumers) > 1 {
		// Upstream's controller listed the pods, too. It removes none beside the Job, which it does
		// not know, but all of them once that is gone.
		action = " list "
	}
	if out, err = e.downgrade("--apply"); err == nil || !strings.Contains(err.Error(), "the API server is one of upstream") || !strings.Contains(out, action) {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err = e.downgrade("--apply", "--on-upstream"); err != nil || !strings.Contains(out, action) || !strings.Contains(out, "jobs.batch/forgotten is removed") {
		t.Errorf("%v\n%s", err, out)
	}
	e.free("forgotten")

	before = e.podUIDs(map[string]int{"large": 250, "next": 3})
	e.swap(patched, gates)
	e.keepRunning(before, nil)
	out, err = e.downgrade("--back", "--apply")
	t.Logf("kubectl dra downgrade --back --apply\n%s", out)
	if err != nil {
		t.Error(err)
	}
	for _, name := range []string{"large", "next"} {
		e.deleteJob(name)
		e.free(name)
	}
	// All devices are there for new claims.
	for i := range 5 {
		name := fmt.Sprintf("again-%d", i)
		e.claim(name, class, &cluster.Consumer{APIGroup: "batch", Resource: "jobs", Name: name})
		job := e.job(name, 3, cluster.PodSpec(name, ""), nil)
		e.running(name, 3)
		e.reservedFor(name, job)
	}
}

// components are those with patches, in the order in which Kubernetes wants them to be replaced.
var components = []string{cluster.APIServer, cluster.ControllerManager, cluster.Scheduler, cluster.Kubelet}

// use lets components that get started from now on be those of a folder.
func (e *env) use(bin string, gates map[string]bool) {
	e.Helper()
	if err := shared.Use(e.ctx, bin, gates); err != nil {
		e.Fatal(err)
	}
}

// swap replaces all components.
func (e *env) swap(bin string, gates map[string]bool) {
	e.Helper()
	e.use(bin, gates)
	for _, component := range components {
		if err := shared.Restart(e.ctx, component, nil); err != nil {
			e.Fatal(err)
		}
	}
}

// podUIDs are the pods of Jobs.
func (e *env) podUIDs(jobs map[string]int) map[types.UID]string {
	e.Helper()
	uids := map[types.UID]string{}
	for job, pods := range jobs {
		e.podsOf(job, pods)
		for name, pod := range e.pods(job) {
			uids[pod.UID] = name
		}
	}
	return uids
}

// keepRunning checks that all pods still run, and that the one on the real node has its container.
func (e *env) keepRunning(before map[types.UID]string, older *olderJob) {
	e.Helper()
	pods, err := e.CoreV1().Pods(e.namespace).List(e.ctx, metav1.ListOptions{})
	if err != nil {
		e.Fatal(err)
	}
	left := maps.Clone(before)
	for _, pod := range pods.Items {
		if pod.Status.Phase == "Running" && pod.DeletionTimestamp == nil {
			delete(left, pod.UID)
		}
	}
	if len(left) > 0 {
		e.Errorf("%d of %d pods do not run anymore: %v", len(left), len(before), left)
	}
	if older != nil {
		older.check()
	}
}

func (e *env) anyPod(job string) string {
	e.Helper()
	for name := range e.pods(job) {
		return name
	}
	e.Fatalf("Job %s has no pods", job)
	return ""
}

// touch makes the API server write a claim.
func (e *env) touch(name string) {
	e.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"touched":%q}}}`, e.versions(name))
	if _, err := e.Claims(e.namespace).Patch(e.ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		e.Fatal(err)
	}
}

// fields are those of the carry which a claim has.
func (e *env) fields(name string) string {
	e.Helper()
	claim, err := e.Claims(e.namespace).Get(e.ctx, name, metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	var fields []string
	for _, path := range [][]string{{"spec", "reservedFor"}, {"status", "allocation", "reservedForAnyPod"}} {
		if _, found, err := unstructured.NestedFieldNoCopy(claim.Object, path...); err != nil || found {
			fields = append(fields, strings.Join(path, "."))
		}
	}
	return strings.Join(fields, " and ")
}

// changeStatus changes the status of a claim in the name of a field manager.
func (e *env) changeStatus(name, manager string, change func(status map[string]any)) {
	e.Helper()
	claim, err := e.Claims(e.namespace).Get(e.ctx, name, metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	status, found := claim.Object["status"].(map[string]any)
	if !found {
		status = map[string]any{}
		claim.Object["status"] = status
	}
	change(status)
	if _, err := e.Claims(e.namespace).UpdateStatus(e.ctx, claim, metav1.UpdateOptions{FieldManager: manager}); err != nil {
		e.Fatal(err)
	}
}
