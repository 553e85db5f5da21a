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
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/utils/ptr"

	"kubernetes-dra/cmd/kubectl-dra/pkg/downgrade"
	"kubernetes-dra/cmd/kubectl-dra/pkg/trycases"
	"kubernetes-dra/hack/pkg/cluster"
)

// TestDowngrade takes claims to where a release of upstream understands them, while their pods
// run, and back again.
func TestDowngrade(t *testing.T) {
	e := newEnv(t)
	class := e.devices(3, "simulated")
	jobs := map[string]cluster.Consumer{}
	for name, pods := range map[string]int32{"small": 20, "large": 300, "idle": 2} {
		e.claim(name, class, &cluster.Consumer{APIGroup: "batch", Resource: "jobs", Name: name})
		jobs[name] = e.job(name, pods, cluster.PodSpec(name, ""), nil)
	}
	for name, pods := range map[string]int{"small": 20, "large": 300, "idle": 2} {
		e.running(name, pods)
		e.reservedFor(name, jobs[name])
	}
	// A suspended Job keeps its claim.
	e.patchJob("idle", `{"spec":{"suspend":true}}`)
	e.running("idle", 0)
	e.reservedFor("idle", jobs["idle"])

	t.Cleanup(func() {
		if err := shared.Restart(context.Background(), cluster.Scheduler, nil); err != nil {
			t.Error(err)
		}
	})
	if err := shared.Restart(e.ctx, cluster.Scheduler, map[string]bool{gate: false}); err != nil {
		t.Fatal(err)
	}

	// Another controller has a claim for something that is no pod.
	e.claim("foreign", class, nil)
	e.changeStatus("foreign", "virt-controller", func(status map[string]any) {
		status["allocation"] = map[string]any{"devices": map[string]any{"results": []any{map[string]any{
			"request": "device", "driver": "foreign.example.com", "pool": "pool", "device": "device",
		}}}}
		status["reservedFor"] = []any{map[string]any{"apiGroup": "kubevirt.io", "resource": "virtualmachines", "name": "vm", "uid": "vm-uid"}}
	})

	before := e.versions("small", "large", "idle", "foreign")
	const tooMany = "one claim has pods that cannot be listed"
	out, err := e.downgrade()
	t.Logf("kubectl dra downgrade\n%s", out)
	if err == nil || !strings.Contains(err.Error(), tooMany) {
		t.Errorf("%v", err)
	}
	for _, part := range []string{"virtualmachines.kubevirt.io/vm was listed by virt-controller, not by the carry", " leave ", " release ", " list ", " stop "} {
		if !strings.Contains(out, part) {
			t.Errorf("no %q in\n%s", part, out)
		}
	}
	said := out
	if out, err = e.downgrade("--apply", "--dry-run=server"); err == nil || !strings.Contains(err.Error(), tooMany) || !sameTable(out, said) {
		t.Errorf("%v\n%s", err, out)
	}
	if after := e.versions("small", "large", "idle", "foreign"); after != before {
		t.Errorf("it changed claims without --apply, or with --dry-run: %s, %s", before, after)
	}

	out, err = e.downgrade("--apply")
	t.Logf("kubectl dra downgrade --apply\n%s", out)
	if err == nil || !strings.Contains(err.Error(), tooMany) {
		t.Errorf("%v", err)
	}
	if !sameTable(out, said) {
		t.Errorf("it said something else before:\n%s", out)
	}
	e.listed("small", 20)
	e.free("idle")
	e.reservedFor("large", jobs["large"])
	if after := e.versions("foreign"); !strings.HasSuffix(before, " "+after) {
		t.Errorf("it changed the claim of another controller: %s, %s", before, after)
	}

	// What an administrator does about the rest.
	e.patchJob("large", `{"spec":{"parallelism":250}}`)
	e.running("large", 250)
	if out, err = e.downgrade("--apply"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	e.listed("large", 250)
	if out, err = e.downgrade("--apply"); err != nil || strings.Contains(out, " list ") {
		t.Errorf("there was something to do in the next run: %v\n%s", err, out)
	}

	// A new pod takes the place of one that is gone, as it does upstream.
	e.deletePod(e.anyPod("small"))
	e.eventually("the pod was replaced", func() error {
		n, err := e.CountPods(e.ctx, e.namespace, cluster.JobLabel+"=small")
		if err == nil && (n.All != 20 || n.Running != 20) {
			err = fmt.Errorf("%+v", n)
		}
		return err
	})
	e.listed("small", 20)
	e.deleteJob("small")
	e.free("small")

	// Back again, with the scheduler as it was.
	if err := shared.Restart(e.ctx, cluster.Scheduler, nil); err != nil {
		t.Fatal(err)
	}
	out, err = e.downgrade("--back", "--apply")
	t.Logf("kubectl dra downgrade --back --apply\n%s", out)
	if err != nil {
		t.Error(err)
	}
	e.patchJob("large", `{"spec":{"parallelism":300}}`)
	e.running("large", 300)
	e.eventually("the workload stands for its pods again", func() error {
		status, err := e.GetClaim(e.ctx, e.namespace, "large")
		if err == nil && (len(status.Consumers) != 1 || status.Consumers[0] != jobs["large"]) {
			err = fmt.Errorf("%d consumers, %v", len(status.Consumers), status.Workloads())
		}
		return err
	})
	if out, err = e.downgrade("--back"); err != nil || !strings.HasPrefix(out, "No ResourceClaim") {
		t.Errorf("%v\n%s", err, out)
	}
	e.deleteJob("large")
	e.free("large")
}

// sameTable compares what is in front of the last, empty, line.
func sameTable(a, b string) bool {
	a, _, _ = strings.Cut(a, "\n\n")
	b, _, _ = strings.Cut(b, "\n\n")
	return strings.TrimSpace(a) == strings.TrimSpace(b)
}

// downgrade runs the command for the namespace of the test.
func (e *env) downgrade(args ...string) (string, error) {
	e.Helper()
	config := genericclioptions.NewConfigFlags(true)
	config.KubeConfig = ptr.To(shared.Kubeconfig())
	return trycases.Verb(e.ctx, downgrade.NewCommand, config, e.namespace, args...)
}

// listed waits until a claim is reserved for so many pods, and for nothing else.
func (e *env) listed(claim string, pods int) {
	e.Helper()
	e.eventually(fmt.Sprintf("claim %s is reserved for %d pods", claim, pods), func() error {
		status, err := e.GetClaim(e.ctx, e.namespace, claim)
		if err == nil && (!status.Allocated || len(status.Consumers) != pods || len(status.Workloads()) > 0) {
			err = fmt.Errorf("allocated %v, %d consumers, %v", status.Allocated, len(status.Consumers), status.Workloads())
		}
		return err
	})
}

// versions are the ResourceVersions of claims.
func (e *env) versions(claims ...string) string {
	e.Helper()
	var versions []string
	for _, claim := range claims {
		status, err := e.GetClaim(e.ctx, e.namespace, claim)
		if err != nil {
			e.Fatal(err)
		}
		versions = append(versions, status.ResourceVersion)
	}
	return strings.Join(versions, " ")
}

func (e *env) patchJob(name, patch string) {
	e.Helper()
	if _, err := e.BatchV1().Jobs(e.namespace).Patch(e.ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		e.Fatal(err)
	}
}
