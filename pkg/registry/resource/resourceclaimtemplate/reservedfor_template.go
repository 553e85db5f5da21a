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

package resourceclaimtemplate

import (
	"context"

	"k8s.io/apimachinery/pkg/util/validation/field"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/kubernetes/pkg/apis/resource"
	"k8s.io/kubernetes/pkg/apis/resource/validation"
	"k8s.io/kubernetes/pkg/features"
	resourceutils "k8s.io/kubernetes/pkg/registry/resource"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

var specReservedForPath = fieldpath.MakePathOrDie("spec", "spec", "reservedFor")

// keepReservedFor puts back what an update does not have, as for claims: a client that was compiled
// with upstream's types drops the field from what it read. The spec is immutable, so nobody can
// remove it deliberately.
func keepReservedFor(template, oldTemplate *resource.ResourceClaimTemplate) {
	if template.Spec.Spec.ReservedFor == nil && oldTemplate.Spec.Spec.ReservedFor != nil {
		template.Spec.Spec.ReservedFor = oldTemplate.Spec.Spec.ReservedFor.DeepCopy()
		resourceutils.KeepFieldManagers(&template.ObjectMeta, &oldTemplate.ObjectMeta, specReservedForPath)
	}
	resourceutils.KeepSpecFormat(&template.Spec.Spec, &oldTemplate.Spec.Spec)
}

// warnAboutReservedFor must be called before fields of a new template get dropped: what is left
// without this one makes a claim for each pod instead of one for all.
func warnAboutReservedFor(ctx context.Context, template *resource.ResourceClaimTemplate) {
	ref := template.Spec.Spec.ReservedFor
	if ref == nil {
		return
	}
	path := field.NewPath("spec", "spec", "reservedFor")
	if !utilfeature.DefaultFeatureGate.Enabled(features.DRAReservedForWorkloads) {
		warning.AddWarning(ctx, "", path.String()+" was dropped because the DRAReservedForWorkloads feature gate is disabled in kube-apiserver: each pod will get a claim of its own; enable the gate, then delete the template and create it again")
		return
	}
	for _, text := range validation.WarningsForReservedForTemplate(ref, path) {
		warning.AddWarning(ctx, "", text)
	}
}
