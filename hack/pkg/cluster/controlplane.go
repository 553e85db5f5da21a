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
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"
)

// controlPlane are a member of etcd and what talks to it: processes of this machine, each with its own
// identity. Where there are several, the components of each talk to its own API server, which talks to its
// own member of etcd, as with kubeadm. Nodes talk to the first one: there is no load balancer.
type controlPlane struct {
	*Cluster
	index int
}

// controlPlaneComponents are those of each, in the order in which they start.
var controlPlaneComponents = []string{Etcd, APIServer, ControllerManager, Scheduler}

// maxControlPlanes is the most that etcd's documents recommend.
const maxControlPlanes = 5

// controlPlanes are all of them.
func (c *Cluster) controlPlanes() (all []controlPlane) {
	for i := range max(1, c.Options.ControlPlanes) {
		all = append(all, controlPlane{c, i})
	}
	return all
}

// of is the name of what each of them has one of. The first has the name itself.
func (c controlPlane) of(name string) string { return numbered(name, c.index) }

// Member is the name of a component, or of a kubeconfig, of one of several control planes, counted from 1:
// kube-scheduler-2 is that of the second one, and the first has the name itself.
func Member(component string, number int) string { return numbered(component, number-1) }

// numbered is the name of one of several.
func numbered(name string, index int) string {
	if index == 0 {
		return name
	}
	return name + "-" + strconv.Itoa(index+1)
}

// controlPlaneOf finds the one that has a component of that name, and what the others call theirs.
func (c *Cluster) controlPlaneOf(name string) (controlPlane, string, error) {
	for _, one := range c.controlPlanes() {
		for _, component := range controlPlaneComponents {
			if one.of(component) == name {
				return one, component, nil
			}
		}
	}
	return controlPlane{}, "", fmt.Errorf("no component %q", name)
}

func (o *Options) checkControlPlanes() error {
	switch n := o.ControlPlanes; {
	case n <= 1 && n >= 0:
		return nil
	case n < 0 || n > maxControlPlanes || n%2 == 0:
		return fmt.Errorf("there can be 1, 3 or %d control planes, not %d: an even number of members lets etcd lose no more of them than one less", maxControlPlanes, n)
	case runtime.NumCPU() < 2:
		return fmt.Errorf("%d control planes need two CPUs, and this machine has one: their leases would end before they are renewed", n)
	case o.Services || o.Bare:
		return errors.New("with Services, or a bare node, there can be one control plane: they would share the address of a node")
	}
	return nil
}

const etcdPeer = "etcd-peer"

