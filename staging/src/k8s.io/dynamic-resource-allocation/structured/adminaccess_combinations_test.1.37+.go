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

// What 1.37 added to the allocator, beside admin access.

package structured

import (
	"context"
	"fmt"
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/nodedeclaredfeatures/features/draoptionalnodeoperations"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/ptr"
)

// TestAdminAccessCompatibilityGroups covers that admin access neither has to be compatible with
// those that use a device nor keeps others from using it: whoever only looks is in no group.
func TestAdminAccessCompatibilityGroups(t *testing.T) {
	device := func(name, group string) resourceapi.Device {
		device := newAdminDevice(name)
		device.ConsumesCounters = []resourceapi.DeviceCounterConsumption{{
			CounterSet:          "set",
			Counters:            map[string]resourceapi.Counter{"memory": {Value: resource.MustParse("1Gi")}},
			CompatibilityGroups: []string{group},
		}}
		return device
	}
	for name, tc := range map[string]struct {
		allocated []string
		claims    []*resourceapi.ResourceClaim
		// expect is a result as in describeResults.
		expect string
	}{
		"device of another group":                      {allocated: []string{"a"}, claims: adminClaims("0!"), expect: "a!,b!"},
		"device of another group, no admin access":     {allocated: []string{"a"}, claims: adminClaims("1")},
		"takes no group from another claim of the pod": {claims: adminClaims("0!", "1"), expect: "a!,b! a"},
		"takes no group after another claim":           {claims: adminClaims("1", "0!"), expect: "a a!,b!"},
		"takes no group from a request of the claim":   {claims: adminClaims("1! 1"), expect: "a!,b"},
		"takes no group after a request of the claim":  {claims: adminClaims("1 1!"), expect: "a,b!"},
		"two groups without admin access":              {claims: adminClaims("1 1")},
	} {
		t.Run(name, func(t *testing.T) {
			slice := adminSlice()
			slice.Spec.Devices = []resourceapi.Device{device("a", "one"), device("b", "two")}
			counters := []resourceapi.CounterSet{{Name: "set", Counters: map[string]resourceapi.Counter{"memory": {Value: resource.MustParse("8Gi")}}}}
			features := Features{AdminAccess: true, PartitionableDevices: true, CompatibilityGroups: true}
			for implementation, results := range allocateWithFeatures(t, features, withSharedCounters(slice, counters), tc.allocated, nil, tc.claims) {
				if got := describeResults(results); got != tc.expect {
					t.Errorf("%s: want %q, got %q", implementation, tc.expect, got)
				}
			}
		})
	}
}

// TestAdminAccessFractionalCapacity covers capacity in parts of one: admin access has to fit the device
// as it is, and consumes nothing of it.
func TestAdminAccessFractionalCapacity(t *testing.T) {
	request := func(quantity string, adminAccess *bool) *resourceapi.ResourceClaim {
		request := newAdminRequest("r", resourceapi.DeviceAllocationModeExactCount, 1, adminAccess)
		request.Exactly.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse(quantity)}}
		claim := &resourceapi.ResourceClaim{Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{request}}}}
		claim.Name = fmt.Sprintf("claim-%s-%v", quantity, adminAccess != nil)
		return claim
	}
	admin := ptr.To(true)
	for name, tc := range map[string]struct {
		consumed string
		claims   []*resourceapi.ResourceClaim
		expect   string
	}{
		"used up by others":                           {consumed: "1", claims: []*resourceapi.ResourceClaim{request("250m", admin)}, expect: "a!"},
		"used up by others, no admin access":          {consumed: "1", claims: []*resourceapi.ResourceClaim{request("250m", nil)}},
		"more than the device has":                    {claims: []*resourceapi.ResourceClaim{request("1100m", admin)}},
		"rounded up to more than the device has":      {claims: []*resourceapi.ResourceClaim{request("1001m", admin)}},
		"all of it is left for another claim":         {claims: []*resourceapi.ResourceClaim{request("250m", admin), request("950m", nil)}, expect: "a! a"},
		"the rest is not enough without admin access": {claims: []*resourceapi.ResourceClaim{request("250m", nil), request("950m", nil)}},
	} {
		t.Run(name, func(t *testing.T) {
			device := newAdminDevice("a")
			device.AllowMultipleAllocations = ptr.To(true)
			device.Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {
				Value: resource.MustParse("1"),
				RequestPolicy: &resourceapi.CapacityRequestPolicy{
					Default:    ptr.To(resource.MustParse("100m")),
					ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: ptr.To(resource.MustParse("100m")), Step: ptr.To(resource.MustParse("100m"))},
				},
			}}
			slice := adminSlice()
			slice.Spec.Devices = []resourceapi.Device{device}
			consumed := map[string]string{}
			if tc.consumed != "" {
				consumed["a"] = tc.consumed
			}
			features := Features{AdminAccess: true, ConsumableCapacity: true, FractionalCapacityRange: true}
			for implementation, results := range allocateWithFeatures(t, features, []*resourceapi.ResourceSlice{slice}, nil, consumed, tc.claims) {
				if got := describeResults(results); got != tc.expect {
					t.Errorf("%s: want %q, got %q", implementation, tc.expect, got)
				}
				for _, result := range results {
					for _, device := range result.Devices.Results {
						if ptr.Deref(device.AdminAccess, false) && len(device.ConsumedCapacity) > 0 {
							t.Errorf("%s: device %s with admin access consumes %v", implementation, device.Device, device.ConsumedCapacity)
						}
					}
				}
			}
		})
	}
}

