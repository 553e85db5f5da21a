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

package resourceclaimspec

import (
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/apis/resource"
	"k8s.io/kubernetes/pkg/features"
)

// DropDisabledDRAReservedForWorkloadsFields removes spec.reservedFor unless the
// feature is enabled or was in use. The strategies of older releases call it,
// in newer ones DropDisabledFields does.
func DropDisabledDRAReservedForWorkloadsFields(new, old *resource.ResourceClaimSpec) {
	if utilfeature.DefaultFeatureGate.Enabled(features.DRAReservedForWorkloads) ||
		DRAReservedForWorkloadsFeatureInUse(old) {
		// No need to drop anything.
		return
	}
	new.ReservedFor = nil
}

// DRAReservedForWorkloadsFeatureInUse checks whether the feature is in use in the spec.
func DRAReservedForWorkloadsFeatureInUse(spec *resource.ResourceClaimSpec) bool {
	return spec != nil && spec.ReservedFor != nil
}
