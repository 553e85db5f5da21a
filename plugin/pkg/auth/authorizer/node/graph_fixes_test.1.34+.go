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

package node

import (
	"testing"

	"github.com/stretchr/testify/assert"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestExtendedResourceClaimAfterNode checks that a node may read the claim for extended resources of its
// pod, although the informer got the node of the pod before the claim's name.
func TestExtendedResourceClaimAfterNode(t *testing.T) {
	graph := NewGraph()
	populator := &graphPopulator{graph: graph}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: "default", UID: "uid"}, Spec: corev1.PodSpec{NodeName: "node"}}
	named := pod.DeepCopy()
	named.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "claim"}
	authorizer := &NodeAuthorizer{graph: graph}
	mayRead := func() bool {
		ok, _ := authorizer.hasPathFrom("node", resourceClaimVertexType, "default", "claim")
		return ok
	}

	populator.addPod(pod)
	assert.False(t, mayRead(), "without the name")
	populator.updatePod(pod, named)
	assert.True(t, mayRead(), "with the name")
	populator.updatePod(named, named.DeepCopy())
	assert.True(t, mayRead(), "unchanged")
	populator.updatePod(named, pod)
	assert.False(t, mayRead(), "after the name is gone")
}
