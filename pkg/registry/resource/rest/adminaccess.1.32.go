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

// 1.32 creates its storage providers without a client.

package rest

import (
	v1 "k8s.io/client-go/kubernetes/typed/core/v1"
	restclient "k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// NamespaceClient returns a client for the namespaces of the API server itself. It returns
// nil if there cannot be one: then nothing gets admin access.
func NamespaceClient(loopback *restclient.Config) v1.NamespaceInterface {
	if loopback == nil {
		return nil
	}
	client, err := v1.NewForConfig(loopback)
	if err != nil {
		klog.Background().Error(err, "No client for namespaces, so there is no admin access to devices")
		return nil
	}
	return client.Namespaces()
}
