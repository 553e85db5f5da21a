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
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/flowcontrol"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// In 1.34, not all containers of a pod can be restarted.

// newSyncPod returns a function which syncs a pod, and one which counts its sandboxes.
func newSyncPod(t *testing.T, helper kubecontainer.RuntimeHelper, pod *v1.Pod) (syncPod func() kubecontainer.PodSyncResult, sandboxes func() int) {
	tCtx := ktesting.Init(t)
	fakeRuntime, _, m, err := createTestRuntimeManager(tCtx)
	if err != nil {
		t.Fatal(err)
	}
	m.runtimeHelper = helper
	syncPod = func() kubecontainer.PodSyncResult {
		return m.SyncPod(tCtx, pod, &kubecontainer.PodStatus{}, nil, flowcontrol.NewBackOff(time.Second, time.Minute))
	}
	return syncPod, func() int { return len(fakeRuntime.Sandboxes) }
}
