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

// resourceClient is the client for the version of the API that gets used here.
func resourceClient(client clientset.Interface) resourceclient.ResourceV1Interface {
	return client.ResourceV1()
}

var allNodes = ptr.To(true)

func onNode(name string) *string { return &name }

func newDevice(name string) resourceapi.Device { return resourceapi.Device{Name: name} }

// requestJSON is a request for one device.
func requestJSON(name, class string) string {
	return fmt.Sprintf(`{"name":%q,"exactly":{"deviceClassName":%q}}`, name, class)
}

func addTimestamp(allocation *resourceapi.AllocationResult) {
	allocation.AllocationTimestamp = ptr.To(metav1.Now())
}
