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

	"k8s.io/kubernetes/pkg/apis/resource"
)

func TestValidateCanonicalIPs(t *testing.T) {
	withIPs := func(ips ...string) *resource.ResourceClaimStatus {
		return &resource.ResourceClaimStatus{Devices: []resource.AllocatedDeviceStatus{
			{Device: "no network"},
			{Device: "device", NetworkData: &resource.NetworkDeviceData{IPs: ips}},
		}}
	}
	const path = "status.devices[1].networkData.ips"
	for name, tc := range map[string]struct {
		old, status *resource.ResourceClaimStatus
		want        string
	}{
		"canonical":               {withIPs(), withIPs("192.0.2.1/24", "2001:db8::1/64", "::1/128", "0.0.0.0/0"), ""},
		"zeros in IPv6":           {withIPs(), withIPs("192.0.2.1/24", "2001:0db8::1/64"), path + `[1]: Invalid value: "2001:0db8::1/64": must be in canonical form ("2001:db8::1/64")`},
		"upper case":              {withIPs(), withIPs("2001:DB8::1/64"), path + `[0]: Invalid value: "2001:DB8::1/64": must be in canonical form ("2001:db8::1/64")`},
		"zeros in IPv4":           {withIPs(), withIPs("192.0.002.1/24"), path + `[0]: Invalid value: "192.0.002.1/24": must be in canonical form ("192.0.2.1/24")`},
		"IPv4 in IPv6":            {withIPs(), withIPs("::ffff:192.0.2.1/120"), path + `[0]: Invalid value: "::ffff:192.0.2.1/120": must be in canonical form ("192.0.2.1/24")`},
		"IPv4 in IPv6, too short": {withIPs(), withIPs("::ffff:192.0.2.1/64"), path + `[0]: Invalid value: "::ffff:192.0.2.1/64": must be in canonical form`},
		"stored before":           {withIPs("2001:0db8::1/64"), withIPs("192.0.2.1/24", "2001:0db8::1/64"), ""},
		"gone":                    {withIPs("2001:0db8::1/64"), withIPs(), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if errs := validateCanonicalIPs(tc.status, tc.old); len(errs) > 0 {
				got = errs.ToAggregate().Error()
			}
			if got != tc.want {
				t.Errorf("want %q, got %q", tc.want, got)
			}
		})
	}
}
