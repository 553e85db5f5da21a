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

// claim is what matters of a ResourceClaim. It has the same form in all versions of the API.
type claim struct {
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

func parseClaim(obj *unstructured.Unstructured) (*claim, error) {
	var c claim
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &c); err != nil {
		return nil, fmt.Errorf("ResourceClaim %s/%s: %w", obj.GetNamespace(), obj.GetName(), err)
	}
	return &c, nil
}

// isForAnyPod returns true if pods may use the claim without being listed.
func (c *claim) isForAnyPod() bool {
	return c.Status.Allocation != nil && ptr.Deref(c.Status.Allocation.ReservedForAnyPod, false)
}

// workloads are the entries of status.reservedFor that upstream does not know.
func (c *claim) workloads() []reference {
	var refs []reference
	for _, ref := range c.Status.ReservedFor {
		if !ref.isKnownUpstream() {
			refs = append(refs, ref)
		}
	}
	return refs
}

// record is what was removed from the claim by an earlier downgrade, nil if nothing was.
func (c *claim) record() ([]reference, error) {
	text, ok := c.Annotations[recordAnnotation]
	if !ok {
		return nil, nil
	}
	var refs []reference
	if err := json.Unmarshal([]byte(text), &refs); err != nil {
		return nil, fmt.Errorf("ResourceClaim %s/%s: annotation %s: %w", c.Namespace, c.Name, recordAnnotation, err)
	}
	return refs, nil
}

// holds returns what the claim has that upstream does not know, nil if there is nothing.
func (c *claim) holds() []string {
	var held []string
	for _, ref := range c.workloads() {
		held = append(held, ref.String())
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
	_, changed := c.Annotations[recordAnnotation]
	return changed && c.Status.Allocation != nil && len(c.Status.ReservedFor) == 0
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
