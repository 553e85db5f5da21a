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
	"fmt"
	"net/http"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A cluster has Services if somebody asks for them: a kube-proxy makes them work, and a DNS server
// knows their names. There is one of each, since all nodes have the network of this machine.

const (
	// Proxy is the component behind Services.
	Proxy = "kube-proxy"
	// DNS is the server for their names.
	DNS = "coredns"

	proxyHealth  = "kube-proxy-healthz"
	proxyMetrics = "kube-proxy-metrics"
	dnsReady     = "coredns-ready"
	dnsUser      = "coredns"
)

var dnsAccess = []rbacv1.PolicyRule{
	{APIGroups: []string{""}, Resources: []string{"namespaces", "pods", "services"}, Verbs: []string{"list", "watch"}},
	{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"list", "watch"}},
}

// dnsAddress is where the DNS server listens, on the loopback interface. Pods know it by dnsServiceIP.
func (c *Cluster) dnsAddress() string   { return c.PodSubnet + ".127.53" }
func (c *Cluster) dnsServiceIP() string { return c.PodSubnet + ".128.10" }

func (c *Cluster) startServices(ctx context.Context) error {
	if err := c.startProxy(ctx); err != nil {
		return err
	}
	if err := c.startDNS(ctx); err != nil {
		return err
	}
	return c.createDNSService(ctx)
}

func (c *Cluster) startProxy(ctx context.Context) error {
	start := time.Now()
	if err := c.findProxyRules(ctx); err != nil {
		return err
	}
	p, err := c.start(Proxy, append(c.common(Proxy, nil),
		"--kubeconfig="+c.kubeconfig(Proxy),
		"--hostname-override="+RealNode,
		"--cluster-cidr="+c.PodSubnet+".0.0/17",
		"--nodeport-addresses="+c.PodSubnet+".127.0/24",
		"--healthz-bind-address="+c.address(proxyHealth),
		"--metrics-bind-address="+c.address(proxyMetrics),
		// The settings of this machine stay as they are.
		"--conntrack-max-per-core=0",
		"--conntrack-tcp-timeout-established=0",
		"--conntrack-tcp-timeout-close-wait=0",
		"--iptables-localhost-nodeports=false",
	))
	if err != nil {
		return err
	}
	if err := c.waitForAnswer(ctx, p, "http://"+c.address(proxyHealth)+"/healthz"); err != nil {
		return err
	}
	c.Log("%s is healthy after %s", Proxy, time.Since(start).Round(100*time.Millisecond))
	return nil
}

// corefile configures a server that knows nothing but the cluster.
func (c *Cluster) corefile() string {
	return fmt.Sprintf(`.:53 {
    bind %s
    errors
    ready %s
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        kubeconfig %q
        pods insecure
        ttl 5
    }
    cache 5
    loadbalance
}
`, c.dnsAddress(), c.address(dnsReady), c.kubeconfig(DNS))
}

func (c *Cluster) startDNS(ctx context.Context) error {
	start := time.Now()
	corefile := c.path("config", "Corefile")
	if err := os.WriteFile(corefile, []byte(c.corefile()), 0o644); err != nil {
		return err
	}
	if err := c.addAddress(ctx, c.dnsAddress()); err != nil {
		return err
	}
	p, err := c.start(DNS, []string{c.tool(DNS), "-conf", corefile})
	if err != nil {
		return err
	}
	if err := c.waitForAnswer(ctx, p, "http://"+c.address(dnsReady)+"/ready"); err != nil {
		return err
	}
	c.Log("%s on %s is ready after %s", DNS, c.dnsAddress(), time.Since(start).Round(100*time.Millisecond))
	return nil
}

func (c *Cluster) waitForAnswer(ctx context.Context, p *process, url string) error {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	return c.waitHealthy(ctx, p, 2*time.Minute, func(ctx context.Context) error { return probe(ctx, client, url) })
}

// createDNSService makes the Service whose address is in the resolv.conf of pods.
func (c *Cluster) createDNSService(ctx context.Context) error {
	client, err := c.clientset()
	if err != nil {
		return err
	}
	const name = "kube-dns"
	service := &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"k8s-app": name}},
		Spec:       v1.ServiceSpec{ClusterIP: c.dnsServiceIP()},
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{c.dnsAddress()}}},
	}
	for portName, protocol := range map[string]v1.Protocol{"dns": v1.ProtocolUDP, "dns-tcp": v1.ProtocolTCP} {
		service.Spec.Ports = append(service.Spec.Ports, v1.ServicePort{Name: portName, Protocol: protocol, Port: 53})
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: new(portName), Protocol: new(protocol), Port: new(int32(53))})
	}
	if _, err := client.CoreV1().Services(metav1.NamespaceSystem).Create(ctx, service, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	if _, err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceSystem).Create(ctx, slice, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}
