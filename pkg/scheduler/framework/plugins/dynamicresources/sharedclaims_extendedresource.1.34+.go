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

package dynamicresources

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// withdrawExtendedResource gets called by Unreserve for a pod that may have got devices for extended resources.
// Their claim belongs to the pod, so it is not shared, and may not even exist. Then nothing but the withdrawal
// tells pods which wait for the devices. Depending on the release, PreBind has given them back already.
func (pl *DynamicResources) withdrawExtendedResource(pod *v1.Pod, state *stateData) {
	if pl.fts.EnableDRASharedClaims && state.claims.extendedResourceClaim() != nil {
		pl.claimReserver.inFlight.withdraw(pod.UID, time.Now())
	}
}
