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
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	dra "k8s.io/kubernetes/pkg/kubelet/cm/dra/plugin"
)

// checkDrivers returns an error if a driver is missing that has to prepare the claim. A pod
// that was added to the claim ends only after all drivers of the claim unprepared it, although they
// never prepared it.
func (cache *claimInfoCache) checkDrivers(claim *resourceapi.ResourceClaim) error {
	if info, exists := cache.get(claim.Name, claim.Namespace); exists && info.isPrepared() {
		return nil
	}
	if claim.Status.Allocation == nil {
		return nil
	}
	for _, result := range claim.Status.Allocation.Devices.Results {
		if _, err := dra.NewDRAPluginClient(result.Driver); err != nil {
			return fmt.Errorf("failed to get gRPC client for driver %s: %w", result.Driver, err)
		}
	}
	return nil
}
