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

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	// statusAuthorization is the gate with which a driver needs permissions for its own devices.
	statusAuthorization = "DRAResourceClaimGranularStatusAuthorization"
	statusResource      = "resourceclaims/driver"
	statusRole          = "carry-e2e-device-status"
	// driverRole has the permissions of the test driver, in the tree.
	driverRole = "test/e2e/dra/test-driver/deploy/example/plugin-permissions.yaml"
)

// allowStatus does what an administrator does before turning that gate on, for a suite whose
// driver knows nothing of it: up to 1.35, only the carry has the gate. In 1.34 and 1.35, a spec lets
// the driver of a node report devices that all nodes share, which takes the wider permission.
func (s *Suite) allowStatus(ctx context.Context, client kubernetes.Interface) error {
	content, err := os.ReadFile(filepath.Join(s.Tree, filepath.FromSlash(driverRole)))
	if err != nil {
		return fmt.Errorf("permissions of the test driver: %w", err)
	}
	if strings.Contains(string(content), statusResource) {
		return nil
	}
	s.Log("the driver of the suite has no permission for %s: all service accounts get it", statusResource)
	meta := metav1.ObjectMeta{Name: statusRole}
	roles := client.RbacV1()
	if _, err := roles.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"resource.k8s.io"}, Resources: []string{statusResource},
		Verbs: []string{"associated-node:update", "associated-node:patch", "arbitrary-node:update", "arbitrary-node:patch"},
	}}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err = roles.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: statusRole},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:serviceaccounts"}},
	}, metav1.CreateOptions{})
	return err
}
