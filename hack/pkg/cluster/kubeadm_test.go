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
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestKubeadmConfig(t *testing.T) {
	c := newCluster(t)
	module := filepath.Join(c.Options.Repo, "hack", "tools", "etcd")
	if err := os.MkdirAll(module, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(module, "go.mod"), []byte("module tools\n\nrequire (\n\tgo.etcd.io/etcd/server/v3 v3.6.1\n)\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	c.Options.Kubeadm = &Kubeadm{Config: filepath.Join(c.Options.Repo, "kubeadm.yaml")}
	const given = `apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
apiServer:
  extraArgs:
  - name: feature-gates
    value: A=true
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
featureGates:
  A: true
`
	if err := os.WriteFile(c.Options.Kubeadm.Config, []byte(given), 0o644); err != nil {
		t.Fatal(err)
	}
	content, err := c.kubeadmConfig()
	if err != nil {
		t.Fatal(err)
	}
	documents := map[string]map[string]any{}
	for _, text := range strings.Split(string(content), "---\n")[1:] {
		document := map[string]any{}
		if err := yaml.UnmarshalStrict([]byte(text), &document); err != nil {
			t.Fatal(err)
		}
		documents[document["kind"].(string)] = document
	}
	for kind, fields := range map[string]map[string]any{
		"ClusterConfiguration": {
			"apiServer": map[string]any{
				"certSANs":  []any{"127.0.0.1"},
				"extraArgs": []any{map[string]any{"name": "feature-gates", "value": "A=true"}},
			},
			"etcd": map[string]any{"local": map[string]any{"imageTag": "3.6.1-0"}},
		},
		"KubeletConfiguration": {
			"featureGates": map[string]any{"A": true},
			"cgroupRoot":   "/" + c.id(),
			// Of kubeadm.
			"authentication": nil, "clusterDNS": nil, "tlsCertFile": nil,
		},
		"InitConfiguration": {
			"apiVersion":       "kubeadm.k8s.io/v1beta4",
			"localAPIEndpoint": map[string]any{"advertiseAddress": c.node().address(), "bindPort": float64(c.Ports[APIServer])},
		},
	} {
		for name, want := range fields {
			if got := documents[kind][name]; !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %s is %v, want %v", kind, name, got, want)
			}
		}
	}

	if err := os.WriteFile(c.Options.Kubeadm.Config, []byte("kind: [\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := c.kubeadmConfig(); err == nil {
		t.Error("no error for a configuration that is not YAML")
	}
}

// TestKubeadmPorts gives a port of kubeadm's to somebody else.
func TestKubeadmPorts(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	port := l.Addr().(*net.TCPAddr).Port
	before := kubeadmPorts
	t.Cleanup(func() { kubeadmPorts = before })
	kubeadmPorts = map[string]int{Etcd: port}
	c := newCluster(t)
	c.Ports = map[string]int{}
	if err := c.choosePorts(); err != nil {
		t.Errorf("without kubeadm that port does not matter: %v", err)
	}
	c.Ports, c.Options.Kubeadm = map[string]int{}, &Kubeadm{}
	if err := c.choosePorts(); err == nil || !strings.Contains(err.Error(), "kubeadm gives port "+strconv.Itoa(port)+" to etcd") {
		t.Errorf("want an error about port %d, got %v", port, err)
	}
}

// TestReadAuthority issues a certificate with an authority that was read from files
// like those of kubeadm.
func TestReadAuthority(t *testing.T) {
	made, err := newAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	if made.key, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
		t.Fatal(err)
	}
	made.cert.SignatureAlgorithm, made.cert.PublicKey = x509.UnknownSignatureAlgorithm, made.key.Public()
	der, err := x509.CreateCertificate(rand.Reader, made.cert, made.cert, made.key.Public(), made.key)
	if err != nil {
		t.Fatal(err)
	}
	key := encode("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(made.key.(*rsa.PrivateKey)))
	name := filepath.Join(t.TempDir(), "ca")
	for suffix, content := range map[string][]byte{".key": key, ".crt": encode("CERTIFICATE", der)} {
		if err := os.WriteFile(name+suffix, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ca, err := readAuthority(name)
	if err != nil {
		t.Fatal(err)
	}
	cert, _, err := ca.issue("somebody", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.pem)
	block, _ := pem.Decode(cert)
	issued, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := issued.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}

	if err := os.WriteFile(name+".crt", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readAuthority(name); err == nil || !strings.Contains(err.Error(), "no certificate") {
		t.Errorf("want an error about a missing certificate, got %v", err)
	}
}

func TestWithoutProxyRules(t *testing.T) {
	const saved = `# Generated by iptables-save
*filter
:INPUT ACCEPT [1:2]
:KUBE-FIREWALL - [0:0]
:KUBE-SERVICES - [0:0]
:DOCKER - [0:0]
-A INPUT -m comment --comment "to KUBE-FIREWALL" -j DOCKER
-A INPUT -j KUBE-FIREWALL
-A INPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A KUBE-SERVICES -j KUBE-FIREWALL
COMMIT
# Completed
*nat
:OUTPUT ACCEPT [0:0]
-A OUTPUT -j DOCKER
COMMIT
`
	const want = `*filter
:KUBE-FIREWALL - [0:0]
:KUBE-SERVICES - [0:0]
-D INPUT -j KUBE-FIREWALL
-D INPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-X KUBE-FIREWALL
-X KUBE-SERVICES
COMMIT
`
	if got := withoutProxyRules(saved); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := withoutProxyRules("*nat\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n"); got != "" {
		t.Errorf("there is nothing to remove, but got\n%s", got)
	}
}

// TestFindProxyRules checks that rules count as the cluster's own only if none were seen before.
func TestFindProxyRules(t *testing.T) {
	const none, some = "*nat\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n", "*nat\n:KUBE-SERVICES - [0:0]\nCOMMIT\n"
	for name, tc := range map[string]struct {
		ipv4, ipv6 string
		exit       int
		own        bool
	}{
		"none":   {ipv4: none, ipv6: none, own: true},
		"IPv4":   {ipv4: some, ipv6: none},
		"IPv6":   {ipv4: none, ipv6: some},
		"failed": {ipv4: none, ipv6: none, exit: 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for program, rules := range map[string]string{"iptables": tc.ipv4, "ip6tables": tc.ipv6} {
				script := fmt.Sprintf("#!/bin/sh\nprintf '%s'\nexit %d\n", rules, tc.exit)
				if err := os.WriteFile(filepath.Join(dir, program+"-save"), []byte(script), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
			c := &Cluster{}
			if err := c.findProxyRules(t.Context()); (err != nil) != (tc.exit != 0) {
				t.Fatalf("exit code %d: %v", tc.exit, err)
			}
			if c.OwnProxyRules != tc.own {
				t.Errorf("own rules: %t, want %t", c.OwnProxyRules, tc.own)
			}
		})
	}
}
