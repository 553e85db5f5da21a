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
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
)

func init() {
	policyAdditions = append(policyAdditions, addReservedForWorkloads)
}

// addReservedForWorkloads adds what is needed for reserving ResourceClaims for
// workloads. This is nothing if that feature is disabled.
func addReservedForWorkloads(p *PolicyData) {
	p.ClusterRoles = append(p.ClusterRoles, bootstrappolicy.ReservedForWorkloadsClusterRoles()...)
	p.ClusterRoleBindings = append(p.ClusterRoleBindings, bootstrappolicy.ReservedForWorkloadsClusterRoleBindings()...)
}
