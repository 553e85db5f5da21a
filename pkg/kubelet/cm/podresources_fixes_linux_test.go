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

package cm

import (
	"testing"

	"github.com/stretchr/testify/require"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	kubefeatures "k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/cm/dra/state"
	"k8s.io/utils/ptr"
)

// TestDynamicResourcesOfContainer checks what programs are told that ask which devices a container has.
func TestDynamicResourcesOfContainer(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, kubefeatures.DynamicResourceAllocation, true)
	device := func(name string, requests ...string) state.Device {
		return state.Device{PoolName: "pool", DeviceName: name, RequestNames: requests, CDIDeviceIDs: []string{"example.com/gpu=" + name, "example.com/common=" + name}}
	}
	names := func(devices ...string) map[string][]string {
		result := make(map[string][]string)
		for _, name := range devices {
			result["driver/pool/"+name] = []string{"example.com/gpu=" + name, "example.com/common=" + name}
		}
		return result
	}
	claims := state.ClaimInfoStateList{
		{ClaimUID: "1", ClaimName: "claim", Namespace: "default", PodUIDs: sets.New("uid"), DriverState: map[string]state.DriverState{
			"driver": {Devices: []state.Device{device("gpu-0", "a"), device("gpu-1", "b"), device("gpu-2", "a", "c"), device("gpu-3")}},
		}},
		{ClaimUID: "2", ClaimName: "other", Namespace: "default", PodUIDs: sets.New("uid"), DriverState: map[string]state.DriverState{
			"driver": {Devices: []state.Device{device("gpu-4", "a")}},
		}},
	}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod", UID: "uid"},
		Spec: v1.PodSpec{ResourceClaims: []v1.PodResourceClaim{
			{Name: "first", ResourceClaimName: ptr.To("claim")},
			{Name: "second", ResourceClaimName: ptr.To("other")},
			{Name: "again", ResourceClaimName: ptr.To("claim")},
			{Name: "none", ResourceClaimTemplateName: ptr.To("template")},
		}},
		Status: v1.PodStatus{ResourceClaimStatuses: []v1.PodResourceClaimStatus{{Name: "none"}}},
	}

	for name, test := range map[string]struct {
		claims []v1.ResourceClaim
		want   map[string]map[string][]string
	}{
		"all": {
			claims: []v1.ResourceClaim{{Name: "first"}},
			want:   map[string]map[string][]string{"claim": names("gpu-0", "gpu-1", "gpu-2", "gpu-3")},
		},
		"one request": {
			claims: []v1.ResourceClaim{{Name: "first", Request: "a"}},
			want:   map[string]map[string][]string{"claim": names("gpu-0", "gpu-2", "gpu-3")},
		},
		"two requests": {
			claims: []v1.ResourceClaim{{Name: "first", Request: "b"}, {Name: "first", Request: "c"}},
			want:   map[string]map[string][]string{"claim": names("gpu-1", "gpu-2", "gpu-3")},
		},
		"two names of one claim": {
			claims: []v1.ResourceClaim{{Name: "first", Request: "a"}, {Name: "again", Request: "b"}},
			want:   map[string]map[string][]string{"claim": names("gpu-0", "gpu-1", "gpu-2", "gpu-3")},
		},
		"two claims": {
			claims: []v1.ResourceClaim{{Name: "first", Request: "b"}, {Name: "second"}},
			want:   map[string]map[string][]string{"claim": names("gpu-1", "gpu-3"), "other": names("gpu-4")},
		},
		"no claim needed": {
			claims: []v1.ResourceClaim{{Name: "second"}, {Name: "none"}},
			want:   map[string]map[string][]string{"other": names("gpu-4")},
		},
		"none": {want: map[string]map[string][]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			stateDir := t.TempDir()
			checkpointer, err := state.NewCheckpointer(stateDir, "dra_manager_state")
			require.NoError(t, err)
			checkpoint, err := state.NewCheckpoint(claims)
			require.NoError(t, err)
			require.NoError(t, checkpointer.Store(checkpoint))

			got := make(map[string]map[string][]string)
			for _, claim := range dynamicResources(t, stateDir, pod, &v1.Container{Name: "container", Resources: v1.ResourceRequirements{Claims: test.claims}}) {
				require.NotContains(t, got, claim.ClaimName, "listed twice")
				got[claim.ClaimName] = make(map[string][]string)
				for _, resource := range claim.ClaimResources {
					id := resource.DriverName + "/" + resource.PoolName + "/" + resource.DeviceName
					got[claim.ClaimName][id] = cdiNames(resource)
				}
			}
			require.Equal(t, test.want, got)
		})
	}
}
