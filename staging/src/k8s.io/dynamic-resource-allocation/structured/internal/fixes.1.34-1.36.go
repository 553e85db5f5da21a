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

package internal

// manyDevices is more than fit into a claim, and few enough that the sum over all
// requests of a claim does not overflow.
const manyDevices = 1 << 20

// DeviceCount returns how many devices a request needs. The API has no upper limit for
// that. Two requests for the largest number are a negative number of devices together, for
// which no memory can be reserved. What exceeds all limits can be replaced by
// anything else that does.
func DeviceCount(requested int64) int {
	if requested < 0 || requested > manyDevices {
		return manyDevices
	}
	return int(requested)
}
