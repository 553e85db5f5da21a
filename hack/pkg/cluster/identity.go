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
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// validity is long enough for a cluster that nobody takes down for a while.
const validity = 365 * 24 * time.Hour

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

func newAuthority(name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	cert, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: name}, key)
	return &authority{cert, key}, err
}

func (a *authority) pem() []byte { return encode(a.cert.Raw) }

func encode(certificate []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: certificate})
}

// issue returns a certificate and its key. One with hosts is for a server, one without for a client, whose
// user is name.
func (a *authority) issue(name string, groups, hosts []string) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name, Organization: groups},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(validity),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if len(hosts) > 0 {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, private.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	key, err = keyutil.MarshalPrivateKeyToPEM(private)
	return encode(der), key, err
}

// identity is who somebody is: as a server if there are hosts, else as a user.
type identity struct {
	// file is that of the certificate, without its end, or the kubeconfig of a user.
	file, name    string
	groups, hosts []string
	frontProxy    bool
	// server is the API server of a user, the first one if it is empty.
	server string
}

// identities are as in a cluster of kubeadm's, and those who are not part of Kubernetes.
func (c *Cluster) identities() []identity {
	local := []string{"localhost", "127.0.0.1"}
	api := append([]string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", c.serviceIP()}, local...)
	if c.Options.Services {
		// Pods are told that address when they ask for the keys of service accounts.
		api = append(api, c.node().address())
	}
	all := []identity{
		{file: c.pki(APIServer), name: APIServer, hosts: api},
		{file: c.pki(ControllerManager), name: ControllerManager, hosts: local},
		{file: c.pki(Scheduler), name: Scheduler, hosts: local},
		{file: c.pki(kubeletClient), name: "kube-apiserver-kubelet-client", groups: []string{"system:masters"}},
		{file: c.pki(frontProxyClient), name: frontProxyClient, frontProxy: true},
	}
	user := func(component, name string, groups ...string) {
		all = append(all, identity{file: c.ComponentKubeconfig(component), name: name, groups: groups})
	}
	for i, one := range c.controlPlanes() {
		server := one.of(APIServer)
		all = append(all,
			identity{file: c.MemberKubeconfig(i + 1), name: "kubernetes-admin", groups: []string{"system:masters"}, server: server},
			identity{file: c.ComponentKubeconfig(one.of(ControllerManager)), name: "system:kube-controller-manager", server: server},
			identity{file: c.ComponentKubeconfig(one.of(Scheduler)), name: "system:kube-scheduler", server: server},
		)
	}
	user(Kwok, Kwok)
	user(Driver, Driver)
	if c.Options.Services {
		user(Proxy, "system:kube-proxy")
		user(DNS, DNS)
	}
	for _, n := range c.realNodes() {
		user(n.of(Kubelet), "system:node:"+n.name(), "system:nodes")
		all = append(all, identity{file: c.pki(n.of(Kubelet)), name: n.of(Kubelet), hosts: append([]string{n.name(), n.address()}, local...)})
	}
	return all
}

func (c *Cluster) pki(name string) string { return c.path("pki", name) }

// Names of files in the folder pki.
const (
	kubeletClient    = "apiserver-kubelet-client"
	frontProxyClient = "front-proxy-client"
)

// writeIdentities makes all certificates and kubeconfigs.
func (c *Cluster) writeIdentities(context.Context) error {
	ca, err := newAuthority("kubernetes-ca")
	if err != nil {
		return err
	}
	frontProxy, err := newAuthority("kubernetes-front-proxy-ca")
	if err != nil {
		return err
	}
	serviceAccounts, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return err
	}
	files := map[string][]byte{c.pki("ca.crt"): ca.pem(), c.pki("front-proxy-ca.crt"): frontProxy.pem(), c.pki("sa.key"): serviceAccounts}
	for _, i := range c.identities() {
		signer := ca
		if i.frontProxy {
			signer = frontProxy
		}
		cert, key, err := signer.issue(i.name, i.groups, i.hosts)
		if err != nil {
			return err
		}
		if filepath.Ext(i.file) != ".kubeconfig" {
			files[i.file+".crt"], files[i.file+".key"] = cert, key
			continue
		}
		config := clientcmdapi.NewConfig()
		config.Clusters[c.id()] = &clientcmdapi.Cluster{Server: "https://" + c.Ports.address(cmp.Or(i.server, APIServer)), CertificateAuthorityData: ca.pem()}
		config.AuthInfos[i.name] = &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
		config.Contexts[c.id()] = &clientcmdapi.Context{Cluster: c.id(), AuthInfo: i.name}
		config.CurrentContext = c.id()
		if err := clientcmd.WriteToFile(*config, i.file); err != nil {
			return err
		}
	}
	for name, content := range files {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			return err
		}
	}
	return nil
}
