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
	"iter"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// This release has another type for the pods on a node, and devices have no taints.

// podsOn returns the pods which are assigned to a node or are about to be.
func podsOn(node *framework.NodeInfo) iter.Seq[*v1.Pod] {
	return func(yield func(*v1.Pod) bool) {
		for _, podInfo := range node.Pods {
			if !yield(podInfo.Pod) {
				return
			}
		}
	}
}

func (pl *DynamicResources) resourceSlices() ([]*resourceapi.ResourceSlice, error) {
	return pl.draManager.ResourceSlices().List()
}

// watchResourceSlices registers a handler for what resourceSlices returns. It does nothing if something
// else than the usual cache provides the slices, like in the Cluster Autoscaler, or nothing at all, like in
// upstream's tests of the framework.
func (pl *DynamicResources) watchResourceSlices(handler cache.ResourceEventHandler) error {
	if pl.draManager == nil {
		return nil
	}
	if _, ok := pl.draManager.ResourceSlices().(*resourceSliceLister); !ok {
		return nil
	}
	_, err := pl.fh.SharedInformerFactory().Resource().V1beta1().ResourceSlices().Informer().AddEventHandler(handler)
	return err
}

func (pl *DynamicResources) untoleratedTaint(*resourceapi.ResourceClaim, *resourceapi.Device, *resourceapi.DeviceRequestAllocationResult) string {
	return ""
}
