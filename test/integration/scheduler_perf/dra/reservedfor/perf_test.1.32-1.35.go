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

	perf "k8s.io/kubernetes/test/integration/scheduler_perf"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// In these releases, scheduler_perf has no option for that: a seam calls a variable.
// "carry bench" adds it to the unpatched tree, too. The allocator cannot be chosen.

func runIntegration(t *testing.T, config string, nodesCreated func(tCtx ktesting.TContext) error) {
	perf.NodesCreated = nodesCreated
	defer func() { perf.NodesCreated = nil }()
	perf.RunIntegrationPerfScheduling(t, config)
}

func runBenchmark(b *testing.B, config, topic string, nodesCreated func(tCtx ktesting.TContext) error) {
	perf.NodesCreated = nodesCreated
	defer func() { perf.NodesCreated = nil }()
	perf.RunBenchmarkPerfScheduling(b, config, topic, nil)
}
