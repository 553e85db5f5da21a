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

package devicetainteviction

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	v1 "k8s.io/api/core/v1"
)

// TestReservedForExtendedResource checks that the claim for extended resources of a pod is not
// in the index: it lists its pod.
func TestReservedForExtendedResource(t *testing.T) {
	pod := changePod(workloadPod1, func(pod *v1.Pod) {
		pod.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{ResourceClaimName: "extended"}
	})
	names, err := podByClaimIndexFunc(pod)
	require.NoError(t, err)
	assert.Equal(t, []string{namespace + "/" + claimName}, names)
}
