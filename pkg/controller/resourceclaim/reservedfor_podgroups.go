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
	"fmt"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingapi "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
)

// What depends on the PodGroup API is in this file because the API is not
// available in all Kubernetes releases.

var podGroupResource = schema.GroupResource{Group: schedulingapi.GroupName, Resource: "podgroups"}

// podGroupWorkloadKinds describes PodGroups in status.reservedFor. The API
// might not be served by the API server. Then its informer would never sync,
// so it only gets used if the controller uses it anyway.
func podGroupWorkloadKinds(features Features) []*workloadKind {
	kind := &workloadKind{
		resource: podGroupResource,
		kind:     "PodGroup",
		get:      getPodGroupObject,
	}
	if features.WorkloadResourceClaims {
		kind.informer = podGroupInformer
	}
	return []*workloadKind{kind}
}

// podGroupUID returns the UID of the PodGroup that the pod belongs to if that is what the claim is
// meant for, empty otherwise. Without DRAWorkloadResourceClaims, PodGroups are
// not watched, and the scheduler does not know them either.
func (ec *Controller) podGroupUID(pod *v1.Pod, workload *resourceapi.ResourceClaimWorkloadReference) (types.UID, error) {
	group := pod.Spec.SchedulingGroup
	informer := ec.workloads.informers[podGroupResource]
	if informer == nil || workload.APIGroup != podGroupResource.Group || workload.Resource != podGroupResource.Resource ||
		group == nil || group.PodGroupName == nil || *group.PodGroupName != workload.Name {
		return "", nil
	}
	podGroup, err := getFromInformer(informer, pod.Namespace, workload.Name)
	if err != nil || podGroup == nil {
		return "", err
	}
	return podGroup.GetUID(), nil
}

// templateForPodGroup returns the template of a claim for a PodGroup. Upstream generates one for the
// group: that is also what a template with PodGroups in spec.spec.reservedFor asks for.
func templateForPodGroup(template *resourceapi.ResourceClaimTemplate) (*resourceapi.ResourceClaimTemplate, error) {
	ref := template.Spec.Spec.ReservedFor
	if ref == nil {
		return template, nil
	}
	if gr := (schema.GroupResource{Group: ref.APIGroup, Resource: ref.Resource}); gr != podGroupResource {
		return nil, fmt.Errorf("ResourceClaimTemplate %q is for %s because of spec.spec.reservedFor, but a PodGroup uses it; remove the claim from the PodGroup, or use a template without the field", template.Name, gr)
	}
	template = template.DeepCopy()
	template.Spec.Spec.ReservedFor = nil
	return template, nil
}

// bindTo determines for what an allocated claim must be reserved when mustReserve
// returns true. The allocation cannot be changed anymore, so what matters is how
// the claim was allocated.
func (ec *Controller) bindTo(ctx context.Context, pod *v1.Pod, podGroup *schedulingapi.PodGroup, podClaim *v1.PodResourceClaim, claim *resourceapi.ResourceClaim) (resourceapi.ResourceClaimConsumerReference, error) {
	if ec.features.ReservedForWorkloads && resourceclaim.IsAllocatedForAnyPod(claim) {
		return ec.consumerForPod(ctx, claim, pod)
	}
	return resourceclaim.BindTo(pod, podGroup, podClaim)
}
