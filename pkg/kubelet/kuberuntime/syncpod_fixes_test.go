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

package kuberuntime

import (
	"context"
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"
	containertest "k8s.io/kubernetes/pkg/kubelet/container/testing"
)

// unpreparedHelper is a kubelet which cannot prepare the devices of a pod as long as there is
// an error.
type unpreparedHelper struct {
	containertest.FakeRuntimeHelper
	err error
}

func (u *unpreparedHelper) PrepareDynamicResources(context.Context, *v1.Pod) error { return u.err }

// TestPrepareFailureIsAnError checks that the kubelet learns of an error while devices get
// prepared. Without one, it tries again only after a whole sync period.
func TestPrepareFailureIsAnError(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DynamicResourceAllocation, true)
	helper := &unpreparedHelper{err: errors.New("driver is not registered")}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "12345678", Name: "foo", Namespace: "new"},
		Spec: v1.PodSpec{
			Containers: []v1.Container{{Name: "foo1", Image: "busybox", ImagePullPolicy: v1.PullIfNotPresent}},
		},
	}
	syncPod, sandboxes := newSyncPod(t, helper, pod)

	result := syncPod()
	// 1.32 does not wrap it.
	if err := result.Error(); err == nil || !strings.Contains(err.Error(), helper.err.Error()) {
		t.Errorf("expected the error of the driver, got: %v", err)
	}
	if len(result.SyncResults) == 0 {
		t.Error("no result of a step: 1.32 ignores an error without one")
	}
	if n := sandboxes(); n != 0 {
		t.Errorf("%d sandboxes without devices", n)
	}

	helper.err = nil
	result = syncPod()
	if err := result.Error(); err != nil {
		t.Errorf("unexpected error with devices: %v", err)
	}
	if n := sandboxes(); n != 1 {
		t.Errorf("expected one sandbox with devices, got %d", n)
	}
}
