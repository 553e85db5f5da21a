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

package resourceclaimspec

import (
	"testing"

	"github.com/stretchr/testify/assert"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/apis/resource"
	"k8s.io/kubernetes/pkg/features"
)

func TestDropDisabledDRAReservedForWorkloadsFields(t *testing.T) {
	without := &resource.ResourceClaimSpec{Devices: resource.DeviceClaim{Requests: []resource.DeviceRequest{{Name: "req-0"}}}}
	with := without.DeepCopy()
	with.ReservedFor = &resource.ResourceClaimWorkloadReference{APIGroup: "batch", Resource: "jobs", Name: "some-job"}

	for name, tc := range map[string]struct {
		gate               bool
		new, old, expected *resource.ResourceClaimSpec
	}{
		"on-create":         {gate: true, new: with, expected: with},
		"on-create-unset":   {gate: true, new: without, expected: without},
		"on-update-unset":   {gate: true, new: with, old: without, expected: with},
		"off-create":        {new: with, expected: without},
		"off-create-unset":  {new: without, expected: without},
		"off-update-in-use": {new: with, old: with, expected: with},
		"off-update-unset":  {new: with, old: without, expected: without},
	} {
		t.Run(name, func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAReservedForWorkloads, tc.gate)
			actual := tc.new.DeepCopy()
			DropDisabledDRAReservedForWorkloadsFields(actual, tc.old.DeepCopy())
			assert.Equal(t, tc.expected, actual)
		})
	}
}
