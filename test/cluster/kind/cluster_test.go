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

package kind

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"kubernetes-dra/hack/pkg/cluster"
	"kubernetes-dra/hack/pkg/dist/image"
	"kubernetes-dra/hack/pkg/sys"
	"kubernetes-dra/hack/pkg/test/engine"
)

// driverImage is that of the DRA driver, and driverManifest what runs it.
const driverImage = "dra.example.com/driver:1"

//go:embed driver.yaml
var driverManifest string

// patience is how long something may take that takes seconds on a machine with nothing else to do.
const patience = 5 * time.Minute

// kindCluster is one of kind's.
type kindCluster struct {
	*subject
	kubeconfig, kubectl, version string
}

// newCluster lets kind make a cluster, with the configuration of the release and what this machine needs.
func (s *subject) newCluster(nodeImage string) *kindCluster {
	s.Helper()
	c := &kindCluster{subject: s, kubeconfig: filepath.Join(s.dir, "kubeconfig"), kubectl: filepath.Join(s.dir, "kubectl")}
	s.must(os.WriteFile(c.kubectl, []byte(s.run("tar", "--extract", "--to-stdout", "--file="+s.tarball(), "kubernetes/server/bin/kubectl")), 0o755))

	content, err := os.ReadFile(filepath.Join(s.release, "kind.yaml"))
	s.must(err)
	var config map[string]any
	s.must(yaml.Unmarshal(content, &config))
	if list, _ := config["nodes"].([]any); len(list) != nodes {
		s.Fatalf("want %d nodes in kind.yaml, got %v", nodes, config["nodes"])
	}
	if !cluster.UnifiedCgroups() {
		// As docs/install.md says.
		config["kubeadmConfigPatches"] = []string{"kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\nfailCgroupV1: false\n"}
	}
	if fewer, err := engine.LacksCapabilities(); err != nil {
		s.Fatal(err)
	} else if fewer {
		// Nobody may make it less likely there that the kernel kills a process for its memory.
		config["containerdConfigPatches"] = []string{"[plugins.\"io.containerd.grpc.v1.cri\"]\nrestrict_oom_score_adj = true\n"}
	}
	if s.offline {
		config["networking"] = map[string]any{"disableDefaultCNI": true}
	}
	content, err = yaml.Marshal(config)
	s.must(err)
	file := filepath.Join(s.dir, "kind.yaml")
	s.must(os.WriteFile(file, content, 0o644))

	remove := func(ctx context.Context) error {
		return sys.Run(ctx, sys.Command(ctx, "", nil, s.kind, "delete", "cluster", "--name="+clusterName, "--kubeconfig="+c.kubeconfig))
	}
	// What an interrupted run left.
	s.must(remove(s.ctx))
	s.atEnd("delete the cluster", remove)
	s.Cleanup(func() {
		if !s.Failed() {
			return
		}
		logs := filepath.Join(s.output, "logs", "kind-nodes")
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := sys.Run(ctx, sys.Command(ctx, "", nil, s.kind, "export", "logs", "--name="+clusterName, logs)); err != nil {
			s.Logf("kind export logs: %v", err)
		}
		s.Logf("the logs of the nodes are in %s", logs)
	})
	logf("kind create cluster")
	s.run(s.kind, "create", "cluster", "--name="+clusterName, "--image="+nodeImage, "--config="+file, "--kubeconfig="+c.kubeconfig, "--retain")
	return c
}

// waitForNodes waits until all nodes are ready. Without kind's CNI it configures the CNI plugins.
func (c *kindCluster) waitForNodes(client *cluster.Client) {
	c.Helper()
	configured := !c.offline
	c.eventually("nodes", func() error {
		list, err := client.CoreV1().Nodes().List(c.ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(list.Items) != nodes {
			return fmt.Errorf("want %d, got %d", nodes, len(list.Items))
		}
		for _, node := range list.Items {
			if node.Spec.PodCIDR == "" {
				return fmt.Errorf("%s has no range of addresses for pods yet", node.Name)
			}
		}
		if !configured {
			c.configureNetwork(list.Items)
			configured = true
		}
		for _, node := range list.Items {
			for _, condition := range node.Status.Conditions {
				if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
					return fmt.Errorf("%s: %s", node.Name, condition.Message)
				}
			}
		}
		return nil
	})
}

// configureNetwork gives pods of each node addresses of its range, and each node a route to the pods of
// the other one.
func (c *kindCluster) configureNetwork(list []corev1.Node) {
	c.Helper()
	for _, node := range list {
		config := fmt.Sprintf(`{"cniVersion":"0.4.0","name":"pods","plugins":[
{"type":"ptp","ipMasq":false,"ipam":{"type":"host-local","ranges":[[{"subnet":%q}]],"routes":[{"dst":"0.0.0.0/0"}]}},
{"type":"portmap","capabilities":{"portMappings":true}}]}`, node.Spec.PodCIDR)
		cmd := sys.Command(c.ctx, "", nil, "docker", "exec", "--interactive", node.Name, "sh", "-c", "mkdir -p /etc/cni/net.d && cat >/etc/cni/net.d/10-pods.conflist")
		cmd.Stdin = strings.NewReader(config)
		c.must(sys.Run(c.ctx, cmd))
		for _, other := range list {
			if other.Name != node.Name {
				c.run("docker", "exec", node.Name, "ip", "route", "replace", other.Spec.PodCIDR, "via", internalIP(other))
			}
		}
	}
}

func internalIP(node corev1.Node) string {
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP && !strings.Contains(address.Address, ":") {
			return address.Address
		}
	}
	return ""
}

// load brings images to all nodes.
func (c *kindCluster) load(images ...image.Image) {
	c.Helper()
	for _, img := range images {
		archive := filepath.Join(c.dir, "image.tar")
		c.must(img.Write(c.ctx, archive))
		logf("kind load image-archive: %s", strings.Join(img.Names, ", "))
		c.run(c.kind, "load", "image-archive", "--name="+clusterName, archive)
		c.must(os.Remove(archive))
	}
}

// startDriver runs a DRA driver on each node, as a DaemonSet.
func (c *kindCluster) startDriver(client *cluster.Client) {
	c.Helper()
	c.load(image.Image{Names: []string{driverImage}, Programs: map[string]string{"/driver": c.program("driver")}, Entrypoint: []string{"/driver"}})
	file := filepath.Join(c.dir, "driver.yaml")
	c.must(os.WriteFile(file, []byte(strings.NewReplacer("DRIVER_IMAGE", driverImage, "DRIVER_NAME", cluster.DriverName).Replace(driverManifest)), 0o644))
	c.run(c.kubectl, "--kubeconfig="+c.kubeconfig, "apply", "--filename="+file)
	c.eventually("driver", func() error {
		set, err := client.AppsV1().DaemonSets(metav1.NamespaceSystem).Get(c.ctx, "dra-driver", metav1.GetOptions{})
		if err == nil && set.Status.NumberReady != nodes {
			err = fmt.Errorf("it is ready on %d of %d nodes", set.Status.NumberReady, nodes)
		}
		return err
	})
}

func (c *kindCluster) eventually(what string, condition func() error) {
	c.Helper()
	logf("wait for %s", what)
	for deadline := time.Now().Add(patience); ; time.Sleep(500 * time.Millisecond) {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(deadline) || c.ctx.Err() != nil {
			c.Fatalf("%s: %v", what, err)
		}
	}
}
