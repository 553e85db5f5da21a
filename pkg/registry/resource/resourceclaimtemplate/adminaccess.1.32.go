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

// 1.32 has no check of the namespace, and a strategy that cannot read one.

package resourceclaimtemplate

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/kubernetes/pkg/apis/resource"
	resourceutils "k8s.io/kubernetes/pkg/registry/resource"
)

// AdminAccessStrategy is Strategy with a check whether the namespace of a
// template may have admin access.
type AdminAccessStrategy struct {
	resourceClaimTemplateStrategy
	nsClient v1.NamespaceInterface
}

// NewStrategy returns the strategy for an API server.
func NewStrategy(nsClient v1.NamespaceInterface) AdminAccessStrategy {
	return AdminAccessStrategy{Strategy, nsClient}
}

// Validate implements [k8s.io/apiserver/pkg/registry/rest.RESTCreateStrategy].
func (s AdminAccessStrategy) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	template := obj.(*resource.ResourceClaimTemplate)
	adminAccess := resourceutils.AuthorizeAdminClaim(ctx, &template.ObjectMeta, &template.Spec.Spec, nil, field.NewPath("spec", "spec"), s.nsClient)
	return adminAccess.Audit(ctx, append(adminAccess.Errors(), s.resourceClaimTemplateStrategy.Validate(ctx, obj)...))
}

// ValidateUpdate implements [k8s.io/apiserver/pkg/registry/rest.RESTUpdateStrategy].
func (s AdminAccessStrategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	errs := s.resourceClaimTemplateStrategy.ValidateUpdate(ctx, obj, old)
	if len(errs) == 0 {
		// Does nothing as long as the spec is immutable.
		newTemplate, oldTemplate := obj.(*resource.ResourceClaimTemplate), old.(*resource.ResourceClaimTemplate)
		errs = resourceutils.AuthorizeAdminClaim(ctx, &newTemplate.ObjectMeta, &newTemplate.Spec.Spec, &oldTemplate.Spec.Spec, field.NewPath("spec", "spec"), s.nsClient).Errors()
	}
	return errs
}
