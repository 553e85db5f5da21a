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
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// TestReservedForNeedsSharedClaims ensures that a scheduler does not start with feature
// gates that do not go together.
func TestReservedForNeedsSharedClaims(t *testing.T) {
	tCtx := ktesting.Init(t)
	pl := &DynamicResources{fts: feature.Features{EnableDRAReservedForWorkloads: true}}
	require.ErrorContains(t, pl.initReservedFor(tCtx), "DRAReservedForWorkloads feature gate of kube-scheduler depends on the DRASharedClaims feature gate")
	pl.fts.EnableDRAReservedForWorkloads = false
	require.NoError(t, pl.initReservedFor(tCtx))
}

// TestAdmitIncarnation covers for how many incarnations of its workload a claim gets reserved.
func TestAdmitIncarnation(t *testing.T) {
	incarnation := func(i int) resourceapi.ResourceClaimConsumerReference {
		ref := workloadRef
		ref.UID = types.UID(fmt.Sprintf("incarnation-%d", i))
		return ref
	}
	claim := newWorkloadClaim(podReference("listed"))
	for i := range maxIncarnations - 1 {
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, incarnation(i))
	}
	last, oneMore := incarnation(maxIncarnations-1), incarnation(maxIncarnations)
	missing := []resourceapi.ResourceClaimConsumerReference{podReference("missing")}
	require.NoError(t, admitIncarnation(claim, last, missing))
	missing = append(missing, last)
	err := admitIncarnation(claim, oneMore, missing)
	require.ErrorContains(t, err, "already reserved for 8 incarnations of jobs")
	assert.ErrorIs(t, err, errClaimFull)
	assert.NoError(t, admitIncarnation(claim, podReference("some-pod"), missing))
}
