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
	"bufio"
	"bytes"
	"context"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/yaml"

	"kubernetes-dra/hack/pkg/dist/image"
	"kubernetes-dra/hack/pkg/tools"
)

// Kubeadm says what kubeadm starts: the control plane as static pods on the real
// node, instead of processes of this machine.
type Kubeadm struct {
	// Config is a file with a configuration of kubeadm's. What only this machine
	// needs is added to it.
	Config string
	// Archives are those of the control plane's images, under the names of
	// upstream's registry.
	Archives []string
}

// kubeadmLog is the name of its log.
const kubeadmLog = "kubeadm"

// kubeadmPrivate are the folders where kubeadm and its static pods keep things.
var kubeadmPrivate = []string{"/etc/kubernetes", "/usr/libexec/kubernetes", "/var/lib/etcd"}

// kubeadmPorts are those which it gives to components, and which cannot be changed.
var kubeadmPorts = map[string]int{
	Etcd: 2379, "etcd-peer": 2380, "etcd-metrics": 2381, ControllerManager: 10257, Scheduler: 10259, Kubelet: 10250, kubeletHealth: 10248,
}

// kubeadmInit starts the control plane, on a node with a container runtime.
func (c *Cluster) kubeadmInit(ctx context.Context) error {
	start := time.Now()
	config := c.path("config", "kubeadm.yaml")
	content, err := c.kubeadmConfig()
	if err != nil {
		return fmt.Errorf("%s: %w", c.Options.Kubeadm.Config, err)
	}
	if err := os.WriteFile(config, content, 0o600); err != nil {
		return err
	}
	if err := c.findProxyRules(ctx); err != nil {
		return err
	}
	if err := c.startKubeadmKubelet(); err != nil {
		return err
	}
	args := []string{"init", "--config=" + config}
	if !UnifiedCgroups() {
		// The kubelet is told that version 1 is meant, but kubeadm wants to
		// hear it, too.
		args = append(args, "--ignore-preflight-errors=SystemVerification")
	}
	if err := c.runKubeadm(ctx, args...); err != nil {
		return fmt.Errorf("%w%s%s", err, c.logEnd(kubeadmLog), c.logEnd(Kubelet))
	}
	c.Log("kubeadm init is done after %s", time.Since(start).Round(100*time.Millisecond))
	ca, err := readAuthority(c.path("node", "root", "etc", "kubernetes", "pki", "ca"))
	if err != nil {
		return err
	}
	if err := c.writeKubeconfigs(ca); err != nil {
		return err
	}
	if err := c.applyAccess(ctx); err != nil {
		return fmt.Errorf("roles: %w", err)
	}
	return c.waitForNamespace(ctx)
}

// KubeadmReset undoes what kubeadm did, as the administrator of a node would, and
// returns an error if it leaves something. The container runtime and the rules of
// kube-proxy, which kubeadm reset leaves to the administrator, are for Down.
func (c *Cluster) KubeadmReset(ctx context.Context) error {
	if c.Options.Kubeadm == nil {
		return errors.New("this cluster was not started by kubeadm")
	}
	for _, name := range []string{Kwok, Driver, Kubelet} {
		if p := c.process(name); p != nil {
			if err := p.stop(ctx, 3*time.Second); err != nil {
				return err
			}
		}
	}
	if err := c.runKubeadm(ctx, "reset", "--force", "--cri-socket=unix://"+containerdSocket); err != nil {
		return fmt.Errorf("%w%s", err, c.logEnd(kubeadmLog))
	}
	containers, err := c.RunInNode(ctx, c.tool("ctr"), "--namespace=k8s.io", "containers", "list", "--quiet")
	if err != nil {
		return err
	}
	if containers != "" {
		return fmt.Errorf("kubeadm reset left containers: %s", strings.Join(strings.Fields(containers), ", "))
	}
	for _, dir := range []string{"/etc/kubernetes/manifests", "/etc/kubernetes/pki", "/var/lib/etcd", "/var/lib/kubelet"} {
		if left := under(c.path("node", "root", dir)); len(left) > 0 {
			return fmt.Errorf("kubeadm reset left %s", strings.Join(left, ", "))
		}
	}
	return nil
}

// under are the files below a folder, without the mark of the cluster.
func under(dir string) []string {
	var found []string
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.HasPrefix(d.Name(), markPrefix) {
			found = append(found, path)
		}
		return nil
	})
	return found
}

