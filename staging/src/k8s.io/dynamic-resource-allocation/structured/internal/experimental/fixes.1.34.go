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

// indexInSlice returns at which place of its slice a device stands.
func (d deviceWithID) indexInSlice() int {
	for i := range d.slice.Spec.Devices {
		if d.Device == &d.slice.Spec.Devices[i] {
			return i
		}
	}
	return -1
}
