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

package rest

import (
	"fmt"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	resourceclaimstore "k8s.io/kubernetes/pkg/registry/resource/resourceclaim/storage"
)

// authorizeStatusUpdates makes the storage for the status of ResourceClaims, in all versions of
// the API, ask who may change which part of it.
func authorizeStatusUpdates(info genericapiserver.APIGroupInfo, authorizer authorizer.Authorizer) (genericapiserver.APIGroupInfo, error) {
	for version, storage := range info.VersionedResourcesStorageMap {
		if _, served := storage["resourceclaims"]; !served {
			continue
		}
		status, ok := storage["resourceclaims/status"].(*resourceclaimstore.StatusREST)
		if !ok {
			// Without the check anybody could write everything.
			return genericapiserver.APIGroupInfo{}, fmt.Errorf("%s: the storage for resourceclaims/status is a %T, which cannot be authorized", version, storage["resourceclaims/status"])
		}
		status.AuthorizeUpdates(authorizer)
	}
	return info, nil
}
