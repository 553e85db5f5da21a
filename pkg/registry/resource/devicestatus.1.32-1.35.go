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

// The API server of 1.36 has these checks itself.

package resource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/apis/core"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/resource"
	"k8s.io/kubernetes/pkg/features"
)

const (
	// bindingSubresource and driverSubresource exist for authorization only. Roles
	// name them, nothing is served there.
	bindingSubresource = "binding"
	driverSubresource  = "driver"

	// A user who may do something only for claims on its own node has verbs with the
	// first prefix, one who may do it for all claims has those with the second one.
	associatedNodePrefix = "associated-node:"
	arbitraryNodePrefix  = "arbitrary-node:"
)

// StatusStrategy is a strategy for updates of the status of ResourceClaims that keeps the
// format of what is not changed, with a check who may write which part of it, if
// DRAResourceClaimGranularStatusAuthorization is enabled.
type StatusStrategy struct {
	rest.RESTUpdateStrategy
	authorizer authorizer.Authorizer
}

// NewStatusStrategy adds that to the strategy which upstream has.
func NewStatusStrategy(strategy rest.RESTUpdateStrategy, authorizer authorizer.Authorizer) StatusStrategy {
	return StatusStrategy{strategy, authorizer}
}

// PrepareForUpdate implements [rest.RESTUpdateStrategy].
func (s StatusStrategy) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	s.RESTUpdateStrategy.PrepareForUpdate(ctx, obj, old)
	claim, oldClaim := obj.(*resource.ResourceClaim), old.(*resource.ResourceClaim)
	KeepFormat(&claim.Status, &oldClaim.Status, func(devices []resource.AllocatedDeviceStatus) bool {
		written := *oldClaim
		written.Status.Devices = devices
		return !utilfeature.DefaultFeatureGate.Enabled(features.DRAResourceClaimGranularStatusAuthorization) ||
			len(AuthorizeStatusUpdate(ctx, &written, oldClaim, s.authorizer)) == 0
	})
}

// ValidateUpdate implements [rest.RESTUpdateStrategy]. Whoever may not write does not learn
// what else is wrong, and nothing is recorded as if it had been granted.
func (s StatusStrategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	claim, oldClaim := obj.(*resource.ResourceClaim), old.(*resource.ResourceClaim)
	if utilfeature.DefaultFeatureGate.Enabled(features.DRAResourceClaimGranularStatusAuthorization) {
		if errs := AuthorizeStatusUpdate(ctx, claim, oldClaim, s.authorizer); len(errs) > 0 {
			return errs
		}
	}
	if errs := s.RESTUpdateStrategy.ValidateUpdate(ctx, obj, old); len(errs) > 0 {
		return errs
	}
	// With DRAResourceClaimDeviceStatus disabled, there are no devices.
	return validateCanonicalIPs(&claim.Status, &oldClaim.Status)
}

// AuthorizeStatusUpdate decides whether the status of a ResourceClaim may be updated by the user who
// made the request in the context. How much there is to ask is limited: it refuses by itself what validation
// would refuse because of the number of devices.
func AuthorizeStatusUpdate(ctx context.Context, claim, oldClaim *resource.ResourceClaim, a authorizer.Authorizer) field.ErrorList {
	statusPath := field.NewPath("status")
	if err := refuseTooMany(&claim.Status, statusPath); err != nil {
		return field.ErrorList{err}
	}
	changes := statusChanges(&claim.Status, &oldClaim.Status)
	if len(changes) == 0 {
		return nil
	}
	if a == nil {
		return field.ErrorList{field.InternalError(statusPath, errors.New("no authorizer to check who may change it"))}
	}
	user, ok := genericapirequest.UserFrom(ctx)
	if !ok {
		return field.ErrorList{field.InternalError(statusPath, errors.New("no user in the request to check who may change it"))}
	}
	request, ok := genericapirequest.RequestInfoFrom(ctx)
	if !ok {
		return field.ErrorList{field.InternalError(statusPath, errors.New("no information about the request to check who may change it"))}
	}
	notHere := notOnNode(user, claim.Status.Allocation)
	var errs field.ErrorList
	for _, change := range changes {
		attributes := authorizer.AttributesRecord{
			User:            user,
			APIGroup:        resource.GroupName,
			APIVersion:      request.APIVersion,
			Resource:        "resourceclaims",
			ResourceRequest: true,
			Path:            request.Path,
		}
		if change.driver == "" {
			attributes.Subresource = bindingSubresource
			if reason := authorizeAny(ctx, a, attributes, request.Verb); reason != "" {
				errs = append(errs, field.Forbidden(statusPath.Child(change.field), fmt.Sprintf(
					"user %q needs the verb %q for resourceclaims/binding in API group %q at the cluster scope to change this%s",
					user.GetName(), request.Verb, resource.GroupName, reason)))
			}
			continue
		}
		attributes.Subresource = driverSubresource
		attributes.Namespace = claim.Namespace
		attributes.Name = change.driver
		verbs := []string{arbitraryNodePrefix + request.Verb}
		hint := ""
		if notHere == "" {
			verbs = []string{associatedNodePrefix + request.Verb, verbs[0]}
		} else {
			hint = fmt.Sprintf(" (%q is not enough because %s)", associatedNodePrefix+request.Verb, notHere)
		}
		if reason := authorizeAny(ctx, a, attributes, verbs...); reason != "" {
			errs = append(errs, field.Forbidden(statusPath.Child(change.field), fmt.Sprintf(
				`user %q needs the verb "%s" for resourceclaims/driver %q in API group %q in the namespace %q to change the entries of that driver%s%s`,
				user.GetName(), strings.Join(verbs, `" or "`), change.driver, resource.GroupName, claim.Namespace, hint, reason)))
		}
	}
	return errs
}

