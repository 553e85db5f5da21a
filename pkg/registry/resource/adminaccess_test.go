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

package resource

import (
	"context"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/apis/resource"
	"k8s.io/utils/ptr"
)

const adminTestNamespace = "test-ns"

// adminTestClient returns a client with one namespace, or one that fails, and a function
// which counts the requests.
func adminTestClient(labels map[string]string, err error) (*fake.Clientset, func() int) {
	client := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: adminTestNamespace, Labels: labels}})
	if err != nil {
		client.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
	}
	return client, func() int { return len(client.Actions()) }
}

// auditedContext returns a context like that of a request which gets audited and is made by a
// user, and a function that returns the annotation.
func auditedContext() (context.Context, func() string) {
	ctx := audit.WithAuditContext(genericapirequest.WithUser(context.Background(), &user.DefaultInfo{Name: "jane"}))
	return ctx, func() string { return auditAnnotation(ctx, AdminAccessAuditAnnotation) }
}

// TestAdminAccessLabels covers which labels of the namespace count. The same function decides
// for claims, templates and the status, so one kind is enough.
func TestAdminAccessLabels(t *testing.T) {
	for name, tc := range map[string]struct {
		labels  map[string]string
		allowed string // the key
	}{
		"none":              {},
		"KEP":               {labels: map[string]string{"kubernetes.io/dra-admin-access": "true"}, allowed: "kubernetes.io/dra-admin-access"},
		"1.33":              {labels: map[string]string{"resource.k8s.io/admin-access": "true"}, allowed: "resource.k8s.io/admin-access"},
		"1.34":              {labels: map[string]string{"resource.kubernetes.io/admin-access": "true"}, allowed: "resource.kubernetes.io/admin-access"},
		"True":              {labels: map[string]string{"kubernetes.io/dra-admin-access": "True"}},
		"TRUE":              {labels: map[string]string{"resource.k8s.io/admin-access": "TRUE"}},
		"empty":             {labels: map[string]string{"resource.kubernetes.io/admin-access": ""}},
		"1":                 {labels: map[string]string{"resource.kubernetes.io/admin-access": "1"}},
		"false":             {labels: map[string]string{"resource.kubernetes.io/admin-access": "false"}},
		"other key":         {labels: map[string]string{"kubernetes.io/admin-access": "true"}},
		"suffix":            {labels: map[string]string{"kubernetes.io/dra-admin-access-x": "true"}},
		"one of two counts": {labels: map[string]string{"resource.kubernetes.io/admin-access": "false", "kubernetes.io/dra-admin-access": "true"}, allowed: "kubernetes.io/dra-admin-access"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, annotation := auditedContext()
			client, reads := adminTestClient(tc.labels, nil)
			spec := &resource.ResourceClaimSpec{Devices: resource.DeviceClaim{Requests: []resource.DeviceRequest{deviceRequest("a", ptr.To(true))}}}
			access := AuthorizeAdminClaim(ctx, &metav1.ObjectMeta{Namespace: adminTestNamespace}, spec, nil, field.NewPath("spec"), client.CoreV1().Namespaces())
			errs := access.Audit(ctx, access.Errors())
			assert.Equal(t, 1, reads(), "reads of the namespace")
			if tc.allowed != "" {
				assert.Empty(t, errs)
				assert.Equal(t, `{"user":"jane","label":"`+tc.allowed+`","requests":["a"]}`, annotation())
				return
			}
			assert.Empty(t, annotation())
			require.Len(t, errs, 1)
			assert.Equal(t, field.ErrorTypeForbidden, errs[0].Type)
			for _, text := range append([]string{"spec.devices.requests[0]" + adminRequestPath, `"` + adminTestNamespace + `"`}, adminAccessLabelKeys...) {
				assert.Contains(t, errs[0].Error(), text)
			}
			// Tests of upstream expect these words.
			assert.Contains(t, errs[0].Error(), "admin access to devices requires the `"+adminAccessLabelKeys[0]+": true` label on the containing namespace")
		})
	}
}

