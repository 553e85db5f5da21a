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
	"time"
)

// services make Services work, in a cluster that was asked for them: a kube-proxy, and a DNS server that
// knows their names. There is one of each, since all nodes have the network of this machine.
type services struct{ *Cluster }

const (
	proxyHealth  = "kube-proxy-healthz"
	proxyMetrics = "kube-proxy-metrics"
	dnsReady     = "coredns-ready"
)

func (s services) up(ctx context.Context) error {
	if !s.Options.Services || !s.state.RealNode {
		return nil
	}
	if err := s.startProxy(ctx); err != nil {
		return err
	}
	return s.startDNS(ctx)
}

func (s services) startProxy(ctx context.Context) error {
	start := time.Now()
	if err := s.Traces.findProxyRules(ctx); err != nil {
		return err
	}
	p, err := s.run(Proxy, append(s.Program(Proxy, nil),
		"--kubeconfig="+s.ComponentKubeconfig(Proxy),
		"--hostname-override="+RealNode,
		"--cluster-cidr="+s.PodSubnet+".0.0/17",
		"--nodeport-addresses="+s.PodSubnet+".127.0/24",
		"--healthz-bind-address="+s.Ports.address(proxyHealth),
		"--metrics-bind-address="+s.Ports.address(proxyMetrics),
		// The settings of this machine stay as they are.
		"--conntrack-max-per-core=0",
		"--conntrack-tcp-timeout-established=0",
		"--conntrack-tcp-timeout-close-wait=0",
		"--iptables-localhost-nodeports=false",
	))
	if err != nil {
		return err
	}
	if err := s.waitForAnswer(ctx, p, "http://"+s.Ports.address(proxyHealth)+"/healthz"); err != nil {
		return err
	}
	s.Log("%s is healthy after %s", Proxy, since(start))
	return nil
}

func (s services) startDNS(ctx context.Context) error {
	start := time.Now()
	corefile, err := s.writeConfig("Corefile", map[string]any{
		"Address": s.dnsAddress(), "Ready": s.Ports.address(dnsReady), "Kubeconfig": s.ComponentKubeconfig(DNS),
	})
	if err != nil {
		return err
	}
	if err := s.addAddress(ctx, s.dnsAddress()); err != nil {
		return err
	}
	p, err := s.run(DNS, []string{s.tool(DNS), "-conf", corefile})
	if err != nil {
		return err
	}
	if err := s.waitForAnswer(ctx, p, "http://"+s.Ports.address(dnsReady)+"/ready"); err != nil {
		return err
	}
	s.Log("%s on %s is ready after %s", DNS, s.dnsAddress(), since(start))
	return s.apply(ctx, "dns.yaml", map[string]any{"ServiceIP": s.dnsServiceIP(), "Address": s.dnsAddress()})
}
