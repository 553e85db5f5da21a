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
	resourceapi "k8s.io/api/resource/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// In these releases, devices either come with no resources of the node, or Filter knows who uses them,
// a driver gets called for each device, and a plugin cannot ask for events of assigned pods only.

// withdrawnPod is what the scheduler reports as deleted when a pod failed which had got through Reserve.
const withdrawnPod = fwk.Pod

// mapsNodeResources returns false because Filter knows which pods use a claim, or because there
// is no such mapping.
func (pl *DynamicResources) mapsNodeResources(*resourceapi.AllocationResult) bool {
	return false
}

// skipsNodeOperations returns false because the driver gets called for each device.
func skipsNodeOperations(*resourceapi.AllocationResult) bool {
	return false
}
