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

// The builder of this release takes a context.

package dra

import (
	"context"

	v1 "k8s.io/api/core/v1"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1"
	"k8s.io/klog/v2"
)

func (b *reservedForBuilder) create(ctx context.Context, objs ...klog.KMetadata) {
	b.builder.Create(ctx, objs...)
}

func (b *reservedForBuilder) newPod(claim string) *v1.Pod {
	pod := b.builder.PodExternal()
	pod.Spec.ResourceClaims[0].ResourceClaimName = &claim
	return pod
}

func (b *reservedForBuilder) claims(context.Context) resourceclient.ResourceClaimInterface {
	return b.builder.ClientV1().ResourceClaims(b.f.Namespace.Name)
}
