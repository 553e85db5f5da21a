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

// validateReservedForWorkload validates spec.reservedFor (KEP-5194) of a new claim and the
// annotations which are about it. In contrast to the entries in status.reservedFor, the
// UID is optional.
func validateReservedForWorkload(claim *resource.ResourceClaim, fldPath *field.Path) field.ErrorList {
	if claim.ResourceVersion != "" {
		// Up to 1.34, the strategy calls this for updates, too. The spec cannot change then, and what is
		// wrong with annotations that are stored already must not keep anybody from changing the claim.
		return nil
	}
	ref := claim.Spec.ReservedFor
	if ref == nil {
		return validateGeneratedFor(claim)
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
	allErrs = append(allErrs, validateGeneratedFor(claim)...)
	return append(allErrs, validateReservedForMetadata(claim, nil)...)
}

// validateReservedForTemplate validates what a new ResourceClaimTemplate says about the consumers of
// the claims which get generated from it: spec.spec.reservedFor names a kind of them, and
// the annotations get copied.
func validateReservedForTemplate(template *resource.ResourceClaimTemplate, fldPath *field.Path) field.ErrorList {
	if template.ResourceVersion != "" {
		// The strategy also calls this for updates, which cannot change the spec.
		return nil
	}
	var allErrs field.ErrorList
	spec := &template.Spec
	annotationsPath := fldPath.Child("metadata", "annotations")
	if _, ok := spec.Annotations[resourceclaim.GeneratedForAnnotation]; ok {
		allErrs = append(allErrs, field.Forbidden(annotationsPath.Key(resourceclaim.GeneratedForAnnotation), "is set in claims by the ResourceClaim controller, leave it out"))
	}
	ref := spec.Spec.ReservedFor
	if ref == nil {
		return allErrs
	}

	refPath := fldPath.Child("spec", "reservedFor")
	if ref.Resource == "" {
		allErrs = append(allErrs, field.Required(refPath.Child("resource"), "name the kind of the objects for which claims get generated, for example jobs"))
	}
	if ref.APIGroup == "" && ref.Resource == "pod" {
		allErrs = append(allErrs, field.Invalid(refPath.Child("resource"), ref.Resource, "must be the plural, pods"))
	}
	const instead = "may not be set in a ResourceClaimTemplate: one claim gets generated for each object of that kind; for a claim of one particular object, create a ResourceClaim and name that in the pods"
	if ref.Name != "" {
		allErrs = append(allErrs, field.Forbidden(refPath.Child("name"), instead))
	}
	if ref.UID != "" {
		allErrs = append(allErrs, field.Forbidden(refPath.Child("uid"), instead))
	}
	allErrs = append(allErrs, validateConsumerReferenceFormat(resource.ResourceClaimConsumerReference{APIGroup: ref.APIGroup, Resource: ref.Resource}, refPath)...)
	// Each claim would be refused because of it.
	return append(allErrs, validateReleaseWhenIdle(spec.Annotations, nil, annotationsPath)...)
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

// validateGeneratedFor refuses a mark without content: the strategy removes that of a forged one. It is called for new
// claims.
func validateGeneratedFor(claim *resource.ResourceClaim) field.ErrorList {
	const key = resourceclaim.GeneratedForAnnotation
	if value, marked := claim.Annotations[key]; !marked || value != "" {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("metadata", "annotations").Key(key), "may only be set by the ResourceClaim controller, in a claim with the name that it computes; leave it out")}
}

// validateReservedForMetadata validates the annotations of a claim which are about its consumers.
// There is no old claim when creating one.
func validateReservedForMetadata(claim, oldClaim *resource.ResourceClaim) field.ErrorList {
	path := field.NewPath("metadata", "annotations")
	var allErrs field.ErrorList
	var oldAnnotations map[string]string
	if oldClaim != nil {
		oldAnnotations = oldClaim.Annotations
		const key = resourceclaim.GeneratedForAnnotation
		value, marked := claim.Annotations[key]
		if oldValue, oldMarked := oldAnnotations[key]; marked != oldMarked || value != oldValue {
			allErrs = append(allErrs, field.Forbidden(path.Key(key), "may not be added, changed or removed: it says for which pods the claim was generated"))
		}
	}
	if claim.Spec.ReservedFor == nil {
		// Nobody looks at the other one. It is not an error either: annotations of a template
		// get copied to claims for pods. Rejecting those would keep the pods from running.
		return allErrs
	}
	return append(allErrs, validateReleaseWhenIdle(claim.Annotations, oldAnnotations, path)...)
}

// validateReservedForClass validates the annotation of a DeviceClass which is the default for the
// claims that use it. The old class is nil for a new one.
func validateReservedForClass(class, oldClass *resource.DeviceClass) field.ErrorList {
	var oldAnnotations map[string]string
	if oldClass != nil {
		oldAnnotations = oldClass.Annotations
	}
	return validateReleaseWhenIdle(class.Annotations, oldAnnotations, field.NewPath("metadata", "annotations"))
}

// validateReleaseWhenIdle validates the annotation which says when an unused
// claim gets released. An invalid value which was stored already, perhaps because the
// feature was disabled, can be kept.
func validateReleaseWhenIdle(annotations, oldAnnotations map[string]string, path *field.Path) field.ErrorList {
	const key = resourceclaim.ReleaseWhenIdleAnnotation
	value, ok := annotations[key]
	if !ok || !utilfeature.DefaultFeatureGate.Enabled(features.DRAReservedForWorkloads) {
		return nil
	}
	if oldValue, ok := oldAnnotations[key]; ok && oldValue == value {
		return nil
	}
	if _, err := resourceclaim.ParseReleaseWhenIdle(value); err != nil {
		return field.ErrorList{field.Invalid(path.Key(key), value, err.Error())}
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
