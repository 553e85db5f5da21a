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

package storage

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/apis/resource"
	resourceutils "k8s.io/kubernetes/pkg/registry/resource"
)

// limitStatus makes an update of the status be refused early if it is too large.
func limitStatus(objInfo rest.UpdatedObjectInfo) rest.UpdatedObjectInfo {
	return rest.WrapUpdatedObjectInfo(objInfo, func(_ context.Context, newObj, oldObj runtime.Object) (runtime.Object, error) {
		claim, ok := newObj.(*resource.ResourceClaim)
		oldClaim, oldOK := oldObj.(*resource.ResourceClaim)
		if !ok || !oldOK {
			return nil, fmt.Errorf("expected ResourceClaims, got %T and %T", newObj, oldObj)
		}
		return claim, resourceutils.LimitStatus(claim, oldClaim)
	})
}
