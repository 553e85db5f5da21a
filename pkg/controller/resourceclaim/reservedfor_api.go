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

// What differs between Kubernetes releases, but has nothing to do with the
// feature itself, is in this file.

// extendedResourceClaimName returns the name of the claim that was created for
// extended resources of the pod, empty if there is none.
func extendedResourceClaimName(pod *v1.Pod) string {
	if status := pod.Status.ExtendedResourceClaimStatus; status != nil {
		return status.ResourceClaimName
	}
	return ""
}

func addEventHandler(logger klog.Logger, informer cache.SharedIndexInformer, handler cache.ResourceEventHandler) error {
	_, err := informer.AddEventHandlerWithOptions(handler, cache.HandlerOptions{Logger: &logger})
	return err
}
