//go:build go1.25

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
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cgotesting "k8s.io/client-go/testing"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// TestWithdrawnExtendedResource covers a pod that waits for a device which another pod had as an extended
// resource. No claim could be created for that one.
func TestWithdrawnExtendedResource(t *testing.T) {
	syncTest(t, "", func(tCtx ktesting.TContext) {
		featuregatetesting.SetFeatureGateDuringTest(tCtx, utilfeature.DefaultFeatureGate, features.DRAExtendedResource, true)
		feats := sharedClaimsFeatures()
		feats.EnableDRAExtendedResource = true
		tc := newSharedClaimsTest(tCtx, feats, nil)
		pod := st.MakePod().Name("extended").Namespace(namespace).UID("extended").Req(map[v1.ResourceName]string{v1.ResourceName(implicitExtendedResourceName): "1"}).Obj()
		waiting := newSharingPod("waiting")
		cycle := tc.schedule(pod)
		require.Len(tCtx, tc.listInFlightClaims(), 1)
		assert.Equal(tCtx, fwk.QueueSkip, tc.hintAfter(pod, waiting))
		tc.client.PrependReactor("create", "resourceclaims", func(cgotesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("fake quota")
		})
		require.NotNil(tCtx, cycle.bind(tCtx))
		cycle.unreserve()
		require.Empty(tCtx, tc.listInFlightClaims())
		assert.Equal(tCtx, fwk.Queue, tc.hintAfter(pod, waiting))
	})
}
