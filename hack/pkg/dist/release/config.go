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

package release

import (
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"kubernetes-dra/hack/pkg/dist/nodeimage"
)

// note is at the top of both configurations.
func (o Options) note(use string) string {
	return "# Kubernetes " + o.Build.Version + " with the feature gates of all carried features on.\n# " + use + "\n"
}

func (o Options) gateMap() map[string]bool {
	gates := map[string]bool{}
	for _, gate := range o.Gates {
		gates[gate] = true
	}
	return gates
}

// kindConfig turns the gates on in every component of a kind cluster.
func (o Options) kindConfig() ([]byte, error) {
	type config struct {
		APIVersion    string            `json:"apiVersion"`
		Kind          string            `json:"kind"`
		FeatureGates  map[string]bool   `json:"featureGates,omitempty"`
		RuntimeConfig map[string]string `json:"runtimeConfig,omitempty"`
		Nodes         []map[string]any  `json:"nodes"`
	}
	apis := map[string]string{}
	for _, api := range o.RuntimeConfig {
		name, value, _ := strings.Cut(api, "=")
		apis[name] = value
	}
	content, err := yaml.Marshal(config{
		APIVersion:    "kind.x-k8s.io/v1alpha4",
		Kind:          "Cluster",
		FeatureGates:  o.gateMap(),
		RuntimeConfig: apis,
		Nodes:         []map[string]any{{"role": "control-plane"}, {"role": "worker"}},
	})
	if err != nil {
		return nil, err
	}
	return []byte(o.note("kind create cluster --image "+nodeimage.DefaultImage(o.Build.Version)+" --config kind.yaml") + string(content)), nil
}

// kubeadmConfig turns the gates on in every component that kubeadm configures.
// It is for kubeadm init; nodes that join get it from the cluster.
func (o Options) kubeadmConfig() ([]byte, error) {
	type arg struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	type component struct {
		ExtraArgs []arg `json:"extraArgs,omitempty"`
	}
	type cluster struct {
		APIVersion        string    `json:"apiVersion"`
		Kind              string    `json:"kind"`
		KubernetesVersion string    `json:"kubernetesVersion"`
		APIServer         component `json:"apiServer"`
		ControllerManager component `json:"controllerManager"`
		Scheduler         component `json:"scheduler"`
	}
	type node struct {
		APIVersion       string `json:"apiVersion"`
		Kind             string `json:"kind"`
		NodeRegistration struct {
			IgnorePreflightErrors []string `json:"ignorePreflightErrors"`
		} `json:"nodeRegistration"`
	}
	type other struct {
		APIVersion   string          `json:"apiVersion"`
		Kind         string          `json:"kind"`
		FeatureGates map[string]bool `json:"featureGates,omitempty"`
	}
	var gates []arg
	if len(o.Gates) > 0 {
		list := slices.Clone(o.Gates)
		for i := range list {
			list[i] += "=true"
		}
		gates = []arg{{"feature-gates", strings.Join(list, ",")}}
	}
	server := slices.Clone(gates)
	if len(o.RuntimeConfig) > 0 {
		server = append(server, arg{"runtime-config", strings.Join(o.RuntimeConfig, ",")})
	}
	documents := []any{
		cluster{
			APIVersion:        "kubeadm.k8s.io/v1beta4",
			Kind:              "ClusterConfiguration",
			KubernetesVersion: o.Build.Version,
			APIServer:         component{server},
			ControllerManager: component{gates},
			Scheduler:         component{gates},
		},
		other{"kubelet.config.k8s.io/v1beta1", "KubeletConfiguration", o.gateMap()},
		other{"kubeproxy.config.k8s.io/v1alpha1", "KubeProxyConfiguration", o.gateMap()},
	}
	if len(o.IgnoredPreflightErrors) > 0 {
		init := node{APIVersion: "kubeadm.k8s.io/v1beta4", Kind: "InitConfiguration"}
		init.NodeRegistration.IgnorePreflightErrors = o.IgnoredPreflightErrors
		documents = append(documents, init)
	}
	out := o.note("kubeadm init --config kubeadm.yaml")
	for i, document := range documents {
		content, err := yaml.Marshal(document)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			out += "---\n"
		}
		out += string(content)
	}
	return []byte(out), nil
}
