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

package resourceclaim

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/client-go/tools/cache"
)

// forgetDeletedClaim gets called when a claim was deleted. What the controller has created is
// remembered for an hour in addition to what the informer knows. A pod whose claim is
// deleted would have to wait for that long.
func (ec *Controller) forgetDeletedClaim(obj interface{}) {
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = d.Obj
	}
	if claim, ok := obj.(*resourceapi.ResourceClaim); ok {
		ec.claimCache.OnDelete(claim)
	}
}
