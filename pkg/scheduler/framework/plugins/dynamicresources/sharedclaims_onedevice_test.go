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
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/ptr"
)

// TestSharedClaimsOneDevice schedules a pod again and again while another one is being bound, whose
// claim got the only device of the node. The device may not be given to a second claim.
func TestSharedClaimsOneDevice(t *testing.T) {
	const rounds = 250
	test := func(tCtx ktesting.TContext, tc *sharedClaimsTest) {
		// The claim tracker logs between steps which have to fit together.
		yield := funcr.New(func(string, string) { runtime.Gosched() }, funcr.Options{Verbosity: 10})
		tc.draManager.resourceClaimTracker.logger = yield
		tc.draManager.resourceClaimTracker.allocatedDevices.logger = yield
		first, second := newPodOfClaim("first"), newPodOfClaim("second")
		for range rounds {
			tc.bindBeside(first, second)
			claim, err := tc.p.claimClient(namespace).Get(tCtx, first.Name, metav1.GetOptions{})
			tCtx.ExpectNoError(err, "get claim")
			require.NotNil(tCtx, claim.Status.Allocation)
			claim.Status = resourceapi.ResourceClaimStatus{}
			_, err = tc.api.store(claim)
			tCtx.ExpectNoError(err, "deallocate claim")
			synctest.Wait()
		}
	}
	claims := []*resourceapi.ResourceClaim{
		st.MakeResourceClaim().Name("first").Namespace(namespace).Request(className).Obj(),
		st.MakeResourceClaim().Name("second").Namespace(namespace).Request(className).Obj(),
	}
	syncTest(t, "enabled", func(tCtx ktesting.TContext) {
		test(tCtx, newSharedClaimsTest(tCtx, sharedClaimsFeatures(), claims))
	})
	syncTest(t, "disabled", func(tCtx ktesting.TContext) {
		test(tCtx, newSharedClaimsTest(tCtx, withoutSharedClaims(), claims))
	})
}

// newPodOfClaim returns a pod with a claim of the same name.
func newPodOfClaim(name string) *v1.Pod {
	return st.MakePod().Name(name).Namespace(namespace).UID(name).
		PodResourceClaims(v1.PodResourceClaim{Name: resourceName, ResourceClaimName: ptr.To(name)}).
		Obj()
}

// bindBeside schedules and binds the first pod. The second pod may not get its node.
func (t *sharedClaimsTest) bindBeside(first, second *v1.Pod) {
	t.tCtx.Helper()
	cycle := t.schedule(first)
	var bound atomic.Bool
	var status *fwk.Status
	var binding sync.WaitGroup
	defer binding.Wait()
	binding.Go(func() {
		defer bound.Store(true)
		status = cycle.bind(t.tCtx)
	})
	for last := false; !last; {
		last = bound.Load()
		other, status := t.preFilter(second)
		require.Nil(t.tCtx, status, "PreFilter of %s", second.Name)
		require.NotContains(t.tCtx, other.filter(), nodeName, "nodes for %s", second.Name)
	}
	binding.Wait()
	require.Nil(t.tCtx, status, "PreBind of %s", first.Name)
}
