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
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"kubernetes-dra/hack/pkg/cluster"
)

// idleClaims is how many claims of a suspended Job TestDowngradeIdle has.
const idleClaims = 1000

// TestDowngradeIdle measures how long kubectl dra downgrade takes to give up many claims that nobody uses. The figure
// is in docs/operations.md. It fails if one of them keeps its devices.
func TestDowngradeIdle(t *testing.T) {
	if os.Getenv("DRIVER_CHECK") != "true" {
		t.Skip("it measures: make test-drivers")
	}
	e := newEnv(t)
	class := e.devices(1, "simulated")
	consumer := &cluster.Consumer{APIGroup: "batch", Resource: "jobs", Name: "idle"}
	e.claim("idle", class, consumer)
	job := e.job("idle", 1, cluster.PodSpec("idle", ""), nil)
	e.running("idle", 1)
	e.reservedFor("idle", job)
	e.patchJob("idle", `{"spec":{"suspend":true}}`)
	e.running("idle", 0)
	e.reservedFor("idle", job)
	first, err := e.Claims(e.namespace).Get(e.ctx, "idle", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	allocated := first.Object["status"].(map[string]any)
	for i := 1; i < idleClaims; i++ {
		name := fmt.Sprintf("idle-%d", i)
		e.claim(name, class, consumer)
		e.changeStatus(name, "kube-scheduler", func(status map[string]any) { maps.Copy(status, runtime.DeepCopyJSON(allocated)) })
	}
	start := time.Now()
	out, err := e.downgrade("--apply")
	took := time.Since(start)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	t.Logf("kubectl dra downgrade --apply took %s for %d claims, and ends with\n%s", took.Round(100*time.Millisecond), idleClaims, strings.Join(lines[max(0, len(lines)-5):], "\n"))
	if err != nil {
		t.Error(err)
	}
	list, err := e.Claims(e.namespace).List(e.ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != idleClaims {
		t.Fatalf("%d claims, %v", len(list.Items), err)
	}
	for i := range list.Items {
		claim := &list.Items[i]
		status, err := cluster.ReadClaim(claim)
		if err != nil {
			t.Fatal(err)
		}
		if !status.Free() {
			t.Fatalf("claim %s is not free: %+v", claim.GetName(), status)
		}
	}
}
