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
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/test/utils/ktesting"
)

var claimResource = resourceapi.SchemeGroupVersion.WithResource("resourceclaims")

// newUnownedClaim returns a claim that was not generated for a pod.
func newUnownedClaim(name string) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: testNamespace}}
}

// startFixesTest returns a controller without workers whose informers have
// synced.
func startFixesTest(tCtx ktesting.TContext, client *fake.Clientset) *Controller {
	tCtx.Helper()
	factory := informers.NewSharedInformerFactory(client, controller.NoResyncPeriodFunc())
	setupMetrics()
	ec, err := newFixesTestController(tCtx.Logger(), client, factory)
	tCtx.ExpectNoError(err, "create controller")
	tCtx.Cleanup(ec.queue.ShutDown)
	factory.Start(tCtx.Done())
	tCtx.Cleanup(func() {
		tCtx.Cancel("stopping informers")
		factory.Shutdown()
	})
	factory.WaitForCacheSync(tCtx.Done())
	return ec
}
