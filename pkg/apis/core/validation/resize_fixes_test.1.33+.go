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

package validation

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"k8s.io/apimachinery/pkg/api/resource"
	podtest "k8s.io/kubernetes/pkg/api/pod/testing"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/utils/ptr"
)

// TestResizeWithClaims checks that CPU and memory of a container with claims can be changed, and nothing else.
func TestResizeWithClaims(t *testing.T) {
	mkPod := func(cpu string, claims ...core.ResourceClaim) *core.Pod {
		container := podtest.MakeContainer("container", podtest.SetContainerResources(core.ResourceRequirements{
			Requests: core.ResourceList{core.ResourceCPU: resource.MustParse(cpu)},
			Claims:   claims,
		}))
		sidecar := *container.DeepCopy()
		sidecar.Name = "sidecar"
		sidecar.RestartPolicy = ptr.To(core.ContainerRestartPolicyAlways)
		return podtest.MakePod("pod",
			podtest.SetContainers(container),
			podtest.SetInitContainers(sidecar),
			podtest.SetResourceClaims(
				core.PodResourceClaim{Name: "a", ResourceClaimName: ptr.To("claim-a")},
				core.PodResourceClaim{Name: "b", ResourceClaimName: ptr.To("claim-b")},
			),
		)
	}
	a, b := core.ResourceClaim{Name: "a"}, core.ResourceClaim{Name: "b"}
	for name, test := range map[string]struct {
		claims  []core.ResourceClaim
		allowed bool
	}{
		"same claims":   {claims: []core.ResourceClaim{a}, allowed: true},
		"other claim":   {claims: []core.ResourceClaim{b}},
		"more claims":   {claims: []core.ResourceClaim{a, b}},
		"no claims":     {},
		"other request": {claims: []core.ResourceClaim{{Name: "a", Request: "req"}}},
	} {
		t.Run(name, func(t *testing.T) {
			oldPod, newPod := mkPod("100m", a), mkPod("200m", test.claims...)
			oldPod.ResourceVersion, newPod.ResourceVersion = "1", "1"
			errs := ValidatePodResize(newPod, oldPod, PodValidationOptions{AllowSidecarResizePolicy: true})
			assert.Equal(t, test.allowed, len(errs) == 0, "%v", errs)
		})
	}
}
