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

package dra

import (
	resourceapi "k8s.io/api/resource/v1"
	drautils "k8s.io/kubernetes/test/e2e/dra/utils"
	"k8s.io/kubernetes/test/e2e/framework"
)

// reservedForBuilder makes pods and claims with what the specs of this release have for that. The
// devices of the driver can be used on up to four nodes.
type reservedForBuilder struct {
	f       *framework.Framework
	driver  *drautils.Driver
	builder *drautils.Builder
}

func newReservedForBuilder(f *framework.Framework) *reservedForBuilder {
	b := &reservedForBuilder{f: f}
	b.driver = drautils.NewDriver(f, drautils.NewNodes(f, 1, 4), drautils.NetworkResources(1, false))
	b.builder = drautils.NewBuilder(f, b.driver)
	return b
}

func (b *reservedForBuilder) newClaim() *resourceapi.ResourceClaim { return b.builder.ExternalClaim() }