// authorizeAny asks whether the user has one of the verbs. It returns what to tell the user who
// has none of them.
func authorizeAny(ctx context.Context, a authorizer.Authorizer, attributes authorizer.AttributesRecord, verbs ...string) string {
	reasons := sets.New[string]()
	for _, verb := range verbs {
		attributes.Verb = verb
		decision, reason, err := a.Authorize(ctx, attributes)
		// An authorizer may say yes although it could not evaluate everything.
		if decision == authorizer.DecisionAllow {
			return ""
		}
		if reason != "" {
			reasons.Insert(reason)
		}
		if err != nil {
			reasons.Insert(err.Error())
		}
	}
	if len(reasons) == 0 {
		return "."
	}
	return ": " + strings.Join(sets.List(reasons), "; ")
}

// statusChange is a part of the status that was changed.
type statusChange struct {
	// field is the name of the field.
	field string
	// driver is the name of the one whose devices have changed. It is empty for
	// other fields.
	driver string
}

// statusChanges finds out what differs: at most one change for allocation and reservedFor, and then one
// for each driver which has other entries than before, ordered by name. All that is not stored as it
// was has changed: [KeepFormat] comes first, and where it does not keep the format, JSON in another
// one is written as it is.
func statusChanges(status, oldStatus *resource.ResourceClaimStatus) []statusChange {
	var changes []statusChange
	switch {
	case !equality.Semantic.DeepEqual(status.Allocation, oldStatus.Allocation):
		changes = append(changes, statusChange{field: "allocation"})
	case !equality.Semantic.DeepEqual(status.ReservedFor, oldStatus.ReservedFor):
		changes = append(changes, statusChange{field: "reservedFor"})
	}
	if status.Allocation == nil {
		// The server removes the devices of a claim that gets deallocated. There
		// cannot be others.
		return changes
	}
	// An entry which was changed is one that has come, and one that has gone. What
	// identifies an entry, and their order, are of no importance.
	drivers := sets.New[string]()
	gone := slices.Clone(oldStatus.Devices)
	for i := range status.Devices {
		j := slices.IndexFunc(gone, func(old resource.AllocatedDeviceStatus) bool {
			return equality.Semantic.DeepEqual(status.Devices[i], old)
		})
		if j < 0 {
			drivers.Insert(status.Devices[i].Driver)
			continue
		}
		gone = slices.Delete(gone, j, j+1)
	}
	for i := range gone {
		drivers.Insert(gone[i].Driver)
	}
	for _, driver := range sets.List(drivers) {
		changes = append(changes, statusChange{field: "devices", driver: driver})
	}
	return changes
}

// notOnNode says why the user is not on the node of the claim. It returns an empty string if it
// is: a service account whose token has exactly one node, for a claim that was allocated for exactly
// that node.
func notOnNode(user user.Info, allocation *resource.AllocationResult) string {
	node := allocatedNode(allocation)
	if node == "" {
		return "the claim is not allocated for exactly one node"
	}
	if _, _, err := serviceaccount.SplitUsername(user.GetName()); err != nil {
		return "this is not a service account"
	}
	switch names := user.GetExtra()[serviceaccount.NodeNameKey]; {
	case len(names) == 0:
		return "the token of the user is not bound to a node"
	case len(names) > 1:
		return "the user has more than one node"
	case len(corevalidation.ValidateNodeName(names[0], false)) > 0:
		return "the user has an invalid node name"
	case names[0] != node:
		return fmt.Sprintf("the user is on the node %q, the claim is allocated for the node %q", names[0], node)
	}
	return ""
}

// allocatedNode returns the node if the allocation selects one by its name, and by
// nothing else.
func allocatedNode(allocation *resource.AllocationResult) string {
	if allocation == nil || allocation.NodeSelector == nil || len(allocation.NodeSelector.NodeSelectorTerms) != 1 {
		return ""
	}
	term := allocation.NodeSelector.NodeSelectorTerms[0]
	if len(term.MatchExpressions) > 0 || len(term.MatchFields) != 1 {
		return ""
	}
	match := term.MatchFields[0]
	if match.Key != "metadata.name" || match.Operator != core.NodeSelectorOpIn || len(match.Values) != 1 {
		return ""
	}
	return match.Values[0]
}
