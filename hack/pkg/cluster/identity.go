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
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte
}

// validity is long enough for a cluster that nobody takes down for a while.
const validity = 365 * 24 * time.Hour

func newAuthority(name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(validity),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key, pem: encode("CERTIFICATE", der)}, nil
}

// issue returns a certificate and its key. One with hosts is for a server, one
// without for a client, whose user is name.
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
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", pkcs8), nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func (c *Cluster) pki(name string) string { return c.path("pki", name) }

// writeIdentities makes all certificates and kubeconfigs: everybody is who they
// are in a cluster of kubeadm's.
func (c *Cluster) writeIdentities() error {
	ca, err := newAuthority("kubernetes-ca")
	if err != nil {
		return err
	}
	frontProxy, err := newAuthority("kubernetes-front-proxy-ca")
	if err != nil {
		return err
	}
	files := map[string][]byte{
		"ca.crt":             ca.pem,
		"front-proxy-ca.crt": frontProxy.pem,
	}

	local := []string{"localhost", "127.0.0.1"}
	servers := map[string][]string{
		APIServer:         append([]string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", c.serviceIP()}, local...),
		ControllerManager: local,
		Scheduler:         local,
	}
	if c.Options.Services {
		// Pods are told that address when they ask for the keys of service accounts.
		servers[APIServer] = append(servers[APIServer], c.node().address())
	}
	for _, n := range c.realNodes() {
		servers[n.of(Kubelet)] = append([]string{n.of(RealNode), n.address()}, local...)
	}
	for name, hosts := range servers {
		if files[name+".crt"], files[name+".key"], err = ca.issue(name, nil, hosts); err != nil {
			return err
		}
	}
	if files["apiserver-kubelet-client.crt"], files["apiserver-kubelet-client.key"], err =
		ca.issue("kube-apiserver-kubelet-client", []string{"system:masters"}, nil); err != nil {
		return err
	}
	if files["front-proxy-client.crt"], files["front-proxy-client.key"], err = frontProxy.issue("front-proxy-client", nil, nil); err != nil {
		return err
	}
	serviceAccounts, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(serviceAccounts.Public())
	if err != nil {
		return err
	}
	files["sa.pub"] = encode("PUBLIC KEY", public)
	files["sa.key"] = encode("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(serviceAccounts))
	for name, content := range files {
		if err := os.WriteFile(c.pki(name), content, 0o600); err != nil {
			return err
		}
	}
	return c.writeKubeconfigs(ca)
}

// writeKubeconfigs makes those of everybody but the kubelet of kubeadm's, which
// gets its own from the cluster.
func (c *Cluster) writeKubeconfigs(ca *authority) error {
	type user struct {
		file, user string
		groups     []string
	}
	users := []user{
		{c.Kubeconfig(), "kubernetes-admin", []string{"system:masters"}},
		{c.kubeconfig(ControllerManager), "system:kube-controller-manager", nil},
		{c.kubeconfig(Scheduler), "system:kube-scheduler", nil},
		{c.kubeconfig(Kwok), kwokUser, nil},
		{c.kubeconfig(Driver), driverUser, nil},
	}
	if c.Options.Services {
		users = append(users, user{c.kubeconfig(Proxy), "system:kube-proxy", nil}, user{c.kubeconfig(DNS), dnsUser, nil})
	}
	for _, n := range c.realNodes() {
		users = append(users, user{c.kubeconfig(n.of(Kubelet)), "system:node:" + n.of(RealNode), []string{"system:nodes"}})
	}
	for _, u := range users {
		cert, key, err := ca.issue(u.user, u.groups, nil)
		if err != nil {
			return err
		}
		name := c.id()
		config := clientcmdapi.NewConfig()
		config.Clusters[name] = &clientcmdapi.Cluster{Server: "https://" + c.address(APIServer), CertificateAuthorityData: ca.pem}
		config.AuthInfos[u.user] = &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: u.user}
		config.CurrentContext = name
		if err := clientcmd.WriteToFile(*config, u.file); err != nil {
			return err
		}
	}
	return nil
}

// ComponentKubeconfig has the identity of a component.
func (c *Cluster) ComponentKubeconfig(component string) string { return c.kubeconfig(component) }

func (c *Cluster) kubeconfig(component string) string {
	return c.path("config", component+".kubeconfig")
}
