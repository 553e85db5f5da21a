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
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// In these releases, there are no extended resources backed by claims. Event handlers have
// no logger in 1.32.

func extendedResourceClaimName(pod *v1.Pod) string { return "" }

func addEventHandler(logger klog.Logger, informer cache.SharedIndexInformer, handler cache.ResourceEventHandler) error {
	_, err := informer.AddEventHandler(handler)
	return err
}
