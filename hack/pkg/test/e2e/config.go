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

package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"kubernetes-dra/hack/pkg/cluster"
	"kubernetes-dra/hack/pkg/tree/ledger"
)

// Config is how a cluster has to be configured for the specs.
type Config struct {
	// Gates are feature gates that must be on.
	Gates map[string]bool
	// RuntimeConfig is the API server's --runtime-config.
	RuntimeConfig string
}

// Config returns what the suite's README asks for (the configuration for kind
// beside the specs), and the gates that any of the specs has as a label: with
// such a gate off, the spec could not run. Conformance is that of a cluster as it comes.
func (s *Suite) Config(specs []Spec) (*Config, error) {
	if s.Conformance {
		return &Config{Gates: map[string]bool{}}, nil
	}
	file := filepath.Join(s.Tree, "test", "e2e", "dra", "kind.yaml")
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	config, err := parseKind(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for _, spec := range specs {
		for _, gate := range spec.gates() {
			config.Gates[gate] = true
		}
	}
	return config, nil
}

// parseKind reads a configuration for kind. Until kind knew the field
// runtimeConfig, it stood in patches for kubeadm.
func parseKind(content []byte) (*Config, error) {
	type node struct{ KubeadmConfigPatches []string }
	var kind struct {
		node          `json:",inline"`
		FeatureGates  map[string]bool
		RuntimeConfig map[string]string
		Nodes         []node
	}
	if err := yaml.Unmarshal(content, &kind); err != nil {
		return nil, err
	}
	config := &Config{Gates: maps.Clone(kind.FeatureGates)}
	if config.Gates == nil {
		config.Gates = map[string]bool{}
	}
	var list []string
	for _, api := range slices.Sorted(maps.Keys(kind.RuntimeConfig)) {
		list = append(list, api+"="+kind.RuntimeConfig[api])
	}
	for _, n := range append(kind.Nodes, kind.node) {
		for _, patch := range n.KubeadmConfigPatches {
			var kubeadm struct {
				APIServer struct{ ExtraArgs map[string]string }
			}
			// The patches for other versions of kubeadm have a list there.
			if yaml.Unmarshal([]byte(patch), &kubeadm) == nil && kubeadm.APIServer.ExtraArgs["runtime-config"] != "" {
				list = append(list, kubeadm.APIServer.ExtraArgs["runtime-config"])
			}
		}
	}
	config.RuntimeConfig = strings.Join(list, ",")
	return config, nil
}

// gates are the feature gates of a spec. Before 1.33 some are labelled as
// features.
func (s Spec) gates() []string {
	var gates []string
	for _, label := range s.Labels {
		if gate, ok := strings.CutPrefix(label, "FeatureGate:"); ok {
			gates = append(gates, gate)
		} else if gate, ok := strings.CutPrefix(label, "Feature:"); ok && !slices.Contains(markers, gate) {
			gates = append(gates, gate)
		}
	}
	return gates
}

// markers are labels that look like those for a feature, but say something
// about a gate, or about all specs here.
var markers = []string{"DynamicResourceAllocation", "OffByDefault", "Alpha", "Beta"}

// minCPUs is what the specs about resources of the node want. Each takes up to two, and its
// pod stays: upstream stops the driver first, so the kubelet cannot end the pod. From the
// second spec on, pods would wait for five minutes each on a smaller node.
const minCPUs = 16

// kubeletMinVersion is how upstream labels specs that an older kubelet cannot pass.
const kubeletMinVersion = "KubeletMinVersion:"

// keptOut is the reason why a spec is not run with a kubelet of a release, on a node with so many
// CPUs, if there is one. Whether enough nodes are there is left to the suite.
func (s Spec) keptOut(on func(gate string) bool, kubelet string, cpus int) string {
	for _, label := range s.Labels {
		if version, ok := strings.CutPrefix(label, kubeletMinVersion); ok && kubelet != "" && ledger.Minor(version) > ledger.Minor(kubelet) {
			return "needs a kubelet of " + version
		}
	}
	if slices.Contains(s.Labels, "Flaky") {
		return "upstream says that it is flaky"
	}
	for _, gate := range s.gates() {
		if !on(gate) {
			return "needs " + gate + ", which is not on"
		}
	}
	if cpus < minCPUs && slices.Contains(s.Labels, "Serial") && slices.Contains(s.gates(), "DRANodeAllocatableResources") {
		return fmt.Sprintf("wants %d CPUs: its pod takes up to two, and stays", minCPUs)
	}
	return ""
}

// greedy ends the name of a spec that stores 80 MiB of ResourceSlices and lists them every two
// seconds, up to 1.35. Specs beside it would miss their deadlines on a small machine.
const greedy = "ResourceSlice Controller creates slices"

// alone is true for a spec that runs after the others, with none beside it.
func (s Spec) alone() bool { return strings.HasSuffix(s.Name, greedy) }

var gateHelp = regexp.MustCompile(`(?:^|\s|:)(\w+)=true\|false \(`)

// KnownGates are the feature gates that can be set in a release, according to
// its API server. Those which cannot be off any more are not among them.
func KnownGates(ctx context.Context, apiserver string) (map[string]bool, error) {
	out, err := exec.CommandContext(ctx, apiserver, "--help").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --help: %w", apiserver, err)
	}
	gates := parseHelp(string(out))
	if len(gates) == 0 {
		return nil, fmt.Errorf("%s --help lists no feature gate", apiserver)
	}
	return gates, nil
}

func parseHelp(out string) map[string]bool {
	gates := map[string]bool{}
	for _, match := range gateHelp.FindAllStringSubmatch(out, -1) {
		gates[match[1]] = true
	}
	return gates
}

var gateMetric = regexp.MustCompile(`(?m)^kubernetes_feature_enabled\{name="(\w+)",[^}]*\} ([0-9.e+]+)$`)

// gatesOn asks the API server which feature gates are on.
func gatesOn(ctx context.Context, client *cluster.Client) (map[string]bool, error) {
	out, err := client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("metrics of the API server: %w", err)
	}
	gates := parseMetrics(string(out))
	if len(gates) == 0 {
		return nil, fmt.Errorf("the metrics of the API server have no feature gates")
	}
	return gates, nil
}

func parseMetrics(out string) map[string]bool {
	gates := map[string]bool{}
	for _, match := range gateMetric.FindAllStringSubmatch(out, -1) {
		value, err := strconv.ParseFloat(match[2], 64)
		gates[match[1]] = err == nil && value == 1
	}
	return gates
}
