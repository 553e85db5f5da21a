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

package adminaccess

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"
)

// apply creates what is in a manifest that users find in examples/adminaccess.
func (s *server) apply(t testing.TB, name string, opts metav1.CreateOptions) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	groups, err := restmapper.GetAPIGroupResources(s.client.Discovery())
	if err != nil {
		t.Fatal(err)
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	opts.FieldValidation = metav1.FieldValidationStrict
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		gvk := object.GroupVersionKind()
		mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			t.Fatal(err)
		}
		client := s.dynamic.Resource(mapping.Resource)
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			_, err = client.Namespace(object.GetNamespace()).Create(context.Background(), object, opts)
		} else {
			_, err = client.Create(context.Background(), object, opts)
		}
		if err != nil {
			t.Fatalf("%s: %v", gvk, err)
		}
	}
}

// TestRecipe covers that the manifests of the monitor are accepted as they are.
func TestRecipe(t *testing.T) {
	for file, templates := range map[string][]string{
		"monitor":    {"all-accelerators"},
		"monitor-64": {"accelerators-0", "accelerators-32"},
	} {
		t.Run(file, func(t *testing.T) {
			s := startServer(t)
			// Each for the releases with that version. No release lacks both.
			if slices.Contains(s.versions, "v1") {
				s.apply(t, file+".yaml", metav1.CreateOptions{})
			} else {
				s.apply(t, file+"-v1beta1.yaml", metav1.CreateOptions{})
			}
			for _, name := range templates {
				template, err := templateKind.in(s.dynamic, s.versions[0], "device-monitoring").Get(context.Background(), name, metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if !hasAdminAccess(template.Object) {
					t.Errorf("no admin access in %v", template.Object)
				}
			}
		})
	}
}

// labelChange is one way to change the labels of a namespace.
type labelChange struct {
	name string
	do   func(client kubernetes.Interface, namespace string, edit func(labels map[string]string)) error
}

// labelChanges are all of them.
func labelChanges() []labelChange {
	ctx := context.Background()
	// edited returns the namespace before and after.
	edited := func(client kubernetes.Interface, namespace string, edit func(labels map[string]string)) (before, after *corev1.Namespace, err error) {
		if before, err = client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{}); err != nil {
			return nil, nil, err
		}
		after = before.DeepCopy()
		if after.Labels == nil {
			after.Labels = map[string]string{}
		}
		edit(after.Labels)
		return before, after, nil
	}
	patch := func(kind types.PatchType, subresources ...string) func(kubernetes.Interface, string, func(map[string]string)) error {
		return func(client kubernetes.Interface, namespace string, edit func(map[string]string)) error {
			before, after, err := edited(client, namespace, edit)
			if err != nil {
				return err
			}
			var body any
			switch kind {
			case types.JSONPatchType:
				body = []any{object{"op": "add", "path": "/metadata/labels", "value": after.Labels}}
			case types.ApplyPatchType:
				body = object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": namespace, "labels": after.Labels}}
			default:
				labels := object{}
				for key := range before.Labels {
					labels[key] = nil
				}
				for key, value := range after.Labels {
					labels[key] = value
				}
				body = object{"metadata": object{"labels": labels}}
			}
			data, err := json.Marshal(body)
			if err != nil {
				return err
			}
			opts := metav1.PatchOptions{}
			if kind == types.ApplyPatchType {
				force := true
				opts.FieldManager, opts.Force = "test", &force
			}
			_, err = client.CoreV1().Namespaces().Patch(ctx, namespace, kind, data, opts, subresources...)
			return err
		}
	}
	return []labelChange{
		{"update", func(client kubernetes.Interface, namespace string, edit func(map[string]string)) error {
			_, after, err := edited(client, namespace, edit)
			if err == nil {
				_, err = client.CoreV1().Namespaces().Update(ctx, after, metav1.UpdateOptions{})
			}
			return err
		}},
		{"update of status", func(client kubernetes.Interface, namespace string, edit func(map[string]string)) error {
			_, after, err := edited(client, namespace, edit)
			if err == nil {
				_, err = client.CoreV1().Namespaces().UpdateStatus(ctx, after, metav1.UpdateOptions{})
			}
			return err
		}},
		{"finalize", func(client kubernetes.Interface, namespace string, edit func(map[string]string)) error {
			_, after, err := edited(client, namespace, edit)
			if err == nil {
				_, err = client.CoreV1().Namespaces().Finalize(ctx, after, metav1.UpdateOptions{})
			}
			return err
		}},
		{"JSON patch", patch(types.JSONPatchType)},
		{"merge patch", patch(types.MergePatchType)},
		{"strategic merge patch", patch(types.StrategicMergePatchType)},
		{"apply", patch(types.ApplyPatchType)},
		{"merge patch of status", patch(types.MergePatchType, "status")},
		{"apply of status", patch(types.ApplyPatchType, "status")},
	}
}

