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

package dynamicresources

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
)

// This file contains what reservedfor_devices.go needs to know about taints of devices and what is
// different in other Kubernetes releases.

// resourceSlices returns all slices, with the taints of DeviceTaintRules.
func (pl *DynamicResources) resourceSlices() ([]*resourceapi.ResourceSlice, error) {
	return pl.draManager.ResourceSlices().ListWithDeviceTaintRules()
}

// untoleratedTaint returns a taint of the device because of which it would not be allocated
// again, empty if there is none.
func (pl *DynamicResources) untoleratedTaint(device *resourceapi.Device, result *resourceapi.DeviceRequestAllocationResult) string {
	if !pl.fts.EnableDRADeviceTaints {
		// The allocator ignores taints, too.
		return ""
	}
	for _, taint := range device.Taints {
		if taint.Effect != resourceapi.DeviceTaintEffectNoSchedule && taint.Effect != resourceapi.DeviceTaintEffectNoExecute {
			continue
		}
		if !tolerates(result, taint) {
			return fmt.Sprintf("%s=%s:%s", taint.Key, taint.Value, taint.Effect)
		}
	}
	return ""
}

// tolerates returns true if the allocation tolerates the taint.
func tolerates(result *resourceapi.DeviceRequestAllocationResult, taint resourceapi.DeviceTaint) bool {
	for _, toleration := range result.Tolerations {
		if resourceclaim.ToleratesTaint(toleration, taint) {
			return true
		}
	}
	return false
}
