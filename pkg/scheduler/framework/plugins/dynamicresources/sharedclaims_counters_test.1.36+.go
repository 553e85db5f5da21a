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
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/ptr"
)

// TestSharesWithoutCapacity covers a device whose shares consume no capacity of it. The counters of the device
// are taken once, and not again for each share.
func TestSharesWithoutCapacity(t *testing.T) {
	const counterDriver, counterPool = "counters.example.com", "counters"
	counters := map[string]resourceapi.Counter{"memory": {Value: resource.MustParse("1")}}
	newSlice := func(name string) *resourceapi.ResourceSlice {
		return &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.ResourceSliceSpec{
			Driver: counterDriver, NodeName: ptr.To(nodeName), Pool: resourceapi.ResourcePool{Name: counterPool, ResourceSliceCount: 2},
		}}
	}
	counterSlice, deviceSlice := newSlice("counter-slice"), newSlice("device-slice")
	counterSlice.Spec.SharedCounters = []resourceapi.CounterSet{{Name: "set", Counters: counters}}
	for _, name := range []string{"shared", "other"} {
		deviceSlice.Spec.Devices = append(deviceSlice.Spec.Devices, resourceapi.Device{
			Name: name, AllowMultipleAllocations: ptr.To(true), ConsumesCounters: []resourceapi.DeviceCounterConsumption{{CounterSet: "set", Counters: counters}},
		})
	}
	for name, used := range map[string]string{"a share of the same device": "shared", "a share of a device that excludes it": "other"} {
		syncTest(t, name, func(tCtx ktesting.TContext) {
			featuregatetesting.SetFeatureGateDuringTest(tCtx, utilfeature.DefaultFeatureGate, features.DRAConsumableCapacity, true)
			feats := sharedClaimsFeatures()
			feats.EnableDRAConsumableCapacity, feats.EnableDRAPartitionableDevices = true, true
			busy, user := newAllocatedSharedClaim(), newAllocatedSharedClaim() // The node's other device is in use.
			busy.Name, user.Name = "busy", "user"
			result := &user.Status.Allocation.Devices.Results[0]
			result.Driver, result.Pool, result.Device = counterDriver, counterPool, used
			result.ShareID = ptr.To(types.UID("5f9b5c6d-6a4e-4c9b-8f0a-2f6f1f1c7b1a"))
			claim := newSharedClaim()
			claim.Spec.Devices.Requests[0].Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
				Expression: `device.driver == "` + counterDriver + `"`,
			}}}
			tc := newSharedClaimsTest(tCtx, feats, []*resourceapi.ResourceClaim{claim, busy, user}, counterSlice, deviceSlice)
			cycle, status := tc.preFilter(newSharingPod("pod-1"))
			require.Nil(tCtx, status)
			assert.True(tCtx, slices.Contains(cycle.filter(), nodeName), "another share can be had")
		})
	}
}
