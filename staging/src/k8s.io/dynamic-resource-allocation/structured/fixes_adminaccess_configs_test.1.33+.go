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

package structured

import (
	"fmt"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestConfigOfManyRequests covers that an allocation has each configuration once, for however many requests it is.
// More than 64 of them would be refused by the API server, for ever.
func TestConfigOfManyRequests(t *testing.T) {
	config := func(requests ...string) resourceapi.DeviceClaimConfiguration {
		return resourceapi.DeviceClaimConfiguration{
			Requests: requests,
			DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
				Driver: adminDriver, Parameters: runtime.RawExtension{Raw: []byte(fmt.Sprintf("%q", requests))},
			}},
		}
	}
	alternatives := func(name string) resourceapi.DeviceRequest {
		request := resourceapi.DeviceRequest{Name: name}
		for _, sub := range []string{"s-0", "s-1"} {
			request.FirstAvailable = append(request.FirstAvailable, resourceapi.DeviceSubRequest{
				Name: sub, DeviceClassName: "class", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
			})
		}
		return request
	}
	for name, tc := range map[string]struct {
		requests []resourceapi.DeviceRequest
		configs  []resourceapi.DeviceClaimConfiguration
		expect   int
	}{
		"requests":                     {adminClaims("1 1 1")[0].Spec.Devices.Requests, []resourceapi.DeviceClaimConfiguration{config("r-0", "r-1", "r-2"), config("r-1", "r-2"), config("r-2"), config()}, 4},
		"alternatives":                 {[]resourceapi.DeviceRequest{alternatives("r-0"), alternatives("r-1")}, []resourceapi.DeviceClaimConfiguration{config("r-0/s-0", "r-1/s-0")}, 1},
		"alternatives and requests":    {[]resourceapi.DeviceRequest{alternatives("r-0"), alternatives("r-1")}, []resourceapi.DeviceClaimConfiguration{config("r-0/s-0", "r-1")}, 1},
		"alternatives that are unused": {[]resourceapi.DeviceRequest{alternatives("r-0"), alternatives("r-1")}, []resourceapi.DeviceClaimConfiguration{config("r-0/s-1", "r-1/s-1")}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			claims := adminClaims("")
			claims[0].Spec.Devices.Requests = tc.requests
			claims[0].Spec.Devices.Config = tc.configs
			slices := []*resourceapi.ResourceSlice{adminSlice("a", "b", "c")}
			for implementation, results := range allocateWithFeatures(t, Features{PrioritizedList: true}, slices, nil, nil, claims) {
				if len(results) != 1 {
					t.Errorf("%s: want one result, got %v", implementation, results)
					continue
				}
				if got := results[0].Devices.Config; len(got) != tc.expect {
					t.Errorf("%s: want %d configurations, got %v", implementation, tc.expect, got)
				}
			}
		})
	}
}
