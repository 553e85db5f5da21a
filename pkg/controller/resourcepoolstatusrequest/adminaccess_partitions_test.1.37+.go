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

package resourcepoolstatusrequest

import (
	"maps"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"
)

// TestAdminAccessPartitions covers the summary by types of partitions: admin access takes no
// partition and no counter, and the claim of a workload takes them once.
func TestAdminAccessPartitions(t *testing.T) {
	const driver, pool, node = "gpu.example.com", "pool", "node"
	claim := func(name string, adminAccess *bool, reservedFor ...resourcev1.ResourceClaimConsumerReference) *resourcev1.ResourceClaim {
		claim := makeAllocatedClaim(name, "default", driver, pool, "half-0")
		claim.Status.Allocation.Devices.Results[0].AdminAccess = adminAccess
		claim.Status.ReservedFor = reservedFor
		return claim
	}
	job := resourcev1.ResourceClaimConsumerReference{APIGroup: "batch", Resource: "jobs", Name: "job", UID: "1"}
	for name, tc := range map[string]struct {
		claims []*resourcev1.ResourceClaim
		// free is the number of partitions of each type that still fit.
		free map[string]int32
	}{
		"unused":                        {free: map[string]int32{"Full": 1, "Half": 2}},
		"admin access":                  {claims: []*resourcev1.ResourceClaim{claim("a", ptr.To(true))}, free: map[string]int32{"Full": 1, "Half": 2}},
		"workload":                      {claims: []*resourcev1.ResourceClaim{claim("a", nil, job)}, free: map[string]int32{"Full": 0, "Half": 1}},
		"workload and admin access":     {claims: []*resourcev1.ResourceClaim{claim("a", nil, job), claim("b", ptr.To(true))}, free: map[string]int32{"Full": 0, "Half": 1}},
		"workload with admin access":    {claims: []*resourcev1.ResourceClaim{claim("a", ptr.To(true), job)}, free: map[string]int32{"Full": 1, "Half": 2}},
		"pods that share, without gate": {claims: []*resourcev1.ResourceClaim{claim("a", nil, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: "a", UID: "2"}, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: "b", UID: "3"})}, free: map[string]int32{"Full": 0, "Half": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			slices := []*resourcev1.ResourceSlice{
				makePartitionCounterSlice("counters", driver, pool, node, 2),
				makePartitionDeviceSlice("devices", driver, pool, node, 2),
			}
			status := requireSinglePool(t, runCalculatePoolStatus(t, makeRequest(driver), slices, tc.claims))
			got := map[string]int32{}
			for _, summary := range status.PartitionSummary {
				got[summary.Type] = ptr.Deref(summary.Allocatable, -1)
			}
			if !maps.Equal(got, tc.free) {
				t.Errorf("want %v to be allocatable, got %v (validation error %q)", tc.free, got, ptr.Deref(status.ValidationError, ""))
			}
		})
	}
}
