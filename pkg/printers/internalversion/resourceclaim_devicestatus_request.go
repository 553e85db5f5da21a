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

package internalversion

import (
	"strings"

	"k8s.io/kubernetes/pkg/apis/resource"
)

// claimRequest formats one request of a ResourceClaim.
func claimRequest(r *resource.DeviceRequest) string {
	if e := r.Exactly; e != nil {
		return claimRequestDetails(e.DeviceClassName, e.AllocationMode, e.Count, e.AdminAccess)
	}
	var alternatives []string
	for _, s := range r.FirstAvailable {
		alternatives = append(alternatives, claimRequestDetails(s.DeviceClassName, s.AllocationMode, s.Count, nil))
	}
	if len(alternatives) == 0 {
		// Something that this release does not know.
		return r.Name
	}
	return strings.Join(alternatives, "|")
}
