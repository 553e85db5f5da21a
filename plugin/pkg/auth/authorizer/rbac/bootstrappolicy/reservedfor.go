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

package bootstrappolicy

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	rbacv1helpers "k8s.io/kubernetes/pkg/apis/rbac/v1"
	"k8s.io/kubernetes/pkg/features"
)

// The permissions for reserving ResourceClaims for workloads are in roles of
// their own which only exist if the feature is enabled. The roles for the
// ResourceClaim controller and the scheduler therefore remain the same, and the
// additional ones are easy to find and to remove.
const (
	// resourceClaimWorkloadsRole allows the ResourceClaim controller to check
	// whether workloads of the built-in kinds still exist, and what a DeviceClass says
	// about claims that are idle.
	resourceClaimWorkloadsRole = "system:resource-claim-controller-workloads"

	// resourceClaimAggregatedWorkloadsRole has the same purpose for any other
	// kind. It consists of all ClusterRoles with the label
	// aggregateToResourceClaimControllerLabel. Getting the objects is
	// sufficient. The scheduler has this role, too, to find out which
	// workload of such a kind a pod belongs to.
	resourceClaimAggregatedWorkloadsRole = "system:resource-claim-controller-aggregated-workloads"

	// schedulerWorkloadsRole allows the scheduler to find out which workload
	// a pod belongs to if that isn't the object which controls the pod, but
	// the controller of that one, and so on.
	schedulerWorkloadsRole = "system:kube-scheduler-workloads"

	aggregateToResourceClaimControllerLabel = "rbac.authorization.k8s.io/aggregate-to-resourceclaim-controller"
)

// ReservedForWorkloadsClusterRoles returns the cluster roles for the
// DRAReservedForWorkloads feature, none if it is disabled.
func ReservedForWorkloadsClusterRoles() []rbacv1.ClusterRole {
	if !utilfeature.DefaultFeatureGate.Enabled(features.DRAReservedForWorkloads) {
		return nil
	}
	roles := []rbacv1.ClusterRole{
		{
			ObjectMeta: metav1.ObjectMeta{Name: resourceClaimWorkloadsRole},
			Rules: append([]rbacv1.PolicyRule{
				rbacv1helpers.NewRule(Read...).Groups(batchGroup).Resources("jobs", "cronjobs").RuleOrDie(),
				rbacv1helpers.NewRule(Read...).Groups(appsGroup).Resources("deployments", "statefulsets", "replicasets", "daemonsets").RuleOrDie(),
				rbacv1helpers.NewRule("get").Groups(legacyGroup).Resources("replicationcontrollers").RuleOrDie(),
				rbacv1helpers.NewRule(Read...).Groups(resourceGroup).Resources("deviceclasses").RuleOrDie(),
			}, resourceClaimPodGroupRules()...),
		},
		{
			ObjectMeta: metav1.ObjectMeta{Name: resourceClaimAggregatedWorkloadsRole},
			AggregationRule: &rbacv1.AggregationRule{
				ClusterRoleSelectors: []metav1.LabelSelector{
					{MatchLabels: map[string]string{aggregateToResourceClaimControllerLabel: "true"}},
				},
			},
		},
		{
			ObjectMeta: metav1.ObjectMeta{Name: schedulerWorkloadsRole},
			Rules: []rbacv1.PolicyRule{
				rbacv1helpers.NewRule("get").Groups(batchGroup).Resources("jobs", "cronjobs").RuleOrDie(),
				rbacv1helpers.NewRule("get").Groups(appsGroup).Resources("deployments", "statefulsets", "replicasets", "daemonsets").RuleOrDie(),
				rbacv1helpers.NewRule("get").Groups(legacyGroup).Resources("replicationcontrollers").RuleOrDie(),
			},
		},
	}
	addClusterRoleLabel(roles)
	return roles
}

// ReservedForWorkloadsClusterRoleBindings returns the bindings for the roles in
// ReservedForWorkloadsClusterRoles.
func ReservedForWorkloadsClusterRoleBindings() []rbacv1.ClusterRoleBinding {
	if !utilfeature.DefaultFeatureGate.Enabled(features.DRAReservedForWorkloads) {
		return nil
	}
	bindings := []rbacv1.ClusterRoleBinding{
		rbacv1helpers.NewClusterBinding(resourceClaimWorkloadsRole).SAs("kube-system", "resource-claim-controller").BindingOrDie(),
		rbacv1helpers.NewClusterBinding(resourceClaimAggregatedWorkloadsRole).SAs("kube-system", "resource-claim-controller").Users(user.KubeScheduler).BindingOrDie(),
		rbacv1helpers.NewClusterBinding(schedulerWorkloadsRole).Users(user.KubeScheduler).BindingOrDie(),
	}
	addClusterRoleBindingLabel(bindings)
	return bindings
}
