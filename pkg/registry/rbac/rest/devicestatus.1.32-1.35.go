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
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	rbacv1helpers "k8s.io/kubernetes/pkg/apis/rbac/v1"
	"k8s.io/kubernetes/pkg/features"
)

func init() {
	policyAdditions = append(policyAdditions, addBindingRules)
}

// addBindingRules adds what the scheduler and the ResourceClaim controller need to change the allocation of a
// ResourceClaim, and for whom it is reserved, if DRAResourceClaimGranularStatusAuthorization is enabled.
func addBindingRules(p *PolicyData) {
	if !utilfeature.DefaultFeatureGate.Enabled(features.DRAResourceClaimGranularStatusAuthorization) {
		return
	}
	binding := rbacv1helpers.NewRule("update", "patch").Groups("resource.k8s.io").Resources("resourceclaims/binding").RuleOrDie()
	p.addRules(resourceClaimControllerRole, binding)
	p.addRules("system:kube-scheduler", binding)
}
