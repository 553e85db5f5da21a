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

// Package reservedfor has integration tests for claims that are reserved for a
// workload instead of for each pod (KEP-5194): a real etcd and API server with RBAC,
// the scheduler, the resourceclaim controller and the controllers of the
// workloads. There is no kubelet, a small agent does what it would do to the
// status of pods.
package reservedfor

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"k8s.io/kubernetes/test/integration/framework"
)

func TestMain(m *testing.M) {
	// Tests in the same cluster mostly wait, for instance for the controller's pause before it
	// deallocates. How many CPUs there are says nothing about how many may do that at the same time.
	if err := flag.Set("test.parallel", "8"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	framework.EtcdMain(m.Run)
}
