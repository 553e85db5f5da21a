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

package dra

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	resourceapi "k8s.io/api/resource/v1"
)

// TestPodWithoutDriver checks that a pod can be deleted which never started because the node does
// not have one of its drivers.
func TestPodWithoutDriver(t *testing.T) {
	for name, test := range map[string]struct{ first, second []string }{
		"no driver":        {first: []string{"missing-driver"}},
		"one of a claim":   {first: []string{driverName, "missing-driver"}},
		"one of the pod":   {first: []string{driverName}, second: []string{"missing-driver"}},
		"before the other": {first: []string{"missing-driver"}, second: []string{driverName}},
	} {
		t.Run(name, func(t *testing.T) {
			claims := map[string][]string{claimName: test.first}
			pod := genTestPodWithClaims(claimName)
			if test.second != nil {
				claims["other-claim"] = test.second
				pod = genTestPodWithClaims(claimName, "other-claim")
			}
			kubelet := newManagerTest(t)
			for claimName, drivers := range claims {
				claim := genTestClaim(claimName, drivers[0], deviceName, string(pod.UID))
				for _, driver := range drivers[1:] {
					result := claim.Status.Allocation.Devices.Results[0]
					result.Driver = driver
					claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results, result)
				}
				claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}}
				kubelet.setClaim(claim)
			}

			require.ErrorContains(t, kubelet.manager.PrepareResources(kubelet, pod), "missing-driver")
			require.NoError(t, kubelet.manager.UnprepareResources(kubelet, pod))
			assert.False(t, kubelet.manager.PodMightNeedToUnprepareResources(pod.UID), "deleted pod is known")
			assert.Equal(t, uint32(0), kubelet.driver.prepareResourceCalls.Load(), "prepare calls")
		})
	}
}
