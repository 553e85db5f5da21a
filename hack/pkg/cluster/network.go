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
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"kubernetes-dra/hack/pkg/dist/kustomize"
	"kubernetes-dra/hack/pkg/tools"
)

// Names in the manifest of cmd/dra-network-driver, which the real node has the image of.
const (
	NetworkDriverName = "network.dra.example.com"
	NetworkNamespace  = "dra-network"
	// NetworkDaemonSet is also the name of the program, the service account and the roles.
	NetworkDaemonSet = "dra-network-driver"

	// NetworkImage is the image of the driver.
	NetworkImage = "registry.example.com/dra-network-driver:v0.1.0"
	// networkConfigs is where the driver looks for configurations on its node.
	networkConfigs = "/etc/cni/dra-network.d"
)

// NetworkBridge is the bridge of [Cluster.NetworkExample] on this machine.
// Its plugin leaves it behind on purpose; [Cluster.Down] removes it.
func (c *Cluster) NetworkBridge() string { return "dranet" + strconv.Itoa(c.Ports[APIServer]) }

// NetworkDriverURL is where the driver of [Cluster.NetworkDriver] serves a path, for the real node.
func (c *Cluster) NetworkDriverURL(path string) string {
	return fmt.Sprintf("http://127.0.0.1:%d%s", c.Ports[NetworkDaemonSet], path)
}

// NetworkDriver is what "kubectl apply -k" makes of the driver's manifests for the real node.
func (c *Cluster) NetworkDriver() (string, error) {
	dir := c.path("config", NetworkDaemonSet)
	deploy, err := filepath.Rel(dir, filepath.Join(c.Options.Repo, "cmd/dra-network-driver/deploy"))
	if err != nil {
		return "", err
	}
	port := c.Ports[NetworkDaemonSet]
	text, err := render("network-driver.yaml", map[string]any{
		"Deploy": filepath.ToSlash(deploy), "Listen": fmt.Sprintf("127.0.0.1:%d", port), "Port": port, "APIServer": c.Ports[APIServer],
		"NodeLabel": TypeLabel, "NetNS": netNSDir, "CDI": cdiDir, "NRI": filepath.Dir(nriSocket), "Plugins": tools.Dir(c.Options.Repo),
	})
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600)); err != nil {
		return "", err
	}
	return kustomize.Build(dir, NetworkImage)
}

// NetworkExample is the manifest of two pods with a second interface, in a version of the
// API that the cluster serves.
func (c *Cluster) NetworkExample(version string) (string, error) {
	name := "examples/network/" + Manifest("pods", version)
	data, err := os.ReadFile(filepath.Join(c.Options.Repo, filepath.FromSlash(name)))
	if err != nil {
		return "", err
	}
	text, err := ReplaceAll(string(data),
		"bridge: storage0", "bridge: "+c.NetworkBridge(),
		"    spec:\n      resourceClaims:", "    spec:\n      terminationGracePeriodSeconds: 1\n      resourceClaims:",
	)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return text, nil
}

// ReplaceAll replaces pairs of strings in a manifest, each of which must be in it:
// otherwise the manifest is not what the caller believes.
func ReplaceAll(text string, oldNew ...string) (string, error) {
	for pair := range slices.Chunk(oldNew, 2) {
		if !strings.Contains(text, pair[0]) {
			return "", fmt.Errorf("no %q in\n%s", pair[0], text)
		}
		text = strings.ReplaceAll(text, pair[0], pair[1])
	}
	return text, nil
}
