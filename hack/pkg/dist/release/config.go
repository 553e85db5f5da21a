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
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"kubernetes-dra/hack/pkg/dist/nodeimage"
)

// templates are the configurations, by the names of their files.
var templates = map[string]string{
	"kind.yaml": `# Kubernetes {{.Version}} with the feature gates of all carried features on.
# kind create cluster --image {{.NodeImage}} --config kind.yaml
apiVersion: kind.x-k8s.io/v1alpha4
{{template "gates" .}}kind: Cluster
nodes:
- role: control-plane
- role: worker
{{with .APIs}}runtimeConfig:
{{range $name, $value := .}}  {{$name}}: "{{$value}}"
{{end}}{{end}}`,
	// It is for kubeadm init; nodes that join get it from the cluster.
	"kubeadm.yaml": `# Kubernetes {{.Version}} with the feature gates of all carried features on.
# kubeadm init --config kubeadm.yaml
apiServer:{{if or .Gates .APIs}}
  extraArgs:{{template "gateArg" .}}{{with .RuntimeConfig}}
  - name: runtime-config
    value: {{.}}{{end}}{{else}} {}{{end}}
apiVersion: kubeadm.k8s.io/v1beta4
controllerManager:{{template "gateArgs" .}}
kind: ClusterConfiguration
kubernetesVersion: {{.Version}}
scheduler:{{template "gateArgs" .}}
---
apiVersion: kubelet.config.k8s.io/v1beta1
{{template "gates" .}}kind: KubeletConfiguration
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
{{template "gates" .}}kind: KubeProxyConfiguration
{{with .Ignored}}---
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
nodeRegistration:
  ignorePreflightErrors:
{{range .}}  - {{.}}
{{end}}{{end}}`,
}

const parts = `{{define "gates"}}{{with .Gates}}featureGates:
{{range .}}  {{.}}: true
{{end}}{{end}}{{end}}
{{define "gateArg"}}{{if .Gates}}
  - name: feature-gates
    value: {{range $i, $gate := .Gates}}{{if $i}},{{end}}{{$gate}}=true{{end}}{{end}}{{end}}
{{define "gateArgs"}}{{if .Gates}}
  extraArgs:{{template "gateArg" .}}{{else}} {}{{end}}{{end}}`

// configurations writes those that turn the gates on in every component of a cluster.
func (o Options) configurations(dir string) error {
	apis := map[string]string{}
	for _, api := range o.RuntimeConfig {
		name, value, _ := strings.Cut(api, "=")
		apis[name] = value
	}
	values := map[string]any{
		"Version": o.Build.Version, "NodeImage": nodeimage.DefaultImage(o.Build.Version), "Gates": o.Gates,
		"APIs": apis, "RuntimeConfig": strings.Join(o.RuntimeConfig, ","), "Ignored": o.IgnoredPreflightErrors,
	}
	for name, text := range templates {
		var out bytes.Buffer
		t := template.Must(template.Must(template.New(name).Parse(parts)).Parse(text))
		if err := t.Execute(&out, values); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), out.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}
