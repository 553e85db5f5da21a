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
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/dra"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// dynamicResources asks a kubelet that has the given state.
func dynamicResources(t *testing.T, stateDir string, pod *v1.Pod, container *v1.Container) []*podresourcesapi.DynamicResource {
	manager, err := dra.NewManager(ktesting.Init(t).Logger(), nil, stateDir)
	require.NoError(t, err)
	return (&containerManagerImpl{draManager: manager}).GetDynamicResources(pod, container)
}

func cdiNames(resource *podresourcesapi.ClaimResource) []string {
	var names []string
	for _, device := range resource.CdiDevices {
		names = append(names, device.Name)
	}
	return names
}
