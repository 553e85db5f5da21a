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
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

var podGroup = makePodGroup(workloadName, testNamespace, workloadUID)

func TestKeepPodGroupReference(t *testing.T) {
	type refs = []resourceapi.ResourceClaimConsumerReference

	for name, test := range map[string]keepTest{
		"podgroup-without-informer": {
			claim:          workloadClaim(podGroupRef),
			objects:        []runtime.Object{podGroup},
			expect:         refs{podGroupRef},
			expectRequests: []string{"get podgroups"},
			expectDelay:    defaultPollInterval,
		},
		"podgroup-with-informer": {
			features: &Features{ReservedForWorkloads: true, WorkloadResourceClaims: true},
			claim:    workloadClaim(podGroupRef),
			objects:  []runtime.Object{podGroup},
			expect:   refs{podGroupRef},
		},
		"podgroup-gone": {
			features:       &Features{ReservedForWorkloads: true, WorkloadResourceClaims: true},
			claim:          workloadClaim(podGroupRef),
			expectRequests: []string{"get podgroups", "list pods"},
		},
		"podgroup-gone-with-pods": {
			features:    &Features{ReservedForWorkloads: true, WorkloadResourceClaims: true},
			claim:       workloadClaim(podGroupRef),
			objects:     []runtime.Object{runningPod},
			expect:      refs{podGroupRef},
			expectDelay: defaultNoticePeriod,
		},
		"podgroup-gone-not-reserved-for-workload": {
			// Reserved because the claim is one of those of the PodGroup.
			features: &Features{ReservedForWorkloads: true, WorkloadResourceClaims: true},
			claim: func() *resourceapi.ResourceClaim {
				claim := reservedBy(perPodClaim(podGroupRef), podGroupRef)
				claim.Spec.ReservedFor = nil
				return claim
			}(),
			objects:           []runtime.Object{runningPod},
			expectDeallocated: true,
			expectRequests:    []string{"get podgroups"},
		},
		"podgroup-not-served": {
			claim:          workloadClaim(podGroupRef),
			getError:       notServed,
			expect:         refs{podGroupRef},
			expectRequests: []string{"get podgroups"},
			expectDelay:    defaultRetryInterval,
			expectEvents:   []string{"Warning UnknownWorkload"},
		},
		"disabled-unknown-with-podgroups": {
			features:     &Features{WorkloadResourceClaims: true},
			claim:        workloadClaim(unknownRef),
			expect:       refs{unknownRef},
			expectDelay:  defaultRetryInterval,
			expectEvents: []string{"Warning UnknownWorkload"},
		},
		"disabled-podgroup-gone": {
			features:       &Features{WorkloadResourceClaims: true},
			claim:          workloadClaim(podGroupRef),
			expectRequests: []string{"get podgroups", "list pods"},
		},
		"disabled-podgroup-gone-with-pods": {
			features: &Features{WorkloadResourceClaims: true},
			claim:    workloadClaim(podGroupRef),
			objects:  []runtime.Object{runningPod},
			expect:   refs{podGroupRef},
		},
	} {
		t.Run(name, test.run)
	}
}

// TestPodGroupUID ensures that the controller finds the PodGroup that a pod belongs to as the scheduler does. It is
// not in the owner references of the pod.
func TestPodGroupUID(t *testing.T) {
	pod := func(group string) *v1.Pod {
		pod := boundPod.DeepCopy()
		pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: ptr.To(group)}
		return pod
	}
	oldRef := withUID(podGroupRef, "training-0")
	claim := reservedBy(anyPodClaim(podGroupRef), oldRef)
	for name, test := range map[string]struct {
		features Features
		pod      *v1.Pod
		expect   types.UID
	}{
		"member":   {features: Features{ReservedForWorkloads: true, WorkloadResourceClaims: true}, pod: pod(workloadName), expect: workloadUID},
		"other":    {features: Features{ReservedForWorkloads: true, WorkloadResourceClaims: true}, pod: pod("other")},
		"no-group": {features: Features{ReservedForWorkloads: true, WorkloadResourceClaims: true}, pod: boundPod},
		"no-watch": {features: Features{ReservedForWorkloads: true}, pod: pod(workloadName)},
	} {
		t.Run(name, func(t *testing.T) {
			tt := newWorkloadTest(t, test.features, claim, podGroup, test.pod)
			uid, err := tt.ec.workloadUIDOf(tt, test.pod, claim, true)
			tt.ExpectNoError(err)
			assert.Equal(t, test.expect, uid)
			assert.Equal(t, test.expect != "", tt.ec.mustReserve(tt, test.pod, claim))
			consumer, err := tt.ec.consumerForPod(tt, claim, test.pod)
			tt.ExpectNoError(err)
			if test.expect != "" {
				assert.Equal(t, podGroupRef, consumer)
			} else {
				assert.Equal(t, podReference(test.pod), consumer)
			}
		})
	}
}
