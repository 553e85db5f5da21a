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

package app

import (
	"context"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cacheddiscovery "k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/resourceclaim"
	"k8s.io/kubernetes/pkg/features"
)

// watchResourceClaimWorkloads gives the ResourceClaim controller access to the
// objects that claims may be reserved for instead of pods. It does nothing
// unless that feature is enabled.
func watchResourceClaimWorkloads(ctx context.Context, controllerContext ControllerContext, controller *resourceclaim.Controller) error {
	if !utilfeature.DefaultFeatureGate.Enabled(features.DRAReservedForWorkloads) {
		return nil
	}

	// This has to be the identity of the controller because the built-in
	// kinds and those added by aggregation get granted to that one.
	config, err := controllerContext.ClientBuilder.Config("resource-claim-controller")
	if err != nil {
		return fmt.Errorf("create client config: %w", err)
	}
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("create dynamic client: %w", err)
	}
	discoveryClient, err := controllerContext.ClientBuilder.DiscoveryClient("resource-claim-controller")
	if err != nil {
		return fmt.Errorf("create discovery client: %w", err)
	}
	claims, err := controllerContext.InformerFactory.ForResource(resourceapi.SchemeGroupVersion.WithResource("resourceclaims"))
	if err != nil {
		return fmt.Errorf("get informer for ResourceClaims: %w", err)
	}
	return controller.WatchWorkloads(
		klog.FromContext(ctx),
		controllerContext.InformerFactory,
		claims.Informer(),
		// Not the one that other controllers share: names of resources come
		// from users, and each unknown one may cause the mapper to
		// be reset.
		restmapper.NewDeferredDiscoveryRESTMapper(cacheddiscovery.NewMemCacheClient(discoveryClient)),
		dynamicClient,
	)
}
