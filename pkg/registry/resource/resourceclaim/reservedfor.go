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
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
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

// markingUsers generate claims for the consumers of other pods. The controller has the second name
// if the controller manager does not use service accounts for its controllers.
var markingUsers = []string{
	serviceaccount.MakeUsername(metav1.NamespaceSystem, "resource-claim-controller"),
	user.KubeControllerManager,
}

// invalidateForgedMark gets called for a new claim. It ensures that only the controller creates a claim with the
// mark of one that was generated for several pods. Anybody else could put a claim in the place of
// it, and decide how devices get configured in those pods. The same is true for a template with the annotation,
// which the controller copies into a claim for one pod. Validation refuses what has no content.
//
// Those who may do everything may do that, too: tests run controllers as one of them.
func invalidateForgedMark(ctx context.Context, claim *resource.ResourceClaim) {
	const key = resourceclaim.GeneratedForAnnotation
	generatedFor := resourceclaim.GeneratedForOf(claim)
	if generatedFor == nil {
		return
	}
	requester, ok := genericapirequest.UserFrom(ctx)
	if !ok || !slices.Contains(markingUsers, requester.GetName()) && !slices.Contains(requester.GetGroups(), user.SystemPrivilegedGroup) ||
		claim.Name != generatedFor.ClaimName(claim.Annotations[resourceclaim.PodClaimNameAnnotation]) {
		claim.Annotations[key] = ""
	}
}

func draReservedForWorkloadsFeatureInUse(claim *resource.ResourceClaim) bool {
	if claim == nil {
		return false
	}
	return resourceclaimspec.DRAReservedForWorkloadsFeatureInUse(&claim.Spec) ||
		claim.Status.Allocation != nil && claim.Status.Allocation.ReservedForAnyPod != nil
}
