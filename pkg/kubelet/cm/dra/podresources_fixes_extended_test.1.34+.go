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

package dra

import (
	"testing"

	"github.com/stretchr/testify/assert"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/dra/state"
)

// TestOnlyRequestedExtended checks that a container is listed with the devices of its own extended resources.
func TestOnlyRequestedExtended(t *testing.T) {
	pod := &v1.Pod{Status: v1.PodStatus{ExtendedResourceClaimStatus: &v1.PodExtendedResourceClaimStatus{
		ResourceClaimName: "extended",
		RequestMappings: []v1.ContainerExtendedResourceRequest{
			{ContainerName: "first", ResourceName: "example.com/gpu", RequestName: "container-0-request-0"},
			{ContainerName: "second", ResourceName: "example.com/gpu", RequestName: "container-1-request-0"},
		},
	}}}
	devices := []state.Device{
		{DeviceName: "gpu-0", RequestNames: []string{"container-0-request-0"}},
		{DeviceName: "gpu-1", RequestNames: []string{"container-1-request-0"}},
	}
	for i, name := range []string{"first", "second"} {
		info := (&ClaimInfo{ClaimInfoState: state.ClaimInfoState{ClaimName: "extended", DriverState: map[string]state.DriverState{"driver": {Devices: devices}}}}).DeepCopy()
		infos := OnlyRequested(pod, &v1.Container{Name: name}, []*ClaimInfo{info})
		assert.Len(t, infos, 1)
		assert.Equal(t, devices[i:i+1], infos[0].DriverState["driver"].Devices)
	}
	assert.Empty(t, OnlyRequested(pod, &v1.Container{Name: "third"}, []*ClaimInfo{{ClaimInfoState: state.ClaimInfoState{ClaimName: "extended"}}}))
}
