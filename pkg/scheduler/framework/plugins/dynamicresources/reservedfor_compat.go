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
	"iter"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// This file contains what differs in older releases: where the pods on a node are, and the taints of a
// device. For PodGroups, see reservedfor_podgroups.go.

// podsOn returns the pods which are assigned to a node or are about to be.
func podsOn(node fwk.NodeInfo) iter.Seq[*v1.Pod] {
	return func(yield func(*v1.Pod) bool) {
		for _, podInfo := range node.GetPods() {
			if !yield(podInfo.GetPod()) {
				return
			}
		}
	}
}

func taintsOf(device *resourceapi.Device) []resourceapi.DeviceTaint {
	return device.Taints
}

func tolerationsOfRequest(request *resourceapi.DeviceRequest) []resourceapi.DeviceToleration {
	if request.Exactly == nil {
		return nil
	}
	return request.Exactly.Tolerations
}
