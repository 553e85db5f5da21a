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
	"iter"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// The functions in this file answer questions about claims which are reserved
// for a workload instead of for individual pods (KEP-5194). None of them checks
// a feature gate. [IsReservedForPod] intentionally remains about entries for
// the pod itself because callers use it to decide which entry to remove.

// ClaimNames iterates over the names of the claims that the pod references. It leaves out those
// which were not created yet or are not needed, and the one for extended resources. A
// name comes once for each reference.
func ClaimNames(pod *v1.Pod) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range pod.Spec.ResourceClaims {
			name, _, err := Name(pod, &pod.Spec.ResourceClaims[i])
			if err == nil && name != nil && !yield(*name) {
				return
			}
		}
	}
}

// IsPodReference returns true if the consumer is a pod.
func IsPodReference(ref resourceapi.ResourceClaimConsumerReference) bool {
	return ref.APIGroup == "" && ref.Resource == "pods"
}

// HasWorkloadReference returns true if at least one of the objects that the
// claim was reserved for is something other than a pod.
func HasWorkloadReference(claim *resourceapi.ResourceClaim) bool {
	return slices.ContainsFunc(claim.Status.ReservedFor, func(ref resourceapi.ResourceClaimConsumerReference) bool {
		return !IsPodReference(ref)
	})
}

// IsAllocatedForAnyPod returns true if the stored allocation says that any pod
// which references the claim may use it. Whether it is also still reserved has
// to be checked separately, see [IsReservedForAnyPod].
func IsAllocatedForAnyPod(claim *resourceapi.ResourceClaim) bool {
	return claim.Status.Allocation != nil && ptr.Deref(claim.Status.Allocation.ReservedForAnyPod, false)
}

// IsReservedForAnyPod returns true if any pod which references the claim may
// use it right now without being listed in status.reservedFor: the claim was
// allocated for any pod and is reserved for something other than a pod.
func IsReservedForAnyPod(claim *resourceapi.ResourceClaim) bool {
	return IsAllocatedForAnyPod(claim) && HasWorkloadReference(claim)
}

// WorkloadConsumer returns the entry in status.reservedFor for the incarnation with the
// given UID of the object that is named in spec.reservedFor.
func WorkloadConsumer(ref *resourceapi.ResourceClaimWorkloadReference, uid types.UID) resourceapi.ResourceClaimConsumerReference {
	consumer := resourceapi.ResourceClaimConsumerReference(*ref)
	consumer.UID = uid
	return consumer
}

// WorkloadReservation returns the entry in status.reservedFor for the object
// that is named in spec.reservedFor, or nil if there is none. If the spec does
// not name a UID, then the entry of any incarnation of that object matches.
func WorkloadReservation(claim *resourceapi.ResourceClaim) *resourceapi.ResourceClaimConsumerReference {
	want := claim.Spec.ReservedFor
	if want == nil {
		return nil
	}
	for i := range claim.Status.ReservedFor {
		have := &claim.Status.ReservedFor[i]
		if have.APIGroup == want.APIGroup &&
			have.Resource == want.Resource &&
			have.Name == want.Name &&
			(want.UID == "" || have.UID == want.UID) {
			return have
		}
	}
	return nil
}

// IsOwnerReferenceTo checks whether an owner reference refers to the same object
// as spec.reservedFor. With a UID, that is what identifies the object. Without one, only
// resources whose name is the usual plural of their kind can be recognized: an
// owner reference names a kind, spec.reservedFor a resource, and there is no REST
// mapping available where this is used. The version is ignored because it may change.
func IsOwnerReferenceTo(owner metav1.OwnerReference, ref resourceapi.ResourceClaimWorkloadReference) bool {
	if ref.Resource == "" || owner.Name != ref.Name || ref.UID != "" && ref.UID != owner.UID {
		return false
	}
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil || gv.Group != ref.APIGroup {
		return false
	}
	if ref.UID != "" {
		return true
	}
	plural, singular := meta.UnsafeGuessKindToResource(gv.WithKind(owner.Kind))
	return strings.EqualFold(ref.Resource, plural.Resource) || strings.EqualFold(ref.Resource, singular.Resource)
}

// MaxOwnerDepth limits how many controllers [FindWorkloadUID] looks at for one
// pod. Real chains are short: pod, Job, JobSet, and perhaps one more. A longer
// one, or a circle, can only be the result of forged owner references: such a pod
// belongs to no workload.
const MaxOwnerDepth = 10

// FindWorkloadUID returns the UID of the object in spec.reservedFor if that object
// is the controller of the pod, the controller of that one, and so on. The UID
// is empty if it is not.
//
// controllerOf returns the controller of an owner in the namespace of the pod,
// nil if it has none, does not exist or is not the incarnation with that UID.
// Its error is returned as it is. It is not called for the object that was
// searched for, so callers which only follow the owner references in the pod
// cannot tell whether that one exists.
func FindWorkloadUID(pod metav1.Object, ref resourceapi.ResourceClaimWorkloadReference, controllerOf func(owner metav1.OwnerReference) (*metav1.OwnerReference, error)) (types.UID, error) {
	owner := metav1.GetControllerOfNoCopy(pod)
	for range MaxOwnerDepth {
		if owner == nil {
			return "", nil
		}
		if IsOwnerReferenceTo(*owner, ref) {
			return owner.UID, nil
		}
		var err error
		if owner, err = controllerOf(*owner); err != nil {
			return "", err
		}
	}
	return "", nil
}
