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
	"context"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1beta1"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1beta1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/test/e2e/framework"
)

// reservedForBuilder makes pods and claims with what the specs of this release have for that. The
// devices of the driver can be used on up to four nodes.
type reservedForBuilder struct {
	f       *framework.Framework
	driver  *Driver
	builder *builder
}

func newReservedForBuilder(f *framework.Framework) *reservedForBuilder {
	b := &reservedForBuilder{f: f}
	b.driver = NewDriver(f, NewNodes(f, 1, 4), networkResources)
	b.builder = newBuilder(f, b.driver)
	return b
}

func (b *reservedForBuilder) create(ctx context.Context, objs ...klog.KMetadata) {
	b.builder.create(ctx, objs...)
}

func (b *reservedForBuilder) newClaim() *resourceapi.ResourceClaim { return b.builder.externalClaim() }

func (b *reservedForBuilder) newPod(claim string) *v1.Pod {
	pod := b.builder.podExternal()
	pod.Spec.ResourceClaims[0].ResourceClaimName = &claim
	return pod
}

func (b *reservedForBuilder) claims(context.Context) resourceclient.ResourceClaimInterface {
	return b.f.ClientSet.ResourceV1beta1().ResourceClaims(b.f.Namespace.Name)
}
