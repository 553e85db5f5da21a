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

package thirdparty

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

var kueueController = controller{
	name:      "kueue",
	module:    "sigs.k8s.io/kueue",
	namespace: "kueue-system",
	account:   "kueue-controller-manager",
	// That would be an API server of its own.
	args:         []string{"--feature-gates=VisibilityOnDemand=false"},
	certificates: "/etc/kueue/metrics/certs",
}

// TestKueue covers Jobs that share one device each and take turns. A Job that is preempted is suspended, and
// not finished: its annotation gives its device to the Job that took its place.
func TestKueue(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("Kueue reads a certificate from /etc, so it runs in a mount namespace; that takes root")
	}
	e := newEnv(t, kueueController)
	e.devices(1)
	const queues = "testdata/kueue-queue.yaml"
	e.apply(queues)
	e.Cleanup(func() {
		// They have finalizers that Kueue removes, so it has to run as long.
		e.ctx = context.Background()
		e.kubectl("delete", "--ignore-not-found", "--timeout=1m", "--filename="+queues)
	})
	running := func(job string) {
		t.Helper()
		e.pods("batch.kubernetes.io/job-name="+job, 3)
		if c := e.claims()[job]; !c.ReservedForAnyPod || len(c.Workloads()) != 1 || c.Consumers[0].Name != job {
			t.Errorf("while Job %s runs, its claim is %+v", job, c.ClaimStatus)
		}
	}
	e.apply("testdata/kueue-job.yaml", "low")
	running("low")
	e.apply("testdata/kueue-job.yaml", "high")
	e.eventually("a pod of Job high says who has its device", func() error {
		n, err := e.CountPods(e.ctx, e.namespace, "batch.kubernetes.io/job-name=high")
		if err != nil {
			return err
		}
		if !strings.Contains(n.Waiting, `low for jobs.batch "low", not used since`) {
			return fmt.Errorf("%+v", n)
		}
		t.Logf("it says: %s", n.Waiting)
		return nil
	})
	running("high")
	e.free("low")
	e.showClaims()

	e.end(corev1.PodSucceeded, "batch.kubernetes.io/job-name=high")
	running("low")
	e.free("high")
	e.end(corev1.PodSucceeded, "batch.kubernetes.io/job-name=low")
	e.free("low")
}
