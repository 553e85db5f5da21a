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

package tracker

import (
	"context"
	"encoding/json"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
)

// TestRuleWithoutSelector checks that a DeviceTaintRule without a selector taints no
// device, and that one with an empty selector taints each.
func TestRuleWithoutSelector(t *testing.T) {
	tests := map[string]struct {
		rule    string
		applies bool
	}{
		"none":  {`{"spec": {"taint": {"key": "k", "effect": "NoExecute"}}}`, false},
		"empty": {`{"spec": {"deviceSelector": {}, "taint": {"key": "k", "effect": "NoExecute"}}}`, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var slice resourceapi.ResourceSlice
			// "basic" is for v1beta1, which stands in for v1 in 1.33.
			unmarshal(t, `{"spec": {"driver": "d", "pool": {"name": "p"}, "devices": [{"name": "a", "basic": {}}]}}`, &slice)
			patched := patch(t, new(Tracker).applyPatches, &slice, test.rule)
			if applies := patched != &slice; applies != test.applies {
				t.Errorf("the rule applies: %t, expected %t", applies, test.applies)
			}
		})
	}
}

// patch calls applyPatches with one rule, whose version depends on the release.
func patch[Rule any](t *testing.T, apply func(context.Context, *resourceapi.ResourceSlice, []*Rule) (*resourceapi.ResourceSlice, error), slice *resourceapi.ResourceSlice, rule string) *resourceapi.ResourceSlice {
	t.Helper()
	decoded := new(Rule)
	unmarshal(t, rule, decoded)
	patched, err := apply(t.Context(), slice, []*Rule{decoded})
	if err != nil {
		t.Fatal(err)
	}
	return patched
}

func unmarshal(t *testing.T, data string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(data), into); err != nil {
		t.Fatal(err)
	}
}