// runKubeadm runs it on the node. What it says goes to its log.
func (c *Cluster) runKubeadm(ctx context.Context, args ...string) error {
	command, err := c.node().inside(append([]string{c.program(kubeadmLog)}, args...)...)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(c.LogFile(kubeadmLog), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	fmt.Fprintf(log, "# %s %s\n", time.Now().Format(time.RFC3339), strings.Join(command, " "))
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	// It asks the kubelet for its version.
	cmd.Env = []string{marker + "=" + c.Options.Dir, "PATH=" + c.Options.Bin + ":" + os.Getenv("PATH"), "HOME=" + c.Options.Dir, "LC_ALL=C"}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("kubeadm %s: %w", args[0], err)
	}
	return nil
}

// iptables are the two that kube-proxy uses.
var iptables = []string{"iptables", "ip6tables"}

// savedRules are those of this machine, as iptables-restore reads them.
func savedRules(ctx context.Context, program string) (string, error) {
	var stderr strings.Builder
	cmd := exec.CommandContext(ctx, program+"-save")
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s-save: %w: %s", program, err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// findProxyRules notes whether a kube-proxy or a kubelet was here before: then Down leaves its rules
// alone.
func (c *Cluster) findProxyRules(ctx context.Context) error {
	own := true
	for _, program := range iptables {
		saved, err := savedRules(ctx, program)
		if err != nil {
			return err
		}
		own = own && withoutProxyRules(saved) == ""
	}
	c.OwnProxyRules = own
	return nil
}

// removeProxyRules removes what kube-proxy made in this machine's network. It does
// not remove all of that itself: a chain of the kubelet's stays, and in
// some releases much more if ipset is not on the machine.
func (c *Cluster) removeProxyRules(ctx context.Context) error {
	for _, program := range iptables {
		saved, err := savedRules(ctx, program)
		if err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, program+"-restore", "--noflush", "--wait")
		cmd.Stdin = strings.NewReader(withoutProxyRules(saved))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s-restore: %w: %s", program, err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}

// withoutProxyRules are commands for iptables-restore that remove all chains of
// Kubernetes, and the rules that lead to them, from saved rules. It is empty if there
// are none.
func withoutProxyRules(saved string) string {
	const prefix = "KUBE-"
	var out strings.Builder
	var table string
	var flush, remove, chains []string
	for line := range strings.Lines(saved) {
		line = strings.TrimSpace(line)
		chain, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(line, ":"), "-A "), " ")
		switch {
		case strings.HasPrefix(line, "*"):
			table, flush, remove, chains = line, nil, nil, nil
		case strings.HasPrefix(line, ":") && strings.HasPrefix(chain, prefix):
			flush, chains = append(flush, ":"+chain+" - [0:0]"), append(chains, "-X "+chain)
		case strings.HasPrefix(line, "-A ") && !strings.HasPrefix(chain, prefix) && strings.Contains(line, "-j "+prefix):
			remove = append(remove, "-D "+strings.TrimPrefix(line, "-A "))
		case line == "COMMIT" && len(chains) > 0:
			out.WriteString(strings.Join(slices.Concat([]string{table}, flush, remove, chains, []string{line}), "\n") + "\n")
		}
	}
	return out.String()
}

// startKubeadmKubelet starts what a service manager does on other nodes: it
// starts the kubelet as soon as kubeadm has configured it, and whenever it ends.
func (c *Cluster) startKubeadmKubelet() error {
	script := c.path("config", "kubelet.sh")
	content := fmt.Sprintf(`while true; do
  if [ -s /var/lib/kubelet/config.yaml ] && [ -s /var/lib/kubelet/kubeadm-flags.env ]; then
    . /var/lib/kubelet/kubeadm-flags.env
    %s --config=/var/lib/kubelet/config.yaml --kubeconfig=/etc/kubernetes/kubelet.conf \
      --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf $KUBELET_KUBEADM_ARGS || true
  fi
  sleep 0.5
done
`, quote(c.program(Kubelet)))
	if err := os.WriteFile(script, []byte(content), 0o644); err != nil {
		return err
	}
	args, err := c.node().inside("sh", script)
	if err != nil {
		return err
	}
	_, err = c.start(Kubelet, args, tools.Dir(c.Options.Repo))
	return err
}