// startControlPlanes starts all of them, one component after the other.
func (c *Cluster) startControlPlanes(ctx context.Context) error {
	c.Options.Gates = withGates(c.neededGates(), c.Options.Gates)
	if _, err := c.writeConfig("audit-policy.yaml", nil); err != nil {
		return err
	}
	for _, component := range controlPlaneComponents {
		if component == ControllerManager {
			if err := c.apply(ctx, "access.yaml", nil); err != nil {
				return err
			}
		}
		// A member of etcd is healthy when most of them run.
		var waits []func() error
		for _, one := range c.controlPlanes() {
			wait, err := one.launch(ctx, component, nil)
			if err != nil {
				return err
			}
			waits = append(waits, wait)
		}
		for _, wait := range waits {
			if err := wait(); err != nil {
				return err
			}
		}
	}
	// Pods can be created when they have a service account, from the controller manager.
	client, err := c.clientset()
	if err != nil {
		return err
	}
	return poll(ctx, time.Minute, "service account of namespace default", func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// neededGates are those without which the release does not have the API.
func (c *Cluster) neededGates() map[string]bool {
	gates := map[string]bool{}
	for _, gate := range c.Facts.Gates {
		gates[gate] = true
	}
	return gates
}

// withGates sets gates over others.
func withGates(others, gates map[string]bool) map[string]bool {
	all := map[string]bool{}
	maps.Copy(all, others)
	maps.Copy(all, gates)
	return all
}

// Program is the command line of a component of Kubernetes with the flags that every one of them has, and
// with gates over those of the cluster.
func (c *Cluster) Program(component string, gates map[string]bool) []string {
	programs := Programs{Bin: c.Options.Bin, Gates: c.Options.Gates}
	if component == Kubelet && c.Options.Kubelet != nil {
		programs = *c.Options.Kubelet
	}
	all := withGates(programs.Gates, gates)
	args := []string{filepath.Join(programs.Bin, component), "-v=" + strconv.Itoa(c.Options.LogLevel)}
	var list []string
	for _, gate := range slices.Sorted(maps.Keys(all)) {
		list = append(list, gate+"="+strconv.FormatBool(all[gate]))
	}
	if len(list) > 0 {
		args = append(args, "--feature-gates="+strings.Join(list, ","))
	}
	return args
}

// args is the command line of a component.
func (c controlPlane) args(component string, gates map[string]bool) ([]string, error) {
	if component == Etcd {
		client, peer := "http://"+c.Ports.address(c.of(Etcd)), "http://"+c.Ports.address(c.of(etcdPeer))
		var members []string
		for _, one := range c.controlPlanes() {
			members = append(members, one.of("default")+"=http://"+c.Ports.address(one.of(etcdPeer)))
		}
		return []string{
			c.tool("etcd"),
			"--name=" + c.of("default"),
			"--data-dir=" + c.path(c.of("etcd")),
			"--listen-client-urls=" + client,
			"--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer,
			"--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=" + strings.Join(members, ","),
			"--log-level=warn",
			"--logger=zap",
			// Nothing in here is worth waiting for the disk.
			"--unsafe-no-fsync=true",
		}, nil
	}
	args := append(c.Program(component, gates),
		"--secure-port="+strconv.Itoa(c.Ports[c.of(component)]),
		"--tls-cert-file="+c.pki(component+".crt"),
		"--tls-private-key-file="+c.pki(component+".key"),
		"--client-ca-file="+c.pki("ca.crt"),
		"--requestheader-client-ca-file="+c.pki("front-proxy-ca.crt"),
	)
	if component == APIServer {
		return append(args, c.apiServerArgs()...), nil
	}
	kubeconfig := c.ComponentKubeconfig(c.of(component))
	args = append(args,
		"--bind-address=127.0.0.1",
		"--kubeconfig="+kubeconfig,
		"--authentication-kubeconfig="+kubeconfig,
		"--authorization-kubeconfig="+kubeconfig,
		"--leader-elect="+strconv.FormatBool(len(c.controlPlanes()) > 1),
		"--kube-api-qps=1000",
		"--kube-api-burst=2000",
	)
	switch component {
	case ControllerManager:
		return append(args,
			"--use-service-account-credentials=true",
			"--root-ca-file="+c.pki("ca.crt"),
			"--service-account-private-key-file="+c.pki("sa.key"),
			"--concurrent-job-syncs=20",
			// It creates the folder.
			"--flex-volume-plugin-dir="+c.path("config", "volume-plugins"),
		), nil
	case Scheduler:
		return args, nil
	}
	return nil, fmt.Errorf("no component %q", component)
}

func (c controlPlane) apiServerArgs() []string {
	args := []string{
		"--etcd-servers=http://" + c.Ports.address(c.of(Etcd)),
		"--service-cluster-ip-range=" + c.serviceSubnet(),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.pki("sa.key"),
		"--service-account-signing-key-file=" + c.pki("sa.key"),
		"--kubelet-client-certificate=" + c.pki(kubeletClient+".crt"),
		"--kubelet-client-key=" + c.pki(kubeletClient+".key"),
		"--kubelet-certificate-authority=" + c.pki("ca.crt"),
		"--kubelet-preferred-address-types=InternalIP",
		"--requestheader-allowed-names=" + frontProxyClient,
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file=" + c.pki(frontProxyClient+".crt"),
		"--proxy-client-key-file=" + c.pki(frontProxyClient+".key"),
		"--audit-policy-file=" + c.path("config", "audit-policy.yaml"),
		"--audit-log-path=" + c.Processes.logFile(c.of("audit")),
	}
	if c.Options.Services {
		// Pods reach it, through the Service, at the address of a node.
		args = append(args, "--bind-address=0.0.0.0", "--advertise-address="+c.node().address())
	} else {
		// A Service cannot have an endpoint on a loopback address.
		args = append(args, "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none")
	}
	if list := c.runtimeConfig(); list != "" {
		args = append(args, "--runtime-config="+list)
	}
	return args
}

// runtimeConfig serves resource.k8s.io where the release does not by itself.
func (c controlPlane) runtimeConfig() string {
	list := c.Facts.RuntimeConfig
	if c.Options.RuntimeConfig != "" {
		list = append([]string{c.Options.RuntimeConfig}, list...)
	}
	return strings.Join(list, ",")
}

// launch starts a component, and returns what waits until it is healthy.
func (c controlPlane) launch(ctx context.Context, component string, gates map[string]bool) (wait func() error, err error) {
	args, err := c.args(component, gates)
	if err != nil {
		return nil, err
	}
	name := c.of(component)
	if err := c.waitForPort(ctx, name, "127.0.0.1"); err != nil {
		return nil, err
	}
	start := time.Now()
	p, err := c.run(name, args)
	if err != nil {
		return nil, err
	}
	url := map[string]string{Etcd: "http://%s/health", APIServer: "https://%s/readyz"}[component]
	if url == "" {
		url = "https://%s/healthz"
	}
	return func() error {
		if err := c.waitForAnswer(ctx, p, fmt.Sprintf(url, c.Ports.address(name))); err != nil {
			return err
		}
		c.Log("%s on %s is healthy after %s", name, c.Ports.address(name), since(start))
		return nil
	}, nil
}

// waitForPort waits until nobody has the port of a component. That of one which was stopped is free only
// some time later.
func (c *Cluster) waitForPort(ctx context.Context, component, host string) error {
	return poll(ctx, 30*time.Second, "port of "+component, func(context.Context) error {
		l, err := net.Listen("tcp4", net.JoinHostPort(host, strconv.Itoa(c.Ports[component])))
		if err != nil {
			return err
		}
		return l.Close()
	})
}

// waitForAnswer waits until a process says at a URL that it is healthy.
func (c *Cluster) waitForAnswer(ctx context.Context, p *process, url string) error {
	return c.Processes.waitHealthy(ctx, p, 3*time.Minute, func(ctx context.Context) error {
		_, err := c.Get(ctx, url)
		return err
	})
}

// Get is what a component answers to the administrator.
func (c *Cluster) Get(ctx context.Context, url string) (string, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return "", err
	}
	pair, err := tls.X509KeyPair(config.CertData, config.KeyData)
	if err != nil {
		return "", err
	}
	roots, err := certutil.NewPoolFromBytes(config.CAData)
	if err != nil {
		return "", err
	}
	client := &http.Client{
		Timeout: 5 * time.Second,
		Transport: &http.Transport{
			// Never through a proxy.
			TLSClientConfig:   &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
			DisableKeepAlives: true,
		},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<26))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s says %s: %s", url, response.Status, strings.TrimSpace(string(body)))
	}
	return string(body), err
}

