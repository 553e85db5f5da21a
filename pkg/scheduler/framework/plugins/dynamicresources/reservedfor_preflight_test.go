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
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/ptr"
)

func TestReservedForBindingConditions(t *testing.T) {
	syncTest(t, "", func(tCtx ktesting.TContext) {
		claim := newWorkloadClaim(workloadRefWithUID)
		claim.Status.Allocation.AllocationTimestamp = ptr.To(metav1.Now())
		claim.Status.Allocation.Devices.Results[0].BindingConditions = []string{"ready"}
		claim.Status.Devices = []resourceapi.AllocatedDeviceStatus{{
			Driver: driver, Pool: nodeName, Device: "instance-1",
			Conditions: []metav1.Condition{{Type: "ready", Status: metav1.ConditionTrue}},
		}}
		tc := newReservedForTest(tCtx, reservedForFeatures(true), []*resourceapi.ResourceClaim{claim})
		// There is nothing to write, but PreBind has to check the conditions.
		cycle := tc.schedule(newJobPod("pod-1"))
		assert.Nil(tCtx, cycle.preBindPreFlight())
		require.Nil(tCtx, cycle.bind(tCtx))
		assert.Empty(tCtx, tc.api.takeWrites())
	})
}
