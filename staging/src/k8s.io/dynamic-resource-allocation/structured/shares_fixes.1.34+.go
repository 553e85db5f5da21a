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

// withShares adds those devices to the capacities of which shares were allocated that consume no
// capacity. The allocator looks there for devices which are shared. What the caller has is
// not changed.
func withShares(state AllocatedState) AllocatedState {
	cloned := false
	for share := range state.AllocatedSharedDeviceIDs {
		deviceID := DeviceID{Driver: share.Driver, Pool: share.Pool, Device: share.Device}
		if _, found := state.AggregatedCapacity[deviceID]; found {
			continue
		}
		if !cloned {
			state.AggregatedCapacity, cloned = state.AggregatedCapacity.Clone(), true
		}
		state.AggregatedCapacity.Insert(NewDeviceConsumedCapacity(deviceID, nil))
	}
	return state
}
