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
	"errors"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/features"
)

// This file is about claims which cannot be created yet: the namespace lacks the label for
// admin access, a quota has no room, or something else is missing that somebody
// adds later.

// maxBackOff is the longest time until something is tried again that failed. Not everything
// that may be missing can be watched. The overall rate remains limited.
const maxBackOff = 15 * time.Second

// namespaceResync is long because a resync is of no use. Without one, up to 1.34 the informer
// does not run with the fake time of tests.
const namespaceResync = 24 * time.Hour

// watchNamespaces blocks while it watches the labels of namespaces: one of them allows claims
// with admin access.
func (ec *Controller) watchNamespaces(ctx context.Context) {
	if !utilfeature.DefaultFeatureGate.Enabled(features.DRAAdminAccess) {
		return
	}
	informer := coreinformers.NewNamespaceInformer(ec.kubeClient, namespaceResync, cache.Indexers{})
	if err := informer.SetTransform(onlyLabels); err != nil {
		utilruntime.HandleError(err)
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(oldObj, newObj interface{}) {
			oldNamespace, oldOK := oldObj.(*v1.Namespace)
			newNamespace, newOK := newObj.(*v1.Namespace)
			if oldOK && newOK && !maps.Equal(oldNamespace.Labels, newNamespace.Labels) {
				ec.enqueuePodsWithoutClaim(klog.FromContext(ctx), newNamespace.Name)
			}
		},
	}); err != nil {
		utilruntime.HandleError(err)
		return
	}
	informer.Run(ctx.Done())
}

// onlyLabels removes what is not needed of a namespace.
func onlyLabels(obj interface{}) (interface{}, error) {
	namespace, ok := obj.(*v1.Namespace)
	if !ok {
		return obj, nil
	}
	return &v1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:            namespace.Name,
		UID:             namespace.UID,
		ResourceVersion: namespace.ResourceVersion,
		Labels:          namespace.Labels,
	}}, nil
}

// enqueuePodsWithoutClaim causes those pods in the namespace to be processed for which some claim
// was not created yet.
func (ec *Controller) enqueuePodsWithoutClaim(logger klog.Logger, namespace string) {
	pods, err := ec.podLister.Pods(namespace).List(labels.Everything())
	if err != nil {
		utilruntime.HandleError(err)
		return
	}
	for _, pod := range pods {
		if lacksClaim(pod) {
			ec.enqueuePod(logger, pod, false)
		}
	}
}

// isClaimPending returns true for the error about a pod whose status does not have a claim yet. When it has it, then
// the pod is processed again. Doing that because of the error would take the limited retries of all others.
func isClaimPending(err error) bool {
	return errors.Is(err, resourceclaim.ErrClaimNotFound)
}

// lacksClaim returns true if some claim has to be created for the pod.
func lacksClaim(pod *v1.Pod) bool {
	if pod.Spec.NodeName != "" {
		return false
	}
	exist := make(map[string]bool, len(pod.Status.ResourceClaimStatuses))
	for _, status := range pod.Status.ResourceClaimStatuses {
		exist[status.Name] = true
	}
	for _, podClaim := range pod.Spec.ResourceClaims {
		if podClaim.ResourceClaimTemplateName != nil && !exist[podClaim.Name] {
			return true
		}
	}
	return false
}
