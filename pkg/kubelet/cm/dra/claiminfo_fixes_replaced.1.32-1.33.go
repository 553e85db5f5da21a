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

// Later releases compare the UID themselves.

package dra

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
)

// checkSameClaim returns an error if the claim information is for a deleted claim with the
// same name. It remains until that claim is unprepared. A pod which
// uses the new claim has to wait for that.
func (info *ClaimInfo) checkSameClaim(claim *resourceapi.ResourceClaim) error {
	if info.ClaimUID == claim.UID {
		return nil
	}
	return fmt.Errorf("ResourceClaim %s (%s) cannot be prepared while a deleted claim with that name and different UID %s is still in use on the node", claim.Name, claim.UID, info.ClaimUID)
}
