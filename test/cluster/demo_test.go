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

package cluster

import (
	"strings"
	"testing"
	"time"

	"kubernetes-dra/hack/pkg/cluster/demo"
)

// TestDemo lets both stories come true. They fail if anything does not happen, or if
// something is left.
func TestDemo(t *testing.T) {
	for name, tc := range map[string]struct {
		options demo.Options
		end     string
	}{
		"job":     {demo.Options{Pods: 20}, "the claim waits for the next Job of that name"},
		"network": {demo.Options{Network: true}, "neither interfaces nor addresses are left"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.options.Network {
				onRealNode(t)
			}
			var out strings.Builder
			tc.options.Out, tc.options.Timeout = &out, 5*time.Minute
			err := demo.Run(t.Context(), shared.Cluster, tc.options)
			if err != nil || !strings.Contains(out.String(), tc.end) {
				t.Errorf("want an end with %q, got error %v after\n%s", tc.end, err, out.String())
			}
		})
	}
}
