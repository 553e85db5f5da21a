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
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// attempt is one way to get admin access.
type attempt struct {
	name string
	// path is where the error has to be.
	path string
	do   func(ctx context.Context) error
	// persistent attempts leave something behind where they are allowed.
	persistent bool
}

// creations are all ways to create an object with the flag.
func creations(client dynamic.Interface, k kind, version, namespace string) []attempt {
	objects := k.in(client, version, namespace)
	path := func(i int) string { return strings.Join(k.spec, ".") + fmt.Sprintf(".devices.requests[%d]", i) }
	create := func(object *unstructured.Unstructured, opts metav1.CreateOptions) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := objects.Create(ctx, object, opts)
			return err
		}
	}
	named := func(name string, flags ...bool) *unstructured.Unstructured {
		return k.object(version, version+"-"+name, flags...)
	}
	generated := k.object(version, "", true)
	generated.SetName("")
	generated.SetGenerateName(version + "-generated-")
	return []attempt{
		{"create", path(0), create(named("create", true), metav1.CreateOptions{}), true},
		{"create, request 2 of 3", path(1), create(named("create-2", false, true, false), metav1.CreateOptions{}), true},
		{"create, dry run", path(0), create(named("create-dry", true), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}), false},
		{"create, generated name", path(0), create(generated, metav1.CreateOptions{}), true},
		{"create, strict", path(0), create(named("create-strict", true), metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}), true},
		{"apply", path(0), func(ctx context.Context) error {
			_, err := objects.Apply(ctx, version+"-apply", named("apply", true), metav1.ApplyOptions{FieldManager: "test", Force: true})
			return err
		}, true},
		{"apply, dry run", path(2), func(ctx context.Context) error {
			_, err := objects.Apply(ctx, version+"-apply-dry", named("apply-dry", false, false, true), metav1.ApplyOptions{FieldManager: "test", Force: true, DryRun: []string{metav1.DryRunAll}})
			return err
		}, false},
	}
}

// changes are all ways to add the flag to an object that has three requests without it. Nobody can
// do that, whatever the labels are.
func changes(client dynamic.Interface, k kind, version, namespace, name string) []attempt {
	objects := k.in(client, version, namespace)
	field := "/" + strings.Join(k.spec, "/") + "/devices/requests/1/"
	if !flat(version) {
		field += "exactly/"
	}
	jsonPatch := fmt.Sprintf(`[{"op":"add","path":"%sadminAccess","value":true}]`, field)
	full := object{"devices": object{"requests": requests(version, false, true, false)}}
	for _, field := range slices.Backward(k.spec) {
		full = object{field: full}
	}
	mergePatch, err := json.Marshal(full)
	if err != nil {
		panic(err)
	}
	update := func(opts metav1.UpdateOptions) func(context.Context) error {
		return func(ctx context.Context) error {
			stored, err := objects.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			changed := k.object(version, name, false, true, false)
			changed.SetResourceVersion(stored.GetResourceVersion())
			_, err = objects.Update(ctx, changed, opts)
			return err
		}
	}
	patch := func(kind types.PatchType, data []byte, dryRun ...string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := objects.Patch(ctx, name, kind, data, metav1.PatchOptions{DryRun: dryRun})
			return err
		}
	}
	return []attempt{
		{"update", "", update(metav1.UpdateOptions{}), false},
		{"update, dry run", "", update(metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}), false},
		{"JSON patch", "", patch(types.JSONPatchType, []byte(jsonPatch)), false},
		{"JSON patch, dry run", "", patch(types.JSONPatchType, []byte(jsonPatch), metav1.DryRunAll), false},
		{"merge patch", "", patch(types.MergePatchType, mergePatch), false},
		{"strategic merge patch", "", patch(types.StrategicMergePatchType, mergePatch), false},
		{"apply", "", func(ctx context.Context) error {
			_, err := objects.Apply(ctx, name, k.object(version, name, false, true, false), metav1.ApplyOptions{FieldManager: "test", Force: true})
			return err
		}, false},
	}
}

