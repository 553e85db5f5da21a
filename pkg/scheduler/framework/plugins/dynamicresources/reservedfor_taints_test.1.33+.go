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

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// TestReservedForTaints covers an allocation with a device that has taints.
func TestReservedForTaints(t *testing.T) {
	taint := func(effect resourceapi.DeviceTaintEffect) resourceapi.DeviceTaint {
		return resourceapi.DeviceTaint{Key: "broken", Value: "yes", Effect: effect}
	}
	for name, tcase := range map[string]struct {
		disabled    bool
		taint       resourceapi.DeviceTaint
		tolerations []resourceapi.DeviceToleration
		// inSpec is true if the allocation does not have a copy of the tolerations.
		inSpec bool
		expect string
	}{
		"no-execute":        {taint: taint(resourceapi.DeviceTaintEffectNoExecute), expect: "device some-driver/worker/instance-1 has the taint broken=yes:NoExecute"},
		"no-schedule":       {taint: taint(resourceapi.DeviceTaintEffectNoSchedule), expect: "device some-driver/worker/instance-1 has the taint broken=yes:NoSchedule"},
		"other-effect":      {taint: taint("None")},
		"disabled":          {disabled: true, taint: taint(resourceapi.DeviceTaintEffectNoExecute)},
		"tolerated":         {taint: taint(resourceapi.DeviceTaintEffectNoExecute), tolerations: []resourceapi.DeviceToleration{{Key: "broken", Operator: resourceapi.DeviceTolerationOpExists}}},
		"tolerated-in-spec": {taint: taint(resourceapi.DeviceTaintEffectNoExecute), inSpec: true, tolerations: []resourceapi.DeviceToleration{{Key: "broken", Operator: resourceapi.DeviceTolerationOpExists}}},
		"not-tolerated":     {taint: taint(resourceapi.DeviceTaintEffectNoExecute), tolerations: []resourceapi.DeviceToleration{{Key: "other", Operator: resourceapi.DeviceTolerationOpExists}}, expect: "has the taint"},
	} {
		syncTest(t, name, func(tCtx ktesting.TContext) {
			feats := reservedForFeatures(true)
			feats.EnableDRADeviceTaints = !tcase.disabled
			claim := newWorkloadClaim(workloadRefWithUID)
			if tcase.inSpec {
				setTolerations(&claim.Spec.Devices.Requests[0], tcase.tolerations)
			} else {
				claim.Status.Allocation.Devices.Results[0].Tolerations = tcase.tolerations
			}
			tc := newReservedForTest(tCtx, feats, []*resourceapi.ResourceClaim{claim})
			tc.changeSlice(func(slice *resourceapi.ResourceSlice) {
				for i := range slice.Spec.Devices {
					addTaint(&slice.Spec.Devices[i], tcase.taint)
				}
			})
			tc.requireDevicesFit(newJobPod("pod-1"), tcase.expect)
		})
	}
}