// TestGuard covers the policy for the labels of namespaces.
func TestGuard(t *testing.T) {
	s := startServer(t)
	ctx := context.Background()
	const tenant, granter, operator = "tenant", "granter", "operator"
	labels := func(t testing.TB, namespace string) map[string]string {
		t.Helper()
		ns, err := s.client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return ns.Labels
	}
	bind := func(role, user string) {
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: user + "-" + role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		}
		if _, err := s.client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	namespace := s.namespace(t, nil)
	s.allowAll(t, tenant, namespace)
	_, client := s.as(tenant)

	// Without the policy, rights in the namespace are enough: that is what it is good for.
	for _, change := range labelChanges() {
		if err := change.do(client, namespace, func(labels map[string]string) { labels[labelKeys[0]] = "true" }); err != nil {
			t.Fatalf("%s: want this to work without the policy: %v", change.name, err)
		}
		if labels(t, namespace)[labelKeys[0]] != "true" {
			t.Fatalf("%s does not change labels, so it has no place in this test", change.name)
		}
		s.label(t, namespace, nil)
	}

	s.apply(t, "guard.yaml", metav1.CreateOptions{})
	create := func(client kubernetes.Interface, name string, labels map[string]string) error {
		_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
		return err
	}
	eventually(t, "the policy is in force", func() error {
		err := labelChanges()[0].do(client, namespace, func(labels map[string]string) { labels[labelKeys[0]] = "true" })
		if err == nil {
			s.label(t, namespace, nil)
			return errors.New("it is not")
		}
		return nil
	})
	eventually(t, "the policy is checked", func() error {
		policy, err := s.client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, "dra-admin-access-guard", metav1.GetOptions{})
		if err == nil && policy.Status.TypeChecking != nil && len(policy.Status.TypeChecking.ExpressionWarnings) > 0 {
			t.Errorf("type checking: %+v", policy.Status.TypeChecking.ExpressionWarnings)
		}
		return err
	})

	refused := func(t *testing.T, err error, user, key, namespace string) {
		t.Helper()
		if !apierrors.IsForbidden(err) {
			t.Errorf("want 403, got: %v", err)
			return
		}
		want := fmt.Sprintf("user %s may not set, change or remove the label %s of namespace %s", user, key, namespace)
		if !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in the message, got: %v", want, err)
		}
	}
	for _, key := range labelKeys {
		for _, change := range labelChanges() {
			t.Run(key+"/"+change.name, func(t *testing.T) {
				refused(t, change.do(client, namespace, func(labels map[string]string) { labels[key] = "true" }), tenant, key, namespace)
				// Another value now, the right one later.
				refused(t, change.do(client, namespace, func(labels map[string]string) { labels[key] = "" }), tenant, key, namespace)
				if _, has := labels(t, namespace)[key]; has {
					t.Error("the label was set")
				}
				// What the policy is not about.
				if err := change.do(client, namespace, func(labels map[string]string) { labels["example.com/a"] = change.name[:4] }); err != nil {
					t.Errorf("another label: %v", err)
				}

				s.label(t, namespace, map[string]string{key: "true"})
				defer s.label(t, namespace, nil)
				if err := change.do(client, namespace, func(labels map[string]string) { labels["example.com/b"] = change.name[:4] }); err != nil {
					t.Errorf("another label of a labelled namespace: %v", err)
				}
				refused(t, change.do(client, namespace, func(labels map[string]string) { labels[key] = "false" }), tenant, key, namespace)
				// Leaving out a field does not remove it unless it was applied before.
				if !strings.HasPrefix(change.name, "apply") {
					refused(t, change.do(client, namespace, func(labels map[string]string) { delete(labels, key) }), tenant, key, namespace)
				}
				if labels(t, namespace)[key] != "true" {
					t.Error("the label was changed")
				}
			})
		}
	}

	// Users who may create and change namespaces, but not grant admin access.
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "namespaces"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "create", "update", "patch", "delete"}}}}
	if _, err := s.client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	limited := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "limited"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{"limited"}, Verbs: []string{"grant-dra-admin-access"}}}}
	if _, err := s.client.RbacV1().ClusterRoles().Create(ctx, limited, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	bind("namespaces", operator)
	bind("namespaces", granter)
	bind("limited", operator)
	bind("dra-admin-access-granter", granter)
	_, operatorClient := s.as(operator)
	_, granterClient := s.as(granter)
	eventually(t, "roles are known", func() error {
		for name, client := range map[string]kubernetes.Interface{"limited": operatorClient, "granted": granterClient} {
			if err := create(client, name, map[string]string{labelKeys[0]: "true"}); err != nil && !apierrors.IsAlreadyExists(err) {
				return err
			}
		}
		return nil
	})
	if err := create(operatorClient, "plain", map[string]string{"a": "b"}); err != nil {
		t.Errorf("operator creates a namespace without the label: %v", err)
	}
	refused(t, create(operatorClient, "other", map[string]string{labelKeys[2]: "true"}), operator, labelKeys[2], "other")
	refused(t, create(operatorClient, "other", map[string]string{labelKeys[0]: "true", labelKeys[1]: "x"}), operator, labelKeys[0]+", "+labelKeys[1], "other")
	_, err := operatorClient.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "limited", Labels: map[string]string{labelKeys[0]: "true"}}}, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("operator with a generated name: want 403, got: %v", err)
	}
	for _, change := range labelChanges()[:1] {
		for _, namespace := range []string{"limited", "plain"} {
			err := change.do(operatorClient, namespace, func(labels map[string]string) { labels[labelKeys[2]] = "true" })
			if namespace == "limited" && err != nil {
				t.Errorf("operator in the namespace which they may label: %v", err)
			} else if namespace != "limited" {
				refused(t, err, operator, labelKeys[2], namespace)
			}
			if err := change.do(granterClient, namespace, func(labels map[string]string) { labels[labelKeys[1]] = "true" }); err != nil {
				t.Errorf("granter: %v", err)
			}
		}
	}
	// Who cannot set the label can still delete the namespace, and gets no other way by that.
	if err := operatorClient.CoreV1().Namespaces().Delete(ctx, "plain", metav1.DeleteOptions{}); err != nil {
		t.Errorf("operator deletes a namespace: %v", err)
	}
}
