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
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"
)

// controlPlane are etcd and what talks to it: processes of this machine, each with its own identity.
type controlPlane struct{ *Cluster }

const etcdPeer = "etcd-peer"

func (c controlPlane) up(ctx context.Context) error {
	c.Options.Gates = withGates(c.neededGates(), c.Options.Gates)
	if _, err := c.writeConfig("audit-policy.yaml", nil); err != nil {
		return err
	}
	for _, component := range []string{Etcd, APIServer} {
		if err := c.startComponent(ctx, component, nil); err != nil {
			return err
		}
	}
	if err := c.apply(ctx, "access.yaml", nil); err != nil {
		return err
	}
	for _, component := range []string{ControllerManager, Scheduler} {
		if err := c.startComponent(ctx, component, nil); err != nil {
			return err
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
		client, peer := "http://"+c.Ports.address(Etcd), "http://"+c.Ports.address(etcdPeer)
		return []string{
			c.tool("etcd"),
			"--name=default",
			"--data-dir=" + c.path("etcd"),
			"--listen-client-urls=" + client,
			"--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer,
			"--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=default=" + peer,
			"--log-level=warn",
			"--logger=zap",
			// Nothing in here is worth waiting for the disk.
			"--unsafe-no-fsync=true",
		}, nil
	}
	args := append(c.Program(component, gates),
		"--secure-port="+strconv.Itoa(c.Ports[component]),
		"--tls-cert-file="+c.pki(component+".crt"),
		"--tls-private-key-file="+c.pki(component+".key"),
		"--client-ca-file="+c.pki("ca.crt"),
		"--requestheader-client-ca-file="+c.pki("front-proxy-ca.crt"),
	)
	if component == APIServer {
		return append(args, c.apiServerArgs()...), nil
	}
	kubeconfig := c.ComponentKubeconfig(component)
	args = append(args,
		"--bind-address=127.0.0.1",
		"--kubeconfig="+kubeconfig,
		"--authentication-kubeconfig="+kubeconfig,
		"--authorization-kubeconfig="+kubeconfig,
		"--leader-elect=false",
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
		"--etcd-servers=http://" + c.Ports.address(Etcd),
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
		"--audit-log-path=" + c.AuditLog(),
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

// startComponent starts one of the control plane and waits until it is healthy.
func (c controlPlane) startComponent(ctx context.Context, component string, gates map[string]bool) error {
	args, err := c.args(component, gates)
	if err != nil {
		return err
	}
	if err := c.waitForPort(ctx, component, "127.0.0.1"); err != nil {
		return err
	}
	start := time.Now()
	p, err := c.run(component, args)
	if err != nil {
		return err
	}
	url := map[string]string{Etcd: "http://%s/health", APIServer: "https://%s/readyz"}[component]
	if url == "" {
		url = "https://%s/healthz"
	}
	if err := c.waitForAnswer(ctx, p, fmt.Sprintf(url, c.Ports.address(component))); err != nil {
		return err
	}
	c.Log("%s on %s is healthy after %s", component, c.Ports.address(component), since(start))
	return nil
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
	return controlPlane{c}.startComponent(ctx, component, gates)
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
