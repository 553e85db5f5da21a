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
	"k8s.io/kubernetes/pkg/apis/resource"
	resourceutils "k8s.io/kubernetes/pkg/registry/resource"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

var (
	specReservedForPath         = fieldpath.MakePathOrDie("spec", "reservedFor")
	statusReservedForAnyPodPath = fieldpath.MakePathOrDie("status", "allocation", "reservedForAnyPod")
)

// keepReservedForWorkload puts back what an update does not have. A client that was
// compiled with upstream's types drops both fields from what it read, and
// would not be able to change anything else. Neither field can be removed
// deliberately: the spec and an allocation are immutable. Such a client also formats JSON.
//
// Whoever managed the fields still does.
func keepReservedForWorkload(newClaim, oldClaim *resource.ResourceClaim) {
	if oldClaim == nil {
		return
	}
	if newClaim.Spec.ReservedFor == nil && oldClaim.Spec.ReservedFor != nil {
		newClaim.Spec.ReservedFor = oldClaim.Spec.ReservedFor.DeepCopy()
		resourceutils.KeepFieldManagers(&newClaim.ObjectMeta, &oldClaim.ObjectMeta, specReservedForPath)
	}
	resourceutils.KeepSpecFormat(&newClaim.Spec, &oldClaim.Spec)
	allocation, oldAllocation := newClaim.Status.Allocation, oldClaim.Status.Allocation
	if allocation != nil && allocation.ReservedForAnyPod == nil && oldAllocation != nil && oldAllocation.ReservedForAnyPod != nil {
		// The allocation may be shared with the old claim.
		kept := *allocation
		kept.ReservedForAnyPod = oldAllocation.ReservedForAnyPod
		newClaim.Status.Allocation = &kept
		resourceutils.KeepFieldManagers(&newClaim.ObjectMeta, &oldClaim.ObjectMeta, statusReservedForAnyPodPath)
	}
}
