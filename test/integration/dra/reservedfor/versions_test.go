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

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1"
	"k8s.io/utils/ptr"
)

// What differs between versions of the API is in this file.

// versions are all served versions of the API that have ResourceClaims.
var versions = []string{"v1", "v1beta1", "v1beta2"}

// resourceClient is the client for the version of the API that these tests use.
func resourceClient(client clientset.Interface) resourceclient.ResourceV1Interface {
	return client.ResourceV1()
}

// newSlice returns a slice with devices which are available on all nodes.
func newSlice(name, driver string, count int) *resourceapi.ResourceSlice {
	slice := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourceapi.ResourceSliceSpec{
			Driver:   driver,
			Pool:     resourceapi.ResourcePool{Name: "pool", ResourceSliceCount: 1},
			AllNodes: ptr.To(true),
		},
	}
	for i := range count {
		slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{Name: fmt.Sprintf("device-%d", i)})
	}
	return slice
}

// onNode makes the devices of a slice available on one node only.
func onNode(slice *resourceapi.ResourceSlice, node string) *resourceapi.ResourceSlice {
	slice.Spec.AllNodes = nil
	slice.Spec.NodeName = &node
	slice.Spec.Pool.Name = node
	return slice
}

// newRequest returns a request for one device.
func newRequest(name, class string) resourceapi.DeviceRequest {
	return resourceapi.DeviceRequest{Name: name, Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class}}
}

// hasTimestamp returns true if it is known when the claim was allocated.
func hasTimestamp(allocation *resourceapi.AllocationResult) bool {
	return allocation.AllocationTimestamp != nil
}
