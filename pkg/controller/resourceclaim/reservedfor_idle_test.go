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
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
)

// withClasses lets the claim ask for a device of each class. The shape of a request differs between
// the versions of the API. What one of them does not know is ignored.
func withClasses(t *testing.T, claim *resourceapi.ResourceClaim, classes ...string) *resourceapi.ResourceClaim {
	t.Helper()
	var requests []string
	for i, class := range classes {
		requests = append(requests, fmt.Sprintf(`{"name":"r%d","deviceClassName":%q,"exactly":{"deviceClassName":%q}}`, i, class, class))
	}
	claim = claim.DeepCopy()
	require.NoError(t, json.Unmarshal([]byte(`{"devices":{"requests":[`+strings.Join(requests, ",")+`]}}`), &claim.Spec))
	return claim
}

func idleClass(name, value string) *resourceapi.DeviceClass {
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if value != "" {
		class.Annotations = map[string]string{resourceclaim.ReleaseWhenIdleAnnotation: value}
	}
	return class
}

// TestReleaseWhenIdleClass covers who decides when a claim is idle.
func TestReleaseWhenIdleClass(t *testing.T) {
	for name, test := range map[string]struct {
		claim   *resourceapi.ResourceClaim
		classes []runtime.Object
		// expect is after how long it is released, zero if never.
		expect time.Duration
		events []string
	}{
		"no-class":         {claim: withClasses(t, workloadClaim(jobRef), "gpu")},
		"no-annotation":    {claim: withClasses(t, workloadClaim(jobRef), "gpu"), classes: []runtime.Object{idleClass("gpu", "")}},
		"class":            {claim: withClasses(t, workloadClaim(jobRef), "gpu"), classes: []runtime.Object{idleClass("gpu", "20m")}, expect: 20 * time.Minute},
		"other-class":      {claim: withClasses(t, workloadClaim(jobRef), "gpu"), classes: []runtime.Object{idleClass("nic", "20m")}},
		"shortest":         {claim: withClasses(t, workloadClaim(jobRef), "gpu", "nic", "fpga"), classes: []runtime.Object{idleClass("gpu", "1h"), idleClass("nic", "20m"), idleClass("fpga", "")}, expect: 20 * time.Minute},
		"claim-is-longer":  {claim: withClasses(t, idleClaim(jobRef, "1h"), "gpu"), classes: []runtime.Object{idleClass("gpu", "20m")}, expect: time.Hour},
		"claim-is-shorter": {claim: withClasses(t, idleClaim(jobRef, "1m"), "gpu"), classes: []runtime.Object{idleClass("gpu", "20m")}, expect: time.Minute},
		"claim-is-invalid": {claim: withClasses(t, idleClaim(jobRef, "soon"), "gpu"), classes: []runtime.Object{idleClass("gpu", "20m")}, events: []string{"Warning InvalidReleaseWhenIdle"}},
		"class-is-invalid": {claim: withClasses(t, workloadClaim(jobRef), "gpu"), classes: []runtime.Object{idleClass("gpu", "-1h")}, events: []string{"Warning InvalidReleaseWhenIdle"}},
		"one-is-invalid": {
			claim: withClasses(t, workloadClaim(jobRef), "gpu", "nic"), classes: []runtime.Object{idleClass("gpu", "soon"), idleClass("nic", "20m")},
			expect: 20 * time.Minute, events: []string{"Warning InvalidReleaseWhenIdle"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tt := newWorkloadTest(t, workloadsEnabled, append(test.classes, test.claim, suspendedJob)...)
			tt.mustSync()
			assert.Equal(t, test.events, tt.events())
			if test.expect == 0 {
				tt.clock.Step(100 * time.Hour)
				tt.mustSync()
				assert.Equal(t, consumers{jobRef}, tt.getClaim().Status.ReservedFor)
				assert.Empty(t, tt.events(), "told once")
				return
			}
			tt.clock.Step(test.expect - time.Second)
			tt.mustSync()
			assert.Equal(t, consumers{jobRef}, tt.getClaim().Status.ReservedFor, "just before the time is up")
			tt.clock.Step(time.Second)
			tt.mustSync()
			assert.Empty(t, tt.getClaim().Status.ReservedFor, "when the time is up")
		})
	}

	t.Run("gate-off", func(t *testing.T) {
		tt := newWorkloadTest(t, Features{}, withClasses(t, workloadClaim(jobRef), "gpu"), idleClass("gpu", "10s"), suspendedJob)
		tt.mustSync()
		tt.clock.Step(time.Hour)
		tt.mustSync()
		assert.Equal(t, consumers{jobRef}, tt.getClaim().Status.ReservedFor)
	})
}

// TestReleaseWhenIdleClassChanged checks that claims are looked at again when their class says something
// else.
func TestReleaseWhenIdleClassChanged(t *testing.T) {
	other := withClasses(t, workloadClaim(jobRef), "nic")
	other.Name = "other"
	tt := newWorkloadTest(t, workloadsEnabled, withClasses(t, workloadClaim(jobRef), "gpu"), other, suspendedJob)
	tt.queued()
	var last any
	for _, step := range []struct {
		class  *resourceapi.DeviceClass
		expect bool
	}{
		{class: idleClass("gpu", "")},
		{class: idleClass("gpu", "20m"), expect: true},
		{class: idleClass("gpu", "20m")},
		{class: idleClass("gpu", "1h"), expect: true},
		{expect: true},
	} {
		var next any
		if step.class != nil {
			next = step.class
		}
		tt.ec.classChanged(tt.Logger(), last, next)
		last = next
		var expect []string
		if step.expect {
			expect = []string{claimKeyPrefix + testNamespace + "/" + sharedClaim}
		}
		assert.Equal(t, expect, tt.queued(), "queued after %+v", step.class)
	}
}