// TestAuthorizeAdminClaim covers for what the namespace must have the label.
func TestAuthorizeAdminClaim(t *testing.T) {
	spec := func(requests ...resource.DeviceRequest) *resource.ResourceClaimSpec {
		return &resource.ResourceClaimSpec{Devices: resource.DeviceClaim{Requests: requests}}
	}
	normal := deviceRequest("normal", nil)
	off := deviceRequest("off", ptr.To(false))
	a, b := deviceRequest("a", ptr.To(true)), deviceRequest("b", ptr.To(true))

	for name, tc := range map[string]struct {
		spec, old *resource.ResourceClaimSpec
		err       error
		path      *field.Path
		// expectPath is where the error is; empty if no permission is needed.
		expectPath string
		expectType field.ErrorType
		// expectRequests are in the audit annotation when the namespace has the label.
		expectRequests string
	}{
		"no requests":                  {spec: spec()},
		"no admin access":              {spec: spec(normal, off)},
		"no admin access, no storage":  {spec: spec(normal, off), err: errors.New("storage is down")},
		"first":                        {spec: spec(a, normal), expectPath: "spec.devices.requests[0]", expectRequests: `"a"`},
		"second of three":              {spec: spec(normal, a, off), expectPath: "spec.devices.requests[1]", expectRequests: `"a"`},
		"two":                          {spec: spec(normal, a, b), expectPath: "spec.devices.requests[1]", expectRequests: `"a","b"`},
		"template":                     {spec: spec(a), path: field.NewPath("spec", "spec"), expectPath: "spec.spec.devices.requests[0]", expectRequests: `"a"`},
		"namespace cannot be read":     {spec: spec(a), err: errors.New("storage is down"), expectPath: "spec.devices.requests[0]", expectType: field.ErrorTypeInternal},
		"update without admin access":  {spec: spec(normal), old: spec(normal)},
		"update keeps it":              {spec: spec(normal, a), old: spec(normal, a)},
		"update removes it":            {spec: spec(normal), old: spec(normal, a)},
		"update adds it":               {spec: spec(deviceRequest("normal", ptr.To(true))), old: spec(normal), expectPath: "spec.devices.requests[0]", expectRequests: `"normal"`},
		"update adds it to false":      {spec: spec(deviceRequest("off", ptr.To(true))), old: spec(off), expectPath: "spec.devices.requests[0]", expectRequests: `"off"`},
		"update adds another request":  {spec: spec(a, b), old: spec(a), expectPath: "spec.devices.requests[1]", expectRequests: `"b"`},
		"update moves it to a request": {spec: spec(b), old: spec(a), expectPath: "spec.devices.requests[0]", expectRequests: `"b"`},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.path == nil {
				tc.path = field.NewPath("spec")
			}
			meta := &metav1.ObjectMeta{Namespace: adminTestNamespace}
			check := func(labels map[string]string) (field.ErrorList, string, int) {
				ctx, annotation := auditedContext()
				client, reads := adminTestClient(labels, tc.err)
				access := AuthorizeAdminClaim(ctx, meta, tc.spec, tc.old, tc.path, client.CoreV1().Namespaces())
				return access.Audit(ctx, access.Errors()), annotation(), reads()
			}

			errs, annotation, reads := check(nil)
			assert.Empty(t, annotation)
			if tc.expectPath == "" {
				assert.Empty(t, errs)
				assert.Zero(t, reads, "reads of the namespace")
				return
			}
			assert.Equal(t, 1, reads, "reads of the namespace")
			require.Len(t, errs, 1)
			if tc.expectType == "" {
				tc.expectType = field.ErrorTypeForbidden
			}
			assert.Equal(t, tc.expectType, errs[0].Type)
			assert.Equal(t, tc.expectPath+adminRequestPath, errs[0].Field)

			errs, annotation, reads = check(map[string]string{"kubernetes.io/dra-admin-access": "true"})
			assert.Equal(t, 1, reads, "reads of the namespace")
			if tc.err != nil {
				assert.Len(t, errs, 1)
				assert.Empty(t, annotation)
				return
			}
			assert.Empty(t, errs)
			assert.Equal(t, `{"user":"jane","label":"kubernetes.io/dra-admin-access","requests":[`+tc.expectRequests+`]}`, annotation)
		})
	}
}

