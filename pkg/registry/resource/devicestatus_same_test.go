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

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/apis/resource"
)

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
