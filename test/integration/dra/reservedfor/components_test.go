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

package reservedfor

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/kubernetes/pkg/controller/resourceclaim"
	"k8s.io/kubernetes/pkg/features"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/test/integration/util"
	ktesting "k8s.io/kubernetes/test/utils/client-go/ktesting"
)

// How components get created differs between Kubernetes releases.

// startScheduler returns the informers that the scheduler uses.
func startScheduler(tCtx ktesting.TContext, cfg *schedulerconfig.KubeSchedulerConfiguration, registry frameworkruntime.Registry) informers.SharedInformerFactory {
	tCtx.Helper()
	_, informerFactory := util.StartScheduler(tCtx, cfg, registry)
	return informerFactory
}

func newJobController(tCtx ktesting.TContext, f informers.SharedInformerFactory) (*job.Controller, error) {
	return job.NewController(tCtx, tCtx.Client(), f.Core().V1().Pods(), f.Batch().V1().Jobs(), f.Scheduling().V1alpha2().Workloads(), f.Scheduling().V1alpha2().PodGroups())
}

// createClaimController returns a function which runs the resourceclaim
// controller.
func createClaimController(tCtx ktesting.TContext, f informers.SharedInformerFactory) func() {
	tCtx.Helper()
	return util.CreateResourceClaimController(tCtx, tCtx, tCtx.Client(), f, resourceclaim.Features{
		AdminAccess:            utilfeature.DefaultFeatureGate.Enabled(features.DRAAdminAccess),
		PrioritizedList:        utilfeature.DefaultFeatureGate.Enabled(features.DRAPrioritizedList),
		WorkloadResourceClaims: utilfeature.DefaultFeatureGate.Enabled(features.DRAWorkloadResourceClaims),
		ReservedForWorkloads:   util.ReservedForWorkloads(),
	})
}