// grants are all ways to allocate devices with admin access to a claim which has two requests.
func grants(client dynamic.Interface, version, namespace, name string) []attempt {
	claims := claimKind.in(client, version, namespace)
	path := "status.allocation.devices.results[1]"
	status := object{"status": results(true)}
	mergePatch, err := json.Marshal(status)
	if err != nil {
		panic(err)
	}
	jsonPatch, err := json.Marshal([]any{object{"op": "add", "path": "/status/allocation", "value": results(true)["allocation"]}})
	if err != nil {
		panic(err)
	}
	update := func(opts metav1.UpdateOptions) func(context.Context) error {
		return func(ctx context.Context) error {
			claim, err := claims.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			claim.Object["status"] = results(true)
			_, err = claims.UpdateStatus(ctx, claim, opts)
			return err
		}
	}
	patch := func(kind types.PatchType, data []byte) func(context.Context) error {
		return func(ctx context.Context) error {
			if kind == types.JSONPatchType {
				// The path has to exist.
				if _, err := claims.Patch(ctx, name, types.MergePatchType, []byte(`{"status":{"reservedFor":[]}}`), metav1.PatchOptions{}, "status"); err != nil {
					return err
				}
			}
			_, err := claims.Patch(ctx, name, kind, data, metav1.PatchOptions{}, "status")
			return err
		}
	}
	return []attempt{
		{"update of status, dry run", path, update(metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}), false},
		{"update of status", path, update(metav1.UpdateOptions{}), true},
		{"merge patch of status", path, patch(types.MergePatchType, mergePatch), true},
		{"strategic merge patch of status", path, patch(types.StrategicMergePatchType, mergePatch), true},
		{"JSON patch of status", path, patch(types.JSONPatchType, jsonPatch), true},
		{"apply of status", path, func(ctx context.Context) error {
			apply := &unstructured.Unstructured{Object: object{
				"apiVersion": group + "/" + version, "kind": claimKind.name,
				"metadata": object{"name": name}, "status": results(true),
			}}
			_, err := claims.ApplyStatus(ctx, name, apply, metav1.ApplyOptions{FieldManager: "test", Force: true})
			return err
		}, true},
	}
}

