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

package why

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"

	"kubernetes-dra/cmd/kubectl-dra/pkg/view"
)

// extendedRequests are what the pod asks for of extended resources, or what looks like one.
func extendedRequests(pod *corev1.Pod) corev1.ResourceList {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	maps.DeleteFunc(requests, func(name corev1.ResourceName, quantity resource.Quantity) bool {
		return !strings.Contains(string(name), "/") || quantity.IsZero()
	})
	return requests
}

// usesExtended returns true if the pod has a claim for extended resources, or may need one.
func usesExtended(pod *corev1.Pod) bool {
	return pod.Status.ExtendedResourceClaimStatus != nil || len(extendedRequests(pod)) > 0
}

// addExtended adds the claim for extended resources of the pod (KEP-5004): the one that the scheduler has made, or
// what it will make.
func (d *diagnosis) addExtended() {
	if status := d.pod.Status.ExtendedResourceClaimStatus; status != nil {
		d.maybeExtended = true
		d.claims = append(d.claims, podClaim{name: status.ResourceClaimName, claim: d.s.Claim(d.pod.Namespace, status.ResourceClaimName)})
		return
	}
	if !d.waits() {
		return
	}
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: d.pod.Namespace}}
	requests := extendedRequests(d.pod)
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		quantity := requests[name]
		if !d.s.Sees(view.Classes, view.Nodes) {
			// Neither whether there is a class, nor whether a device plugin offers it.
			d.maybeExtended = true
			continue
		}
		class := d.classOf(name)
		if class == nil || slices.ContainsFunc(d.s.Nodes, func(node *corev1.Node) bool { return !node.Status.Allocatable.Name(name, "").IsZero() }) {
			// Nodes with a device plugin need no claim.
			continue
		}
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, resourcev1.DeviceRequest{
			Name: fmt.Sprintf("request-%d", len(claim.Spec.Devices.Requests)),
			Exactly: &resourcev1.ExactDeviceRequest{
				DeviceClassName: class.Name, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: quantity.Value(),
			},
		})
	}
	if len(claim.Spec.Devices.Requests) > 0 {
		d.maybeExtended, d.extended = true, &view.Claim{ResourceClaim: claim}
		d.claims = append(d.claims, podClaim{claim: d.extended})
	}
}

// classOf returns the class that serves an extended resource, nil if there is none. Of several, it is the newest.
func (d *diagnosis) classOf(name corev1.ResourceName) *resourcev1.DeviceClass {
	if class, implicit := strings.CutPrefix(string(name), resourcev1.ResourceDeviceClassPrefix); implicit {
		return d.s.Class(class)
	}
	var found *resourcev1.DeviceClass
	for _, class := range d.s.Classes {
		if ptr.Deref(class.Spec.ExtendedResourceName, "") != string(name) {
			continue
		}
		if found == nil || cmp.Or(class.CreationTimestamp.Compare(found.CreationTimestamp.Time), strings.Compare(found.Name, class.Name)) > 0 {
			found = class
		}
	}
	return found
}

// asExtended makes a finding about the claim that does not exist yet one about the pod.
func (d *diagnosis) asExtended(f *Finding) {
	if d.extended == nil || f.Object != claimObject(d.extended) {
		return
	}
	f.Object, f.Field, f.Command = d.podObject(), "spec.containers[].resources.requests", d.kubectl("describe pod %s", d.pod.Name)
	f.Details = append(f.Details, "The claim is the one that the scheduler will make for extended resources of the pod.")
}
