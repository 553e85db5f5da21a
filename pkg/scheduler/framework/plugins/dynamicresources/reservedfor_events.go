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

package dynamicresources

import (
	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// The scheduling queue offers each event that a plugin registers to all pods which
// this plugin rejected. Here only few pods are affected by a few of the very many
// updates and deletions of pods. Those get activated directly.

// reservedForPodHandler returns the handler for all pods.
func (pl *DynamicResources) reservedForPodHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(oldObj, newObj any) {
			oldPod, ok := oldObj.(*v1.Pod)
			if !ok {
				return
			}
			if newPod, ok := newObj.(*v1.Pod); ok {
				pl.podUpdated(oldPod, newPod)
			}
		},
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			if pod, ok := obj.(*v1.Pod); ok {
				pl.podGone(pod)
			}
		},
	}
}

// podUpdated activates a pod which might belong to a different workload now.
func (pl *DynamicResources) podUpdated(oldPod, newPod *v1.Pod) {
	if len(newPod.Spec.ResourceClaims) == 0 {
		return
	}
	if isDone(newPod) {
		pl.podGone(newPod)
		return
	}
	if newPod.Spec.NodeName == "" && !apiequality.Semantic.DeepEqual(metav1.GetControllerOfNoCopy(oldPod), metav1.GetControllerOfNoCopy(newPod)) {
		pl.owners.activate(map[string]*v1.Pod{string(newPod.UID): newPod})
	}
}

// podGone activates pods which were waiting for the pod to not use an allocation
// anymore which does not fit them.
func (pl *DynamicResources) podGone(pod *v1.Pod) {
	for name := range claimNames(pod) {
		if pods := pl.claimUsers.gone(pod, name); len(pods) > 0 {
			pl.owners.activate(pods)
		}
	}
}
