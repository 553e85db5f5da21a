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

package rest

import (
	"reflect"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	rbacv1helpers "k8s.io/kubernetes/pkg/apis/rbac/v1"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
)

// rolesWith returns the cluster roles that have the rule, with DynamicResourceAllocation enabled.
func rolesWith(t *testing.T, rule rbacv1.PolicyRule) []string {
	t.Helper()
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DynamicResourceAllocation, true)
	policy := (&PolicyData{ClusterRoles: append(bootstrappolicy.ClusterRoles(), bootstrappolicy.ControllerRoles()...)}).withAdditions()
	var roles []string
	for _, role := range policy.ClusterRoles {
		if slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return reflect.DeepEqual(r, rule) }) {
			roles = append(roles, role.Name)
		}
	}
	return roles
}

func TestNamespaceRules(t *testing.T) {
	rule := rbacv1helpers.NewRule("list", "watch").Groups("").Resources("namespaces").RuleOrDie()
	if got := rolesWith(t, rule); !slices.Contains(got, resourceClaimControllerRole) {
		t.Errorf("want the rule in %s, got it in %q", resourceClaimControllerRole, got)
	}
	// Without DynamicResourceAllocation, there is no such role.
	if policy := (&PolicyData{}).withAdditions(); slices.ContainsFunc(policy.ClusterRoles, func(role rbacv1.ClusterRole) bool { return role.Name == resourceClaimControllerRole }) {
		t.Error("want no role if upstream has none")
	}
}
