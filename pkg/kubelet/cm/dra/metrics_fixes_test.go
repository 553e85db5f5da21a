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

package dra

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	kubeletmetrics "k8s.io/kubernetes/pkg/kubelet/metrics"
)

// TestMetricOfErrors checks that dra_operations_duration_seconds tells errors from success.
func TestMetricOfErrors(t *testing.T) {
	// The kubelet only registers it with the feature, and without that it counts nothing.
	metrics.NewKubeRegistry().MustRegister(kubeletmetrics.DRAOperationsDuration)
	count := func(operation, isError string) int {
		n, err := testutil.GetHistogramMetricCount(kubeletmetrics.DRAOperationsDuration.WithLabelValues(operation, isError))
		require.NoError(t, err)
		return int(n)
	}
	var before [4]int
	check := func(operation, isError string) {
		t.Helper()
		var after [4]int
		for i, labels := range [4][2]string{{"PrepareResources", "false"}, {"PrepareResources", "true"}, {"UnprepareResources", "false"}, {"UnprepareResources", "true"}} {
			after[i] = count(labels[0], labels[1])
			if labels == [2]string{operation, isError} {
				before[i]++
			}
		}
		if operation != "" {
			assert.Equal(t, before, after, "%s, is_error=%s", operation, isError)
		}
		before = after
	}

	pod := genTestPodWithClaims(claimName)
	test := newSharedClaimsTest(t, []string{claimName}, pod)
	check("", "")
	missing := genTestPodWithClaims("no-such-claim")
	require.Error(t, test.manager.PrepareResources(test, missing))
	check("PrepareResources", "true")
	require.NoError(t, test.manager.PrepareResources(test, pod))
	check("PrepareResources", "false")
	test.driver.unprepareResourcesResponse = unprepareResponse("fake error", claimName)
	require.Error(t, test.manager.UnprepareResources(test, pod))
	check("UnprepareResources", "true")
	test.driver.unprepareResourcesResponse = nil
	require.NoError(t, test.manager.UnprepareResources(test, pod))
	check("UnprepareResources", "false")
}
