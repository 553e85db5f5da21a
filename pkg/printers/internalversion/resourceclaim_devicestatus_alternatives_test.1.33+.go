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

package internalversion

import (
	"testing"

	"k8s.io/kubernetes/pkg/apis/resource"
)

func TestPrintResourceClaimAlternatives(t *testing.T) {
	claim := decodeClaim(t, `
metadata:
  name: alternatives
spec:
  devices:
    requests:
    - name: gpu
      firstAvailable:
      - {name: big, deviceClassName: big, allocationMode: ExactCount, count: 1}
      - {name: small, deviceClassName: small, allocationMode: All}
    - name: nic
      deviceClassName: net
      allocationMode: ExactCount
      count: 4
`)
	if got, want := claimRequestsCell(claim), "big:1|small:All,net:4"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	// Of a kind that only a later release knows.
	if got, want := claimRequest(&resource.DeviceRequest{Name: "future"}), "future"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
