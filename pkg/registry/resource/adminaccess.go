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
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	v1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/kubernetes/pkg/apis/resource"
	"k8s.io/utils/ptr"
)

// AdminAccessAuditAnnotation is the key of the audit annotation of a request
// that was allowed to ask for, or to grant, admin access. The value is the
// JSON encoding of AdminAccessAudit.
//
// Admission plugins that run after the validation may still refuse the
// request: what was admitted has a successful response status in its event.
const AdminAccessAuditAnnotation = "resource.kubernetes.io/admin-access-granted"

// AdminAccessAudit says who got admin access to what.
type AdminAccessAudit struct {
	// User is the one for whom the request was made. It differs from the user in the
	// audit event if that one impersonates somebody.
	User string `json:"user"`
	// Label is the key of the label that allows it.
	Label string `json:"label"`
	// Requests are the names of the requests with the adminAccess field in a claim or
	// a template.
	Requests []string `json:"requests,omitempty"`
	// Owner is the pod, or other object, for which the resourceclaim controller
	// generated the claim from a template. It is left out of requests of all other users, who
	// may claim to act for anybody.
	Owner string `json:"owner,omitempty"`
	// Devices are those allocated with admin access, as driver/pool/device.
	Devices []string `json:"devices,omitempty"`
}

// AdminAccess is the outcome of a check whether a request may have admin access.
// The zero value stands for a request that needs no permission.
type AdminAccess struct {
	errs  field.ErrorList
	audit *AdminAccessAudit
}

// Errors is empty if the request is allowed.
func (a AdminAccess) Errors() field.ErrorList {
	return a.errs
}

// Audit records in the audit event what was allowed unless validation found some
// error. It returns the errors, so that it can be called around the last step
// of the validation.
func (a AdminAccess) Audit(ctx context.Context, errs field.ErrorList) field.ErrorList {
	if a.audit == nil || len(errs) > 0 {
		return errs
	}
	value, err := json.Marshal(a.audit)
	if err != nil {
		// Cannot happen: it only has strings. If it did, somebody would have
		// access that no log shows.
		return append(errs, field.InternalError(nil, fmt.Errorf("encode audit annotation for admin access: %w", err)))
	}
	audit.AddAuditAnnotation(ctx, AdminAccessAuditAnnotation, string(value))
	return errs
}

// AuthorizeAdminClaim decides whether a ResourceClaim or ResourceClaimTemplate may be created,
// or with an old spec be updated, with those requests that ask for admin access.
//
// What the object has already needs no permission: updates of its metadata must
// remain possible when the namespace has lost the label, otherwise finalizers
// could not be removed anymore.
func AuthorizeAdminClaim(ctx context.Context, meta *metav1.ObjectMeta, spec, oldSpec *resource.ResourceClaimSpec, specPath *field.Path, nsClient v1.NamespaceInterface) AdminAccess {
	var firstPath *field.Path
	var names []string
	for i := range spec.Devices.Requests {
		adminAccess, path := requestAdminAccess(&spec.Devices.Requests[i], specPath.Child("devices", "requests").Index(i))
		if !ptr.Deref(adminAccess, false) || oldSpec != nil && hasAdminRequest(oldSpec, spec.Devices.Requests[i].Name) {
			continue
		}
		if firstPath == nil {
			firstPath = path
		}
		names = append(names, spec.Devices.Requests[i].Name)
	}
	if firstPath == nil {
		return AdminAccess{}
	}
	access := authorizeAdminAccess(ctx, meta.Namespace, firstPath, nsClient)
	if access.audit != nil {
		access.audit.Requests = names
		access.audit.Owner = ownerForAudit(access.audit.User, meta)
	}
	return access
}

// generatingUsers generate claims for pods. The controller has the second name if the
// controller manager does not use service accounts for its controllers.
var generatingUsers = []string{
	serviceaccount.MakeUsername(metav1.NamespaceSystem, "resource-claim-controller"),
	user.KubeControllerManager,
}

// maxAuditOwner is enough for the kind of a pod or a group of pods, and the longest name.
const maxAuditOwner = 320

