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
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/featuregate"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	kubeapiservertesting "k8s.io/kubernetes/cmd/kube-apiserver/app/testing"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/test/integration/framework"
)

const group = "resource.k8s.io"

// labelKeys all mean the same.
var labelKeys = []string{"kubernetes.io/dra-admin-access", "resource.k8s.io/admin-access", "resource.kubernetes.io/admin-access"}

// object is what a user would write in JSON.
type object = map[string]any

// server is an API server that serves all versions of the API.
type server struct {
	admin    *rest.Config
	client   kubernetes.Interface
	dynamic  dynamic.Interface
	versions []string
	auditLog string
}

// withoutAudit is for a server that shall not write an audit log.
const withoutAudit = "without audit"

// startServer starts it with the feature on.
func startServer(t testing.TB, options ...string) *server {
	t.Helper()
	for _, gate := range []featuregate.Feature{features.DynamicResourceAllocation, features.DRAAdminAccess} {
		// It may be locked.
		if !utilfeature.DefaultFeatureGate.Enabled(gate) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, gate, true)
		}
	}
	dir := t.TempDir()
	policy := filepath.Join(dir, "audit-policy.yaml")
	err := os.WriteFile(policy, []byte(`apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: ["RequestReceived"]
rules:
- level: Metadata
  resources:
  - group: resource.k8s.io
  - group: ""
    resources: ["namespaces"]
- level: None
`), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{auditLog: filepath.Join(dir, "audit.log")}
	flags := append(framework.DefaultTestServerFlags(), "--authorization-mode=RBAC", "--runtime-config=api/all=true")
	if !slices.Contains(options, withoutAudit) {
		flags = append(flags, "--audit-policy-file="+policy, "--audit-log-path="+s.auditLog, "--audit-log-mode=blocking-strict")
	}
	running, err := kubeapiservertesting.StartTestServer(t, kubeapiservertesting.NewDefaultTestServerOptions(), flags, framework.SharedEtcd())
	if err != nil {
		// The time it may take is fixed. It is not enough on a machine which is
		// busy with something else.
		t.Logf("starting the API server once more: %v", err)
		running, err = kubeapiservertesting.StartTestServer(t, kubeapiservertesting.NewDefaultTestServerOptions(), flags, framework.SharedEtcd())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(running.TearDownFn)
	s.admin = rest.CopyConfig(running.ClientConfig)
	s.admin.QPS = -1
	s.client = kubernetes.NewForConfigOrDie(s.admin)
	s.dynamic = dynamic.NewForConfigOrDie(s.admin)

	groups, err := s.client.Discovery().ServerGroups()
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups.Groups {
		for _, v := range g.Versions {
			if g.Name != group {
				continue
			}
			resources, err := s.client.Discovery().ServerResourcesForGroupVersion(v.GroupVersion)
			if err != nil {
				t.Fatal(err)
			}
			if slices.ContainsFunc(resources.APIResources, func(r metav1.APIResource) bool { return r.Name == "resourceclaims" }) {
				s.versions = append(s.versions, v.Version)
			}
		}
	}
	// What it is about: a release always has at least two.
	if len(s.versions) < 2 {
		t.Fatalf("the API server serves resourceclaims only in %q", s.versions)
	}
	return s
}

// as returns a client for a user.
func (s *server) as(user string) (dynamic.Interface, kubernetes.Interface) {
	config := rest.CopyConfig(s.admin)
	config.Impersonate.UserName = user
	return dynamic.NewForConfigOrDie(config), kubernetes.NewForConfigOrDie(config)
}

// namespace creates one with a generated name.
func (s *server) namespace(t testing.TB, labels map[string]string) string {
	t.Helper()
	ns, err := s.client.CoreV1().Namespaces().Create(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Labels: labels}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ns.Name
}

// label replaces the admin labels of a namespace.
func (s *server) label(t testing.TB, namespace string, labels map[string]string) {
	t.Helper()
	values := object{}
	for _, key := range labelKeys {
		values[key] = nil
	}
	for key, value := range labels {
		values[key] = value
	}
	patch, err := json.Marshal(object{"metadata": object{"labels": values}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.CoreV1().Namespaces().Patch(context.Background(), namespace, "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// allowAll gives a user all rights in one namespace.
func (s *server) allowAll(t testing.TB, user, namespace string) {
	t.Helper()
	ctx := context.Background()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}}
	if _, err := s.client.RbacV1().Roles(namespace).Create(ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
	}
	if _, err := s.client.RbacV1().RoleBindings(namespace).Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, client := s.as(user)
	eventually(t, user+" has all rights in "+namespace, func() error {
		_, err := client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
		return err
	})
}

// kind is that of the objects which can ask for admin access.
type kind struct {
	name, resource string
	// spec is the path of the spec of the claim.
	spec []string
}

var (
	claimKind    = kind{"ResourceClaim", "resourceclaims", []string{"spec"}}
	templateKind = kind{"ResourceClaimTemplate", "resourceclaimtemplates", []string{"spec", "spec"}}
	kinds        = []kind{claimKind, templateKind}
)

func (k kind) in(client dynamic.Interface, version, namespace string) dynamic.ResourceInterface {
	return client.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: k.resource}).Namespace(namespace)
}

// flat versions have the fields of a request for devices right in the request.
func flat(version string) bool {
	return version == "v1beta1" || version == "v1alpha3"
}

// requests returns as many as there are flags, named req-0, req-1 ...
func requests(version string, flags ...bool) []any {
	var list []any
	for i, flag := range flags {
		request := object{"deviceClassName": "class"}
		if flag {
			request["adminAccess"] = true
		}
		if !flat(version) {
			request = object{"exactly": request}
		}
		request["name"] = fmt.Sprintf("req-%d", i)
		list = append(list, request)
	}
	return list
}

// object returns one with these requests.
func (k kind) object(version, name string, flags ...bool) *unstructured.Unstructured {
	o := object{"devices": object{"requests": requests(version, flags...)}}
	for _, field := range slices.Backward(k.spec) {
		o = object{field: o}
	}
	maps.Copy(o, object{"apiVersion": group + "/" + version, "kind": k.name, "metadata": object{"name": name}})
	return &unstructured.Unstructured{Object: o}
}

// results is a status with an allocation for req-0 and req-1.
func results(adminAccess bool) object {
	var list []any
	for i := range 2 {
		result := object{"request": fmt.Sprintf("req-%d", i), "driver": "driver.example.com", "pool": "pool", "device": fmt.Sprintf("device-%d", i)}
		if adminAccess && i == 1 {
			result["adminAccess"] = true
		}
		list = append(list, result)
	}
	return object{"allocation": object{"devices": object{"results": list}}}
}

// hasAdminAccess finds the flag wherever it stands.
func hasAdminAccess(value any) bool {
	switch value := value.(type) {
	case object:
		for key, value := range value {
			if key == "adminAccess" && value == true || key != "managedFields" && hasAdminAccess(value) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(value, hasAdminAccess)
	}
	return false
}

// expectNone checks that nothing in a namespace has admin access, in any version.
func (s *server) expectNone(t testing.TB, namespace string) {
	t.Helper()
	for _, version := range s.versions {
		for _, kind := range kinds {
			list, err := kind.in(s.dynamic, version, namespace).List(context.Background(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, item := range list.Items {
				if hasAdminAccess(item.Object) {
					t.Errorf("%s %s in version %s has admin access", kind.name, item.GetName(), version)
				}
			}
		}
	}
}

// expectRefused checks that the error is the one about admin access in a namespace without
// label, and that it has what a person needs.
func expectRefused(t testing.TB, err error, path string) {
	t.Helper()
	if err == nil {
		t.Error("this was allowed")
		return
	}
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		t.Errorf("want 403 or 422, got: %v", err)
	}
	for _, text := range append([]string{path, "adminAccess", "admin access to devices requires", "label on the containing namespace"}, labelKeys...) {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the message does not contain %q: %v", text, err)
		}
	}
}

// expectImmutable checks that a request was refused because the spec cannot be changed. That a
// label is missing would be the wrong advice.
func expectImmutable(t testing.TB, err error) {
	t.Helper()
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "field is immutable") || strings.Contains(err.Error(), "label") {
		t.Errorf("want 422 because the spec is immutable, got: %v", err)
	}
}

// eventually polls until there is no error.
func eventually(t testing.TB, what string, condition func() error) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// auditEvent has those fields of an audit event that matter here.
type auditEvent struct {
	Verb string `json:"verb"`
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	Annotations map[string]string `json:"annotations"`
}

// audited returns the events so far that match.
func (s *server) audited(t testing.TB, matches func(auditEvent) bool) []auditEvent {
	t.Helper()
	file, err := os.Open(s.auditLog)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var events []auditEvent
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		var event auditEvent
		if err := json.Unmarshal(scanner.Bytes(), &event); err != nil {
			t.Fatal(err)
		}
		if matches(event) {
			events = append(events, event)
		}
	}
	if err := scanner.Err(); err != nil {
		t.Fatal(err)
	}
	return events
}
