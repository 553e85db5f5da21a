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

// 1.32 creates its storage without a client.

package storage

import (
	"k8s.io/apiserver/pkg/registry/generic"
	v1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/kubernetes/pkg/registry/resource/resourceclaimtemplate"
)

// NewCheckedREST does the same as NewREST. The storage also checks whether the namespace of
// a template may have admin access.
func NewCheckedREST(optsGetter generic.RESTOptionsGetter, nsClient v1.NamespaceInterface) (*REST, error) {
	rest, err := NewREST(optsGetter)
	if err != nil {
		return nil, err
	}
	strategy := resourceclaimtemplate.NewStrategy(nsClient)
	rest.CreateStrategy, rest.UpdateStrategy = strategy, strategy
	return rest, nil
}
