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

package main

import (
	"testing"

	"kubernetes-dra/hack/pkg/test/e2e"
)

func TestReportE2E(t *testing.T) {
	result := func(name string, outcome e2e.Outcome) *e2e.Result {
		return &e2e.Result{Name: name, Specs: []e2e.SpecResult{{Spec: e2e.Spec{Name: "a spec"}, Outcome: outcome}}}
	}
	for name, test := range map[string]struct {
		results []*e2e.Result
		fails   bool
	}{
		"failed with the patches only":     {[]*e2e.Result{result("patched", e2e.Failed), result(unpatchedVariant, e2e.Passed)}, true},
		"failed with and without them":     {[]*e2e.Result{result("patched", e2e.Failed), result(unpatchedVariant, e2e.Failed)}, false},
		"failed, and no other run":         {[]*e2e.Result{result("patched", e2e.Failed)}, true},
		"one of two failed, and no other":  {[]*e2e.Result{result("patched", e2e.Failed), result("patched-kubelet", e2e.Passed)}, true},
		"passed, and no other run":         {[]*e2e.Result{result("patched", e2e.Passed)}, false},
		"failed without the patches, only": {[]*e2e.Result{result(unpatchedVariant, e2e.Failed)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := reportE2E(t.TempDir(), test.results, nil); (err != nil) != test.fails {
				t.Errorf("error %v, wanted one: %v", err, test.fails)
			}
		})
	}
}
