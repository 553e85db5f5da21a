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
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/kubernetes/pkg/scheduler"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"
	ktesting "k8s.io/kubernetes/test/utils/client-go/ktesting"
)

// How scheduler_perf gets used differs between Kubernetes releases.

// withNodesCreated sets the function that is called when nodes were created.
func withNodesCreated(cb func(tCtx ktesting.TContext) error) perf.SchedulerPerfOption {
	return perf.WithNodeUpdateFn(func(tCtx ktesting.TContext, _ *scheduler.Scheduler, _ *perf.Workload, _ *v1.NodeList) error {
		return cb(tCtx)
	})
}

func runIntegration(t *testing.T, config string, nodesCreated func(tCtx ktesting.TContext) error) {
	perf.RunIntegrationPerfScheduling(t, config, withNodesCreated(nodesCreated))
}

func runBenchmark(b *testing.B, config, topic string, nodesCreated func(tCtx ktesting.TContext) error) {
	// The default one.
	structured.EnableAllocators("incubating")
	defer structured.EnableAllocators()
	perf.RunBenchmarkPerfScheduling(b, config, topic, nil, withNodesCreated(nodesCreated))
}
