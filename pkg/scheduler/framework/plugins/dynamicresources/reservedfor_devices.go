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

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// This file contains the way out of an allocation for any pod with a device that no new pod
// should use, because it is tainted or because it does not exist anymore. Without it, a
// workload whose pods get evicted because of that device would get new
// pods for the same device, and lose those, for ever.
//
// Taints are in reservedfor_taints.go, which 1.32 does not have.

// checkDevices gets called by PreFilter for a claim that is allocated for any pod. If the
// allocation has a device which no new pod should use, then the pod has to wait until the last
// pod is gone which uses it and the claim is allocated elsewhere.
//
// Preemption would not help, so the status is not one for which that gets tried.
func (pl *DynamicResources) checkDevices(logger klog.Logger, pod *v1.Pod, claim *resourceapi.ResourceClaim, reservation reservationFunc) *fwk.Status {
	reason, err := pl.unfitDevice(claim)
	if err != nil {
		return statusError(logger, err)
	}
	if reason == "" {
		return nil
	}
	next := "waiting until no pod uses the claim anymore"
	if pl.requestReleaseUnlessUsed(logger, pod, claim, reservation) {
		next = "waiting until the claim is allocated elsewhere"
	}
	return statusUnschedulable(logger, fmt.Sprintf("resourceclaim %s is allocated for any pod, but new pods must not use it because %s: %s", klog.KObj(claim), reason, next), "pod", klog.KObj(pod), "resourceclaim", klog.KObj(claim))
}

// unfitDevice returns why no new pod should use the allocation, empty if it may be used.
func (pl *DynamicResources) unfitDevice(claim *resourceapi.ResourceClaim) (string, error) {
	// Almost always the devices are as they were. Looking at the few slices of their pools
	// proves that. These may be a little behind, and no event would come if a pod had to
	// wait because of that. Therefore everything else is decided by the list.
	reason, found := pl.unfitDeviceIn(claim, pl.slicesByPool.get)
	if found && reason == "" {
		return "", nil
	}
	slices, err := pl.resourceSlices()
	if err != nil {
		return "", fmt.Errorf("list ResourceSlices: %w", err)
	}
	reason, _ = pl.unfitDeviceIn(claim, func(poolID) []*resourceapi.ResourceSlice { return slices })
	return reason, nil
}

// unfitDeviceIn does the same as unfitDevice for the given slices. slicesOf may return more than those of
// the pool. found is false if a device is in none of them.
func (pl *DynamicResources) unfitDeviceIn(claim *resourceapi.ResourceClaim, slicesOf func(pool poolID) []*resourceapi.ResourceSlice) (reason string, found bool) {
	found = true
	for i := range claim.Status.Allocation.Devices.Results {
		result := &claim.Status.Allocation.Devices.Results[i]
		id := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
		switch device, known := findDevice(slicesOf(poolID{result.Driver, result.Pool}), result); {
		case device != nil:
			if taint := pl.untoleratedTaint(claim, device, result); taint != "" {
				return fmt.Sprintf("device %s has the taint %s", id, taint), true
			}
		case known:
			return fmt.Sprintf("device %s does not exist anymore", id), false
		default:
			found = false
		}
	}
	return "", found
}

// findDevice returns the allocated device, nil if it is not in any slice. Then known is true if
// that means that the device is gone. A pool of which a slice is missing is about to be
// published again by its driver.
func findDevice(slices []*resourceapi.ResourceSlice, result *resourceapi.DeviceRequestAllocationResult) (device *resourceapi.Device, known bool) {
	var generation, expected, found int64
	for _, slice := range slices {
		if slice.Spec.Driver != result.Driver || slice.Spec.Pool.Name != result.Pool || slice.Spec.Pool.Generation < generation {
			continue
		}
		if slice.Spec.Pool.Generation > generation {
			generation, found = slice.Spec.Pool.Generation, 0
			device = nil
		}
		expected = slice.Spec.Pool.ResourceSliceCount
		found++
		for i := range slice.Spec.Devices {
			if slice.Spec.Devices[i].Name == result.Device {
				device = &slice.Spec.Devices[i]
			}
		}
	}
	return device, found >= expected
}