// Start starts a component which was stopped, with feature gates over those of the cluster. It returns
// when the component is healthy.
func (c *Cluster) Start(ctx context.Context, component string, gates map[string]bool) error {
	if p := c.Processes.find(component); p != nil && p.alive() {
		return fmt.Errorf("%s runs already", component)
	}
	switch component {
	case Kubelet:
		if !c.state.RealNode {
			return errors.New("there is no real node")
		}
		return c.node().startKubelet(ctx, gates)
	case Driver:
		return c.node().startDriver(ctx)
	case Kwok:
		return simulatedNodes{c}.startKwok(ctx)
	case Containerd:
		return c.node().boot(ctx)
	}
	one, component, err := c.controlPlaneOf(component)
	if err != nil {
		return err
	}
	wait, err := one.launch(ctx, component, gates)
	if err != nil {
		return err
	}
	return wait()
}

// StartOther starts one more program, which ends with the cluster.
func (c *Cluster) StartOther(name string, args []string) error {
	_, err := c.run(name, args)
	return err
}

// Stop stops a component with all that it started. What has not ended after the grace period is killed.
func (c *Cluster) Stop(ctx context.Context, component string, grace time.Duration) error {
	p := c.Processes.find(component)
	if p == nil {
		return fmt.Errorf("%s was not started", component)
	}
	return p.stop(ctx, grace)
}

// PIDs are the processes of a component that runs. On the real node, the first one enters the namespaces of
// the node.
func (c *Cluster) PIDs(component string) ([]int, error) {
	p := c.Processes.find(component)
	if p == nil || !p.alive() {
		return nil, fmt.Errorf("%s does not run", component)
	}
	return append([]int{p.PID}, family(p.PID)...), nil
}
