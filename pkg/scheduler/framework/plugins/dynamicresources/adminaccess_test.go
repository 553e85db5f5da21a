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

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/ptr"
)

// TestLogAdminAccess covers what the scheduler logs at v=2.
func TestLogAdminAccess(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod"}}
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim"}}
	allocation := func(adminAccess ...*bool) *resourceapi.AllocationResult {
		a := &resourceapi.AllocationResult{}
		for i, value := range adminAccess {
			a.Devices.Results = append(a.Devices.Results, resourceapi.DeviceRequestAllocationResult{
				Driver: "driver", Pool: "pool", Device: string(rune('a' + i)), AdminAccess: value,
			})
		}
		return a
	}
	for name, tc := range map[string]struct {
		verbosity  int
		allocation *resourceapi.AllocationResult
		expect     string
	}{
		"allocated before": {verbosity: 2},
		"no admin access":  {verbosity: 2, allocation: allocation(nil, ptr.To(false))},
		"admin access":     {verbosity: 2, allocation: allocation(nil, ptr.To(true), ptr.To(true)), expect: `INFO Allocated devices for admin access pod="ns/pod" node="worker" claim="ns/claim" devices=["driver/pool/b","driver/pool/c"]` + "\n"},
		"less verbose":     {verbosity: 1, allocation: allocation(ptr.To(true))},
	} {
		t.Run(name, func(t *testing.T) {
			logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(tc.verbosity)))
			logAdminAccess(logger, pod, "worker", claim, tc.allocation)
			assert.Equal(t, tc.expect, logger.GetSink().(ktesting.Underlier).GetBuffer().String())
		})
	}
}