// ownerForAudit returns who owns a generated claim.
func ownerForAudit(userName string, meta *metav1.ObjectMeta) string {
	owner := metav1.GetControllerOfNoCopy(meta)
	if owner == nil || !slices.Contains(generatingUsers, userName) {
		return ""
	}
	text := owner.Kind + "/" + owner.Name
	if len(text) > maxAuditOwner {
		// Nothing limits the length of a reference.
		return strings.ToValidUTF8(text[:maxAuditOwner], "") + "..."
	}
	return text
}

// AuthorizeAdminStatus decides whether the status of a ResourceClaim may be updated with
// an allocation that grants admin access. Once it is granted, later updates need no
// permission.
func AuthorizeAdminStatus(ctx context.Context, claim, oldClaim *resource.ResourceClaim, nsClient v1.NamespaceInterface) AdminAccess {
	if claim.Status.Allocation == nil {
		return AdminAccess{}
	}
	resultsPath := field.NewPath("status", "allocation", "devices", "results")
	var firstPath *field.Path
	var devices []string
	for i := range claim.Status.Allocation.Devices.Results {
		result := &claim.Status.Allocation.Devices.Results[i]
		if !ptr.Deref(result.AdminAccess, false) || hasAdminResult(oldClaim, result) {
			continue
		}
		if firstPath == nil {
			firstPath = resultsPath.Index(i).Child("adminAccess")
		}
		devices = append(devices, result.Driver+"/"+result.Pool+"/"+result.Device)
	}
	if firstPath == nil {
		return AdminAccess{}
	}
	access := authorizeAdminAccess(ctx, claim.Namespace, firstPath, nsClient)
	if access.audit != nil {
		access.audit.Devices = devices
	}
	return access
}

// authorizeAdminAccess is the decision. It reads the namespace from storage instead of from
// a cache because a label that was just removed must not count anymore.
func authorizeAdminAccess(ctx context.Context, namespace string, path *field.Path, nsClient v1.NamespaceInterface) AdminAccess {
	if nsClient == nil {
		return AdminAccess{errs: field.ErrorList{field.InternalError(path, errors.New("no client to retrieve the namespace and verify admin access"))}}
	}
	ns, err := nsClient.Get(ctx, namespace, metav1.GetOptions{})
	if err != nil {
		return AdminAccess{errs: field.ErrorList{field.InternalError(path, fmt.Errorf("could not retrieve namespace to verify admin access: %w", err))}}
	}
	for _, key := range adminAccessLabelKeys {
		if ns.Labels[key] != "true" {
			continue
		}
		access := AdminAccess{audit: &AdminAccessAudit{Label: key}}
		if requester, ok := genericapirequest.UserFrom(ctx); ok {
			access.audit.User = requester.GetName()
		}
		return access
	}
	return AdminAccess{errs: field.ErrorList{field.Forbidden(path, fmt.Sprintf(
		"admin access to devices requires the `%s: true` label on the containing namespace %q; the keys `%s` and `%s` count, too. Ask an administrator of the cluster for it, or remove the field",
		adminAccessLabelKeys[0], namespace, adminAccessLabelKeys[1], adminAccessLabelKeys[2]))}}
}

// hasAdminRequest returns true if the request of that name has admin access.
func hasAdminRequest(spec *resource.ResourceClaimSpec, name string) bool {
	for i := range spec.Devices.Requests {
		request := &spec.Devices.Requests[i]
		if adminAccess, _ := requestAdminAccess(request, nil); request.Name == name && ptr.Deref(adminAccess, false) {
			return true
		}
	}
	return false
}

// hasAdminResult returns true if the claim has that very device for that very request already,
// with admin access.
func hasAdminResult(claim *resource.ResourceClaim, result *resource.DeviceRequestAllocationResult) bool {
	if claim.Status.Allocation == nil {
		return false
	}
	for i := range claim.Status.Allocation.Devices.Results {
		other := &claim.Status.Allocation.Devices.Results[i]
		if ptr.Deref(other.AdminAccess, false) &&
			other.Request == result.Request &&
			other.Driver == result.Driver && other.Pool == result.Pool && other.Device == result.Device {
			return true
		}
	}
	return false
}
