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
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/kubernetes/pkg/auth/nodeidentifier"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
)

// TestNodeAuthorizerSharedClaim covers a ResourceClaim which is reserved for a
// workload (KEP-5194): status.reservedFor doesn't list its pods, so access must
// depend only on the pods themselves, regardless of how many of them there
// are.
func TestNodeAuthorizerSharedClaim(t *testing.T) {
	const (
		namespace = "ns0"
		claimName = "shared-claim"
		numNodes  = 3
		// More than fit into status.reservedFor, with several on each node.
		numPods = numNodes * 200
	)
	g := NewGraph()
	authz := NewAuthorizer(g, nodeidentifier.NewDefaultNodeIdentifier(), bootstrappolicy.NodeRules())
	pod := func(i int, node string) *corev1.Pod {
		claimName := claimName
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("pod-%d", i), UID: types.UID(fmt.Sprintf("pod-uid-%d", i))},
			Spec: corev1.PodSpec{
				NodeName:       node,
				ResourceClaims: []corev1.PodResourceClaim{{Name: "claim", ResourceClaimName: &claimName}},
			},
		}
	}
	nodeName := func(i int) string { return fmt.Sprintf("node%d", i%numNodes) }
	for i := range numPods {
		g.AddPod(pod(i, nodeName(i)))
	}
	// Doesn't use the claim.
	other := pod(numPods, "node-other")
	other.Spec.ResourceClaims = nil
	g.AddPod(other)

	check := func(want authorizer.Decision, node, verb, name, subresource string) {
		t.Helper()
		attrs := authorizer.AttributesRecord{
			User:            &user.DefaultInfo{Name: "system:node:" + node, Groups: []string{"system:nodes"}},
			ResourceRequest: true,
			Verb:            verb,
			APIGroup:        "resource.k8s.io",
			APIVersion:      "v1",
			Resource:        "resourceclaims",
			Subresource:     subresource,
			Namespace:       namespace,
			Name:            name,
		}
		decision, reason, err := authz.Authorize(context.Background(), attrs)
		if err != nil {
			t.Errorf("%s: %s %s/%s: unexpected error: %v", node, verb, name, subresource, err)
		}
		if decision != want {
			t.Errorf("%s: %s %s/%s: expected decision %v, got %v (%s)", node, verb, name, subresource, want, decision, reason)
		}
	}

	for i := range numNodes {
		check(authorizer.DecisionAllow, nodeName(i), "get", claimName, "")
		// Being used by any pod of a workload does not give
		// the nodes of those pods any additional permission.
		check(authorizer.DecisionNoOpinion, nodeName(i), "get", "other-claim", "")
		check(authorizer.DecisionNoOpinion, nodeName(i), "list", "", "")
		check(authorizer.DecisionNoOpinion, nodeName(i), "update", claimName, "")
		check(authorizer.DecisionNoOpinion, nodeName(i), "patch", claimName, "status")
		check(authorizer.DecisionNoOpinion, nodeName(i), "patch", claimName, "binding")
	}
	check(authorizer.DecisionNoOpinion, "node-other", "get", claimName, "")

	// Access ends together with the last pod on each node.
	for i := numPods - 1; i >= 0; i-- {
		check(authorizer.DecisionAllow, nodeName(i), "get", claimName, "")
		g.DeletePod(fmt.Sprintf("pod-%d", i), namespace)
		if i < numNodes {
			check(authorizer.DecisionNoOpinion, nodeName(i), "get", claimName, "")
		}
	}
}
