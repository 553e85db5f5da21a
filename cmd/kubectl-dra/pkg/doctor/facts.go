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

package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"

	"kubernetes-dra/cmd/kubectl-dra/pkg/view"
)

// What is read besides objects.
const (
	gatesOfAPIServer view.Resource = "gates of kube-apiserver"
	gatesOfKubelets  view.Resource = "gates of kubelets"
	moreWorkloads    view.Resource = "more workloads that claims are reserved for"
)

// facts are about the components.
type facts struct {
	// version is that of kube-apiserver.
	version string
	// gates are those of kube-apiserver, kubelets those that nodes were configured with.
	gates    map[string]bool
	kubelets map[string]map[string]bool
	// deprecated are versions of resource.k8s.io that somebody has used and that go away.
	deprecated []string
}

func (e *examination) readFacts(ctx context.Context) {
	if v, err := e.reader.Kube.Discovery().ServerVersion(); err == nil {
		e.facts.version = v.GitVersion
	}
	if err := e.readMetrics(ctx); err != nil {
		e.s.Gaps[gatesOfAPIServer] = view.Reason(err)
	}
	if err := e.readKubelets(ctx); err != nil {
		e.s.Gaps[gatesOfKubelets] = view.Reason(err)
	}
}

// readMetrics finds out gates and the use of old versions.
func (e *examination) readMetrics(ctx context.Context) error {
	data, err := e.reader.Kube.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return err
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("parse /metrics: %w", err)
	}
	e.facts.gates = map[string]bool{}
	for _, m := range families["kubernetes_feature_enabled"].GetMetric() {
		e.facts.gates[label(m, "name")] = m.GetGauge().GetValue() == 1
	}
	for _, m := range families["apiserver_requested_deprecated_apis"].GetMetric() {
		if label(m, "group") == "resource.k8s.io" && m.GetGauge().GetValue() == 1 {
			e.facts.deprecated = append(e.facts.deprecated, label(m, "resource")+"."+label(m, "version")+".resource.k8s.io")
		}
	}
	slices.Sort(e.facts.deprecated)
	return nil
}

func label(m *dto.Metric, name string) string {
	for _, pair := range m.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}

// maxKubelets is how many are asked: a sample of a large cluster.
const maxKubelets = 20

// kubeletTimeout is how long the answer of one may take. kube-apiserver waits longer for a node that is off.
const kubeletTimeout = 5 * time.Second

// isLost returns true for a node whose kubelet does not report anymore.
func isLost(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown
	})
}

// readKubelets asks the kubelets of the carry. Others do not know its gates.
func (e *examination) readKubelets(ctx context.Context) error {
	e.facts.kubelets = map[string]map[string]bool{}
	var (
		mutex sync.Mutex
		wait  sync.WaitGroup
		fail  error
		asked int
	)
	for _, node := range e.s.Nodes {
		if !isCarry(node.Status.NodeInfo.KubeletVersion) || isLost(node) || asked == maxKubelets {
			continue
		}
		asked++
		wait.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, kubeletTimeout)
			defer cancel()
			data, err := e.reader.Kube.Discovery().RESTClient().Get().AbsPath("/api/v1/nodes", node.Name, "proxy", "configz").DoRaw(ctx)
			var config struct {
				KubeletConfig struct {
					FeatureGates map[string]bool `json:"featureGates"`
				} `json:"kubeletconfig"`
			}
			if err == nil {
				err = json.Unmarshal(data, &config)
			}
			mutex.Lock()
			defer mutex.Unlock()
			if err != nil {
				fail = err
				return
			}
			e.facts.kubelets[node.Name] = config.KubeletConfig.FeatureGates
		})
	}
	wait.Wait()
	return fail
}
