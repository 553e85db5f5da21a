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
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	rbacv1helpers "k8s.io/kubernetes/pkg/apis/rbac/v1"
)

// policyAdditions change the bootstrap policy. Each feature that needs rights has one here. So
// package bootstrappolicy and the roles that its tests expect remain those of upstream.
var policyAdditions = []func(*PolicyData){addNamespaceRules}

// withAdditions adds what the features need that are enabled.
func (p *PolicyData) withAdditions() *PolicyData {
	for _, add := range policyAdditions {
		add(p)
	}
	return p
}

const resourceClaimControllerRole = "system:controller:resource-claim-controller"

// addRules adds rules to a cluster role of upstream. There is nothing to add to if the role belongs to
// a feature gate that is off.
func (p *PolicyData) addRules(role string, rules ...rbacv1.PolicyRule) {
	i := slices.IndexFunc(p.ClusterRoles, func(candidate rbacv1.ClusterRole) bool { return candidate.Name == role })
	if i < 0 {
		return
	}
	p.ClusterRoles[i].Rules = append(p.ClusterRoles[i].Rules, rules...)
}

// addNamespaceRules allows the ResourceClaim controller to learn of labels for admin access and of quota
// that come late.
func addNamespaceRules(p *PolicyData) {
	p.addRules(resourceClaimControllerRole, rbacv1helpers.NewRule("list", "watch").Groups("").Resources("namespaces").RuleOrDie())
}
