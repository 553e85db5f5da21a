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
	"k8s.io/kubernetes/test/utils/ktesting"
)

// How scheduler_perf gets used differs between Kubernetes releases. Benchmarks exist
// only here.

func withNodesCreated(cb func(tCtx ktesting.TContext) error) perf.SchedulerPerfOption {
	return perf.WithNodeUpdateFn(func(tCtx ktesting.TContext, _ *scheduler.Scheduler, _ *perf.Workload, _ *v1.NodeList) error {
		return cb(tCtx)
	})
}

// runIntegration runs the small workloads and calls the function for each of them when
// its nodes exist.
func runIntegration(t *testing.T, nodesCreated func(tCtx ktesting.TContext) error) {
	perf.RunIntegrationPerfScheduling(t, "integration-config.yaml", withNodesCreated(nodesCreated))
}

// BenchmarkPerfScheduling has to contain exactly this word to be picked up by
// benchmark jobs.
func BenchmarkPerfScheduling(b *testing.B) {
	// The default allocator.
	structured.EnableAllocators("incubating")
	defer structured.EnableAllocators()
	perf.RunBenchmarkPerfScheduling(b, "performance-config.yaml", "dra_reservedfor", nil, withNodesCreated(func(tCtx ktesting.TContext) error {
		return prepare(tCtx, func(r *report) { writeReport(tCtx, r) })
	}))
}

// BenchmarkPerfSchedulingUpstream runs upstream's workloads, with the same
// measurements as for ours.
func BenchmarkPerfSchedulingUpstream(b *testing.B) {
	structured.EnableAllocators("incubating")
	defer structured.EnableAllocators()
	b.Chdir("..")
	perf.RunBenchmarkPerfScheduling(b, "performance-config.yaml", "dra_upstream", nil, perf.WithPrepareFn(func(tCtx ktesting.TContext) error {
		return startCollector(tCtx, "test", func(r *report) { writeReport(tCtx, r) })
	}))
}
