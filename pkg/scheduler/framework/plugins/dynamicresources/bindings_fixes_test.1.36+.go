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
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingapi "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/ptr"
)

// TestBindingsWithoutClaim covers a pod where nothing had to be created for one of the
// entries in spec.resourceClaims.
func TestBindingsWithoutClaim(t *testing.T) {
	tCtx := ktesting.Init(t)
	featuregatetesting.SetFeatureGatesDuringTest(tCtx, utilfeature.DefaultFeatureGate, featuregatetesting.FeatureOverrides{
		features.DRAWorkloadResourceClaims: true,
		features.GenericWorkload:           true, // dependency of DRAWorkloadResourceClaims
	})
	pod := podWithClaimName.DeepCopy()
	pod.Spec.ResourceClaims = append([]v1.PodResourceClaim{{Name: "unused", ResourceClaimTemplateName: ptr.To("template")}}, pod.Spec.ResourceClaims...)
	pod.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "unused"}}
	pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: ptr.To(podGroupName)}
	podGroup := st.MakePodGroup().Name(podGroupName).Namespace(namespace).UID(types.UID(podGroupUID)).Obj()
	feats := feature.Features{
		EnableDynamicResourceAllocation:    true,
		EnableDRAWorkloadResourceClaims:    true,
		EnableDRADeviceBindingConditions:   true,
		EnableDRAResourceClaimDeviceStatus: true,
		EnableDRASchedulerFilterTimeout:    true,
	}
	tc := setup(tCtx, nil, nil, []*resourceapi.ResourceClaim{allocatedClaim}, nil, []*schedulingapi.PodGroup{podGroup}, nil, feats, false, nil)
	claims, err := tc.p.podResourceClaims(pod)
	require.NoError(t, err)
	bindings, err := tc.p.podResourceClaimBindings(pod)
	require.NoError(t, err)
	require.Len(t, claims, 1)
	assert.Len(t, bindings, len(claims), "both lists have the same index")
}
