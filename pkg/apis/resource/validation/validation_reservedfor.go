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

package validation

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/kubernetes/pkg/apis/resource"
	"k8s.io/kubernetes/pkg/features"
)

// validateReservedForWorkload validates spec.reservedFor (KEP-5194). In contrast
// to the entries in status.reservedFor, the UID is optional.
func validateReservedForWorkload(ref *resource.ResourceClaimWorkloadReference, fldPath *field.Path) field.ErrorList {
	if ref == nil {
		return nil
	}

	consumer := resource.ResourceClaimConsumerReference(*ref)
	withUID := consumer
	if withUID.UID == "" {
		// Any value will do, it only needs to be there for the shared check.
		withUID.UID = "any"
	}
	allErrs := validateResourceClaimUserReference(withUID, fldPath)
	allErrs = append(allErrs, validateConsumerReferenceFormat(consumer, fldPath)...)

	if ref.APIGroup == "" && (ref.Resource == "pods" || ref.Resource == "pod") {
		allErrs = append(allErrs, field.Invalid(fldPath.Child("resource"), ref.Resource,
			"a claim cannot be reserved for a pod as workload because the end of that one pod would free the devices of all others; name the object which controls the pods, or leave reservedFor unset to reserve for each pod"))
	}
	return allErrs
}

// validateNoReservedForWorkload rejects spec.reservedFor in a ResourceClaimTemplate.
func validateNoReservedForWorkload(ref *resource.ResourceClaimWorkloadReference, fldPath *field.Path) field.ErrorList {
	if ref == nil {
		return nil
	}
	return field.ErrorList{field.Forbidden(fldPath, "may not be set in a ResourceClaimTemplate: a generated claim belongs to the pod that it was generated for; create one ResourceClaim and reference it by name in the pods instead")}
}

// validateReservedForWorkloadStatus validates those parts of a status update
// which depend on spec.reservedFor. The status of a claim that doesn't set that
// field gets validated exactly as it always was, except that such a claim
// cannot be allocated for any pod.
//
// Only what an update adds gets checked. What is stored already must not prevent
// removing entries or deallocating.
func validateReservedForWorkloadStatus(claim, oldClaim *resource.ResourceClaim, fldPath *field.Path) field.ErrorList {
	var allErrs field.ErrorList
	status, oldStatus := &claim.Status, &oldClaim.Status

	if claim.Spec.ReservedFor == nil {
		if status.Allocation != nil && oldStatus.Allocation == nil && status.Allocation.ReservedForAnyPod != nil {
			allErrs = append(allErrs, field.Forbidden(fldPath.Child("allocation", "reservedForAnyPod"), "may only be set if `spec.reservedFor` is set"))
		}
		return allErrs
	}

	for i, ref := range status.ReservedFor {
		if !slices.Contains(oldStatus.ReservedFor, ref) {
			allErrs = append(allErrs, validateConsumerReferenceFormat(ref, fldPath.Child("reservedFor").Index(i))...)
		}
	}
	return allErrs
}

// validateReleaseWhenIdle validates the annotation which says when an unused
// claim gets released. Nobody looks at it in a claim without
// spec.reservedFor. There it is not an error either: annotations of a
// template get copied to generated claims, which cannot be for a
// workload. Rejecting those would keep pods from running.
//
// There is no old claim when creating one. An invalid value which was stored
// already, perhaps because the feature was disabled, can be kept.
func validateReleaseWhenIdle(claim, oldClaim *resource.ResourceClaim) field.ErrorList {
	value, ok := claim.Annotations[resourceclaim.ReleaseWhenIdleAnnotation]
	if !ok || claim.Spec.ReservedFor == nil || !utilfeature.DefaultFeatureGate.Enabled(features.DRAReservedForWorkloads) {
		return nil
	}
	if oldClaim != nil {
		if oldValue, ok := oldClaim.Annotations[resourceclaim.ReleaseWhenIdleAnnotation]; ok && oldValue == value {
			return nil
		}
	}
	if _, err := resourceclaim.ParseReleaseWhenIdle(value); err != nil {
		path := field.NewPath("metadata", "annotations").Key(resourceclaim.ReleaseWhenIdleAnnotation)
		return field.ErrorList{field.Invalid(path, value, err.Error())}
	}
	return nil
}

// maxConsumerUIDLength is more than any UID has that Kubernetes generates. Components keep
// references in memory.
const maxConsumerUIDLength = 128

// validateConsumerReferenceFormat checks that the fields which are set could
// belong to some object. Missing fields must be dealt with by the caller.
func validateConsumerReferenceFormat(ref resource.ResourceClaimConsumerReference, fldPath *field.Path) field.ErrorList {
	var allErrs field.ErrorList
	gr := schema.GroupResource{Group: ref.APIGroup, Resource: ref.Resource}
	if ref.APIGroup != "" {
		for _, msg := range validation.IsDNS1123Subdomain(ref.APIGroup) {
			allErrs = append(allErrs, field.Invalid(fldPath.Child("apiGroup"), ref.APIGroup, msg+hintForReservedFor(gr)))
		}
	}
	if ref.Resource != "" {
		// The same rule as for the plural name of a custom resource.
		// It excludes subresources.
		if msgs := validation.IsDNS1035Label(ref.Resource); len(msgs) > 0 {
			allErrs = append(allErrs, field.Invalid(fldPath.Child("resource"), ref.Resource,
				"must be the plural name of a resource in lower case, without group, version and subresource: "+strings.Join(msgs, ", ")+hintForReservedFor(gr)))
		}
	}
	if ref.Name != "" {
		for _, msg := range path.IsValidPathSegmentName(ref.Name) {
			allErrs = append(allErrs, field.Invalid(fldPath.Child("name"), ref.Name, msg))
		}
		if len(ref.Name) > validation.DNS1123SubdomainMaxLength {
			allErrs = append(allErrs, field.TooLong(fldPath.Child("name"), "" /* unused */, validation.DNS1123SubdomainMaxLength))
		}
	}
	if len(ref.UID) > maxConsumerUIDLength {
		allErrs = append(allErrs, field.TooLong(fldPath.Child("uid"), "" /* unused */, maxConsumerUIDLength))
	}
	return allErrs
}
