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
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
)

// This file contains what reservedfor_unfit.go needs to know about taints of devices. Where they
// are in the API is in reservedfor_compat.go.

// resourceSlices returns all slices, with the taints of DeviceTaintRules.
func (pl *DynamicResources) resourceSlices() ([]*resourceapi.ResourceSlice, error) {
	return pl.draManager.ResourceSlices().ListWithDeviceTaintRules()
}

// watchResourceSlices registers a handler for what resourceSlices returns. It does nothing if something
// else than the usual cache provides the slices, like in the Cluster Autoscaler, or nothing at all, like in
// upstream's tests of the framework.
func (pl *DynamicResources) watchResourceSlices(handler cache.ResourceEventHandler) error {
	if pl.draManager == nil {
		return nil
	}
	lister, ok := pl.draManager.ResourceSlices().(*resourceSliceLister)
	if !ok {
		return nil
	}
	_, err := lister.tracker.AddEventHandler(handler)
	return err
}

// untoleratedTaint returns a taint of the device because of which it would not be allocated
// again, empty if there is none.
func (pl *DynamicResources) untoleratedTaint(claim *resourceapi.ResourceClaim, device *resourceapi.Device, result *resourceapi.DeviceRequestAllocationResult) string {
	if !pl.fts.EnableDRADeviceTaints {
		// The allocator ignores taints, too.
		return ""
	}
	for _, taint := range taintsOf(device) {
		if taint.Effect != resourceapi.DeviceTaintEffectNoSchedule && taint.Effect != resourceapi.DeviceTaintEffectNoExecute {
			continue
		}
		if !tolerates(tolerationsOf(claim, result), taint) {
			return fmt.Sprintf("%s=%s:%s", taint.Key, taint.Value, taint.Effect)
		}
	}
	return ""
}

// tolerates returns true if one of the tolerations tolerates the taint.
func tolerates(tolerations []resourceapi.DeviceToleration, taint resourceapi.DeviceTaint) bool {
	for _, toleration := range tolerations {
		if resourceclaim.ToleratesTaint(toleration, taint) {
			return true
		}
	}
	return false
}

// tolerationsOf returns the tolerations of the request for which the device was allocated. An
// allocation has a copy of them, but not in each Kubernetes release.
func tolerationsOf(claim *resourceapi.ResourceClaim, result *resourceapi.DeviceRequestAllocationResult) []resourceapi.DeviceToleration {
	if len(result.Tolerations) > 0 {
		return result.Tolerations
	}
	for _, request := range claim.Spec.Devices.Requests {
		if request.Name == result.Request {
			return tolerationsOfRequest(&request)
		}
		for _, subRequest := range request.FirstAvailable {
			if request.Name+"/"+subRequest.Name == result.Request {
				return subRequest.Tolerations
			}
		}
	}
	return nil
}