// TestAdminAccessAudit covers what the annotation depends on besides the requests.
func TestAdminAccessAudit(t *testing.T) {
	client, _ := adminTestClient(map[string]string{"kubernetes.io/dra-admin-access": "true"}, nil)
	spec := &resource.ResourceClaimSpec{Devices: resource.DeviceClaim{Requests: []resource.DeviceRequest{deviceRequest("a", ptr.To(true))}}}
	meta := &metav1.ObjectMeta{
		Namespace:       adminTestNamespace,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "monitor-x7k2p", UID: "1", Controller: ptr.To(true)}},
	}

	// Anybody can write any owner into a claim of their own.
	for userName, expectOwner := range map[string]string{
		"system:serviceaccount:kube-system:resource-claim-controller": `,"owner":"Pod/monitor-x7k2p"`,
		"system:kube-controller-manager":                              `,"owner":"Pod/monitor-x7k2p"`,
		"jane":                                                        "",
		"system:serviceaccount:default:resource-claim-controller": "",
	} {
		t.Run("claim created by "+userName, func(t *testing.T) {
			ctx, annotation := auditedContext()
			ctx = genericapirequest.WithUser(ctx, &user.DefaultInfo{Name: userName})
			AuthorizeAdminClaim(ctx, meta, spec, nil, field.NewPath("spec"), client.CoreV1().Namespaces()).Audit(ctx, nil)
			assert.Equal(t, `{"user":"`+userName+`","label":"kubernetes.io/dra-admin-access","requests":["a"]`+expectOwner+`}`, annotation())
		})
	}
	t.Run("owner without end", func(t *testing.T) {
		ctx, annotation := auditedContext()
		ctx = genericapirequest.WithUser(ctx, &user.DefaultInfo{Name: "system:kube-controller-manager"})
		long := meta.DeepCopy()
		long.OwnerReferences[0].Name = strings.Repeat("ä", 10000)
		AuthorizeAdminClaim(ctx, long, spec, nil, field.NewPath("spec"), client.CoreV1().Namespaces()).Audit(ctx, nil)
		assert.Contains(t, annotation(), `"owner":"Pod/ää`)
		assert.Contains(t, annotation(), `ä..."}`)
		assert.True(t, utf8.ValidString(annotation()))
		assert.Less(t, len(annotation()), 500)
	})
	t.Run("invalid for another reason", func(t *testing.T) {
		ctx, annotation := auditedContext()
		errs := field.ErrorList{field.Required(field.NewPath("spec"), "")}
		assert.Equal(t, errs, AuthorizeAdminClaim(ctx, meta, spec, nil, field.NewPath("spec"), client.CoreV1().Namespaces()).Audit(ctx, errs))
		assert.Empty(t, annotation())
	})
	t.Run("no client", func(t *testing.T) {
		ctx, annotation := auditedContext()
		access := AuthorizeAdminClaim(ctx, meta, spec, nil, field.NewPath("spec"), nil)
		errs := access.Audit(ctx, access.Errors())
		require.Len(t, errs, 1)
		assert.Equal(t, field.ErrorTypeInternal, errs[0].Type)
		assert.Empty(t, annotation())
	})
	t.Run("no audit, no user", func(t *testing.T) {
		access := AuthorizeAdminClaim(context.Background(), meta, spec, nil, field.NewPath("spec"), client.CoreV1().Namespaces())
		assert.Empty(t, access.Audit(context.Background(), access.Errors()))
	})
}

