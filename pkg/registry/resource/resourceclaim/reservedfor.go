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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/api/resourceclaimspec"
	"k8s.io/kubernetes/pkg/apis/resource"
	"k8s.io/kubernetes/pkg/apis/resource/validation"
	"k8s.io/kubernetes/pkg/features"
)

// dropDisabledDRAReservedForWorkloadsStatusFields removes
// status.allocation.reservedForAnyPod unless the feature is enabled or was in
// use. It is also in use when only spec.reservedFor is set: then some scheduler
// might still have the feature enabled and dropping the field would leave the
// claim reserved for a workload whose pods may not use it.
func dropDisabledDRAReservedForWorkloadsStatusFields(newClaim, oldClaim *resource.ResourceClaim) {
	keepReservedForWorkload(newClaim, oldClaim)
	if newClaim.Status.Allocation == nil ||
		newClaim.Status.Allocation.ReservedForAnyPod == nil ||
		utilfeature.DefaultFeatureGate.Enabled(features.DRAReservedForWorkloads) ||
		draReservedForWorkloadsFeatureInUse(oldClaim) {
		// No need to drop anything.
		return
	}

	// The old claim may share the pointer, so it has to be replaced instead
	// of modifying what it points to.
	allocation := *newClaim.Status.Allocation
	allocation.ReservedForAnyPod = nil
	newClaim.Status.Allocation = &allocation
}

// warningsForReservedFor returns what probably is wrong about spec.reservedFor of a new claim.
func warningsForReservedFor(obj runtime.Object) []string {
	claim := obj.(*resource.ResourceClaim)
	return validation.WarningsForReservedFor(claim.Spec.ReservedFor, field.NewPath("spec", "reservedFor"))
}

func draReservedForWorkloadsFeatureInUse(claim *resource.ResourceClaim) bool {
	if claim == nil {
		return false
	}
	return resourceclaimspec.DRAReservedForWorkloadsFeatureInUse(&claim.Spec) ||
		claim.Status.Allocation != nil && claim.Status.Allocation.ReservedForAnyPod != nil
}
