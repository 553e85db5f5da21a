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

package experimental

// allocatingForRequest returns true if one of the devices that the request has already is
// this one. That is to be known of a device that allows multiple allocations: nothing else
// keeps a request for two such devices from getting the same one twice. Other requests of
// the claim may have it.
func (alloc *allocator) allocatingForRequest(r deviceIndices, id DeviceID) bool {
	devices := alloc.result[r.claimIndex].devices
	// They were appended one after the other.
	for _, device := range devices[len(devices)-r.deviceIndex:] {
		if device.id == id {
			return true
		}
	}
	return false
}
