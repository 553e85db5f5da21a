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

package util

import (
	"context"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cacheddiscovery "k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/resourceclaim"
	"k8s.io/kubernetes/pkg/features"
	ktesting "k8s.io/kubernetes/test/utils/client-go/ktesting"
)

// ReservedForWorkloads tells whether claims can be reserved for a workload.
func ReservedForWorkloads() bool {
	return utilfeature.DefaultFeatureGate.Enabled(features.DRAReservedForWorkloads)
}

// watchResourceClaimWorkloads gives the ResourceClaim controller access to the
// objects that claims may be reserved for instead of pods, if that feature is
// enabled. Kinds which are not built-in are only supported if the context is
// a ktesting.TContext with a REST config.
func watchResourceClaimWorkloads(ctx context.Context, tb ktesting.TB, clientSet clientset.Interface, informerFactory informers.SharedInformerFactory, controller *resourceclaim.Controller) {
	if !ReservedForWorkloads() {
		return
	}

	var restMapper meta.RESTMapper
	var dynamicClient dynamic.Interface
	if ctx, ok := ctx.(interface{ RESTConfig() *restclient.Config }); ok && ctx.RESTConfig() != nil {
		var err error
		dynamicClient, err = dynamic.NewForConfig(ctx.RESTConfig())
		if err != nil {
			tb.Fatalf("Error creating dynamic client for claim controller: %v", err)
		}
		restMapper = restmapper.NewDeferredDiscoveryRESTMapper(cacheddiscovery.NewMemCacheClient(clientSet.Discovery()))
	}
	claims, err := informerFactory.ForResource(resourceapi.SchemeGroupVersion.WithResource("resourceclaims"))
	if err != nil {
		tb.Fatalf("Error getting informer for ResourceClaims: %v", err)
	}
	if err := controller.WatchWorkloads(klog.FromContext(ctx), informerFactory, claims.Informer(), restMapper, dynamicClient); err != nil {
		tb.Fatalf("Error adding workloads to claim controller: %v", err)
	}
}