// TestAuthorizeAdminStatus covers for which updates of the status the namespace must have the label.
func TestAuthorizeAdminStatus(t *testing.T) {
	result := func(request, device string, adminAccess *bool) resource.DeviceRequestAllocationResult {
		return resource.DeviceRequestAllocationResult{Request: request, Driver: "driver.example.com", Pool: "pool", Device: device, AdminAccess: adminAccess}
	}
	claim := func(results ...resource.DeviceRequestAllocationResult) *resource.ResourceClaim {
		c := &resource.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim", Namespace: adminTestNamespace}}
		if results != nil {
			c.Status.Allocation = &resource.AllocationResult{Devices: resource.DeviceAllocationResult{Results: results}}
		}
		return c
	}
	normal := result("normal", "device-0", nil)
	off := result("normal", "device-0", ptr.To(false))
	admin := result("admin", "device-1", ptr.To(true))
	other := result("admin", "device-2", ptr.To(true))

	for name, tc := range map[string]struct {
		claim, old    *resource.ResourceClaim
		err           error
		expectPath    string
		expectType    field.ErrorType
		expectDevices string
	}{
		"not allocated":               {claim: claim(), old: claim()},
		"allocated":                   {claim: claim(normal, off), old: claim()},
		"allocated, no storage":       {claim: claim(normal), old: claim(), err: errors.New("storage is down")},
		"deallocated":                 {claim: claim(), old: claim(admin)},
		"granted":                     {claim: claim(normal, admin), old: claim(), expectPath: "status.allocation.devices.results[1].adminAccess", expectDevices: `"driver.example.com/pool/device-1"`},
		"two granted":                 {claim: claim(admin, other), old: claim(), expectPath: "status.allocation.devices.results[0].adminAccess", expectDevices: `"driver.example.com/pool/device-1","driver.example.com/pool/device-2"`},
		"granted before":              {claim: claim(normal, admin), old: claim(normal, admin)},
		"granted before, no storage":  {claim: claim(admin), old: claim(admin), err: errors.New("storage is down")},
		"another device":              {claim: claim(admin, other), old: claim(admin), expectPath: "status.allocation.devices.results[1].adminAccess", expectDevices: `"driver.example.com/pool/device-2"`},
		"not admin before":            {claim: claim(result("admin", "device-1", ptr.To(true))), old: claim(result("admin", "device-1", nil)), expectPath: "status.allocation.devices.results[0].adminAccess", expectDevices: `"driver.example.com/pool/device-1"`},
		"namespace cannot be read":    {claim: claim(admin), old: claim(), err: errors.New("storage is down"), expectPath: "status.allocation.devices.results[0].adminAccess", expectType: field.ErrorTypeInternal},
		"same device, other request":  {claim: claim(result("second", "device-1", ptr.To(true))), old: claim(admin), expectPath: "status.allocation.devices.results[0].adminAccess", expectDevices: `"driver.example.com/pool/device-1"`},
		"same device, other pool":     {claim: claim(func() resource.DeviceRequestAllocationResult { r := admin; r.Pool = "other"; return r }()), old: claim(admin), expectPath: "status.allocation.devices.results[0].adminAccess", expectDevices: `"driver.example.com/other/device-1"`},
		"same device, another driver": {claim: claim(func() resource.DeviceRequestAllocationResult { r := admin; r.Driver = "other"; return r }()), old: claim(admin), expectPath: "status.allocation.devices.results[0].adminAccess", expectDevices: `"other/pool/device-1"`},
	} {
		t.Run(name, func(t *testing.T) {
			check := func(labels map[string]string) (field.ErrorList, string, int) {
				ctx, annotation := auditedContext()
				client, reads := adminTestClient(labels, tc.err)
				access := AuthorizeAdminStatus(ctx, tc.claim, tc.old, client.CoreV1().Namespaces())
				return access.Audit(ctx, access.Errors()), annotation(), reads()
			}

			errs, annotation, reads := check(map[string]string{"kubernetes.io/dra-admin-access": "True"})
			assert.Empty(t, annotation)
			if tc.expectPath == "" {
				assert.Empty(t, errs)
				assert.Zero(t, reads, "reads of the namespace")
				return
			}
			assert.Equal(t, 1, reads, "reads of the namespace")
			require.Len(t, errs, 1)
			if tc.expectType == "" {
				tc.expectType = field.ErrorTypeForbidden
			}
			assert.Equal(t, tc.expectType, errs[0].Type)
			assert.Equal(t, tc.expectPath, errs[0].Field)
			if tc.err != nil {
				assert.Contains(t, errs[0].Error(), tc.err.Error())
				return
			}

			errs, annotation, reads = check(map[string]string{"resource.k8s.io/admin-access": "true"})
			assert.Equal(t, 1, reads, "reads of the namespace")
			assert.Empty(t, errs)
			assert.Equal(t, `{"user":"jane","label":"resource.k8s.io/admin-access","devices":[`+tc.expectDevices+`]}`, annotation)
		})
	}
}
