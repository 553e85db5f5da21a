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
	"reflect"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	restclient "k8s.io/client-go/rest"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/kubernetes/pkg/features"
)

// TestResourceClaimControllerWorkloads checks that the ResourceClaim controller
// watches workloads if and only if claims can be reserved for them.
func TestResourceClaimControllerWorkloads(t *testing.T) {
	for name, enabled := range map[string]bool{"disabled": false, "enabled": true} {
		t.Run(name, func(t *testing.T) {
			// Not enabled by default in all releases.
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DynamicResourceAllocation, true)
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.DRAReservedForWorkloads, enabled)

			_, ctx := ktesting.NewTestContext(t)
			ctx, cancel := context.WithCancel(ctx)
			client := fake.NewClientset()
			factory := informers.NewSharedInformerFactory(client, 0)
			defer func() {
				cancel()
				factory.Shutdown()
			}()
			initResourceClaimController(ctx, t, ControllerContext{
				ClientBuilder:   clientBuilder{TestClientBuilder{clientset: client}},
				InformerFactory: factory,
			})
			factory.Start(ctx.Done())
			synced := factory.WaitForCacheSync(ctx.Done())
			if !synced[reflect.TypeFor[*v1.Pod]()] {
				t.Error("expected pods to be watched")
			}
			for _, kind := range []reflect.Type{
				reflect.TypeFor[*batchv1.Job](),
				reflect.TypeFor[*batchv1.CronJob](),
				reflect.TypeFor[*appsv1.Deployment](),
				reflect.TypeFor[*appsv1.StatefulSet](),
				reflect.TypeFor[*appsv1.ReplicaSet](),
				reflect.TypeFor[*appsv1.DaemonSet](),
			} {
				if synced[kind] != enabled {
					t.Errorf("expected %s to be watched: %v, got: %v", kind, enabled, synced[kind])
				}
			}
		})
	}
}

// clientBuilder is usable in all releases.
type clientBuilder struct {
	TestClientBuilder
}

func (clientBuilder) Config(name string) (*restclient.Config, error) {
	return &restclient.Config{}, nil
}
