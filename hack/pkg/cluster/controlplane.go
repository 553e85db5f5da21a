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
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"kubernetes-dra/hack/pkg/tools"
)

// auditPolicy keeps what tests look at: who wrote which object of
// resource.k8s.io when.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
  resources:
  - group: resource.k8s.io
- level: None
`

func (c *Cluster) serviceSubnet() string { return c.PodSubnet + ".128.0/17" }
func (c *Cluster) serviceIP() string     { return c.PodSubnet + ".128.1" }

// Config returns a client configuration of the administrator's.
func (c *Cluster) Config() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return nil, err
	}
	// The caller knows what it wants to send.
	config.QPS, config.Burst = 1000, 2000
	return config, nil
}

// gateFlag is --feature-gates with gates over others.
func gateFlag(others, gates map[string]bool) []string {
	all := maps.Clone(others)
	if all == nil {
		all = map[string]bool{}
	}
	maps.Copy(all, gates)
	var list []string
	for _, gate := range slices.Sorted(maps.Keys(all)) {
		list = append(list, gate+"="+strconv.FormatBool(all[gate]))
	}
	if len(list) == 0 {
		return nil
	}
	return []string{"--feature-gates=" + strings.Join(list, ",")}
}

func (c *Cluster) program(name string) string { return filepath.Join(c.Options.Bin, name) }

func (c *Cluster) tool(name string) string { return filepath.Join(tools.Dir(c.Options.Repo), name) }

// common are the program and the flags that every component of Kubernetes has.
func (c *Cluster) common(component string, gates map[string]bool) []string {
	programs := Programs{Bin: c.Options.Bin, Gates: c.Options.Gates}
	if component == Kubelet && c.Options.Kubelet != nil {
		programs = *c.Options.Kubelet
	}
	return append([]string{filepath.Join(programs.Bin, component), "-v=" + strconv.Itoa(c.Options.LogLevel)}, gateFlag(programs.Gates, gates)...)
}

// args is the command line of a component.
func (c *Cluster) args(component string, gates map[string]bool) ([]string, error) {
	port := strconv.Itoa(c.Ports[component])
	bind := "127.0.0.1"
	if component == APIServer && c.Options.Services {
		// Pods reach it, through the Service, at the address of a node.
		bind = "0.0.0.0"
	}
	secure := []string{
		"--bind-address=" + bind,
		"--secure-port=" + port,
		"--tls-cert-file=" + c.pki(component+".crt"),
		"--tls-private-key-file=" + c.pki(component+".key"),
	}
	kubeconfig := c.kubeconfig(component)
	clients := []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--leader-elect=false",
		"--kube-api-qps=1000",
		"--kube-api-burst=2000",
	}
	switch component {
	case Etcd:
		client, peer := "http://"+c.address(Etcd), "http://"+c.address("etcd-peer")
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
	case APIServer:
		policy := c.path("config", "audit-policy.yaml")
		if err := os.WriteFile(policy, []byte(auditPolicy), 0o644); err != nil {
			return nil, err
		}
		args := slices.Concat(c.common(component, gates), secure, []string{
			"--etcd-servers=http://" + c.address(Etcd),
			"--service-cluster-ip-range=" + c.serviceSubnet(),
			"--client-ca-file=" + c.pki("ca.crt"),
			"--authorization-mode=Node,RBAC",
			"--enable-admission-plugins=NodeRestriction",
			"--allow-privileged=true",
			"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
			"--service-account-key-file=" + c.pki("sa.pub"),
			"--service-account-signing-key-file=" + c.pki("sa.key"),
			"--kubelet-client-certificate=" + c.pki("apiserver-kubelet-client.crt"),
			"--kubelet-client-key=" + c.pki("apiserver-kubelet-client.key"),
			"--kubelet-certificate-authority=" + c.pki("ca.crt"),
			"--kubelet-preferred-address-types=InternalIP",
			"--requestheader-client-ca-file=" + c.pki("front-proxy-ca.crt"),
			"--requestheader-allowed-names=front-proxy-client",
			"--requestheader-extra-headers-prefix=X-Remote-Extra-",
			"--requestheader-group-headers=X-Remote-Group",
			"--requestheader-username-headers=X-Remote-User",
			"--proxy-client-cert-file=" + c.pki("front-proxy-client.crt"),
			"--proxy-client-key-file=" + c.pki("front-proxy-client.key"),
			"--audit-policy-file=" + policy,
			"--audit-log-path=" + c.AuditLog(),
		})
		if c.Options.Services {
			args = append(args, "--advertise-address="+c.node().address())
		} else {
			// A Service cannot have an endpoint on a loopback address.
			args = append(args, "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none")
		}
		if runtime := c.runtimeConfig(); runtime != "" {
			args = append(args, "--runtime-config="+runtime)
		}
		return args, nil
	case ControllerManager:
		return slices.Concat(c.common(component, gates), secure, clients, []string{
			"--use-service-account-credentials=true",
			"--root-ca-file=" + c.pki("ca.crt"),
			"--service-account-private-key-file=" + c.pki("sa.key"),
			"--client-ca-file=" + c.pki("ca.crt"),
			"--requestheader-client-ca-file=" + c.pki("front-proxy-ca.crt"),
			"--concurrent-job-syncs=20",
			// It creates the folder.
			"--flex-volume-plugin-dir=" + c.path("config", "volume-plugins"),
		}), nil
	case Scheduler:
		return slices.Concat(c.common(component, gates), secure, clients, []string{
			"--client-ca-file=" + c.pki("ca.crt"),
			"--requestheader-client-ca-file=" + c.pki("front-proxy-ca.crt"),
		}), nil
	}
	return nil, fmt.Errorf("no component %q", component)
}

// runtimeConfig serves resource.k8s.io where the release does not by itself.
func (c *Cluster) runtimeConfig() string {
	var list []string
	if c.Options.RuntimeConfig != "" {
		list = append(list, c.Options.RuntimeConfig)
	}
	return strings.Join(append(list, c.Facts.RuntimeConfig...), ",")
}

// healthURL is where a component of the control plane says how it is.
func (c *Cluster) healthURL(component string) string {
	switch component {
	case Etcd:
		return "http://" + c.address(component) + "/health"
	case APIServer:
		return "https://" + c.address(component) + "/readyz"
	default:
		return "https://" + c.address(component) + "/healthz"
	}
}

func (c *Cluster) startControlPlane(ctx context.Context) error {
	c.Options.Gates = c.withNeededGates(c.Options.Gates)
	for _, component := range []string{Etcd, APIServer} {
		if err := c.startComponent(ctx, component, nil); err != nil {
			return err
		}
	}
	if err := c.applyAccess(ctx); err != nil {
		return fmt.Errorf("roles: %w", err)
	}
	for _, component := range []string{ControllerManager, Scheduler} {
		if err := c.startComponent(ctx, component, nil); err != nil {
			return err
		}
	}
	return c.waitForNamespace(ctx)
}

// startComponent starts one of the control plane and waits until it is
// healthy.
func (c *Cluster) startComponent(ctx context.Context, component string, gates map[string]bool) error {
	args, err := c.args(component, gates)
	if err != nil {
		return err
	}
	if err := c.waitForPort(ctx, component, "127.0.0.1"); err != nil {
		return err
	}
	start := time.Now()
	p, err := c.start(component, args)
	if err != nil {
		return err
	}
	client, err := c.probeClient()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	err = c.waitHealthy(ctx, p, 3*time.Minute, func(ctx context.Context) error {
		return probe(ctx, client, c.healthURL(component))
	})
	if err != nil {
		return err
	}
	c.Log("%s on %s is healthy after %s", component, c.address(component), time.Since(start).Round(100*time.Millisecond))
	return nil
}

// probeClient has the administrator's certificate.
func (c *Cluster) probeClient() (*http.Client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(config.CertData, config.KeyData)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(config.CAData)
	return &http.Client{
		Timeout: 5 * time.Second,
		Transport: &http.Transport{
			// Never through a proxy.
			TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
		},
	}, nil
}

func probe(ctx context.Context, client *http.Client, url string) error {
	_, err := get(ctx, client, url, 1<<16)
	return err
}

// get is what a component answers, up to a number of bytes.
func get(ctx context.Context, client *http.Client, url string, limit int64) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, limit))
	if err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s says %s: %s", url, response.Status, strings.TrimSpace(string(body)))
	}
	return string(body), nil
}

// waitForNamespace waits until pods can be created: their service account
// comes from the controller manager.
func (c *Cluster) waitForNamespace(ctx context.Context) error {
	client, err := c.clientset()
	if err != nil {
		return err
	}
	return poll(ctx, time.Minute, "service account of namespace default", func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// Use lets components that get started from now on be those of another folder, with other feature
// gates. They may be of another release. Nothing gets restarted.
func (c *Cluster) Use(ctx context.Context, bin string, gates map[string]bool) error {
	c.Options.Bin = bin
	if err := c.findVersion(ctx); err != nil {
		return err
	}
	c.Options.Gates = c.withNeededGates(gates)
	return nil
}

// withNeededGates adds those gates without which the release does not have the API.
func (c *Cluster) withNeededGates(gates map[string]bool) map[string]bool {
	all := map[string]bool{}
	for _, gate := range c.Facts.Gates {
		all[gate] = true
	}
	maps.Copy(all, gates)
	return all
}

// StartScheduler starts one more scheduler, for pods with that scheduler name. It ends when stop is called,
// or with the cluster.
func (c *Cluster) StartScheduler(ctx context.Context, name string) (stop func(context.Context) error, err error) {
	config := c.path("config", name+".yaml")
	content := fmt.Sprintf(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: %q, qps: 1000, burst: 2000}
leaderElection: {leaderElect: false}
profiles:
- schedulerName: %q
`, c.kubeconfig(Scheduler), name)
	if err := os.WriteFile(config, []byte(content), 0o644); err != nil {
		return nil, err
	}
	// It serves nothing, so it needs no port.
	p, err := c.start(name, append(c.common(Scheduler, nil), "--config="+config, "--secure-port=0"))
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return p.stop(ctx, 20*time.Second) }, nil
}

// Restart stops a component and starts it again with other feature gates, over
// those of the cluster. It returns when the component is healthy.
func (c *Cluster) Restart(ctx context.Context, component string, gates map[string]bool) error {
	if err := c.Stop(ctx, component); err != nil {
		return err
	}
	return c.Start(ctx, component, gates)
}

// Stop stops a component.
func (c *Cluster) Stop(ctx context.Context, component string) error {
	p := c.process(component)
	if p == nil {
		return fmt.Errorf("%s was not started", component)
	}
	return p.stop(ctx, 20*time.Second)
}

// Start starts a component which was stopped.
func (c *Cluster) Start(ctx context.Context, component string, gates map[string]bool) error {
	if p := c.process(component); p != nil && p.alive() {
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
		return c.startKwok(ctx)
	case Containerd:
		return errors.New("the real node ends with its containerd")
	}
	return c.startComponent(ctx, component, gates)
}
