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
	"fmt"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// podTemplateIndex finds the pods for which a claim is created from a template.
const podTemplateIndex = "podClaimTemplate"

// watchTemplates causes pods to be processed whose template came after them.
func (ec *Controller) watchTemplates(logger klog.Logger, informer cache.SharedIndexInformer) error {
	if err := ec.podIndexer.AddIndexers(cache.Indexers{podTemplateIndex: podTemplateIndexFunc}); err != nil {
		return fmt.Errorf("could not initialize ResourceClaim controller: %w", err)
	}
	enqueue := func(obj interface{}) {
		template, ok := obj.(*resourceapi.ResourceClaimTemplate)
		if !ok {
			return
		}
		pods, err := ec.podIndexer.ByIndex(podTemplateIndex, template.Namespace+"/"+template.Name)
		if err != nil {
			logger.Error(err, "Unable to list pods for claim template", "resourceClaimTemplate", klog.KObj(template))
			return
		}
		for _, pod := range pods {
			if pod, ok := pod.(*v1.Pod); ok && lacksClaim(pod) {
				ec.enqueuePod(logger, pod, false)
			}
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, obj interface{}) { enqueue(obj) },
	})
	return err
}

func podTemplateIndexFunc(obj interface{}) ([]string, error) {
	pod, ok := obj.(*v1.Pod)
	if !ok {
		return nil, nil
	}
	var keys []string
	for _, podClaim := range pod.Spec.ResourceClaims {
		if podClaim.ResourceClaimTemplateName != nil {
			keys = append(keys, pod.Namespace+"/"+*podClaim.ResourceClaimTemplateName)
		}
	}
	return keys, nil
}
