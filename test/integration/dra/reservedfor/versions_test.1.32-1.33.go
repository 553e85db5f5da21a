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

package reservedfor

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1beta1"
)

// In these releases, the API is v1beta1: devices are basic, requests are flat, and
// allocations have no timestamp.

func resourceClient(client clientset.Interface) resourceclient.ResourceV1beta1Interface {
	return client.ResourceV1beta1()
}

func newSlice(name, driver string, count int) *resourceapi.ResourceSlice {
	slice := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourceapi.ResourceSliceSpec{
			Driver:   driver,
			Pool:     resourceapi.ResourcePool{Name: "pool", ResourceSliceCount: 1},
			AllNodes: true,
		},
	}
	for i := range count {
		slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{Name: fmt.Sprintf("device-%d", i), Basic: &resourceapi.BasicDevice{}})
	}
	return slice
}

// onNode makes the devices of a slice available on one node only.
func onNode(slice *resourceapi.ResourceSlice, node string) *resourceapi.ResourceSlice {
	slice.Spec.AllNodes = false
	slice.Spec.NodeName = node
	slice.Spec.Pool.Name = node
	return slice
}

func newRequest(name, class string) resourceapi.DeviceRequest {
	return resourceapi.DeviceRequest{Name: name, DeviceClassName: class}
}

func hasTimestamp(allocation *resourceapi.AllocationResult) bool { return false }
