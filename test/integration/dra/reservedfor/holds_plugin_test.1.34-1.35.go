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

// PreBindPreFlight returns only a status, and each pending allocation has one pod.

package reservedfor

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
)

type (
	cycleState      = fwk.CycleState
	schedulerHandle = frameworkHandle
	schedulerPlugin = frameworkPlugin
)

var _ interface {
	frameworkPermitPlugin
	frameworkPreBindPlugin
	frameworkEnqueueExtensions
} = &holdPlugin{}

// hasPendingAllocation returns true if an allocation of the claim is in flight.
func hasPendingAllocation(handle schedulerHandle, claimUID types.UID) bool {
	return handle.SharedDRAManager().ResourceClaims().ClaimHasPendingAllocation(claimUID)
}

func (p *holdPlugin) PreBindPreFlight(_ context.Context, _ cycleState, pod *v1.Pod, _ string) *fwk.Status {
	if pod.Labels[holdInPreBind] == "" {
		return fwk.NewStatus(fwk.Skip)
	}
	return nil
}
