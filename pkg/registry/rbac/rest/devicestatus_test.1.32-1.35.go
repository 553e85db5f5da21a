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
	"testing"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	rbacv1helpers "k8s.io/kubernetes/pkg/apis/rbac/v1"
	"k8s.io/kubernetes/pkg/features"
)

func TestBindingRules(t *testing.T) {
	rule := rbacv1helpers.NewRule("update", "patch").Groups("resource.k8s.io").Resources("resourceclaims/binding").RuleOrDie()
	for _, enabled := range []bool{false, true} {
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAResourceClaimGranularStatusAuthorization, enabled)
		var want []string
		if enabled {
			want = []string{"system:kube-scheduler", "system:controller:resource-claim-controller"}
		}
		if got := rolesWith(t, rule); !slices.Equal(got, want) {
			t.Errorf("enabled %v: want the rule in %q, got it in %q", enabled, want, got)
		}
	}
}
