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

package resourceclaim

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// This file has the calls whose names contain the version of the PodGroup API.

func getPodGroupObject(ctx context.Context, client clientset.Interface, namespace, name string) (metav1.Object, error) {
	return client.SchedulingV1alpha2().PodGroups(namespace).Get(ctx, name, metav1.GetOptions{})
}

func podGroupInformer(factory informers.SharedInformerFactory) cache.SharedIndexInformer {
	return factory.Scheduling().V1alpha2().PodGroups().Informer()
}
