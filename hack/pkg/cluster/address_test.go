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

package cluster

import (
	"context"
	"os"
	"strings"
	"testing"
)

// TestPodSubnet checks that clusters on one machine have addresses of their own, and that the first
// that goes does not take along those of another.
func TestPodSubnet(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it needs root")
	}
	defer func(subnets []string) { podSubnets = subnets }(podSubnets)
	podSubnets = []string{"10.253", "10.254"}
	start := func(asked string) (*Cluster, error) {
		c := newCluster(t)
		c.Options.PodSubnet, c.state.RealNode = asked, true
		t.Cleanup(func() {
			if err := c.removeNetwork(context.Background()); err != nil {
				t.Error(err)
			}
		})
		return c, c.choosePodSubnet(t.Context())
	}
	first, err := start("")
	if err != nil || first.PodSubnet != "10.253" {
		t.Fatalf("want 10.253, got %s, %v", first.PodSubnet, err)
	}
	if err := first.addAddress(t.Context(), first.node().address()); err != nil {
		t.Errorf("its own address: %v", err)
	}
	second, err := start("")
	if err != nil || second.PodSubnet != "10.254" {
		t.Fatalf("want 10.254, got %s, %v", second.PodSubnet, err)
	}
	for _, asked := range []string{"", "10.254"} {
		other, err := start(asked)
		if err == nil || !strings.Contains(err.Error(), "10.254.127.1") || !strings.Contains(err.Error(), "make down") {
			t.Errorf("asked for %q: want an error that names the address and says what to do, got %v", asked, err)
		}
		if err := other.removeNetwork(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if !hasAddress("10.253.127.1") || !hasAddress("10.254.127.1") {
		t.Error("a cluster that did not start took along the address of another")
	}
	if err := first.removeNetwork(t.Context()); err != nil {
		t.Error(err)
	}
	if hasAddress("10.253.127.1") || !hasAddress("10.254.127.1") {
		t.Error("want the address of the second alone")
	}
}
