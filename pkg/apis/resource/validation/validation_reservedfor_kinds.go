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

package validation

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/resource"
)

// builtInWorkloads are the resources which can be named in spec.reservedFor without
// giving kube-scheduler and kube-controller-manager access to them.
var builtInWorkloads = []schema.GroupResource{
	{Group: "apps", Resource: "daemonsets"},
	{Group: "apps", Resource: "deployments"},
	{Group: "apps", Resource: "replicasets"},
	{Group: "apps", Resource: "statefulsets"},
	{Group: "batch", Resource: "cronjobs"},
	{Group: "batch", Resource: "jobs"},
	{Group: "scheduling.k8s.io", Resource: "podgroups"},
	{Group: "", Resource: "replicationcontrollers"},
}

// WarningsForReservedFor returns what the author of a claim should look at although it
// is valid: a resource that is not built into Kubernetes may exist, or be a slip.
func WarningsForReservedFor(ref *resource.ResourceClaimWorkloadReference, fldPath *field.Path) []string {
	if ref == nil {
		return nil
	}
	return warningsForWorkload(ref, fldPath, "ResourceClaim", "the claim", "the claim will be neither reserved nor released")
}

// WarningsForReservedForTemplate is the same for the author of a ResourceClaimTemplate. There,
// pods can be meant, too.
func WarningsForReservedForTemplate(ref *resource.ResourceClaimWorkloadReference, fldPath *field.Path) []string {
	if ref == nil || ref.Resource == "" || ref.APIGroup == "" && ref.Resource == "pods" {
		return nil
	}
	return warningsForWorkload(ref, fldPath, "ResourceClaimTemplate", "the template", "no claim will be generated")
}

// warningsForWorkload says what the object is and what happens if it does not work.
func warningsForWorkload(ref *resource.ResourceClaimWorkloadReference, fldPath *field.Path, kind, object, consequence string) []string {
	gr := schema.GroupResource{Group: ref.APIGroup, Resource: ref.Resource}
	if slices.Contains(builtInWorkloads, gr) {
		return nil
	}
	if meant, ok := meantWorkload(gr); ok {
		return []string{fmt.Sprintf("%s: there is no resource %q in the API group %q of Kubernetes; did you mean apiGroup: %q, resource: %q? The spec of a %s cannot be changed: delete %s and create it again", fldPath, gr.Resource, gr.Group, meant.Group, meant.Resource, kind, object)}
	}
	return []string{fmt.Sprintf("%s: %q is not built into Kubernetes: check the spelling, and that kube-scheduler and kube-controller-manager have permission to read it, or %s", fldPath, gr, consequence)}
}

// hintForReservedFor returns what to append to an error about an invalid group or resource.
func hintForReservedFor(gr schema.GroupResource) string {
	if meant, ok := meantWorkload(gr); ok {
		return fmt.Sprintf(", did you mean apiGroup: %q, resource: %q?", meant.Group, meant.Resource)
	}
	return ""
}

// meantWorkload finds the built-in resource that somebody may have meant who wrote a kind
// (Job), the singular (job), or a short name (deploy), with a version (apps/v1), with the
// group in the resource (jobs.batch), or without the group.
func meantWorkload(gr schema.GroupResource) (schema.GroupResource, bool) {
	name, group := strings.ToLower(gr.Resource), strings.ToLower(gr.Group)
	group, _, _ = strings.Cut(group, "/")
	name, suffix, qualified := strings.Cut(name, ".")
	name, _, _ = strings.Cut(name, "/")
	if qualified && group == "" {
		group = suffix
	}
	for _, known := range builtInWorkloads {
		sameGroup := group == known.Group || group == "" || group == "core" || group == "v1" ||
			// The groups of built-in workloads get mixed up, those of others do not.
			slices.ContainsFunc(builtInWorkloads, func(other schema.GroupResource) bool { return other.Group == group })
		if sameGroup && name != "" && (name == known.Resource || name+"s" == known.Resource || slices.Contains(workloadShortNames[known.Resource], name)) {
			return known, known != gr
		}
	}
	return schema.GroupResource{}, false
}

// workloadShortNames has the short names known to kubectl.
var workloadShortNames = map[string][]string{
	"cronjobs":               {"cj"},
	"daemonsets":             {"ds"},
	"deployments":            {"deploy"},
	"replicasets":            {"rs"},
	"replicationcontrollers": {"rc"},
	"statefulsets":           {"sts"},
}
