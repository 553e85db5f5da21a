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

package devicestatus

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
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

const (
	group   = "resource.k8s.io"
	driverA = "a.example.com"
	driverB = "b.example.com"
)

// object is what a user would write in JSON.
type object = map[string]any

// server is an API server that serves all versions of the API.
type server struct {
	admin    *rest.Config
	client   kubernetes.Interface
	dynamic  dynamic.Interface
	versions []string
	// namespace is where claims are.
	namespace string
}

// startServer starts it with or without the checks.
func startServer(t testing.TB, checks bool) *server {
	t.Helper()
	for gate, enabled := range map[featuregate.Feature]bool{
		features.DynamicResourceAllocation:                   true,
		features.DRAResourceClaimDeviceStatus:                true,
		features.DRAResourceClaimGranularStatusAuthorization: checks,
	} {
		// It may be locked.
		if utilfeature.DefaultFeatureGate.Enabled(gate) != enabled {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, gate, enabled)
		}
	}
	flags := append(framework.DefaultTestServerFlags(), "--authorization-mode=RBAC", "--runtime-config=api/all=true")
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
	s := &server{admin: rest.CopyConfig(running.ClientConfig)}
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
	s.namespace = s.newNamespace(t)
	for _, name := range []string{"node-a", "node-b"} {
		if _, err := s.client.CoreV1().Nodes().Create(context.Background(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// newNamespace creates one with a generated name.
func (s *server) newNamespace(t testing.TB) string {
	t.Helper()
	ns, err := s.client.CoreV1().Namespaces().Create(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ns.Name
}

// serviceAccount is one with rules.
type serviceAccount struct {
	s               *server
	namespace, name string
}

// username is how it is called in requests.
func (a serviceAccount) username() string {
	return "system:serviceaccount:" + a.namespace + ":" + a.name
}

// rule is a shorthand.
func rule(resource string, names []string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names, Verbs: verbs}
}

// mayWrite is needed in any case.
func mayWrite() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{rule("resourceclaims", nil, "get"), rule("resourceclaims/status", nil, "update", "patch")}
}

// newServiceAccount creates a service account which has the rules in all namespaces.
func (s *server) newServiceAccount(t testing.TB, namespace, name string, rules ...rbacv1.PolicyRule) serviceAccount {
	t.Helper()
	account := serviceAccount{s, namespace, name}
	if _, err := s.client.CoreV1().ServiceAccounts(namespace).Create(context.Background(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	subject := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
	s.allow(t, namespace+"-"+name, "", subject, append(mayWrite(), rules...)...)
	s.waitForRights(t, account.username(), "", append(mayWrite(), rules...)...)
	return account
}

// allow gives rules to somebody in one namespace, or in all.
func (s *server) allow(t testing.TB, name, namespace string, subject rbacv1.Subject, rules ...rbacv1.PolicyRule) {
	t.Helper()
	ctx := context.Background()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	if _, err := s.client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	meta, ref := metav1.ObjectMeta{Name: name}, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
	var err error
	if namespace == "" {
		_, err = s.client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: []rbacv1.Subject{subject}, RoleRef: ref}, metav1.CreateOptions{})
	} else {
		_, err = s.client.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: []rbacv1.Subject{subject}, RoleRef: ref}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// waitForRights waits until the authorizer has seen the rules.
func (s *server) waitForRights(t testing.TB, username, namespace string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	for _, r := range rules {
		resource, subresource, _ := strings.Cut(r.Resources[0], "/")
		if len(r.ResourceNames) == 0 {
			r.ResourceNames = []string{""}
		}
		eventually(t, fmt.Sprintf("%s may %v %s", username, r.Verbs, r.Resources), func() error {
			review, err := s.client.AuthorizationV1().SubjectAccessReviews().Create(context.Background(), &authorizationv1.SubjectAccessReview{
				Spec: authorizationv1.SubjectAccessReviewSpec{User: username, ResourceAttributes: &authorizationv1.ResourceAttributes{
					Group: r.APIGroups[0], Resource: resource, Subresource: subresource, Verb: r.Verbs[0], Namespace: namespace, Name: r.ResourceNames[0],
				}},
			}, metav1.CreateOptions{})
			if err == nil && !review.Status.Allowed {
				err = fmt.Errorf("not allowed: %+v", review.Status)
			}
			return err
		})
	}
}

// config has a token of the service account, bound to an object or not.
func (a serviceAccount) config(t testing.TB, ref *authenticationv1.BoundObjectReference) *rest.Config {
	t.Helper()
	request, err := a.s.client.CoreV1().ServiceAccounts(a.namespace).CreateToken(context.Background(), a.name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: ref},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(a.s.admin)
	config.BearerToken = request.Status.Token
	config.QPS = -1
	return config
}

// withToken returns a client with such a token.
func (a serviceAccount) withToken(t testing.TB, ref *authenticationv1.BoundObjectReference) dynamic.Interface {
	t.Helper()
	return dynamic.NewForConfigOrDie(a.config(t, ref))
}

// onNode returns a client with a token which is bound to a node.
func (a serviceAccount) onNode(t testing.TB, name string) dynamic.Interface {
	t.Helper()
	return dynamic.NewForConfigOrDie(a.nodeConfig(t, name))
}

// nodeConfig has such a token.
func (a serviceAccount) nodeConfig(t testing.TB, name string) *rest.Config {
	t.Helper()
	node, err := a.s.client.CoreV1().Nodes().Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return a.config(t, &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID})
}

// inPod returns a client with a token which is bound to a pod on a node, as the
// kubelet mounts it.
func (a serviceAccount) inPod(t testing.TB, node string) dynamic.Interface {
	t.Helper()
	pod, err := a.s.client.CoreV1().Pods(a.namespace).Create(context.Background(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: a.name + "-"},
		Spec:       corev1.PodSpec{NodeName: node, ServiceAccountName: a.name, Containers: []corev1.Container{{Name: "plugin", Image: "plugin"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return a.withToken(t, &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID})
}

// as returns a client which impersonates somebody, with the nodes that are given.
func (s *server) as(config *rest.Config, user string, nodes ...string) dynamic.Interface {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	if len(nodes) > 0 {
		config.Impersonate.Extra = map[string][]string{"authentication.kubernetes.io/node-name": nodes}
	}
	return dynamic.NewForConfigOrDie(config)
}

// claims are those in the namespace.
func (s *server) claims(client dynamic.Interface, version string) dynamic.ResourceInterface {
	return client.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: "resourceclaims"}).Namespace(s.namespace)
}

// manager is the field manager of all that is in a status at first. Its name is no secret:
// whoever uses it to apply something can remove what others wrote.
const manager = "manager"

// newClaim creates a claim with a status.
func (s *server) newClaim(t testing.TB, version string, status object) *unstructured.Unstructured {
	t.Helper()
	request := object{"deviceClassName": "class"}
	if version != "v1beta1" && version != "v1alpha3" {
		request = object{"exactly": request}
	}
	request["name"] = "req"
	claim, err := s.claims(s.dynamic, version).Create(context.Background(), &unstructured.Unstructured{Object: object{
		"apiVersion": group + "/" + version, "kind": "ResourceClaim",
		"metadata": object{"generateName": "claim-"},
		"spec":     object{"devices": object{"requests": []any{request}}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := apply(s.claims(s.dynamic, version), claim, status); err != nil {
		t.Fatal(err)
	}
	return s.get(t, version, claim.GetName())
}

func (s *server) get(t testing.TB, version, name string) *unstructured.Unstructured {
	t.Helper()
	claim, err := s.claims(s.dynamic, version).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return claim
}

// method is a way to replace the status of a claim.
type method struct {
	name string
	do   func(client dynamic.ResourceInterface, claim *unstructured.Unstructured, status object) error
	// dryRun changes nothing.
	dryRun bool
}

// methods are update and server-side apply.
func methods() []method {
	return []method{{"update", update(), false}, {"apply", apply, false}}
}

// otherMethods are the rest.
func otherMethods() []method {
	return []method{
		{"update, dry run", update(metav1.DryRunAll), true},
		{"JSON patch", patch(types.JSONPatchType, func(_, status object) any {
			return []any{object{"op": "replace", "path": "/status", "value": status}}
		}), false},
		{"merge patch", patch(types.MergePatchType, func(old, status object) any {
			merged := object{}
			for key := range old {
				merged[key] = nil
			}
			maps.Copy(merged, status)
			return object{"status": merged}
		}), false},
		{"strategic merge patch", patch(types.StrategicMergePatchType, func(_, status object) any {
			replaced := object{"$patch": "replace"}
			maps.Copy(replaced, status)
			return object{"status": replaced}
		}), false},
	}
}

// otherMethod is one of those, in turn.
func otherMethod(i int) method {
	return otherMethods()[i%len(otherMethods())]
}

func allMethods() []method {
	return append(methods(), otherMethods()...)
}

func update(dryRun ...string) func(dynamic.ResourceInterface, *unstructured.Unstructured, object) error {
	return func(client dynamic.ResourceInterface, claim *unstructured.Unstructured, status object) error {
		claim = claim.DeepCopy()
		claim.Object["status"] = status
		_, err := client.UpdateStatus(context.Background(), claim, metav1.UpdateOptions{DryRun: dryRun})
		return err
	}
}

func patch(kind types.PatchType, content func(old, status object) any) func(dynamic.ResourceInterface, *unstructured.Unstructured, object) error {
	return func(client dynamic.ResourceInterface, claim *unstructured.Unstructured, status object) error {
		data, err := json.Marshal(content(claim.Object["status"].(object), status))
		if err != nil {
			return err
		}
		_, err = client.Patch(context.Background(), claim.GetName(), kind, data, metav1.PatchOptions{}, "status")
		return err
	}
}

// verb is the one that a role has to have for the method.
func (m method) verb() string {
	if m.name == "update" || m.dryRun {
		return "update"
	}
	return "patch"
}

func apply(client dynamic.ResourceInterface, claim *unstructured.Unstructured, status object) error {
	return applyAs(manager)(client, claim, status)
}

// applyAs is server-side apply by another manager of the fields.
func applyAs(manager string) func(dynamic.ResourceInterface, *unstructured.Unstructured, object) error {
	return func(client dynamic.ResourceInterface, claim *unstructured.Unstructured, status object) error {
		_, err := client.ApplyStatus(context.Background(), claim.GetName(), &unstructured.Unstructured{Object: object{
			"apiVersion": claim.GetAPIVersion(), "kind": claim.GetKind(),
			"metadata": object{"name": claim.GetName()}, "status": status,
		}}, metav1.ApplyOptions{FieldManager: manager, Force: true})
		return err
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
