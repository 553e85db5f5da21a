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

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/apis/resource"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/utils/ptr"
)

// TestTypedClientKeepsParameters covers an update of the status by a client which does not know reservedForAnyPod, and
// which formats parameters as Go does.
func TestTypedClientKeepsParameters(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAResourceClaimDeviceStatus, true)
	ctx := genericapirequest.WithUser(genericapirequest.NewDefaultContext(), &user.DefaultInfo{Name: "some-user"})
	_, strategy := newStrategies()
	withParameters := func(allocation resource.AllocationResult, parameters string) *resource.AllocationResult {
		allocation.Devices.Config = []resource.DeviceAllocationConfiguration{{
			Source: resource.AllocationConfigSourceClass,
			DeviceConfiguration: resource.DeviceConfiguration{Opaque: &resource.OpaqueDeviceConfiguration{
				Driver: "driver.example.com", Parameters: runtime.RawExtension{Raw: []byte(parameters)},
			}},
		}}
		return &allocation
	}
	stored := claimForWorkload()
	stored.Status.Allocation = withParameters(resource.AllocationResult{ReservedForAnyPod: ptr.To(true)}, `{"mode": "<fast>"}`)
	typed := claimForWorkload()
	typed.Status.Allocation = withParameters(resource.AllocationResult{}, `{"mode":"\u003cfast\u003e"}`)
	strategy.PrepareForUpdate(ctx, typed, stored)
	assert.Equal(t, stored.Status, typed.Status)
}
