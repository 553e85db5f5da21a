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
	"testing"

	"github.com/stretchr/testify/assert"

	"k8s.io/client-go/informers"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// TestTemplateIsNotChangedForGroup is TestTemplateIsNotChanged for the claims of a group of pods.
func TestTemplateIsNotChangedForGroup(t *testing.T) {
	tCtx := ktesting.Init(t)
	annotated := template.DeepCopy()
	annotated.Spec.Annotations = map[string]string{"example.com/a": "b"}
	client := createTestClient(testPodGroupWithResource, annotated)
	factory := informers.NewSharedInformerFactory(client, controller.NoResyncPeriodFunc())
	setupMetrics()
	ec, err := newFeaturesTestController(tCtx.Logger(), Features{WorkloadResourceClaims: true}, client, factory)
	tCtx.ExpectNoError(err, "create controller")
	factory.Start(tCtx.Done())
	tCtx.Cleanup(func() {
		tCtx.Cancel("stopping informers")
		factory.Shutdown()
	})
	factory.WaitForCacheSync(tCtx.Done())

	var created map[string]string
	tCtx.ExpectNoError(ec.handlePodGroupClaim(tCtx, testPodGroupWithResource, testPodGroupWithResource.Spec.ResourceClaims[0], &created), "handle claim of the group")

	assert.Len(t, created, 1)
	cached, err := ec.templateLister.ResourceClaimTemplates(testNamespace).Get(templateName)
	tCtx.ExpectNoError(err, "get template")
	assert.Equal(t, map[string]string{"example.com/a": "b"}, cached.Spec.Annotations, "annotations in the cache")
}
