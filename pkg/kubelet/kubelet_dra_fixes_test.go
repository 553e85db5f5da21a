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

package kubelet

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/kubernetes/pkg/kubelet/cm"
)

type unprepareContainerManager struct {
	*cm.FakeContainerManager
	err error
}

func (cm *unprepareContainerManager) UnprepareDynamicResources(context.Context, *v1.Pod) error {
	return cm.err
}

// TestUnprepareFailureEvent checks that a pod says why it does not end.
func TestUnprepareFailureEvent(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	recorder := record.NewFakeRecorder(2)
	containerManager := &unprepareContainerManager{FakeContainerManager: &cm.FakeContainerManager{}}
	kl := &Kubelet{containerManager: containerManager, recorder: recorder}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: "default"}}

	assert.NoError(t, kl.UnprepareDynamicResources(ctx, pod))
	assert.Empty(t, recorder.Events)

	containerManager.err = errors.New("DRA driver example.com is not registered")
	assert.Equal(t, containerManager.err, kl.UnprepareDynamicResources(ctx, pod))
	if assert.Len(t, recorder.Events, 1) {
		event := <-recorder.Events
		assert.Contains(t, event, "Warning FailedUnprepareDynamicResources")
		assert.Contains(t, event, "DRA driver example.com is not registered")
	}
}
