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

package dra

import (
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"
)

// describeShare returns what needs to be added to the description of a device if only a share
// of it was allocated, or if the driver does not get called for it. It is empty if not.
//
// Claim info says what to skip for the allocation that it was created for. A pod with
// another allocation of the same devices must not start without the driver, if that is
// wanted now.
func describeShare(result *resourceapi.DeviceRequestAllocationResult) string {
	description := ""
	if shareID := ptr.Deref(result.ShareID, ""); shareID != "" {
		description += "#" + string(shareID)
	}
	if len(result.SkipNodeOperations) > 0 {
		var operations []string
		for _, operation := range result.SkipNodeOperations {
			operations = append(operations, string(operation))
		}
		slices.Sort(operations)
		description += "-" + strings.Join(operations, "-")
	}
	return description
}
