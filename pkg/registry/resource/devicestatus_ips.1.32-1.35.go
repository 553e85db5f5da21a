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
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/resource"
	netutils "k8s.io/utils/net"
)

// validateCanonicalIPs refuses IPs of devices which are not written as they should be, like
// 2001:0db8::1/64. Later releases of upstream do so: what is stored must be valid there after an upgrade,
// and whoever looks for an IP must find it. Those that were stored before may stay.
func validateCanonicalIPs(status, oldStatus *resource.ResourceClaimStatus) field.ErrorList {
	var stored []string
	for _, device := range oldStatus.Devices {
		if device.NetworkData != nil {
			stored = append(stored, device.NetworkData.IPs...)
		}
	}
	var errs field.ErrorList
	for i, device := range status.Devices {
		if device.NetworkData == nil {
			continue
		}
		path := field.NewPath("status", "devices").Index(i).Child("networkData", "ips")
		for j, ip := range device.NetworkData.IPs {
			if slices.Contains(stored, ip) {
				continue
			}
			if canonical := canonicalIP(ip); canonical != ip {
				detail := "must be in canonical form"
				if canonical != "" {
					detail += fmt.Sprintf(" (%q)", canonical)
				}
				errs = append(errs, field.Invalid(path.Index(j), ip, detail))
			}
		}
	}
	return errs
}

// canonicalIP returns an IP with the length of its prefix as Go writes them, an IPv4 in
// an IPv6 as IPv4. It is empty if there is no such form.
func canonicalIP(address string) string {
	ip, network, err := netutils.ParseCIDRSloppy(address)
	if err != nil {
		return ""
	}
	length, bits := network.Mask.Size()
	if ip.To4() != nil {
		length -= bits - 32
	}
	if length < 0 {
		return ""
	}
	return fmt.Sprintf("%s/%d", ip, length)
}
