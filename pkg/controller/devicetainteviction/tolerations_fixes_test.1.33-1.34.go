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

package devicetainteviction

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"
)

// TestTolerationOfRequest checks that the tolerations in the spec of a claim count, although the allocation
// has no copy of them, whichever comes first.
func TestTolerationOfRequest(t *testing.T) {
	forever := resourceapi.DeviceToleration{Operator: resourceapi.DeviceTolerationOpExists}
	minute := resourceapi.DeviceToleration{Operator: resourceapi.DeviceTolerationOpExists, Effect: resourceapi.DeviceTaintEffectNoExecute, TolerationSeconds: ptr.To(int64(60))}
	other := resourceapi.DeviceToleration{Key: "other", Operator: resourceapi.DeviceTolerationOpExists}
	request := func(name string, tolerations ...resourceapi.DeviceToleration) resourceapi.DeviceRequest {
		return requestWithTolerations(name, tolerations)
	}
	alternatives := resourceapi.DeviceRequest{Name: "req", FirstAvailable: []resourceapi.DeviceSubRequest{
		{Name: "a", DeviceClassName: className, Tolerations: []resourceapi.DeviceToleration{minute}},
		{Name: "b", DeviceClassName: className, Tolerations: []resourceapi.DeviceToleration{forever}},
	}}

	for name, tc := range map[string]struct {
		requests  []resourceapi.DeviceRequest
		allocated string
		copied    []resourceapi.DeviceToleration
		evicted   bool
		delay     time.Duration
	}{
		"forever":           {requests: []resourceapi.DeviceRequest{request("req", forever)}, allocated: "req"},
		"for-a-while":       {requests: []resourceapi.DeviceRequest{request("req", minute)}, allocated: "req", evicted: true, delay: time.Minute},
		"other-taint":       {requests: []resourceapi.DeviceRequest{request("req", other)}, allocated: "req", evicted: true},
		"none":              {requests: []resourceapi.DeviceRequest{request("req")}, allocated: "req", evicted: true},
		"other-request":     {requests: []resourceapi.DeviceRequest{request("other", forever), request("req", minute)}, allocated: "req", evicted: true, delay: time.Minute},
		"first-alternative": {requests: []resourceapi.DeviceRequest{alternatives}, allocated: "req/a", evicted: true, delay: time.Minute},
		"other-alternative": {requests: []resourceapi.DeviceRequest{alternatives}, allocated: "req/b"},
		"copied":            {requests: []resourceapi.DeviceRequest{request("req", forever)}, allocated: "req", copied: []resourceapi.DeviceToleration{minute}, evicted: true, delay: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			pod, listed := makeListedPod("-1")
			pending := claim.DeepCopy()
			pending.Spec.Devices.Requests = tc.requests
			claim := pending.DeepCopy()
			claim.Status.Allocation = allocationResult.DeepCopy()
			for i := range claim.Status.Allocation.Devices.Results {
				claim.Status.Allocation.Devices.Results[i].Request = tc.allocated
				claim.Status.Allocation.Devices.Results[i].Tolerations = tc.copied
			}
			claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{listed}
			test := evictionTest{delay: tc.delay}
			if tc.evicted {
				test.evicted = []*v1.Pod{pod}
			}
			for order, events := range map[string][]any{
				"taint-comes":     {add(slice), add(claim), add(pod), update(slice, sliceTainted)},
				"claim-comes":     {add(sliceTainted), add(pod), add(claim)},
				"claim-allocated": {add(sliceTainted), add(pod), add(pending), update(pending, claim)},
			} {
				t.Run(order, func(t *testing.T) {
					runEvictionTest(t, func(tContext *testContext) { test.check(tContext, events) })
				})
			}
		})
	}
}