// create stores an object without going through the attempts.
func create(t testing.TB, client dynamic.Interface, k kind, version, namespace, name string, flags ...bool) {
	t.Helper()
	if _, err := k.in(client, version, namespace).Create(context.Background(), k.object(version, name, flags...), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestWaysRound is the table of ways round the label: each in a namespace without the label, and
// as a check of the test itself in one with the label.
func TestWaysRound(t *testing.T) {
	s := startServer(t)
	ctx := context.Background()
	const tenant = "tenant"

	type place struct {
		name    string
		labels  map[string]string
		allowed bool
	}
	places := []place{
		{"no label", nil, false},
		{"label with another key", map[string]string{"dra-admin-access": "true", "kubernetes.io/admin-access": "true"}, false},
	}
	for _, key := range labelKeys {
		for _, value := range []string{"True", "TRUE", "", "1", "yes", "false"} {
			places = append(places, place{fmt.Sprintf("%s=%q", key, value), map[string]string{key: value}, false})
		}
		places = append(places, place{key, map[string]string{key: "true"}, true})
	}

	for i, place := range places {
		namespace := s.namespace(t, place.labels)
		versions := s.versions
		if i > 0 && !place.allowed {
			// The decision is the same for all ways, so the variants of the label do not need all.
			versions = versions[i%len(versions):][:1]
		}
		// The user has all rights, but in this namespace only.
		s.allowAll(t, tenant, namespace)
		client, _ := s.as(tenant)
		for _, version := range versions {
			t.Run(place.name+"/"+version, func(t *testing.T) {
				check := func(t *testing.T, a attempt) {
					if err := a.do(ctx); !place.allowed {
						expectRefused(t, err, a.path)
					} else if err != nil {
						t.Errorf("this should be allowed here: %v", err)
					}
				}
				for _, k := range kinds {
					for _, a := range creations(client, k, version, namespace) {
						t.Run(k.name+"/"+a.name, func(t *testing.T) { check(t, a) })
					}
					name := "plain-" + version
					create(t, client, k, version, namespace, name, false, false, false)
					for _, a := range changes(client, k, version, namespace, name) {
						t.Run(k.name+"/"+a.name, func(t *testing.T) { expectImmutable(t, a.do(ctx)) })
					}
				}
				for i := range grants(client, version, namespace, "") {
					name := fmt.Sprintf("status-%s-%d", version, i)
					create(t, client, claimKind, version, namespace, name, false, place.allowed)
					// Not even who may do everything can do this.
					a := grants(s.dynamic, version, namespace, name)[i]
					t.Run(a.name, func(t *testing.T) {
						check(t, a)
						claim, err := claimKind.in(client, version, namespace).Get(ctx, name, metav1.GetOptions{})
						if err != nil {
							t.Fatal(err)
						}
						if granted := hasAdminAccess(claim.Object["status"]); granted != (place.allowed && a.persistent) {
							t.Errorf("status has admin access: %t", granted)
						}
					})
				}
			})
		}
		if !place.allowed {
			s.expectNone(t, namespace)
		}
	}
}

// TestConversion takes what is allowed in one namespace, reads it in another version, and
// tries to get it into a namespace without label.
func TestConversion(t *testing.T) {
	s := startServer(t)
	ctx := context.Background()
	allowed := s.namespace(t, map[string]string{labelKeys[0]: "true"})
	other := s.namespace(t, nil)
	for _, k := range kinds {
		for _, from := range s.versions {
			name := "from-" + from
			create(t, s.dynamic, k, from, allowed, name, false, true)
			for _, to := range s.versions {
				t.Run(k.name+"/"+from+"/"+to, func(t *testing.T) {
					read, err := k.in(s.dynamic, to, allowed).Get(ctx, name, metav1.GetOptions{})
					if err != nil {
						t.Fatal(err)
					}
					if !hasAdminAccess(read.Object) {
						t.Fatalf("the flag got lost: %v", read.Object)
					}
					read.SetNamespace(other)
					read.SetResourceVersion("")
					read.SetUID("")
					read.SetManagedFields(nil)
					_, err = k.in(s.dynamic, to, other).Create(ctx, read, metav1.CreateOptions{})
					expectRefused(t, err, "devices.requests[1]")
					// The path of one version cannot be used to smuggle the flag into another one.
					_, err = k.in(s.dynamic, to, other).Apply(ctx, name, read, metav1.ApplyOptions{FieldManager: "test", Force: true})
					expectRefused(t, err, "devices.requests[1]")
				})
			}
		}
		for _, from := range s.versions {
			// Created in one version, changed in another.
			name := "plain-" + from
			create(t, s.dynamic, k, from, other, name, false, false, false)
			for _, to := range s.versions {
				for _, a := range changes(s.dynamic, k, to, other, name) {
					t.Run(k.name+"/"+from+"/"+to+"/"+a.name, func(t *testing.T) { expectImmutable(t, a.do(ctx)) })
				}
			}
		}
	}
	s.expectNone(t, other)
}

// TestLabelComesAndGoes covers what a namespace can do after it lost the label: nothing new, but
// everything that is necessary to use and to get rid of what it has.
func TestLabelComesAndGoes(t *testing.T) {
	s := startServer(t)
	ctx := context.Background()
	for _, version := range s.versions {
		t.Run(version, func(t *testing.T) {
			namespace := s.namespace(t, nil)
			refuseAll := func(t *testing.T) {
				for _, k := range kinds {
					for _, a := range creations(s.dynamic, k, version, namespace) {
						t.Run(k.name+"/"+a.name, func(t *testing.T) { expectRefused(t, a.do(ctx), a.path) })
					}
				}
			}
			t.Run("before", refuseAll)
			s.expectNone(t, namespace)
			s.label(t, namespace, map[string]string{labelKeys[1]: "true"})
			create(t, s.dynamic, templateKind, version, namespace, "template", true)
			create(t, s.dynamic, claimKind, version, namespace, "allocated", false, true)
			create(t, s.dynamic, claimKind, version, namespace, "pending", false, true)
			claims := claimKind.in(s.dynamic, version, namespace)
			if err := grants(s.dynamic, version, namespace, "allocated")[1].do(ctx); err != nil {
				t.Fatal(err)
			}
			s.label(t, namespace, nil)
			t.Run("after", refuseAll)

			for _, a := range grants(s.dynamic, version, namespace, "pending") {
				t.Run("pending claim/"+a.name, func(t *testing.T) { expectRefused(t, a.do(ctx), a.path) })
			}
			for _, a := range []struct {
				name string
				do   func() error
			}{
				{"reserve the allocated claim", func() error {
					_, err := claims.Patch(ctx, "allocated", types.MergePatchType, []byte(`{"status":{"reservedFor":[{"resource":"pods","name":"pod","uid":"1"}]}}`), metav1.PatchOptions{}, "status")
					return err
				}},
				{"finalizer of the allocated claim", func() error {
					_, err := claims.Patch(ctx, "allocated", types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.com/test"]}}`), metav1.PatchOptions{})
					return err
				}},
				{"update without change", func() error {
					claim, err := claims.Get(ctx, "pending", metav1.GetOptions{})
					if err == nil {
						_, err = claims.Update(ctx, claim, metav1.UpdateOptions{})
					}
					return err
				}},
				{"annotation of the template", func() error {
					_, err := templateKind.in(s.dynamic, version, namespace).Patch(ctx, "template", types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}}}`), metav1.PatchOptions{})
					return err
				}},
				{"deallocate", func() error {
					_, err := claims.Patch(ctx, "allocated", types.MergePatchType, []byte(`{"status":{"allocation":null,"reservedFor":null}}`), metav1.PatchOptions{}, "status")
					return err
				}},
				{"remove the finalizer", func() error {
					_, err := claims.Patch(ctx, "allocated", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
					return err
				}},
			} {
				if err := a.do(); err != nil {
					t.Errorf("%s: %v", a.name, err)
				}
			}
			// The devices are gone, and cannot be had again.
			t.Run("allocate again", func(t *testing.T) {
				a := grants(s.dynamic, version, namespace, "allocated")[1]
				expectRefused(t, a.do(ctx), a.path)
			})
			// Neither by means of the template that is still there: this is what the controller does for a pod.
			t.Run("template", func(t *testing.T) {
				controller, _ := s.as("system:serviceaccount:kube-system:resource-claim-controller")
				template, err := templateKind.in(s.dynamic, version, namespace).Get(ctx, "template", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				claim := claimKind.object(version, "", true)
				claim.SetName("")
				claim.SetGenerateName("pod-")
				claim.Object["spec"] = template.Object["spec"].(object)["spec"]
				yes := true
				claim.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "pod", UID: "1", Controller: &yes}})
				_, err = claimKind.in(controller, version, namespace).Create(ctx, claim, metav1.CreateOptions{})
				expectRefused(t, err, "spec.devices.requests[0]")
				s.label(t, namespace, map[string]string{labelKeys[2]: "true"})
				if _, err := claimKind.in(controller, version, namespace).Create(ctx, claim, metav1.CreateOptions{}); err != nil {
					t.Errorf("with the label: %v", err)
				}
			})
			for name, kind := range map[string]kind{"allocated": claimKind, "pending": claimKind, "template": templateKind} {
				if err := kind.in(s.dynamic, version, namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
					t.Errorf("delete %s: %v", name, err)
				}
			}
		})
	}
}

// TestNamespaceIsBeingDeleted covers that nothing can be created in a namespace that is
// being deleted, and nothing in one that does not exist.
func TestNamespaceIsBeingDeleted(t *testing.T) {
	s := startServer(t)
	ctx := context.Background()
	labelled := s.namespace(t, map[string]string{labelKeys[0]: "true"})
	plain := s.namespace(t, nil)
	for _, namespace := range []string{labelled, plain} {
		// There is no controller which would finish it.
		if err := s.client.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		// The admission plugin learns of it by a watch.
		eventually(t, "nothing can be created", func() error {
			_, err := claimKind.in(s.dynamic, s.versions[0], namespace).Create(ctx, claimKind.object(s.versions[0], "plain", false), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if !apierrors.IsForbidden(err) {
				return fmt.Errorf("want 403, got %v", err)
			}
			return nil
		})
	}
	for _, version := range s.versions {
		for _, namespace := range []string{labelled, plain, "no-such-namespace"} {
			for _, k := range kinds {
				for _, a := range creations(s.dynamic, k, version, namespace) {
					t.Run(version+"/"+namespace+"/"+k.name+"/"+a.name, func(t *testing.T) {
						if err := a.do(ctx); err == nil {
							t.Error("this was allowed")
						}
					})
				}
			}
		}
	}
	s.expectNone(t, labelled)
	s.expectNone(t, plain)
}

// TestNamespaceReads covers that the namespace is read once for a request with the flag, and not at all
// for one without.
func TestNamespaceReads(t *testing.T) {
	s := startServer(t)
	ctx := context.Background()
	namespace := s.namespace(t, map[string]string{labelKeys[0]: "true"})
	version := s.versions[0]
	reads := func() int {
		return len(s.audited(t, func(e auditEvent) bool {
			return e.ObjectRef.Resource == "namespaces" && e.ObjectRef.Name == namespace && e.Verb == "get" && e.User.Username == "system:apiserver"
		}))
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	before := reads()
	for i := range 5 {
		create(t, s.dynamic, claimKind, version, namespace, fmt.Sprintf("plain-%d", i), false, false)
		create(t, s.dynamic, templateKind, version, namespace, fmt.Sprintf("plain-%d", i), false, false)
	}
	if n := reads() - before; n != 0 {
		t.Errorf("10 objects without the flag: want no reads of the namespace, got %d", n)
	}
	before = reads()
	for i := range 5 {
		create(t, s.dynamic, claimKind, version, namespace, fmt.Sprintf("admin-%d", i), true, true, true)
		create(t, s.dynamic, templateKind, version, namespace, fmt.Sprintf("admin-%d", i), true, true, true)
	}
	do(grants(s.dynamic, version, namespace, "admin-0")[1].do(ctx))
	if n := reads() - before; n != 11 {
		t.Errorf("10 objects with the flag in three requests, and an allocation: want 11 reads of the namespace, got %d", n)
	}
	before = reads()
	for _, patch := range []string{`{"metadata":{"annotations":{"a":"b"}}}`, `{"metadata":{"annotations":null}}`} {
		_, err := claimKind.in(s.dynamic, version, namespace).Patch(ctx, "admin-0", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		do(err)
	}
	_, err := claimKind.in(s.dynamic, version, namespace).Patch(ctx, "admin-0", types.MergePatchType, []byte(`{"status":{"reservedFor":[{"resource":"pods","name":"pod","uid":"1"}]}}`), metav1.PatchOptions{}, "status")
	do(err)
	if n := reads() - before; n != 0 {
		t.Errorf("updates of an object that has the flag: want no reads of the namespace, got %d", n)
	}
}

// TestAuditLog covers what an auditor finds.
func TestAuditLog(t *testing.T) {
	const annotation = "resource.kubernetes.io/admin-access-granted"
	s := startServer(t)
	ctx := context.Background()
	namespace := s.namespace(t, map[string]string{labelKeys[0]: "true"})
	other := s.namespace(t, nil)
	version := s.versions[0]
	const user = "jane"
	s.allowAll(t, user, namespace)
	client, _ := s.as(user)
	create(t, client, claimKind, version, namespace, "claim", false, true, true)
	create(t, client, templateKind, version, namespace, "template", true)
	create(t, client, claimKind, version, namespace, "plain", false)
	if err := grants(s.dynamic, version, namespace, "claim")[1].do(ctx); err != nil {
		t.Fatal(err)
	}
	for _, a := range creations(s.dynamic, claimKind, version, other) {
		expectRefused(t, a.do(ctx), a.path)
	}
	// Refused for another reason.
	invalid := claimKind.object(version, "Invalid_Name", true)
	if _, err := claimKind.in(client, version, namespace).Create(ctx, invalid, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Fatalf("want 422, got: %v", err)
	}

	var got []string
	for _, event := range s.audited(t, func(e auditEvent) bool { return e.Annotations[annotation] != "" }) {
		subresource := ""
		if event.ObjectRef.Subresource != "" {
			subresource = "/" + event.ObjectRef.Subresource
		}
		if event.ObjectRef.Namespace != namespace {
			t.Errorf("unexpected %+v", event)
		}
		got = append(got, fmt.Sprintf("%s %s%s %s %d: %s", event.Verb, event.ObjectRef.Resource, subresource, event.ObjectRef.Name, event.ResponseStatus.Code, event.Annotations[annotation]))
	}
	want := []string{
		`create resourceclaims claim 201: {"user":"jane","label":"kubernetes.io/dra-admin-access","requests":["req-1","req-2"]}`,
		`create resourceclaimtemplates template 201: {"user":"jane","label":"kubernetes.io/dra-admin-access","requests":["req-0"]}`,
		`update resourceclaims/status claim 200: {"user":"system:apiserver","label":"kubernetes.io/dra-admin-access","devices":["driver.example.com/pool/device-1"]}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("want\n%s\ngot\n%s", strings.Join(want, "\n"), strings.Join(got, "\n"))
	}
}
