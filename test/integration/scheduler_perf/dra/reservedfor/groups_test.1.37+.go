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

package reservedfor

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	ktesting "k8s.io/kubernetes/test/utils/client-go/ktesting"
)

func init() {
	endPodGroup = func(ctx context.Context, client clientset.Interface, name string) error {
		return client.SchedulingV1beta1().PodGroups(namespace).Delete(ctx, name, metav1.DeleteOptions{})
	}
}

// BenchmarkPerfSchedulingGroups has many claims, and the PodGroups of upstream.
func BenchmarkPerfSchedulingGroups(b *testing.B) {
	runBenchmark(b, "groups-config.yaml", "dra_reservedfor_groups", func(tCtx ktesting.TContext) error {
		return prepare(tCtx, func(r *report) { writeReport(tCtx, r) })
	})
}
