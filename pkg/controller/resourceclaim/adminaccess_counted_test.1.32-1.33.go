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

// In these releases, the API is v1beta1, and the metrics are ours.

package resourceclaim

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/ptr"
)

// TestAdminAccessCounted checks that the metrics are registered, and count what the
// controller creates.
func TestAdminAccessCounted(t *testing.T) {
	tCtx := ktesting.Init(t)
	template := &resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "monitor"}}
	template.Spec.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "all", AdminAccess: ptr.To(true)}}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "uid"}}
	pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "devices", ResourceClaimTemplateName: ptr.To("monitor")}}
	client := fake.NewSimpleClientset(template, pod)
	client.PrependReactor("create", "resourceclaims", createResourceClaimReactor())
	factory := informers.NewSharedInformerFactory(client, 0)
	ec, err := newAdminAccessController(tCtx.Logger(), client, factory, true)
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(tCtx.Done())
	factory.WaitForCacheSync(tCtx.Done())

	created := func() float64 {
		t.Helper()
		families, err := legacyregistry.DefaultGatherer.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			if family.GetName() != "resourceclaim_controller_creates_total" {
				continue
			}
			for _, metric := range family.GetMetric() {
				labels := map[string]string{}
				for _, label := range metric.GetLabel() {
					labels[label.GetName()] = label.GetValue()
				}
				if labels["admin_access"] == "true" && labels["status"] == "success" {
					return metric.GetCounter().GetValue()
				}
			}
		}
		return 0
	}
	before := created()
	if err := ec.syncHandler(tCtx, podKeyPrefix+"ns/pod"); err != nil {
		t.Fatal(err)
	}
	if after := created(); after != before+1 {
		t.Errorf("want one more claim with admin access than %g, got %g", before, after)
	}
}
