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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"
)

// This release has no PodGroups: there is nothing to tell apart, and the
// controller itself only reserves for pods.

func podGroupWorkloadKinds(features Features) []*workloadKind { return nil }

func (ec *Controller) podGroupUID(*v1.Pod, *resourceapi.ResourceClaimWorkloadReference) (types.UID, error) {
	return "", nil
}

// reserveForUser is called instead of reserveForPod. The allocation cannot be changed
// anymore, so what matters is how the claim was allocated.
func (ec *Controller) reserveForUser(ctx context.Context, pod *v1.Pod, claim *resourceapi.ResourceClaim) error {
	if !ec.features.ReservedForWorkloads || !resourceclaim.IsAllocatedForAnyPod(claim) {
		return ec.reserveForPod(ctx, pod, claim)
	}
	consumer, err := ec.consumerForPod(ctx, claim, pod)
	if err != nil {
		return err
	}
	return ec.reserveFor(ctx, consumer, claim)
}

// reserveFor adds one consumer.
func (ec *Controller) reserveFor(ctx context.Context, consumer resourceapi.ResourceClaimConsumerReference, claim *resourceapi.ResourceClaim) error {
	claim = claim.DeepCopy()
	claim.Status.ReservedFor = append(claim.Status.ReservedFor, consumer)
	if _, err := claimClient(ec.kubeClient, claim.Namespace).UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("reserve claim %s for %s %s: %w", klog.KObj(claim), consumer.Resource, consumer.Name, err)
	}
	return nil
}
