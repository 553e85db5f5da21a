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
	"context"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/fake"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"
)

func TestReservedForWorkloadsPolicy(t *testing.T) {
	for _, enabled := range []bool{false, true} {
		t.Run(map[bool]string{false: "disabled", true: "enabled"}[enabled], func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAReservedForWorkloads, enabled)

			client := fake.NewClientset()
			done, err := ensureRBACPolicy((&PolicyData{}).withAdditions(), client)
			if err != nil || !done {
				t.Fatalf("unexpected result: done %v, err %v", done, err)
			}

			roles, err := client.RbacV1().ClusterRoles().List(context.Background(), metav1.ListOptions{})
			if err != nil {
				t.Fatalf("list roles: %v", err)
			}
			bindings, err := client.RbacV1().ClusterRoleBindings().List(context.Background(), metav1.ListOptions{})
			if err != nil {
				t.Fatalf("list bindings: %v", err)
			}
			if !enabled {
				if len(roles.Items) != 0 || len(bindings.Items) != 0 {
					t.Fatalf("expected no roles and no bindings, got %v and %v", roles.Items, bindings.Items)
				}
				return
			}

			aggregated := slices.IndexFunc(roles.Items, func(role rbacv1.ClusterRole) bool { return role.AggregationRule != nil })
			if aggregated < 0 {
				t.Fatalf("expected an aggregated role, got %v", roles.Items)
			}
			for _, role := range roles.Items {
				if !slices.ContainsFunc(bindings.Items, func(binding rbacv1.ClusterRoleBinding) bool { return binding.RoleRef.Name == role.Name }) {
					t.Errorf("expected role %s to be bound", role.Name)
				}
			}
		})
	}
}
