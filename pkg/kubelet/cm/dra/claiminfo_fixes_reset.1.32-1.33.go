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
	"k8s.io/kubernetes/pkg/kubelet/cm/dra/state"
)

// resetDevices forgets the devices of one driver.
//
// Preparing may have to be repeated, for example after a restart of the
// kubelet. Each response of the driver contains all devices, so it replaces what
// was known before.
func (info *ClaimInfo) resetDevices(driverName string) {
	if _, exists := info.DriverState[driverName]; exists {
		info.DriverState[driverName] = state.DriverState{}
	}
}
