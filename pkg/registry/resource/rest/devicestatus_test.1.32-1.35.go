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
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kubernetes/pkg/apis/resource"
)

// otherREST is what upstream might have some day.
type otherREST struct{}

func (otherREST) New() runtime.Object { return &resource.ResourceClaim{} }
func (otherREST) Destroy()            {}

// TestAuthorizeStatusUpdates checks that an API server does not start if it would not check
// anything. That it does is for the integration tests.
func TestAuthorizeStatusUpdates(t *testing.T) {
	for name, storage := range map[string]map[string]rest.Storage{
		"other storage": {"resourceclaims": otherREST{}, "resourceclaims/status": otherREST{}},
		"no status":     {"resourceclaims": otherREST{}},
	} {
		t.Run(name, func(t *testing.T) {
			info := genericapiserver.APIGroupInfo{VersionedResourcesStorageMap: map[string]map[string]rest.Storage{"v1": storage}}
			_, err := authorizeStatusUpdates(info, authorizerfactory.NewAlwaysDenyAuthorizer())
			if err == nil || !strings.Contains(err.Error(), "v1: the storage for resourceclaims/status") {
				t.Errorf("unexpected error: %v", err)
			}
		})
	}
	t.Run("no claims", func(t *testing.T) {
		info := genericapiserver.APIGroupInfo{VersionedResourcesStorageMap: map[string]map[string]rest.Storage{"v1alpha3": {"devicetaintrules": otherREST{}}}}
		got, err := authorizeStatusUpdates(info, authorizerfactory.NewAlwaysDenyAuthorizer())
		if err != nil || len(got.VersionedResourcesStorageMap) != 1 {
			t.Errorf("unexpected result: %v, %v", got, err)
		}
	})
}
