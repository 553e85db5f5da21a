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
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applyv1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/kubernetes/test/e2e/framework"
)

// allowAdminAccess labels the namespace of a spec from a time when anybody
// could have admin access: now an administrator has to allow it.
func allowAdminAccess(ctx context.Context, f *framework.Framework) {
	_, err := f.ClientSet.CoreV1().Namespaces().Apply(ctx,
		applyv1.Namespace(f.Namespace.Name).WithLabels(map[string]string{"resource.kubernetes.io/admin-access": "true"}),
		metav1.ApplyOptions{FieldManager: "admin-access-" + f.UniqueName})
	framework.ExpectNoError(err, "label the namespace for admin access")
}
