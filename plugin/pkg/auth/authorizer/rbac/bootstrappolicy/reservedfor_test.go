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
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/scheme"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/component-helpers/auth/rbac/validation"
	rbacv1helpers "k8s.io/kubernetes/pkg/apis/rbac/v1"
	"k8s.io/kubernetes/pkg/features"
)

// hasPodGroups says whether the API of this release has PodGroups.
func hasPodGroups() bool {
	return slices.ContainsFunc(scheme.Scheme.PrioritizedVersionsForGroup("scheduling.k8s.io"), func(gv schema.GroupVersion) bool {
		return scheme.Scheme.Recognizes(gv.WithKind("PodGroup"))
	})
}

func TestReservedForWorkloadsDisabled(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAReservedForWorkloads, false)

	if roles := ReservedForWorkloadsClusterRoles(); len(roles) != 0 {
		t.Errorf("expected no roles, got: %v", roles)
	}
	if bindings := ReservedForWorkloadsClusterRoleBindings(); len(bindings) != 0 {
		t.Errorf("expected no bindings, got: %v", bindings)
	}
}

func TestReservedForWorkloadsEnabled(t *testing.T) {
	// The roles of upstream must not depend on the feature.
	controllerRoles, clusterRoles := ControllerRoles(), ClusterRoles()
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAReservedForWorkloads, true)
	if diff := cmp.Diff(controllerRoles, ControllerRoles()); diff != "" {
		t.Errorf("controller roles changed (- disabled, + enabled):\n%s", diff)
	}
	if diff := cmp.Diff(clusterRoles, ClusterRoles()); diff != "" {
		t.Errorf("cluster roles changed (- disabled, + enabled):\n%s", diff)
	}

	controller := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "kube-system", Name: "resource-claim-controller"}
	scheduler := rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "system:kube-scheduler"}
	get := func(group, resource string) rbacv1.PolicyRule {
		return rbacv1helpers.NewRule("get").Groups(group).Resources(resource).RuleOrDie()
	}
	tests := map[string]struct {
		subject    rbacv1.Subject
		rule       rbacv1.PolicyRule
		aggregated rbacv1.ClusterRole
		expect     bool
	}{
		"controller-job":         {subject: controller, rule: get("batch", "jobs"), expect: true},
		"controller-cronjob":     {subject: controller, rule: get("batch", "cronjobs"), expect: true},
		"controller-deployment":  {subject: controller, rule: get("apps", "deployments"), expect: true},
		"controller-statefulset": {subject: controller, rule: get("apps", "statefulsets"), expect: true},
		"controller-replicaset":  {subject: controller, rule: get("apps", "replicasets"), expect: true},
		"controller-daemonset":   {subject: controller, rule: get("apps", "daemonsets"), expect: true},
		"controller-rc":          {subject: controller, rule: get("", "replicationcontrollers"), expect: true},
		"controller-class":       {subject: controller, rule: rbacv1helpers.NewRule("list", "watch").Groups("resource.k8s.io").Resources("deviceclasses").RuleOrDie(), expect: true},
		"scheduler-class":        {subject: scheduler, rule: rbacv1helpers.NewRule("list").Groups("resource.k8s.io").Resources("deviceclasses").RuleOrDie(), expect: false},
		"controller-podgroup":    {subject: controller, rule: get("scheduling.k8s.io", "podgroups"), expect: hasPodGroups()},
		"controller-list-watch":  {subject: controller, rule: rbacv1helpers.NewRule("list", "watch").Groups("batch").Resources("jobs").RuleOrDie(), expect: true},
		"controller-write":       {subject: controller, rule: rbacv1helpers.NewRule("update").Groups("batch").Resources("jobs").RuleOrDie(), expect: false},
		"controller-custom":      {subject: controller, rule: get("example.com", "trainings"), expect: false},
		"controller-custom-aggregated": {
			subject: controller,
			rule:    get("example.com", "trainings"),
			aggregated: rbacv1.ClusterRole{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"rbac.authorization.k8s.io/aggregate-to-resourceclaim-controller": "true"}},
				Rules:      []rbacv1.PolicyRule{get("example.com", "trainings")},
			},
			expect: true,
		},
		"controller-custom-not-aggregated": {
			subject: controller,
			rule:    get("example.com", "trainings"),
			aggregated: rbacv1.ClusterRole{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
				Rules:      []rbacv1.PolicyRule{get("example.com", "trainings")},
			},
			expect: false,
		},
		"scheduler-job":         {subject: scheduler, rule: get("batch", "jobs"), expect: true},
		"scheduler-cronjob":     {subject: scheduler, rule: get("batch", "cronjobs"), expect: true},
		"scheduler-deployment":  {subject: scheduler, rule: get("apps", "deployments"), expect: true},
		"scheduler-statefulset": {subject: scheduler, rule: get("apps", "statefulsets"), expect: true},
		"scheduler-replicaset":  {subject: scheduler, rule: get("apps", "replicasets"), expect: true},
		"scheduler-daemonset":   {subject: scheduler, rule: get("apps", "daemonsets"), expect: true},
		"scheduler-rc":          {subject: scheduler, rule: get("", "replicationcontrollers"), expect: true},
		"scheduler-write":       {subject: scheduler, rule: rbacv1helpers.NewRule("update").Groups("batch").Resources("jobs").RuleOrDie(), expect: false},
		"scheduler-custom":      {subject: scheduler, rule: get("example.com", "trainings"), expect: false},
		"scheduler-custom-aggregated": {
			subject: scheduler,
			rule:    get("example.com", "trainings"),
			aggregated: rbacv1.ClusterRole{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"rbac.authorization.k8s.io/aggregate-to-resourceclaim-controller": "true"}},
				Rules:      []rbacv1.PolicyRule{get("example.com", "trainings")},
			},
			expect: true,
		},
		"scheduler-list-jobs": {subject: scheduler, rule: rbacv1helpers.NewRule("list").Groups("batch").Resources("jobs").RuleOrDie(), expect: false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var granted []rbacv1.PolicyRule
			for _, role := range ReservedForWorkloadsClusterRoles() {
				if role.Labels["kubernetes.io/bootstrapping"] != "rbac-defaults" {
					t.Errorf("role %s lacks the label for bootstrapped roles: %v", role.Name, role.Labels)
				}
				bound := slices.ContainsFunc(ReservedForWorkloadsClusterRoleBindings(), func(binding rbacv1.ClusterRoleBinding) bool {
					return binding.RoleRef.Name == role.Name && slices.Contains(binding.Subjects, test.subject)
				})
				if !bound {
					continue
				}
				granted = append(granted, role.Rules...)
				if role.AggregationRule == nil {
					continue
				}
				for _, labelSelector := range role.AggregationRule.ClusterRoleSelectors {
					selector, err := metav1.LabelSelectorAsSelector(&labelSelector)
					if err != nil {
						t.Fatalf("role %s: %v", role.Name, err)
					}
					if selector.Matches(labels.Set(test.aggregated.Labels)) {
						granted = append(granted, test.aggregated.Rules...)
					}
				}
			}
			if covers, _ := validation.Covers(granted, []rbacv1.PolicyRule{test.rule}); covers != test.expect {
				t.Errorf("expected %v to be granted: %v, granted are: %v", test.rule, test.expect, granted)
			}
		})
	}
}
