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
	clientset "k8s.io/client-go/kubernetes"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1beta1"
)

// In these releases, the API is v1beta1: devices are basic, requests are flat, and
// allocations have no timestamp.

func resourceClient(client clientset.Interface) resourceclient.ResourceV1beta1Interface {
	return client.ResourceV1beta1()
}

const allNodes = true

func onNode(name string) string { return name }

func newDevice(name string) resourceapi.Device {
	return resourceapi.Device{Name: name, Basic: &resourceapi.BasicDevice{}}
}

func requestJSON(name, class string) string {
	return fmt.Sprintf(`{"name":%q,"deviceClassName":%q}`, name, class)
}

func addTimestamp(allocation *resourceapi.AllocationResult) {}
