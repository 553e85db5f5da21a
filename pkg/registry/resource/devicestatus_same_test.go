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

package resource

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/apis/resource"
	"k8s.io/kubernetes/pkg/features"
)

// setData sets a field which was no pointer in 1.32.
func setData[T runtime.RawExtension | *runtime.RawExtension](data *T, raw string) {
	switch data := any(data).(type) {
	case *runtime.RawExtension:
		data.Raw = []byte(raw)
	case **runtime.RawExtension:
		*data = &runtime.RawExtension{Raw: []byte(raw)}
	}
}

func TestKeepFormat(t *testing.T) {
	device := func(name, raw string) resource.AllocatedDeviceStatus {
		d := resource.AllocatedDeviceStatus{Driver: "driver", Pool: "pool", Device: name}
		setData(&d.Data, raw)
		return d
	}
	allocation := func(raw string) *resource.AllocationResult {
		return &resource.AllocationResult{Devices: resource.DeviceAllocationResult{Config: []resource.DeviceAllocationConfiguration{{
			DeviceConfiguration: resource.DeviceConfiguration{Opaque: &resource.OpaqueDeviceConfiguration{Parameters: runtime.RawExtension{Raw: []byte(raw)}}},
		}}}}
	}
	stored := resource.ResourceClaimStatus{
		Allocation: allocation(`{"b": 1.0, "a": 2}`),
		Devices:    []resource.AllocatedDeviceStatus{device("a", `{ "x": 1 }`), device("b", `{"y":1,"x":2}`), device("gone", `{}`)},
	}
	for name, tc := range map[string]struct {
		status, want resource.ResourceClaimStatus
		disabled     bool
	}{
		"reformatted": {
			status: resource.ResourceClaimStatus{
				Allocation: allocation(`{"a":2,"b":1}`),
				Devices:    []resource.AllocatedDeviceStatus{device("b", `{"x":2,"y":1}`), device("a", `{"x":1}`), device("new", `{ "x": 1 }`)},
			},
			want: resource.ResourceClaimStatus{
				Allocation: allocation(`{"b": 1.0, "a": 2}`),
				Devices:    []resource.AllocatedDeviceStatus{device("b", `{"y":1,"x":2}`), device("a", `{ "x": 1 }`), device("new", `{ "x": 1 }`)},
			},
		},
		"changed": {
			status: resource.ResourceClaimStatus{Allocation: allocation(`{"a":2,"b":2}`), Devices: []resource.AllocatedDeviceStatus{device("a", `{"x":2}`)}},
			want:   resource.ResourceClaimStatus{Allocation: allocation(`{"a":2,"b":2}`), Devices: []resource.AllocatedDeviceStatus{device("a", `{"x":2}`)}},
		},
		"deallocated": {},
		"disabled": {
			status:   resource.ResourceClaimStatus{Allocation: allocation(`{"a":2,"b":1}`)},
			want:     resource.ResourceClaimStatus{Allocation: allocation(`{"a":2,"b":1}`)},
			disabled: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAResourceClaimDeviceStatus, !tc.disabled)
			oldStatus := stored.DeepCopy()
			KeepFormat(&tc.status, oldStatus)
			if diff := cmp.Diff(tc.want, tc.status); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			// What is done to one must not change the other.
			for i := range tc.status.Devices {
				tc.status.Devices[i].Data.Raw[0] = 'x'
			}
			if tc.status.Allocation != nil {
				tc.status.Allocation.Devices.Config[0].Opaque.Parameters.Raw[0] = 'x'
			}
			if diff := cmp.Diff(&stored, oldStatus); diff != "" {
				t.Errorf("what is stored has changed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSameStatus(t *testing.T) {
	for name, tc := range map[string]struct {
		a, b string
		want bool
	}{
		"nothing":                {"", "", true},
		"nothing and null":       {"", "null", false},
		"same":                   {`{"a":1}`, `{"a":1}`, true},
		"spaces":                 {`{ "a" : [ 1, 2 ] }`, `{"a":[1,2]}`, true},
		"order of keys":          {`{"b":1,"a":{"d":1,"c":2}}`, `{"a":{"c":2,"d":1},"b":1}`, true},
		"escaped":                {`{"a":"<"}`, `{"a":"\u003c"}`, true},
		"number of another type": {`{"a":[1.0,1e2,-0.0]}`, `{"a":[1,100,-0]}`, true},
		"rounded":                {`{"a":[2.50,12345678901234567890]}`, `{"a":[2.5,12345678901234567000]}`, true},
		"other large integer":    {`{"a":9007199254740993}`, `{"a":9007199254740992}`, false},
		"other value":            {`{"a":1}`, `{"a":2}`, false},
		"other type":             {`{"a":1}`, `{"a":"1"}`, false},
		"other key":              {`{"a":1}`, `{"b":1}`, false},
		"other order of a list":  {`{"a":[1,2]}`, `{"a":[2,1]}`, false},
		"null and empty":         {`{"a":null}`, `{"a":[]}`, false},
		"null and no key":        {`{"a":null}`, `{}`, false},
		"invalid, other":         {`{"a":`, `{"a":1}`, false},
		"both invalid":           {`{"a":`, `{"b":`, false},
		"invalid, but unchanged": {`{"a":`, `{"a":`, true},
	} {
		t.Run(name, func(t *testing.T) {
			parameters := func(raw string) *resource.AllocationResult {
				return &resource.AllocationResult{Devices: resource.DeviceAllocationResult{Config: []resource.DeviceAllocationConfiguration{{
					DeviceConfiguration: resource.DeviceConfiguration{Opaque: &resource.OpaqueDeviceConfiguration{Parameters: runtime.RawExtension{Raw: []byte(raw)}}},
				}}}}
			}
			if got := sameStatus.DeepEqual(parameters(tc.a), parameters(tc.b)); got != tc.want {
				t.Errorf("want %v, got %v", tc.want, got)
			}
			if got := sameStatus.DeepEqual(parameters(tc.b), parameters(tc.a)); got != tc.want {
				t.Errorf("the other way round: want %v, got %v", tc.want, got)
			}
		})
	}
}
