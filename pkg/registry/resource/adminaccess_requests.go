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

package resource

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/resource"
)

// requestAdminAccess returns the adminAccess field of a request and where it stands.
// It cannot be set for the alternatives in a prioritized list.
func requestAdminAccess(request *resource.DeviceRequest, path *field.Path) (*bool, *field.Path) {
	if request.Exactly == nil {
		return nil, nil
	}
	return request.Exactly.AdminAccess, path.Child("exactly", "adminAccess")
}
