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

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/apis/resource"
	"k8s.io/kubernetes/pkg/features"
)

// statusAuthorizer is what upstream's checks need. 1.37 has another name for that.
type statusAuthorizer interface {
	Authorize(ctx context.Context, a authorizer.Attributes) (authorized authorizer.Decision, reason string, err error)
}

// KeepStatusFormat is [KeepFormat] for an update by the user who made the request in the context.
func KeepStatusFormat(ctx context.Context, status, oldStatus *resource.ResourceClaimStatus, a statusAuthorizer) {
	KeepFormat(status, oldStatus, func(devices []resource.AllocatedDeviceStatus) bool {
		written := *oldStatus
		written.Devices = devices
		return !utilfeature.DefaultFeatureGate.Enabled(features.DRAResourceClaimGranularStatusAuthorization) ||
			len(AuthorizedForDeviceStatus(ctx, field.NewPath("status", "devices"), a, written, *oldStatus)) == 0
	})
}
