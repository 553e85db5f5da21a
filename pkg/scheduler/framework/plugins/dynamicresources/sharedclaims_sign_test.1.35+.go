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

package dynamicresources

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/ptr"
)

// TestSharedClaimsSignPod covers which pods are alike for the scheduler.
func TestSharedClaimsSignPod(t *testing.T) {
	withClaims := func(pod *v1.Pod, names ...string) *v1.Pod {
		pod.Spec.ResourceClaims = nil
		for _, name := range names {
			pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, v1.PodResourceClaim{Name: name, ResourceClaimName: &name})
		}
		return pod
	}
	otherNamespace := newSharingPod("pod-2")
	otherNamespace.Namespace = "other"
	generated := newSharingPod("pod-2")
	generated.Spec.ResourceClaims = append(generated.Spec.ResourceClaims, v1.PodResourceClaim{Name: "generated", ResourceClaimTemplateName: ptr.To("template")})
	// What it gets told to use may have been generated for others, too.
	told := newSharingPod("pod-2")
	told.Spec.ResourceClaims[0] = v1.PodResourceClaim{Name: resourceName, ResourceClaimTemplateName: ptr.To("template")}
	told.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: resourceName, ResourceClaimName: ptr.To(sharedClaimName)}}
	ownedBy := func(apiVersion, kind, name string) *resourceapi.ResourceClaim {
		claim := newSharedClaim()
		claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(name), Controller: ptr.To(true)}}
		return claim
	}
	// Two pods of one template have a claim each.
	ofTemplate := func(name string) *v1.Pod {
		pod := newSharingPod(name)
		pod.Spec.ResourceClaims[0] = v1.PodResourceClaim{Name: resourceName, ResourceClaimTemplateName: ptr.To("template")}
		pod.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: resourceName, ResourceClaimName: ptr.To(name + "-claim")}}
		return pod
	}
	claimsOfTemplate := func(change func(claim *resourceapi.ResourceClaim)) []*resourceapi.ResourceClaim {
		var claims []*resourceapi.ResourceClaim
		for _, name := range []string{"pod-1", "pod-2"} {
			claim := ownedBy("v1", "Pod", name)
			claim.Name = name + "-claim"
			claims = append(claims, claim)
		}
		if change != nil {
			change(claims[1])
		}
		return claims
	}
	off := func(feats *feature.Features) { feats.EnableDRASharedClaims = false }

	for name, tc := range map[string]struct {
		features  func(feats *feature.Features)
		claims    []*resourceapi.ResourceClaim
		first     *v1.Pod
		pod       *v1.Pod
		wantAlike bool
		wantNone  bool
	}{
		"same-claim":      {pod: newSharingPod("pod-2"), wantAlike: true},
		"other-claim":     {pod: withClaims(newSharingPod("pod-2"), "other")},
		"other-namespace": {pod: otherNamespace},
		"more-claims":     {pod: withClaims(newSharingPod("pod-2"), sharedClaimName, "other")},
		"generated-claim": {pod: generated, wantNone: true},
		"for-several":     {claims: []*resourceapi.ResourceClaim{ownedBy("batch/v1", "Job", "job")}, pod: told, wantAlike: true},
		"of-a-template":   {claims: claimsOfTemplate(nil), first: ofTemplate("pod-1"), pod: ofTemplate("pod-2"), wantAlike: true},
		"other-content": {
			claims: claimsOfTemplate(func(claim *resourceapi.ResourceClaim) {
				claim.Spec.Devices.Requests[0].Exactly.Count = 7
			}),
			first: ofTemplate("pod-1"), pod: ofTemplate("pod-2"),
		},
		"has-devices": {
			claims: claimsOfTemplate(func(claim *resourceapi.ResourceClaim) {
				claim.Status.Allocation = &resourceapi.AllocationResult{}
			}),
			first: ofTemplate("pod-1"), pod: ofTemplate("pod-2"), wantNone: true,
		},
		"has-alternatives": {
			claims: claimsOfTemplate(func(claim *resourceapi.ResourceClaim) {
				claim.Spec.Devices.Requests[0] = resourceapi.DeviceRequest{Name: "any", FirstAvailable: []resourceapi.DeviceSubRequest{{Name: "one"}}}
			}),
			first: ofTemplate("pod-1"), pod: ofTemplate("pod-2"), wantNone: true,
		},
		"large-spec": {
			claims: claimsOfTemplate(func(claim *resourceapi.ResourceClaim) {
				expression := strings.Repeat("x", maxSignedSpec)
				claim.Spec.Devices.Requests[0].Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}}
			}),
			first: ofTemplate("pod-1"), pod: ofTemplate("pod-2"), wantNone: true,
		},
		"claim-is-gone": {pod: told, wantNone: true},
		"gate-off":      {features: off, pod: newSharingPod("pod-2"), wantNone: true},
	} {
		syncTest(t, name, func(tCtx ktesting.TContext) {
			feats := sharedClaimsFeatures()
			if tc.features != nil {
				tc.features(&feats)
			}
			test := newSharedClaimsTest(tCtx, feats, tc.claims)
			sign := func(pod *v1.Pod) string {
				fragments, status := test.p.SignPod(tCtx, pod)
				if !status.IsSuccess() {
					return ""
				}
				signature, err := json.Marshal(fragments)
				require.NoError(tCtx, err)
				return string(signature)
			}
			if tc.first == nil {
				tc.first = newSharingPod("pod-1")
			}
			first, second := sign(tc.first), sign(tc.pod)
			if tc.wantNone {
				assert.Empty(tCtx, second)
				return
			}
			require.NotEmpty(tCtx, second)
			assert.Equal(tCtx, tc.wantAlike, first == second, "%s and %s", first, second)
		})
	}

	syncTest(t, "no-claim", func(tCtx ktesting.TContext) {
		pod := withClaims(newSharingPod("pod-1"))
		fragments, status := newSharedClaimsTest(tCtx, sharedClaimsFeatures(), nil).p.SignPod(tCtx, pod)
		assert.True(tCtx, status.IsSuccess())
		assert.Empty(tCtx, fragments)
	})
}