// kubeadmConfig is the one of the options with what this machine needs: its
// addresses, and a node without systemd whose images cannot be pulled.
func (c *Cluster) kubeadmConfig() ([]byte, error) {
	content, err := os.ReadFile(c.Options.Kubeadm.Config)
	if err != nil {
		return nil, err
	}
	etcd, err := c.etcdTag()
	if err != nil {
		return nil, err
	}
	flags := []any{
		map[string]any{"name": "node-ip", "value": c.node().address()},
		map[string]any{"name": "node-labels", "value": TypeLabel + "=real"},
		map[string]any{"name": "v", "value": strconv.Itoa(c.Options.LogLevel)},
	}
	kubelet := map[string]any{}
	if err := yaml.Unmarshal([]byte(c.node().kubeletConfig()), &kubelet); err != nil {
		return nil, err
	}
	// These are for kubeadm to say, or were turned off for a node whose
	// certificate is not kubeadm's.
	for _, name := range []string{"apiVersion", "kind", "authentication", "authorization", "tlsCertFile", "tlsPrivateKeyFile", "clusterDNS", "port", "healthzPort", "healthzBindAddress"} {
		delete(kubelet, name)
	}
	return mergeDocuments(content, map[string]map[string]any{
		"InitConfiguration": {
			"apiVersion":       "kubeadm.k8s.io/v1beta4",
			"localAPIEndpoint": map[string]any{"advertiseAddress": c.node().address(), "bindPort": c.Ports[APIServer]},
			"nodeRegistration": map[string]any{
				"name":            RealNode,
				"criSocket":       "unix://" + containerdSocket,
				"imagePullPolicy": "Never",
				// It is the only node that runs pods.
				"taints":           []any{},
				"kubeletExtraArgs": flags,
			},
		},
		"ClusterConfiguration": {
			"apiServer":  map[string]any{"certSANs": []any{"127.0.0.1"}},
			"networking": map[string]any{"serviceSubnet": c.serviceSubnet()},
			"etcd":       map[string]any{"local": map[string]any{"imageTag": etcd}},
			// Nothing in here asks for names, and its image is not made from Kubernetes.
			"dns": map[string]any{"disabled": true},
		},
		"KubeletConfiguration": kubelet,
		// The limits of the machine's connection tracking are not for a node in it
		// to change.
		"KubeProxyConfiguration": {
			"conntrack": map[string]any{"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
			"iptables":  map[string]any{"localhostNodePorts": false},
		},
	})
}

// mergeDocuments adds fields to documents, by their kind. A document that is not
// there yet comes last.
func mergeDocuments(content []byte, additions map[string]map[string]any) ([]byte, error) {
	var out bytes.Buffer
	add := func(document map[string]any) error {
		text, err := yaml.Marshal(document)
		if err == nil {
			out.WriteString("---\n")
			out.Write(text)
		}
		return err
	}
	left := maps.Clone(additions)
	for r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content))); ; {
		text, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		document := map[string]any{}
		if err := yaml.UnmarshalStrict(text, &document); err != nil {
			return nil, err
		}
		kind, _ := document["kind"].(string)
		merge(document, left[kind])
		delete(left, kind)
		if err := add(document); err != nil {
			return nil, err
		}
	}
	for kind, addition := range left {
		addition["kind"] = kind
		if err := add(addition); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// merge sets the fields of an object. Those of objects in it are set one by one,
// lists as a whole.
func merge(object, fields map[string]any) {
	for name, value := range fields {
		inner, isObject := object[name].(map[string]any)
		if innerFields, ok := value.(map[string]any); ok && isObject {
			merge(inner, innerFields)
		} else {
			object[name] = value
		}
	}
}

// etcdTag is the tag of an image with the etcd of this machine, as kubeadm wants it.
func (c *Cluster) etcdTag() (string, error) {
	version, err := tools.Version(c.Options.Repo, Etcd)
	return strings.TrimPrefix(version, "v") + "-0", err
}

// kubeadmImages are those that kubeadm's cluster needs besides the release's.
func (c *Cluster) kubeadmImages() ([]image.Image, error) {
	tag, err := c.etcdTag()
	if err != nil {
		return nil, err
	}
	return []image.Image{{
		Names:    []string{"registry.k8s.io/etcd:" + tag},
		Programs: map[string]string{"/usr/local/bin/etcd": c.tool("etcd")},
	}}, nil
}

// reserveKubeadmPorts checks that nobody has the ports of a control plane of
// kubeadm's.
func (c *Cluster) reserveKubeadmPorts() error {
	for component, port := range kubeadmPorts {
		if err := c.reserve(component, port); err != nil {
			return fmt.Errorf("kubeadm gives port %d to %s: %w; stop what has it (ss -ltnp)", port, component, err)
		}
	}
	return nil
}

// readAuthority reads one from files that kubeadm made.
func readAuthority(name string) (*authority, error) {
	key, err := keyutil.PrivateKeyFromFile(name + ".key")
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(name + ".crt")
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%s.key has no private key that can sign", name)
	}
	block, _ := pem.Decode(content)
	if block == nil {
		return nil, fmt.Errorf("%s.crt has no certificate", name)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s.crt: %w", name, err)
	}
	return &authority{cert: cert, key: signer, pem: content}, nil
}
