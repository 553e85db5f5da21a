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
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/onsi/gomega"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	kubeapiservertesting "k8s.io/kubernetes/cmd/kube-apiserver/app/testing"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	ktesting "k8s.io/kubernetes/test/utils/client-go/ktesting"
	"k8s.io/utils/ptr"
)

func claimsIn(version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "resource.k8s.io", Version: version, Resource: "resourceclaims"}
}

func templatesIn(version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "resource.k8s.io", Version: version, Resource: "resourceclaimtemplates"}
}

// object is what a user would write in JSON.
type object = map[string]any

// claimSpec is the spec of a claim for one device in the given version.
func claimSpec(version string, reservedFor any) object {
	request := object{"name": "req", "exactly": object{"deviceClassName": className}}
	if version == "v1beta1" || version == "v1alpha3" {
		request = object{"name": "req", "deviceClassName": className}
	}
	spec := object{"devices": object{"requests": []any{request}}}
	if reservedFor != nil {
		spec["reservedFor"] = reservedFor
	}
	return spec
}

func unstructuredClaim(version, name string, reservedFor any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: object{
		"apiVersion": "resource.k8s.io/" + version,
		"kind":       "ResourceClaim",
		"metadata":   object{"name": name},
		"spec":       claimSpec(version, reservedFor),
	}}
}

func unstructuredTemplate(version, name string, reservedFor any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: object{
		"apiVersion": "resource.k8s.io/" + version,
		"kind":       "ResourceClaimTemplate",
		"metadata":   object{"name": name},
		"spec":       object{"spec": claimSpec(version, reservedFor)},
	}}
}

func allocation(anyPod any) object {
	a := object{"devices": object{"results": []any{object{"request": "req", "driver": driverName, "pool": "pool", "device": "device-0"}}}}
	if anyPod != nil {
		a["reservedForAnyPod"] = anyPod
	}
	return a
}

// expectInvalid checks that a request was refused with 422 because of exactly the
// given problem.
func expectInvalid(tCtx ktesting.TContext, err error, reason metav1.CauseType, path string) {
	tCtx.Helper()
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code != 422 {
		tCtx.Fatalf("expected 422, got: %v", err)
	}
	var causes []string
	for _, cause := range status.Status().Details.Causes {
		if cause.Type == reason && cause.Field == path {
			return
		}
		causes = append(causes, fmt.Sprintf("%s at %s (%s)", cause.Type, cause.Field, cause.Message))
	}
	tCtx.Fatalf("expected %s at %s, got: %s", reason, path, strings.Join(causes, "; "))
}

