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

package driver

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics of the driver.
type Metrics struct {
	cniDuration  *prometheus.HistogramVec
	runtimeWait  *prometheus.HistogramVec
	statusWrites *prometheus.CounterVec
	attachments  prometheus.Gauge
	nriConnected prometheus.Gauge

	publishedDevices prometheus.Gauge
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		cniDuration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "dra_network_cni_duration_seconds",
			Help:    "Time that the CNI plugins of a network took, by command (ADD, CHECK, DEL) and result (success, error).",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 12),
		}, []string{"command", "result"}),
		runtimeWait: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "dra_network_runtime_wait_seconds",
			Help:    "Time that the container runtime waited for the driver, and with it all pods of the node, by request (RunPodSandbox, CreateContainer, StopPodSandbox).",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 13),
		}, []string{"request"}),
		statusWrites: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dra_network_status_writes_total",
			Help: "Writes of the status of a claim, by result (success, gone, dropped, forbidden, invalid, error).",
		}, []string{"result"}),
		attachments: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "dra_network_attachments",
			Help: "Network interfaces in pods that the driver is responsible for.",
		}),
		nriConnected: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "dra_network_nri_connected",
			Help: "1 while the container runtime tells the driver about pods, else 0.",
		}),
	}
	m.publishedDevices = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "dra_network_published_devices",
		Help: "Devices of this node that the API server has in ResourceSlices of the driver.",
	})
	registry.MustRegister(m.cniDuration, m.runtimeWait, m.statusWrites, m.attachments, m.nriConnected, m.publishedDevices)
	return m
}

func (m *Metrics) observeCNI(command string, duration time.Duration, err error) {
	result := "success"
	if err != nil {
		result = "error"
	}
	m.cniDuration.WithLabelValues(command, result).Observe(duration.Seconds())
}
