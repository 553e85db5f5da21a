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

package resource

import (
	"slices"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/apis/resource"
	"k8s.io/kubernetes/pkg/features"
)

// KeepFormat replaces what an update does not change by what is stored, in the format that it
// has there, if DRAResourceClaimDeviceStatus is enabled. The update would be refused otherwise: an
// allocation cannot be changed, and entries only by their driver.
//
// Sometimes the server or a client changes what JSON means when it formats that, see
// [difference]. Then it cannot be told whether the user meant to. The allocation cannot be
// changed, so it was not meant to be. Entries have been changed by who may do so: mayWrite
// says whether the user may replace the stored entries by others.
//
// It is called before anybody has checked the update. What it costs depends on what is stored.
func KeepFormat(status, oldStatus *resource.ResourceClaimStatus, mayWrite func(devices []resource.AllocatedDeviceStatus) bool) {
	if !utilfeature.DefaultFeatureGate.Enabled(features.DRAResourceClaimDeviceStatus) {
		return
	}
	if status.Allocation == nil || oldStatus.Allocation == nil {
		// The devices go with the allocation. Without one, there were none.
		return
	}
	if d, _ := compareFormat(status.Allocation, oldStatus.Allocation); d.onlyFormat() {
		status.Allocation = oldStatus.Allocation.DeepCopy()
	}
	if len(status.Devices) > len(oldStatus.Allocation.Devices.Results) {
		// This will be refused: there cannot be more devices than were allocated.
		return
	}
	keepDevices(status, oldStatus, mayWrite)
}

// keepDevices does that for the devices.
func keepDevices(status, oldStatus *resource.ResourceClaimStatus, mayWrite func(devices []resource.AllocatedDeviceStatus) bool) {
	keep := func(i, j int) { status.Devices[i] = *oldStatus.Devices[j].DeepCopy() }
	// The devices of each driver of which it must be asked who writes them, and where they are stored.
	ask := map[string]map[int]int{}
	compared := make([]bool, len(oldStatus.Devices))
	for i := range status.Devices {
		j, d := findDevice(&status.Devices[i], oldStatus.Devices, compared)
		switch d {
		case sameMeaning:
			keep(i, j)
		case reformatted:
			driver := status.Devices[i].Driver
			if ask[driver] == nil {
				ask[driver] = map[int]int{}
			}
			ask[driver][i] = j
		}
	}
	for _, devices := range ask {
		written := slices.Clone(oldStatus.Devices)
		for i, j := range devices {
			written[j] = status.Devices[i]
		}
		if mayWrite(written) {
			continue
		}
		for i, j := range devices {
			keep(i, j)
		}
	}
}

// findDevice returns the stored entry which means the same, or about the same, as that of an
// update. The data of a stored entry are compared once. If they were, then it is the one of that device
// and of no other.
func findDevice(device *resource.AllocatedDeviceStatus, stored []resource.AllocatedDeviceStatus, compared []bool) (int, difference) {
	for j := range stored {
		old := &stored[j]
		if compared[j] || device.Driver != old.Driver || device.Pool != old.Pool || device.Device != old.Device {
			continue
		}
		var d difference
		if d, compared[j] = compareFormat(device, old); d != otherMeaning {
			return j, d
		}
	}
	return -1, otherMeaning
}