// TestBadInput sends what is wrong in every version and expects the explanation.
func TestBadInput(t *testing.T) {
	tCtx := ktesting.Init(t)
	setGate(tCtx, true)
	c := startAPIServer(tCtx)
	namespace := c.createNamespace()

	ref := func(edit func(ref object)) object {
		r := object{"apiGroup": "batch", "resource": "jobs", "name": "train", "uid": "3c1f"}
		edit(r)
		return r
	}
	remove := func(key string) func(object) { return func(ref object) { delete(ref, key) } }
	set := func(key, value string) func(object) { return func(ref object) { ref[key] = value } }
	corePods := func(ref object) { delete(ref, "apiGroup"); ref["resource"] = "pods" }

	for _, version := range versions {
		run(tCtx, version, func(tCtx ktesting.TContext) {
			c := c.withTest(tCtx)
			claims := c.Dynamic().Resource(claimsIn(version)).Namespace(namespace)
			templates := c.Dynamic().Resource(templatesIn(version)).Namespace(namespace)

			for name, tc := range map[string]struct {
				edit   func(ref object)
				reason metav1.CauseType
				path   string
			}{
				"no-resource":            {remove("resource"), metav1.CauseTypeFieldValueRequired, "spec.reservedFor.resource"},
				"no-name":                {remove("name"), metav1.CauseTypeFieldValueRequired, "spec.reservedFor.name"},
				"group-not-a-subdomain":  {set("apiGroup", "not_a_domain"), metav1.CauseTypeFieldValueInvalid, "spec.reservedFor.apiGroup"},
				"group-with-version":     {set("apiGroup", "batch/v1"), metav1.CauseTypeFieldValueInvalid, "spec.reservedFor.apiGroup"},
				"resource-with-slash":    {set("resource", "jobs/status"), metav1.CauseTypeFieldValueInvalid, "spec.reservedFor.resource"},
				"resource-in-upper-case": {set("resource", "Jobs"), metav1.CauseTypeFieldValueInvalid, "spec.reservedFor.resource"},
				"core-pods":              {corePods, metav1.CauseTypeFieldValueInvalid, "spec.reservedFor.resource"},
			} {
				run(tCtx, "create-"+name, func(tCtx ktesting.TContext) {
					_, err := claims.Create(tCtx, unstructuredClaim(version, "bad-"+name, ref(tc.edit)), metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
					expectInvalid(tCtx, err, tc.reason, tc.path)
				})
			}
			for name, edit := range map[string]func(object){
				"with-uid":    func(object) {},
				"without-uid": remove("uid"),
				"core-group":  func(ref object) { delete(ref, "apiGroup"); ref["resource"] = "replicationcontrollers" },
				"other-pods":  func(ref object) { ref["apiGroup"] = "example.com"; ref["resource"] = "pods" },
			} {
				run(tCtx, "good-"+name, func(tCtx ktesting.TContext) {
					want := ref(edit)
					claim, err := claims.Create(tCtx, unstructuredClaim(version, "good-"+name+"-"+version, want), metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
					tCtx.ExpectNoError(err, "create claim")
					tCtx.Expect(reference(claim)).To(gomega.Equal(want))
				})
			}

			run(tCtx, "template", func(tCtx ktesting.TContext) {
				_, err := templates.Create(tCtx, unstructuredTemplate(version, "bad", ref(remove("uid"))), metav1.CreateOptions{})
				expectInvalid(tCtx, err, metav1.CauseTypeForbidden, "spec.spec.reservedFor.name")
				want := object{"apiGroup": "batch", "resource": "jobs"}
				template, err := templates.Create(tCtx, unstructuredTemplate(version, "for-jobs-"+version, want), metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
				tCtx.ExpectNoError(err, "create template")
				tCtx.Expect(nested(template, "spec", "spec", "reservedFor")).To(gomega.Equal(want))
				_, err = templates.Create(tCtx, unstructuredTemplate(version, "good-"+version, nil), metav1.CreateOptions{})
				tCtx.ExpectNoError(err, "create template without the field")
			})

			for name, edit := range map[string]func(claim *unstructured.Unstructured){
				"changed":     func(claim *unstructured.Unstructured) { nested(claim, "spec", "reservedFor")["name"] = "other" },
				"uid-added":   func(claim *unstructured.Unstructured) { nested(claim, "spec", "reservedFor")["uid"] = "4711" },
				"other-group": func(claim *unstructured.Unstructured) { nested(claim, "spec", "reservedFor")["apiGroup"] = "apps" },
			} {
				run(tCtx, "immutable-"+name, func(tCtx ktesting.TContext) {
					claim, err := claims.Create(tCtx, unstructuredClaim(version, "immutable-"+name+"-"+version, ref(remove("uid"))), metav1.CreateOptions{})
					tCtx.ExpectNoError(err, "create claim")
					edit(claim)
					_, err = claims.Update(tCtx, claim, metav1.UpdateOptions{})
					expectInvalid(tCtx, err, metav1.CauseTypeFieldValueInvalid, "spec")
				})
			}
			run(tCtx, "immutable-added", func(tCtx ktesting.TContext) {
				claim, err := claims.Create(tCtx, unstructuredClaim(version, "immutable-added-"+version, nil), metav1.CreateOptions{})
				tCtx.ExpectNoError(err, "create claim")
				nested(claim, "spec")["reservedFor"] = ref(func(object) {})
				_, err = claims.Update(tCtx, claim, metav1.UpdateOptions{})
				expectInvalid(tCtx, err, metav1.CauseTypeFieldValueInvalid, "spec")
			})

			for name, tc := range map[string]struct {
				specRef any
				status  object
				reason  metav1.CauseType
				path    string
			}{
				"any-pod-without-spec": {
					status: object{"allocation": allocation(true), "reservedFor": []any{ref(func(object) {})}},
					reason: metav1.CauseTypeForbidden, path: "status.allocation.reservedForAnyPod",
				},
				"any-pod-false-without-spec": {
					status: object{"allocation": allocation(false), "reservedFor": []any{ref(func(object) {})}},
					reason: metav1.CauseTypeForbidden, path: "status.allocation.reservedForAnyPod",
				},
				"no-uid": {
					specRef: ref(remove("uid")),
					status:  object{"allocation": allocation(true), "reservedFor": []any{ref(remove("uid"))}},
					reason:  metav1.CauseTypeFieldValueRequired, path: "status.reservedFor[0].uid",
				},
				"no-allocation": {
					specRef: ref(remove("uid")),
					status:  object{"reservedFor": []any{ref(func(object) {})}},
					reason:  metav1.CauseTypeForbidden, path: "status.reservedFor",
				},
				"no-resource": {
					specRef: ref(remove("uid")),
					status:  object{"allocation": allocation(true), "reservedFor": []any{ref(remove("resource"))}},
					reason:  metav1.CauseTypeFieldValueRequired, path: "status.reservedFor[0].resource",
				},
				"resource-in-upper-case": {
					specRef: ref(remove("uid")),
					status:  object{"allocation": allocation(true), "reservedFor": []any{ref(set("resource", "Jobs"))}},
					reason:  metav1.CauseTypeFieldValueInvalid, path: "status.reservedFor[0].resource",
				},
			} {
				run(tCtx, "status-"+name, func(tCtx ktesting.TContext) {
					claim, err := claims.Create(tCtx, unstructuredClaim(version, "status-"+name+"-"+version, tc.specRef), metav1.CreateOptions{})
					tCtx.ExpectNoError(err, "create claim")
					claim.Object["status"] = tc.status
					_, err = claims.UpdateStatus(tCtx, claim, metav1.UpdateOptions{})
					expectInvalid(tCtx, err, tc.reason, tc.path)
				})
			}

			run(tCtx, "release-when-idle", func(tCtx ktesting.TContext) {
				const annotation = "resource.kubernetes.io/release-when-idle"
				withAnnotation := func(name, value string, reservedFor any) *unstructured.Unstructured {
					claim := unstructuredClaim(version, "idle-"+name+"-"+version, reservedFor)
					claim.SetAnnotations(map[string]string{annotation: value})
					return claim
				}
				path := "metadata.annotations[" + annotation + "]"
				for _, value := range []string{"", "soon", "600", "9s", "-10m"} {
					_, err := claims.Create(tCtx, withAnnotation("bad", value, ref(remove("uid"))), metav1.CreateOptions{})
					expectInvalid(tCtx, err, metav1.CauseTypeFieldValueInvalid, path)
				}
				claim, err := claims.Create(tCtx, withAnnotation("good", "10s", ref(remove("uid"))), metav1.CreateOptions{})
				tCtx.ExpectNoError(err, "create claim with valid annotation")
				changed := claim.DeepCopy()
				changed.SetAnnotations(map[string]string{annotation: "soon"})
				_, err = claims.Update(tCtx, changed, metav1.UpdateOptions{})
				expectInvalid(tCtx, err, metav1.CauseTypeFieldValueInvalid, path)
				claim.SetAnnotations(map[string]string{annotation: "1h30m"})
				claim, err = claims.Update(tCtx, claim, metav1.UpdateOptions{})
				tCtx.ExpectNoError(err, "change annotation")
				// Not the way to change it.
				claim.SetAnnotations(map[string]string{annotation: "soon"})
				claim.Object["status"] = object{"allocation": allocation(true), "reservedFor": []any{ref(func(object) {})}}
				claim, err = claims.UpdateStatus(tCtx, claim, metav1.UpdateOptions{})
				tCtx.ExpectNoError(err, "update status")
				tCtx.Expect(claim.GetAnnotations()).To(gomega.HaveKeyWithValue(annotation, "1h30m"))

				// Without meaning there, so anything goes.
				_, err = claims.Create(tCtx, withAnnotation("other", "soon", nil), metav1.CreateOptions{})
				tCtx.ExpectNoError(err, "create claim which is not reserved for a workload")
			})

			run(tCtx, "status-allocated-for-any-pod", func(tCtx ktesting.TContext) {
				claim, err := claims.Create(tCtx, unstructuredClaim(version, "status-good-"+version, ref(remove("uid"))), metav1.CreateOptions{})
				tCtx.ExpectNoError(err, "create claim")
				claim.Object["status"] = object{"allocation": allocation(true), "reservedFor": []any{ref(func(object) {})}}
				claim, err = claims.UpdateStatus(tCtx, claim, metav1.UpdateOptions{})
				tCtx.ExpectNoError(err, "allocate claim")

				// The allocation is immutable, also this part of it.
				changed := claim.DeepCopy()
				nested(changed, "status", "allocation")["reservedForAnyPod"] = false
				_, err = claims.UpdateStatus(tCtx, changed, metav1.UpdateOptions{})
				expectInvalid(tCtx, err, metav1.CauseTypeFieldValueInvalid, "status.allocation")

				// What one version stores, all versions serve.
				for _, other := range versions {
					stored, err := c.Dynamic().Resource(claimsIn(other)).Namespace(namespace).Get(tCtx, claim.GetName(), metav1.GetOptions{})
					tCtx.ExpectNoError(err, "read as "+other)
					tCtx.Expect(reference(stored)).To(gomega.Equal(ref(remove("uid"))), "spec in "+other)
					tCtx.Expect(nested(stored, "status", "allocation")["reservedForAnyPod"]).To(gomega.BeTrue(), "status in "+other)
				}
			})
		})
	}
}

// TestUnknownToClient covers what a client does which was compiled with upstream's types: it drops the
// new fields from what it reads. Nothing gets lost by that, and nobody else becomes their manager.
func TestUnknownToClient(t *testing.T) {
	tCtx := ktesting.Init(t)
	setGate(tCtx, true)
	c := startAPIServer(tCtx)
	namespace := c.createNamespace()
	const creator, scheduler, client = "creator", "scheduler", "client"

	for _, version := range versions {
		run(tCtx, version, func(tCtx ktesting.TContext) {
			c := c.withTest(tCtx)
			claims := c.Dynamic().Resource(claimsIn(version)).Namespace(namespace)
			want := object{"apiGroup": "batch", "resource": "jobs", "name": "train"}
			newAllocated := func(tCtx ktesting.TContext, name string) *unstructured.Unstructured {
				claim, err := claims.Create(tCtx, unstructuredClaim(version, name+"-"+version, want), metav1.CreateOptions{FieldManager: creator})
				tCtx.ExpectNoError(err, "create claim")
				claim.Object["status"] = object{"allocation": allocation(true)}
				claim, err = claims.UpdateStatus(tCtx, claim, metav1.UpdateOptions{FieldManager: scheduler})
				tCtx.ExpectNoError(err, "allocate claim")
				return claim
			}
			forget := func(claim *unstructured.Unstructured) *unstructured.Unstructured {
				claim = claim.DeepCopy()
				delete(nested(claim, "spec"), "reservedFor")
				delete(nested(claim, "status", "allocation"), "reservedForAnyPod")
				return claim
			}
			for name, change := range map[string]func(tCtx ktesting.TContext, claim *unstructured.Unstructured) (*unstructured.Unstructured, error){
				"update": func(tCtx ktesting.TContext, claim *unstructured.Unstructured) (*unstructured.Unstructured, error) {
					claim = forget(claim)
					claim.SetLabels(map[string]string{"a": "b"})
					return claims.Update(tCtx, claim, metav1.UpdateOptions{FieldManager: client})
				},
				"update-status": func(tCtx ktesting.TContext, claim *unstructured.Unstructured) (*unstructured.Unstructured, error) {
					claim = forget(claim)
					nested(claim, "status")["devices"] = []any{object{"driver": driverName, "pool": "pool", "device": "device-0"}}
					return claims.UpdateStatus(tCtx, claim, metav1.UpdateOptions{FieldManager: client})
				},
				"patch": func(tCtx ktesting.TContext, claim *unstructured.Unstructured) (*unstructured.Unstructured, error) {
					return claims.Patch(tCtx, claim.GetName(), types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}},"spec":{"reservedFor":null}}`), metav1.PatchOptions{FieldManager: client})
				},
				"patch-status": func(tCtx ktesting.TContext, claim *unstructured.Unstructured) (*unstructured.Unstructured, error) {
					return claims.Patch(tCtx, claim.GetName(), types.JSONPatchType, []byte(`[{"op":"remove","path":"/status/allocation/reservedForAnyPod"}]`), metav1.PatchOptions{FieldManager: client}, "status")
				},
				"apply": func(tCtx ktesting.TContext, claim *unstructured.Unstructured) (*unstructured.Unstructured, error) {
					applied := unstructuredClaim(version, claim.GetName(), nil)
					applied.SetLabels(map[string]string{"a": "b"})
					return claims.Apply(tCtx, claim.GetName(), applied, metav1.ApplyOptions{FieldManager: client, Force: true})
				},
				"apply-without": func(tCtx ktesting.TContext, claim *unstructured.Unstructured) (*unstructured.Unstructured, error) {
					if _, err := claims.Apply(tCtx, claim.GetName(), unstructuredClaim(version, claim.GetName(), want), metav1.ApplyOptions{FieldManager: client, Force: true}); err != nil {
						return nil, err
					}
					return claims.Apply(tCtx, claim.GetName(), unstructuredClaim(version, claim.GetName(), nil), metav1.ApplyOptions{FieldManager: client, Force: true})
				},
			} {
				run(tCtx, name, func(tCtx ktesting.TContext) {
					claim, err := change(tCtx, newAllocated(tCtx, name))
					tCtx.ExpectNoError(err)
					for _, other := range versions {
						stored, err := c.Dynamic().Resource(claimsIn(other)).Namespace(namespace).Get(tCtx, claim.GetName(), metav1.GetOptions{})
						tCtx.ExpectNoError(err, "read as "+other)
						tCtx.Expect(reference(stored)).To(gomega.Equal(want), "spec in "+other)
						tCtx.Expect(nested(stored, "status", "allocation")["reservedForAnyPod"]).To(gomega.BeTrue(), "status in "+other)
					}
					tCtx.Expect(managersOf(claim, `"f:reservedFor":{".":{}`)).To(gomega.ContainElement(creator))
					tCtx.Expect(managersOf(claim, `"f:reservedForAnyPod"`)).To(gomega.Equal([]string{scheduler}))
				})
			}
		})
	}
}

// managersOf returns who manages a field, which is given as it is in managedFields.
func managersOf(claim *unstructured.Unstructured, field string) []string {
	var managers []string
	for _, entry := range claim.GetManagedFields() {
		if entry.FieldsV1 != nil && strings.Contains(string(entry.FieldsV1.Raw), field) {
			managers = append(managers, entry.Manager)
		}
	}
	return managers
}

// reference returns spec.reservedFor.
func reference(claim *unstructured.Unstructured) object {
	return nested(claim, "spec", "reservedFor")
}

func nested(obj *unstructured.Unstructured, fields ...string) object {
	m := obj.Object
	for _, field := range fields {
		next, ok := m[field].(object)
		if !ok {
			return object{}
		}
		m = next
	}
	return m
}

// TestClaimBeingDeleted checks that nothing can start to use a claim which is on
// its way out.
func TestClaimBeingDeleted(t *testing.T) {
	tCtx := ktesting.Init(t)
	setGate(tCtx, true)
	c := startAPIServer(tCtx)
	namespace := c.createNamespace()
	ref := reservedFor(jobs, "train", "uid-1")

	claim := newClaim(namespace, "going", className, reservedFor(jobs, "train", ""))
	claim.Finalizers = []string{"example.com/wait"}
	claim = c.createClaim(claim)
	claim = c.allocate(claim, true, *ref)
	tCtx.ExpectNoError(resourceClient(c.Client()).ResourceClaims(namespace).Delete(tCtx, claim.Name, metav1.DeleteOptions{}), "delete claim")
	claim = c.getClaim(namespace, claim.Name)

	claim.Status.ReservedFor = append(claim.Status.ReservedFor, *reservedFor(jobs, "train", "uid-2"))
	_, err := resourceClient(c.Client()).ResourceClaims(namespace).UpdateStatus(tCtx, claim, metav1.UpdateOptions{})
	expectInvalid(tCtx, err, metav1.CauseTypeForbidden, "status.reservedFor")

	claim.Status.ReservedFor = nil
	claim, err = resourceClient(c.Client()).ResourceClaims(namespace).UpdateStatus(tCtx, claim, metav1.UpdateOptions{})
	tCtx.ExpectNoError(err, "removing the reference must remain possible")
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{*ref}
	_, err = resourceClient(c.Client()).ResourceClaims(namespace).UpdateStatus(tCtx, claim, metav1.UpdateOptions{})
	expectInvalid(tCtx, err, metav1.CauseTypeForbidden, "status.reservedFor")
}

// allocate does what the scheduler would do to a claim.
func (c *cluster) allocate(claim *resourceapi.ResourceClaim, anyPod bool, refs ...resourceapi.ResourceClaimConsumerReference) *resourceapi.ResourceClaim {
	c.Helper()
	claim = claim.DeepCopy()
	claim.Status = *allocatedStatus(anyPod, refs...)
	claim, err := resourceClient(c.Client()).ResourceClaims(claim.Namespace).UpdateStatus(c, claim, metav1.UpdateOptions{})
	c.ExpectNoError(err, "allocate claim")
	return claim
}

// allocatedStatus is the status of a claim that somebody other than the scheduler allocated.
func allocatedStatus(anyPod bool, refs ...resourceapi.ResourceClaimConsumerReference) *resourceapi.ResourceClaimStatus {
	status := &resourceapi.ResourceClaimStatus{
		Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
			Results: []resourceapi.DeviceRequestAllocationResult{{Request: "req", Driver: driverName, Pool: "pool", Device: "device-0"}},
		}},
		ReservedFor: refs,
	}
	if anyPod {
		status.Allocation.ReservedForAnyPod = ptr.To(true)
	}
	return status
}

// TestGateOffOnOff goes through the life of stored objects while the gate changes.
func TestGateOffOnOff(t *testing.T) {
	tCtx := ktesting.Init(t)
	setGate(tCtx, false)
	c, etcd := startAPIServerWithEtcd(tCtx)
	namespace := c.createNamespace()
	ref := object{"apiGroup": "batch", "resource": "jobs", "name": "train"}
	withUID := object{"apiGroup": "batch", "resource": "jobs", "name": "train", "uid": "uid-1"}

	each := func(step string, cb func(tCtx ktesting.TContext, version string, claims dynamic.ResourceInterface)) {
		run(tCtx, step, func(tCtx ktesting.TContext) {
			for _, version := range versions {
				run(tCtx, version, func(tCtx ktesting.TContext) {
					tCtx = withRESTConfig(tCtx, c.admin)
					cb(tCtx, version, tCtx.Dynamic().Resource(claimsIn(version)).Namespace(namespace))
				})
			}
		})
	}
	hasField := func(claim *unstructured.Unstructured) bool {
		_, found, _ := unstructured.NestedFieldNoCopy(claim.Object, "spec", "reservedFor")
		return found
	}

	each("off: dropped on create", func(tCtx ktesting.TContext, version string, claims dynamic.ResourceInterface) {
		without, err := claims.Create(tCtx, unstructuredClaim(version, "without-"+version, nil), metav1.CreateOptions{})
		tCtx.ExpectNoError(err, "create claim without the field")
		claim, err := claims.Create(tCtx, unstructuredClaim(version, "dropped-"+version, ref), metav1.CreateOptions{})
		tCtx.ExpectNoError(err, "create claim with the field")
		if hasField(claim) {
			tCtx.Error("the field should have been dropped")
		}
		// An invalid value gets dropped as well instead of being refused.
		_, err = claims.Create(tCtx, unstructuredClaim(version, "invalid-"+version, object{"resource": "a/b", "name": "x"}), metav1.CreateOptions{})
		tCtx.ExpectNoError(err, "create claim with invalid value")

		// What gets stored is the same as without the field.
		tCtx.Expect(etcd.decode(tCtx, namespace, claim.GetName())).To(gomega.Equal(etcd.decode(tCtx, namespace, without.GetName())), "stored object")
		if bytes.Contains(etcd.get(tCtx, namespace, claim.GetName()), []byte("train")) {
			tCtx.Error("the dropped reference was stored")
		}

		claim.Object["status"] = object{"allocation": allocation(true), "reservedFor": []any{withUID}}
		claim, err = claims.UpdateStatus(tCtx, claim, metav1.UpdateOptions{})
		tCtx.ExpectNoError(err, "allocate with the field")
		if _, found := nested(claim, "status", "allocation")["reservedForAnyPod"]; found {
			tCtx.Error("the field in the status should have been dropped")
		}
	})

	run(tCtx, "off: templates", func(tCtx ktesting.TContext) {
		for _, version := range versions {
			template, err := c.Dynamic().Resource(templatesIn(version)).Namespace(namespace).Create(tCtx, unstructuredTemplate(version, "dropped-"+version, ref), metav1.CreateOptions{})
			tCtx.ExpectNoError(err, "create template")
			if _, found := nested(template, "spec", "spec")["reservedFor"]; found {
				tCtx.Errorf("%s: the field should have been dropped", version)
			}
		}
	})

	setGate(tCtx, true)
	stored := map[string][]byte{}
	each("on: stored", func(tCtx ktesting.TContext, version string, claims dynamic.ResourceInterface) {
		claim, err := claims.Create(tCtx, unstructuredClaim(version, "kept-"+version, ref), metav1.CreateOptions{})
		tCtx.ExpectNoError(err, "create claim")
		tCtx.Expect(reference(claim)).To(gomega.Equal(ref))
		claim.Object["status"] = object{"allocation": allocation(true), "reservedFor": []any{withUID}}
		_, err = claims.UpdateStatus(tCtx, claim, metav1.UpdateOptions{})
		tCtx.ExpectNoError(err, "allocate")
		stored["kept-"+version] = etcd.get(tCtx, namespace, "kept-"+version)

		// Never allocated, for the claim that only gets its allocation while the gate is off.
		_, err = claims.Create(tCtx, unstructuredClaim(version, "late-"+version, ref), metav1.CreateOptions{})
		tCtx.ExpectNoError(err, "create claim")
	})

	setGate(tCtx, false)
	each("off: intact", func(tCtx ktesting.TContext, version string, claims dynamic.ResourceInterface) {
		name := "kept-" + version
		for _, other := range versions {
			claim, err := tCtx.Dynamic().Resource(claimsIn(other)).Namespace(namespace).Get(tCtx, name, metav1.GetOptions{})
			tCtx.ExpectNoError(err, "read as "+other)
			tCtx.Expect(reference(claim)).To(gomega.Equal(ref), "spec in "+other)
			tCtx.Expect(nested(claim, "status", "allocation")["reservedForAnyPod"]).To(gomega.BeTrue(), "status in "+other)
		}
		claim, err := claims.Get(tCtx, name, metav1.GetOptions{})
		tCtx.ExpectNoError(err, "get claim")

		// Re-storing without change leaves the bytes alone, a change of something else
		// leaves the fields alone.
		claim, err = claims.Update(tCtx, claim, metav1.UpdateOptions{})
		tCtx.ExpectNoError(err, "re-store")
		tCtx.Expect(etcd.get(tCtx, namespace, name)).To(gomega.Equal(stored[name]), "stored bytes")
		claim.SetLabels(map[string]string{"touched": "yes"})
		claim, err = claims.Update(tCtx, claim, metav1.UpdateOptions{})
		tCtx.ExpectNoError(err, "add label")
		tCtx.Expect(reference(claim)).To(gomega.Equal(ref), "spec after update")
		tCtx.Expect(nested(claim, "status", "allocation")["reservedForAnyPod"]).To(gomega.BeTrue(), "status after update")

		// Shrinking the list is an update of the status.
		nested(claim, "status")["reservedFor"] = []any{}
		claim, err = claims.UpdateStatus(tCtx, claim, metav1.UpdateOptions{})
		tCtx.ExpectNoError(err, "release")
		tCtx.Expect(nested(claim, "status", "allocation")["reservedForAnyPod"]).To(gomega.BeTrue(), "status after release")
		delete(nested(claim, "status"), "allocation")
		claim, err = claims.UpdateStatus(tCtx, claim, metav1.UpdateOptions{})
		tCtx.ExpectNoError(err, "deallocate")
		tCtx.Expect(reference(claim)).To(gomega.Equal(ref), "spec after deallocation")
	})

	setGate(tCtx, true)
	each("on again", func(tCtx ktesting.TContext, version string, claims dynamic.ResourceInterface) {
		claim, err := claims.Get(tCtx, "kept-"+version, metav1.GetOptions{})
		tCtx.ExpectNoError(err, "get claim")
		tCtx.Expect(reference(claim)).To(gomega.Equal(ref))
		claim.Object["status"] = object{"allocation": allocation(true), "reservedFor": []any{withUID}}
		claim, err = claims.UpdateStatus(tCtx, claim, metav1.UpdateOptions{})
		tCtx.ExpectNoError(err, "allocate again")
		tCtx.Expect(nested(claim, "status", "allocation")["reservedForAnyPod"]).To(gomega.BeTrue())

		dropped, err := claims.Get(tCtx, "dropped-"+version, metav1.GetOptions{})
		tCtx.ExpectNoError(err, "get claim")
		if hasField(dropped) {
			tCtx.Error("a dropped field cannot come back")
		}
	})
}

// etcdReader reads stored objects.
type etcdReader struct {
	server kubeapiservertesting.TestServer
}

func (e etcdReader) get(tCtx ktesting.TContext, namespace, name string) []byte {
	tCtx.Helper()
	key := "/" + e.server.EtcdStoragePrefix + "/resourceclaims/" + namespace + "/" + name
	resp, err := e.server.EtcdClient.Get(tCtx, key)
	tCtx.ExpectNoError(err, "read from etcd")
	if len(resp.Kvs) != 1 {
		tCtx.Fatalf("%s: expected one stored object, got %d", key, len(resp.Kvs))
	}
	return slices.Clone(resp.Kvs[0].Value)
}

// decode reads a stored object and removes what differs between any two objects.
func (e etcdReader) decode(tCtx ktesting.TContext, namespace, name string) runtime.Object {
	tCtx.Helper()
	obj, _, err := legacyscheme.Codecs.UniversalDeserializer().Decode(e.get(tCtx, namespace, name), nil, nil)
	tCtx.ExpectNoError(err, "decode stored object")
	accessor, err := meta.Accessor(obj)
	tCtx.ExpectNoError(err)
	accessor.SetName("")
	accessor.SetUID("")
	accessor.SetCreationTimestamp(metav1.Time{})
	// Records what was sent, even if it was dropped. This is the same for all fields
	// that get dropped.
	accessor.SetManagedFields(nil)
	return obj
}
