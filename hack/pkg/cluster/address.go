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
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
)

// podSubnets are looked at, in this order, unless Options.PodSubnet names one. Networks of
// examples and tests begin at 10.220.
var podSubnets = func() (subnets []string) {
	for second := 200; second < 220; second++ {
		subnets = append(subnets, fmt.Sprintf("10.%d", second))
	}
	return subnets
}()

// errAddressInUse is that of an address which this machine has, but not from this cluster.
var errAddressInUse = errors.New("this machine has the address already")

// choosePodSubnet takes the one that was asked for, else the first one that no other cluster has.
// The address of the first node tells others that it is taken: two clusters with one address
// seem to work, until the first of them goes and takes the address along.
func (c *Cluster) choosePodSubnet(ctx context.Context) error {
	subnets := podSubnets
	if c.Options.PodSubnet != "" {
		subnets = []string{c.Options.PodSubnet}
	}
	if !c.state.RealNode || c.Options.Bare {
		// No address of it is this machine's.
		c.PodSubnet = subnets[0]
		return nil
	}
	var err error
	for _, c.PodSubnet = range subnets {
		if err = c.addAddress(ctx, c.node().address()); !errors.Is(err, errAddressInUse) {
			return err
		}
	}
	return fmt.Errorf("no free addresses for the cluster in %s: %w: take down the cluster that has it (make down); if there is none, ip address delete %s/32 dev lo",
		strings.Join(subnets, ", "), err, c.node().address())
}

// addAddress gives this machine an address, on the loopback interface.
func (c *Cluster) addAddress(ctx context.Context, address string) error {
	if slices.Contains(c.Addresses, address) {
		return nil
	}
	if hasAddress(address) {
		return fmt.Errorf("%w: %s", errAddressInUse, address)
	}
	c.Addresses = append(c.Addresses, address)
	if err := c.save(); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "ip", "address", "add", address+"/32", "dev", "lo").CombinedOutput()
	if err == nil {
		return nil
	}
	// Nothing was added. If somebody else was faster, it must not be removed later.
	c.Addresses = slices.DeleteFunc(c.Addresses, func(a string) bool { return a == address })
	if err := c.save(); err != nil {
		return err
	}
	if hasAddress(address) {
		return fmt.Errorf("%w: %s", errAddressInUse, address)
	}
	return fmt.Errorf("ip address add %s: %w: %s", address, err, strings.TrimSpace(string(out)))
}

func hasAddress(address string) bool {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	return slices.ContainsFunc(addresses, func(a net.Addr) bool {
		ip, _, err := net.ParseCIDR(a.String())
		return err == nil && ip.String() == address
	})
}
