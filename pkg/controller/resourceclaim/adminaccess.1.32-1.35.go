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

// From 1.36 on the feature cannot be turned off.

package resourceclaim

import (
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
)

// warnAdminAccessDisabled tells the user of a claim why it does not get allocated while
// the feature is off. What was allocated before remains in use.
func (ec *Controller) warnAdminAccessDisabled(claim *resourceapi.ResourceClaim, enabled bool) {
	if enabled || claim.Status.Allocation != nil || claim.DeletionTimestamp != nil || !claimNeedsAdminAccess(claim) || ec.recorder == nil {
		return
	}
	ec.recorder.Event(claim, v1.EventTypeWarning, "AdminAccessDisabled",
		"admin access is requested, but the feature is disabled: no devices get allocated until the feature gate DRAAdminAccess is on in all components")
}
