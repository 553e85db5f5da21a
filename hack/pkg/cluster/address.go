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
	"strconv"
	"strings"
)

// ports are those of components, by name.
type ports map[string]int

// take reserves a port, if nobody has it.
func (p ports) take(component string, port int) error {
	for other, taken := range p {
		if taken == port {
			return fmt.Errorf("%s has it", other)
		}
	}
	// Any address: the kubelet has one of its own, and something that listens on all of them is in the way.
	l, err := net.Listen("tcp4", ":"+strconv.Itoa(port))
	if err != nil {
		return err
	}
	p[component] = port
	return l.Close()
}

// takeAny reserves a port that is free.
func (p ports) takeAny(component string) error {
	for range 100 {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return err
		}
		port := l.Addr().(*net.TCPAddr).Port
		_ = l.Close()
		if p.take(component, port) == nil {
			return nil
		}
	}
	return fmt.Errorf("no free port for %s", component)
}

// address is where a component listens.
func (p ports) address(component string) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(p[component]))
}

// choosePorts finds one for each component: those that were asked for, else the usual ones where they are
// free.
func (c *Cluster) choosePorts(context.Context) error {
	asked := func(component, variable string, port int) error {
		if port == 0 {
			return nil
		}
		if err := c.Ports.take(component, port); err != nil {
			return fmt.Errorf("%s wants port %d: %w; set %s to another one", component, port, err, variable)
		}
		return nil
	}
	if err := errors.Join(asked(APIServer, "API_PORT", c.Options.APIPort), asked(Etcd, "ETCD_PORT", c.Options.EtcdPort)); err != nil {
		return err
	}
	// Where only one number is needed that tells clusters apart, nothing listens.
	free := []string{APIServer}
	if !c.Options.Bare {
		for component, port := range map[string]int{ControllerManager: 10257, Scheduler: 10259, Kwok: 10247, Kubelet: 10250, kubeletHealth: 10248} {
			_ = c.Ports.take(component, port)
			free = append(free, component)
		}
		// Not the usual one of the network driver: nobody listens there yet, and another cluster would
		// take it, too.
		free = append(free, NetworkDaemonSet)
		for _, one := range c.controlPlanes() {
			free = append(free, one.of(etcdPeer))
			for _, component := range controlPlaneComponents {
				free = append(free, one.of(component))
			}
		}
		for _, n := range c.realNodes() {
			free = append(free, n.of(kubeletHealth))
		}
	}
	if c.Options.Services {
		free = append(free, proxyHealth, proxyMetrics, dnsReady)
	}
	for _, component := range free {
		if c.Ports[component] == 0 {
			if err := c.Ports.takeAny(component); err != nil {
				return err
			}
		}
	}
	return nil
}

// podSubnets are looked at, in this order, unless Options.PodSubnet names one. Networks of examples and
// tests begin at 10.220.
var podSubnets = func() (subnets []string) {
	for second := 200; second < 220; second++ {
		subnets = append(subnets, fmt.Sprintf("10.%d", second))
	}
	return subnets
}()

// errAddressInUse is that of an address which this machine has, but not from this cluster.
var errAddressInUse = errors.New("this machine has the address already")

// choosePodSubnet takes the one that was asked for, else the first one that no other cluster has. The
// address of the first node tells others that it is taken: two clusters with one address seem to work,
// until the first of them goes and takes the address along.
func (c *Cluster) choosePodSubnet(ctx context.Context) error {
	subnets := podSubnets
	if c.Options.PodSubnet != "" {
		subnets = []string{c.Options.PodSubnet}
	}
	if !c.state.RealNode || c.Options.Bare {
		// No address of it is this machine's.
		c.PodSubnet = subnets[0]
		return c.save()
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
	if slices.Contains(c.Traces.Addresses, address) {
		return nil
	}
	if hasAddress(address) {
		return fmt.Errorf("%w: %s", errAddressInUse, address)
	}
	c.Traces.Addresses = append(c.Traces.Addresses, address)
	if err := c.save(); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "ip", "address", "add", address+"/32", "dev", "lo").CombinedOutput()
	if err == nil {
		return nil
	}
	// Nothing was added. If somebody else was faster, it must not be removed later.
	c.Traces.Addresses = slices.DeleteFunc(c.Traces.Addresses, func(a string) bool { return a == address })
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
	return err == nil && slices.ContainsFunc(addresses, func(a net.Addr) bool {
		ip, _, err := net.ParseCIDR(a.String())
		return err == nil && ip.String() == address
	})
}

func (c *Cluster) serviceSubnet() string { return c.PodSubnet + ".128.0/17" }
func (c *Cluster) serviceIP() string     { return c.PodSubnet + ".128.1" }

// dnsAddress is where the DNS server listens, on the loopback interface. Pods know it by dnsServiceIP.
func (c *Cluster) dnsAddress() string   { return c.PodSubnet + ".127.53" }
func (c *Cluster) dnsServiceIP() string { return c.PodSubnet + ".128.10" }