// TestAdminAccessSkipNodeOperations covers devices for which the kubelet does not call the driver. Admin
// access changes nothing: the allocation says what to skip, and only a kubelet that knows
// how to do that may get it.
func TestAdminAccessSkipNodeOperations(t *testing.T) {
	skip := []resourceapi.SkipNodeOperation{resourceapi.SkipNodeOperationAll}
	slice := adminSlice("a")
	slice.Spec.SkipNodeOperations = skip
	capable := adminNode.DeepCopy()
	capable.Status.DeclaredFeatures = []string{draoptionalnodeoperations.DRAOptionalNodeOperationsFeatureGate}
	tried := 0
	for _, implementation := range implementations {
		enable(t, implementation)
		allocator, err := NewAllocator(context.Background(), Features{AdminAccess: true, OptionalNodeOperations: true}, AllocatedState{}, adminClasses, []*resourceapi.ResourceSlice{slice}, cel.NewCache(10, cel.Features{}))
		if err != nil {
			continue // It does not have the features.
		}
		tried++
		results, err := allocator.Allocate(context.Background(), adminNode, adminClaims("1!"))
		if err != nil || len(results) != 0 {
			t.Errorf("%s: node without the feature: want no result, got %q, error %v", implementation, describeResults(results), err)
		}
		results, err = allocator.Allocate(context.Background(), capable, adminClaims("1!"))
		if got := describeResults(results); err != nil || got != "a!" {
			t.Errorf("%s: node with the feature: want a!, got %q, error %v", implementation, got, err)
			continue
		}
		if got := results[0].Devices.Results[0].SkipNodeOperations; !slices.Equal(got, skip) {
			t.Errorf("%s: want to skip %v, got %v", implementation, skip, got)
		}
	}
	if tried == 0 {
		t.Error("no implementation has the features")
	}
}

// TestAdminAccessDerivedAttributes covers attributes that a claim computes and that have to match. They
// are computed for a device in use, too, and bind what admin access may see.
func TestAdminAccessDerivedAttributes(t *testing.T) {
	const derived = "derived/group"
	device := func(name, group string) resourceapi.Device {
		device := newAdminDevice(name)
		device.Attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"group": {StringValue: &group}}
		return device
	}
	// matching is as adminClaims, for one claim whose devices have to be of one group.
	matching := func(words string) []*resourceapi.ResourceClaim {
		claims := adminClaims(words)
		devices := &claims[0].Spec.Devices
		for i := range devices.Requests {
			devices.Requests[i].Exactly.DerivedAttributes = []resourceapi.DeviceDerivedAttribute{{
				Name:       derived,
				Expression: fmt.Sprintf("device.attributes[%q].group", adminDriver),
			}}
		}
		devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: ptr.To(resourceapi.FullyQualifiedName(derived))}}
		return claims
	}
	for name, tc := range map[string]struct {
		allocated []string
		claims    []*resourceapi.ResourceClaim
		expect    string
	}{
		"beside a device of its own":                          {allocated: []string{"a", "b"}, claims: matching("1! 1"), expect: "b!,c"},
		"beside a device of its own, no admin access":         {allocated: []string{"a", "b"}, claims: matching("1 1")},
		"a pair in use":                                       {allocated: []string{"a", "b", "c"}, claims: matching("2!"), expect: "b!,c!"},
		"a pair in use, no admin access":                      {allocated: []string{"a", "b", "c"}, claims: matching("2")},
		"devices of two groups":                               {claims: matching("3!")},
		"takes nothing from another claim":                    {claims: append(matching("2!"), adminClaims("3")...), expect: "b!,c! a,b,c"},
		"takes something from another claim, no admin access": {claims: append(matching("2"), adminClaims("3")...)},
	} {
		t.Run(name, func(t *testing.T) {
			slice := adminSlice()
			slice.Spec.Devices = []resourceapi.Device{device("a", "one"), device("b", "two"), device("c", "two")}
			features := Features{AdminAccess: true, DerivedAttributes: true}
			for implementation, results := range allocateWithFeatures(t, features, []*resourceapi.ResourceSlice{slice}, tc.allocated, nil, tc.claims) {
				if got := describeResults(results); got != tc.expect {
					t.Errorf("%s: want %q, got %q", implementation, tc.expect, got)
				}
			}
		})
	}
}
