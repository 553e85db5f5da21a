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

package resourceclaim

import (
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestKeepPodGroupReference has claims that a later release reserved for a PodGroup. This one
// cannot know whether it still exists.
func TestKeepPodGroupReference(t *testing.T) {
	type refs = []resourceapi.ResourceClaimConsumerReference

	for name, test := range map[string]keepTest{
		"podgroup": {
			claim:        workloadClaim(podGroupRef),
			expect:       refs{podGroupRef},
			expectDelay:  defaultRetryInterval,
			expectEvents: []string{"Warning UnknownWorkload"},
		},
		"podgroup-claim-deleted": {
			claim:          deleted(workloadClaim(podGroupRef)),
			expectRequests: []string{"list pods"},
		},
		"podgroup-claim-deleted-with-pods": {
			claim:       deleted(workloadClaim(podGroupRef)),
			objects:     []runtime.Object{runningPod},
			expect:      refs{podGroupRef},
			expectDelay: defaultNoticePeriod,
		},
	} {
		t.Run(name, test.run)
	}
}
