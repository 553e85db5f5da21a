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

// 1.32 has no check of the namespace, and strategies that cannot read one.

package resourceclaim

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/kubernetes/pkg/apis/resource"
	resourceutils "k8s.io/kubernetes/pkg/registry/resource"
)

// AdminAccessStrategy is Strategy with a check whether the namespace of a
// claim may have admin access.
type AdminAccessStrategy struct {
	resourceclaimStrategy
	nsClient v1.NamespaceInterface
}

// AdminAccessStatusStrategy is StatusStrategy with the same check.
type AdminAccessStatusStrategy struct {
	resourceclaimStatusStrategy
	nsClient v1.NamespaceInterface
}

// NewStrategies returns the strategies for an API server.
func NewStrategies(nsClient v1.NamespaceInterface) (AdminAccessStrategy, AdminAccessStatusStrategy) {
	return AdminAccessStrategy{Strategy, nsClient}, AdminAccessStatusStrategy{StatusStrategy, nsClient}
}

// Validate implements [k8s.io/apiserver/pkg/registry/rest.RESTCreateStrategy].
func (s AdminAccessStrategy) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	claim := obj.(*resource.ResourceClaim)
	adminAccess := resourceutils.AuthorizeAdminClaim(ctx, &claim.ObjectMeta, &claim.Spec, nil, field.NewPath("spec"), s.nsClient)
	return adminAccess.Audit(ctx, append(adminAccess.Errors(), s.resourceclaimStrategy.Validate(ctx, obj)...))
}

// ValidateUpdate implements [k8s.io/apiserver/pkg/registry/rest.RESTUpdateStrategy].
func (s AdminAccessStrategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	errs := s.resourceclaimStrategy.ValidateUpdate(ctx, obj, old)
	if len(errs) == 0 {
		// Does nothing as long as the spec is immutable.
		newClaim, oldClaim := obj.(*resource.ResourceClaim), old.(*resource.ResourceClaim)
		errs = resourceutils.AuthorizeAdminClaim(ctx, &newClaim.ObjectMeta, &newClaim.Spec, &oldClaim.Spec, field.NewPath("spec"), s.nsClient).Errors()
	}
	return errs
}

// ValidateUpdate implements [k8s.io/apiserver/pkg/registry/rest.RESTUpdateStrategy].
func (s AdminAccessStatusStrategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	adminAccess := resourceutils.AuthorizeAdminStatus(ctx, obj.(*resource.ResourceClaim), old.(*resource.ResourceClaim), s.nsClient)
	return adminAccess.Audit(ctx, append(adminAccess.Errors(), s.resourceclaimStatusStrategy.ValidateUpdate(ctx, obj, old)...))
}
