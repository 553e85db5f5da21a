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

package downgrade

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/ptr"
)

// recordAnnotation has, as JSON, what was removed from status.reservedFor of a claim. A release of
// upstream keeps it, and --back needs it.
const recordAnnotation = "resource.kubernetes.io/reserved-for-before-downgrade"

// generatedForAnnotation marks a claim that the controller of the carry generated for several pods. Nobody
// else can set it.
const generatedForAnnotation = "resource.kubernetes.io/generated-for"

// maxReservedFor is how many entries status.reservedFor may have, in all releases.
const maxReservedFor = 256

// reference is an entry of status.reservedFor, or the content of spec.reservedFor.
type reference struct {
	APIGroup string    `json:"apiGroup,omitempty"`
	Resource string    `json:"resource"`
	Name     string    `json:"name"`
	UID      types.UID `json:"uid,omitempty"`
}

func (r reference) String() string {
	resource := r.Resource
	if r.APIGroup != "" {
		resource += "." + r.APIGroup
	}
	return resource + "/" + r.Name
}

func (r reference) isPod() bool {
	return r.APIGroup == "" && r.Resource == "pods"
}

// isKnownUpstream returns true for what a controller of upstream removes when it is gone.
// It has known groups of pods since 1.36, and no release before that has any.
func (r reference) isKnownUpstream() bool {
	return r.isPod() || r.APIGroup == "scheduling.k8s.io" && r.Resource == "podgroups"
}

// claim is what matters of a ResourceClaim.
type claim struct {
	stored

	// writers says who wrote what, managers who writes for the carry.
	writers  writers
	managers sets.Set[string]
}

// stored is in the API. It has the same form in all its versions.
type stored struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		ReservedFor *reference `json:"reservedFor,omitempty"`
	} `json:"spec"`

	Status struct {
		Allocation *struct {
			ReservedForAnyPod *bool `json:"reservedForAnyPod,omitempty"`
		} `json:"allocation,omitempty"`
		ReservedFor []reference `json:"reservedFor,omitempty"`
	} `json:"status"`
}

// parseClaim returns what matters of a claim. What the managers have written is from the carry.
func parseClaim(obj *unstructured.Unstructured, managers sets.Set[string]) (*claim, error) {
	var c claim
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &c.stored); err != nil {
		return nil, fmt.Errorf("ResourceClaim %s/%s: %w", obj.GetNamespace(), obj.GetName(), err)
	}
	c.writers, c.managers = newWriters(c.ManagedFields), managers
	c.ManagedFields = nil
	return &c, nil
}

// isForAnyPod returns true if pods may use the claim without being listed.
func (c *claim) isForAnyPod() bool {
	return c.Status.Allocation != nil && ptr.Deref(c.Status.Allocation.ReservedForAnyPod, false)
}

// workloads are the entries of status.reservedFor that upstream does not know: those that the
// carry wrote, and those of others, which have to stay.
func (c *claim) workloads() (ours, foreign []reference) {
	for _, ref := range c.Status.ReservedFor {
		switch {
		case ref.isKnownUpstream():
		case c.writers.areAll(entryPath(ref), c.managers):
			ours = append(ours, ref)
		default:
			foreign = append(foreign, ref)
		}
	}
	return ours, foreign
}

// isAllocatedByCarry returns false if somebody else than the scheduler allocated the claim, who
// then has to free it.
func (c *claim) isAllocatedByCarry() bool {
	return c.Status.Allocation != nil && c.writers.areAll(allocationPath, c.managers)
}

// isRecorded returns true if an earlier run changed the claim.
func (c *claim) isRecorded() bool {
	_, found := c.Annotations[recordAnnotation]
	return found
}

// record is what an earlier run removed from the claim. Whoever may write claims may write the
// annotation, but not status.reservedFor. Therefore it counts only as far as spec.reservedFor
// names the same workload, and what cannot be read does not count.
func (c *claim) record() []reference {
	var refs []reference
	if err := json.Unmarshal([]byte(c.Annotations[recordAnnotation]), &refs); err != nil {
		return nil
	}
	workload := c.Spec.ReservedFor
	return slices.DeleteFunc(refs, func(ref reference) bool {
		return workload == nil || ref.APIGroup != workload.APIGroup || ref.Resource != workload.Resource || ref.Name != workload.Name || ref.UID == ""
	})
}

// holds returns what the claim has that upstream does not know, nil if there is nothing.
func (c *claim) holds() []string {
	var held []string
	for _, ref := range c.Status.ReservedFor {
		if !ref.isKnownUpstream() {
			held = append(held, ref.String())
		}
	}
	if c.isForAnyPod() && len(held) == 0 {
		held = append(held, "any pod")
	}
	if c.Spec.ReservedFor != nil && !slices.Contains(held, c.Spec.ReservedFor.String()) {
		held = append(held, "spec: "+c.Spec.ReservedFor.String())
	}
	return held
}

// isGenerated returns true if the claim was generated for several pods. They are told so in their
// status, and none of them owns the claim.
func (c *claim) isGenerated() bool {
	_, ok := c.Annotations[generatedForAnnotation]
	return ok
}

// isLeft returns true if an earlier run changed the claim, and it is allocated for nobody since then.
func (c *claim) isLeft() bool {
	return c.isRecorded() && c.Status.Allocation != nil && len(c.Status.ReservedFor) == 0
}

// isLeftByHand returns true if the user has to see to entries of others that stay. A claim without a trace of the carry
// is the same with upstream: whoever wrote an entry removes it there, too. Without a writer, nobody does.
func (c *claim) isLeftByHand(foreign []reference) bool {
	return c.Spec.ReservedFor != nil || c.isForAnyPod() || c.isRecorded() || c.isGenerated() ||
		slices.ContainsFunc(foreign, func(ref reference) bool { return len(c.writers.of(entryPath(ref))) == 0 })
}

// isListed returns true if the pod or workload is in status.reservedFor.
func (c *claim) isListed(uid types.UID) bool {
	return slices.ContainsFunc(c.Status.ReservedFor, func(ref reference) bool { return ref.UID == uid })
}

// users returns the pods on nodes that have the devices of the claim.
func (c *claim) users(pods []corev1.Pod) []reference {
	var refs []reference
	for i := range pods {
		if pod := &pods[i]; pod.Namespace == c.Namespace && c.isUsedBy(pod) {
			refs = append(refs, reference{Resource: "pods", Name: pod.Name, UID: pod.UID})
		}
	}
	slices.SortFunc(refs, func(a, b reference) int { return strings.Compare(a.Name, b.Name) })
	return refs
}

func (c *claim) isUsedBy(pod *corev1.Pod) bool {
	if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return false
	}
	return slices.ContainsFunc(pod.Spec.ResourceClaims, func(podClaim corev1.PodResourceClaim) bool {
		name, generated, err := resourceclaim.Name(pod, &podClaim)
		return err == nil && name != nil && *name == c.Name && (!generated || c.isGenerated() || metav1.IsControlledBy(c, pod))
	})
}
