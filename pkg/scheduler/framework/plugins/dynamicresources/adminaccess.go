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
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// logAdminAccess tells an operator which devices a pod gets that may be in use by
// others. It does nothing if the claim was allocated before (nil allocation)
// or without admin access.
func logAdminAccess(logger klog.Logger, pod *v1.Pod, nodeName string, claim *resourceapi.ResourceClaim, allocation *resourceapi.AllocationResult) {
	if allocation == nil {
		return
	}
	var devices []string
	for _, result := range allocation.Devices.Results {
		if ptr.Deref(result.AdminAccess, false) {
			devices = append(devices, result.Driver+"/"+result.Pool+"/"+result.Device)
		}
	}
	if devices != nil {
		logger.V(2).Info("Allocated devices for admin access", "pod", klog.KObj(pod), "node", nodeName, "claim", klog.KObj(claim), "devices", devices)
	}
}
