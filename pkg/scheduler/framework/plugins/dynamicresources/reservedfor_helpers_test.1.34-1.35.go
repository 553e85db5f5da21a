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

package dynamicresources

import (
	"context"

	resourceapi "k8s.io/api/resource/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// In these releases, RunPermitPlugins adds the waiting pod.

type (
	orderFramework = framework.Framework
	orderHandle    = frameworkHandle
	orderPlugin    = frameworkPlugin
)

func runPermit(ctx context.Context, fw framework.Framework, cycle *podCycle) *fwk.Status {
	return fw.RunPermitPlugins(ctx, cycle.state, cycle.pod, nodeName)
}

func runPreBindPreFlight(ctx context.Context, fw framework.Framework, cycle *podCycle) *fwk.Status {
	return fw.RunPreBindPreFlights(ctx, cycle.state, cycle.pod, nodeName)
}

// The framework needs the metrics of the scheduler.
func init() {
	metrics.InitMetrics()
}

func addTaint(device *resourceapi.Device, taint resourceapi.DeviceTaint) {
	device.Taints = append(device.Taints, taint)
}

func setTolerations(request *resourceapi.DeviceRequest, tolerations []resourceapi.DeviceToleration) {
	request.Exactly.Tolerations = tolerations
}
